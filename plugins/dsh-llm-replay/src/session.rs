//! The model side of a session log: which chunks came in answer to which request.
//!
//! Reads log format version 0 in all its plain-text forms: with and without `seq` and `time`, packed rows, plain
//! events and mixtures. Everything that is not the model's is passed over, and so is a torn last line. Damage inside
//! the log is refused with its line: a test that silently serves half a recording proves nothing.

use std::collections::BTreeMap;

use dsh_plugin_api::json::{self, Joiner, Object, Raw};
use dsh_plugin_api::vocab::Chunk;

use crate::script::{Attempt, Position, Tail, Timed};

/// Reads a log. With `timed` the recorded distances are kept, else every chunk comes at once.
///
/// # Errors
///
/// The 1-based line and what is wrong with it.
pub fn read(text: &str, timed: bool) -> Result<BTreeMap<Position, Vec<Attempt>>, String> {
    let mut reader = Reader { timed, ..Reader::default() };
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let event: Object = match serde_json::from_str(line) {
            Ok(event) => event,
            Err(_) if lines.peek().is_none() && !text.ends_with('\n') => break,
            Err(e) => return Err(format!("line {} is not a JSON object: {e}", number + 1)),
        };
        reader.event(&event).map_err(|reason| format!("line {}: {reason}", number + 1))?;
    }
    reader.close(Tail::Cut);
    if reader.positions.is_empty() {
        return Err("the log holds no response of a model".to_owned());
    }
    Ok(reader.positions)
}

#[derive(Default)]
struct Reader {
    timed: bool,
    positions: BTreeMap<Position, Vec<Attempt>>,
    place: Position,
    responses: u64,
    open: Option<Open>,
    /// Time of the event before, in Unix milliseconds.
    clock: Option<i64>,
}

/// An attempt that is being read.
struct Open {
    place: Position,
    /// `turn` and `step` of its chunks.
    step: (Option<u64>, Option<u64>),
    chunks: Vec<Timed>,
    joiners: BTreeMap<u32, Joiner>,
}

impl Reader {
    fn event(&mut self, event: &Object) -> Result<(), String> {
        let kind = event.get_str("type").ok_or("the event has no type")?;
        if kind == "session" {
            return match event.get("version").map(|version| version.get()) {
                Some("0") | None => Ok(()),
                Some(other) => Err(format!("log version {other} is not known; this adapter reads version 0")),
            };
        }
        let data = || -> Result<Object, String> {
            let data = event.get("data").ok_or_else(|| format!("{kind} has no data"))?;
            serde_json::from_str(data.get()).map_err(|e| format!("data of {kind}: {e}"))
        };
        match kind.as_str() {
            "assistant/chunk" => {
                let mut data = data()?;
                let chunk = data.take("chunk").ok_or("assistant/chunk has no chunk")?;
                let gap = self.gap(number(event, "time"));
                self.chunk(step_of(&data), gap, &chunk)?;
            }
            "text-chunks" | "reasoning-chunks" | "tool-call-chunks" => {
                self.row(&kind, data()?, number(event, "time0"))?
            }
            "user/message" => {
                let source = data()?.take_as::<Object>("source");
                if source.and_then(|source| source.get_str("kind")).as_deref() == Some("user") {
                    self.place = (self.place.0 + 1, 0);
                }
                self.gap(number(event, "time"));
            }
            "assistant/message" => {
                let message = data()?.take_as::<Object>("message");
                let content = message.and_then(|mut message| message.take_as::<Vec<Raw>>("content"));
                if content.is_some_and(|content| !content.is_empty()) {
                    self.place.1 += 1;
                }
                self.gap(number(event, "time"));
            }
            "llm/retry" => {
                self.close(Tail::Cut);
                let wait = number(&data()?, "delayMs").unwrap_or(0);
                self.gap(number(event, "time").map(|time| time.saturating_add(wait)));
            }
            "turn/end" => {
                let reason = data()?.take_as::<Object>("reason").and_then(|reason| reason.get_str("kind"));
                // Whoever cancelled, or killed the host, did so while the provider was still at it.
                let stopped = matches!(reason.as_deref(), Some("aborted" | "interrupted"));
                self.close(if stopped { Tail::Silence } else { Tail::Cut });
                self.gap(number(event, "time"));
            }
            _ => {
                self.gap(number(event, "time"));
            }
        }
        Ok(())
    }

    /// Milliseconds since the event before; moves the clock.
    fn gap(&mut self, time: Option<i64>) -> u32 {
        let Some(time) = time else { return 0 };
        let before = self.clock.replace(time).unwrap_or(time);
        u32::try_from(time.saturating_sub(before).max(0)).unwrap_or(u32::MAX)
    }

    /// A packed run: `dt` has one gap less than there are pieces.
    fn row(&mut self, kind: &str, mut data: Object, time0: Option<i64>) -> Result<(), String> {
        let step = step_of(&data);
        let index: u32 = data.take_as("index").ok_or("the row has no index")?;
        let is_call = kind == "tool-call-chunks";
        let pieces = if is_call { "args" } else { "texts" };
        let pieces: Vec<Raw> = take_pieces(&mut data, pieces)?;
        let gaps: Vec<i64> = data.take_as("dt").unwrap_or_default();
        let first = self.gap(time0);
        for (position, piece) in pieces.iter().enumerate() {
            let gap = match position.checked_sub(1) {
                None => first,
                Some(before) => {
                    let gap = gaps.get(before).copied().unwrap_or(0);
                    self.clock = self.clock.map(|clock| clock.saturating_add(gap));
                    u32::try_from(gap.max(0)).unwrap_or(u32::MAX)
                }
            };
            let open = self.open(step);
            let text = open.joiners.entry(index).or_default().push(piece.get());
            let chunk = match kind {
                "text-chunks" => Chunk::TextDelta { index, text },
                "reasoning-chunks" => Chunk::ReasoningDelta { index, text },
                _ => Chunk::ToolCallDelta {
                    index,
                    id: data.get_str("id").unwrap_or_default(),
                    name: data.get_str("name"),
                    arguments_delta: text,
                },
            };
            self.push(step, gap, chunk);
        }
        Ok(())
    }

    fn chunk(&mut self, step: (Option<u64>, Option<u64>), gap: u32, chunk: &Raw) -> Result<(), String> {
        let o: Object = serde_json::from_str(chunk.get()).map_err(|e| format!("the chunk is not an object: {e}"))?;
        let piece = match o.get_str("type").ok_or("the chunk has no type")?.as_str() {
            "text-delta" | "reasoning-delta" => o.get("text"),
            "tool-call-delta" => o.get("argumentsDelta"),
            "block-start" | "block-end" | "usage" | "finish" => None,
            // A chunk type of a later version.
            _ => return Ok(()),
        };
        let mut chunk: Chunk = json::from_str(chunk.get()).map_err(|e| format!("chunk: {e}"))?;
        let open = self.open(step);
        match &mut chunk {
            Chunk::TextDelta { index, text }
            | Chunk::ReasoningDelta { index, text }
            | Chunk::ToolCallDelta { index, arguments_delta: text, .. } => {
                if let Some(piece) = piece {
                    *text = open.joiners.entry(*index).or_default().push(piece.get());
                }
            }
            Chunk::BlockEnd { index, .. } => drop(open.joiners.remove(index)),
            Chunk::BlockStart { .. } | Chunk::Usage { .. } | Chunk::Finish { .. } => {}
        }
        let is_finish = matches!(chunk, Chunk::Finish { .. });
        self.push(step, gap, chunk);
        if is_finish {
            self.close(Tail::Finish);
        }
        Ok(())
    }

    /// The attempt that chunks of this step belong to.
    fn open(&mut self, step: (Option<u64>, Option<u64>)) -> &mut Open {
        if self.open.as_ref().is_some_and(|open| open.step != step) {
            self.close(Tail::Cut);
        }
        let place = self.place;
        self.open.get_or_insert_with(|| Open { place, step, chunks: Vec::new(), joiners: BTreeMap::new() })
    }

    fn push(&mut self, step: (Option<u64>, Option<u64>), gap: u32, chunk: Chunk) {
        let after_ms = if self.timed { gap } else { 0 };
        self.open(step).chunks.push(Timed { after_ms, chunk });
    }

    fn close(&mut self, tail: Tail) {
        if let Some(open) = self.open.take() {
            let attempt = Attempt { response: self.responses, chunks: open.chunks, tail };
            self.responses += 1;
            self.positions.entry(open.place).or_default().push(attempt);
        }
    }
}

fn step_of(data: &Object) -> (Option<u64>, Option<u64>) {
    let number = |key| data.get(key).and_then(|value| serde_json::from_str(value.get()).ok());
    (number("turn"), number("step"))
}

fn number(object: &Object, key: &str) -> Option<i64> {
    serde_json::from_str(object.get(key)?.get()).ok()
}

/// The pieces of a row as JSON strings: a surrogate pair may be split between two of them.
fn take_pieces(data: &mut Object, key: &str) -> Result<Vec<Raw>, String> {
    let value = data.take(key).ok_or_else(|| format!("the row has no {key}"))?;
    serde_json::from_str(value.get()).map_err(|e| format!("{key} of the row: {e}"))
}
