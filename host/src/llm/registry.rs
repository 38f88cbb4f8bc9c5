//! Which adapter serves which route.
//!
//! A route has exactly one owner. An adapter that cannot be loaded is reported by id and leaves the others alone,
//! unless the manifest calls it `required`; a manifest that an adapter refuses, or that gives a route two owners, is
//! a bad manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use dsh_plugin_api::vocab::{EnvelopeId, Failure, FailureCode, RouteInfo, Target};

use crate::loader::{AdapterHandle, CreateError, Loader, chain};
use crate::manifest::places::{self, preset_credential};
use crate::manifest::{AdapterEntry, Manifest, ManifestError, Served};

/// How alike two names must be for one to be offered in place of the other.
const NEAR: f64 = 0.7;

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
    /// The only origin (`scheme://host`, with `:port` where it is not the scheme's own) that this route's requests and
    /// secrets may go to.
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

/// Why one adapter does not serve.
#[derive(Debug, thiserror::Error)]
enum NotServing {
    #[error(transparent)]
    Load(#[from] crate::loader::LoadError),
    #[error("{library}: {error}")]
    Create { library: String, error: CreateError },
    #[error(
        "it claims the credential {claimed:?} for its route {route:?}, where the manifest names {}; a route may use \
         only the reference that `config.providers.{route}.credential` names, or without it and \
         without `base_url` NAME_API_KEY of the preset that its `provider` names",
        named.as_ref().map_or_else(|| "none".to_owned(), |named| format!("{named:?}"))
    )]
    Credential { route: String, claimed: String, named: Option<String> },
    #[error("the base URL {url:?} of its route {route:?} has no origin to send requests to; give an http or https URL")]
    Origin { route: String, url: String },
}

impl Registry {
    /// Loads the adapters of a manifest. One that fails is reported in [`Registry::adapters`] unless it is `required`.
    ///
    /// # Errors
    ///
    /// A required adapter that fails, a route with two owners, a configuration that its adapter refuses, a route that goes
    /// where a manifest that was merely found may not send it: each with its place in the manifest.
    pub fn load(manifest: &Manifest, loader: &Loader) -> Result<Self, ManifestError> {
        let mut registry = Self::default();
        for entry in &manifest.adapters {
            let mut status = AdapterStatus {
                id: entry.id.clone(),
                library: entry.library.clone(),
                version: None,
                api: None,
                envelope: None,
                routes: Vec::new(),
                error: None,
            };
            match serve(entry, loader, &mut status) {
                Ok(routes) => registry.add(manifest, &mut status, routes)?,
                Err(NotServing::Create { error: CreateError::Config(refusal), .. }) => {
                    return Err(manifest.config_error(&entry.id, &refusal));
                }
                Err(error) if entry.required => return Err(manifest.adapter_error(&entry.id, &error)),
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!("adapter {} is not loaded: {error}", entry.id);
                    status.error = Some(error);
                }
            }
            registry.adapters.push(status);
        }
        manifest.check_places(registry.served())?;
        Ok(registry)
    }

    /// The routes as the manifest judges them.
    fn served(&self) -> impl Iterator<Item = Served<'_>> {
        self.routes.iter().map(|(name, route)| Served {
            adapter: &route.adapter,
            route: name,
            origin: route.origin.as_deref(),
            credential: route.credential.as_deref(),
        })
    }

    fn add(
        &mut self,
        manifest: &Manifest,
        status: &mut AdapterStatus,
        routes: Vec<Route>,
    ) -> Result<(), ManifestError> {
        for route in routes {
            let name = route.info.name.clone();
            if let Some(first) = self.routes.get(&name) {
                return Err(manifest.route_conflict(&name, &first.adapter, &status.id));
            }
            status.routes.push(name.clone());
            self.routes.insert(name, Arc::new(route));
        }
        Ok(())
    }

    /// The route and target of `provider/model`, split at the first slash.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_MODEL`, with what there is and what is nearest, and with the errors of the adapters that are not
    /// loaded when one of them may own the route. For a command that is bad usage or a bad manifest: exit code 2.
    pub fn resolve(&self, model: &str) -> Result<(Arc<Route>, Target), Failure> {
        let unknown = |text: String| Failure::new(FailureCode::UnknownModel, text);
        let (provider, id) = match model.split_once('/') {
            Some((provider, id)) if !provider.is_empty() && !id.is_empty() => (provider, id),
            _ => {
                // A route alone is the likely half of what was meant.
                let of_route = self.models().find(|known| known.split('/').next() == model.split('/').next());
                let example = of_route.or_else(|| self.models().next());
                let example = example.unwrap_or_else(|| "deepseek/deepseek-chat".to_owned());
                return Err(unknown(format!("{model:?} is no model; give PROVIDER/MODEL, for example {example}")));
            }
        };
        let route = self.route(provider)?;
        let models = || route.info.models.iter().map(|model| model.id.as_str());
        if !route.info.any_model && !models().any(|known| known == id) {
            let text = format!("the route {provider:?} has no model {id:?}{}", offer(id, models()));
            return Err(unknown(text));
        }
        Ok((Arc::clone(route), Target { provider: provider.to_owned(), model: id.to_owned() }))
    }

    /// The route of that name.
    ///
    /// # Errors
    ///
    /// As for [`Registry::resolve`].
    pub fn route(&self, provider: &str) -> Result<&Arc<Route>, Failure> {
        let unknown = || Failure::new(FailureCode::UnknownModel, self.no_route(provider));
        self.routes.get(provider).ok_or_else(unknown)
    }

    /// Every listed model as `provider/model`.
    fn models(&self) -> impl Iterator<Item = String> {
        let routes = self.routes.iter();
        routes.flat_map(|(name, route)| route.info.models.iter().map(move |model| format!("{name}/{}", model.id)))
    }

    fn no_route(&self, provider: &str) -> String {
        let mut text = format!("no loaded adapter serves the provider route {provider:?}");
        text.push_str(&offer(provider, self.routes.keys().map(String::as_str)));
        for status in &self.adapters {
            if let Some(error) = &status.error {
                text.push_str(&format!("; the adapter {:?} is not loaded: {error}", status.id));
            }
        }
        text
    }
}

/// The nearest of some names, and all of them.
fn offer<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let likeness = |candidate: &str| strsim::jaro_winkler(candidate, name);
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.filter(|nearest| likeness(nearest) >= NEAR);
    let mut text = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest:?}?"));
    match known.as_slice() {
        [] => text.push_str("; there is none"),
        known => text.push_str(&format!("; there are: {}", known.join(", "))),
    }
    text
}

/// Loads one adapter and makes its instance; what is learned on the way goes into the status.
fn serve(entry: &AdapterEntry, loader: &Loader, status: &mut AdapterStatus) -> Result<Vec<Route>, NotServing> {
    let library = loader.load(&entry.spec)?;
    status.version = Some(library.metadata.version.clone());
    status.api = Some(library.metadata.api.clone());
    status.envelope = Some(library.metadata.envelope.clone());
    let create = |error| NotServing::Create { library: library.path.display().to_string(), error };
    let (handle, created) = library.create(&entry.config).map_err(create)?;
    let route = |info: RouteInfo| {
        let credential = credential(&entry.config, &info)?;
        let origin = origin(&entry.config, &info)?;
        let envelope = library.metadata.envelope.clone();
        Ok(Route { info, adapter: entry.id.clone(), envelope, handle: Arc::clone(&handle), credential, origin })
    };
    created.routes.into_iter().map(route).collect()
}

/// A string of `config.providers.<route>`.
fn named<'a>(config: &'a serde_json::Value, route: &str, key: &str) -> Option<&'a str> {
    config.get("providers")?.get(route)?.get(key)?.as_str()
}

/// The reference that adapter and manifest agree on. The manifest is the user's word: an adapter that claims another
/// one would get a secret that was not meant for it. `provider = "deepseek"` is such a word as well, for
/// `DEEPSEEK_API_KEY` and no other, as long as the route does not name another place to send it to.
fn credential(config: &serde_json::Value, info: &RouteInfo) -> Result<Option<String>, NotServing> {
    let named = named(config, &info.name, "credential").map(str::to_owned).or_else(|| {
        let preset = self::named(config, &info.name, "provider")?;
        if self::named(config, &info.name, "base_url").is_some() {
            return None;
        }
        Some(preset_credential(preset))
    });
    match &info.credential {
        None => Ok(None),
        Some(claimed) if named.as_ref() == Some(claimed) => Ok(Some(claimed.clone())),
        Some(claimed) => Err(NotServing::Credential { route: info.name.clone(), claimed: claimed.clone(), named }),
    }
}

/// The origin of the manifest's `base_url`; only a route without one goes where the adapter says.
fn origin(config: &serde_json::Value, info: &RouteInfo) -> Result<Option<String>, NotServing> {
    let Some(url) = named(config, &info.name, "base_url").or(info.origin.as_deref()) else { return Ok(None) };
    let refused = || NotServing::Origin { route: info.name.clone(), url: url.to_owned() };
    places::origin(url).map(Some).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_route_may_use_what_it_names_or_the_key_of_its_preset_and_nothing_else() {
        for (route, claimed, allowed) in [
            (json!({ "credential": "OWN" }), "OWN", true),
            (json!({ "credential": "OWN" }), "OTHER", false),
            (json!({}), "OTHER", false),
            (json!({ "provider": "lm-x" }), "LM_X_API_KEY", true),
            (json!({ "provider": "lm-x" }), "OTHER", false),
            (json!({ "provider": "lm-x", "base_url": "https://elsewhere.test" }), "LM_X_API_KEY", false),
            (json!({ "provider": "lm-x", "credential": "OWN" }), "OWN", true),
            (json!({ "provider": "lm-x", "credential": "OWN" }), "LM_X_API_KEY", false),
        ] {
            let info = RouteInfo {
                name: "x".into(),
                api: None,
                origin: None,
                credential: Some(claimed.into()),
                models: Vec::new(),
                any_model: true,
            };
            let config = json!({ "providers": { "x": route } });
            let agreed = credential(&config, &info);
            assert_eq!(agreed.is_ok(), allowed, "{config} {claimed}");
            if let Ok(agreed) = agreed {
                assert_eq!(agreed.as_deref(), Some(claimed));
            }
        }
    }
}
