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
mod disk;
mod encode;
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
mod watch;
mod writer;

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use dsh_plugin_api::json;
use dsh_plugin_api::vocab::Message;

use crate::session::batch::Durable;
use crate::session::derive::{self, DerivedMessage};
use crate::session::event::{Event, Header, NewEvent, kind};
use crate::session::events::{Entry, Events};
use crate::session::line;
use crate::session::recovery::{self, Recovery};

use bytes::{BatchEnd, CLOSING, Form, Lines, Packer};
pub use delete::{Deleted, SessionFiles};
use disk::Disk;
pub use encode::{Encoder, window};
pub use error::StoreError;
use files::Unnamed;
pub use fork::Fork;
pub use list::Listed;
use lock::Lock;
pub use problem::ProblemKind;
pub use read::Problem;
use read::{FileRead, Unreadable};
pub use repair::Repair;
use watch::{Watch, Watched};
use writer::Start;
pub use writer::Writer;
pub(crate) use writer::now;

/// A folder of sessions.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    form: Form,
    disk: Disk,
    watch: Option<Watch>,
}

/// A session as read. Reading never writes.
#[derive(Debug, Clone)]
pub struct Log {
    /// Where it was read from.
    pub path: PathBuf,
    /// The header.
    pub header: Header,
    /// The events, with `seq` 0..n, recovery applied; without response streams where they were left out.
    pub events: Events,
    /// How many events at the end recovery added. After [`Store::open`] they are in the file, after [`Store::read`]
    /// they are not.
    pub recovered: u64,
    /// Unix time of the last event in milliseconds; where there is none, that of the header.
    pub last_time: u64,
    /// What was wrong with the file, in order of line.
    pub problems: Vec<Problem>,
}

/// What a writer hands out as soon as events are durable.
pub type OnDurable = Box<dyn FnMut(&Durable) + Send>;

impl Store {
    /// A store at this folder, which need not exist.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), form: Form::Plain, disk: Disk::default(), watch: None }
    }

    /// The same store, which writes new sessions compressed and continues compressed ones in place.
    #[must_use]
    pub fn compressed(self) -> Self {
        Self { form: Form::Zstd, ..self }
    }

    /// The same store, which tells how far reading has come: so many bytes, of so many, or of 0 where their number is
    /// not known. A list tells of all its logs together.
    #[must_use]
    pub fn watched(self, told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self { watch: Some(Watch::new(told)), ..self }
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
        self.disk.create_folder(&self.dir)?;
        let path = self.dir.join(format!("{}{}", header.id, self.form.ending()));
        let lock = Lock::take(&path)?;
        if let Some(existing) = self.find(&header.id)? {
            return Err(StoreError::Exists(existing));
        }
        let line = format!("{}\n", json::raw(&header));
        let packed = Packer::new(self.form).pack(line.into_bytes(), BatchEnd::Frame);
        let header_bytes = packed.map_err(StoreError::io("compress", &path))?;
        Unnamed::write(&self.disk, &path, |file| file.write_all(&header_bytes))?.name()?;
        let file = self.disk.sync_name(&path).and_then(|()| self.disk.open(&path)).inspect_err(|_| {
            // Nobody knows of the session yet.
            let _ = self.disk.remove(&path);
        })?;
        let length = header_bytes.len() as u64;
        let last_time = header.created_at;
        let start = Start { path, file, form: self.form, lock, length, next_seq: 0, offset: 0, last_time };
        Ok(Writer::start(start, on_durable))
    }

    /// Opens a session to write: lock, recover, read. `reference` is an id or a path. The events that recovery adds are
    /// durable when this returns; `on_durable` does not get them. Response streams are left out of the log that is
    /// returned.
    ///
    /// # Errors
    ///
    /// No such session; locked by another process (names its pid); a newer header; an I/O error.
    pub fn open(&self, reference: &str, on_durable: OnDurable) -> Result<(Log, Writer), StoreError> {
        let path = self.resolve_to_write(reference)?;
        let lock = Lock::take(&path)?;
        let mut collected = Collected::new(Streams::LeftOut);
        let read = read_file(&path, &mut |entry| collected.take(entry))?;
        let FileRead { sound, unended, next_stored_seq, .. } = read;
        let (path, mut file, tail) = match (Form::of(&path), self.form, read.tail) {
            (Form::Plain, _, _) => (path.clone(), self.disk.open(&path)?, None),
            (Form::Zstd, Form::Zstd, Some(tail)) => {
                check_not_continued(&path)?;
                (path.clone(), self.disk.open(&path)?, Some(tail))
            }
            (Form::Zstd, _, _) => {
                let path = self.continue_beside(&path)?;
                let file = self.disk.open(&path)?;
                (path, file, None)
            }
        };
        // Where the file is cut, and the whole lines behind that, which blocks that were cut off may hold.
        let (cut, mut lines) = match tail {
            Some(tail) => (tail.length as u64, decoded_lines(&path, tail.decoded..sound)?),
            None => (sound, Vec::new()),
        };
        if unended {
            lines.push(b'\n');
        }
        let (form, open) = (tail.map_or(Form::Plain, |_| Form::Zstd), tail.is_some_and(|tail| tail.open));
        let (log, recovered) = collected.into_log(path.clone(), read);
        let in_file = i64::try_from(log.events.len() - log.recovered).unwrap_or(0);
        let offset = i64::try_from(next_stored_seq).unwrap_or(i64::MAX) - in_file;
        let mut text = String::new();
        line::encode(&recovered, offset, &mut text);
        lines.extend_from_slice(text.as_bytes());
        let mut appended = if open { CLOSING.to_vec() } else { Vec::new() };
        if !lines.is_empty() {
            let packed = Packer::new(form).pack(lines, BatchEnd::Frame);
            appended.extend(packed.map_err(StoreError::io("compress", &path))?);
        }
        // Whoever made the file may have died before its name was durable.
        self.disk.sync_name(&path)?;
        let torn = file.length().map_err(StoreError::io("read", &path))? > cut;
        if torn {
            file.cut(cut).map_err(StoreError::io("cut the torn end of", &path))?;
        }
        if torn || !appended.is_empty() {
            let written = file.append(&appended).and_then(|()| file.sync());
            written.map_err(StoreError::io("write", &path)).inspect_err(|_| {
                // What cannot be cut now is read, or cut, by the next writer.
                let _ = file.cut(cut);
            })?;
        }
        let start = Start {
            path,
            file,
            form,
            lock,
            length: cut + appended.len() as u64,
            next_seq: log.events.len(),
            offset,
            last_time: log.last_time,
        };
        Ok((log, Writer::start(start, on_durable)))
    }

    /// Writes the lines of a compressed log to a plain file beside it. The name appears only when all of it is durable.
    fn continue_beside(&self, compressed: &Path) -> Result<PathBuf, StoreError> {
        let path = check_not_continued(compressed)?;
        let bytes = std::fs::read(compressed).map_err(StoreError::io("read", compressed))?;
        let copy = Unnamed::write(&self.disk, &path, |file| bytes::decode(&bytes, &mut Copied(file)).map(drop))?;
        copy.name()?;
        self.disk.sync_name(&path)?;
        Ok(path)
    }

    /// Reads a session with recovery applied in memory.
    ///
    /// # Errors
    ///
    /// As [`Store::open`], but for the lock.
    pub fn read(&self, reference: &str) -> Result<Log, StoreError> {
        self.read_kept(reference, Streams::Kept)
    }

    /// As [`Store::read`], without the response streams. What it takes in memory does not grow with them.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub fn read_without_streams(&self, reference: &str) -> Result<Log, StoreError> {
        self.read_kept(reference, Streams::LeftOut)
    }

    fn read_kept(&self, reference: &str, streams: Streams) -> Result<Log, StoreError> {
        let path = self.resolve(reference)?;
        let file = self.open_to_read(&path)?;
        Log::of_bytes(path, file, streams)
    }

    /// A file that is read by itself, under the eyes of whoever watches.
    fn open_to_read(&self, path: &Path) -> Result<Watched, StoreError> {
        Ok(Watched::new(open_to_read(path)?, self.watch.clone()))
    }

    /// What is wrong with the file of a session, in order of line; and which file that is.
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub fn verify(&self, reference: &str) -> Result<(PathBuf, Vec<Problem>), StoreError> {
        let path = self.resolve(reference)?;
        let read = read_bytes(&path, self.open_to_read(&path)?, &mut |_| {})?;
        Ok((path, read.problems))
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

/// Opens a file to read it.
fn open_to_read(path: &Path) -> Result<File, StoreError> {
    // A device may have no end. A pipe is what a shell makes of `<(…)`, and can be read.
    let form = std::fs::metadata(path).map_err(StoreError::io("read", path))?.file_type();
    if is_device(form) {
        return Err(StoreError::NoSession { path: path.to_owned(), reason: "it is a device".to_owned() });
    }
    File::open(path).map_err(StoreError::io("read", path))
}

/// Reads a file without recovery.
fn read_file(path: &Path, take: &mut dyn FnMut(Entry)) -> Result<FileRead, StoreError> {
    read_bytes(path, open_to_read(path)?, take)
}

/// Reads what a file of this name holds.
fn read_bytes(path: &Path, file: impl Read, take: &mut dyn FnMut(Entry)) -> Result<FileRead, StoreError> {
    let id = find::id_of(path).unwrap_or_default();
    read::read(file, Form::of(path), &id, take).map_err(|unreadable| match unreadable {
        Unreadable::Newer(version) => StoreError::NewerVersion { path: path.to_owned(), version },
        Unreadable::NoSession(reason) => StoreError::NoSession { path: path.to_owned(), reason },
        Unreadable::Io(error) => StoreError::io("read", path)(error),
    })
}

/// A part of the lines of a compressed log.
fn decoded_lines(path: &Path, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
    struct Part {
        range: Range<u64>,
        at: u64,
        lines: Vec<u8>,
    }
    impl Lines for Part {
        type Error = Infallible;
        fn lines(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
            let end = self.at + bytes.len() as u64;
            let (from, to) = (self.range.start.clamp(self.at, end), self.range.end.clamp(self.at, end));
            let offset = |place: u64| usize::try_from(place - self.at).unwrap_or(bytes.len());
            self.lines.extend_from_slice(&bytes[offset(from)..offset(to)]);
            self.at = end;
            Ok(())
        }
        fn broken(&mut self, _: String, _: bool) {}
    }
    let mut part = Part { range, at: 0, lines: Vec::new() };
    if !part.range.is_empty() {
        let bytes = std::fs::read(path).map_err(StoreError::io("read", path))?;
        let Ok(_) = bytes::decode(&bytes, &mut part);
    }
    Ok(part.lines)
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

/// Writes the lines that a compressed file decodes to.
struct Copied<'a, W>(&'a mut W);

impl<W: Write> Lines for Copied<'_, W> {
    type Error = std::io::Error;
    fn lines(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }
    fn broken(&mut self, _: String, _: bool) {}
}

/// Whether the elements of response streams are kept of a log that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    Kept,
    LeftOut,
}

/// How many bytes of a stream wait for what follows them: an answer that is complete voids its stream, and an answer
/// that is not is put together of it.
const WAITING: usize = 4 << 20;

/// The entries of a log while it is read.
struct Collected {
    streams: Streams,
    events: Events,
    last_time: Option<u64>,
    recovery: Recovery,
    /// Chunks that were left out and that recovery has not seen yet.
    waiting: Vec<Entry>,
    /// What they take in memory, in bytes, and what they may.
    cost: usize,
    limit: usize,
}

impl Collected {
    fn new(streams: Streams) -> Self {
        Self {
            streams,
            events: Events::default(),
            last_time: None,
            recovery: Recovery::default(),
            waiting: Vec::new(),
            cost: 0,
            limit: WAITING,
        }
    }

    fn take(&mut self, entry: Entry) {
        self.last_time = Some(entry.last_time());
        match self.streams {
            Streams::Kept => self.events.push(entry),
            Streams::LeftOut if entry.is_chunk() => {
                self.events.skip(&entry);
                self.recovery.note_step(&entry);
                self.cost += entry.cost();
                self.waiting.push(entry);
                if self.cost > self.limit {
                    self.recover_waiting();
                }
            }
            Streams::LeftOut => {
                if entry.single().is_some_and(Recovery::voids_chunks) {
                    self.waiting.clear();
                    self.cost = 0;
                }
                self.recovery.take(&entry);
                self.events.push(entry);
            }
        }
    }

    fn recover_waiting(&mut self) {
        for entry in std::mem::take(&mut self.waiting) {
            self.recovery.take(&entry);
        }
        self.cost = 0;
    }

    /// The log with recovery applied, and what that added.
    fn into_log(mut self, path: PathBuf, read: FileRead) -> (Log, Vec<Event>) {
        let FileRead { header, problems, .. } = read;
        let first = self.events.len();
        let recovered = match self.streams {
            Streams::Kept => recovery::recovery(&self.events),
            Streams::LeftOut => {
                self.recover_waiting();
                self.recovery.finish(first)
            }
        };
        let last_time = self.last_time.unwrap_or(header.created_at);
        let recovered = recovered.into_iter().zip(first..);
        let recovered: Vec<Event> = recovered.map(|(event, seq): (NewEvent, u64)| event.at(seq, last_time)).collect();
        let mut events = self.events;
        recovered.iter().for_each(|event| events.push(Entry::Single(event.clone())));
        let log = Log { path, header, recovered: recovered.len() as u64, events, last_time, problems };
        (log, recovered)
    }
}

impl Log {
    fn of_file(path: PathBuf, streams: Streams) -> Result<Self, StoreError> {
        let file = open_to_read(&path)?;
        Self::of_bytes(path, file, streams)
    }

    fn of_bytes(path: PathBuf, bytes: impl Read, streams: Streams) -> Result<Self, StoreError> {
        let mut collected = Collected::new(streams);
        let read = read_bytes(&path, bytes, &mut |entry| collected.take(entry))?;
        Ok(collected.into_log(path, read).0)
    }

    /// Reads what a file of this name holds, with recovery applied. The name tells the form, and the id where there is
    /// no header.
    ///
    /// # Errors
    ///
    /// No session, or one of a newer version.
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, StoreError> {
        Self::of_bytes(path.to_owned(), bytes, Streams::Kept)
    }

    /// As [`Log::from_bytes`], without the response streams.
    ///
    /// # Errors
    ///
    /// As [`Log::from_bytes`].
    pub fn from_bytes_without_streams(path: &Path, bytes: &[u8]) -> Result<Self, StoreError> {
        Self::of_bytes(path.to_owned(), bytes, Streams::LeftOut)
    }

    /// The log again, everything that could be read of it: its header, then its events, packed and numbered from 0.
    #[must_use]
    pub fn to_lines(&self) -> String {
        repair::lines_of(&self.header, &self.events)
    }

    /// The history that derives from the events.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.history().into_iter().map(|entry| entry.message).collect()
    }

    /// The derived history with what a request needs to know of each message.
    #[must_use]
    pub fn history(&self) -> Vec<DerivedMessage> {
        derive::history(self.events.singles())
    }

    /// The title, where the session has one.
    #[must_use]
    pub fn title(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Data {
            title: String,
        }
        let titles = self.events.singles().rev().filter(|event| event.kind == kind::SESSION_TITLE);
        titles.into_iter().find_map(|event| event.parse::<Data>().ok()).map(|data| data.title)
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
