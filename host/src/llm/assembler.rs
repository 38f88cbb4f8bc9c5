//! Makes content blocks of chunks, and takes the one keep/drop decision.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::vocab::{Block, Chunk, FinishReason, Usage};

/// Collects the chunks of one attempt.
#[derive(Debug, Default)]
pub struct BlockAssembler {}

/// A finished response.
#[derive(Debug, Clone)]
pub struct Assembled {
    /// The kept blocks.
    pub content: Vec<Block>,
    /// The pruned envelope, `{response, blocks?}`.
    pub replay_state: Option<Raw>,
    /// How it ended. `stop` with complete tool calls reads `tool-calls`.
    pub finish: FinishReason,
    /// Token counts.
    pub usage: Option<Usage>,
    /// Blocks that were dropped, by index, with the reason.
    pub dropped: Vec<(u32, &'static str)>,
}

impl BlockAssembler {
    /// An empty assembler.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next chunk.
    pub fn push(&mut self, chunk: &Chunk) {
        let _ = chunk;
    }

    /// Decides which blocks are kept, once, for blocks and entries together. An attempt without a finish chunk counts
    /// as cut off.
    #[must_use]
    pub fn assemble(self) -> Assembled {
        Assembled {
            content: Vec::new(),
            replay_state: None,
            finish: FinishReason::Stop,
            usage: None,
            dropped: Vec::new(),
        }
    }
}
