//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Chunk, Exchange, FinishReason, ReplayEnvelope, Request, Source, Target};
use dsh_plugin_api::{Adapter, StreamEnd};
use serde_json::{Value, json};

use crate::PiAi;
use crate::testing::{Decoded, Fixture, target};

/// A route `local` to one model `m`; `model` and `compat` are merged in.
fn adapter(mut model: Value, compat: Value) -> Fixture {
    model["compat"] = compat;
    Fixture::new("openai-responses", "m", model)
}

/// Decodes a response that comes in pieces of `split` bytes.
fn decode_as(head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
    adapter(json!({}), json!({})).decode_as(head, body, split, end)
}

/// Decodes a complete event stream, whole and in small pieces.
fn decode(body: &str) -> Decoded {
    adapter(json!({}), json!({})).decode(body)
}

/// One event.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// A delta of an item.
fn delta(kind: &str, index: usize, text: &str) -> String {
    event(&json!({"type": format!("response.{kind}.delta"), "output_index": index, "content_index": 0,
        "summary_index": 0, "delta": text}))
}

fn added(index: usize, item: &Value) -> String {
    event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))
}

fn done(index: usize, item: &Value) -> String {
    event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))
}

/// The end of a response.
fn end(status: &str, more: Value) -> String {
    let mut response = json!({"id": "resp_1", "model": "m", "status": status, "output": []});
    response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(&json!({"type": format!("response.{status}"), "response": response}))
}

fn completed() -> String {
    end("completed", json!({}))
}

fn message(id: &str, text: &str) -> Value {
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function_call(n: &str, arguments: &str) -> Value {
    json!({"id": format!("fc_{n}"), "type": "function_call", "status": "completed", "call_id": format!("call_{n}"),
        "name": "bash", "arguments": arguments})
}

fn reasoning(id: &str, texts: &[&str], encrypted: &str) -> Value {
    let summary: Vec<_> = texts.iter().map(|text| json!({"type": "summary_text", "text": text})).collect();
    json!({"id": id, "type": "reasoning", "summary": summary, "encrypted_content": encrypted})
}

/// A realistic stream of a text in `deltas` pieces, with every event that the provider writes around them.
fn long_stream(deltas: usize) -> String {
    let piece = "a word or two ";
    let created =
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "model": "m"}});
    let part = |kind: &str, text: &str| {
        event(&json!({"type": format!("response.content_part.{kind}"), "item_id": "msg_1", "output_index": 0,
            "content_index": 0, "part": {"type": "output_text", "text": text, "annotations": [], "logprobs": []}}))
    };
    let mut out = event(&created) + &added(0, &json!({"id": "msg_1", "type": "message", "content": []}));
    out += &part("added", "");
    for n in 0..deltas {
        out += &event(&json!({"type": "response.output_text.delta", "sequence_number": n + 3, "item_id": "msg_1",
            "output_index": 0, "content_index": 0, "delta": piece, "logprobs": [], "obfuscation": "Xy3"}));
    }
    let whole = piece.repeat(deltas);
    let text_done = json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 0,
        "content_index": 0, "text": whole});
    out += &event(&text_done);
    out += &part("done", &whole);
    let usage = json!({"input_tokens": 12, "output_tokens": deltas});
    out + &done(0, &message("msg_1", &whole)) + &end("completed", json!({"usage": usage}))
}
