//! The manifest: `loader.toml`, its overlays, and where each value stands.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::loader::LibrarySpec;

/// How the manifest was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Named by `--manifest`.
    Given(PathBuf),
    /// `./loader.toml`.
    CurrentFolder(PathBuf),
    /// `loader.toml` under the home folder.
    Home(PathBuf),
    /// The one that is compiled in.
    BuiltIn,
}

/// A validated composition.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// How it was found.
    pub origin: Origin,
    /// `[sessions]`
    pub sessions: Sessions,
    /// `[[adapter]]`, in order.
    pub adapters: Vec<AdapterEntry>,
    /// `[agent]` under the name `default`, and `[agents.NAME]`.
    pub agents: BTreeMap<String, Agent>,
    /// `[transport]`
    pub transport: Transport,
}

/// `[sessions]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Folder of the session logs, absolute.
    pub dir: PathBuf,
    /// How logs are stored.
    pub compression: Compression,
}

/// `[sessions] compression`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    /// Plain JSON lines.
    #[default]
    None,
}

/// One `[[adapter]]`.
#[derive(Debug, Clone)]
pub struct AdapterEntry {
    /// `id`
    pub id: String,
    /// `library`, as written, for messages and `plugins list`.
    pub library: String,
    /// Resolved `library` and `sha256`.
    pub spec: LibrarySpec,
    /// `required`
    pub required: bool,
    /// `[adapter.config]` as JSON; an empty object when absent.
    pub config: serde_json::Value,
}

/// `[agent]`
#[derive(Debug, Clone, Default)]
pub struct Agent {
    /// `model`: `provider/model`.
    pub model: Option<String>,
    /// `tools`: names of built-in tools.
    pub tools: Vec<String>,
    /// `system`: text in place of the built-in system prompt.
    pub system: Option<String>,
    /// `max_tokens`: output limit per request, in tokens.
    pub max_tokens: Option<u64>,
    /// `temperature`
    pub temperature: Option<f64>,
    /// `reasoning_effort`
    pub reasoning_effort: Option<String>,
    /// `max_steps`: requests per turn before the turn is ended; 0 means no limit.
    pub max_steps: u32,
}

/// `[transport]`, all in milliseconds but `max_retries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// Time to connect.
    pub connect_timeout_ms: u64,
    /// No bytes.
    pub idle_timeout_ms: u64,
    /// No decoded progress, whatever bytes arrive.
    pub progress_timeout_ms: u64,
    /// Further attempts after the first.
    pub max_retries: u32,
    /// First wait.
    pub retry_base_ms: u64,
    /// Longest wait, also for Retry-After.
    pub retry_max_ms: u64,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 10_000,
            idle_timeout_ms: 120_000,
            progress_timeout_ms: 300_000,
            max_retries: 3,
            retry_base_ms: 500,
            retry_max_ms: 60_000,
        }
    }
}

/// Where to look for the manifest.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// `--manifest`
    pub manifest: Option<PathBuf>,
    /// `--overlay`, in order.
    pub overlays: Vec<PathBuf>,
    /// The home folder.
    pub home: PathBuf,
}

/// A manifest that cannot be used. Renders with file, line, column and remedy.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[error("{0}")]
pub struct ManifestError(String);

impl Lookup {
    /// Reads, merges and validates the manifest.
    ///
    /// # Errors
    ///
    /// [`ManifestError`]: every problem that can be told apart, each with its place.
    pub fn load(&self) -> Result<Manifest, ManifestError> {
        let path = self.manifest.clone().ok_or_else(|| ManifestError("give --manifest".to_owned()))?;
        let error = |e: &dyn std::fmt::Display| ManifestError(format!("{}: {e}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|e| error(&e))?;
        let value: serde_json::Value = toml::from_str(&text).map_err(|e| error(&e))?;
        let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().map(str::to_owned);
        let adapters = value["adapter"].as_array().into_iter().flatten().map(|entry| {
            let library = text(entry, "library").unwrap_or_default();
            let reference = if library.contains('/') {
                crate::loader::LibraryRef::Path(PathBuf::from(&library))
            } else {
                crate::loader::LibraryRef::Name(library.clone())
            };
            AdapterEntry {
                id: text(entry, "id").unwrap_or_default(),
                spec: LibrarySpec { library: reference, sha256: text(entry, "sha256") },
                library,
                required: entry["required"].as_bool().unwrap_or_default(),
                config: entry.get("config").cloned().unwrap_or_else(|| serde_json::json!({})),
            }
        });
        Ok(Manifest {
            origin: Origin::Given(path.clone()),
            sessions: Sessions { dir: self.sessions_dir(), compression: Compression::None },
            adapters: adapters.collect(),
            agents: BTreeMap::new(),
            transport: Transport::default(),
        })
    }

    /// The sessions folder, from a manifest that may be broken elsewhere or missing.
    #[must_use]
    pub fn sessions_dir(&self) -> PathBuf {
        self.home.join("sessions")
    }
}

impl Manifest {
    /// A configuration that its adapter refuses.
    #[must_use]
    pub fn config_error(&self, adapter_id: &str, refusal: &dsh_plugin_api::abi::calls::ConfigRefusal) -> ManifestError {
        ManifestError(format!("adapter {adapter_id}: config.{}: {}", refusal.path, refusal.message))
    }

    /// A route with two owners.
    #[must_use]
    pub fn route_conflict(&self, route: &str, first_adapter: &str, second_adapter: &str) -> ManifestError {
        ManifestError(format!("the route {route} has two owners: {first_adapter} and {second_adapter}"))
    }

    /// A required adapter that does not load.
    #[must_use]
    pub fn adapter_error(&self, adapter_id: &str, error: &dyn std::error::Error) -> ManifestError {
        ManifestError(format!("required adapter {adapter_id}: {}", crate::loader::chain(error)))
    }
}
