//! A provider route: where its requests go, and what is known of its models.

use std::borrow::Cow;

use dsh_plugin_api::kit::endpoint::Endpoint;

use crate::config::{Model, Provider};

/// A route of any wire.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its name, which is also the provider's in targets.
    pub name: String,
    /// Its configuration.
    pub provider: Provider,
    /// Its parsed `base_url`.
    pub endpoint: Endpoint,
}

impl Route {
    /// A listed model, or one with cautious defaults, with what is said for all models of the route.
    pub fn model(&self, id: &str) -> Cow<'_, Model> {
        self.provider.model(id)
    }

    /// The name that says most about the server: that of its preset, else of the route.
    pub fn known_as(&self) -> &str {
        self.provider.preset.as_ref().map_or(self.name.as_str(), |preset| preset.as_str())
    }

    /// The reference of its credential.
    pub fn credential(&self) -> Option<&str> {
        self.provider.credential.as_deref()
    }
}
