//! What a stream consists of: chunks, finish reasons and usage.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Block, Failure, ReplayEnvelope};
use crate::json::{self, Object};

/// The type of a streamed block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockType {
    /// Visible text.
    Text,
    /// Reasoning of the model.
    Reasoning,
    /// A call of a tool.
    ToolCall,
}

impl BlockType {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::ToolCall => "tool-call",
        }
    }
}

/// One element of a response stream.
///
/// Block indexes are allocated in first-seen order from 0. Usage comes before finish, and nothing after it.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Chunk {
    /// A block begins.
    BlockStart {
        /// Block index.
        index: u32,
        /// Its type.
        block_type: BlockType,
    },
    /// Text of a text block.
    TextDelta {
        /// Block index.
        index: u32,
        /// The piece.
        text: String,
    },
    /// Text of a reasoning block.
    ReasoningDelta {
        /// Block index.
        index: u32,
        /// The piece.
        text: String,
    },
    /// Arguments of a tool call.
    ToolCallDelta {
        /// Block index.
        index: u32,
        /// Id of the call.
        id: String,
        /// Name of the tool, once known.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The piece of the arguments' JSON text.
        arguments_delta: String,
    },
    /// A block is complete; `block` is the whole of it and wins over the deltas.
    BlockEnd {
        /// Block index.
        index: u32,
        /// The complete block.
        block: Block,
    },
    /// Token counts.
    Usage {
        /// The counts.
        usage: Usage,
    },
    /// The response is over.
    Finish {
        /// Why.
        reason: FinishReason,
        /// Replay metadata of the response; `blocks` has one entry per started block.
        #[serde(skip_serializing_if = "Option::is_none")]
        replay_state: Option<ReplayEnvelope>,
    },
}

impl<'de> Deserialize<'de> for Chunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut o = Object::deserialize(deserializer)?;
        fn need<T: serde::de::DeserializeOwned, E: Error>(o: &mut Object, key: &'static str) -> Result<T, E> {
            let value = o.take(key).ok_or_else(|| E::missing_field(key))?;
            json::from_str(value.get()).map_err(|e| E::custom(format_args!("{key}: {e}")))
        }
        let kind: String = need(&mut o, "type")?;
        Ok(match kind.as_str() {
            "block-start" => Self::BlockStart { index: need(&mut o, "index")?, block_type: need(&mut o, "blockType")? },
            "text-delta" => Self::TextDelta { index: need(&mut o, "index")?, text: need(&mut o, "text")? },
            "reasoning-delta" => Self::ReasoningDelta { index: need(&mut o, "index")?, text: need(&mut o, "text")? },
            "tool-call-delta" => Self::ToolCallDelta {
                index: need(&mut o, "index")?,
                id: o.take_as("id").unwrap_or_default(),
                name: o.take_as("name"),
                arguments_delta: o.take_as("argumentsDelta").unwrap_or_default(),
            },
            "block-end" => Self::BlockEnd { index: need(&mut o, "index")?, block: need(&mut o, "block")? },
            "usage" => Self::Usage { usage: need(&mut o, "usage")? },
            "finish" => Self::Finish { reason: need(&mut o, "reason")?, replay_state: o.take_as("replayState") },
            other => return Err(D::Error::custom(format_args!("unknown chunk type {other:?}"))),
        })
    }
}

/// Why a response ended, by `kind`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// The model waits for the results of its tool calls.
    ToolCalls,
    /// The output limit was reached.
    MaxTokens,
    /// The host or the user stopped it.
    Aborted {
        /// What stopped it.
        failure: Failure,
    },
    /// It failed.
    Error {
        /// How.
        failure: Failure,
    },
}

impl FinishReason {
    /// The failure of `aborted` and `error`.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Aborted { failure } | Self::Error { failure } => Some(failure),
            Self::Stop | Self::ToolCalls | Self::MaxTokens => None,
        }
    }

    /// The name in JSON.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool-calls",
            Self::MaxTokens => "max-tokens",
            Self::Aborted { .. } => "aborted",
            Self::Error { .. } => "error",
        }
    }
}

/// Token counts. They are disjoint: `input_tokens` is the part that was not read from a cache; `reasoning_tokens` is
/// a share of `output_tokens`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Uncached prompt tokens.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Prompt tokens read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    /// Prompt tokens written to the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens of the answer that were reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}
