//! What the decoders of all wires do with the pieces of an answer.

use dsh_plugin_api::json::Joiner;
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use crate::envelope::ResponseFacts;
use crate::lenient::is_string;

/// A high surrogate at the end of a block has lost its partner.
pub(crate) fn flush(slot: Slot, joiner: &mut Joiner, out: &mut Chunks) {
    if let Some(c) = joiner.finish() {
        out.delta(slot, c.encode_utf8(&mut [0; 4]));
    }
}

/// True for a string that is not empty.
pub(crate) fn says_something(value: &RawValue) -> bool {
    is_string(value) && value.get() != "\"\""
}

/// An id for a call that came without one: legal on every wire, the same for the same response, and different in
/// the next one.
pub(crate) fn made_up_id(facts: &ResponseFacts, ordinal: usize) -> String {
    let response = facts.response_id.as_deref().unwrap_or_default();
    format!("call_{:012x}_{ordinal}", crate::hash::fnv1a(response.as_bytes()) >> 16)
}
