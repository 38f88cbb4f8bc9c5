//! `[adapter.config]` of this adapter.

use std::collections::BTreeMap;

use dsh_plugin_api::schemars::JsonSchema;
use dsh_plugin_api::vocab::Chunk;
use serde::Deserialize;

/// The whole of it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Config {
    /// Routes by name.
    #[serde(default)]
    pub providers: BTreeMap<String, RouteConfig>,
}

/// One route. Exactly one of `reply`, `responses` and `session` says what it answers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct RouteConfig {
    /// Text that answers every request.
    pub reply: Option<String>,
    /// Responses in order, each a list of chunks as a session log holds them. A response without a `finish` chunk is
    /// a stream that was cut.
    #[schemars(with = "Option<Vec<Vec<BTreeMap<String, serde_json::Value>>>>")]
    pub responses: Option<Vec<Vec<Chunk>>>,
    /// Text of a session log (JSON lines) whose model side is served.
    pub session: Option<String>,
    /// Whether a session's recorded times are kept.
    pub timing: Option<Timing>,
    /// Models that the route advertises. Every other id is answered as well.
    #[serde(default)]
    pub models: Vec<ModelConfig>,
}

/// When the chunks of a session log come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum Timing {
    /// As fast as they are taken.
    #[default]
    None,
    /// At the distances that the log recorded.
    Recorded,
}

/// A model that is advertised.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct ModelConfig {
    /// Its id.
    pub id: String,
    /// Prompt and answer together, in tokens.
    pub context_window: Option<u64>,
    /// Longest answer, in tokens.
    pub max_tokens: Option<u64>,
    /// True for a thinking model.
    #[serde(default)]
    pub reasoning: bool,
}
