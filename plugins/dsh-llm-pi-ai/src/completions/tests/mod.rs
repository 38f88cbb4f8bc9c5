//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::vocab::{Block, Chunk, Exchange, Message, Repair, Request, Target};
use dsh_plugin_api::{Adapter, Chunks, Decoder as _, ResponseHead, StreamEnd};
use serde_json::{Value, json};

use crate::PiAi;
use crate::testing::{self, Decoded, encode, folded, target};

/// An adapter with one route `local` and one model `m`; `model` and `compat` are merged in.
fn adapter(model: Value, compat: Value) -> PiAi {
    let mut entry = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192, "reasoning": true,
        "input": ["text", "image"], "compat": compat});
    if let (Some(entry), Some(model)) = (entry.as_object_mut(), model.as_object()) {
        entry.extend(model.clone());
    }
    let config = json!({"providers": {"local": {"api": "openai-completions", "base_url": "http://gateway.test/v1",
        "credential": "KEY", "models": [entry]}}});
    PiAi::new(serde_json::from_value(config).unwrap()).unwrap()
}

/// Decodes a response that comes in pieces of `split` bytes.
fn decode_as(head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
    testing::decode_as(&adapter(json!({}), json!({})), head, body, split, end)
}

/// Decodes a complete event stream, whole and in small pieces.
fn decode(body: &str) -> Decoded {
    let whole = decode_as((200, &[]), body.as_bytes(), usize::MAX, &StreamEnd::Complete);
    for split in [1, 2, 3, 7] {
        let pieces = decode_as((200, &[]), body.as_bytes(), split, &StreamEnd::Complete);
        assert_eq!(pieces.text(), whole.text(), "pieces of {split}");
    }
    whole
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
