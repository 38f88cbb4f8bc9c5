//! The agent: a session that takes prompts, asks a model, runs tools, and logs everything.
//!
//! What reaches a request can be rebuilt from the log: history is derived from it, and nothing else is remembered
//! across a restart. `session` holds the state of an open session, `turn` runs a prompt, `attempt` one request with
//! its retries, `refusals` finds what a refused request can go without.

mod attempt;
mod prompt;
mod refusals;
mod session;
#[cfg(test)]
mod tests;
mod turn;

use std::path::PathBuf;
use std::sync::Arc;

use dsh_plugin_api::vocab::{Block, Failure, Usage};
use serde_json::json;

use crate::llm::client::{Client, Degraded};
use crate::llm::registry::Registry;
use crate::manifest::Manifest;
use crate::session::batch::Durable;
use crate::store::{Store, StoreError};

pub use session::{Session, last_model, spared_routes};

/// What a manifest was turned into: everything that sessions of one process share.
pub struct Composition {
    /// The manifest.
    pub manifest: Manifest,
    /// Its routes.
    pub registry: Registry,
    /// Sends requests.
    pub client: Client,
    /// Session logs.
    pub store: Store,
}

/// Choices for one session that come from outside the manifest.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// `provider/model`; the agent's own when absent.
    pub model: Option<String>,
    /// Working folder of tools, absolute.
    pub cwd: PathBuf,
}

/// What happens during a turn, as it happens. Order is that of the conversation.
#[derive(Debug, Clone)]
pub enum Update {
    /// A piece of visible text.
    Text(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// A tool call is complete and about to run.
    ToolCall {
        /// Id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// JSON text of its arguments.
        arguments: String,
    },
    /// A tool call is over.
    ToolResult {
        /// Id of the call.
        id: String,
        /// What the model gets.
        content: Vec<Block>,
        /// True when it failed.
        is_error: bool,
    },
    /// A message goes out without its metadata. Once per message, reason and route.
    Degraded(Degraded),
    /// A further attempt follows after a wait, unless the wait is cancelled.
    Retry {
        /// Number of the coming attempt, from 1.
        retry: u32,
        /// How many there may be.
        max_retries: u32,
        /// Milliseconds until it starts.
        delay_ms: u64,
        /// Why.
        failure: Failure,
    },
    /// What the failed attempt streamed is void: the wait of its [`Update::Retry`] is over, and the next one begins.
    AttemptDiscarded,
    /// A line for the user that is none of the above.
    Notice(String),
    /// Events that are now durable.
    Durable(Durable),
}

/// Takes updates. It must not block; it is called from the turn and from the log's writer.
pub type UpdateSink = Arc<dyn Fn(Update) + Send + Sync>;

/// Why a turn ended, by `kind`. This is the form that callers get; [`TurnReason::logged`] is that of the log.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TurnReason {
    /// The model was done.
    Completed,
    /// The output limit was reached.
    MaxTokens,
    /// `max_steps` requests were made.
    MaxSteps,
    /// The user stopped it.
    Aborted,
    /// A request failed.
    Error {
        /// How.
        failure: Failure,
    },
}

impl TurnReason {
    /// The `reason` of `turn/end` as session logs of format version 0 have it: who stopped an aborted turn stands under
    /// `reason`, the failure of a failed one under `error`.
    #[must_use]
    pub fn logged(&self) -> serde_json::Value {
        match self {
            Self::Completed | Self::MaxTokens | Self::MaxSteps => json!(self),
            Self::Aborted => json!({ "kind": "aborted", "reason": { "kind": "user" } }),
            Self::Error { failure } => json!({ "kind": "error", "error": failure }),
        }
    }
}

/// A finished turn.
#[derive(Debug, Clone)]
pub struct TurnEnd {
    /// Why it ended.
    pub reason: TurnReason,
    /// Text of the turn's last assistant message.
    pub text: String,
    /// What this turn's requests degraded, one entry per message.
    pub degraded: Vec<Degraded>,
    /// Tokens of the whole turn, those of failed attempts included.
    pub usage: Usage,
}

/// A turn that could not be run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The log cannot be opened or written. Nothing after its last durable event is promised.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model or its credential.
    #[error("{}", .0.message)]
    Failure(Failure),
}
