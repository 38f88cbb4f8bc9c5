//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use serde_json::{Value, json};

use crate::testing::Fixture;

/// A route to this model; the members of `more` are those of its manifest entry.
fn route(model: &str, more: Value) -> Fixture {
    Fixture::new("google-generative-ai", model, more)
}

/// A route to Gemini 3.
fn gemini() -> Fixture {
    route("gemini-3-pro-preview", json!({}))
}

/// An event with these parts.
fn parts(parts: &Value) -> String {
    let candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    format!("data: {}\r\n\r\n", json!({"candidates": [candidate], "modelVersion": "g", "responseId": "r-1"}))
}

/// The last event, with the usage of 7 tokens in and 3 out.
fn end(reason: &str) -> String {
    let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10});
    let candidate = json!({"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reason, "index": 0});
    format!("data: {}\r\n\r\n", json!({"candidates": [candidate], "usageMetadata": usage, "responseId": "r-1"}))
}

/// A stream of `count` deltas of text, as the provider sends it.
fn text_stream(count: usize) -> String {
    let event = |n: usize| {
        let candidate =
            json!({"content": {"parts": [{"text": format!("word {n} and ")}], "role": "model"}, "index": 0});
        let usage = json!({"promptTokenCount": 1200, "candidatesTokenCount": n, "totalTokenCount": 1200 + n,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1200}]});
        let event = json!({"candidates": [candidate], "usageMetadata": usage,
            "modelVersion": "gemini-3-pro-preview", "responseId": "kQ7_aNf"});
        format!("data: {event}\r\n\r\n")
    };
    (0..count).map(event).collect::<String>() + &end("STOP")
}
