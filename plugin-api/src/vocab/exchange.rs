//! Requests: what the host asks of an adapter, and what the adapter asks of the host.

use serde::{Deserialize, Serialize};

use super::Message;
use crate::json::{Object, Raw, raw};

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Name of the provider route.
    pub provider: String,
    /// Model id on the wire.
    pub model: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// A request in the host's words: `{system?, messages, tools?, maxTokens?, temperature?, reasoningEffort?}`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// System prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// History, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Output limit in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; absent means off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tool {
    /// Its name: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Raw,
}

/// How the host gets an answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exchange {
    /// The host sends this request and feeds the response's bytes to the decoder.
    Http(HttpRequest),
    /// The host polls the decoder for chunks; the value is what the decoder is opened with.
    Polled(Raw),
}

/// An HTTP request. The body is JSON, sent byte for byte as it stands here; `null` stands for a request without body,
/// such as a GET.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpRequest {
    /// For example `POST`.
    pub method: String,
    /// Absolute `http` or `https` URL.
    pub url: String,
    /// Headers in order; names in lower case. The host sets `accept`, and the `content-type` of a body, where they are
    /// absent.
    pub headers: Vec<HttpHeader>,
    /// The JSON body, or `null` for none.
    pub body: Raw,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpHeader {
    /// Name in lower case.
    pub name: String,
    /// Its value.
    pub value: HeaderValue,
}

/// The value of a header. A credential is only named: the host puts the secret in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeaderValue {
    /// The text itself.
    Text(String),
    /// `prefix` followed by the secret that `reference` names.
    Credential {
        /// Reference name as in the manifest.
        reference: String,
        /// For example `"Bearer "`.
        prefix: String,
    },
}

/// A change that was needed to make a history acceptable: `{message, kind}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// 0-based position in the input messages.
    pub message: usize,
    /// Its name, as listed in `docs/never-stuck.md`.
    pub kind: String,
}

/// One provider route that an adapter serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteInfo {
    /// Name of the route: the part before the first slash of `provider/model`.
    pub name: String,
    /// The wire, for example `openai-completions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Scheme, host and port that requests go to; absent for polled routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Credential reference, where one is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Models that the manifest names. Other ids are passed on when `any_model` is set.
    pub models: Vec<ModelInfo>,
    /// True when a model id that is not listed may be tried.
    #[serde(default)]
    pub any_model: bool,
}

/// A model of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelInfo {
    /// Id on the wire.
    pub id: String,
    /// Prompt and answer together, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Longest answer, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// True for a thinking model.
    #[serde(default)]
    pub reasoning: bool,
    /// `text`, `image`.
    #[serde(default)]
    pub input: Vec<String>,
    /// Whatever else the adapter says of it.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub extra: Object,
}

impl ModelInfo {
    /// Name of the member of `extra` that says how the model is written.
    const ENTRY: &'static str = "entry";

    /// Says how the model is written in the adapter's configuration: as an element of `models` of its route.
    #[must_use]
    pub fn with_entry(mut self, entry: &serde_json::Map<String, serde_json::Value>) -> Self {
        self.extra.set(Self::ENTRY, raw(entry));
        self
    }

    /// How the model is written, where the adapter says so.
    #[must_use]
    pub fn entry(&self) -> Option<serde_json::Map<String, serde_json::Value>> {
        serde_json::from_str(self.extra.get(Self::ENTRY)?.get()).ok()
    }
}

/// One page of the models that a server lists.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelsPage {
    /// The models in the server's order.
    pub models: Vec<ModelInfo>,
    /// Asks for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<HttpRequest>,
}
