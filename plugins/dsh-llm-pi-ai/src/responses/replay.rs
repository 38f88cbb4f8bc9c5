//! What this wire carries along with its blocks: a reasoning block's `thinkingSignature` is the JSON of its item, as
//! the server wrote it; a text block's `textSignature` is `{v: 1, id, phase?}` of its message, in old sessions the id
//! alone. A tool call's ids stand in the block itself, as `call|item`.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::InvalidReplay;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::config::ApiName;
use crate::envelope::{Entry, StoredEntry, invalid, nothing};
use crate::turn::Carriers;

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Responses {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Responses>;
/// One block.
pub(super) type Part = crate::turn::Part<Responses>;
/// A tool call.
pub(super) type Call = crate::turn::Call<Responses>;

/// What a message item goes by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MessageMark {
    /// Its id, which need not be one that the wire takes.
    pub id: Option<String>,
    /// `commentary` or `final_answer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

impl Carriers for Responses {
    const API: ApiName = ApiName::OpenaiResponses;
    type Text = MessageMark;
    /// The reasoning item; none for reasoning that was interrupted.
    type Reasoning = Option<Raw>;
    type Call = ();

    /// Old sessions hold anything here; what is no id is none.
    fn text(_: usize, entry: &StoredEntry) -> Result<MessageMark, InvalidReplay> {
        Ok(entry.text_signature.as_deref().map(message_mark).unwrap_or_default())
    }

    fn reasoning(at: usize, entry: &StoredEntry) -> Result<Option<Raw>, InvalidReplay> {
        nothing(at, "redacted", entry.redacted)?;
        entry.thinking_signature.as_deref().map(|signature| reasoning_item(at, signature)).transpose()
    }

    fn call(at: usize, entry: &StoredEntry) -> Result<(), InvalidReplay> {
        nothing(at, "thoughtSignature", entry.thought_signature.is_some())
    }
}

fn message_mark(signature: &str) -> MessageMark {
    if !signature.trim_start().starts_with('{') {
        return MessageMark { id: Some(signature.to_owned()), phase: None };
    }
    let stored: Object = json::from_str(signature).unwrap_or_default();
    let member = |name: &str| stored.get_str(name).filter(|text| !text.is_empty());
    MessageMark { id: member("id"), phase: member("phase") }
}

fn reasoning_item(at: usize, signature: &str) -> Result<Raw, InvalidReplay> {
    let wrong = |what: &str| Err(invalid(format!("blocks[{at}].thinkingSignature {what}")));
    let Ok(item) = json::from_str::<Object>(signature) else { return wrong("is no reasoning item") };
    if item.get_str("type").as_deref() != Some("reasoning") {
        return wrong("is no reasoning item");
    }
    let odd = |name: &str, start: char| {
        item.get(name).is_some_and(|value| value.get() != "null" && !value.get().starts_with(start))
    };
    for (name, start, what) in [
        ("id", '"', "is a reasoning item whose id is not a string"),
        ("encrypted_content", '"', "is a reasoning item whose encrypted_content is not a string"),
        ("summary", '[', "is a reasoning item whose summary is not a list"),
    ] {
        if odd(name, start) {
            return wrong(what);
        }
    }
    RawValue::from_string(signature.to_owned()).or_else(|_| wrong("is no reasoning item"))
}

/// Entry of a text block.
pub(super) fn text_entry(mark: &MessageMark) -> Raw {
    #[derive(Serialize)]
    struct Signature<'a> {
        v: u32,
        #[serde(flatten)]
        mark: &'a MessageMark,
    }
    let signature = mark.id.as_ref().map(|_| raw(&Signature { v: 1, mark }).get().to_owned());
    raw(&Entry { kind: "text", text_signature: signature, ..Entry::default() })
}

/// Entry of a reasoning block: its whole item.
pub(super) fn reasoning_entry(item: &RawValue) -> Raw {
    raw(&Entry { kind: "reasoning", thinking_signature: Some(item.get().to_owned()), ..Entry::default() })
}

/// Entry of a tool call.
pub(super) fn call_entry() -> Raw {
    raw(&Entry { kind: "tool-call", ..Entry::default() })
}
