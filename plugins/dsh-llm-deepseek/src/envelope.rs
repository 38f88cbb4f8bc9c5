//! The envelope of this adapter; its form is described at the crate's root.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{AssistantMessage, InvalidReplay, ReplayEnvelope, Target};
use serde::Serialize;
use serde_json::json;

/// Kind of the envelope.
pub(crate) const KIND: &str = "deepseek";
/// Version of the envelope.
pub(crate) const VERSION: u32 = 1;

/// How a response ended. A partial that is kept has [`StopReason::Stop`].
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

/// What is known of a response as a whole.
#[derive(Debug)]
pub(crate) struct ResponseFacts {
    /// Where the request went.
    pub target: Target,
    /// The model that answered, where it is named otherwise than the one that was asked.
    pub response_model: Option<String>,
    /// The provider's id of the response.
    pub response_id: Option<String>,
}

impl ResponseFacts {
    /// The response half of the envelope.
    pub fn half(&self, stop_reason: StopReason) -> Raw {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Half<'a> {
            kind: &'a str,
            version: u32,
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
            provider: &self.target.provider,
            model: &self.target.model,
            response_model: self.response_model.as_deref(),
            response_id: self.response_id.as_deref(),
            stop_reason,
        })
    }
}

/// The entry of a block of this type.
pub(crate) fn entry(kind: &str) -> Raw {
    raw(&json!({ "type": kind }))
}

/// Checks a stored envelope against its message.
///
/// # Errors
///
/// Names the member that this adapter would not have written.
pub(crate) fn check(message: &AssistantMessage, envelope: &ReplayEnvelope) -> Result<(), InvalidReplay> {
    let response = object(&envelope.response, "response")?;
    for (name, required) in [("responseModel", false), ("responseId", false), ("stopReason", true)] {
        text(&response, "response", name, required)?;
    }
    let blocks: &[Raw] = match &envelope.blocks {
        Some(blocks) => blocks,
        None if message.content.is_empty() => &[],
        None => return Err(invalid("the state has no block entries".to_owned())),
    };
    if blocks.len() != message.content.len() {
        let (entries, content) = (blocks.len(), message.content.len());
        return Err(invalid(format!("the state has {entries} block entries for {content} blocks")));
    }
    for (at, (entry, block)) in blocks.iter().zip(&message.content).enumerate() {
        let place = format!("blocks[{at}]");
        let stored = text(&object(entry, &place)?, &place, "type", true)?.unwrap_or_default();
        let kind = block.kind();
        if stored != kind {
            return Err(invalid(format!("{place}.type is {stored:?} for a block of type {kind:?}")));
        }
    }
    Ok(())
}

fn invalid(reason: String) -> InvalidReplay {
    InvalidReplay::Invalid(reason)
}

fn object(value: &Raw, place: &str) -> Result<Object, InvalidReplay> {
    json::from_str(value.get()).map_err(|_| invalid(format!("{place} is not an object")))
}

fn text(object: &Object, place: &str, name: &str, required: bool) -> Result<Option<String>, InvalidReplay> {
    match object.get(name) {
        None if required => Err(invalid(format!("{place}.{name} is missing"))),
        None => Ok(None),
        Some(value) => {
            json::from_str(value.get()).map(Some).map_err(|_| invalid(format!("{place}.{name} is not a string")))
        }
    }
}
