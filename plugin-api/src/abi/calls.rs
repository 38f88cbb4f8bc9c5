//! The JSON of the cold calls.

use serde::{Deserialize, Serialize};

use crate::json::Raw;
use crate::vocab::{EnvelopeId, Exchange, Message, Repair, Request, RouteInfo, Routing, Target};

/// Answer of `describe`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Name of the adapter.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Adapter API that it was built with, `major.minor`.
    pub api: String,
    /// What it writes into replay state.
    pub envelope: EnvelopeId,
    /// JSON Schema of its configuration.
    pub config_schema: Raw,
}

/// Body of a successful `create`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreatedInfo {
    /// The routes of this configuration.
    pub routes: Vec<RouteInfo>,
}

/// Body of a failed `create`: where in `[adapter.config]`, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRefusal {
    /// Dotted path; empty for the whole.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// The same as data, from which a host makes its own words; [`ConfigProblem::Other`] of adapters that give none.
    #[serde(default)]
    pub problem: ConfigProblem,
}

/// What is wrong with a configuration, as data. Words are those of the manifest: table, array, key.
///
/// A kind that this build does not know is read as [`ConfigProblem::Other`], so that kinds can be added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ConfigProblem {
    /// A key that nothing reads. The path ends with it, or at its table.
    UnknownKey {
        /// The key.
        key: String,
        /// The keys that there are.
        expected: Vec<String>,
    },
    /// A word, as a value or as a key, that is none of the possible ones.
    UnknownWord {
        /// The word.
        word: String,
        /// The possible ones.
        expected: Vec<String>,
    },
    /// A value of another type.
    WrongType {
        /// The type that was found: `boolean`, `integer`, `float`, `string`, `array`, `table` or `other`.
        found: String,
        /// What belongs there, such as `a string`.
        expected: String,
    },
    /// A value of the right type that cannot be used.
    BadValue {
        /// The value.
        found: String,
        /// What belongs there, such as `an integer of 0 or more`.
        expected: String,
    },
    /// A key that must be there, below the path.
    Missing {
        /// The key.
        key: String,
        /// What would be right, where it is more than to set the key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
    },
    /// Anything else: the message says it.
    #[default]
    #[serde(other)]
    Other,
}

/// Argument of `check_history`: the assistant messages whose envelope passed the host's own checks.
/// Answer: an array of `null` or `InvalidReplay`, one per message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckHistory {
    /// Where the request goes.
    pub target: Target,
    /// The messages.
    pub messages: Vec<Message>,
}

/// Argument of `convert`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Convert {
    /// Where the request goes.
    pub target: Target,
    /// The request.
    pub request: Request,
    /// One per message of the request.
    pub routing: Vec<Routing>,
}

/// Answer of `convert`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Converted {
    /// How to get the answer.
    pub exchange: Exchange,
    /// What the wire or the model made necessary; positions are those of the request's messages.
    #[serde(default)]
    pub repairs: Vec<Repair>,
}

/// Argument of `open`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Open {
    /// Where the request went.
    pub target: Target,
    /// The head of the response.
    pub head: OpenHead,
}

/// The head of a response.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenHead {
    /// An HTTP response.
    Http {
        /// HTTP status.
        status: u16,
        /// Headers in order; names in lower case.
        headers: Vec<(String, String)>,
    },
    /// A polled exchange.
    Polled(Raw),
}

/// The operation of `call` that asks for the request of a server's models: [`ModelsRequest`] in, `HttpRequest` out.
pub const MODELS_REQUEST: &str = "models.request";

/// The operation of `call` that reads the answer: [`ModelsResponse`] in, `ModelsPage` out.
pub const MODELS_RESPONSE: &str = "models.response";

/// Argument of [`MODELS_REQUEST`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelsRequest {
    /// Name of the provider route.
    pub route: String,
}

/// Argument of [`MODELS_RESPONSE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelsResponse {
    /// Name of the provider route.
    pub route: String,
    /// HTTP status.
    pub status: u16,
    /// Headers in order; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body; what is no UTF-8 in it is replaced.
    pub body: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_another_version_is_read_with_what_is_known_of_it() {
        for (json, problem) in [
            (r#"{"path":"p","message":"m"}"#, ConfigProblem::Other),
            (r#"{"path":"p","message":"m","problem":{"kind":"of-tomorrow","x":1}}"#, ConfigProblem::Other),
            (
                r#"{"path":"p","message":"m","problem":{"kind":"missing","key":"k","since":2}}"#,
                ConfigProblem::Missing { key: "k".into(), remedy: None },
            ),
        ] {
            let refusal: ConfigRefusal = crate::json::from_slice(json.as_bytes()).unwrap();
            assert_eq!(refusal.problem, problem, "{json}");
        }
    }
}
