//! What decoders do with the pieces of an answer.

use serde_json::value::RawValue;

use super::lenient::is_string;
use crate::json::Joiner;
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
