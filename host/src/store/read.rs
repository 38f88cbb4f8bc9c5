//! From the bytes of a file to its events and to what is wrong with it.
//!
//! Nothing damaged shortens a conversation silently: every complete record is read, every damaged place is one
//! [`Problem`], and what can be shown is shown. A file is gone through once, line by line; what it takes in memory is
//! its longest line and what whoever takes the entries keeps of them (of a compressed file also its bytes).

use std::io;
use std::path::PathBuf;

use dsh_plugin_api::json;

use super::StoreError;
use super::bytes::{self, Form, Lines, Tail};
use super::numbering::Numbering;
use super::problem::ProblemKind;
use crate::session::derive::{Surface, SurfaceOp};
use crate::session::event::{Event, Header};
use crate::session::events::Entry;
use crate::session::line::{self, Damage, HeaderRecord, Place, Record};

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// 1-based; line 1 is the header.
    pub line: u64,
    /// What kind of damage it is.
    pub kind: ProblemKind,
    /// What is wrong, and what was done about it.
    pub message: String,
}

impl Problem {
    /// A file that cannot be read at all as the problem of its header, with the file; `None` for errors that are none
    /// of the file's content.
    #[must_use]
    pub fn of_header(error: &StoreError) -> Option<(PathBuf, Self)> {
        let (path, kind) = match error {
            StoreError::NewerVersion { path, .. } => (path, ProblemKind::NewerVersion),
            StoreError::NoSession { path, .. } => (path, ProblemKind::NoSession),
            StoreError::NotFound { .. }
            | StoreError::InvalidId(_)
            | StoreError::Exists(_)
            | StoreError::Locked { .. }
            | StoreError::Continued { .. }
            | StoreError::NoEvent { .. }
            | StoreError::Unrepairable(_)
            | StoreError::Io { .. }
            | StoreError::WriterStopped(_) => return None,
        };
        Some((path.clone(), Self::new(1, kind, error.to_string())))
    }

    fn new(line: u64, kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { line, kind, message: message.into() }
    }
}

/// The longest line that is read, in bytes. No record that dsh writes comes near it; a few kilobytes of a compressed
/// file can stand for more.
const LONGEST_LINE: usize = 1 << 30;

/// A file as read.
#[derive(Debug)]
pub(super) struct FileRead {
    pub header: Header,
    pub problems: Vec<Problem>,
    /// Length of the decoded lines, which for a plain file are the file, without a torn tail.
    pub sound: u64,
    /// True when a line stands there whose newline is missing.
    pub unended: bool,
    /// Where a compressed file can be continued in place.
    pub tail: Option<Tail>,
    /// The seq that the next event gets in the file: above all that stand there.
    pub next_stored_seq: u64,
}

/// Why a file cannot be read as a session.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The header's version, as written.
    Newer(String),
    /// There is no header, and no message that could be shown without one.
    NoSession(String),
    /// The file cannot be read.
    Io(io::Error),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads a file to its end. `id` stands for a header that is missing; `take` gets what its records stand for, expanded
/// to `seq` 0 and so on without gaps.
pub(super) fn read(
    mut file: impl io::Read,
    form: Form,
    id: &str,
    take: &mut dyn FnMut(Entry),
) -> Result<FileRead, Unreadable> {
    let mut splitter = Splitter::new(Reader::new(id, take));
    match form {
        Form::Plain => {
            let mut piece = vec![0; 64 * 1024];
            loop {
                match file.read(&mut piece) {
                    Ok(0) => return splitter.finish(None),
                    Ok(length) => splitter.lines(&piece[..length])?,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Form::Zstd => {
            let mut file_bytes = Vec::new();
            file.read_to_end(&mut file_bytes)?;
            let tail = bytes::decode(&file_bytes, &mut splitter)?;
            splitter.finish(tail)
        }
    }
}

/// Makes lines of bytes.
struct Splitter<'a> {
    reader: Reader<'a>,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// How much of that line was not kept, since it is too long.
    dropped: u64,
    /// Length of all that came.
    length: u64,
    /// Bytes are missing in that line.
    broken: Option<String>,
    /// Bytes are missing at the end.
    torn: Option<String>,
}

impl<'a> Splitter<'a> {
    const fn new(reader: Reader<'a>) -> Self {
        Self { reader, line: Vec::new(), dropped: 0, length: 0, broken: None, torn: None }
    }

    fn begin_of_line(&mut self, bytes: &[u8]) {
        if self.dropped > 0 || self.line.len() + bytes.len() > LONGEST_LINE {
            self.dropped += (self.line.len() + bytes.len()) as u64;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    /// Reads the line that is complete now; its end may have come with `end`.
    fn end_of_line(&mut self, end: &[u8]) -> Result<(), Unreadable> {
        let broken = self.broken.take();
        if self.line.is_empty() && self.dropped == 0 {
            self.reader.line(end, Ending::Newline, broken)?;
            return Ok(());
        }
        self.begin_of_line(end);
        match std::mem::take(&mut self.dropped) {
            0 => self.reader.line(&self.line, Ending::Newline, broken).map(drop)?,
            length => self.reader.overlong(length),
        }
        self.line.clear();
        self.line.shrink_to(1 << 20);
        Ok(())
    }

    fn finish(mut self, tail: Option<Tail>) -> Result<FileRead, Unreadable> {
        let begin = self.length - self.line.len() as u64 - self.dropped;
        let mut last = 0;
        if self.dropped > 0 {
            self.reader.overlong(self.dropped);
        } else if !self.line.is_empty() {
            let broken = self.broken.take().or(self.torn.take());
            last = self.reader.line(&self.line, Ending::None, broken)?;
        }
        if let Some(torn) = self.torn {
            self.reader.problem_here(ProblemKind::TornFrame, format!("{torn}; what it held is lost"));
        }
        self.reader.finish(begin + last as u64, last > 0, tail)
    }
}

impl Lines for Splitter<'_> {
    type Error = Unreadable;

    fn lines(&mut self, mut bytes: &[u8]) -> Result<(), Unreadable> {
        self.length += bytes.len() as u64;
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.end_of_line(&bytes[..end])?;
            bytes = &bytes[end + 1..];
        }
        self.begin_of_line(bytes);
        Ok(())
    }

    fn broken(&mut self, message: String, last: bool) {
        if last {
            self.torn = Some(message);
        } else if self.line.is_empty() && self.dropped == 0 {
            self.reader.problem_here(ProblemKind::TornFrame, around(&message));
        } else {
            self.broken = Some(message);
        }
    }
}

/// A damaged frame whose neighbours are not damaged.
fn around(broken: &str) -> String {
    format!("{broken}; the lines around it were read")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Newline,
    None,
}

/// The state of reading between two lines.
struct Reader<'a> {
    id: &'a str,
    line: u64,
    header: Option<Header>,
    /// Why the first line gave no header.
    headless: Option<String>,
    /// What a file without a header shows so far.
    surface: Surface,
    /// How many events there were.
    count: u64,
    take: &'a mut dyn FnMut(Entry),
    numbering: Numbering,
    /// Time of the last event, before it that of the header.
    time: u64,
    /// Time of the first event.
    first_time: Option<u64>,
    problems: Vec<Problem>,
    /// True from a damaged place to the next sound event: seqs that are missing there need no second report.
    damaged: bool,
    /// Last line of the last problem, for damage that spreads over neighbouring lines.
    problem_end: u64,
}

impl<'a> Reader<'a> {
    fn new(id: &'a str, take: &'a mut dyn FnMut(Entry)) -> Self {
        Self {
            id,
            line: 0,
            header: None,
            headless: None,
            surface: Surface::default(),
            count: 0,
            take,
            numbering: Numbering::default(),
            time: 0,
            first_time: None,
            problems: Vec::new(),
            damaged: false,
            problem_end: 0,
        }
    }

    /// Takes the next line; returns the length of its sound part.
    fn line(&mut self, line: &[u8], ending: Ending, broken: Option<String>) -> Result<usize, Unreadable> {
        self.line += 1;
        let number = self.line;
        // A byte-order mark is no damage; editors leave it.
        let mark = if number == 1 && line.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        let scan = line::scan(&line[mark..]);
        let problem = self.judge_line(&scan, ending, broken);
        let first_problem = self.problems.len();
        let damaged = problem.is_some();
        if damaged {
            self.damaged = true;
        }
        if number == 1 && !scan.records.first().is_some_and(Record::is_header) {
            self.headless = Some(match &scan.damage {
                Some(Damage::Unreadable(reason)) => {
                    format!("its first line cannot be read ({reason}), no message follows")
                }
                _ => "its first line is no session header, and no message follows".to_owned(),
            });
        }
        let records = scan.records.len();
        for record in scan.records {
            self.record(record)?;
        }
        if let Some(problem) = problem {
            // Whatever else its records brought up is the same damaged place.
            self.problems.truncate(first_problem);
            self.note_line(problem, records);
        }
        Ok(if scan.torn && ending == Ending::None { mark + scan.sound } else { line.len() })
    }

    fn judge_line(&self, scan: &line::Scan, ending: Ending, broken: Option<String>) -> Option<Problem> {
        let line = self.line;
        let read = scan.records.len();
        let behind = |what: &str| match read {
            0 => format!("{what}; skipped"),
            1 => format!("{what}; the record on this line was read"),
            n => format!("{what}; the {n} records on this line were read"),
        };
        if let Some(broken) = broken {
            return Some(Problem::new(line, ProblemKind::TornFrame, around(&broken)));
        }
        if scan.torn && ending == Ending::None {
            return Some(Problem::new(
                line,
                ProblemKind::TornTail,
                "the last line is cut off in the middle; it is left out, and cut when the session is opened to write",
            ));
        }
        Some(match &scan.damage {
            Some(Damage::Unreadable(reason)) => Problem::new(
                line,
                ProblemKind::Unreadable,
                behind(&format!("a part of this line cannot be read ({reason})")),
            ),
            Some(Damage::NulPadding(bytes)) => {
                Problem::new(line, ProblemKind::NulPadding, behind(&format!("{bytes} NUL bytes")))
            }
            Some(Damage::JoinedRecords(records)) => Problem::new(
                line,
                ProblemKind::JoinedRecords,
                format!("{records} records stand on this line without a newline between them; all were read"),
            ),
            Some(Damage::InvalidUtf8) => {
                Problem::new(line, ProblemKind::InvalidUtf8, "bytes that are not UTF-8 were read as U+FFFD")
            }
            None if ending == Ending::None => Problem::new(
                line,
                ProblemKind::MissingNewline,
                "the last line is complete but lacks its newline; it was read, and gets one when the session is opened \
                 to write",
            ),
            None => return None,
        })
    }

    /// Adds the problem of a line. Neighbouring lines without any record are one place.
    fn note_line(&mut self, problem: Problem, records: usize) {
        let end = self.line;
        let neighbour = records == 0 && self.problem_end + 1 == end && end > 1;
        if neighbour
            && let Some(last) = self.problems.last_mut()
            && last.kind == problem.kind
            && problem.kind != ProblemKind::TornTail
        {
            let first = last.line;
            last.message = format!("lines {first} to {end} cannot be read; skipped");
        } else {
            self.problems.push(problem);
        }
        self.problem_end = if records == 0 { end } else { 0 };
    }

    fn problem(&mut self, line: u64, kind: ProblemKind, message: impl Into<String>) {
        self.problems.push(Problem::new(line, kind, message));
    }

    /// Notes a problem between the last line and the next.
    fn problem_here(&mut self, kind: ProblemKind, message: impl Into<String>) {
        self.problem(self.line.max(1), kind, message);
    }

    /// A line of this length in bytes, which is not read.
    fn overlong(&mut self, length: u64) {
        self.line += 1;
        self.damaged = true;
        let message = format!("the line has {length} bytes; one of more than {LONGEST_LINE} is not read");
        self.problem(self.line, ProblemKind::Unreadable, message);
    }

    fn record(&mut self, record: Record) -> Result<(), Unreadable> {
        if record.is_header() {
            return self.take_header(record);
        }
        let place = Place { seq: self.count, time: self.time };
        let line::Read { stored_seq, mut entry, flaw } = match record.into_entry(place) {
            Ok(read) => read,
            Err(reason) => {
                self.damaged = true;
                self.problem(self.line, ProblemKind::Unreadable, format!("{reason}; skipped"));
                return Ok(());
            }
        };
        if let Some(flaw) = flaw {
            self.problem(self.line, ProblemKind::FlawedRecord, flaw);
        }
        let count = entry.count();
        if count == 0 {
            return Ok(());
        }
        self.first_time.get_or_insert(entry.first_time());
        self.time = entry.last_time();
        let judged = self.numbering.take(place.seq, stored_seq, count);
        if let Some(message) = judged.map(|jump| jump.message()).filter(|(gap, _)| !(*gap && self.damaged)) {
            let (gap, text) = message;
            self.problem(self.line, if gap { ProblemKind::SeqGap } else { ProblemKind::SeqFork }, text);
        }
        self.damaged = false;
        self.count += count;
        if let Entry::Single(event) = &mut entry {
            self.renumber_surface_op(event);
            if self.header.is_none() {
                self.surface.take(event);
            }
        }
        (self.take)(entry);
        Ok(())
    }

    fn take_header(&mut self, record: Record) -> Result<(), Unreadable> {
        if self.header.is_some() || self.count > 0 {
            self.damaged = true;
            self.numbering.expect_restart();
            self.problem(self.line, ProblemKind::SecondHeader, "a session header stands among the events; skipped");
            return Ok(());
        }
        match record.into_header(self.id) {
            HeaderRecord::Newer(version) => Err(Unreadable::Newer(version)),
            HeaderRecord::Known { header, flaw } => {
                if let Some(flaw) = flaw {
                    self.problem(self.line, ProblemKind::FlawedHeader, flaw);
                }
                self.time = header.created_at;
                self.header = Some(header);
                Ok(())
            }
        }
    }

    fn finish(mut self, sound: u64, unended: bool, tail: Option<Tail>) -> Result<FileRead, Unreadable> {
        let header = match self.header.take() {
            Some(header) => header,
            None => {
                if self.surface.is_empty() {
                    let damage = self.problems.into_iter().next().map(|problem| problem.message);
                    let reason = self.headless.or(damage).unwrap_or_else(|| "it is empty".to_owned());
                    return Err(Unreadable::NoSession(reason));
                }
                self.note_missing_header();
                Header::new(self.id, self.first_time.unwrap_or(0), None)
            }
        };
        let next_stored_seq = self.numbering.next_stored();
        Ok(FileRead { header, problems: self.problems, sound, unended, tail, next_stored_seq })
    }

    /// A first line that could not be read at all has been reported; the header that it was is the same place.
    fn note_missing_header(&mut self) {
        let message = "there is no session header; the file name stands for the id";
        match self.problems.first_mut() {
            Some(first) if first.line == 1 => {
                first.kind = ProblemKind::MissingHeader;
                first.message = format!("{message} ({})", first.message);
            }
            _ => self.problems.insert(0, Problem::new(1, ProblemKind::MissingHeader, message)),
        }
    }

    /// The seqs of a replacement are those of the file; where events were renumbered it has to follow.
    fn renumber_surface_op(&self, event: &mut Event) {
        let SurfaceOp::Replace { start, end } = SurfaceOp::of(event) else { return };
        if let Some((start, end)) = self.numbering.renumber(event.seq, start, end) {
            let op = serde_json::json!({ "op": "replace", "start": start, "end": end });
            event.extra.set("surfaceOp", json::raw(&op));
        }
    }
}
