//! The sink that a decoder pushes into. It keeps the books of blocks and their envelope entries, so that they cannot
//! drift apart: an entry belongs to a block from the moment the block is closed, and the envelope is put together
//! from the blocks themselves.

use crate::abi::{Batch, Filling, RecKind, over_long};
use crate::json::{Raw, raw};
use crate::vocab::{Block, BlockType, Failure, FailureCode, FinishReason, ReplayEnvelope, Usage};

/// Most bytes of ids and names that one response may send again because they changed. A call gets its id once; a wire
/// whose ids change with every delta would otherwise make a log that is a thousand times its answer.
const MOST_CHANGED_HEADS: usize = 1024 * 1024;

/// Handle of a block that was started. Values of one response are of no use in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(u32);

#[derive(Debug)]
struct OpenBlock {
    kind: BlockType,
    text: String,
    id: String,
    name: String,
    sent_head: Option<(String, String)>,
    entry: Option<Raw>,
    closed: bool,
}

/// Collects the chunks of one response and batches them for the host.
///
/// Order is enforced: deltas for a closed block are dropped, usage goes out before finish, and nothing after finish.
#[derive(Debug, Default)]
pub struct Chunks {
    batch: Filling,
    blocks: Vec<OpenBlock>,
    usage: Option<Usage>,
    /// Bytes of heads that were sent again.
    changed_heads: usize,
    finished: bool,
}

impl Chunks {
    /// An empty sink.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a text block.
    pub fn start_text(&mut self) -> Slot {
        self.start(BlockType::Text, "", "")
    }

    /// Starts a reasoning block.
    pub fn start_reasoning(&mut self) -> Slot {
        self.start(BlockType::Reasoning, "", "")
    }

    /// Starts a tool call. Id and name may be empty and come later with [`Chunks::set_call`].
    pub fn start_tool_call(&mut self, id: &str, name: &str) -> Slot {
        self.start(BlockType::ToolCall, id, name)
    }

    fn start(&mut self, kind: BlockType, id: &str, name: &str) -> Slot {
        self.check_call(id, name);
        let slot = Slot(self.blocks.len() as u32);
        if !self.finished {
            self.batch.push(RecKind::BlockStart, slot.0, kind.name().as_bytes());
            self.blocks.push(OpenBlock {
                kind,
                text: String::new(),
                id: id.to_owned(),
                name: name.to_owned(),
                sent_head: None,
                entry: None,
                closed: false,
            });
        }
        slot
    }

    /// Fails the response for an id or name beyond [`crate::abi::LONGEST_CALL_HEAD`].
    fn check_call(&mut self, id: &str, name: &str) {
        if let Some(what) = over_long(id, name) {
            self.fail(Failure::new(FailureCode::Protocol, format!("the provider broke its wire: {what}")), None);
        }
    }

    fn open(&mut self, slot: Slot) -> Option<&mut OpenBlock> {
        if self.finished {
            return None;
        }
        self.blocks.get_mut(slot.0 as usize).filter(|block| !block.closed)
    }

    /// Gives a tool call its id or name once they are known. Empty strings change nothing.
    pub fn set_call(&mut self, slot: Slot, id: &str, name: &str) {
        self.check_call(id, name);
        if let Some(block) = self.open(slot) {
            if !id.is_empty() {
                id.clone_into(&mut block.id);
            }
            if !name.is_empty() {
                name.clone_into(&mut block.name);
            }
        }
    }

    /// Appends to a text or reasoning block, or to the arguments of a tool call. An empty delta of text is dropped.
    ///
    /// A delta of a tool call whose id or name changed since its last delta repeats both; a response that does so for
    /// more than 1 MiB of them fails with `PROTOCOL`.
    pub fn delta(&mut self, slot: Slot, text: &str) {
        let Some(block) = self.open(slot) else { return };
        block.text.push_str(text);
        match block.kind {
            BlockType::Text | BlockType::Reasoning if text.is_empty() => {}
            BlockType::Text => self.batch.push(RecKind::TextDelta, slot.0, text.as_bytes()),
            BlockType::Reasoning => self.batch.push(RecKind::ReasoningDelta, slot.0, text.as_bytes()),
            BlockType::ToolCall => {
                let OpenBlock { id, name, sent_head, .. } = block;
                if sent_head.as_ref().is_none_or(|(sent_id, sent_name)| sent_id != id || sent_name != name) {
                    let json = raw(&[&*id, &*name]);
                    if sent_head.replace((id.clone(), name.clone())).is_some() {
                        self.changed_heads += json.get().len();
                    }
                    self.batch.push(RecKind::ToolCallHead, slot.0, json.get().as_bytes());
                }
                self.batch.push(RecKind::ToolCallDelta, slot.0, text.as_bytes());
            }
        }
        if self.changed_heads > MOST_CHANGED_HEADS {
            let what = "the provider broke its wire: ids or names of tool calls change again and again";
            self.fail(Failure::new(FailureCode::Protocol, what), None);
        }
    }

    /// What a block holds so far.
    #[must_use]
    pub fn text_of(&self, slot: Slot) -> &str {
        self.blocks.get(slot.0 as usize).map_or("", |block| &block.text)
    }

    /// Id and name of a tool call so far.
    #[must_use]
    pub fn call_of(&self, slot: Slot) -> (&str, &str) {
        self.blocks.get(slot.0 as usize).map_or(("", ""), |block| (&block.id, &block.name))
    }

    /// True while a block takes deltas.
    #[must_use]
    pub fn is_open(&self, slot: Slot) -> bool {
        !self.finished && self.blocks.get(slot.0 as usize).is_some_and(|block| !block.closed)
    }

    /// How many blocks were started.
    #[must_use]
    pub fn started(&self) -> usize {
        self.blocks.len()
    }

    /// True after the finish.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.finished
    }

    /// Closes a block with what was streamed, and commits its envelope entry.
    pub fn end(&mut self, slot: Slot, entry: Option<Raw>) {
        let text = self.text_of(slot).to_owned();
        self.end_with(slot, text, entry);
    }

    /// Closes a block with a final text (or arguments) of its own, which wins over the deltas.
    pub fn end_with(&mut self, slot: Slot, text: String, entry: Option<Raw>) {
        let Some(block) = self.open(slot) else { return };
        block.closed = true;
        block.entry = entry;
        block.text = text;
        let text = block.text.clone();
        let end = match block.kind {
            BlockType::Text => Block::Text(text),
            BlockType::Reasoning => Block::Reasoning(text),
            BlockType::ToolCall => Block::ToolCall { id: block.id.clone(), name: block.name.clone(), arguments: text },
        };
        self.batch.push(RecKind::BlockEnd, slot.0, raw(&end).get().as_bytes());
    }

    /// Sets the entry of a block that may be closed already, for metadata that the wire sends late.
    pub fn set_entry(&mut self, slot: Slot, entry: Raw) {
        if !self.finished
            && let Some(block) = self.blocks.get_mut(slot.0 as usize)
        {
            block.entry = Some(entry);
        }
    }

    /// Says that an HTTP body is over `ms` milliseconds from now at the latest, for a wire whose last word may be
    /// followed by more, or by nothing on an open connection. The host then calls `finish` with
    /// [`StreamEnd::Complete`](crate::StreamEnd::Complete). The first call counts.
    pub fn end_within(&mut self, ms: u32) {
        if !self.finished {
            self.batch.push(RecKind::Wait, ms, &[]);
        }
    }

    /// Sets the token counts. The last call before the finish wins.
    pub const fn usage(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Ends the response. `response` is the envelope's response half; without it there is no replay metadata.
    ///
    /// The envelope gets one entry per started block: the one that closed it, or `{type}` alone.
    pub fn finish(&mut self, reason: &FinishReason, response: Option<Raw>) {
        if self.finished {
            return;
        }
        if let Some(usage) = self.usage.take() {
            self.batch.push(RecKind::Usage, 0, raw(&usage).get().as_bytes());
        }
        let entry = |block: &OpenBlock| {
            let own = block.entry.clone().filter(|_| block.closed);
            own.unwrap_or_else(|| raw(&serde_json::json!({ "type": block.kind.name() })))
        };
        let replay_state =
            response.map(|response| ReplayEnvelope { response, blocks: Some(self.blocks.iter().map(entry).collect()) });
        let finish = crate::vocab::Chunk::Finish { reason: reason.clone(), replay_state };
        self.batch.push(RecKind::Finish, 0, raw(&finish).get().as_bytes());
        self.finished = true;
    }

    /// Ends the response with an error.
    pub fn fail(&mut self, failure: Failure, response: Option<Raw>) {
        self.finish(&FinishReason::Error { failure }, response);
    }

    /// Ends the response because the host stopped it.
    pub fn fail_as_aborted(&mut self, response: Option<Raw>) {
        let failure = Failure::new(FailureCode::Aborted, "stopped by the host");
        self.finish(&FinishReason::Aborted { failure }, response);
    }

    /// What was pushed since the last call.
    pub fn take_batch(&mut self) -> Batch {
        self.batch.take()
    }

    pub(crate) const fn batch_mut(&mut self) -> &mut Filling {
        &mut self.batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{BatchReader, Item};
    use crate::vocab::Chunk;

    /// Chunks of a call whose id has `length` bytes and changes with each of `deltas`.
    fn restless(length: usize, deltas: usize) -> (Vec<Chunk>, usize) {
        let mut chunks = Chunks::new();
        let slot = chunks.start_tool_call("", "bash");
        for n in 0..deltas {
            chunks.set_call(slot, &format!("{n:0length$}"), "");
            chunks.delta(slot, "x");
        }
        let batch = chunks.take_batch();
        let bytes = batch.bytes.len();
        let mut told = Vec::new();
        BatchReader::new().read(&batch, |item| match item {
            Item::Chunk(chunk) => told.push(chunk),
            other => panic!("{other:?}"),
        });
        (told, bytes)
    }

    #[test]
    fn an_id_may_change_but_not_without_end() {
        let (chunks, _) = restless(40, 1_000);
        assert_eq!(chunks.len(), 1_001, "a start and every delta");
        let (chunks, bytes) = restless(16_000, 1_000);
        let Some(Chunk::Finish { reason: FinishReason::Error { failure }, .. }) = chunks.last() else {
            panic!("{:?}", chunks.last());
        };
        assert_eq!(failure.code, FailureCode::Protocol);
        assert!(bytes < 2 * MOST_CHANGED_HEADS, "{bytes} bytes");
    }
}
