//! Packed rows: a run of stream deltas of one block on one line.
//!
//! A row stands for plain `assistant/chunk` events and gives them back exactly; a delta that a row could not give
//! back byte for byte is never packed.

use std::fmt::Write;

use dsh_plugin_api::json::{Object, Raw};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{Event, kind};

/// The kinds of deltas, which are also the kinds of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Reasoning,
    ToolCall,
}

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block<'a> {
    kind: DeltaKind,
    turn: u64,
    step: u64,
    index: u64,
    /// Its JSON text.
    id: Option<&'a str>,
    /// Its JSON text.
    name: Option<&'a str>,
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
                write_member(out, "id", *id);
                write_member(out, "name", *name);
                let _ = write!(out, r#","argumentsDelta":{piece}}}}}"#);
            }
        }
    }
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
    let block = Block { kind: delta, turn, step, index, id: id.map(RawValue::get), name: name.map(RawValue::get) };
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

/// A delta event that a row can hold.
pub(super) struct Delta<'a> {
    block: Block<'a>,
    /// The JSON text of its string.
    piece: &'a str,
    time: u64,
}

impl<'a> Delta<'a> {
    /// The event as a delta, when a row gives it back exactly: its data has the form that [`Block::write_event_data`]
    /// writes, to the byte.
    pub fn of(event: &'a Event) -> Option<Self> {
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
                id = data.member(r#","id":"#)?;
                name = data.member(r#","name":"#)?;
                data.text(r#","argumentsDelta":"#)?;
            }
        }
        let piece = data.string()?;
        let block = Block { kind, turn, step, index, id, name };
        (data.0 == "}}").then_some(Self { block, piece, time: event.time })
    }

    /// True when `next` may stand behind this delta in one row.
    pub fn continues_with(&self, next: &Self) -> bool {
        self.block == next.block && self.time <= next.time
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

/// The line of a row, without newline. `deltas` is not empty and of one block.
pub(super) fn write(deltas: &[Delta<'_>], seq0: u64, out: &mut String) {
    let Some(first) = deltas.first() else { return };
    let Block { kind, turn, step, index, id, name } = first.block;
    let _ = write!(
        out,
        r#"{{"type":"{}","seq0":{seq0},"time0":{},"data":{{"turn":{turn},"step":{step},"index":{index},"dt":["#,
        kind.row(),
        first.time
    );
    for (n, pair) in deltas.windows(2).enumerate() {
        if n > 0 {
            out.push(',');
        }
        write_number(pair[1].time.saturating_sub(pair[0].time), out);
    }
    out.push(']');
    let pieces = match kind {
        DeltaKind::Text | DeltaKind::Reasoning => "texts",
        DeltaKind::ToolCall => {
            write_member(out, "id", id);
            write_member(out, "name", name);
            "args"
        }
    };
    let _ = write!(out, r#","{pieces}":["#);
    for (n, delta) in deltas.iter().enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(delta.piece);
    }
    out.push_str("]}}");
}

/// The data of an event that was written without any.
pub(super) fn null() -> Raw {
    RawValue::NULL.to_owned()
}
