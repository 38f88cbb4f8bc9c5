//! Events: what a session log consists of.
//!
//! Event data is kept as it was written ([`Raw`]): unknown members, key order, big integers and lone surrogate escapes
//! survive reading and writing. Constructors of [`NewEvent`] give the host's own events; their data has the shapes of
//! session log format version 0.

use std::borrow::Cow;

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{Chunk, Failure, Message, Tool, Usage};
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// Names of the events that this host reads or writes.
pub mod kind {
    /// A turn begins: `{turn}`.
    pub const TURN_START: &str = "turn/start";
    /// A turn is over: `{turn, reason}`.
    pub const TURN_END: &str = "turn/end";
    /// A step (one request and the tools it asks for) begins: `{turn, step}`.
    pub const STEP_START: &str = "step/start";
    /// A step is over: `{turn, step}`.
    pub const STEP_END: &str = "step/end";
    /// A user's message; the data is the message.
    pub const USER_MESSAGE: &str = "user/message";
    /// A model's answer: `{turn, step, message, usage?, interrupted?}`.
    pub const ASSISTANT_MESSAGE: &str = "assistant/message";
    /// One element of a response stream: `{turn, step, chunk}`.
    pub const ASSISTANT_CHUNK: &str = "assistant/chunk";
    /// Config, system prompt and tools of the following requests: `{header, reason}`.
    pub const REQUEST_HEADER: &str = "request/header";
    /// Model of the following requests: `{provider, model, contextWindow?}`.
    pub const REQUEST_CONTEXT: &str = "request/context";
    /// A tool is about to run: `{turn, step, callId, name, arguments}`.
    pub const TOOL_CALL: &str = "tool/call";
    /// A tool is over: `{turn, step, message, error?}`.
    pub const TOOL_RESULT: &str = "tool/result";
    /// The session has a title: `{title, messageSeqs, source}`.
    pub const SESSION_TITLE: &str = "session/title";
    /// A message went out without its replay metadata.
    pub const LLM_DEGRADE: &str = "llm/degrade";
    /// A further attempt follows; what this step streamed so far is void.
    pub const LLM_RETRY: &str = "llm/retry";
}

/// One event of a log, expanded: `{type, seq, time, data, …}`.
#[derive(Debug, Clone)]
pub struct Event {
    /// `type`; borrowed for the host's own kinds.
    pub kind: Cow<'static, str>,
    /// Position in the session, from 0.
    pub seq: u64,
    /// Unix time in milliseconds.
    pub time: u64,
    /// `data`, as it was written, without line breaks.
    pub data: Raw,
    /// Every other member (`surfaceOp`, `ignorable`, `sourceEventSeqs`, …), as it was written.
    pub extra: Object,
}

impl Event {
    /// The data as a value of `T`. Lone surrogate escapes are read as U+FFFD.
    ///
    /// # Errors
    ///
    /// The data has another form.
    pub fn parse<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        json::from_str(self.data.get())
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &self.kind)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("time", &self.time)?;
        map.serialize_entry("data", &self.data)?;
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The first line.
#[derive(Debug, Clone)]
pub struct Header {
    /// Session id.
    pub id: String,
    /// Unix time in milliseconds.
    pub created_at: u64,
    /// Working folder.
    pub cwd: Option<String>,
    /// Every other member, as it was written.
    pub extra: Object,
}

impl Header {
    /// Version of the log format that this build reads and writes.
    pub const VERSION: u32 = 0;

    /// The header of a session that no other session started.
    #[must_use]
    pub fn new(id: impl Into<String>, created_at: u64, cwd: Option<String>) -> Self {
        Self { id: id.into(), created_at, cwd, extra: Object::new() }
    }
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "session")?;
        map.serialize_entry("version", &Self::VERSION)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("createdAt", &self.created_at)?;
        if let Some(cwd) = &self.cwd {
            map.serialize_entry("cwd", cwd)?;
        }
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        if self.extra.get("delegationDepth").is_none() {
            map.serialize_entry("delegationDepth", &0)?;
        }
        map.end()
    }
}

/// An event that has no place in a log yet.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// `type`
    pub kind: &'static str,
    /// `data`
    pub data: Raw,
    /// True for the message events that stand on the surface: `"surfaceOp":"append"`.
    pub append: bool,
    /// True for the host's own events that another reader may skip: `"ignorable":true`.
    pub ignorable: bool,
}

impl NewEvent {
    /// An event of this kind with this data.
    #[must_use]
    pub fn new<T: Serialize + ?Sized>(kind: &'static str, data: &T) -> Self {
        Self { kind, data: raw(data), append: false, ignorable: false }
    }

    /// Gives it its place.
    #[must_use]
    pub fn at(self, seq: u64, time: u64) -> Event {
        let mut extra = Object::new();
        if self.append {
            extra.set("surfaceOp", raw("append"));
        }
        if self.ignorable {
            extra.set("ignorable", raw(&true));
        }
        Event { kind: self.kind.into(), seq, time, data: on_one_line(self.data), extra }
    }

    /// `turn/start`; turns count from 1.
    #[must_use]
    pub fn turn_start(turn: u64) -> Self {
        Self::new(kind::TURN_START, &Place { turn, step: None })
    }

    /// `turn/end`; `reason` is an object with `kind`.
    #[must_use]
    pub fn turn_end<R: Serialize + ?Sized>(turn: u64, reason: &R) -> Self {
        #[derive(Serialize)]
        struct Data<'a, R: ?Sized> {
            turn: u64,
            reason: &'a R,
        }
        Self::new(kind::TURN_END, &Data { turn, reason })
    }

    /// `step/start`; steps count from 1 in each turn.
    #[must_use]
    pub fn step_start(turn: u64, step: u64) -> Self {
        Self::new(kind::STEP_START, &Place { turn, step: Some(step) })
    }

    /// `step/end`
    #[must_use]
    pub fn step_end(turn: u64, step: u64) -> Self {
        Self::new(kind::STEP_END, &Place { turn, step: Some(step) })
    }

    /// `user/message`, on the surface.
    #[must_use]
    pub fn user_message(message: &Message) -> Self {
        Self::new(kind::USER_MESSAGE, message).on_surface()
    }

    /// `request/header`; `reason` says why it is logged, `initial` for the first one.
    #[must_use]
    pub fn request_header(header: &RequestHeader, reason: &str) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            header: &'a RequestHeader,
            reason: &'a str,
        }
        Self::new(kind::REQUEST_HEADER, &Data { header, reason })
    }

    /// `request/context`; `context_window` in tokens.
    #[must_use]
    pub fn request_context(provider: &str, model: &str, context_window: Option<u64>) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a> {
            provider: &'a str,
            model: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            context_window: Option<u64>,
        }
        Self::new(kind::REQUEST_CONTEXT, &Data { provider, model, context_window })
    }

    /// `assistant/chunk`
    #[must_use]
    pub fn assistant_chunk(turn: u64, step: u64, chunk: &Chunk) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            turn: u64,
            step: u64,
            chunk: &'a Chunk,
        }
        Self::new(kind::ASSISTANT_CHUNK, &Data { turn, step, chunk })
    }

    /// `assistant/message`, on the surface; `interrupted` marks a partial answer.
    #[must_use]
    pub fn assistant_message(
        turn: u64,
        step: u64,
        message: &Message,
        usage: Option<&Usage>,
        interrupted: bool,
    ) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            turn: u64,
            step: u64,
            message: &'a Message,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage: Option<&'a Usage>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            interrupted: bool,
        }
        Self::new(kind::ASSISTANT_MESSAGE, &Data { turn, step, message, usage, interrupted }).on_surface()
    }

    /// `tool/call`; `arguments` is the JSON text as streamed.
    #[must_use]
    pub fn tool_call(turn: u64, step: u64, call_id: &str, name: &str, arguments: &str) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a> {
            turn: u64,
            step: u64,
            call_id: &'a str,
            name: &'a str,
            arguments: &'a str,
        }
        Self::new(kind::TOOL_CALL, &Data { turn, step, call_id, name, arguments })
    }

    /// `tool/result`, on the surface; `error` names what kept the tool from finishing.
    #[must_use]
    pub fn tool_result(turn: u64, step: u64, message: &Message, error: Option<&ToolError>) -> Self {
        #[derive(Serialize)]
        struct Data<'a> {
            turn: u64,
            step: u64,
            message: &'a Message,
            #[serde(skip_serializing_if = "Option::is_none")]
            error: Option<&'a ToolError>,
        }
        Self::new(kind::TOOL_RESULT, &Data { turn, step, message, error }).on_surface()
    }

    /// `session/title`; `message_seqs` are the events it was made from, `source` an object with `kind`
    /// (`fallback`: the beginning of the prompt).
    #[must_use]
    pub fn session_title<S: Serialize + ?Sized>(title: &str, message_seqs: &[u64], source: &S) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a, S: ?Sized> {
            title: &'a str,
            message_seqs: &'a [u64],
            source: &'a S,
        }
        Self::new(kind::SESSION_TITLE, &Data { title, message_seqs, source })
    }

    /// `llm/degrade`, ignorable.
    #[must_use]
    pub fn llm_degrade(degrade: &LlmDegrade<'_>) -> Self {
        Self { ignorable: true, ..Self::new(kind::LLM_DEGRADE, degrade) }
    }

    /// `llm/retry`, ignorable.
    #[must_use]
    pub fn llm_retry(retry: &LlmRetry<'_>) -> Self {
        Self { ignorable: true, ..Self::new(kind::LLM_RETRY, retry) }
    }

    fn on_surface(self) -> Self {
        Self { append: true, ..self }
    }
}

/// A value without line breaks. JSON has them only as white space, but a value that came from a file may be laid out.
fn on_one_line(value: Raw) -> Raw {
    // Without a way out of the loop it is done many bytes at a time.
    let breaks = value.get().bytes().fold(false, |found, byte| found | (byte == b'\n') | (byte == b'\r'));
    if !breaks {
        return value;
    }
    let text = value.get().replace(['\n', '\r'], " ");
    RawValue::from_string(text).unwrap_or(value)
}

#[derive(Serialize)]
struct Place {
    turn: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
}

/// What a request consists of beside its messages: `{config, system, tools}`.
#[derive(Debug, Clone, Serialize)]
pub struct RequestHeader {
    /// Target and settings.
    pub config: RequestConfig,
    /// System prompt.
    pub system: String,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
}

/// Target and settings of requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestConfig {
    /// Name of the provider route.
    pub provider: String,
    /// Model id on the wire.
    pub model: String,
    /// Output limit in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// `minimal`, `low`, `medium`, `high`, `xhigh` or `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
}

/// What kept a tool from finishing: `{name, code}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ToolError {
    /// Class of the error, for example `AbortError`.
    pub name: String,
    /// Its code, for example `ABORTED` or `INTERRUPTED`.
    pub code: String,
}

/// Data of `llm/degrade`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmDegrade<'a> {
    /// Turn of the request.
    pub turn: u64,
    /// Step of the request.
    pub step: u64,
    /// 0-based position of the message in the derived history.
    pub message: usize,
    /// Id of the message.
    pub message_id: &'a str,
    /// `INVALID_REPLAY_STATE`
    pub code: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Route of the request.
    pub provider: &'a str,
    /// Model of the request.
    pub model: &'a str,
}

/// Data of `llm/retry`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmRetry<'a> {
    /// Turn of the request.
    pub turn: u64,
    /// Step of the request.
    pub step: u64,
    /// Route of the request.
    pub provider: &'a str,
    /// Number of the coming attempt, from 1.
    pub retry: u32,
    /// How many there may be.
    pub max_retries: u32,
    /// Milliseconds that were waited before it.
    pub delay_ms: u64,
    /// What went wrong with the last one.
    pub failure: &'a Failure,
    /// [`LlmRetry::FOREIGN`] when the coming attempt carries no replay metadata, as all that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<&'a str>,
    /// Position of the first message whose images the coming attempt carries, as all that follow, when it carries
    /// fewer than the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_from: Option<usize>,
}

impl LlmRetry<'_> {
    /// `replay` of an attempt that carries no replay metadata.
    pub const FOREIGN: &'static str = "foreign";
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::FailureCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hosts_events_have_the_shapes_of_the_log_format() {
        let message = Message::user("m1", "hi");
        let degrade = LlmDegrade {
            turn: 1,
            step: 2,
            message: 3,
            message_id: "m",
            code: "C",
            reason: "r",
            provider: "p",
            model: "x",
        };
        let failure = Failure::new(FailureCode::Server, "down");
        let retry = LlmRetry {
            turn: 1,
            step: 1,
            provider: "p",
            retry: 1,
            max_retries: 3,
            delay_ms: 5,
            failure: &failure,
            replay: Some("foreign"),
            images_from: Some(4),
        };
        for (event, expected) in [
            (NewEvent::turn_start(1), json!({"type":"turn/start","data":{"turn":1}})),
            (
                NewEvent::turn_end(1, &json!({"kind":"completed"})),
                json!({"type":"turn/end","data":{"turn":1,"reason":{"kind":"completed"}}}),
            ),
            (NewEvent::step_start(1, 2), json!({"type":"step/start","data":{"turn":1,"step":2}})),
            (NewEvent::user_message(&message), json!({"type":"user/message","data":message,"surfaceOp":"append"})),
            (
                NewEvent::assistant_message(1, 2, &message, None, true),
                json!({"type":"assistant/message","data":{"turn":1,"step":2,"message":message,"interrupted":true},"surfaceOp":"append"}),
            ),
            (
                NewEvent::tool_call(1, 2, "c", "bash", "{}"),
                json!({"type":"tool/call","data":{"turn":1,"step":2,"callId":"c","name":"bash","arguments":"{}"}}),
            ),
            (
                NewEvent::session_title("t", &[4], &json!({"kind":"fallback"})),
                json!({"type":"session/title","data":{"title":"t","messageSeqs":[4],"source":{"kind":"fallback"}}}),
            ),
            (
                NewEvent::llm_degrade(&degrade),
                json!({"type":"llm/degrade","data":{"turn":1,"step":2,"message":3,"messageId":"m","code":"C","reason":"r","provider":"p","model":"x"},"ignorable":true}),
            ),
            (
                NewEvent::llm_retry(&retry),
                json!({"type":"llm/retry","data":{"turn":1,"step":1,"provider":"p","retry":1,"maxRetries":3,"delayMs":5,"failure":{"message":"down","code":"SERVER"},"replay":"foreign","imagesFrom":4},"ignorable":true}),
            ),
        ] {
            let mut written = serde_json::to_value(event.at(7, 9)).unwrap();
            let members = written.as_object_mut().unwrap();
            assert_eq!((members.remove("seq"), members.remove("time")), (Some(json!(7)), Some(json!(9))));
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn an_event_stands_on_one_line_however_its_data_was_laid_out() {
        let data: Raw = serde_json::from_str("{\n  \"a\": \"x\\ny\"\r\n}").unwrap();
        let event = NewEvent::new("x", &data).at(0, 0);
        assert_eq!(event.data.get(), r#"{   "a": "x\ny"  }"#);
    }

    #[test]
    fn a_header_keeps_its_members() {
        let mut header = Header::new("i", 5, Some("/p".into()));
        assert_eq!(
            raw(&header).get(),
            r#"{"type":"session","version":0,"id":"i","createdAt":5,"cwd":"/p","delegationDepth":0}"#
        );
        header.extra.set("delegationDepth", raw(&2));
        assert!(raw(&header).get().ends_with(r#""delegationDepth":2}"#));
    }
}
