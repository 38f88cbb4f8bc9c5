//! The JSON Schema of the manifest, for editors. It describes what `read` accepts; a test holds their keys together.
#![expect(dead_code, reason = "these types exist for their schema; the manifest is read from a tree with places")]

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema, schema_for};

use super::read::MAX_MS;

/// The JSON Schema of `loader.toml`.
#[must_use]
pub fn json_schema() -> Schema {
    schema_for!(Loader)
}

/// Composition of a dsh host.
#[derive(JsonSchema)]
#[schemars(rename = "loader.toml", deny_unknown_fields)]
struct Loader {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    version: u8,
    /// Where session logs live.
    sessions: Option<Sessions>,
    /// Provider adapters, in order.
    adapter: Option<Vec<Adapter>>,
    /// The default agent.
    agent: Option<Agent>,
    /// Further agents by name.
    agents: Option<BTreeMap<String, Agent>>,
    /// Timeouts and retries.
    transport: Option<Transport>,
}

/// Where session logs live.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Sessions {
    /// Folder of the session logs; relative to this file. Default: `sessions` under the home folder.
    dir: Option<String>,
    /// How new sessions are stored: "none" (the default) as plain lines, "zstd" compressed.
    #[schemars(extend("enum" = ["none", "zstd"]))]
    compression: Option<String>,
}

/// One adapter.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Adapter {
    /// Name of this entry, unique in the composition; overlays extend it by this name.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
    id: String,
    /// Name of a library, looked up in the plugin path, or the path of its file, such as `./libx.so`.
    library: String,
    /// Where the adapter runs. This version runs it in the host's process.
    #[schemars(extend("enum" = ["in-process"]))]
    isolation: Option<String>,
    /// SHA-256 of the library's file, in hexadecimal; a library with another one is refused.
    #[schemars(regex(pattern = r"^[0-9A-Fa-f]{64}$"))]
    sha256: Option<String>,
    /// Whether the host refuses to start without it. Default: false.
    required: Option<bool>,
    /// The adapter's own configuration; its routes stand under `providers`. A table with the one key `file` stands for
    /// the text of that file.
    config: Option<serde_json::Map<String, serde_json::Value>>,
}

/// An agent.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Agent {
    /// Provider route and model id, split at the first slash.
    #[schemars(regex(pattern = r"^[^/]+/.+$"))]
    model: Option<String>,
    /// Built-in tools. Default: none.
    tools: Option<Vec<ToolName>>,
    /// System prompt in place of the built-in one.
    system: Option<String>,
    /// Output limit of a request, in tokens.
    #[schemars(range(min = 1))]
    max_tokens: Option<u64>,
    /// Sampling temperature.
    #[schemars(range(min = 0, max = 2))]
    temperature: Option<f64>,
    /// How much a thinking model thinks. Default: off.
    #[schemars(extend("enum" = super::read::EFFORTS))]
    reasoning_effort: Option<String>,
    /// Requests per turn before the turn is ended; 0 means no limit. Default: 100.
    max_steps: Option<u32>,
}

/// Name of a built-in tool.
struct ToolName;

impl JsonSchema for ToolName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ToolName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": crate::tools::BuiltIn::NAMES })
    }
}

/// Timeouts and retries, in milliseconds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Transport {
    /// Time to connect. Default: 10000.
    #[schemars(range(min = 1, max = MAX_MS))]
    connect_timeout_ms: Option<u64>,
    /// Time without any byte. Default: 120000.
    #[schemars(range(min = 1, max = MAX_MS))]
    idle_timeout_ms: Option<u64>,
    /// Time without decoded progress, whatever bytes arrive. Default: 300000.
    #[schemars(range(min = 1, max = MAX_MS))]
    progress_timeout_ms: Option<u64>,
    /// Further attempts after the first. Default: 3.
    #[schemars(range(max = 100))]
    max_retries: Option<u32>,
    /// First wait before a further attempt. Default: 500.
    #[schemars(range(max = MAX_MS))]
    retry_base_ms: Option<u64>,
    /// Longest wait, also for Retry-After. Default: 60000.
    #[schemars(range(max = MAX_MS))]
    retry_max_ms: Option<u64>,
}
