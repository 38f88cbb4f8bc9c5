//! Failures: one shape for everything that can go wrong with a request.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// What kind of failure it was. Codes that this version does not know are kept.
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum FailureCode {
            $($(#[$doc])* $variant,)*
            /// A code of another version.
            Other(String),
        }

        impl FailureCode {
            /// The name in JSON.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Other(name) => name,
                }
            }
        }

        impl From<&str> for FailureCode {
            fn from(name: &str) -> Self {
                match name {
                    $($name => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }
    };
}

failure_codes! {
    /// The provider refused the credential (401, 403).
    Auth = "AUTH",
    /// Too many requests (429).
    RateLimit = "RATE_LIMIT",
    /// The account's quota or balance is used up.
    Quota = "QUOTA",
    /// The provider failed (5xx, overloaded).
    Server = "SERVER",
    /// The provider refused the request as invalid (400, 404, 422).
    InvalidRequest = "INVALID_REQUEST",
    /// No answer in time.
    Timeout = "TIMEOUT",
    /// The connection failed, or the stream ended without its terminal event.
    Transport = "TRANSPORT",
    /// The prompt does not fit the model.
    ContextWindowExceeded = "CONTEXT_WINDOW_EXCEEDED",
    /// A complete answer without content.
    EmptyResponse = "EMPTY_RESPONSE",
    /// A refusal or a content filter, without content.
    Refused = "REFUSED",
    /// The provider broke its own wire.
    Protocol = "PROTOCOL",
    /// No such model at this route.
    UnknownModel = "UNKNOWN_MODEL",
    /// The credential reference has no value.
    MissingCredential = "MISSING_CREDENTIAL",
    /// The credential cannot be used (not printable, or not named by the route).
    InvalidCredential = "INVALID_CREDENTIAL",
    /// The adapter cannot do this.
    Unsupported = "UNSUPPORTED",
    /// Stopped by the user or the host.
    Aborted = "ABORTED",
    /// The adapter panicked.
    PluginPanic = "PLUGIN_PANIC",
    /// The adapter's process ended.
    PluginCrashed = "PLUGIN_CRASHED",
    /// The adapter did not answer in time.
    PluginTimeout = "PLUGIN_TIMEOUT",
}

impl Serialize for FailureCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FailureCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|name| Self::from(name.as_str()))
    }
}

impl std::fmt::Display for FailureCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed request: `{message, code, status?, providerRetryAfterMs?, requestId?}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{code}: {message}")]
pub struct Failure {
    /// For a person: what failed and, where known, why.
    pub message: String,
    /// Its kind.
    pub code: FailureCode,
    /// HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_retry_after_ms: Option<u64>,
    /// The provider's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl Failure {
    /// A failure without HTTP detail.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { message: message.into(), code, status: None, provider_retry_after_ms: None, request_id: None }
    }
}
