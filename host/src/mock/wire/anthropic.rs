//! Anthropic's messages (<https://docs.anthropic.com/en/api/messages-streaming>): blocks that start, take deltas and
//! stop, or one message when the request does not ask for a stream. Reasoning is signed.

use serde_json::{Value, json};

use super::{Ask, Fault, Reply, object_of, split_chars, type_of};
use crate::mock::script::{Described, ErrorKind, Finish};

/// A block: as it starts, and its deltas.
type Block = (Value, Vec<Value>);

pub(super) fn spell(answer: &Described, ask: &Ask) -> Result<Reply, String> {
    if !ask.streams() {
        return Ok(Reply::whole(&whole(answer, ask)?));
    }
    let mut message = message(ask);
    message["usage"] = usage(answer, ask, 1);
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, (start, deltas)) in blocks(answer, ask).into_iter().enumerate() {
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        let delta = |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    if let Some(error) = &answer.error {
        events.push(error_body(&fault(error.kind).saying(error), ask.number));
        return Ok(Reply::events(&events, type_of));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": { "stop_reason": stop_reason(answer.finish), "stop_sequence": null },
        "usage": { "output_tokens": ask.usage(answer).output },
    }));
    events.push(json!({ "type": "message_stop" }));
    Ok(Reply::events(&events, type_of))
}

fn blocks(answer: &Described, ask: &Ask) -> Vec<Block> {
    let pieces = |text: &str, kind: &str, member: &str| -> Vec<Value> {
        let pieces = split_chars(text, answer.chunk_chars).into_iter();
        pieces.map(|piece| json!({ "type": kind, member: piece })).collect()
    };
    let mut blocks = Vec::new();
    if answer.reasoning_hidden {
        blocks.push((redacted(answer, ask), Vec::new()));
    } else if answer.thinks() {
        let mut deltas = pieces(&answer.reasoning, "thinking_delta", "thinking");
        deltas.push(json!({ "type": "signature_delta", "signature": ask.signature(answer) }));
        blocks.push((json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas));
    }
    if !answer.text.is_empty() {
        blocks.push((json!({ "type": "text", "text": "" }), pieces(&answer.text, "text_delta", "text")));
    }
    for call in &answer.tool_calls {
        let start = json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": {} });
        blocks.push((start, pieces(&call.arguments, "input_json_delta", "partial_json")));
    }
    blocks
}

/// Thinking that is not shown.
fn redacted(answer: &Described, ask: &Ask) -> Value {
    json!({ "type": "redacted_thinking", "data": ask.signature(answer) })
}

fn whole(answer: &Described, ask: &Ask) -> Result<Value, String> {
    let mut content = Vec::new();
    if answer.reasoning_hidden {
        content.push(redacted(answer, ask));
    } else if answer.thinks() {
        let signature = ask.signature(answer);
        content.push(json!({ "type": "thinking", "thinking": answer.reasoning, "signature": signature }));
    }
    if !answer.text.is_empty() {
        content.push(json!({ "type": "text", "text": answer.text }));
    }
    for call in &answer.tool_calls {
        let input = object_of(call, "a message that is not streamed")?;
        content.push(json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input }));
    }
    let mut message = message(ask);
    message["content"] = json!(content);
    message["stop_reason"] = json!(stop_reason(answer.finish));
    message["usage"] = usage(answer, ask, ask.usage(answer).output);
    Ok(message)
}

/// The message as it begins.
fn message(ask: &Ask) -> Value {
    json!({
        "id": format!("msg_mock_{}", ask.number),
        "type": "message",
        "role": "assistant",
        "model": ask.model(),
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
    })
}

/// This wire counts input without what was read from the cache or written to it.
fn usage(answer: &Described, ask: &Ask, output: u64) -> Value {
    let counts = ask.usage(answer);
    json!({
        "input_tokens": counts.input.saturating_sub(counts.cache_read + counts.cache_write),
        "cache_creation_input_tokens": counts.cache_write,
        "cache_read_input_tokens": counts.cache_read,
        "output_tokens": output,
    })
}

const fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::ToolCalls => "tool_use",
        Finish::ContentFilter => "refusal",
    }
}

/// <https://docs.anthropic.com/en/api/errors>
pub(super) fn fault(kind: ErrorKind) -> Fault {
    let (status, name, message) = match kind {
        ErrorKind::InvalidRequest => (400, "invalid_request_error", "Invalid request"),
        ErrorKind::Authentication => (401, "authentication_error", "invalid x-api-key"),
        ErrorKind::Permission => (403, "permission_error", "Your API key does not have permission to use this model"),
        ErrorKind::NotFound => (404, "not_found_error", "model not found"),
        ErrorKind::RateLimit => (429, "rate_limit_error", "Number of request tokens has exceeded your rate limit"),
        ErrorKind::Quota => (402, "billing_error", "There is an issue with your billing or payment information"),
        ErrorKind::ContextWindow => {
            (400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum")
        }
        ErrorKind::Server => (500, "api_error", "Internal server error"),
        ErrorKind::Overloaded => (529, "overloaded_error", "Overloaded"),
    };
    Fault { status, name, code: None, message: message.to_owned() }
}

pub(super) fn error_body(fault: &Fault, number: usize) -> Value {
    let Fault { name, message, .. } = fault;
    let error = json!({ "type": name, "message": message });
    json!({ "type": "error", "error": error, "request_id": format!("req_mock_{number}") })
}
