//! Loading adapters: find the library, vet a cached copy, open it, make an instance.
//!
//! The order matters, and each step has a file: `search` finds the file of a name, `cache` reads it once and keeps the
//! copy that is opened, `vet` judges those bytes before anything is mapped, `open` maps the copy and takes its root,
//! `instance` turns the root's bytes into typed calls.
//!
//! What it promises: a file that is missing, cut off, for another host, or no adapter is refused with a reason and a
//! remedy, and the host lives. What it cannot promise: that the code of a file that passes is sound. Loading runs it
//! in this process.

mod cache;
mod error;
mod instance;
mod open;
mod search;
mod vet;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, CreatedInfo, Descriptor, Open};
use dsh_plugin_api::abi::{Item, Metadata, RootRef, Status};
use dsh_plugin_api::json::{self, Raw};
use dsh_plugin_api::vocab::{Failure, FailureCode, InvalidReplay, ReplayDegrade};

pub use error::{CreateError, LoadError, chain};
pub use vet::Unfit;

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
    /// An operation that came after the root was frozen: one of the names in [`dsh_plugin_api::abi::calls`], with its
    /// argument and answer as JSON.
    ///
    /// # Errors
    ///
    /// As above; `UNSUPPORTED`, which is the default, from an adapter that does not know the operation.
    fn call(&self, operation: &str, argument: &Raw) -> Result<Raw, Failure> {
        let _ = argument;
        Err(Failure::new(FailureCode::Unsupported, format!("the adapter does not support `{operation}`")))
    }
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

/// Finds, vets and opens libraries. Clones share what is open.
#[derive(Clone)]
pub struct Loader {
    search: Vec<PathBuf>,
    cache: PathBuf,
    open: Arc<Mutex<HashMap<String, Opened>>>,
}

/// What is known of a library that is open, by the sha256 of its file.
#[derive(Clone)]
struct Opened {
    root: RootRef,
    descriptor: Descriptor,
}

/// An open library.
pub struct Library {
    /// The file it was loaded from.
    pub path: PathBuf,
    /// What its metadata section says.
    pub metadata: Metadata,
    /// What it says of itself.
    pub descriptor: Descriptor,
    root: RootRef,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { path, metadata, descriptor: _, root: _ } = self;
        f.debug_struct("Library").field("path", path).field("metadata", metadata).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { search, cache, open: _ } = self;
        f.debug_struct("Loader").field("search", search).field("cache", cache).finish_non_exhaustive()
    }
}

impl Loader {
    /// A loader with the standard search path: beside the executable, `../lib/dsh` from it, `plugins/` under the home
    /// folder, and `DSH_PLUGIN_PATH`. Vetted copies go to `cache/libraries` under the home folder, or to the system's
    /// temporary folder for as long as it takes to open them where the home folder cannot be written.
    #[must_use]
    pub fn new(home: &Path) -> Self {
        Self { search: search::standard_path(home), cache: home.join("cache"), open: Arc::default() }
    }

    /// Finds, copies, vets and opens a library. One whose bytes are open already is not opened again.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the file, the reason and the remedy.
    pub fn load(&self, spec: &LibrarySpec) -> Result<Library, LoadError> {
        let path = match &spec.library {
            LibraryRef::Name(name) => search::find(name, &self.search)?,
            LibraryRef::Path(path) => path.clone(),
        };
        let bytes = cache::read(&path)?;
        let metadata = vet::vet(&bytes).map_err(|unfit| LoadError::Unfit { path: path.clone(), unfit })?;
        let sha256 = cache::sha256(&bytes);
        if let Some(expected) = &spec.sha256
            && !expected.eq_ignore_ascii_case(&sha256)
        {
            return Err(LoadError::WrongSha256 { path, expected: expected.clone(), found: sha256 });
        }
        // Held while opening, so that two threads do not open the same bytes twice. A panic while it was held left
        // no half-made entry: entries are inserted whole.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Opened { root, descriptor } = match open.get(&sha256) {
            Some(opened) => opened.clone(),
            None => {
                let opened = self.open(&path, &sha256, &bytes, &metadata)?;
                open.insert(sha256, opened.clone());
                opened
            }
        };
        Ok(Library { path, metadata, descriptor, root })
    }

    fn open(&self, path: &Path, sha256: &str, bytes: &[u8], metadata: &Metadata) -> Result<Opened, LoadError> {
        let copy = cache::store(&self.cache, sha256, path, bytes)?;
        let path = path.to_owned();
        let root = match open::open(&copy.path) {
            Ok(root) => root,
            Err(open::Refusal::Linker(reason)) => return Err(LoadError::Linker { path, reason }),
            Err(open::Refusal::Root(reason)) => return Err(LoadError::Broken { path, reason }),
            Err(open::Refusal::Abi { line, report }) => {
                let report = if report.trim() == line { None } else { cache::report(&self.cache, sha256, &report) };
                return Err(LoadError::Abi { path, reason: line, report });
            }
        };
        let descriptor = describe(root).map_err(|reason| LoadError::Broken { path: path.clone(), reason })?;
        if let Some(reason) = difference(metadata, &descriptor) {
            return Err(LoadError::Broken { path, reason });
        }
        Ok(Opened { root, descriptor })
    }
}

fn describe(root: RootRef) -> Result<Descriptor, String> {
    let reply = root.describe()();
    let body = reply.body.as_slice();
    let text = || String::from_utf8_lossy(body).into_owned();
    match Status::from(reply.status) {
        Status::Ok => json::from_slice(body).map_err(|e| format!("it answered `describe` with what is no answer: {e}")),
        Status::Panicked => Err(format!("it panicked in `describe`: {}", text())),
        Status::Failed | Status::Unsupported => Err(format!("it failed in `describe`: {}", text())),
        Status::Unknown(number) => Err(format!("it answered `describe` with the unknown status {number}")),
    }
}

/// Where what was vetted and what runs disagree: then one of them is not what it seems.
fn difference(metadata: &Metadata, descriptor: &Descriptor) -> Option<String> {
    let envelope = |id: &dsh_plugin_api::vocab::EnvelopeId| format!("{} {}", id.kind, id.version);
    let members = [
        ("name", metadata.name.clone(), descriptor.name.clone()),
        ("version", metadata.version.clone(), descriptor.version.clone()),
        ("API", metadata.api.clone(), descriptor.api.clone()),
        ("envelope", envelope(&metadata.envelope), envelope(&descriptor.envelope)),
    ];
    members
        .into_iter()
        .find(|(_, section, code)| section != code)
        .map(|(what, section, code)| format!("its metadata section gives the {what} {section:?}, its code {code:?}"))
}

impl Library {
    /// Makes an instance; `config` is the JSON of `[adapter.config]`.
    ///
    /// # Errors
    ///
    /// [`CreateError`]
    pub fn create(&self, config: &serde_json::Value) -> Result<(Arc<dyn AdapterHandle>, CreatedInfo), CreateError> {
        instance::create(self.root, &self.metadata.name, config)
    }
}
