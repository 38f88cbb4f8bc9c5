//! The script: what is answered, to which request, and how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A whole script.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// File that the requests are written to; relative to the script's folder.
    pub log: Option<PathBuf>,
    /// Ids that `GET …/models` lists.
    #[serde(default)]
    pub models: Vec<String>,
    /// The answers. A request gets the first that matches it and is not used up.
    #[serde(default, rename = "response")]
    pub responses: Vec<Entry>,
}

/// One `[[response]]`, as written. [`Entry::body`] says which of its forms it has.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Which requests it is for; without one, any POST.
    #[serde(rename = "match")]
    pub matches: Option<Match>,
    /// True: it is never used up.
    #[serde(default)]
    pub repeat: bool,
    /// HTTP status; 200 when absent.
    pub status: Option<u16>,
    /// Headers, which win over those that the server would set.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// How the end of the body is marked; chunked when absent, by length for `body`.
    pub framing: Option<Framing>,
    /// Milliseconds before anything is sent.
    #[serde(default)]
    pub head_delay_ms: u64,
    /// True: the connection ends as `close` says without a single byte.
    #[serde(default)]
    pub no_head: bool,

    /// Raw: the whole body in one piece.
    pub body: Option<String>,
    /// Raw: the body piece by piece.
    pub chunks: Option<Vec<RawChunk>>,

    /// Described: visible text.
    pub text: Option<String>,
    /// Described: reasoning.
    pub reasoning: Option<String>,
    /// Described: true when the model thinks without showing it; only the opaque value of its thoughts comes.
    #[serde(default)]
    pub reasoning_hidden: bool,
    /// Described: the completions member that reasoning goes into; `reasoning_content` when absent.
    pub reasoning_field: Option<String>,
    /// Described: the opaque value that goes with the reasoning on wires that have one; made up when absent.
    pub signature: Option<String>,
    /// Described: tool calls.
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Described: why the answer ends; `tool_calls` when there are calls, else `stop`.
    pub finish: Option<Finish>,
    /// Described: an error in the wire's own spelling, in place of the answer or inside its stream.
    pub error: Option<ScriptedError>,
    /// Described: token counts; estimated from the lengths when absent.
    pub usage: Option<UsageCounts>,
    /// Described: characters per delta; 16 when absent.
    pub chunk_chars: Option<usize>,
    /// Described: milliseconds before each piece but the first.
    pub delay_ms: Option<u64>,

    /// Sends only so many pieces of the body, then goes on to `close`.
    pub stop_after: Option<usize>,
    /// Pauses after so many pieces.
    pub stall_after: Option<usize>,
    /// Length of that pause in milliseconds; until the client leaves when absent.
    pub stall_ms: Option<u64>,
    /// What happens after the last piece.
    #[serde(default)]
    pub close: Close,
}

/// Which requests an answer is for. Everything that is given must hold.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Match {
    /// Part of the path with its query.
    pub path_contains: Option<String>,
    /// Part of the body.
    pub body_contains: Option<String>,
    /// Headers by name, each with a part of its value.
    #[serde(default)]
    pub header: BTreeMap<String, String>,
}

/// A piece of a raw body: `text`, or bytes as `hex`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawChunk {
    /// Milliseconds before it.
    #[serde(default)]
    pub delay_ms: u64,
    /// The text.
    pub text: Option<String>,
    /// The bytes, two hex digits each; spaces are ignored.
    pub hex: Option<String>,
}

/// A tool call of a described answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Text of its arguments, sent as it stands; it need not be complete.
    pub arguments: String,
}

/// Why a described answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The output limit.
    Length,
    /// It waits for tools.
    ToolCalls,
    /// A filter.
    ContentFilter,
}

/// An error of a described answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// What is said about it; when absent, what the wire says of this kind.
    pub message: Option<String>,
    /// True: the answer begins as a success, and the error comes in place of its end.
    #[serde(default)]
    pub in_stream: bool,
}

/// What is wrong, for every wire to name and to choose a status for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is not understood or not allowed.
    InvalidRequest,
    /// The key is wrong.
    Authentication,
    /// The key may not do this.
    Permission,
    /// There is no such model.
    NotFound,
    /// Too much in too short a time.
    RateLimit,
    /// The account is empty.
    Quota,
    /// The prompt does not fit into the model's window.
    ContextWindow,
    /// The provider failed.
    Server,
    /// The provider is busy.
    Overloaded,
}

impl ErrorKind {
    /// What a status is about when nothing else is known.
    const fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Authentication,
            402 => Self::Quota,
            403 => Self::Permission,
            404 => Self::NotFound,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            300..=499 => Self::InvalidRequest,
            _ => Self::Server,
        }
    }
}

/// Token counts of a described answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageCounts {
    /// Prompt tokens, those of a cache included.
    pub input: u64,
    /// Tokens of the answer, reasoning included.
    pub output: u64,
    /// Prompt tokens that came from a cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Prompt tokens that were written to a cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Tokens of the answer that were reasoning.
    #[serde(default)]
    pub reasoning: u64,
}

/// How the end of a body is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framing {
    /// `transfer-encoding: chunked`, one chunk per piece.
    Chunked,
    /// `content-length` of the whole body.
    Length,
    /// `connection: close`; the body ends with the connection.
    Close,
}

/// What happens after the last piece.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Close {
    /// The body ends as its framing says.
    #[default]
    End,
    /// The connection is closed without that end.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more is sent and the connection stays open until the client leaves.
    Hold,
}

/// The form of an answer's body.
#[derive(Debug, Clone)]
pub enum Body {
    /// Bytes, each piece with the milliseconds before it.
    Raw(Vec<(u64, Vec<u8>)>),
    /// To be spelled by the wire of the request.
    Described(Described),
    /// A refusal, to be spelled by the wire of the request.
    Refused(ScriptedError),
}

/// A described answer.
#[derive(Debug, Clone)]
pub struct Described {
    /// Visible text; empty for none.
    pub text: String,
    /// Reasoning; empty for none.
    pub reasoning: String,
    /// The reasoning is not shown; wires with an opaque value for it send that alone, the others nothing.
    pub reasoning_hidden: bool,
    /// Member that reasoning goes into on the completions wire.
    pub reasoning_field: String,
    /// The opaque value that goes with the reasoning; the wire makes one up when there is none.
    pub signature: Option<String>,
    /// Tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ends.
    pub finish: Finish,
    /// The error that comes in place of the end.
    pub error: Option<ScriptedError>,
    /// Token counts, when the script gives them.
    pub usage: Option<UsageCounts>,
    /// Characters per delta.
    pub chunk_chars: usize,
    /// Milliseconds before each piece but the first.
    pub delay_ms: u64,
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file.
    #[error("cannot read the script {}: {source}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Its form; the message has line and column.
    #[error("{place}: {message}")]
    Form {
        /// The file, or what it was given as.
        place: String,
        /// What is wrong and where.
        message: String,
    },
    /// An answer that contradicts itself.
    #[error("{place}: response {number}: {message}")]
    Response {
        /// The file, or what it was given as.
        place: String,
        /// Counting from 1.
        number: usize,
        /// What is wrong and what would be right.
        message: String,
    },
}

impl Script {
    /// Reads a script file.
    ///
    /// # Errors
    ///
    /// [`ScriptError`]
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
        let mut script = Self::parse(&path.display().to_string(), &text)?;
        if let (Some(log), Some(folder)) = (&script.log, path.parent()) {
            script.log = Some(folder.join(log));
        }
        Ok(script)
    }

    /// Reads a script: JSON when it starts with `{`, else TOML. `place` names it in errors.
    ///
    /// # Errors
    ///
    /// [`ScriptError`]
    pub fn parse(place: &str, text: &str) -> Result<Self, ScriptError> {
        let form = |message: String| ScriptError::Form { place: place.to_owned(), message };
        let script: Self = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|e| form(e.to_string()))?
        } else {
            toml::from_str(text).map_err(|e: toml::de::Error| form(e.to_string().trim_end().to_owned()))?
        };
        for (position, entry) in script.responses.iter().enumerate() {
            entry.check().map_err(|message| ScriptError::Response {
                place: place.to_owned(),
                number: position + 1,
                message,
            })?;
        }
        Ok(script)
    }
}

impl Entry {
    /// The first key that only a described answer has; `error` when there is no other.
    fn described_key(&self) -> Option<&'static str> {
        let keys = [
            ("text", self.text.is_some()),
            ("reasoning", self.reasoning.is_some()),
            ("reasoning_hidden", self.reasoning_hidden),
            ("reasoning_field", self.reasoning_field.is_some()),
            ("signature", self.signature.is_some()),
            ("tool_calls", self.tool_calls.is_some()),
            ("finish", self.finish.is_some()),
            ("usage", self.usage.is_some()),
            ("chunk_chars", self.chunk_chars.is_some()),
            ("delay_ms", self.delay_ms.is_some()),
            ("error", self.error.is_some()),
        ];
        keys.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }

    fn check(&self) -> Result<(), String> {
        let described = self.described_key();
        if self.body.is_some() && self.chunks.is_some() {
            return Err("`body` and `chunks` are both the body; give one of them".to_owned());
        }
        if let (Some(key), true) = (described, self.body.is_some() || self.chunks.is_some()) {
            return Err(format!(
                "`{key}` describes an answer, but `body` or `chunks` gives its bytes; give one of them"
            ));
        }
        let success = 200..=299;
        let status = self.status.unwrap_or(*success.start());
        if !(200..=599).contains(&status) {
            return Err(format!("status {status} is not from 200 to 599"));
        }
        match (&self.error, described) {
            (Some(ScriptedError { in_stream: true, .. }), _) if !success.contains(&status) => {
                return Err(format!("`error` is inside a stream, but the status is {status}; leave one of them out"));
            }
            (Some(ScriptedError { in_stream: true, .. }), _) if self.finish.is_some() => {
                return Err("`error` comes in place of the end, so there is no `finish`; give one of them".to_owned());
            }
            (Some(ScriptedError { in_stream: false, .. }), Some(key)) if key != "error" => {
                return Err(format!(
                    "`{key}` describes an answer, but `error` refuses the request; for an error inside an answer set its `in_stream`"
                ));
            }
            (Some(ScriptedError { in_stream: false, .. }), _) if self.status.is_some() && success.contains(&status) => {
                return Err(format!("`error` refuses the request, but the status is {status}"));
            }
            (None, Some(key)) if !success.contains(&status) => {
                return Err(format!(
                    "`{key}` describes a success, but the status is {status}; give an `error` or a `body`"
                ));
            }
            _ => {}
        }
        if self.chunk_chars == Some(0) {
            return Err("`chunk_chars` is 0; the least is 1".to_owned());
        }
        if self.stall_ms.is_some() && self.stall_after.is_none() {
            return Err("`stall_ms` is the length of a stall; say where with `stall_after`".to_owned());
        }
        if self.no_head && self.close == Close::End {
            return Err("`no_head` needs `close` = \"cut\", \"reset\" or \"hold\"".to_owned());
        }
        for (name, value) in &self.headers {
            let name_ok = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            if !name_ok || value.contains(['\r', '\n']) {
                return Err(format!("header {name:?} cannot be sent"));
            }
        }
        self.chunks.iter().flatten().try_for_each(|chunk| chunk.bytes().map(drop))
    }

    /// Its body in the form it has. An answer without any form is a described one without content, and a refusal where
    /// the status is one of failure.
    #[must_use]
    pub fn body(&self) -> Body {
        if self.no_head {
            return Body::Raw(Vec::new());
        }
        if let Some(body) = &self.body {
            return Body::Raw(vec![(0, body.clone().into_bytes())]);
        }
        if let Some(chunks) = &self.chunks {
            let piece = |chunk: &RawChunk| (chunk.delay_ms, chunk.bytes().unwrap_or_default());
            return Body::Raw(chunks.iter().map(piece).collect());
        }
        if let Some(error) = self.error.as_ref().filter(|error| !error.in_stream) {
            return Body::Refused(error.clone());
        }
        if let Some(status) = self.status.filter(|status| *status >= 300) {
            let message = Some(format!("scripted status {status}"));
            return Body::Refused(ScriptedError { kind: ErrorKind::of_status(status), message, in_stream: false });
        }
        let tool_calls = self.tool_calls.clone().unwrap_or_default();
        let finish = if tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        Body::Described(Described {
            text: self.text.clone().unwrap_or_default(),
            reasoning: self.reasoning.clone().unwrap_or_default(),
            reasoning_hidden: self.reasoning_hidden,
            reasoning_field: self.reasoning_field.clone().unwrap_or_else(|| "reasoning_content".to_owned()),
            signature: self.signature.clone(),
            tool_calls,
            finish: self.finish.unwrap_or(finish),
            error: self.error.clone(),
            usage: self.usage,
            chunk_chars: self.chunk_chars.unwrap_or(16),
            delay_ms: self.delay_ms.unwrap_or(0),
        })
    }
}

impl Described {
    /// True when there is reasoning, shown or hidden.
    pub(super) const fn thinks(&self) -> bool {
        self.reasoning_hidden || !self.reasoning.is_empty()
    }

    /// The reasoning that is shown; empty for none.
    pub(super) fn shown_reasoning(&self) -> &str {
        if self.reasoning_hidden { "" } else { &self.reasoning }
    }
}

impl RawChunk {
    /// Its bytes.
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match (&self.text, &self.hex) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(hex)) => unhex(hex).ok_or_else(|| format!("`hex` {hex:?} is not pairs of hex digits")),
            _ => Err("a chunk has either `text` or `hex`".to_owned()),
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

impl Match {
    /// True when the request is one of those it is for.
    #[must_use]
    pub fn holds(&self, path: &str, body: &str, header: impl Fn(&str) -> Option<String>) -> bool {
        let within =
            |part: &Option<String>, whole: &str| part.as_ref().is_none_or(|part| whole.contains(part.as_str()));
        within(&self.path_contains, path)
            && within(&self.body_contains, body)
            && self.header.iter().all(|(name, part)| header(name).is_some_and(|value| value.contains(part.as_str())))
    }
}
