//! What the author of an adapter implements.
//!
//! An adapter is a state machine: history in, an HTTP request description out; response bytes in, chunks out. It
//! opens no sockets, starts no runtime, reads no clock and sees no credential; the host does all of that. What an
//! adapter does is therefore the same under recorded traffic, in another process, and in a unit test.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::abi::calls::ConfigProblem;
use crate::json::Raw;
use crate::vocab::{
    AssistantMessage, EnvelopeId, Exchange, Failure, FailureCode, HttpHeader, HttpRequest, InvalidReplay, Message,
    ModelsPage, Repair, ReplayDegrade, ReplayEnvelope, Request, RouteInfo, Target,
};

pub use crate::chunks::{Chunks, Slot};

/// A provider adapter. One value serves all routes of one `[[adapter]]` entry of the manifest.
///
/// Export it with [`export_adapter!`](crate::export_adapter). Every call may come from any thread. A panic is caught
/// at the border and fails the call with `PLUGIN_PANIC`.
pub trait Adapter: Send + Sync + Sized + 'static {
    /// The adapter's part of the manifest, `[adapter.config]`. Give it `deny_unknown_fields`: the host reports an
    /// unknown key with its place in the manifest and the nearest right one.
    type Config: DeserializeOwned + JsonSchema;
    /// One message in this wire's form. It never leaves the library.
    type Native;
    /// Decoder of one response.
    type Decoder: Decoder;

    /// Name of the adapter, the same as its crate: `dsh-llm-pi-ai`. Lower-case letters, digits and `-`.
    const NAME: &'static str;
    /// Kind of the envelopes it writes. Lower-case letters, digits and `-`.
    const ENVELOPE_KIND: &'static str;
    /// Version of the envelopes it writes.
    const ENVELOPE_VERSION: u32;

    /// Builds the adapter.
    ///
    /// # Errors
    ///
    /// Says which part of the configuration cannot be used.
    fn new(config: Self::Config) -> Result<Self, ConfigError>;

    /// The routes of this configuration. Called once.
    fn routes(&self) -> Vec<RouteInfo>;

    /// Converts an assistant message together with its replay metadata.
    ///
    /// The host has already checked kind, version, provider, model, block count and block types. This checks the
    /// rest: every opaque value must be of the form that this adapter writes.
    ///
    /// # Errors
    ///
    /// [`InvalidReplay`] makes the host send the message foreign.
    fn restore(
        &self,
        message: &AssistantMessage,
        envelope: &ReplayEnvelope,
        to: &Target,
    ) -> Result<Self::Native, InvalidReplay>;

    /// Converts a message of any origin, without metadata. Reasoning is left out, never shown as text.
    ///
    /// # Errors
    ///
    /// Only for what makes the request impossible; a block that cannot be expressed is left out.
    fn foreign(&self, message: &Message, to: &Target) -> Result<Self::Native, Failure>;

    /// Puts the request together. `history` has one element per message of `request`, in order.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_MODEL`, `UNSUPPORTED` or `INVALID_REQUEST` with the reason.
    fn encode(&self, request: &Request, history: Vec<Self::Native>, to: &Target) -> Result<Encoded, Failure>;

    /// A decoder for one response to a request of this target.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_MODEL`, or `UNSUPPORTED` for a [`ResponseHead`] of the other exchange kind.
    fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Self::Decoder, Failure>;

    /// Told once per message and request that a message of this target goes out without its metadata.
    fn on_replay_degrade(&self, event: &ReplayDegrade) {
        let _ = event;
    }

    /// The request that asks the server of a route for its models. The host sends it under the same rules as any
    /// other request of that route.
    ///
    /// # Errors
    ///
    /// `UNKNOWN_MODEL` for a route that there is not; `UNSUPPORTED`, which is the default, where servers cannot be
    /// asked.
    fn models_request(&self, route: &str) -> Result<HttpRequest, Failure> {
        Err(cannot_list(route))
    }

    /// Reads the answer to [`Adapter::models_request`], or to the [`ModelsPage::next`] of an earlier page. Every
    /// status but a redirect comes here; `body` is the whole body, at most 32 MiB, what is no UTF-8 in it replaced.
    ///
    /// # Errors
    ///
    /// What the server refused, with its status; `PROTOCOL` for an answer that is no list of models.
    fn models_response(&self, route: &str, head: &ResponseHead, body: &str) -> Result<ModelsPage, Failure> {
        let _ = (head, body);
        Err(cannot_list(route))
    }

    /// The envelope id as one value.
    #[must_use]
    fn envelope() -> EnvelopeId {
        EnvelopeId { kind: Self::ENVELOPE_KIND.to_owned(), version: Self::ENVELOPE_VERSION }
    }
}

fn cannot_list(route: &str) -> Failure {
    let message = format!("the adapter of route {route} cannot ask a server for its models");
    Failure::new(FailureCode::Unsupported, message)
}

/// Decodes one response.
///
/// The result must not depend on how the bytes are split. After the finish chunk nothing more is taken; a decoder
/// that has not finished when its input ends is finished by the kit with `TRANSPORT`, its content kept.
pub trait Decoder: Send + 'static {
    /// Takes the next bytes of an HTTP body.
    fn feed(&mut self, bytes: &[u8], out: &mut Chunks);

    /// The body is over. With [`StreamEnd::Complete`] what is buffered may still finish the response.
    fn finish(&mut self, end: &StreamEnd, out: &mut Chunks);

    /// Polled exchanges: pushes the next chunks and says when to come back. The default fails with `UNSUPPORTED`.
    fn poll(&mut self, out: &mut Chunks) -> Poll {
        out.fail(Failure::new(FailureCode::Unsupported, "this adapter has no polled exchange"), None);
        Poll::Ready
    }

    /// The host stops the response. Blocks that are closed keep their entries; push the finish with
    /// [`Chunks::fail_as_aborted`] where there is a response half. The default pushes none.
    fn cancel(&mut self, out: &mut Chunks) {
        let _ = out;
    }
}

/// How the bytes of a response ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEnd {
    /// The body was complete as far as HTTP can tell.
    Complete,
    /// The connection broke; the text says how.
    Cut(String),
    /// The host gave up waiting; the text says on what.
    TimedOut(String),
}

/// When a polled decoder wants to be polled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Poll {
    /// At once.
    Ready,
    /// After this many milliseconds.
    After(u32),
}

/// What a decoder is opened with.
#[derive(Debug, Clone)]
pub enum ResponseHead {
    /// Status and headers (names in lower case) of an HTTP response. Every status comes here, also errors.
    Http {
        /// HTTP status.
        status: u16,
        /// Headers in order.
        headers: Vec<(String, String)>,
    },
    /// The value that the adapter returned in [`Exchange::Polled`].
    Polled(Raw),
}

impl ResponseHead {
    /// The first header of that lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        match self {
            Self::Http { headers, .. } => headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()),
            Self::Polled(_) => None,
        }
    }
}

/// A request that is ready to go out.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// How to get the answer.
    pub exchange: Exchange,
    /// Changes that the wire or the model needed.
    pub repairs: Vec<Repair>,
}

impl Encoded {
    /// A request without repairs.
    #[must_use]
    pub const fn new(exchange: Exchange) -> Self {
        Self { exchange, repairs: Vec::new() }
    }
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    /// Dotted path below `[adapter.config]`, for example `providers.openai.base_url`.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// The same as data, for what a host tells in its own words.
    pub problem: ConfigProblem,
}

impl ConfigError {
    /// An error at a path.
    #[must_use]
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), problem: ConfigProblem::Other }
    }

    /// A key that must stand below a path and does not; `remedy` says what would be right.
    #[must_use]
    pub fn missing(path: impl Into<String>, key: &str, remedy: impl Into<String>) -> Self {
        let remedy = remedy.into();
        Self {
            path: path.into(),
            message: format!("`{key}` is missing; {remedy}"),
            problem: ConfigProblem::Missing { key: key.to_owned(), remedy: Some(remedy) },
        }
    }
}

/// A header with literal text.
#[must_use]
pub fn header(name: &str, value: impl Into<String>) -> HttpHeader {
    HttpHeader { name: name.to_owned(), value: crate::vocab::HeaderValue::Text(value.into()) }
}
