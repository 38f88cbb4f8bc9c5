//! What a route answers, and which of its answers a request gets.
//!
//! The choice is a function of the request's history alone, so that a resumed, forked or repeated session is served
//! as the first one was. Only the attempts of one request (a retry sends the same history again) are told apart by
//! counting, in [`crate::Replay`].

use std::collections::BTreeMap;

use dsh_plugin_api::json::{self, Object};
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, Failure, FailureCode, FinishReason, Message, Role, Source};
use serde::{Deserialize, Serialize};

/// One chunk and how long after the one before it comes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timed {
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub after_ms: u32,
    /// The chunk.
    pub chunk: Chunk,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
const fn is_zero(ms: &u32) -> bool {
    *ms == 0
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tail {
    /// With the finish chunk that is its last one.
    #[default]
    Finish,
    /// The stream breaks off.
    Cut,
    /// Nothing more comes until the host gives up: the user had stopped it here, or killed the host.
    Silence,
}

/// What one attempt of a request streams.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attempt {
    /// 0-based number of this response in the script or the log.
    pub response: u64,
    /// Its chunks.
    pub chunks: Vec<Timed>,
    /// Its end.
    pub tail: Tail,
}

/// Place of a request in a recorded conversation: prompts of the user so far, and assistant messages since the last.
pub type Position = (u64, u64);

/// The answers of a route.
#[derive(Debug, Clone)]
pub enum Script {
    /// Always the same text.
    Reply(String),
    /// In order. A response that the host retries forms one group with those that its retries get.
    Responses(Vec<Vec<Attempt>>),
    /// The model side of a session log.
    Session(BTreeMap<Position, Vec<Attempt>>),
}

impl Script {
    /// A script of responses.
    ///
    /// # Errors
    ///
    /// The 0-based response that cannot be served, and why.
    pub fn of_responses(responses: Vec<Vec<Chunk>>) -> Result<Self, (usize, String)> {
        let mut groups: Vec<Vec<Attempt>> = Vec::new();
        let mut retried = false;
        for (number, chunks) in responses.into_iter().enumerate() {
            let finish = chunks.iter().position(|chunk| matches!(chunk, Chunk::Finish { .. }));
            if chunks.is_empty() {
                return Err((number, "has no chunks; a response needs at least a finish".to_owned()));
            }
            if finish.is_some_and(|at| at + 1 < chunks.len()) {
                return Err((number, "has chunks after its finish; finish comes last".to_owned()));
            }
            let is_retried = match chunks.last() {
                Some(Chunk::Finish { reason, .. }) => {
                    matches!(reason, FinishReason::Error { failure } if is_retryable(failure))
                }
                _ => true,
            };
            let chunks = chunks.into_iter().map(|chunk| Timed { after_ms: 0, chunk }).collect();
            let tail = if finish.is_some() { Tail::Finish } else { Tail::Cut };
            let attempt = Attempt { response: number as u64, chunks, tail };
            match groups.last_mut() {
                Some(group) if retried => group.push(attempt),
                _ => groups.push(vec![attempt]),
            }
            retried = is_retried;
        }
        Ok(Self::Responses(groups))
    }

    /// The attempts that answer this history, or why there are none.
    ///
    /// # Errors
    ///
    /// Says what was asked for and what there is.
    pub fn answer(&self, history: &[Message]) -> Result<Vec<Attempt>, String> {
        match self {
            Self::Reply(text) => Ok(vec![reply(text, answered(history))]),
            Self::Responses(groups) => {
                let number = answered(history);
                let group = usize::try_from(number).ok().and_then(|number| groups.get(number));
                group.cloned().ok_or_else(|| {
                    format!(
                        "the script has answers for {} requests and this is request {} of the conversation; \
                         add a response to `responses`",
                        groups.len(),
                        number + 1
                    )
                })
            }
            Self::Session(positions) => {
                let (prompt, step) = position(history);
                positions.get(&(prompt, step)).cloned().ok_or_else(|| {
                    let last = positions.keys().next_back().copied().unwrap_or_default();
                    format!(
                        "the recorded session has no response for request {} after prompt {prompt}; \
                         its last one is request {} after prompt {}",
                        step + 1,
                        last.1 + 1,
                        last.0
                    )
                })
            }
        }
    }
}

/// How many answers of a script this history has used up: its assistant messages, and its prompts that were followed
/// by the next prompt without one (their request failed).
fn answered(history: &[Message]) -> u64 {
    let mut used = 0;
    let mut open = false;
    for message in history {
        if message.role == Role::Assistant {
            used += 1;
            open = false;
        } else if is_prompt(&message.source) {
            used += u64::from(open);
            open = true;
        } else if matches!(message.source, Source::Tool { .. }) {
            open = false;
        }
    }
    used
}

/// The place of the request that this history makes.
fn position(history: &[Message]) -> Position {
    history.iter().fold((0, 0), |(prompt, step), message| match message.role {
        Role::Assistant => (prompt, step + 1),
        _ if is_prompt(&message.source) => (prompt + 1, 0),
        _ => (prompt, step),
    })
}

/// True for what a person wrote, as against tool results and notes of the host.
fn is_prompt(source: &Source) -> bool {
    match source {
        Source::User => true,
        Source::Other(value) => {
            json::from_str::<Object>(value.get()).is_ok_and(|o| o.get_str("kind").as_deref() == Some("user"))
        }
        Source::Tool { .. } | Source::Model { .. } => false,
    }
}

/// The failures after which a host makes a further attempt.
fn is_retryable(failure: &Failure) -> bool {
    use FailureCode::{EmptyResponse, RateLimit, Server, Timeout, Transport};
    matches!(failure.code, EmptyResponse | RateLimit | Server | Timeout | Transport)
        || matches!(failure.status, Some(408 | 409 | 429 | 500..=599))
}

fn reply(text: &str, response: u64) -> Attempt {
    let chunks = [
        Chunk::BlockStart { index: 0, block_type: BlockType::Text },
        Chunk::TextDelta { index: 0, text: text.to_owned() },
        Chunk::BlockEnd { index: 0, block: Block::Text(text.to_owned()) },
        Chunk::Finish { reason: FinishReason::Stop, replay_state: None },
    ];
    let chunks = chunks.into_iter().map(|chunk| Timed { after_ms: 0, chunk }).collect();
    Attempt { response, chunks, tail: Tail::Finish }
}
