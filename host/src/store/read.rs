//! From the bytes of a file to its events and to what is wrong with it. Pure.
//!
//! Nothing damaged shortens a conversation silently: every complete record is read, every damaged place is one
//! [`Problem`], and what can be shown is shown.

use std::path::PathBuf;

use dsh_plugin_api::json;

use super::StoreError;
use super::bytes::{self, Form, Tail};
use super::numbering::Numbering;
use super::problem::ProblemKind;
use crate::session::derive::SurfaceOp;
use crate::session::event::{Event, Header};
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

/// A file as read.
#[derive(Debug)]
pub(super) struct FileRead {
    pub header: Header,
    /// Expanded, `seq` from 0 without gaps.
    pub events: Vec<Event>,
    pub problems: Vec<Problem>,
    /// The decoded lines, which for a plain file are the file.
    pub lines: Vec<u8>,
    /// Length of `lines` without a torn tail.
    pub sound: usize,
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
}

/// Reads the bytes of a file. `id` stands for a header that is missing.
pub(super) fn read(file: Vec<u8>, form: Form, id: &str) -> Result<FileRead, Unreadable> {
    let (lines, breaks, tail) = match form {
        Form::Plain => (file, Vec::new(), None),
        Form::Zstd => {
            let decoded = bytes::decode(&file);
            (decoded.lines, decoded.breaks, decoded.tail)
        }
    };
    let mut reader = Reader::new(id);
    let mut breaks = breaks.into_iter().peekable();
    let mut at = 0;
    let mut sound = lines.len();
    while at < lines.len() {
        let end = newline(&lines[at..]).map(|length| at + length);
        let mut broken = None;
        while let Some(b) = breaks.next_if(|b| b.offset <= end.map_or(lines.len(), |end| end + 1) && !b.last) {
            broken = Some(b.message);
        }
        match end {
            Some(end) => {
                reader.line(&lines[at..end], Ending::Newline, broken)?;
                at = end + 1;
            }
            None => {
                let torn = breaks.next_if(|b| b.last).map(|b| b.message);
                sound = at + reader.line(&lines[at..], Ending::None, broken.or(torn))?;
                at = lines.len();
            }
        }
    }
    for b in breaks {
        reader.problem(reader.line.max(1), ProblemKind::TornFrame, format!("{}; what it held is lost", b.message));
    }
    Ok(FileRead { tail, ..reader.finish(lines, sound)? })
}

fn newline(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
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
    events: Vec<Event>,
    numbering: Numbering,
    time: u64,
    problems: Vec<Problem>,
    /// True from a damaged place to the next sound event: seqs that are missing there need no second report.
    damaged: bool,
    /// Last line of the last problem, for damage that spreads over neighbouring lines.
    problem_end: u64,
}

impl<'a> Reader<'a> {
    fn new(id: &'a str) -> Self {
        Self {
            id,
            line: 0,
            header: None,
            headless: None,
            events: Vec::new(),
            numbering: Numbering::default(),
            time: 0,
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
            return Some(Problem::new(
                line,
                ProblemKind::TornFrame,
                format!("{broken}; the lines around it were read"),
            ));
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

    fn record(&mut self, record: Record) -> Result<(), Unreadable> {
        if record.is_header() {
            return self.take_header(record);
        }
        let place = Place { seq: self.events.len() as u64, time: self.time };
        let events = match record.into_events(place) {
            Ok(events) => events,
            Err(reason) => {
                self.damaged = true;
                self.problem(self.line, ProblemKind::Unreadable, format!("{reason}; skipped"));
                return Ok(());
            }
        };
        if let Some(flaw) = events.flaw {
            self.problem(self.line, ProblemKind::FlawedRecord, flaw);
        }
        let Some(last) = events.events.last() else { return Ok(()) };
        self.time = last.time;
        let count = events.events.len() as u64;
        let judged = self.numbering.take(place.seq, events.stored_seq, count);
        if let Some(message) = judged.map(|jump| jump.message()).filter(|(gap, _)| !(*gap && self.damaged)) {
            let (gap, text) = message;
            self.problem(self.line, if gap { ProblemKind::SeqGap } else { ProblemKind::SeqFork }, text);
        }
        self.damaged = false;
        self.events.extend(events.events);
        Ok(())
    }

    fn take_header(&mut self, record: Record) -> Result<(), Unreadable> {
        if self.header.is_some() || !self.events.is_empty() {
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

    fn finish(mut self, lines: Vec<u8>, sound: usize) -> Result<FileRead, Unreadable> {
        let header = match self.header.take() {
            Some(header) => header,
            None => {
                if crate::session::derive::history(&self.events).is_empty() {
                    let damage = self.problems.into_iter().next().map(|problem| problem.message);
                    let reason = self.headless.or(damage).unwrap_or_else(|| "it is empty".to_owned());
                    return Err(Unreadable::NoSession(reason));
                }
                self.note_missing_header();
                Header::new(self.id, self.events.first().map_or(0, |event| event.time), None)
            }
        };
        for event in 0..self.events.len() {
            self.renumber_surface_op(event);
        }
        Ok(FileRead {
            header,
            next_stored_seq: self.numbering.next_stored(),
            events: self.events,
            problems: self.problems,
            lines,
            sound,
            tail: None,
        })
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
    fn renumber_surface_op(&mut self, at: usize) {
        let SurfaceOp::Replace { start, end } = SurfaceOp::of(&self.events[at]) else { return };
        if let Some((start, end)) = self.numbering.renumber(at as u64, start, end) {
            let op = serde_json::json!({ "op": "replace", "start": start, "end": end });
            self.events[at].extra.set("surfaceOp", json::raw(&op));
        }
    }
}
