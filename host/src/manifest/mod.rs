//! The manifest: `loader.toml`, its overlays, and where each value stands.
//!
//! [`Lookup::load`] finds the files, parses them, merges the overlays over the manifest and validates the result. It
//! promises that a [`Manifest`] is sound as far as the host can tell without loading anything, and that whatever is
//! wrong is told with file, line, column and what would be right: all problems at once, not the first one. What only an
//! adapter can judge is put at its place later, by [`Manifest::config_error`] and its siblings.
//!
//! Rules of the format:
//!
//! - **Overlays.** Tables merge deep. `[[adapter]]` entries are matched by `id` and merge deep; one with a new id is
//!   appended. Every other value, arrays included, replaces the one before. `version` is optional in an overlay.
//! - **Paths** (`sessions.dir`, a `library` with a separator or with `.`, `~` or `$` in front, the `file` of a text) start from the folder of
//!   the file that names them. `~/` is the user's home, `$NAME` and `${NAME}` are environment variables, `$$` is a
//!   plain dollar. A variable that is not set is an error at its place. Nowhere else is anything expanded.
//! - **Credentials** in `[adapter.config.providers.ROUTE]` are references: `NAME`, `$NAME` or `${NAME}`, in capitals,
//!   digits and `_`. The adapter gets the plain name. Anything else is an error that does not show the text, since it
//!   may be the secret itself; source lines in reports have such text masked.
//! - **Texts.** Inside `[adapter.config]` a table with the one key `file` and a string stands for the text of that file:
//!   `session = { file = "first.jsonl.zst" }`. The path follows the rule of paths. The file is UTF-8, decompressed when
//!   it ends in `.zst` or `.zstd`, of at most 64 MiB; anything else is an error at its place. No adapter can have such
//!   a table for a purpose of its own: it would never see it. A second key beside `file` makes it a plain table.
//! - **Trust.** See [`Trust`].

mod blame;
mod document;
mod files;
mod paths;
mod place;
pub(crate) mod places;
mod problem;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod tree;
mod trust;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::loader::LibrarySpec;
use document::Document;
use paths::Surroundings;
use place::Source;
use problem::Finding;

pub use problem::{Code, ManifestError, Problem};
pub use schema::json_schema;
pub use trust::Trust;

/// `max_steps` of an agent that names none.
pub const DEFAULT_MAX_STEPS: u32 = 100;

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
    /// The files and places that it was read from.
    document: Arc<Document>,
    /// False for one that was merely found in the current folder and never trusted.
    trusted: bool,
}

/// Where a route of an adapter that was made goes, for [`Manifest::check_places`].
#[derive(Debug, Clone, Copy)]
pub struct Served<'a> {
    /// `id` of the `[[adapter]]`.
    pub adapter: &'a str,
    /// Name of the route.
    pub route: &'a str,
    /// The only origin that its requests may go to; `None` for a route that asks no server.
    pub origin: Option<&'a str>,
    /// The only credential that its requests may carry.
    pub credential: Option<&'a str>,
}

/// `[sessions]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// Folder of the session logs, absolute; `sessions` under the home folder when the manifest names none.
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
    /// Zstandard frames of JSON lines, for new sessions.
    Zstd,
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
#[derive(Debug, Clone)]
pub struct Agent {
    /// `model`: `provider/model`.
    pub model: Option<String>,
    /// `tools`: names of built-in tools; none when absent.
    pub tools: Vec<String>,
    /// `system`: text in place of the built-in system prompt.
    pub system: Option<String>,
    /// `max_tokens`: output limit per request, in tokens.
    pub max_tokens: Option<u64>,
    /// `temperature`: from 0 to 2.
    pub temperature: Option<f64>,
    /// `reasoning_effort`: `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; absent and `off` are `None`.
    pub reasoning_effort: Option<String>,
    /// `max_steps`: requests per turn before the turn is ended; 0 means no limit. [`DEFAULT_MAX_STEPS`] when absent.
    pub max_steps: u32,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            model: None,
            tools: Vec::new(),
            system: None,
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
            max_steps: DEFAULT_MAX_STEPS,
        }
    }
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

impl Lookup {
    /// Reads, merges and validates the manifest.
    ///
    /// # Errors
    ///
    /// [`ManifestError`]: every problem that can be told apart, each with its place.
    pub fn load(&self) -> Result<Manifest, ManifestError> {
        self.load_in(&Surroundings::of_process())
    }

    fn load_in(&self, around: &Surroundings) -> Result<Manifest, ManifestError> {
        let origin = files::find(self, around);
        let document = Document::read(&origin, self, around)?;
        let trusted = match (&origin, document.sources.first()) {
            (Origin::CurrentFolder(_), Some(source)) => {
                *source.text == *files::BUILT_IN || trust::mark(&self.home, source).is_some_and(|mark| mark.exists())
            }
            _ => true,
        };
        Manifest::build(origin, document, &self.home, trusted, around)
    }

    /// The sessions folder, from a manifest that may be broken elsewhere or missing.
    ///
    /// The last file that names one in a form that can be made out decides; `sessions` under the home folder else.
    #[must_use]
    pub fn sessions_dir(&self) -> PathBuf {
        document::sessions_dir(self, &Surroundings::of_process())
    }

    /// Marks the manifest of this lookup as trusted, so that it may do when it is merely found in the current folder
    /// what it may do when it is named.
    ///
    /// # Errors
    ///
    /// A manifest that is not valid, or a home folder that cannot be written.
    pub fn trust(&self) -> Result<Trust, ManifestError> {
        self.trust_in(&Surroundings::of_process())
    }

    fn trust_in(&self, around: &Surroundings) -> Result<Trust, ManifestError> {
        let origin = files::find(self, around);
        let (Origin::CurrentFolder(path) | Origin::Given(path)) = &origin else { return Ok(Trust::NotNeeded) };
        let path = around.cwd.join(path);
        let document = Document::read(&origin, self, around)?;
        let source = document.sources.first().cloned();
        let parts = Manifest::parts(&document, &self.home, around)?;
        let grants = trust::grants(&document.root, &parts, &trust::Known::built_in());
        if let Some(source) = source {
            trust::write(&self.home, &source).map_err(|problem| ManifestError::of(vec![problem]))?;
        }
        Ok(Trust::Marked { manifest: path, allows: grants.into_iter().map(|grant| grant.does).collect() })
    }
}

impl Manifest {
    /// `[agent]`; an agent of defaults when the manifest has none.
    #[must_use]
    pub fn default_agent(&self) -> Agent {
        self.agents.get("default").cloned().unwrap_or_default()
    }

    /// A manifest from its text, for a composition that stands in no file. Relative paths start from `home`.
    ///
    /// # Errors
    ///
    /// As for [`Lookup::load`]; the file is called `name`.
    pub fn from_text(name: &str, text: &str, home: &Path) -> Result<Self, ManifestError> {
        let source = Source::new(name, None, home.to_owned(), text);
        let document = Document::merge(vec![source], Vec::new())?;
        Self::build(Origin::BuiltIn, document, home, true, &Surroundings::of_process())
    }

    fn parts(document: &Document, home: &Path, around: &Surroundings) -> Result<read::Parts, ManifestError> {
        read::read(&document.root, &document.sources, home, around)
            .map_err(|findings: Vec<Finding>| ManifestError::new(findings, &document.sources))
    }

    fn build(
        origin: Origin,
        document: Document,
        home: &Path,
        trusted: bool,
        around: &Surroundings,
    ) -> Result<Self, ManifestError> {
        let parts = Self::parts(&document, home, around)?;
        if !trusted {
            let asked = trust::grants(&document.root, &parts, &trust::Known::built_in());
            Self::refuse(asked, &document)?;
        }
        Ok(Self {
            origin,
            sessions: parts.sessions,
            adapters: parts.adapters,
            agents: parts.agents,
            transport: parts.transport,
            document: Arc::new(document),
            trusted,
        })
    }

    /// Refuses a manifest that was merely found and whose routes go to other places than its words let expect, which
    /// shows only when its adapters are made. Nothing may be sent before.
    ///
    /// # Errors
    ///
    /// Each such route with its place.
    pub fn check_places<'a>(&self, served: impl IntoIterator<Item = Served<'a>>) -> Result<(), ManifestError> {
        if self.trusted {
            return Ok(());
        }
        let known = trust::Known::built_in();
        let unexpected = |served: Served<'a>| trust::unexpected_place(&self.document.root, &served, &known);
        Self::refuse(served.into_iter().filter_map(unexpected).collect(), &self.document)
    }

    fn refuse(asked: Vec<trust::Grant>, document: &Document) -> Result<(), ManifestError> {
        if asked.is_empty() {
            return Ok(());
        }
        Err(ManifestError::new(asked.into_iter().map(trust::Grant::refused).collect(), &document.sources))
    }

    /// The files that it was read from, as the user knows them: the manifest, then the overlays.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.document.sources.iter().map(|source| source.name.as_str())
    }
}
