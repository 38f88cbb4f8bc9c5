//! Loading adapters: find the library, vet a cached copy, open it, make an instance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::calls::{CheckHistory, ConfigRefusal, Convert, Converted, CreatedInfo, Descriptor, Open};
use dsh_plugin_api::abi::{Item, Metadata};
use dsh_plugin_api::vocab::{Failure, InvalidReplay, ReplayDegrade};

/// One instance of an adapter, wherever it runs.
pub trait AdapterHandle: Send + Sync {
    /// Judges the replay state of assistant messages; one element per message.
    ///
    /// # Errors
    ///
    /// `PLUGIN_PANIC`, `PLUGIN_CRASHED`, `UNSUPPORTED`, or the adapter's own failure.
    fn check_history(&self, call: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure>;
    /// Converts a request to its wire.
    ///
    /// # Errors
    ///
    /// As above.
    fn convert(&self, call: &Convert) -> Result<Converted, Failure>;
    /// Tells the adapter of a degraded message.
    ///
    /// # Errors
    ///
    /// As above.
    fn on_replay_degrade(&self, event: &ReplayDegrade) -> Result<(), Failure>;
    /// Opens a decoder.
    ///
    /// # Errors
    ///
    /// As above.
    fn open(&self, call: &Open) -> Result<Box<dyn StreamHandle>, Failure>;
}

/// One decoder. Dropping it closes it.
pub trait StreamHandle: Send {
    /// Takes bytes of the body.
    fn feed(&mut self, bytes: &[u8]) -> Vec<Item>;
    /// The body is over.
    fn finish(&mut self, end: &StreamEnd) -> Vec<Item>;
    /// Next elements of a polled exchange.
    fn poll(&mut self) -> Vec<Item>;
    /// Stops the response.
    fn cancel(&mut self) -> Vec<Item>;
}

/// Which library to load.
#[derive(Debug, Clone)]
pub struct LibrarySpec {
    /// A name to look up, or a path.
    pub library: LibraryRef,
    /// Expected sha256 in lower-case hex.
    pub sha256: Option<String>,
}

/// How a manifest names a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibraryRef {
    /// For example `dsh-llm-pi-ai`, looked up in the plugin path.
    Name(String),
    /// An absolute path (the manifest has resolved it).
    Path(PathBuf),
}

/// Finds, vets and opens libraries.
#[derive(Debug, Clone)]
pub struct Loader {
    search: Vec<PathBuf>,
    cache: PathBuf,
}

/// An open library.
pub struct Library {
    /// The file it was loaded from.
    pub path: PathBuf,
    /// What its metadata section says.
    pub metadata: Metadata,
    /// What it says of itself.
    pub descriptor: Descriptor,
}

/// A library that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("stub")]
pub struct LoadError;

/// An instance that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The adapter refused its configuration.
    #[error("{}", .0.message)]
    Config(ConfigRefusal),
    /// The adapter panicked; the text is its message and place.
    #[error("the adapter panicked in its constructor: {0}")]
    Panicked(String),
    /// The adapter answered what no adapter may answer.
    #[error("{0}")]
    Broken(String),
}

impl Loader {
    /// A loader with the standard search path: beside the executable, `../lib/dsh` from it, `plugins/` under the home
    /// folder, and `DSH_PLUGIN_PATH`. Vetted copies go to `cache/libraries` under the home folder.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { search: Vec::new(), cache: home.to_owned() }
    }

    /// Finds, copies, vets and opens a library.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the file, the reason and the remedy.
    pub fn load(&self, spec: &LibrarySpec) -> Result<Library, LoadError> {
        let _ = (spec, &self.search, &self.cache);
        Err(LoadError)
    }
}

impl Library {
    /// Makes an instance; `config` is the JSON of `[adapter.config]`.
    ///
    /// # Errors
    ///
    /// [`CreateError`]
    pub fn create(&self, config: &serde_json::Value) -> Result<(Arc<dyn AdapterHandle>, CreatedInfo), CreateError> {
        let _ = config;
        Err(CreateError::Broken("stub".into()))
    }
}
