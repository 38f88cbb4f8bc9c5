//! Lines: how events stand in a file, and what a line that is damaged still holds.
//!
//! [`scan`] reads every complete record of a line, also behind NUL bytes, behind a fragment and behind another record.
//! [`encode`] writes events, runs of deltas as packed rows. What `encode` writes, `scan` and [`Record::into_entry`]
//! give back exactly.

use std::borrow::Cow;

use dsh_plugin_api::json::{self, Object};

use super::batch::PlacedEvents;
use super::event::{Event, Header};
use super::events::{Entry, Row};
use super::row::{self, Segment, WrittenRow};

/// Runs shorter than this stay plain events.
const SHORTEST_ROW: usize = 3;

/// Longer ones are several rows: whoever reads a log has the whole line in memory.
const LONGEST_ROW: usize = 4096;

/// Largest number that JSON written by JavaScript holds exactly; a greater seq or time is damage.
const GREATEST_INTEGER: u64 = 1 << 53;

/// One JSON object of a line with a `type`.
#[derive(Debug, Clone)]
pub struct Record(Content);

#[derive(Debug, Clone)]
enum Content {
    Object {
        /// `type`
        kind: String,
        /// The other members.
        members: Object,
    },
    Row(WrittenRow),
}

/// What a line holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// Its records, in order.
    pub records: Vec<Record>,
    /// What is damaged, the gravest first: a stable name and words for a person. At most one of each name.
    pub damage: Option<Damage>,
    /// Length in bytes of the line up to the end of its last complete record. What follows is a fragment, or blank.
    pub sound: usize,
    /// True when something that is no blank follows the last complete record.
    pub torn: bool,
}

/// What is wrong with a line. The order is that of gravity: a line reports its gravest damage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// Bytes that are not UTF-8 were read as U+FFFD.
    InvalidUtf8,
    /// Several records without a newline between them.
    JoinedRecords(usize),
    /// NUL bytes, as a file system leaves them after a power loss.
    NulPadding(usize),
    /// A part that is no record, with the reason.
    Unreadable(String),
}

/// Reads a line, given without its newline.
#[must_use]
pub fn scan(line: &[u8]) -> Scan {
    let mut scan = Scan::default();
    // The lossy reading of text without damage takes several times as long as this check.
    let text = str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed);
    if let Cow::Borrowed(line) = text
        && let Some(row) = WrittenRow::scan(line)
    {
        return Scan { records: vec![Record(Content::Row(row))], damage: None, sound: line.len(), torn: false };
    }
    if let Cow::Owned(_) = text {
        scan.note(Damage::InvalidUtf8);
    }
    let mut resync = Resync::new(&text);
    let mut at = 0;
    let mut sound = 0;
    loop {
        at = skip_blank(&text, at, &mut scan);
        if at == text.len() {
            break;
        }
        match read_value(&text[at..]) {
            Ok((record, length)) => {
                at += length;
                match record {
                    Some(record) => {
                        scan.records.push(record);
                        sound = at;
                    }
                    None => scan.note(Damage::Unreadable("a value that is no record".to_owned())),
                }
            }
            Err(error) => {
                scan.note(Damage::Unreadable(error.to_string()));
                match resync.next_record(at + 1) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
    }
    if scan.records.len() > 1 {
        scan.note(Damage::JoinedRecords(scan.records.len()));
    }
    scan.torn = text[sound..].chars().any(|c| !is_space(c));
    scan.sound = if scan.torn { original_offset(line, sound) } else { line.len() };
    scan
}

impl Scan {
    fn note(&mut self, damage: Damage) {
        match &self.damage {
            // The first reason of several is the place where reading failed.
            Some(known) if *known > damage || matches!((known, &damage), (Damage::Unreadable(_), _)) => {}
            _ => self.damage = Some(damage),
        }
    }
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// The next position that is neither white space nor NUL.
fn skip_blank(text: &str, at: usize, scan: &mut Scan) -> usize {
    let rest = &text[at..];
    let trimmed = rest.trim_start_matches(|c| is_space(c) || c == '\0');
    let skipped = &rest[..rest.len() - trimmed.len()];
    let nuls = skipped.bytes().filter(|byte| *byte == 0).count();
    if nuls > 0 {
        scan.note(Damage::NulPadding(nuls));
    }
    at + skipped.len()
}

/// The JSON value at the start of the text and its length; `None` for a value that is no record.
fn read_value(text: &str) -> serde_json::Result<(Option<Record>, usize)> {
    if !text.starts_with('{') {
        // Values that are no objects are read to step over them whole.
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        return match values.next() {
            Some(Err(error)) => Err(error),
            Some(Ok(_)) | None => Ok((None, values.byte_offset().max(1))),
        };
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Object>();
    let mut members = match values.next() {
        Some(Ok(members)) => members,
        Some(Err(error)) => return Err(error),
        None => Object::new(),
    };
    let length = values.byte_offset();
    let kind = members.take_as::<String>("type");
    Ok((kind.map(|kind| Record(Content::Object { kind, members })), length))
}

/// Finds complete records behind a fragment.
///
/// A record is taken only where it begins with its `type`, has a data object, and ends the line or is followed by the
/// next record: an object nested in the fragment is followed by a comma or a bracket.
struct Resync<'a> {
    text: &'a str,
    /// Bytes that may still be read in vain, so that a hostile line costs linear time.
    budget: usize,
}

impl<'a> Resync<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, budget: text.len().saturating_mul(8).saturating_add(1 << 20) }
    }

    fn next_record(&mut self, from: usize) -> Option<usize> {
        // `from` may stand inside a character; an opening brace never does.
        let bytes = self.text.as_bytes();
        let mut at = from;
        loop {
            at += bytes.get(at..)?.iter().position(|byte| *byte == b'{')?;
            let rest = &self.text[at..];
            if rest[1..].trim_start_matches(is_space).starts_with("\"type\"") {
                let read = self.budget.checked_sub(rest.len());
                match read_value(rest) {
                    Ok((Some(record), length)) if record.is_whole() && ends_or_opens(&rest[length..]) => {
                        return Some(at);
                    }
                    _ => self.budget = read?,
                }
            }
            at += 1;
        }
    }
}

fn ends_or_opens(rest: &str) -> bool {
    let rest = rest.trim_start_matches(|c| is_space(c) || c == '\0');
    rest.is_empty() || rest.starts_with('{')
}

/// The offset in bytes that `offset` in the lossy text of these bytes stands for.
fn original_offset(bytes: &[u8], offset: usize) -> usize {
    let (mut lossy, mut original) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        if offset <= lossy + chunk.valid().len() {
            return original + (offset - lossy);
        }
        lossy += chunk.valid().len();
        original += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            lossy += char::REPLACEMENT_CHARACTER.len_utf8();
            original += chunk.invalid().len();
        }
    }
    original
}

/// A header, or why there is none.
#[derive(Debug)]
pub enum HeaderRecord {
    /// A header of a version that this build reads.
    Known {
        /// The header.
        header: Header,
        /// What it lacks.
        flaw: Option<&'static str>,
    },
    /// A header of another version, with the version as written.
    Newer(String),
}

/// The place of a record's first event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// For an event without `seq`.
    pub seq: u64,
    /// For an event without `time`.
    pub time: u64,
}

/// What a record was read as.
#[derive(Debug)]
pub struct Read {
    /// The `seq` or `seq0` that was written, where one was.
    pub stored_seq: Option<u64>,
    /// Its events, numbered from the `seq` of the place that was given.
    pub entry: Entry,
    /// What is wrong with the record although it could be read.
    pub flaw: Option<String>,
}

impl Record {
    /// True for a session header.
    #[must_use]
    pub fn is_header(&self) -> bool {
        matches!(&self.0, Content::Object { kind, .. } if kind == "session")
    }

    /// True when it has what every record has; asked of records that stand behind a fragment.
    fn is_whole(&self) -> bool {
        match &self.0 {
            Content::Object { members, .. } => {
                self.is_header() && members.get("version").is_some()
                    || members.get("data").is_some_and(|data| data.get().starts_with('{'))
            }
            Content::Row(_) => true,
        }
    }

    /// Reads a header. `id` is used where it has none.
    #[must_use]
    pub fn into_header(self, id: &str) -> HeaderRecord {
        let mut members = match self.0 {
            Content::Object { members, .. } => members,
            Content::Row(_) => Object::new(),
        };
        let version = members.take("version").map(|version| version.get().to_owned());
        let mut flaw = None;
        match version {
            None => flaw = Some("the header names no version; it is read as version 0"),
            Some(version) if version == Header::VERSION.to_string() => {}
            Some(version) => return HeaderRecord::Newer(version),
        }
        let id = members.take_as("id").unwrap_or_else(|| {
            flaw = Some("the header has no id; the file name stands for it");
            id.to_owned()
        });
        let created_at = members.take_as("createdAt").unwrap_or_else(|| {
            flaw = Some("the header has no createdAt");
            0
        });
        let cwd = members.take_as("cwd");
        HeaderRecord::Known { header: Header { id, created_at, cwd, extra: members }, flaw }
    }

    /// The events of this record, numbered from `place`.
    ///
    /// # Errors
    ///
    /// A packed row whose pieces cannot be read, with the reason.
    pub fn into_entry(self, place: Place) -> Result<Read, String> {
        let (kind, mut members) = match self.0 {
            Content::Object { kind, members } => (kind, members),
            Content::Row(row) => {
                return Ok(Read { stored_seq: Some(row.seq0), entry: Entry::Row(row.at(place.seq)), flaw: None });
            }
        };
        let packed = row::is_row(&kind);
        let (seq, time) = if packed { ("seq0", "time0") } else { ("seq", "time") };
        let mut flaw = None;
        let mut integer = |members: &mut Object, name: &str| {
            let written = members.take(name)?;
            let number = json::from_str(written.get()).ok().filter(|number| *number < GREATEST_INTEGER);
            if number.is_none() {
                flaw = Some(format!("{name} is no usable integer; it was derived from the records before"));
            }
            number
        };
        let stored_seq = integer(&mut members, seq);
        let time = integer(&mut members, time).unwrap_or(place.time);
        let data = members.take("data");
        if packed {
            let data = data.ok_or("the packed row has no data")?;
            let (row, flaw_of_row) = Row::read(&kind, data, place.seq, time, members)?;
            return Ok(Read { stored_seq, entry: Entry::Row(row), flaw: flaw.or(flaw_of_row) });
        }
        let data = data.unwrap_or_else(row::null);
        let event = Event { kind: kind.into(), seq: place.seq, time, data, extra: members };
        Ok(Read { stored_seq, entry: Entry::Single(event), flaw })
    }
}

/// What a line is made of: an event, or a run of deltas.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// An event.
    Event(&'a Event),
    /// Events in their places.
    Placed(&'a PlacedEvents),
    /// A row as it stands in a file.
    Row(&'a Row),
}

impl<'a> From<&'a Entry> for Part<'a> {
    fn from(entry: &'a Entry) -> Self {
        match entry {
            Entry::Single(event) => Self::Event(event),
            Entry::Row(row) => Self::Row(row),
        }
    }
}

impl<'a> From<&'a Event> for Part<'a> {
    fn from(event: &'a Event) -> Self {
        Self::Event(event)
    }
}

impl<'a> From<&'a PlacedEvents> for Part<'a> {
    fn from(placed: &'a PlacedEvents) -> Self {
        Self::Placed(placed)
    }
}

/// Appends the lines of these events, each with its newline. A `seq` in the file is the event's plus `offset`.
pub fn encode<'a, P: Into<Part<'a>>>(parts: impl IntoIterator<Item = P>, offset: i64, out: &mut String) {
    let mut lines = Lines { offset, row: Vec::new(), length: 0, out };
    for part in parts {
        match part.into() {
            Part::Event(event) | Part::Placed(PlacedEvents::One(event)) => match Segment::of_event(event) {
                Some(segment) => lines.segment(segment),
                None => lines.plain(event),
            },
            Part::Placed(PlacedEvents::Deltas { deltas, first, time }) => {
                lines.segment(Segment::of_deltas(deltas, *first, *time));
            }
            Part::Row(row) => match Segment::of_row(row) {
                Some(segments) => segments.into_iter().for_each(|segment| lines.segment(segment)),
                None => lines.foreign(row),
            },
        }
    }
    lines.end_row();
}

/// Lines in the making.
struct Lines<'a, 'o> {
    offset: i64,
    /// What fits one row so far, and how many deltas it is.
    row: Vec<Segment<'a>>,
    length: usize,
    out: &'o mut String,
}

impl<'a> Lines<'a, '_> {
    const fn stored(&self, seq: u64) -> u64 {
        seq.saturating_add_signed(self.offset)
    }

    fn segment(&mut self, segment: Segment<'a>) {
        if self.length >= LONGEST_ROW || self.row.last().is_some_and(|last| !last.continues_with(&segment)) {
            self.end_row();
        }
        self.length += segment.len();
        self.row.push(segment);
    }

    fn plain(&mut self, event: &Event) {
        self.end_row();
        encode_plain(event, self.stored(event.seq), self.out);
    }

    /// A row that this build would not write. Its events may be much longer than it is: each has all of its members.
    fn foreign(&mut self, row: &Row) {
        self.end_row();
        match row.write(self.stored(row.first_seq()), self.out) {
            Some(()) => self.out.push('\n'),
            None => row.events().for_each(|event| encode_plain(&event, self.stored(event.seq), self.out)),
        }
    }

    fn end_row(&mut self) {
        let row = std::mem::take(&mut self.row);
        if std::mem::take(&mut self.length) >= SHORTEST_ROW {
            row::write(&row, self.stored(row[0].first()), self.out);
            self.out.push('\n');
            return;
        }
        for event in row.into_iter().flat_map(Segment::into_events) {
            encode_plain(&event, self.stored(event.seq), self.out);
        }
    }
}

fn encode_plain(event: &Event, seq: u64, out: &mut String) {
    use std::fmt::Write;
    let Event { kind, time, data, extra, .. } = event;
    // Writing to a string cannot fail.
    let _ = write!(out, r#"{{"type":{},"seq":{seq},"time":{time},"data":{data}"#, json::raw(&**kind).get());
    for (name, value) in extra.iter() {
        let _ = write!(out, ",{}:{}", json::raw(name).get(), value.get());
    }
    out.push_str("}\n");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::session::batch::{Durable, NewEvents};
    use crate::session::event::NewEvent;
    use dsh_plugin_api::vocab::{BlockType, Chunk};

    /// The events of a text, numbered from 0.
    fn decode(text: &str) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for line in text.lines() {
            let scan = scan(line.as_bytes());
            assert_eq!(scan.damage, None, "{line}");
            for record in scan.records {
                let read = record.into_entry(Place { seq: events.len() as u64, time: 0 }).unwrap();
                assert_eq!((read.stored_seq, read.flaw), (Some(events.len() as u64), None));
                events.extend(read.entry.events().map(Cow::into_owned));
            }
        }
        events
    }

    fn kind_of(record: &Record) -> &str {
        match &record.0 {
            Content::Object { kind, .. } => kind,
            Content::Row(_) => "row",
        }
    }

    /// What a line reads as: without what tells it from JSON at a glance, and with it.
    fn both_ways(line: &str) -> [String; 2] {
        // A space in front is no damage, and not the form that is written.
        [line.to_owned(), format!(" {line}")].map(|line| {
            let scan = scan(line.as_bytes());
            let read = |record: Record| {
                record.into_entry(Place { seq: 7, time: 3 }).map(|read| {
                    let events: Vec<String> =
                        read.entry.events().map(|event| json::raw(&*event).get().to_owned()).collect();
                    let places = (read.entry.count(), read.entry.first_time(), read.entry.last_time());
                    (read.stored_seq, read.flaw, places, events)
                })
            };
            format!("{:?} {} {:?}", scan.damage, scan.torn, scan.records.into_iter().map(read).collect::<Vec<_>>())
        })
    }

    fn forms(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| json::raw(event).get().to_owned()).collect()
    }

    fn chunk() -> impl Strategy<Value = Chunk> {
        let text = prop_oneof![Just(String::new()), "[a-c\"\\\\\n\u{0}é😀]{1,4}"];
        let name = proptest::option::of(prop_oneof![Just("bash".to_owned()), Just("re\"ad".to_owned())]);
        (0..5, 0..2u32, text, 0..2, name).prop_map(|(kind, index, text, id, name)| match kind {
            0 | 1 => Chunk::TextDelta { index, text },
            2 => Chunk::ReasoningDelta { index, text },
            3 => Chunk::ToolCallDelta { index, id: format!("c{id}"), name, arguments_delta: text },
            _ => Chunk::BlockStart { index, block_type: BlockType::Text },
        })
    }

    proptest! {
        #[test]
        fn rows_give_back_the_exact_events(
            chunks in proptest::collection::vec((1..3u64, chunk(), 0..3u64, any::<bool>()), 0..60),
        ) {
            let mut time = 1_000;
            let events: Vec<Event> = chunks
                .into_iter()
                .zip(0..)
                .map(|((step, chunk, gap, ignorable), seq)| {
                    // Now and then the clock runs backwards or an event has a member that rows have no place for.
                    time = if gap == 2 && ignorable { time - 1 } else { time + gap };
                    let event = NewEvent::assistant_chunk(1, step, &chunk);
                    NewEvent { ignorable: ignorable && gap == 1, ..event }.at(seq, time)
                })
                .collect();
            let mut text = String::new();
            encode(&events, 0, &mut text);
            prop_assert_eq!(forms(&decode(&text)), forms(&events));
        }

        #[test]
        fn deltas_as_values_are_the_events_and_lines_that_they_stand_for(
            batches in proptest::collection::vec(
                (1..3u64, 0..2u64, proptest::collection::vec(chunk(), 0..8)), 0..12,
            ),
        ) {
            let (mut events, mut placed, mut time) = (Vec::new(), Vec::new(), 1_000);
            for (step, gap, chunks) in batches {
                time += gap;
                let mut seq = events.len() as u64;
                events.extend(
                    chunks.iter().zip(seq..).map(|(chunk, seq)| NewEvent::assistant_chunk(1, step, chunk).at(seq, time)),
                );
                for batch in NewEvents::of_chunks(1, step, &chunks) {
                    let count = batch.count();
                    placed.push(batch.at(seq, time));
                    seq += count;
                }
                prop_assert_eq!(seq, events.len() as u64);
            }
            let (mut of_events, mut of_values) = (String::new(), String::new());
            encode(&events, 7, &mut of_events);
            encode(&placed, 7, &mut of_values);
            prop_assert_eq!(of_values, of_events);
            let durable = Durable::from(placed);
            prop_assert_eq!(durable.count(), events.len() as u64);
            let shown: Vec<Event> = durable.events().map(Cow::into_owned).collect();
            prop_assert_eq!(forms(&shown), forms(&events));
        }

        #[test]
        fn a_row_that_is_read_at_a_glance_is_what_its_json_says(
            chunks in proptest::collection::vec(chunk(), 3..12),
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..3),
        ) {
            let events: Vec<Event> =
                chunks.iter().zip(0..).map(|(chunk, seq)| NewEvent::assistant_chunk(1, 1, chunk).at(seq, 1_000 + seq)).collect();
            let mut text = String::new();
            encode(&events, 0, &mut text);
            for line in text.lines() {
                let [glance, json] = both_ways(line);
                prop_assert_eq!(glance, json);
                // As damage changes it, or another writer writes it.
                let mut bytes = line.as_bytes().to_vec();
                for (place, byte) in &changes {
                    let at = place.index(bytes.len());
                    let near = br#""\\,]}[{:0123456789-eu "#;
                    bytes[at] = if byte % 4 == 0 { *byte } else { near[usize::from(byte / 4) % near.len()] };
                }
                if let Ok(line) = String::from_utf8(bytes) {
                    let [glance, json] = both_ways(&line);
                    prop_assert_eq!(glance, json, "{}", line);
                }
            }
        }

        #[test]
        fn no_bytes_make_the_scanner_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let scan = scan(&bytes);
            prop_assert!(scan.sound <= bytes.len());
        }
    }

    #[test]
    fn three_deltas_of_one_block_make_a_row_and_two_do_not() {
        let longest = LONGEST_ROW as u64;
        for (count, lines) in [(1, 1), (2, 2), (3, 1), (40, 1), (longest, 1), (longest + 1, 2), (2 * longest + 3, 3)] {
            let delta = |seq| {
                NewEvent::assistant_chunk(1, 1, &Chunk::TextDelta { index: 0, text: "ab".into() }).at(seq, 10 + seq)
            };
            let events: Vec<Event> = (0..count).map(delta).collect();
            let mut text = String::new();
            encode(&events, 5, &mut text);
            assert_eq!(text.lines().count(), lines, "{text}");
            assert!(text.contains(r#""seq0":5"#) || text.contains(r#""seq":5"#), "{text}");
        }
        let mut text = String::new();
        let delta =
            |seq| NewEvent::assistant_chunk(1, 2, &Chunk::TextDelta { index: 3, text: "ab".into() }).at(seq, 10 * seq);
        encode(&[delta(0), delta(1), delta(2)], 0, &mut text);
        assert_eq!(
            text,
            "{\"type\":\"text-chunks\",\"seq0\":0,\"time0\":0,\"data\":{\"turn\":1,\"step\":2,\"index\":3,\
             \"dt\":[10,10],\"texts\":[\"ab\",\"ab\",\"ab\"]}}\n"
        );
    }

    #[test]
    fn a_row_keeps_lone_surrogates_as_they_were_written() {
        let row =
            r#"{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[4],"texts":["a\ud83d","\ude00"]}}"#;
        let record = scan(row.as_bytes()).records.remove(0);
        let entry = record.into_entry(Place { seq: 3, time: 7 }).unwrap().entry;
        let events: Vec<Cow<'_, Event>> = entry.events().collect();
        assert_eq!(events.iter().map(|event| (event.seq, event.time)).collect::<Vec<_>>(), [(3, 7), (4, 11)]);
        assert!(events[0].data.get().contains(r#""text":"a\ud83d""#));
    }

    #[test]
    fn rows_at_the_edge_of_the_written_form_read_as_their_json() {
        let row = |numbers: &str, texts: &str| {
            format!(
                r#"{{"type":"text-chunks","seq0":{numbers},"data":{{"turn":1,"step":1,"index":0,"dt":[4],"texts":[{texts}]}}}}"#
            )
        };
        let (numbers, texts) = (r#"3,"time0":9"#, r#""a","b""#);
        let places = ["03", "-3", "3.0", "3e0", "9007199254740993", "999999999999999", "9999999999999999"];
        let strings = [
            r#""a\ud83d","\ude00""#,
            r#""\ud83","""#,
            r#""\x","""#,
            r#""\u00e9\"\/","\n""#,
            "\"a\tb\",\"\"",
            r#""a",7"#,
            r#""a""#,
            r#""a","b","c""#,
            r#""a","b",""#,
            "",
        ];
        let lines = places.iter().map(|seq| row(&format!("{seq},\"time0\":{seq}"), texts));
        let lines = lines.chain(strings.iter().map(|texts| row(numbers, texts)));
        let more = [
            row(numbers, texts).replace("[4]", "[-4]"),
            row(numbers, texts).replace("[4]", "[]"),
            row(numbers, texts).replace("[4]", "[ 4]"),
            row(numbers, texts).replace("}}", "},\"ignorable\":true}"),
            row(numbers, texts) + "\r",
            row(numbers, texts) + "}",
        ];
        for line in lines.chain(more) {
            let [glance, json] = both_ways(&line);
            assert_eq!(glance, json, "{line}");
        }
        assert!(WrittenRow::scan(&row(numbers, strings[0])).is_some(), "what is written is read at a glance");
    }

    #[test]
    fn what_a_damaged_line_still_holds_is_read() {
        let a = r#"{"type":"a","seq":1,"data":{}}"#;
        let b = r#"{"type":"b","seq":2,"data":{"x":{"type":"n","data":{}},"y":1}}"#;
        for (line, kinds, torn) in [
            (format!("{a}{b}"), "ab", false),
            (format!("\0\0{a}\0{b}\0"), "ab", true),
            (format!(r#"{{"type":"z","da{a}"#), "a", false),
            (format!(r#"{{"type":"z","data":{a}"#), "a", false),
            (format!("{a}garbage{b}"), "ab", false),
            (format!(r#"{a}{{"type":"z","data":{{"text":"half {b}"#), "ab", false),
            // The object inside the fragment is no record: a comma follows it.
            (b[..b.len() - 2].to_owned(), "", true),
            (format!(r#"{a}{{"type":"z","#), "a", true),
            ("7".to_owned(), "", true),
            ("{\"no\":\"type\"}".to_owned(), "", true),
            (String::new(), "", false),
            (format!("  {a}\r"), "a", false),
        ] {
            let scan = scan(line.as_bytes());
            let found: String = scan.records.iter().map(kind_of).collect();
            assert_eq!((found.as_str(), scan.torn), (kinds, torn), "{line:?}");
        }
    }

    #[test]
    fn the_sound_part_is_measured_in_bytes_of_the_file() {
        let line = b"{\"type\":\"a\",\"data\":{\"t\":\"\xff\xc3\"}}{\"type\":\"b\xc3";
        let scan = scan(line);
        assert_eq!((scan.records.len(), scan.torn), (1, true));
        assert_eq!(&line[scan.sound..], b"{\"type\":\"b\xc3");
    }
}
