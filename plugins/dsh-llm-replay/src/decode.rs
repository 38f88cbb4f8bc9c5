//! Serves one attempt, chunk by chunk, when the host polls.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, Failure, FailureCode, ReplayEnvelope, Target};
use dsh_plugin_api::{Chunks, Decoder, Poll, Slot, StreamEnd};

use crate::replay::{self, Recorded};
use crate::script::{Attempt, Tail};

/// How many chunks one poll serves: enough to be quick, few enough that a cancel gets through.
const BATCH: usize = 64;
/// How often a silent attempt asks to be polled, in milliseconds.
const SILENCE_MS: u32 = 1_000;

/// The decoder of a polled exchange.
#[derive(Debug)]
pub struct Server {
    target: Target,
    attempt: Attempt,
    next: usize,
    waited: bool,
    blocks: Vec<(u32, BlockType, Slot)>,
}

impl Server {
    pub(crate) const fn new(target: Target, attempt: Attempt) -> Self {
        Self { target, attempt, next: 0, waited: false, blocks: Vec::new() }
    }

    /// The latest block of that index and type; started when the recording does not say so itself.
    fn slot(&mut self, index: u32, kind: BlockType, out: &mut Chunks) -> Slot {
        match self.blocks.iter().rev().find(|block| (block.0, block.1) == (index, kind)) {
            Some(block) => block.2,
            None => self.start(index, kind, out),
        }
    }

    fn start(&mut self, index: u32, kind: BlockType, out: &mut Chunks) -> Slot {
        let slot = match kind {
            BlockType::Text => out.start_text(),
            BlockType::Reasoning => out.start_reasoning(),
            BlockType::ToolCall => out.start_tool_call("", ""),
        };
        self.blocks.push((index, kind, slot));
        slot
    }

    fn push(&mut self, chunk: Chunk, out: &mut Chunks) {
        match chunk {
            Chunk::BlockStart { index, block_type } => drop(self.start(index, block_type, out)),
            Chunk::TextDelta { index, text } => {
                let slot = self.slot(index, BlockType::Text, out);
                out.delta(slot, &text);
            }
            Chunk::ReasoningDelta { index, text } => {
                let slot = self.slot(index, BlockType::Reasoning, out);
                out.delta(slot, &text);
            }
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                let slot = self.slot(index, BlockType::ToolCall, out);
                out.set_call(slot, &id, name.as_deref().unwrap_or_default());
                out.delta(slot, &arguments_delta);
            }
            Chunk::BlockEnd { index, block } => match block {
                Block::Text(text) => {
                    let slot = self.slot(index, BlockType::Text, out);
                    out.end_with(slot, text, None);
                }
                Block::Reasoning(text) => {
                    let slot = self.slot(index, BlockType::Reasoning, out);
                    out.end_with(slot, text, None);
                }
                Block::ToolCall { id, name, arguments } => {
                    let slot = self.slot(index, BlockType::ToolCall, out);
                    out.set_call(slot, &id, &name);
                    out.end_with(slot, arguments, None);
                }
                // No stream holds another block; the one of this index stays what its deltas made of it.
                Block::Image(_) | Block::ToolResult { .. } | Block::Other(_) => {
                    if let Some(block) = self.blocks.iter().rev().find(|block| block.0 == index) {
                        out.end(block.2, None);
                    }
                }
            },
            Chunk::Usage { usage } => out.usage(usage),
            Chunk::Finish { reason, replay_state } => {
                let half = self.half(replay_state.as_ref(), out);
                out.finish(&reason, half);
            }
        }
    }

    /// The response half of this attempt's envelope; none when no block was started. What the recording held as
    /// metadata goes along as `recorded`, in the half and in the entries.
    fn half(&self, recorded: Option<&ReplayEnvelope>, out: &mut Chunks) -> Option<Raw> {
        if self.blocks.is_empty() {
            return None;
        }
        let recorded = recorded.map(Recorded::of).unwrap_or_default();
        if let Some(entries) = recorded.entries
            && entries.len() == self.blocks.len()
        {
            for ((_, kind, slot), entry) in self.blocks.iter().zip(entries) {
                if let Some(entry) = entry {
                    let mut own = Object::new();
                    own.set("type", raw(kind.name()));
                    own.set("recorded", entry);
                    out.set_entry(*slot, raw(&own));
                }
            }
        }
        Some(replay::half(&self.target, self.attempt.response, recorded.response))
    }
}

impl Decoder for Server {
    fn feed(&mut self, _bytes: &[u8], out: &mut Chunks) {
        out.fail(Failure::new(FailureCode::Unsupported, "dsh-llm-replay takes no bytes; poll it"), None);
    }

    fn finish(&mut self, _end: &StreamEnd, _out: &mut Chunks) {}

    fn poll(&mut self, out: &mut Chunks) -> Poll {
        for _ in 0..BATCH {
            let Some(timed) = self.attempt.chunks.get(self.next) else {
                if self.attempt.tail == Tail::Silence {
                    return Poll::After(SILENCE_MS);
                }
                let half = self.half(None, out);
                let text = "the recorded stream breaks off here, without its terminal event";
                out.fail(Failure::new(FailureCode::Transport, text), half);
                return Poll::Ready;
            };
            if timed.after_ms > 0 && !self.waited {
                self.waited = true;
                return Poll::After(timed.after_ms);
            }
            self.waited = false;
            let chunk = timed.chunk.clone();
            self.next += 1;
            self.push(chunk, out);
            if out.is_finished() {
                break;
            }
        }
        Poll::Ready
    }

    fn cancel(&mut self, out: &mut Chunks) {
        let half = self.half(None, out);
        out.fail_as_aborted(half);
    }
}

/// Reads what [`crate::Replay`] put into the exchange.
pub(crate) fn served(value: &Raw) -> Result<crate::Served, Failure> {
    json::from_str(value.get()).map_err(|e| {
        Failure::new(FailureCode::InvalidRequest, format!("the exchange is not one of dsh-llm-replay: {e}"))
    })
}
