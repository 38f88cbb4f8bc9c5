//! Session files: finding, reading, writing, locking. Knows lines and events, nothing of providers.
//!
//! Promises: an event is handed to [`OnDurable`] only after it is on the disk; reading never writes; a file is only
//! ever appended to, except that a last line or block which was cut off in the middle is cut when the session is opened
//! to write, and that [`Store::repair`] puts a sound file in the place of a damaged one, which it keeps. Only
//! [`SessionFiles::delete`] removes anything. One process at a time writes to a session. A plain log is continued in
//! place. So is a compressed one by a store that compresses, where its end is sound or only cut off; else it is continued
//! in a plain file beside it, which its id means from then on.

mod bytes;
mod delete;
mod error;
mod files;
mod find;
mod fork;
mod list;
mod lock;
mod numbering;
mod problem;
mod read;
mod repair;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use dsh_plugin_api::json;
use dsh_plugin_api::vocab::Message;

use crate::session::batch::Durable;
use crate::session::derive::{self, DerivedMessage};
use crate::session::event::{Event, Header, NewEvent, kind};
use crate::session::{line, recovery};

use bytes::{BatchEnd, CLOSING, Form, Packer, Tail};
pub use delete::SessionFiles;
pub use error::StoreError;
pub use fork::Fork;
pub use list::Listed;
use lock::Lock;
pub use problem::ProblemKind;
pub use read::Problem;
use read::{FileRead, Unreadable};
pub use repair::Repair;
use writer::Start;
pub use writer::Writer;
pub(crate) use writer::now;

/// A folder of sessions.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    form: Form,
}

/// A session as read. Reading never writes.
#[derive(Debug, Clone)]
pub struct Log {
    /// Where it was read from.
    pub path: PathBuf,
    /// The header.
    pub header: Header,
    /// The events, expanded, with `seq` 0..n, recovery applied.
    pub events: Vec<Event>,
    /// How many events at the end recovery added. After [`Store::open`] they are in the file, after [`Store::read`]
    /// they are not.
    pub recovered: usize,
    /// What was wrong with the file, in order of line.
    pub problems: Vec<Problem>,
}

/// What a writer hands out as soon as events are durable.
pub type OnDurable = Box<dyn FnMut(&Durable) + Send>;

impl Store {
    /// A store at this folder, which need not exist.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), form: Form::Plain }
    }

    /// The same store, which writes new sessions compressed and continues compressed ones in place.
    #[must_use]
    pub fn compressed(self) -> Self {
        Self { form: Form::Zstd, ..self }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates `<dir>/<id>.jsonl`, or `<dir>/<id>.jsonl.zst`, with its header, durably, and locks it.
    ///
    /// # Errors
    ///
    /// An existing session of that id, an id that is no file name, or an I/O error with its path.
    pub fn create(&self, header: Header, on_durable: OnDurable) -> Result<Writer, StoreError> {
        find::check_id(&header.id)?;
        files::create_folder(&self.dir)?;
        let path = self.dir.join(format!("{}{}", header.id, self.form.ending()));
        let lock = Lock::take(&path)?;
        if let Some(existing) = self.find(&header.id)? {
            return Err(StoreError::Exists(existing));
        }
        let mut file = files::private(OpenOptions::new().append(true).create_new(true))
            .open(&path)
            .map_err(StoreError::io("create", &path))?;
        let line = format!("{}\n", json::raw(&header));
        let packed = Packer::new(self.form).pack(line.into_bytes(), BatchEnd::Frame);
        let written = packed
            .and_then(|bytes| file.write_all(&bytes).and_then(|()| file.sync_all()).map(|()| bytes.len() as u64))
            .map_err(StoreError::io("write", &path))
            .and_then(|length| files::sync_folder(&self.dir).map(|()| length));
        let length = match written {
            Ok(length) => length,
            Err(error) => {
                // Half a header is no session; the name must stay free for another try.
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        };
        let start = Start {
            path,
            sink: file,
            form: self.form,
            lock,
            length,
            next_seq: 0,
            offset: 0,
            last_time: header.created_at,
        };
        Writer::start(start, on_durable)
    }

    /// Opens a session to write: lock, recover, read. `reference` is an id or a path. The events that recovery adds are
    /// durable when this returns; `on_durable` does not get them.
    ///
    /// # Errors
    ///
    /// No such session; locked by another process (names its pid); a newer header; an I/O error.
    pub fn open(&self, reference: &str, on_durable: OnDurable) -> Result<(Log, Writer), StoreError> {
        let path = self.resolve_to_write(reference)?;
        let lock = Lock::take(&path)?;
        let read = read_file(&path)?;
        let (path, mut file, tail) = match (Form::of(&path), self.form, read.tail) {
            (Form::Plain, _, _) => {
                let file = OpenOptions::new().append(true).open(&path).map_err(StoreError::io("open", &path))?;
                (path, file, None)
            }
            (Form::Zstd, Form::Zstd, Some(tail)) => {
                check_not_continued(&path)?;
                let file = OpenOptions::new().append(true).open(&path).map_err(StoreError::io("open", &path))?;
                (path, file, Some(tail))
            }
            (Form::Zstd, _, _) => {
                let (path, file) = continue_beside(&path, &read.lines)?;
                (path, file, None)
            }
        };
        let in_memory = read.events.len() as u64;
        let offset = i64::try_from(read.next_stored_seq).unwrap_or(i64::MAX) - i64::try_from(in_memory).unwrap_or(0);
        // Where the file is cut, and the whole lines behind that, which blocks that were cut off may hold.
        let Tail { length: cut, decoded, open } =
            tail.unwrap_or(Tail { length: read.sound, decoded: read.sound, open: false });
        let mut lines = Vec::new();
        if read.lines[..decoded].last().is_some_and(|byte| *byte != b'\n') {
            lines.push(b'\n');
        }
        lines.extend_from_slice(read.lines.get(decoded..read.sound).unwrap_or_default());
        if lines.last().is_some_and(|byte| *byte != b'\n') {
            lines.push(b'\n');
        }
        let form = if tail.is_some() { Form::Zstd } else { Form::Plain };
        let log = Log::recover(path.clone(), read);
        let mut recovered = String::new();
        line::encode(&log.events[log.events.len() - log.recovered..], offset, &mut recovered);
        lines.extend_from_slice(recovered.as_bytes());
        let mut appended = if open { CLOSING.to_vec() } else { Vec::new() };
        if !lines.is_empty() {
            let packed = Packer::new(form).pack(lines, BatchEnd::Frame);
            appended.extend(packed.map_err(StoreError::io("compress", &path))?);
        }
        let cut = cut as u64;
        let torn = file.metadata().map_err(StoreError::io("read", &path))?.len() > cut;
        if torn {
            file.set_len(cut).map_err(StoreError::io("cut the torn end of", &path))?;
        }
        if torn || !appended.is_empty() {
            let written = file.write_all(&appended).and_then(|()| file.sync_data());
            written.map_err(StoreError::io("write", &path))?;
        }
        let start = Start {
            path,
            sink: file,
            form,
            lock,
            length: cut + appended.len() as u64,
            next_seq: log.events.len() as u64,
            offset,
            last_time: log.events.last().map_or(log.header.created_at, |event| event.time),
        };
        Ok((log, Writer::start(start, on_durable)?))
    }

    /// Reads a session with recovery applied in memory.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], but for the lock.
    pub fn read(&self, reference: &str) -> Result<Log, StoreError> {
        let path = self.resolve(reference)?;
        let read = read_file(&path)?;
        Ok(Log::recover(path, read))
    }
}

#[cfg(unix)]
fn is_device(form: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    form.is_char_device() || form.is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: std::fs::FileType) -> bool {
    false
}

/// Reads a file without recovery.
fn read_file(path: &Path) -> Result<FileRead, StoreError> {
    // A device may have no end. A pipe is what a shell makes of `<(…)`, and can be read.
    let form = std::fs::metadata(path).map_err(StoreError::io("read", path))?.file_type();
    if is_device(form) {
        return Err(StoreError::NoSession { path: path.to_owned(), reason: "it is a device".to_owned() });
    }
    let bytes = std::fs::read(path).map_err(StoreError::io("read", path))?;
    let id = find::id_of(path).unwrap_or_default();
    read::read(bytes, Form::of(path), &id).map_err(|unreadable| match unreadable {
        Unreadable::Newer(version) => StoreError::NewerVersion { path: path.to_owned(), version },
        Unreadable::NoSession(reason) => StoreError::NoSession { path: path.to_owned(), reason },
    })
}

/// The plain file beside a compressed log, which must not exist.
fn check_not_continued(compressed: &Path) -> Result<PathBuf, StoreError> {
    // `x.jsonl.zst` without its last ending.
    let path = compressed.with_extension("");
    if path.exists() {
        return Err(StoreError::Continued { path: compressed.to_owned(), continued: path });
    }
    Ok(path)
}

/// Writes the lines of a compressed log to a plain file beside it, and opens that. The name appears only when all of
/// it is durable.
fn continue_beside(compressed: &Path, lines: &[u8]) -> Result<(PathBuf, File), StoreError> {
    let path = check_not_continued(compressed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.tmp"));
    let mut file = files::private(OpenOptions::new().write(true).create(true).truncate(true))
        .open(&unfinished)
        .map_err(StoreError::io("create", &unfinished))?;
    let written = file.write_all(lines).and_then(|()| file.sync_all());
    written.map_err(StoreError::io("write", &unfinished))?;
    std::fs::rename(&unfinished, &path).map_err(StoreError::io("create", &path))?;
    if let Some(folder) = path.parent() {
        files::sync_folder(folder)?;
    }
    let file = OpenOptions::new().append(true).open(&path).map_err(StoreError::io("open", &path))?;
    Ok((path, file))
}

impl Log {
    fn recover(path: PathBuf, read: FileRead) -> Self {
        let FileRead { header, mut events, problems, .. } = read;
        let recovered = recovery::recovery(&events);
        let time = events.last().map_or(header.created_at, |event| event.time);
        let (first, recovered) = (events.len(), recovered.into_iter().zip(events.len() as u64..));
        let recovered: Vec<Event> = recovered.map(|(event, seq): (NewEvent, u64)| event.at(seq, time)).collect();
        events.extend(recovered);
        Self { path, header, recovered: events.len() - first, events, problems }
    }

    /// The history that derives from the events.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.history().into_iter().map(|entry| entry.message).collect()
    }

    /// The derived history with what a request needs to know of each message.
    #[must_use]
    pub fn history(&self) -> Vec<DerivedMessage> {
        derive::history(&self.events)
    }

    /// The title, where the session has one.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Data {
            title: String,
        }
        let titles = self.events.iter().rev().filter(|event| event.kind == kind::SESSION_TITLE);
        titles.into_iter().find_map(|event| event.parse::<Data>().ok()).map(|data| data.title)
    }
}

#[cfg(test)]
mod tests;
