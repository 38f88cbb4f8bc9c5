//! What decoders do with the pieces of an answer.

use serde_json::value::RawValue;

use super::head::HeadFacts;
use super::lenient::is_string;
use crate::json::Joiner;
use crate::vocab::{Failure, FailureCode, FinishReason};
use crate::{Chunks, Slot};

/// Appends what a joiner still holds when its block ends: a high surrogate that has lost its partner, as U+FFFD. True
/// when there was one.
pub fn flush(slot: Slot, joiner: &mut Joiner, out: &mut Chunks) -> bool {
    let last = joiner.finish();
    if let Some(c) = last {
        out.delta(slot, c.encode_utf8(&mut [0; 4]));
    }
    last.is_some()
}

/// What an answer holds that its provider calls complete.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// A tool call never got a name.
    pub nameless_call: bool,
    /// There is a tool call.
    pub call: bool,
    /// There is text that is not blank.
    pub text: bool,
}

impl Said {
    /// How the answer ends: `tool-calls` or `stop`.
    ///
    /// # Errors
    ///
    /// `PROTOCOL` for a call without a name, which cannot run; `EMPTY_RESPONSE` for an answer without content.
    pub fn finish(self, head: &HeadFacts) -> Result<FinishReason, Failure> {
        if self.nameless_call {
            Err(head.failure(FailureCode::Protocol, "the provider sent a tool call without a name"))
        } else if self.call {
            Ok(FinishReason::ToolCalls)
        } else if self.text {
            Ok(FinishReason::Stop)
        } else {
            Err(head.failure(FailureCode::EmptyResponse, "the provider sent a complete answer without content"))
        }
    }
}

/// True for a JSON string that is not empty.
#[must_use]
pub fn says_something(value: &RawValue) -> bool {
    is_string(value) && value.get() != "\"\""
}

/// An id for a call that came without one: legal on every wire, the same for the same response, and different in the
/// next one. `ordinal` counts the calls of the response from 0.
#[must_use]
pub fn made_up_id(response_id: Option<&str>, ordinal: usize) -> String {
    let response = response_id.unwrap_or_default();
    format!("call_{:012x}_{ordinal}", super::hash::fnv1a(response.as_bytes()) >> 16)
}
