//! OpenAI-compatible chat completions: a server-sent event stream of `chat.completion.chunk` objects, or one
//! `chat.completion` object when the request does not ask for a stream.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Ask, Reply, estimate, split_chars};
use crate::mock::script::{Described, Finish, UsageCounts};

pub(super) fn spell(answer: &Described, ask: &Ask) -> Reply {
    let flag = |key: &str| ask.body.get(key).is_some_and(|value| value.get() == "true");
    if !flag("stream") {
        return Reply { content_type: "application/json", pieces: vec![whole(answer, ask).to_string()] };
    }
    let options = ask.body.get("stream_options").and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    let with_usage = options.is_some_and(|options| options["include_usage"] == true);
    let frame = Frame::new(ask, "chat.completion.chunk");

    let choice = |delta: Value, finish: Option<&str>| json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
    let mut chunks: Vec<Value> = deltas(answer).into_iter().map(|delta| frame.object(choice(delta, None))).collect();
    chunks.push(frame.object(choice(json!({}), Some(finish(answer.finish)))));
    if with_usage {
        for chunk in &mut chunks {
            chunk["usage"] = Value::Null;
        }
        let mut last = frame.object(json!([]));
        last["usage"] = usage(answer, ask);
        chunks.push(last);
    }
    let mut pieces: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    pieces.push("data: [DONE]\n\n".to_owned());
    Reply { content_type: "text/event-stream", pieces }
}

/// The role first, then reasoning, text and calls in pieces.
fn deltas(answer: &Described) -> Vec<Value> {
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    for piece in split_chars(&answer.reasoning, answer.chunk_chars) {
        deltas.push(json!({ answer.reasoning_field.as_str(): piece }));
    }
    for piece in split_chars(&answer.text, answer.chunk_chars) {
        deltas.push(json!({ "content": piece }));
    }
    for (index, call) in answer.tool_calls.iter().enumerate() {
        let function = json!({ "name": call.name, "arguments": "" });
        deltas.push(
            json!({ "tool_calls": [{ "index": index, "id": call.id, "type": "function", "function": function }] }),
        );
        for piece in split_chars(&call.arguments, answer.chunk_chars) {
            deltas.push(json!({ "tool_calls": [{ "index": index, "function": { "arguments": piece } }] }));
        }
    }
    deltas
}

fn whole(answer: &Described, ask: &Ask) -> Value {
    let content = if answer.text.is_empty() { Value::Null } else { json!(answer.text) };
    let mut message = json!({ "role": "assistant", "content": content });
    if !answer.reasoning.is_empty() {
        message[answer.reasoning_field.as_str()] = json!(answer.reasoning);
    }
    if !answer.tool_calls.is_empty() {
        let call = |call: &crate::mock::ToolCall| json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } });
        message["tool_calls"] = answer.tool_calls.iter().map(call).collect();
    }
    let choices = json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer.finish) }]);
    let mut object = Frame::new(ask, "chat.completion").object(choices);
    object["usage"] = usage(answer, ask);
    object
}

/// What all objects of one answer have in common.
struct Frame {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

impl Frame {
    fn new(ask: &Ask, object: &'static str) -> Self {
        Self {
            id: format!("chatcmpl-mock-{}", ask.number),
            object,
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            model: ask.body.get_str("model").unwrap_or_default(),
        }
    }

    fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

const fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
    }
}

fn usage(answer: &Described, ask: &Ask) -> Value {
    let calls: usize = answer.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
    let counts = answer.usage.unwrap_or_else(|| UsageCounts {
        input: estimate(ask.length),
        output: estimate(answer.text.len() + answer.reasoning.len() + calls),
        cache_read: 0,
        reasoning: estimate(answer.reasoning.len()),
    });
    json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": { "cached_tokens": counts.cache_read },
        "completion_tokens_details": { "reasoning_tokens": counts.reasoning },
    })
}
