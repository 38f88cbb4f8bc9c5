//! The vocabulary that hosts, adapters and session logs share.
//!
//! JSON forms are those of session log format version 0 (`camelCase` members, `kebab-case` type names). Reading is
//! lenient: an unknown block, source or member is carried verbatim, and nothing a log can hold fails to parse.

mod chunk;
mod exchange;
mod failure;
mod message;
mod replay;

pub use chunk::{BlockType, Chunk, FinishReason, Usage};
pub use exchange::{
    Exchange, HeaderValue, HttpHeader, HttpRequest, ModelInfo, ModelsPage, Repair, Request, RouteInfo, Target, Tool,
};
pub use failure::{Failure, FailureCode};
pub use message::{AssistantMessage, Block, Image, Message, Role, Source};
pub use replay::{EnvelopeId, InvalidReplay, ReplayDegrade, ReplayEnvelope, ReplayHead, Routing};
