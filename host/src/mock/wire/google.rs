//! Google's `generateContent` (<https://ai.google.dev/api/generate-content>): parts of a candidate, as server-sent events
//! with `alt=sse`, as one array without it, or as one object where no stream is asked for.
//!
//! A signature stands on the first call, or behind the text where there is no call. Calls come whole.

use serde_json::{Value, json};

use super::{Ask, Fault, Reply, object_of, split_chars};
use crate::mock::script::{Described, ErrorKind, Finish};

/// What the path of a request ends with.
const METHODS: [&str; 2] = [":streamGenerateContent", ":generateContent"];

/// True for a path without query that names a model and one of the methods.
pub(super) fn is_path(path: &str) -> bool {
    path.contains("/models/") && METHODS.iter().any(|method| path.ends_with(method))
}

/// True for a path without query that asks for a stream.
pub(super) fn is_stream(path: &str) -> bool {
    path.ends_with(METHODS[0])
}

pub(super) fn spell(answer: &Described, ask: &Ask) -> Result<Reply, String> {
    let (path, query) = ask.path.split_once('?').unwrap_or((&ask.path, ""));
    let streams = is_stream(path);
    let (name, _) = path.rsplit_once(':').unwrap_or((path, ""));
    let model = name.rsplit_once("/models/").map_or(name, |(_, model)| model);
    let chars = if streams { answer.chunk_chars } else { usize::MAX };

    let object = |parts: &[Value]| {
        json!({
            "candidates": [{ "content": { "parts": parts, "role": "model" }, "index": 0 }],
            "modelVersion": model,
            "responseId": format!("mock-{}", ask.number),
        })
    };
    let parts = parts(answer, ask, chars)?;
    let mut events: Vec<Value> = if streams {
        parts.iter().map(|part| object(std::slice::from_ref(part))).collect()
    } else {
        vec![object(&parts)]
    };
    if let Some(error) = &answer.error {
        events.push(error_body(&fault(error.kind).saying(error)));
    } else {
        if events.is_empty() {
            events.push(object(&[json!({ "text": "" })]));
        }
        if let Some(last) = events.last_mut() {
            last["candidates"][0]["finishReason"] = json!(finish_reason(answer.finish));
            last["usageMetadata"] = usage(answer, ask);
        }
    }
    Ok(match events.as_slice() {
        [whole] if !streams => Reply::whole(whole),
        events if query.split('&').any(|parameter| parameter == "alt=sse") => Reply::events(events, |_| None),
        events => array(events),
    })
}

/// The array of a stream that is not asked for as server-sent events: an element a piece.
fn array(events: &[Value]) -> Reply {
    let last = events.len().saturating_sub(1);
    let piece = |(at, event): (usize, &Value)| {
        let (before, after) = (if at == 0 { "[" } else { "" }, if at == last { "]" } else { ",\r\n" });
        format!("{before}{event}{after}")
    };
    Reply { content_type: "application/json", pieces: events.iter().enumerate().map(piece).collect() }
}

fn parts(answer: &Described, ask: &Ask, chars: usize) -> Result<Vec<Value>, String> {
    let mut parts = Vec::new();
    for piece in split_chars(answer.shown_reasoning(), chars) {
        parts.push(json!({ "text": piece, "thought": true }));
    }
    for piece in split_chars(&answer.text, chars) {
        parts.push(json!({ "text": piece }));
    }
    let mut signature = (answer.thinks() || answer.signature.is_some()).then(|| ask.signature(answer));
    for call in &answer.tool_calls {
        let arguments = object_of(call, "Google's wire")?;
        let mut part = json!({ "functionCall": { "id": call.id, "name": call.name, "args": arguments } });
        if let Some(signature) = signature.take() {
            part["thoughtSignature"] = json!(signature);
        }
        parts.push(part);
    }
    if let Some(signature) = signature.filter(|_| !answer.text.is_empty()) {
        parts.push(json!({ "text": "", "thoughtSignature": signature }));
    }
    Ok(parts)
}

/// This wire counts thoughts beside the candidates, and no writes to the cache.
fn usage(answer: &Described, ask: &Ask) -> Value {
    let counts = ask.usage(answer);
    json!({
        "promptTokenCount": counts.input,
        "candidatesTokenCount": counts.output.saturating_sub(counts.reasoning),
        "thoughtsTokenCount": counts.reasoning,
        "cachedContentTokenCount": counts.cache_read,
        "totalTokenCount": counts.input + counts.output,
    })
}

const fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::ToolCalls => "STOP",
        Finish::Length => "MAX_TOKENS",
        Finish::ContentFilter => "SAFETY",
    }
}

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>
pub(super) fn fault(kind: ErrorKind) -> Fault {
    let (status, name, message) = match kind {
        ErrorKind::InvalidRequest => (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
        ErrorKind::Authentication => (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        ErrorKind::Permission => (403, "PERMISSION_DENIED", "The caller does not have permission"),
        ErrorKind::NotFound => (404, "NOT_FOUND", "The model is not found"),
        ErrorKind::RateLimit => (429, "RESOURCE_EXHAUSTED", "Resource has been exhausted"),
        ErrorKind::Quota => {
            (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan and billing details.")
        }
        ErrorKind::ContextWindow => (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
        ),
        ErrorKind::Server => (500, "INTERNAL", "An internal error has occurred."),
        ErrorKind::Overloaded => (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    };
    Fault { status, name, code: None, message: message.to_owned() }
}

pub(super) fn error_body(fault: &Fault) -> Value {
    let Fault { status, name, message, .. } = fault;
    json!({ "error": { "code": status, "message": message, "status": name } })
}
