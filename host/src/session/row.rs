//! Packed rows: a run of stream deltas of one block on one line.
//!
//! A row stands for plain `assistant/chunk` events and gives them back exactly; a delta that a row could not give
//! back byte for byte is never packed.

use std::borrow::Cow;
use std::fmt::Write;

use dsh_plugin_api::json::{self, Object, Raw};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::deltas::{DeltaKind, Deltas};
use super::event::{Event, kind};

/// The kinds of deltas are also the kinds of rows.
impl DeltaKind {
    const ALL: [Self; 3] = [Self::Text, Self::Reasoning, Self::ToolCall];

    const fn row(self) -> &'static str {
        match self {
            Self::Text => "text-chunks",
            Self::Reasoning => "reasoning-chunks",
            Self::ToolCall => "tool-call-chunks",
        }
    }

    const fn chunk(self) -> &'static str {
        match self {
            Self::Text => "text-delta",
            Self::Reasoning => "reasoning-delta",
            Self::ToolCall => "tool-call-delta",
        }
    }
}

/// What the deltas of one row have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block<'a> {
    kind: DeltaKind,
    turn: u64,
    step: u64,
    index: u64,
    /// Its JSON text.
    id: Option<Cow<'a, str>>,
    /// Its JSON text.
    name: Option<Cow<'a, str>>,
}

impl Block<'_> {
    /// The data of the plain event for one piece, in the member order of the log format.
    fn write_event_data(&self, piece: &str, out: &mut String) {
        let Self { kind, turn, step, index, id, name } = self;
        let chunk = kind.chunk();
        // Writing to a string cannot fail.
        let _ = write!(out, r#"{{"turn":{turn},"step":{step},"chunk":{{"type":"{chunk}","index":{index}"#);
        match kind {
            DeltaKind::Text | DeltaKind::Reasoning => {
                let _ = write!(out, r#","text":{piece}}}}}"#);
            }
            DeltaKind::ToolCall => {
                write_member(out, "id", id.as_deref());
                write_member(out, "name", name.as_deref());
                let _ = write!(out, r#","argumentsDelta":{piece}}}}}"#);
            }
        }
    }
}

/// A value as it was written.
fn written(value: &RawValue) -> Cow<'_, str> {
    Cow::Borrowed(value.get())
}

fn write_member(out: &mut String, name: &str, json: Option<&str>) {
    if let Some(json) = json {
        let _ = write!(out, r#","{name}":{json}"#);
    }
}

/// True for the `type` of a packed row.
pub(super) fn is_row(kind: &str) -> bool {
    DeltaKind::ALL.iter().any(|delta| delta.row() == kind)
}

/// A packed row as it stands in a file. It was read once, so its events can be made of it at any time.
#[derive(Debug, Clone)]
pub struct Row {
    kind: DeltaKind,
    /// `data`, as it was written.
    data: Box<str>,
    first: u64,
    time: u64,
    last_time: u64,
    count: u64,
    /// Its gaps cannot be written again as they are.
    flawed: bool,
    /// Its other members, which each of its events has.
    extra: Object,
}

/// The data of a row.
#[derive(Deserialize)]
struct Data<'a> {
    turn: u64,
    step: u64,
    index: u64,
    #[serde(borrow)]
    dt: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    texts: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    args: Option<Vec<&'a RawValue>>,
}

/// A row, read.
struct Opened<'a> {
    block: Block<'a>,
    /// The JSON text of the string of each delta.
    pieces: Vec<&'a RawValue>,
    /// Milliseconds between the deltas; `None` where they cannot be read.
    gaps: Option<Vec<i64>>,
}

impl<'a> Opened<'a> {
    fn read(kind: DeltaKind, data: &'a str) -> Result<Self, String> {
        let data: Data = serde_json::from_str(data).map_err(|e| format!("the packed row cannot be read: {e}"))?;
        let Data { turn, step, index, dt, id, name, texts, args } = data;
        let pieces = match kind {
            DeltaKind::Text | DeltaKind::Reasoning => texts.ok_or("the packed row has no texts")?,
            DeltaKind::ToolCall => args.ok_or("the packed row has no args")?,
        };
        if pieces.iter().any(|piece| !piece.get().starts_with('"')) {
            return Err("the packed row holds a piece that is no string".to_owned());
        }
        let gaps = dt.and_then(|dt| serde_json::from_str(dt.get()).ok());
        let block = Block { kind, turn, step, index, id: id.map(written), name: name.map(written) };
        Ok(Self { block, pieces, gaps })
    }
}

/// The time of each delta of a row that begins at `time`.
fn times(gaps: Option<Vec<i64>>, mut time: u64) -> impl Iterator<Item = u64> {
    let gaps = gaps.unwrap_or_default().into_iter().chain(std::iter::repeat(0));
    std::iter::once(time).chain(gaps.map(move |gap| {
        time = time.saturating_add_signed(gap);
        time
    }))
}

impl Row {
    /// Reads a row of this `type`; its first event has the seq `first` and the time `time`. `extra` are its other
    /// members. With it comes what is wrong with the row although it could be read.
    ///
    /// # Errors
    ///
    /// It is no row, or its pieces cannot be read, with the reason.
    pub(super) fn read(
        kind: &str,
        data: Raw,
        first: u64,
        time: u64,
        extra: Object,
    ) -> Result<(Self, Option<String>), String> {
        let kind = DeltaKind::ALL.into_iter().find(|delta| delta.row() == kind).ok_or("it is no packed row")?;
        let opened = Opened::read(kind, data.get())?;
        let count = opened.pieces.len();
        let flaw = match &opened.gaps {
            None => Some("the packed row has no readable time gaps; all its deltas have one time".to_owned()),
            Some(gaps) if gaps.len() != count.saturating_sub(1) => {
                Some(format!("the packed row has {count} deltas and {} time gaps", gaps.len()))
            }
            Some(_) => None,
        };
        let last_time = times(opened.gaps, time).take(count).last().unwrap_or(time);
        let (count, flawed) = (count as u64, flaw.is_some());
        Ok((Self { kind, data: data.into(), first, time, last_time, count, flawed, extra }, flaw))
    }

    /// How many events it stands for.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// `seq` of its first event.
    #[must_use]
    pub const fn first_seq(&self) -> u64 {
        self.first
    }

    /// Unix time of its first event in milliseconds.
    #[must_use]
    pub const fn first_time(&self) -> u64 {
        self.time
    }

    /// Unix time of its last event in milliseconds.
    #[must_use]
    pub const fn last_time(&self) -> u64 {
        self.last_time
    }

    /// Its data, as it was written: `{turn, step, index, dt, …}`.
    #[must_use]
    pub fn data(&self) -> &str {
        &self.data
    }

    /// The step that its deltas belong to.
    #[must_use]
    pub fn step(&self) -> Option<u64> {
        #[derive(Deserialize)]
        struct Data {
            step: u64,
        }
        serde_json::from_str::<Data>(&self.data).ok().map(|data| data.step)
    }

    /// Block and JSON text of each piece of a row of text; `None` for another row.
    pub(super) fn texts(&self) -> Option<(u64, Vec<&RawValue>)> {
        let opened = Opened::read(self.kind, &self.data).ok().filter(|_| self.kind == DeltaKind::Text)?;
        Some((opened.block.index, opened.pieces))
    }

    /// Its events, each made when it is asked for.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        // It was read before.
        let opened = Opened::read(self.kind, &self.data).ok();
        let mut extra = self.extra.clone();
        // An event has its own; twice they would be read as those of the row.
        for own in ["type", "seq", "time", "data"] {
            extra.take(own);
        }
        opened.into_iter().flat_map(move |Opened { block, pieces, gaps }| {
            let extra = extra.clone();
            let pieces = pieces.into_iter().zip(times(gaps, self.time)).zip(self.first..);
            pieces.map(move |((piece, time), seq)| {
                let mut text = String::with_capacity(piece.get().len() + 96);
                block.write_event_data(piece.get(), &mut text);
                // What was put together of JSON is JSON.
                let data = RawValue::from_string(text).unwrap_or_else(|_| null());
                Event { kind: kind::ASSISTANT_CHUNK.into(), seq, time, data, extra: extra.clone() }
            })
        })
    }

    /// The line that it stands on, without newline, its first event with this `seq`; `None` where its events have to be
    /// written one by one.
    pub(super) fn write(&self, seq0: u64, out: &mut String) -> Option<()> {
        let Self { kind, data, time, flawed: false, extra, .. } = self else { return None };
        let kind = kind.row();
        // Writing to a string cannot fail.
        let _ = write!(out, r#"{{"type":"{kind}","seq0":{seq0},"time0":{time},"data":{data}"#);
        for (name, value) in extra.iter() {
            let _ = write!(out, ",{}:{}", json::raw(name).get(), value.get());
        }
        out.push('}');
        Some(())
    }
}

/// A row in the form in which [`write`] writes it: what has to be known of it, read in one pass over its bytes. Nearly
/// all of a log is of that form, and reading it as JSON takes several times as long.
#[derive(Debug, Clone)]
pub(super) struct WrittenRow {
    kind: DeltaKind,
    pub seq0: u64,
    time0: u64,
    data: Box<str>,
    count: u64,
    /// The sum of its gaps in milliseconds.
    span: u64,
}

impl WrittenRow {
    /// `None` for every line that differs from that form, be it damaged or not.
    pub fn scan(line: &str) -> Option<Self> {
        let mut rest = Form(line);
        rest.text(r#"{"type":""#)?;
        let kind = DeltaKind::ALL.into_iter().find(|kind| rest.text(kind.row()).is_some())?;
        rest.text(r#"","seq0":"#)?;
        let seq0 = rest.checked_number()?;
        rest.text(r#","time0":"#)?;
        let time0 = rest.checked_number()?;
        rest.text(r#","data":"#)?;
        let data = rest.0.strip_suffix('}')?;
        rest.text(r#"{"turn":"#)?;
        rest.checked_number()?;
        rest.text(r#","step":"#)?;
        rest.checked_number()?;
        rest.text(r#","index":"#)?;
        rest.checked_number()?;
        rest.text(r#","dt":["#)?;
        let (mut gaps, mut span) = (0, 0_u64);
        loop {
            span = span.saturating_add(rest.checked_number()?);
            gaps += 1;
            if rest.text(",").is_none() {
                break;
            }
        }
        rest.text("]")?;
        let pieces = match kind {
            DeltaKind::Text | DeltaKind::Reasoning => r#","texts":["#,
            DeltaKind::ToolCall => {
                for member in [r#","id":"#, r#","name":"#] {
                    if rest.text(member).is_some() {
                        rest.checked_string()?;
                    }
                }
                r#","args":["#
            }
        };
        rest.text(pieces)?;
        let mut count = 0;
        loop {
            rest.checked_string()?;
            count += 1;
            if rest.text(",").is_none() {
                break;
            }
        }
        let sound = rest.0 == "]}}" && count == gaps + 1;
        sound.then(|| Self { kind, seq0, time0, data: data.into(), count, span })
    }

    /// The row, its first event in this place.
    pub fn at(self, first: u64) -> Row {
        let Self { kind, time0, data, count, span, .. } = self;
        let last_time = time0.saturating_add(span);
        Row { kind, data, first, time: time0, last_time, count, flawed: false, extra: Object::new() }
    }
}

/// Deltas that a row can hold, or a part of one: of one block and one time, with their places.
#[derive(Debug)]
pub(super) struct Segment<'a> {
    block: Block<'a>,
    /// `seq` of the first; the others follow.
    first: u64,
    time: u64,
    pieces: Pieces<'a>,
}

#[derive(Debug)]
enum Pieces<'a> {
    /// The JSON text of the string of one delta.
    Json(&'a str),
    /// Deltas that are no JSON yet.
    Values(&'a Deltas),
}

impl<'a> Segment<'a> {
    /// The event as a delta, when a row gives it back exactly: its data has the form that [`Block::write_event_data`]
    /// writes, to the byte.
    pub fn of_event(event: &'a Event) -> Option<Self> {
        if event.kind != kind::ASSISTANT_CHUNK || !event.extra.is_empty() {
            return None;
        }
        let mut data = Form(event.data.get());
        data.text(r#"{"turn":"#)?;
        let turn = data.number()?;
        data.text(r#","step":"#)?;
        let step = data.number()?;
        data.text(r#","chunk":{"type":"#)?;
        let chunk = data.string()?;
        let kind = DeltaKind::ALL.into_iter().find(|delta| chunk[1..chunk.len() - 1] == *delta.chunk())?;
        data.text(r#","index":"#)?;
        let index = data.number()?;
        let (mut id, mut name) = (None, None);
        match kind {
            DeltaKind::Text | DeltaKind::Reasoning => data.text(r#","text":"#)?,
            DeltaKind::ToolCall => {
                id = data.member(r#","id":"#)?.map(Cow::Borrowed);
                name = data.member(r#","name":"#)?.map(Cow::Borrowed);
                data.text(r#","argumentsDelta":"#)?;
            }
        }
        let piece = data.string()?;
        let block = Block { kind, turn, step, index, id, name };
        let Event { seq: first, time, .. } = *event;
        (data.0 == "}}").then_some(Self { block, first, time, pieces: Pieces::Json(piece) })
    }

    /// The deltas of a row; `None` where they are events that a row of ours could not give back.
    pub fn of_row(row: &'a Row) -> Option<Vec<Self>> {
        let Opened { block, pieces, gaps } = Opened::read(row.kind, &row.data).ok()?;
        let is_string = |json: &Option<Cow<'_, str>>| json.as_ref().is_none_or(|json| json.starts_with('"'));
        if !row.extra.is_empty() || !is_string(&block.id) || !is_string(&block.name) {
            return None;
        }
        let places = pieces.into_iter().zip(times(gaps, row.time)).zip(row.first..);
        let segments = places.map(|((piece, time), first)| {
            let pieces = Pieces::Json(piece.get());
            Self { block: block.clone(), first, time, pieces }
        });
        Some(segments.collect())
    }

    /// Deltas that are no events yet, as events from `first` on would have them.
    pub fn of_deltas(deltas: &'a Deltas, first: u64, time: u64) -> Self {
        let Deltas { turn, step, kind, index, id, name, .. } = deltas;
        let json = |text: &String| Cow::Owned(json::raw(text).get().to_owned());
        let id = (*kind == DeltaKind::ToolCall).then(|| json(id));
        let name = name.as_ref().map(json);
        let block = Block { kind: *kind, turn: *turn, step: *step, index: u64::from(*index), id, name };
        Self { block, first, time, pieces: Pieces::Values(deltas) }
    }

    /// `seq` of the first.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// How many deltas they are.
    pub const fn len(&self) -> usize {
        match self.pieces {
            Pieces::Json(_) => 1,
            Pieces::Values(deltas) => deltas.len(),
        }
    }

    /// True when `next` may stand behind these deltas in one row.
    pub fn continues_with(&self, next: &Self) -> bool {
        self.first.saturating_add(self.len() as u64) == next.first && self.time <= next.time && self.block == next.block
    }

    /// Each as the plain event that it stands for.
    pub fn into_events(self) -> impl Iterator<Item = Event> + use<'a> {
        let Self { block, first, time, pieces } = self;
        let (one, values) = match pieces {
            Pieces::Json(piece) => (Some(Cow::Borrowed(piece)), None),
            Pieces::Values(deltas) => (None, Some(deltas.texts())),
        };
        let values = values.into_iter().flatten().map(|text| {
            let mut piece = String::with_capacity(text.len() + 2);
            write_string(text, &mut piece);
            Cow::Owned(piece)
        });
        one.into_iter().chain(values).zip(first..).map(move |(piece, seq)| {
            let mut data = String::new();
            block.write_event_data(&piece, &mut data);
            // What was put together of JSON is JSON.
            let data = RawValue::from_string(data).unwrap_or_else(|_| null());
            Event { kind: kind::ASSISTANT_CHUNK.into(), seq, time, data, extra: Object::new() }
        })
    }
}

/// The rest of a text that is compared with an expected form, front to back. The text is sound JSON, but for the
/// methods that check.
struct Form<'a>(&'a str);

impl<'a> Form<'a> {
    /// Exactly this text.
    fn text(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    /// A natural number, which in JSON has one spelling in digits.
    fn number(&mut self) -> Option<u64> {
        let (digits, rest) = self.0.split_at(self.0.bytes().take_while(u8::is_ascii_digit).count());
        self.0 = rest;
        digits.parse().ok()
    }

    /// A string; its JSON text, with the quotes.
    fn string(&mut self) -> Option<&'a str> {
        let inner = self.0.strip_prefix('"')?.as_bytes();
        let mut end = 0;
        while *inner.get(end)? != b'"' {
            end += if inner[end] == b'\\' { 2 } else { 1 };
        }
        let (string, rest) = self.0.split_at_checked(end + 2)?;
        self.0 = rest;
        Some(string)
    }

    /// A natural number as JSON has it that every reader holds exactly.
    fn checked_number(&mut self) -> Option<u64> {
        let bytes = self.0.as_bytes();
        let (mut number, mut digits) = (0, 0);
        while let Some(digit) = bytes.get(digits).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            number = number * 10 + u64::from(digit);
            digits += 1;
            if digits > 15 {
                return None;
            }
        }
        self.0 = self.0.get(digits..)?;
        (digits == 1 || digits > 1 && bytes[0] != b'0').then_some(number)
    }

    /// A string as JSON has it.
    fn checked_string(&mut self) -> Option<()> {
        let bytes = self.0.strip_prefix('"')?.as_bytes();
        let mut at = 0;
        loop {
            match *bytes.get(at)? {
                b'"' => break,
                b'\\' => match *bytes.get(at + 1)? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                    b'u' => {
                        let digits = bytes.get(at + 2..at + 6)?;
                        digits.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                        at += 6;
                    }
                    _ => return None,
                },
                0..0x20 => return None,
                _ => at += 1,
            }
        }
        self.0 = self.0.get(at + 2..)?;
        Some(())
    }

    /// The string behind this text, where the text is there.
    fn member(&mut self, expected: &str) -> Option<Option<&'a str>> {
        match self.text(expected) {
            Some(()) => self.string().map(Some),
            None => Some(None),
        }
    }
}

/// Appends a number. Gaps between deltas mostly have one digit.
fn write_number(number: u64, out: &mut String) {
    match u8::try_from(number) {
        Ok(digit @ 0..=9) => out.push(char::from(b'0' + digit)),
        _ => {
            let _ = write!(out, "{number}");
        }
    }
}

/// Appends the JSON text of a string, as `serde_json` writes it.
fn write_string(text: &str, out: &mut String) {
    // Without a way out of the loop it is done many bytes at a time.
    let escapes = |found, byte| found | (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if text.bytes().fold(false, escapes) {
        out.push_str(json::raw(text).get());
    } else {
        out.push('"');
        out.push_str(text);
        out.push('"');
    }
}

/// The line of a row, without newline. `segments` is not empty and of one block.
pub(super) fn write(segments: &[Segment<'_>], seq0: u64, out: &mut String) {
    let Some(Segment { block, time: time0, .. }) = segments.first() else { return };
    let Block { kind, turn, step, index, id, name } = block;
    let _ = write!(
        out,
        r#"{{"type":"{}","seq0":{seq0},"time0":{time0},"data":{{"turn":{turn},"step":{step},"index":{index},"dt":["#,
        kind.row(),
    );
    let mut last = None;
    for segment in segments {
        for _ in 0..segment.len() {
            if let Some(last) = last {
                if !out.ends_with('[') {
                    out.push(',');
                }
                write_number(segment.time.saturating_sub(last), out);
            }
            last = Some(segment.time);
        }
    }
    out.push(']');
    let pieces = match kind {
        DeltaKind::Text | DeltaKind::Reasoning => "texts",
        DeltaKind::ToolCall => {
            write_member(out, "id", id.as_deref());
            write_member(out, "name", name.as_deref());
            "args"
        }
    };
    let _ = write!(out, r#","{pieces}":["#);
    for segment in segments {
        match segment.pieces {
            Pieces::Json(piece) => {
                out.push_str(piece);
                out.push(',');
            }
            Pieces::Values(deltas) => {
                // With quotes and a comma each; escapes are rare.
                out.reserve(deltas.text().len() + deltas.len() * 3);
                for text in deltas.texts() {
                    write_string(text, out);
                    out.push(',');
                }
            }
        }
    }
    // There is at least one piece, and a comma behind the last.
    out.pop();
    out.push_str("]}}");
}

/// The data of an event that was written without any.
pub(super) fn null() -> Raw {
    RawValue::NULL.to_owned()
}
