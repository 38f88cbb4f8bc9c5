//! OpenAI-compatible chat completions: a server-sent event stream of `chat.completion.chunk` objects, or one
//! `chat.completion` object when the request does not ask for a stream.

use serde_json::{Value, json};

use super::{Ask, Fault, Reply, split_chars, unix_seconds};
use crate::mock::script::{Described, ErrorKind, Finish, ToolCall};

pub(super) fn spell(answer: &Described, ask: &Ask) -> Reply {
    if !ask.streams() {
        return Reply::whole(&whole(answer, ask));
    }
    let options = ask.body.get("stream_options").and_then(|value| serde_json::from_str::<Value>(value.get()).ok());
    let with_usage = options.is_some_and(|options| options["include_usage"] == true);
    let frame = Frame::new(ask, "chat.completion.chunk");

    let mut chunks: Vec<Value> = deltas(answer).into_iter().map(|delta| frame.choice(&delta, None)).collect();
    if let Some(error) = &answer.error {
        chunks.push(error_body(&fault(error.kind).saying(error)));
        return Reply::events(&chunks, |_| None);
    }
    chunks.push(frame.choice(&json!({}), Some(finish(answer.finish))));
    if with_usage {
        for chunk in &mut chunks {
            chunk["usage"] = Value::Null;
        }
        let mut last = frame.object(json!([]));
        last["usage"] = usage(answer, ask);
        chunks.push(last);
    }
    stream(&chunks)
}

/// The chunks as events, and the mark that ends them.
pub(super) fn stream(chunks: &[Value]) -> Reply {
    let mut reply = Reply::events(chunks, |_| None);
    reply.pieces.push("data: [DONE]\n\n".to_owned());
    reply
}

/// The role first, then reasoning, text and calls in pieces.
fn deltas(answer: &Described) -> Vec<Value> {
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    for piece in split_chars(answer.shown_reasoning(), answer.chunk_chars) {
        deltas.push(json!({ answer.reasoning_field.as_str(): piece }));
    }
    for piece in split_chars(&answer.text, answer.chunk_chars) {
        deltas.push(json!({ "content": piece }));
    }
    deltas.extend(call_deltas(answer));
    deltas
}

/// Each call with its name first, then its arguments in pieces.
pub(super) fn call_deltas(answer: &Described) -> Vec<Value> {
    let mut deltas = Vec::new();
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
    if !answer.shown_reasoning().is_empty() {
        message[answer.reasoning_field.as_str()] = json!(answer.reasoning);
    }
    if !answer.tool_calls.is_empty() {
        message["tool_calls"] = answer.tool_calls.iter().map(whole_call).collect();
    }
    let choices = json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer.finish) }]);
    let mut object = Frame::new(ask, "chat.completion").object(choices);
    object["usage"] = usage(answer, ask);
    object
}

/// A call as one object.
pub(super) fn whole_call(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

/// What all objects of one answer have in common.
pub(super) struct Frame {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
}

impl Frame {
    pub fn new(ask: &Ask, object: &'static str) -> Self {
        Self { id: format!("chatcmpl-mock-{}", ask.number), object, created: unix_seconds(), model: ask.model() }
    }

    /// An object with one choice, which is streamed.
    pub fn choice(&self, delta: &Value, reason: Option<&str>) -> Value {
        self.object(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]))
    }

    /// An object with these choices.
    pub fn object(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}

pub(super) const fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
        Finish::ContentFilter => "content_filter",
    }
}

/// Writes to the cache are told by routers alone, so there is a count only when the script has one.
fn usage(answer: &Described, ask: &Ask) -> Value {
    let counts = ask.usage(answer);
    let mut usage = json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": { "cached_tokens": counts.cache_read },
        "completion_tokens_details": { "reasoning_tokens": counts.reasoning },
    });
    if counts.cache_write > 0 {
        usage["prompt_tokens_details"]["cache_write_tokens"] = json!(counts.cache_write);
    }
    usage
}

/// <https://platform.openai.com/docs/guides/error-codes>
pub(super) fn fault(kind: ErrorKind) -> Fault {
    let request = "invalid_request_error";
    let (status, name, code, message) = match kind {
        ErrorKind::InvalidRequest => (400, request, None, "Invalid request"),
        ErrorKind::Authentication => (401, request, Some("invalid_api_key"), "Incorrect API key provided"),
        ErrorKind::Permission => (403, "permission_error", None, "You are not allowed to use this model"),
        ErrorKind::NotFound => (404, request, Some("model_not_found"), "The model does not exist"),
        ErrorKind::RateLimit => (429, "requests", Some("rate_limit_exceeded"), "Rate limit reached for requests"),
        ErrorKind::Quota => (
            429,
            "insufficient_quota",
            Some("insufficient_quota"),
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        ErrorKind::ContextWindow => (
            400,
            request,
            Some("context_length_exceeded"),
            "This model's maximum context length is 128000 tokens. Please reduce the length of the messages.",
        ),
        ErrorKind::Server => (500, "server_error", None, "The server had an error while processing your request"),
        ErrorKind::Overloaded => (503, "server_error", None, "The engine is currently overloaded"),
    };
    Fault { status, name, code, message: message.to_owned() }
}

pub(super) fn error_body(fault: &Fault) -> Value {
    let Fault { name, code, message, .. } = fault;
    json!({ "error": { "message": message, "type": name, "param": null, "code": code } })
}
