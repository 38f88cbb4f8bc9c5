//! A provider route: where its requests go, and what is known of its models.

use std::borrow::Cow;

use crate::config::{Model, Provider};
use dsh_plugin_api::kit::endpoint::Endpoint;

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
    /// A listed model, or one with cautious defaults: no limits, no thinking, text alone.
    pub fn model(&self, id: &str) -> Cow<'_, Model> {
        match self.provider.models.iter().find(|model| model.id == id) {
            Some(model) => Cow::Borrowed(model),
            None => Cow::Owned(Model { id: id.to_owned(), ..Model::default() }),
        }
    }

    /// The reference of its credential.
    pub fn credential(&self) -> Option<&str> {
        self.provider.credential.as_deref()
    }
}
