//! Which adapter serves which route.

use std::collections::BTreeMap;
use std::sync::Arc;

use dsh_plugin_api::vocab::{EnvelopeId, Failure, RouteInfo, Target};

use crate::loader::{AdapterHandle, Loader};
use crate::manifest::{Manifest, ManifestError};

/// One provider route and its owner.
pub struct Route {
    /// What the adapter says of it.
    pub info: RouteInfo,
    /// `id` of the `[[adapter]]` that serves it.
    pub adapter: String,
    /// What that adapter writes into replay state.
    pub envelope: EnvelopeId,
    /// The adapter.
    pub handle: Arc<dyn AdapterHandle>,
    /// The credential reference that the manifest names in this route; a request may use no other.
    pub credential: Option<String>,
    /// The only origin (`scheme://host:port`) that this route's requests and secrets may go to.
    pub origin: Option<String>,
}

/// An adapter of the manifest, loaded or not.
#[derive(Debug, Clone)]
pub struct AdapterStatus {
    /// `id`
    pub id: String,
    /// `library` as written.
    pub library: String,
    /// Version of the adapter, once known.
    pub version: Option<String>,
    /// Adapter API it was built with, once known.
    pub api: Option<String>,
    /// Its envelope, once known.
    pub envelope: Option<EnvelopeId>,
    /// Its routes.
    pub routes: Vec<String>,
    /// Why it does not serve: the whole chain of reasons.
    pub error: Option<String>,
}

/// The routes of a composition.
#[derive(Default)]
pub struct Registry {
    /// Every adapter of the manifest, in order.
    pub adapters: Vec<AdapterStatus>,
    /// Routes by name.
    pub routes: BTreeMap<String, Arc<Route>>,
}

impl Registry {
    /// Loads the adapters of a manifest. One that fails is reported in [`Registry::adapters`] unless it is `required`.
    ///
    /// # Errors
    ///
    /// A required adapter that fails, a route with two owners, a configuration that its adapter refuses: each with its
    /// place in the manifest.
    pub fn load(manifest: &Manifest, loader: &Loader) -> Result<Self, ManifestError> {
        let _ = (manifest, loader);
        Ok(Self::default())
    }

    /// The route and target of `provider/model`, split at the first slash.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_MODEL`, with what there is and what is nearest.
    pub fn resolve(&self, model: &str) -> Result<(Arc<Route>, Target), Failure> {
        let _ = model;
        Err(Failure::new(dsh_plugin_api::vocab::FailureCode::UnknownModel, "stub"))
    }
}
