//! Replay metadata: the envelope, how it is judged, and what is said when it cannot be used.

use serde::{Deserialize, Serialize};

use super::Target;
use crate::json::{self, Object, Raw};

/// The kind and version of the envelopes that an adapter writes and reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeId {
    /// For example `pi-ai`.
    pub kind: String,
    /// Raised when the form changes.
    pub version: u32,
}

/// Opaque metadata of one response: `{response, blocks?}`.
///
/// `blocks` has one entry per block of the message, in order. Both halves are the adapter's own; the host reads only
/// what [`ReplayHead`] names.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReplayEnvelope {
    /// Metadata of the response as a whole.
    pub response: Raw,
    /// Metadata of its blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<Raw>>,
}

/// What a host may read of an envelope's response half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayHead {
    /// Kind of the envelope.
    pub kind: String,
    /// Version of the envelope; any JSON number that is no version this build could know is kept as text.
    pub version: String,
    /// Route that made the response.
    pub provider: Option<String>,
    /// Model that made the response.
    pub model: Option<String>,
    /// How the provider said it ended.
    pub stop_reason: Option<String>,
}

impl ReplayEnvelope {
    /// Reads stored state as an envelope.
    ///
    /// # Errors
    ///
    /// Says what is wrong with its form.
    pub fn parse(state: &Raw) -> Result<Self, InvalidReplay> {
        let invalid = |reason: &str| InvalidReplay::Invalid(reason.to_owned());
        let mut o: Object = json::from_str(state.get()).map_err(|_| invalid("the replay state is not an object"))?;
        let response = o.take("response").ok_or_else(|| {
            if o.get("kind").is_some() {
                invalid("the replay state has the flat form of version 1")
            } else {
                invalid("the replay state has no response half")
            }
        })?;
        let blocks = match o.take("blocks") {
            None => None,
            Some(blocks) => {
                Some(json::from_str(blocks.get()).map_err(|_| invalid("the replay state's blocks are not an array"))?)
            }
        };
        Ok(Self { response, blocks })
    }

    /// Reads the response half's head.
    ///
    /// # Errors
    ///
    /// Says what is wrong with its form.
    pub fn head(&self) -> Result<ReplayHead, InvalidReplay> {
        let invalid = |reason: &str| InvalidReplay::Invalid(reason.to_owned());
        let o: Object = json::from_str(self.response.get())
            .map_err(|_| invalid("the replay state's response half is not an object"))?;
        let text = |key: &str| match o.get(key) {
            None => Ok(None),
            Some(value) => json::from_str::<String>(value.get())
                .map(Some)
                .map_err(|_| InvalidReplay::Invalid(format!("the replay state's {key} is not a string"))),
        };
        Ok(ReplayHead {
            kind: text("kind")?.ok_or_else(|| invalid("the replay state names no kind"))?,
            version: o.get("version").ok_or_else(|| invalid("the replay state names no version"))?.get().to_owned(),
            provider: text("provider")?,
            model: text("model")?,
            stop_reason: o.get_str("stopReason"),
        })
    }

    /// The `type` member of each block entry, where there are entries.
    #[must_use]
    pub fn block_types(&self) -> Option<Vec<Option<String>>> {
        let types = |entry: &Raw| json::from_str::<Object>(entry.get()).ok().and_then(|o| o.get_str("type"));
        Some(self.blocks.as_ref()?.iter().map(types).collect())
    }
}

/// Why a message's replay state is not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "verdict", content = "reason", rename_all = "kebab-case")]
pub enum InvalidReplay {
    /// It is damaged or not what this adapter writes. The message goes out foreign and is reported as degraded.
    #[error("{0}")]
    Invalid(String),
    /// It is sound, but another provider, api or model made it. The message goes out foreign; a hand-over is normal.
    #[error("{0}")]
    OtherOrigin(String),
}

/// How one message goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// With its replay metadata.
    Native,
    /// Provider-neutral.
    Foreign,
}

/// What an adapter's `on_replay_degrade` hook is told, once per degraded message and request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplayDegrade {
    /// 0-based position in the input messages.
    pub message: usize,
    /// Id of the message.
    pub message_id: String,
    /// Always `INVALID_REPLAY_STATE`.
    pub code: String,
    /// Why.
    pub reason: String,
    /// Where the request goes.
    pub target: Target,
}

impl ReplayDegrade {
    /// The code of every degrade.
    pub const CODE: &'static str = "INVALID_REPLAY_STATE";
}
