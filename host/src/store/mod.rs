//! Session files: finding, reading, writing, locking. Knows lines and events, nothing of providers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dsh_plugin_api::vocab::Message;

use crate::session::event::{Event, Header, NewEvent};

/// A folder of sessions.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// A session as read. Reading never writes.
#[derive(Debug, Clone)]
pub struct Log {
    /// Where it was read from.
    pub path: PathBuf,
    /// The header.
    pub header: Header,
    /// The events, expanded, with `seq` 0..n. After [`Store::open`] recovery has been applied.
    pub events: Vec<Event>,
    /// What was wrong with the file, in order of line.
    pub problems: Vec<Problem>,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// 1-based; line 1 is the header.
    pub line: u64,
    /// A stable name such as `torn-tail`.
    pub kind: String,
    /// What is wrong, and what was done about it.
    pub message: String,
}

/// A session that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("stub")]
pub struct StoreError;

/// What a writer hands out as soon as events are durable.
pub type OnDurable = Box<dyn FnMut(&[Arc<Event>]) + Send>;

impl Store {
    /// A store at this folder, which need not exist.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates `<dir>/<id>.jsonl` with its header, durably, and locks it.
    ///
    /// # Errors
    ///
    /// An existing file, or an I/O error with its path.
    pub fn create(&self, header: Header, on_durable: OnDurable) -> Result<Writer, StoreError> {
        let _ = (header, on_durable);
        Err(StoreError)
    }

    /// Opens a session to write: lock, recover, read. `reference` is an id or a path.
    ///
    /// # Errors
    ///
    /// No such session; locked by another process (names its pid); a newer header; an I/O error.
    pub fn open(&self, reference: &str, on_durable: OnDurable) -> Result<(Log, Writer), StoreError> {
        let _ = (reference, on_durable);
        Err(StoreError)
    }

    /// Reads a session with recovery applied in memory.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], but for the lock.
    pub fn read(&self, reference: &str) -> Result<Log, StoreError> {
        let _ = reference;
        Err(StoreError)
    }
}

impl Log {
    /// The history that derives from the events.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        Vec::new()
    }
}

/// Appends to one session. Dropping it flushes and unlocks.
pub struct Writer {}

impl Writer {
    /// Queues events; returns the seq of the first. They become durable within the batching window, or at the next
    /// checkpoint.
    pub fn append(&self, events: Vec<NewEvent>) -> u64 {
        let _ = events;
        0
    }

    /// Waits until everything that was appended is durable.
    ///
    /// # Errors
    ///
    /// The first error that writing met, with its path. The events that it concerns were not acknowledged.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        Err(StoreError)
    }
}
