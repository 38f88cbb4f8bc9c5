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
#[derive(Debug, Clone, Copy)]
struct Block<'a> {
    kind: DeltaKind,
    turn: u64,
    step: u64,
    index: u64,
    id: Option<&'a RawValue>,
    name: Option<&'a RawValue>,
}

impl Block<'_> {
    fn same(&self, other: &Self) -> bool {
        (self.kind, self.turn, self.step, self.index) == (other.kind, other.turn, other.step, other.index)
            && self.id.map(RawValue::get) == other.id.map(RawValue::get)
            && self.name.map(RawValue::get) == other.name.map(RawValue::get)
    }

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

fn write_member(out: &mut String, name: &str, value: Option<&RawValue>) {
    if let Some(value) = value {
        let _ = write!(out, r#","{name}":{}"#, value.get());
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
    let block =
        Block { kind: delta, turn: data.turn, step: data.step, index: data.index, id: data.id, name: data.name };
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
        events.push(Event { kind: kind::ASSISTANT_CHUNK.to_owned(), seq, time, data, extra: extra.clone() });
    }
    Ok(Expanded { events, flaw })
}

/// A delta event that a row can hold.
pub(super) struct Delta<'a> {
    block: Block<'a>,
    piece: &'a RawValue,
    time: u64,
}

impl<'a> Delta<'a> {
    /// The event as a delta, when a row gives it back exactly.
    pub fn of(event: &'a Event) -> Option<Self> {
        #[derive(Deserialize)]
        struct Data<'a> {
            turn: u64,
            step: u64,
            #[serde(borrow)]
            chunk: Chunk<'a>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Chunk<'a> {
            r#type: &'a str,
            index: u64,
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            name: Option<&'a RawValue>,
            #[serde(borrow)]
            text: Option<&'a RawValue>,
            #[serde(borrow)]
            arguments_delta: Option<&'a RawValue>,
        }
        if event.kind != kind::ASSISTANT_CHUNK || !event.extra.is_empty() {
            return None;
        }
        let Data { turn, step, chunk } = serde_json::from_str(event.data.get()).ok()?;
        let kind = DeltaKind::ALL.into_iter().find(|delta| delta.chunk() == chunk.r#type)?;
        let piece = match kind {
            DeltaKind::Text | DeltaKind::Reasoning => chunk.text?,
            DeltaKind::ToolCall => chunk.arguments_delta?,
        };
        let block = Block { kind, turn, step, index: chunk.index, id: chunk.id, name: chunk.name };
        let mut back = String::with_capacity(event.data.get().len());
        block.write_event_data(piece.get(), &mut back);
        (piece.get().starts_with('"') && back == event.data.get()).then_some(Self { block, piece, time: event.time })
    }

    /// True when `next` may stand behind this delta in one row.
    pub fn continues_with(&self, next: &Self) -> bool {
        self.block.same(&next.block) && self.time <= next.time
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
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(out, "{comma}{}", pair[1].time.saturating_sub(pair[0].time));
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
        out.push_str(delta.piece.get());
    }
    out.push_str("]}}");
}

/// The data of an event that was written without any.
pub(super) fn null() -> Raw {
    RawValue::NULL.to_owned()
}
