//! DeepSeek's chat completions (<https://api-docs.deepseek.com/api/create-chat-completion>): the events of the completions
//! wire, with reasoning beside the content and usage always, which counts hits and misses of the cache apart.

use serde_json::{Value, json};

use super::completions::{Frame, call_deltas, error_body, finish, stream, whole_call};
use super::{Ask, Fault, Reply, split_chars};
use crate::mock::script::{Described, ErrorKind};

pub(super) fn spell(answer: &Described, ask: &Ask) -> Reply {
    if !ask.streams() {
        return Reply::whole(&whole(answer, ask));
    }
    let frame = Frame::new(ask, "chat.completion.chunk");
    let mut chunks: Vec<Value> = deltas(answer).into_iter().map(|delta| frame.choice(&delta, None)).collect();
    if let Some(error) = &answer.error {
        chunks.push(error_body(&fault(error.kind).saying(error)));
        return Reply::events(&chunks, |_| None);
    }
    let silent = json!({ "content": "", "reasoning_content": null });
    let mut last = frame.choice(&silent, Some(finish(answer.finish)));
    last["usage"] = usage(answer, ask);
    chunks.push(last);
    stream(&chunks)
}

/// The role first; whichever of content and reasoning does not speak is null.
fn deltas(answer: &Described) -> Vec<Value> {
    let mut deltas = vec![json!({ "role": "assistant", "content": null, "reasoning_content": "" })];
    for piece in split_chars(answer.shown_reasoning(), answer.chunk_chars) {
        deltas.push(json!({ "content": null, "reasoning_content": piece }));
    }
    for piece in split_chars(&answer.text, answer.chunk_chars) {
        deltas.push(json!({ "content": piece, "reasoning_content": null }));
    }
    deltas.extend(call_deltas(answer));
    deltas
}

fn whole(answer: &Described, ask: &Ask) -> Value {
    let mut message = json!({ "role": "assistant", "content": answer.text });
    if !answer.shown_reasoning().is_empty() {
        message["reasoning_content"] = json!(answer.reasoning);
    }
    if !answer.tool_calls.is_empty() {
        message["tool_calls"] = answer.tool_calls.iter().map(whole_call).collect();
    }
    let choices = json!([{ "index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer.finish) }]);
    let mut object = Frame::new(ask, "chat.completion").object(choices);
    object["usage"] = usage(answer, ask);
    object
}

/// This wire knows no writes to the cache: what was written is a miss.
fn usage(answer: &Described, ask: &Ask) -> Value {
    let counts = ask.usage(answer);
    json!({
        "prompt_tokens": counts.input,
        "completion_tokens": counts.output,
        "total_tokens": counts.input + counts.output,
        "prompt_tokens_details": { "cached_tokens": counts.cache_read },
        "completion_tokens_details": { "reasoning_tokens": counts.reasoning },
        "prompt_cache_hit_tokens": counts.cache_read,
        "prompt_cache_miss_tokens": counts.input.saturating_sub(counts.cache_read),
    })
}

/// <https://api-docs.deepseek.com/quick_start/error_codes>
pub(super) fn fault(kind: ErrorKind) -> Fault {
    let (status, name, message) = match kind {
        ErrorKind::InvalidRequest => (400, "invalid_request_error", "Invalid Format"),
        ErrorKind::Authentication => (401, "authentication_error", "Authentication Fails"),
        ErrorKind::Permission => (403, "permission_error", "Permission denied"),
        ErrorKind::NotFound => (404, "invalid_request_error", "Model Not Exist"),
        ErrorKind::RateLimit => (429, "rate_limit_error", "Rate Limit Reached"),
        ErrorKind::Quota => (402, "unknown_error", "Insufficient Balance"),
        ErrorKind::ContextWindow => {
            (400, "invalid_request_error", "This model's maximum context length is 65536 tokens")
        }
        ErrorKind::Server => (500, "server_error", "Server Error"),
        ErrorKind::Overloaded => (503, "server_error", "Server Overloaded"),
    };
    // Whatever is the client's fault has the same code.
    let code = (status < 429).then_some("invalid_request_error");
    Fault { status, name, code, message: message.to_owned() }
}
