//! The pi-ai envelope, version 2: what every wire stores of a response, and the checks that every wire shares.
//!
//! Response half: `{kind, version, api, provider, model, responseModel?, responseId?, stopReason}`. Block entries:
//! `{type: "text", textSignature?}`, `{type: "reasoning", thinkingSignature?, redacted?}`,
//! `{type: "tool-call", thoughtSignature?}`.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{AssistantMessage, FinishReason, InvalidReplay, ReplayEnvelope, Target};
use serde::Serialize;

use crate::config::ApiName;

/// Kind of the envelope.
pub(crate) const KIND: &str = "pi-ai";
/// Version of the envelope.
pub(crate) const VERSION: u32 = 2;

/// How a response ended, in the envelope's words. A partial that is kept has [`StopReason::Stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StopReason {
    /// The model was done, or was interrupted.
    Stop,
    /// The output limit was reached.
    Length,
    /// The model waits for results.
    ToolUse,
}

impl StopReason {
    /// The word for how an answer finished.
    pub const fn of(reason: &FinishReason) -> Self {
        match reason {
            FinishReason::ToolCalls => Self::ToolUse,
            FinishReason::MaxTokens => Self::Length,
            FinishReason::Stop | FinishReason::Aborted { .. } | FinishReason::Error { .. } => Self::Stop,
        }
    }
}

/// What is known of a response as a whole.
#[derive(Debug, Clone)]
pub(crate) struct ResponseFacts {
    /// The wire.
    pub api: ApiName,
    /// Where the request went.
    pub target: Target,
    /// The model that answered, where it is named otherwise than the one that was asked.
    pub response_model: Option<String>,
    /// The provider's id of the response.
    pub response_id: Option<String>,
}

impl ResponseFacts {
    /// Facts of a response that has said nothing yet.
    pub const fn new(api: ApiName, target: Target) -> Self {
        Self { api, target, response_model: None, response_id: None }
    }

    /// The response half of the envelope.
    pub fn half(&self, stop_reason: StopReason) -> Raw {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Half<'a> {
            kind: &'a str,
            version: u32,
            api: &'a str,
            provider: &'a str,
            model: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            response_model: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            response_id: Option<&'a str>,
            stop_reason: StopReason,
        }
        raw(&Half {
            kind: KIND,
            version: VERSION,
            api: self.api.name(),
            provider: &self.target.provider,
            model: &self.target.model,
            response_model: self.response_model.as_deref(),
            response_id: self.response_id.as_deref(),
            stop_reason,
        })
    }
}

/// A block entry. Members that are absent are left out.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    /// `text`, `reasoning` or `tool-call`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What a text block carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
    /// Signature of a reasoning block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// The reasoning is hidden, and its signature is the opaque data itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Signature of a tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
}

/// A stored block entry whose known members have the types that this adapter writes.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct StoredEntry {
    /// `textSignature`
    pub text_signature: Option<String>,
    /// `thinkingSignature`
    pub thinking_signature: Option<String>,
    /// `redacted`
    pub redacted: bool,
    /// `thoughtSignature`
    pub thought_signature: Option<String>,
}

/// A stored value that is not of this adapter's form.
pub(crate) fn invalid(reason: impl Into<String>) -> InvalidReplay {
    InvalidReplay::Invalid(reason.into())
}

/// Refuses a member of a block entry on a wire that never writes it there.
///
/// # Errors
///
/// Names the member, when it is `present`.
pub(crate) fn nothing(at: usize, member: &str, present: bool) -> Result<(), InvalidReplay> {
    if present { Err(invalid(format!("blocks[{at}].{member} is nothing that this wire writes"))) } else { Ok(()) }
}

/// Checks a stored envelope against its message and returns one entry per block.
///
/// # Errors
///
/// [`InvalidReplay::OtherOrigin`] when another wire made it; [`InvalidReplay::Invalid`] names the member that is wrong.
pub(crate) fn entries(
    message: &AssistantMessage,
    envelope: &ReplayEnvelope,
    api: ApiName,
) -> Result<Vec<StoredEntry>, InvalidReplay> {
    let response: Object =
        json::from_str(envelope.response.get()).map_err(|_| invalid("the response half is not an object"))?;
    let made_by = text(&response, "response", "api")?.ok_or_else(|| invalid("response.api is missing"))?;
    if made_by != api.name() {
        return Err(InvalidReplay::OtherOrigin(format!("the state was made by {made_by}, not by {}", api.name())));
    }
    for name in ["responseModel", "responseId", "stopReason"] {
        text(&response, "response", name)?;
    }
    let blocks: &[Raw] = match &envelope.blocks {
        Some(blocks) => blocks,
        None if message.content.is_empty() => &[],
        None => return Err(invalid("the state has no block entries")),
    };
    if blocks.len() != message.content.len() {
        let (entries, content) = (blocks.len(), message.content.len());
        return Err(invalid(format!("the state has {entries} block entries for {content} blocks")));
    }
    blocks
        .iter()
        .zip(&message.content)
        .enumerate()
        .map(|(at, (entry, block))| entry_at(at, entry, &block.kind()))
        .collect()
}

fn entry_at(at: usize, entry: &Raw, kind: &str) -> Result<StoredEntry, InvalidReplay> {
    let place = format!("blocks[{at}]");
    let entry: Object = json::from_str(entry.get()).map_err(|_| invalid(format!("{place} is not an object")))?;
    match text(&entry, &place, "type")? {
        Some(stored) if stored == kind => {}
        Some(stored) => return Err(invalid(format!("{place}.type is {stored:?} for a block of type {kind:?}"))),
        None => return Err(invalid(format!("{place}.type is missing"))),
    }
    let redacted = match entry.get("redacted").map(|value| value.get()) {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(invalid(format!("{place}.redacted is neither true nor false"))),
    };
    // An empty signature is none.
    let signature = |name: &str| text(&entry, &place, name).map(|text| text.filter(|text| !text.is_empty()));
    Ok(StoredEntry {
        text_signature: signature("textSignature")?,
        thinking_signature: signature("thinkingSignature")?,
        redacted,
        thought_signature: signature("thoughtSignature")?,
    })
}

fn text(object: &Object, place: &str, name: &str) -> Result<Option<String>, InvalidReplay> {
    match object.get(name) {
        None => Ok(None),
        Some(value) => {
            json::from_str(value.get()).map(Some).map_err(|_| invalid(format!("{place}.{name} is not a string")))
        }
    }
}
