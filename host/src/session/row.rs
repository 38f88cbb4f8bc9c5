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

/// What a row was read as.
pub(super) struct Expanded {
    /// Its events; the first has `seq0` and `time0`.
    pub events: Vec<Event>,
    /// What is wrong with the row although its events could be read.
    pub flaw: Option<String>,
}

/// The events of a row of this `type`. `extra` are the row's other members, which each event then has.
pub(super) fn expand(kind: &str, data: &str, seq0: u64, time0: u64, extra: &Object) -> Result<Expanded, String> {
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
    let delta = DeltaKind::ALL.into_iter().find(|delta| delta.row() == kind).ok_or("it is no packed row")?;
    let data: Data = serde_json::from_str(data).map_err(|e| format!("the packed row cannot be read: {e}"))?;
    let pieces = match delta {
        DeltaKind::Text | DeltaKind::Reasoning => data.texts.ok_or("the packed row has no texts")?,
        DeltaKind::ToolCall => data.args.ok_or("the packed row has no args")?,
    };
    if pieces.iter().any(|piece| !piece.get().starts_with('"')) {
        return Err("the packed row holds a piece that is no string".to_owned());
    }
    let gaps: Option<Vec<i64>> = data.dt.and_then(|dt| serde_json::from_str(dt.get()).ok());
    let flaw = match &gaps {
        None => Some("the packed row has no readable time gaps; all its deltas have one time".to_owned()),
        Some(gaps) if gaps.len() != pieces.len().saturating_sub(1) => {
            Some(format!("the packed row has {} deltas and {} time gaps", pieces.len(), gaps.len()))
        }
        Some(_) => None,
    };
    let gaps = gaps.unwrap_or_default();
    let Data { turn, step, index, id, name, .. } = data;
    let block = Block { kind: delta, turn, step, index, id: id.map(written), name: name.map(written) };
    let mut time = time0;
    let mut events = Vec::with_capacity(pieces.len());
    for (n, piece) in pieces.iter().enumerate() {
        if let Some(gap) = n.checked_sub(1).and_then(|gap| gaps.get(gap)) {
            time = time.saturating_add_signed(*gap);
        }
        let mut text = String::with_capacity(piece.get().len() + 96);
        block.write_event_data(piece.get(), &mut text);
        let data = RawValue::from_string(text).map_err(|e| format!("the packed row cannot be read: {e}"))?;
        let seq = seq0.saturating_add(n as u64);
        events.push(Event { kind: kind::ASSISTANT_CHUNK.into(), seq, time, data, extra: extra.clone() });
    }
    Ok(Expanded { events, flaw })
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

/// The rest of a JSON text that is compared with an expected form, front to back. The text is sound JSON.
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
