//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use dsh_plugin_api::StreamEnd;
use serde_json::{Value, json};

use crate::testing::{Decoded, Fixture};

/// A route `local` to one model `m`; `model` and `compat` are merged in.
fn adapter(model: Value, compat: Value) -> Fixture {
    adapter_with("short", model, compat)
}

/// The same with a cache retention.
fn adapter_with(retention: &str, mut model: Value, compat: Value) -> Fixture {
    model["compat"] = compat;
    let members = json!({"base_url": "http://gateway.test", "cache_retention": retention});
    Fixture::with_route("anthropic-messages", "m", model, members)
}

/// Decodes a response that comes in pieces of `split` bytes.
fn decode_as(head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
    adapter(json!({}), json!({})).decode_as(head, body, split, end)
}

/// Decodes a complete event stream, whole and in small pieces.
fn decode(body: &str) -> Decoded {
    adapter(json!({}), json!({})).decode(body)
}

/// An event with its name, as the provider writes it.
fn event(data: Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn message_start() -> String {
    event(json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "m", "content": [], "stop_reason": null, "usage": {"input_tokens": 25, "output_tokens": 1,
        "cache_creation_input_tokens": 100, "cache_read_input_tokens": 2000}}}))
}

fn start(index: u64, block: Value) -> String {
    event(json!({"type": "content_block_start", "index": index, "content_block": block}))
}

fn delta(index: u64, delta: Value) -> String {
    event(json!({"type": "content_block_delta", "index": index, "delta": delta}))
}

fn stop(index: u64) -> String {
    event(json!({"type": "content_block_stop", "index": index}))
}

/// Stop reason and terminal event.
fn end(reason: &str) -> String {
    event(json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
        "usage": {"output_tokens": 42}}))
        + &event(json!({"type": "message_stop"}))
}

fn text_delta(index: u64, text: &str) -> String {
    delta(index, json!({"type": "text_delta", "text": text}))
}

fn signature(index: u64, fragment: &str) -> String {
    delta(index, json!({"type": "signature_delta", "signature": fragment}))
}

fn json_delta(index: u64, json: &str) -> String {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

/// A block of text, in one piece.
fn text(index: u64, text: &str) -> String {
    start(index, json!({"type": "text", "text": ""})) + &text_delta(index, text) + &stop(index)
}

/// A block of thinking, in two pieces, with its signature.
fn thinking(index: u64, first: &str, second: &str, signed: &str) -> String {
    let piece = |text: &str| delta(index, json!({"type": "thinking_delta", "thinking": text}));
    start(index, json!({"type": "thinking", "thinking": "", "signature": ""}))
        + &piece(first)
        + &piece(second)
        + &signature(index, signed)
        + &stop(index)
}

/// A tool call whose arguments come in one piece.
fn call(index: u64, id: &str, name: &str, arguments: &str) -> String {
    start(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
        + &json_delta(index, arguments)
        + &stop(index)
}

/// A complete answer of one text in `deltas` pieces, as the provider streams it.
fn text_stream(deltas: usize) -> String {
    let words = ["The", " quick", " brown", " fox", " jumps", " over", " the", " lazy", " dog", ".\n"];
    let pieces: String = words.iter().cycle().take(deltas).map(|word| text_delta(0, word)).collect();
    let ping = event(json!({"type": "ping"}));
    message_start() + &start(0, json!({"type": "text", "text": ""})) + &ping + &pieces + &stop(0) + &end("end_turn")
}
