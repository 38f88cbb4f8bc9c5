//! Wires that a described answer can be spelled in. A wire is one file: `spell` turns the description into the
//! pieces of a body as that provider would send them.

mod anthropic;
mod completions;
mod deepseek;
mod google;
mod mistral;
mod responses;

use std::time::{SystemTime, UNIX_EPOCH};

use dsh_plugin_api::json::{self, Object};
use serde_json::Value;

use super::http::Request;
use super::script::{Described, ErrorKind, ScriptedError, ToolCall, UsageCounts};

/// A wire, told by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// Mistral's chat completions, which think inside their content and send calls whole.
    Mistral,
    /// DeepSeek's chat completions, which count what the cache had apart.
    DeepSeek,
    /// OpenAI-compatible chat completions.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
    /// Google's `generateContent`.
    Google,
}

/// What an answer takes from its request.
#[derive(Debug)]
pub(super) struct Ask {
    /// The request's body.
    pub body: Object,
    /// The request's path with its query.
    pub path: String,
    /// Number of the request, from 1.
    pub number: usize,
    /// Length of the body in bytes.
    pub length: usize,
}

/// A body in pieces.
#[derive(Debug)]
pub(super) struct Reply {
    pub content_type: &'static str,
    pub pieces: Vec<String>,
}

impl Reply {
    /// One JSON value.
    fn whole(value: &Value) -> Self {
        Self { content_type: "application/json", pieces: vec![value.to_string()] }
    }

    /// A server-sent event a value. `name` gives the event that stands beside the data, on wires that have one.
    fn events<'a>(values: impl IntoIterator<Item = &'a Value>, name: impl Fn(&Value) -> Option<String>) -> Self {
        let event = |value: &Value| {
            let name = name(value).map(|name| format!("event: {name}\n")).unwrap_or_default();
            format!("{name}data: {value}\n\n")
        };
        Self { content_type: "text/event-stream", pieces: values.into_iter().map(event).collect() }
    }
}

/// An error as a wire has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// HTTP status.
    pub status: u16,
    /// What the wire calls the class of the error.
    name: &'static str,
    /// What it calls the error itself, on wires that tell both.
    code: Option<&'static str>,
    message: String,
}

impl Fault {
    /// The same with the script's message, if it has one.
    fn saying(self, error: &ScriptedError) -> Self {
        Self { message: error.message.clone().unwrap_or(self.message), ..self }
    }
}

/// Name of the event of wires that repeat it as the `type` of the data.
fn type_of(value: &Value) -> Option<String> {
    value["type"].as_str().map(str::to_owned)
}

impl Ask {
    /// Reads the request's body, which every wire has as a JSON object.
    pub fn new(request: &Request, number: usize) -> Result<Self, String> {
        let object =
            json::from_slice(&request.body).map_err(|e| format!("the request's body is not a JSON object: {e}"))?;
        Ok(Self { body: object, path: request.path.clone(), number, length: request.body.len() })
    }

    /// True when the request asks for a stream by a member of its body.
    fn streams(&self) -> bool {
        self.body.get("stream").is_some_and(|value| value.get() == "true")
    }

    /// The model that the body names.
    fn model(&self) -> String {
        self.body.get_str("model").unwrap_or_default()
    }

    /// The opaque value that goes with reasoning: the script's, or one of this request, which every wire takes, since
    /// it is base64 of whole groups.
    fn signature(&self, answer: &Described) -> String {
        let own = || format!("bW9jayBzaWduYXR1cmUg{:04}", self.number % 10_000);
        answer.signature.clone().unwrap_or_else(own)
    }

    /// The script's token counts, or an estimate.
    fn usage(&self, answer: &Described) -> UsageCounts {
        let calls: usize = answer.tool_calls.iter().map(|call| call.name.len() + call.arguments.len()).sum();
        answer.usage.unwrap_or_else(|| UsageCounts {
            input: estimate(self.length),
            output: estimate(answer.text.len() + answer.reasoning.len() + calls),
            cache_read: 0,
            cache_write: 0,
            reasoning: estimate(answer.reasoning.len()),
        })
    }
}

impl Wire {
    /// The one with the longer path comes first.
    const ALL: [Self; 6] =
        [Self::Mistral, Self::DeepSeek, Self::Completions, Self::Responses, Self::Anthropic, Self::Google];

    /// The path of its requests, for messages and documentation.
    const fn path(self) -> &'static str {
        match self {
            Self::Mistral => "…/mistral/v1/chat/completions",
            Self::DeepSeek => "…/deepseek/chat/completions",
            Self::Completions => "…/chat/completions",
            Self::Responses => "…/responses",
            Self::Anthropic => "…/v1/messages",
            Self::Google => "…/models/MODEL:streamGenerateContent",
        }
    }

    /// True for a path without query that requests of this wire go to.
    fn is_of(self, path: &str) -> bool {
        match self {
            Self::Mistral => path.ends_with("/mistral/v1/chat/completions"),
            Self::DeepSeek => path.ends_with("/deepseek/chat/completions"),
            Self::Completions => path.ends_with("/chat/completions"),
            Self::Responses => path.ends_with("/responses"),
            Self::Anthropic => path.ends_with("/v1/messages"),
            Self::Google => google::is_path(path),
        }
    }

    /// The wire of a request path.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        Self::ALL.into_iter().find(|wire| wire.is_of(path))
    }

    /// True when the request asks for a stream.
    fn streams(self, ask: &Ask) -> bool {
        match self {
            Self::Google => google::is_stream(ask.path.split('?').next().unwrap_or_default()),
            _ => ask.streams(),
        }
    }

    /// Status and body with which this wire refuses request `number`.
    pub fn refuse(self, error: &ScriptedError, number: usize) -> (u16, String) {
        let fault = self.fault(error.kind).saying(error);
        let body = match self {
            Self::Mistral => mistral::error_body(&fault),
            Self::DeepSeek | Self::Completions | Self::Responses => completions::error_body(&fault),
            Self::Anthropic => anthropic::error_body(&fault, number),
            Self::Google => google::error_body(&fault),
        };
        (fault.status, body.to_string())
    }

    fn fault(self, kind: ErrorKind) -> Fault {
        match self {
            Self::Mistral => mistral::fault(kind),
            Self::DeepSeek => deepseek::fault(kind),
            Self::Completions | Self::Responses => completions::fault(kind),
            Self::Anthropic => anthropic::fault(kind),
            Self::Google => google::fault(kind),
        }
    }

    /// The paths of all wires, for messages.
    pub fn paths() -> String {
        Self::ALL.map(Self::path).join(", ")
    }

    /// An answer in this wire, or why the wire has no form for it.
    pub fn spell(self, answer: &Described, ask: &Ask) -> Result<Reply, String> {
        if answer.error.is_some() && !self.streams(ask) {
            return Err("the script has an error inside a stream, and the request asks for none".to_owned());
        }
        match self {
            Self::Mistral => mistral::spell(answer, ask),
            Self::DeepSeek => Ok(deepseek::spell(answer, ask)),
            Self::Completions => Ok(completions::spell(answer, ask)),
            Self::Responses => Ok(responses::spell(answer, ask)),
            Self::Anthropic => anthropic::spell(answer, ask),
            Self::Google => google::spell(answer, ask),
        }
    }

    /// Body of `GET …/models`.
    pub fn models(ids: &[String]) -> String {
        let model = |id: &String| serde_json::json!({ "id": id, "object": "model", "created": 0, "owned_by": "mock" });
        serde_json::json!({ "object": "list", "data": ids.iter().map(model).collect::<Vec<_>>() }).to_string()
    }
}

/// The arguments of a call where its wire has a JSON object in place of text.
fn object_of(call: &ToolCall, wire: &str) -> Result<Value, String> {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    serde_json::from_str(arguments).ok().filter(Value::is_object).ok_or_else(|| {
        let ToolCall { id, arguments, .. } = call;
        format!("{wire} has arguments as a JSON object, and those of the call {id:?} are none: {arguments:?}")
    })
}

/// Text in pieces of so many characters.
fn split_chars(text: &str, chars: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// A rough count of tokens for text of that many bytes, for answers whose script gives none.
const fn estimate(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

/// Now, in Unix seconds.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests;
