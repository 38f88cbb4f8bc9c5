//! The adapter's part of the manifest: `[adapter.config.providers.<route>]`.

use std::collections::BTreeMap;

use dsh_plugin_api::ConfigError;
use dsh_plugin_api::schemars::JsonSchema;
use serde::Deserialize;

/// `[adapter.config]`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Config {
    /// Provider routes by name.
    #[serde(default)]
    pub providers: BTreeMap<String, Provider>,
}

/// One provider route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Provider {
    /// Absolute `http` or `https` URL; `/chat/completions` is appended.
    #[serde(default = "base_url")]
    pub base_url: String,
    /// Name of the credential, resolved by the host when a request goes out.
    #[serde(default)]
    pub credential: Option<String>,
    /// Models with known capacities. Other model ids are passed on with cautious defaults.
    #[serde(default)]
    pub models: Vec<Model>,
}

fn base_url() -> String {
    "https://api.deepseek.com".to_owned()
}

/// A model of a route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Model {
    /// Model id on the wire.
    pub id: String,
    /// Prompt and answer together, in tokens.
    #[serde(default)]
    pub context_window: Option<u64>,
    /// Output limit in tokens, thinking included; sent when the request names none.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// The model can think; the request's reasoning effort switches it.
    #[serde(default = "yes")]
    pub thinking: bool,
    /// The model takes images.
    #[serde(default)]
    pub images: bool,
}

const fn yes() -> bool {
    true
}

impl Model {
    /// A model that the manifest does not list: no limits, text alone, thinking as the request asks.
    pub(crate) fn unlisted(id: &str) -> Self {
        Self { id: id.to_owned(), context_window: None, max_tokens: None, thinking: true, images: false }
    }
}

impl Provider {
    /// Checks what the types cannot say. `route` is the route's name.
    ///
    /// # Errors
    ///
    /// Names the key.
    pub(crate) fn check(&self, route: &str) -> Result<(), ConfigError> {
        let at = |key: &str, message: &str| Err(ConfigError::new(format!("providers.{route}{key}"), message));
        if route.is_empty() || route.contains('/') || route.contains(char::is_whitespace) {
            return at("", "this cannot name a route: the name stands before the slash of provider/model");
        }
        if self.credential.as_deref().is_some_and(|name| name.trim().is_empty()) {
            return at(".credential", "the reference is blank; leave the key out for a route without credential");
        }
        for (position, model) in self.models.iter().enumerate() {
            let key = format!(".models[{position}].id");
            if model.id.trim().is_empty() {
                return at(&key, "a model needs its id on the wire");
            }
            if self.models.iter().take(position).any(|other| other.id == model.id) {
                return at(&key, "the model is listed twice");
            }
        }
        Ok(())
    }
}
