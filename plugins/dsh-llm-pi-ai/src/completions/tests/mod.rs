//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use dsh_plugin_api::vocab::{Chunk, Exchange, Message, Repair, Request, Target};
use dsh_plugin_api::{Adapter, StreamEnd};
use serde_json::{Value, json};

use crate::testing::{Decoded, Fixture, target};

/// A route `local` to one model `m`; `model` and `compat` are merged in.
fn adapter(mut model: Value, compat: Value) -> Fixture {
    model["compat"] = compat;
    Fixture::new("openai-completions", "m", model)
}

/// Decodes a response that comes in pieces of `split` bytes.
fn decode_as(head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
    adapter(json!({}), json!({})).decode_as(head, body, split, end)
}

/// Decodes a complete event stream, whole and in small pieces.
fn decode(body: &str) -> Decoded {
    adapter(json!({}), json!({})).decode(body)
}

/// An event with one delta.
fn delta(delta: Value) -> String {
    format!("data: {}\n\n", json!({"id": "r-1", "model": "m", "choices": [{"index": 0, "delta": delta}]}))
}

/// The finish reason and the terminal mark.
fn end(reason: &str) -> String {
    let choice = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
    format!("data: {choice}\n\ndata: [DONE]\n\n")
}
