//! The wire as a whole, through the adapter's own trait.

mod decoding;
mod encoding;
mod round_trip;

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{
    Block, Chunk, Exchange, FinishReason, Message, Repair, ReplayEnvelope, Request, Role, Source, Target, Usage,
};
use dsh_plugin_api::{Adapter, Chunks, Decoder as _, ResponseHead, StreamEnd};
use serde_json::{Value, json};

use crate::PiAi;
use crate::testing::{Ends, Folded, fold};

/// An adapter with one route `local` and one model `m`; `model` and `compat` are merged in.
fn adapter(model: Value, compat: Value) -> PiAi {
    let mut entry = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192, "reasoning": true,
        "input": ["text", "image"], "compat": compat});
    if let (Some(entry), Some(model)) = (entry.as_object_mut(), model.as_object()) {
        entry.extend(model.clone());
    }
    let config = json!({"providers": {"local": {"api": "openai-responses", "base_url": "http://gateway.test/v1",
        "credential": "KEY", "models": [entry]}}});
    PiAi::new(serde_json::from_value(config).unwrap()).unwrap()
}

fn target() -> Target {
    Target { provider: "local".into(), model: "m".into() }
}

/// Everything a response gave.
#[derive(Debug)]
struct Decoded {
    chunks: Vec<Chunk>,
    blocks: Vec<Block>,
    finish: FinishReason,
    envelope: Option<ReplayEnvelope>,
    usage: Option<Usage>,
}

impl Decoded {
    /// Code of the failure, or the kind of the finish.
    fn outcome(&self) -> &str {
        self.finish.failure().map_or(self.finish.kind(), |failure| failure.code.name())
    }

    /// The chunks as text, for comparison.
    fn text(&self) -> String {
        raw(&self.chunks).get().to_owned()
    }

    fn content(&self) -> Value {
        serde_json::to_value(&self.blocks).unwrap()
    }

    fn entries(&self) -> Value {
        serde_json::to_value(&self.envelope.as_ref().unwrap().blocks).unwrap()
    }

    fn response(&self) -> Value {
        serde_json::from_str(self.envelope.as_ref().unwrap().response.get()).unwrap()
    }

    /// The message as a host would store it after a complete answer.
    fn message(&self) -> Message {
        let source = Source::model("local", "m", self.envelope.as_ref().map(raw));
        Message::new("a", Role::Assistant, self.blocks.clone(), source)
    }
}

/// Decodes a response that comes in pieces of `split` bytes.
fn decode_as(head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
    let headers = head.1.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let head = ResponseHead::Http { status: head.0, headers };
    let mut decoder = adapter(json!({}), json!({})).decoder(&head, &target()).unwrap();
    let mut out = Chunks::new();
    let mut reader = BatchReader::new();
    let mut chunks = Vec::new();
    let mut take = |out: &mut Chunks| {
        reader.read(&out.take_batch(), |item| match item {
            Item::Chunk(chunk) => chunks.push(chunk),
            Item::Wait(_) => {}
            Item::Malformed(text) => panic!("{text}"),
        });
    };
    for piece in body.chunks(split.max(1)) {
        decoder.feed(piece, &mut out);
        take(&mut out);
    }
    decoder.finish(end, &mut out);
    take(&mut out);
    folded(chunks)
}

fn folded(chunks: Vec<Chunk>) -> Decoded {
    let Folded { blocks, finish, envelope, usage } = fold(&chunks, Ends::Win);
    Decoded { blocks, finish, envelope, usage, chunks }
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

/// A request as a host would convert it: messages with a state are native.
fn encode(adapter: &PiAi, request: &Value) -> (Value, Vec<Repair>) {
    let request: Request = dsh_plugin_api::json::from_str(&request.to_string()).unwrap();
    let history = request.messages.iter().map(|message| match &message.source {
        Source::Model { replay_state: Some(state), .. } => {
            adapter.restore(message, &ReplayEnvelope::parse(state).unwrap(), &target()).unwrap()
        }
        _ => adapter.foreign(message, &target()).unwrap(),
    });
    let encoded = adapter.encode(&request, history.collect(), &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    (serde_json::from_str(http.body.get()).unwrap(), encoded.repairs)
}
