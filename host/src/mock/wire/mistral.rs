//! Mistral's chat completions (<https://docs.mistral.ai/api>): the events of the completions wire, with thinking as a
//! chunk of the content, each call whole in one delta, and usage always, beside the finish reason.

use serde_json::{Value, json};

use super::completions::{Frame, finish, stream, whole_call};
use super::{Ask, Fault, Reply, split_chars};
use crate::mock::script::{Described, ErrorKind, Finish};

pub(super) fn spell(answer: &Described, ask: &Ask) -> Result<Reply, String> {
    if answer.finish == Finish::ContentFilter {
        return Err("Mistral's wire has no finish reason for a content filter".to_owned());
    }
    if !ask.streams() {
        return Ok(Reply::whole(&whole(answer, ask)));
    }
    let frame = Frame::new(ask, "chat.completion.chunk");
    let choice = |delta: Value, reason: Option<&str>| {
        frame.object(json!([{ "index": 0, "delta": delta, "finish_reason": reason }]))
    };
    let mut deltas = vec![json!({ "role": "assistant", "content": "" })];
    for piece in split_chars(answer.shown_reasoning(), answer.chunk_chars) {
        deltas.push(json!({ "content": [thinking(piece)] }));
    }
    for piece in split_chars(&answer.text, answer.chunk_chars) {
        deltas.push(json!({ "content": piece }));
    }
    let mut chunks: Vec<Value> = deltas.into_iter().map(|delta| choice(delta, None)).collect();
    if let Some(error) = &answer.error {
        // What is in the answer stands before the error, calls too.
        if !answer.tool_calls.is_empty() {
            chunks.push(choice(json!({ "content": "", "tool_calls": calls(answer) }), None));
        }
        chunks.push(error_body(&fault(error.kind).saying(error)));
        return Ok(Reply::events(&chunks, |_| None));
    }
    let mut last = json!({ "content": "" });
    if !answer.tool_calls.is_empty() {
        last["tool_calls"] = calls(answer);
    }
    let mut last = choice(last, Some(finish(answer.finish)));
    last["usage"] = usage(answer, ask);
    chunks.push(last);
    Ok(stream(&chunks))
}

fn thinking(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": [{ "type": "text", "text": text }] })
}

fn calls(answer: &Described) -> Value {
    let call = |(index, call)| {
        let mut call = whole_call(call);
        call["index"] = json!(index);
        call
    };
    answer.tool_calls.iter().enumerate().map(call).collect()
}

fn whole(answer: &Described, ask: &Ask) -> Value {
    let content = match answer.shown_reasoning() {
        "" => json!(answer.text),
        reasoning => json!([thinking(reasoning), { "type": "text", "text": answer.text }]),
    };
    let calls = if answer.tool_calls.is_empty() { Value::Null } else { calls(answer) };
    let message = json!({ "role": "assistant", "content": content, "tool_calls": calls });
    let choices = json!([{ "index": 0, "message": message, "finish_reason": finish(answer.finish) }]);
    let mut object = Frame::new(ask, "chat.completion").object(choices);
    object["usage"] = usage(answer, ask);
    object
}

/// This wire counts neither thoughts nor writes to the cache apart.
fn usage(answer: &Described, ask: &Ask) -> Value {
    let counts = ask.usage(answer);
    json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": { "cached_tokens": counts.cache_read },
    })
}

/// The numbers are those of the errors that the server sends; not every error has one.
pub(super) fn fault(kind: ErrorKind) -> Fault {
    let (status, name, code, message) = match kind {
        ErrorKind::InvalidRequest => (400, "invalid_request_error", Some("3000"), "Invalid request"),
        ErrorKind::Authentication => (401, "unauthorized", None, "Unauthorized"),
        ErrorKind::Permission => (403, "permission_error", None, "Forbidden"),
        ErrorKind::NotFound => (404, "not_found", None, "Not found"),
        ErrorKind::RateLimit => (429, "rate_limited", Some("1300"), "Rate limit exceeded"),
        ErrorKind::Quota => (402, "payment_required", None, "Payment required"),
        ErrorKind::ContextWindow => (
            400,
            "invalid_request_prompt",
            Some("3051"),
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
        ),
        ErrorKind::Server => (500, "internal_server_error", Some("1000"), "Internal server error"),
        ErrorKind::Overloaded => (503, "unreachable_backend", Some("1100"), "Service unavailable."),
    };
    Fault { status, name, code, message: message.to_owned() }
}

/// The error is the object itself.
pub(super) fn error_body(fault: &Fault) -> Value {
    let Fault { name, code, message, .. } = fault;
    json!({ "object": "error", "message": message, "type": name, "param": null, "code": code })
}
