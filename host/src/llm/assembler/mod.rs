//! Makes content blocks of chunks, and takes the one keep/drop decision.
//!
//! The terminal finish chunk may carry an envelope with one entry per block that the stream started. A block and its
//! entry become one value (`Emitted`) before anything is dropped, so a dropped block takes its entry with it,
//! whatever the reason: metadata of a kept message is aligned with its content by construction.
//!
//! Blocks are dropped in exactly one place, `BlockAssembler::assemble_with`, by the reason that a drop rule gives;
//! `standard_rule` is the one in use. The assembler knows nothing of adapters or files.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, Failure, FailureCode, FinishReason, ReplayEnvelope, Usage};

/// Collects the chunks of one attempt.
#[derive(Debug, Default)]
pub struct BlockAssembler {
    blocks: Vec<Emitted>,
    /// Where the block of an index stands.
    places: HashMap<u32, usize>,
    usage: Option<Usage>,
    finish: Option<(FinishReason, Option<ReplayEnvelope>)>,
}

/// A finished response.
#[derive(Debug, Clone)]
pub struct Assembled {
    /// The kept blocks.
    pub content: Vec<Block>,
    /// The pruned envelope, `{response, blocks?}`.
    pub replay_state: Option<Raw>,
    /// How it ended. `stop` with complete tool calls reads `tool-calls`, and `tool-calls` without any reads `stop`.
    pub finish: FinishReason,
    /// Token counts.
    pub usage: Option<Usage>,
    /// Blocks that were dropped, by index, with the reason.
    pub dropped: Vec<(u32, &'static str)>,
    /// Why the envelope was discarded whole, where it was: its entries could not be told apart with certainty.
    pub discarded_envelope: Option<String>,
}

/// One block as the stream emitted it, together with its envelope entry.
#[derive(Debug)]
struct Emitted {
    index: u32,
    block: Block,
    /// A `block-end` was seen.
    closed: bool,
    /// The entry of the envelope; `{type}` alone as long as there is none.
    entry: Raw,
}

/// How an answer ended, as far as keeping its blocks goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// `stop` or `tool-calls`.
    Complete,
    /// `max-tokens`.
    OutputLimit,
    /// `error`, `aborted`, or no finish at all.
    Interrupted,
}

impl BlockAssembler {
    /// An empty assembler.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next chunk.
    ///
    /// Nothing is taken after the finish, and nothing for a block after its `block-end`. A delta of another type than
    /// its block is left out. A block that is mentioned without its `block-start` starts there.
    pub fn push(&mut self, chunk: &Chunk) {
        if self.finish.is_some() {
            return;
        }
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                self.at(*index, *block_type);
            }
            Chunk::TextDelta { index, text } => {
                if let Some(Block::Text(so_far)) = self.open(*index, BlockType::Text) {
                    so_far.push_str(text);
                }
            }
            Chunk::ReasoningDelta { index, text } => {
                if let Some(Block::Reasoning(so_far)) = self.open(*index, BlockType::Reasoning) {
                    so_far.push_str(text);
                }
            }
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                if let Some(Block::ToolCall { id: known_id, name: known_name, arguments }) =
                    self.open(*index, BlockType::ToolCall)
                {
                    if !id.is_empty() {
                        id.clone_into(known_id);
                    }
                    if let Some(name) = name {
                        name.clone_into(known_name);
                    }
                    arguments.push_str(arguments_delta);
                }
            }
            Chunk::BlockEnd { index, block } => {
                let block_type = match block {
                    Block::Reasoning(_) => BlockType::Reasoning,
                    Block::ToolCall { .. } => BlockType::ToolCall,
                    Block::Text(_) | Block::Image(_) | Block::ToolResult { .. } | Block::Other(_) => BlockType::Text,
                };
                let emitted = self.at(*index, block_type);
                if !emitted.closed {
                    emitted.closed = true;
                    emitted.block = block.clone();
                }
            }
            Chunk::Usage { usage } => self.usage = Some(*usage),
            Chunk::Finish { reason, replay_state } => self.finish = Some((reason.clone(), replay_state.clone())),
        }
    }

    /// Decides which blocks are kept, once, for blocks and entries together. An attempt without a finish chunk counts
    /// as cut off.
    #[must_use]
    pub fn assemble(self) -> Assembled {
        self.assemble_with(standard_rule)
    }

    /// The one place where a block can be dropped: by the reason that `rule` gives, and its entry with it.
    fn assemble_with(self, rule: impl Fn(Ending, &Emitted) -> Option<&'static str>) -> Assembled {
        let Self { mut blocks, usage, finish, places: _ } = self;
        let (reason, envelope) = finish.unwrap_or_else(|| {
            let failure = Failure::new(FailureCode::Transport, "the response ended without its finish");
            (FinishReason::Error { failure }, None)
        });
        let ending = Ending::of(&reason);

        let mut discarded_envelope = None;
        let envelope = envelope.and_then(|ReplayEnvelope { response, blocks: entries }| {
            match entries.map(|entries| attach(&mut blocks, entries, ending)).transpose() {
                Ok(attached) => Some((response, attached.is_some())),
                Err(why) => {
                    discarded_envelope = Some(why);
                    None
                }
            }
        });

        let mut dropped = Vec::new();
        blocks.retain(|emitted| match rule(ending, emitted) {
            None => true,
            Some(why) => {
                dropped.push((emitted.index, why));
                false
            }
        });

        let (content, entries): (Vec<_>, Vec<_>) = blocks.into_iter().map(|kept| (kept.block, kept.entry)).unzip();
        let replay_state = envelope
            .map(|(response, has_entries)| raw(&ReplayEnvelope { response, blocks: has_entries.then_some(entries) }));
        let finish = settle(reason, &content);
        Assembled { content, replay_state, finish, usage, dropped, discarded_envelope }
    }

    /// The block of an index, started now if it is new.
    fn at(&mut self, index: u32, block_type: BlockType) -> &mut Emitted {
        let Self { blocks, places, .. } = self;
        // Most deltas are for the block that began last.
        if blocks.last().is_some_and(|last| last.index == index) {
            let last = blocks.len() - 1;
            return &mut blocks[last];
        }
        let position = *places.entry(index).or_insert_with(|| {
            let block = match block_type {
                BlockType::Text => Block::Text(String::new()),
                BlockType::Reasoning => Block::Reasoning(String::new()),
                BlockType::ToolCall => {
                    Block::ToolCall { id: String::new(), name: String::new(), arguments: String::new() }
                }
            };
            blocks.push(Emitted { index, entry: bare(&block), block, closed: false });
            blocks.len() - 1
        });
        &mut blocks[position]
    }

    /// The block of an index as long as it takes deltas.
    fn open(&mut self, index: u32, block_type: BlockType) -> Option<&mut Block> {
        let emitted = self.at(index, block_type);
        (!emitted.closed).then_some(&mut emitted.block)
    }
}

impl Ending {
    const fn of(reason: &FinishReason) -> Self {
        match reason {
            FinishReason::Stop | FinishReason::ToolCalls => Self::Complete,
            FinishReason::MaxTokens => Self::OutputLimit,
            FinishReason::Error { .. } | FinishReason::Aborted { .. } => Self::Interrupted,
        }
    }
}

/// Gives every block its entry. An error means that the entries cannot be attributed with certainty; then none is
/// given, since metadata on the wrong block is worse than none.
fn attach(blocks: &mut [Emitted], entries: Vec<Raw>, ending: Ending) -> Result<(), String> {
    if entries.len() != blocks.len() {
        return Err(format!("the envelope has {} block entries for {} blocks", entries.len(), blocks.len()));
    }
    for (emitted, entry) in blocks.iter().zip(&entries) {
        let kind = emitted.block.kind();
        match entry_type(entry) {
            Some(entry_type) if entry_type != kind => {
                return Err(format!(
                    "the envelope's entry of block {} is of type {entry_type:?}, the block of type {kind:?}",
                    emitted.index
                ));
            }
            _ => {}
        }
    }
    for (emitted, entry) in blocks.iter_mut().zip(entries) {
        // Opaque values are committed when their block closes; what an interruption left open has none.
        let uncommitted = ending == Ending::Interrupted && !emitted.closed;
        emitted.entry = if uncommitted { bare(&emitted.block) } else { entry };
    }
    Ok(())
}

/// Why a block is dropped; `None` keeps it.
fn standard_rule(ending: Ending, emitted: &Emitted) -> Option<&'static str> {
    match (&emitted.block, ending) {
        // Also a call whose arguments parse: what the limit cut off after it cannot be known.
        (Block::ToolCall { .. }, Ending::OutputLimit) => Some("tool call of an answer that the output limit cut off"),
        (Block::ToolCall { .. }, Ending::Interrupted) => Some("tool call of an interrupted answer"),
        (Block::ToolCall { name, .. }, Ending::Complete) if name.is_empty() => Some("tool call without a name"),
        (Block::Reasoning(_), Ending::Interrupted) if !emitted.closed => {
            Some("reasoning that was open when the answer was interrupted")
        }
        (Block::Text(text), _) if text.is_empty() && !has_metadata(&emitted.entry) => Some("empty text"),
        (Block::Reasoning(text), _) if text.is_empty() && !has_metadata(&emitted.entry) => Some("empty reasoning"),
        _ => None,
    }
}

/// The finish reason that fits the kept content.
fn settle(reason: FinishReason, content: &[Block]) -> FinishReason {
    let has_calls = content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    match reason {
        FinishReason::Stop if has_calls => FinishReason::ToolCalls,
        FinishReason::ToolCalls if !has_calls => FinishReason::Stop,
        other => other,
    }
}

/// The entry of a block without metadata.
fn bare(block: &Block) -> Raw {
    raw(&serde_json::json!({ "type": block.kind() }))
}

fn entry_type(entry: &Raw) -> Option<String> {
    json::from_str::<Object>(entry.get()).ok()?.get_str("type")
}

/// True when an entry says more than its type.
pub(super) fn has_metadata(entry: &Raw) -> bool {
    json::from_str::<Object>(entry.get()).is_ok_and(|entry| entry.iter().any(|(name, _)| name != "type"))
}
