//! One message of the history in this wire's words, with and without its replay metadata.
//!
//! Metadata of this wire: a reasoning block's `thinkingSignature` is the name of the field that the reasoning came
//! in, or the JSON array of its `reasoning_details`; a tool call's `thoughtSignature` is the JSON of the reasoning
//! detail (or an array of them) that belongs to that call.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{AssistantMessage, Block, Image, InvalidReplay, Message, ReplayEnvelope, Role};

use crate::config::ApiName;
use crate::envelope::{self, Entry, invalid};

/// The fields that servers of this wire send reasoning in, the one that wins first.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    /// Who speaks.
    pub(super) role: Role,
    /// What is said, in order.
    pub(super) parts: Vec<Part>,
}

/// One block.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Text that is not blank.
    Text(String),
    /// An image.
    Image(Image),
    /// Reasoning; only in native turns.
    Reasoning {
        /// Its text.
        text: String,
        /// How it goes back.
        carrier: Carrier,
    },
    /// A tool call.
    Call(Call),
    /// The result of a tool call.
    Result {
        /// Id of the call, as in the history.
        call_id: String,
        /// Text and images.
        content: Vec<Part>,
    },
}

/// A tool call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// Id as in the history.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON text; blank stands for `{}`.
    pub arguments: String,
    /// Reasoning details that belong to it; only in native turns.
    pub details: Vec<Raw>,
    /// True when this server made the id.
    pub native: bool,
}

/// How a server wants its reasoning back.
#[derive(Debug, Clone)]
pub(super) enum Carrier {
    /// It did not say.
    Unknown,
    /// In the field that it came in.
    Field(&'static str),
    /// As `reasoning_details`.
    Details(Vec<Raw>),
}

/// Converts a message of any origin. Reasoning and metadata are left out.
pub(super) fn foreign(message: &Message) -> Turn {
    let parts = message.content.iter().filter_map(|block| plain(block, message.role, false)).collect();
    Turn { role: message.role, parts }
}

/// Converts a message with its metadata.
///
/// # Errors
///
/// Names the member that this adapter would not have written.
pub(super) fn restore(message: &AssistantMessage, envelope: &ReplayEnvelope) -> Result<Turn, InvalidReplay> {
    let entries = envelope::entries(message, envelope, ApiName::OpenaiCompletions)?;
    let mut parts = Vec::with_capacity(entries.len());
    for (at, (block, entry)) in message.content.iter().zip(entries).enumerate() {
        parts.extend(match block {
            Block::Reasoning(text) => {
                let carrier = entry.thinking_signature.map_or(Ok(Carrier::Unknown), |text| carrier(at, &text))?;
                Some(Part::Reasoning { text: text.clone(), carrier })
            }
            Block::ToolCall { id, name, arguments } => {
                let details = entry.thought_signature.map_or(Ok(Vec::new()), |text| call_details(at, &text))?;
                Some(Part::Call(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: arguments.clone(),
                    details,
                    native: true,
                }))
            }
            other => plain(other, message.role, true),
        });
    }
    Ok(Turn { role: message.role, parts })
}

/// A block without metadata; `None` for what this wire cannot say in that role.
fn plain(block: &Block, role: Role, native: bool) -> Option<Part> {
    match block {
        Block::Text(text) => (!text.trim().is_empty()).then(|| Part::Text(text.clone())),
        Block::Image(image) => (role != Role::Assistant).then(|| Part::Image(image.clone())),
        Block::ToolCall { id, name, arguments } if role == Role::Assistant => Some(Part::Call(Call {
            id: id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            details: Vec::new(),
            native,
        })),
        Block::ToolResult { tool_call_id, content, .. } if role == Role::User => Some(Part::Result {
            call_id: tool_call_id.clone(),
            content: content.iter().filter_map(|block| plain(block, role, false)).collect(),
        }),
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Reasoning(_) | Block::Other(_) => None,
    }
}

fn carrier(at: usize, signature: &str) -> Result<Carrier, InvalidReplay> {
    if let Some(field) = REASONING_FIELDS.into_iter().find(|field| *field == signature) {
        return Ok(Carrier::Field(field));
    }
    details(signature).filter(|_| signature.trim_start().starts_with('[')).map(Carrier::Details).ok_or_else(|| {
        let fields = REASONING_FIELDS.join(", ");
        invalid(format!("blocks[{at}].thinkingSignature is neither one of {fields} nor a list of reasoning details"))
    })
}

fn call_details(at: usize, signature: &str) -> Result<Vec<Raw>, InvalidReplay> {
    details(signature)
        .ok_or_else(|| invalid(format!("blocks[{at}].thoughtSignature is no reasoning detail, nor a list of them")))
}

/// A JSON object, or an array of objects, each as it was written.
fn details(signature: &str) -> Option<Vec<Raw>> {
    let values: Vec<Raw> = if signature.trim_start().starts_with('[') {
        json::from_str(signature).ok()?
    } else {
        vec![json::from_str(signature).ok()?]
    };
    values.iter().all(|value| json::from_str::<Object>(value.get()).is_ok()).then_some(values)
}

/// Entry of a text block.
pub(super) fn text_entry() -> Raw {
    raw(&Entry { kind: "text", ..Entry::default() })
}

/// Entry of a reasoning block: its details where there are any, else its field.
pub(super) fn reasoning_entry(field: Option<&str>, details: &[Object]) -> Raw {
    let signature = if details.is_empty() { field.map(str::to_owned) } else { Some(raw(details).get().to_owned()) };
    raw(&Entry { kind: "reasoning", thinking_signature: signature, ..Entry::default() })
}

/// Entry of a tool call: the one detail that belongs to it, or the list of them.
pub(super) fn call_entry(details: &[&Object]) -> Raw {
    let signature = match details {
        [] => None,
        [detail] => Some(raw(*detail).get().to_owned()),
        more => Some(raw(more).get().to_owned()),
    };
    raw(&Entry { kind: "tool-call", thought_signature: signature, ..Entry::default() })
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::Source;
    use serde_json::{Value, json};

    use super::*;

    fn message() -> Message {
        let content = vec![
            Block::Reasoning("plan".into()),
            Block::Text("Reading.".into()),
            Block::ToolCall { id: "c".into(), name: "bash".into(), arguments: "{}".into() },
        ];
        Message::new("m", Role::Assistant, content, Source::model("p", "m", None))
    }

    fn state() -> Value {
        json!({
            "response": {"kind": "pi-ai", "version": 2, "api": "openai-completions", "provider": "p", "model": "m",
                "responseModel": "m-1", "responseId": "r", "stopReason": "toolUse"},
            "blocks": [{"type": "reasoning", "thinkingSignature": "reasoning"}, {"type": "text"},
                {"type": "tool-call", "thoughtSignature": "{\"type\":\"reasoning.encrypted\",\"data\":\"x\"}"}],
        })
    }

    fn restored(state: &Value) -> Result<Turn, InvalidReplay> {
        restore(&message(), &ReplayEnvelope::parse(&raw(state))?)
    }

    #[test]
    fn a_sound_state_is_restored_with_its_carriers() {
        let turn = restored(&state()).unwrap();
        let [Part::Reasoning { carrier: Carrier::Field("reasoning"), .. }, Part::Text(_), Part::Call(call)] =
            &turn.parts[..]
        else {
            panic!("{turn:?}")
        };
        assert_eq!(call.details[0].get(), r#"{"type":"reasoning.encrypted","data":"x"}"#);
    }

    #[test]
    fn members_that_nobody_knows_and_entries_without_signature_are_fine() {
        let mut state = state();
        state["response"]["more"] = json!({"a": 1});
        state["blocks"] = json!([{"type": "reasoning", "x": 1, "redacted": false}, {"type": "text", "textSignature": "s"}, {"type": "tool-call"}]);
        assert!(restored(&state).is_ok());
        state["blocks"][0]["thinkingSignature"] = json!("");
        state["blocks"][2]["thoughtSignature"] = json!("");
        assert!(matches!(restored(&state).unwrap().parts[0], Part::Reasoning { carrier: Carrier::Unknown, .. }));
    }

    #[test]
    fn every_damaged_state_is_refused_with_its_reason() {
        let cases: [(&str, Value, &str); 20] = [
            ("/response", json!("x"), "the response half is not an object"),
            ("/response/api", json!(null), "response.api is not a string"),
            ("/response/responseId", json!(7), "response.responseId is not a string"),
            ("/response/responseModel", json!([]), "response.responseModel is not a string"),
            ("/response/stopReason", json!({}), "response.stopReason is not a string"),
            ("/blocks", json!([]), "the state has 0 block entries for 3 blocks"),
            ("/blocks/0", json!(1), "blocks[0] is not an object"),
            ("/blocks/0/type", json!("text"), "blocks[0].type is \"text\" for a block of type \"reasoning\""),
            ("/blocks/1/type", json!(1), "blocks[1].type is not a string"),
            ("/blocks/1", json!({}), "blocks[1].type is missing"),
            ("/blocks/1", json!({"type": "text", "textSignature": 1}), "blocks[1].textSignature is not a string"),
            (
                "/blocks/0",
                json!({"type": "reasoning", "redacted": "yes"}),
                "blocks[0].redacted is neither true nor false",
            ),
            ("/blocks/0/thinkingSignature", json!(1), "blocks[0].thinkingSignature is not a string"),
            ("/blocks/0/thinkingSignature", json!(null), "blocks[0].thinkingSignature is not a string"),
            ("/blocks/0/thinkingSignature", json!("content"), "blocks[0].thinkingSignature is neither one of"),
            ("/blocks/0/thinkingSignature", json!("[{"), "blocks[0].thinkingSignature is neither one of"),
            ("/blocks/0/thinkingSignature", json!("[1]"), "blocks[0].thinkingSignature is neither one of"),
            ("/blocks/2/thoughtSignature", json!(true), "blocks[2].thoughtSignature is not a string"),
            ("/blocks/2/thoughtSignature", json!("AAAA=="), "blocks[2].thoughtSignature is no reasoning detail"),
            ("/blocks/2/thoughtSignature", json!("[null]"), "blocks[2].thoughtSignature is no reasoning detail"),
        ];
        for (pointer, value, reason) in cases {
            let mut state = state();
            *state.pointer_mut(pointer).unwrap() = value.clone();
            let Err(InvalidReplay::Invalid(got)) = restored(&state) else { panic!("{pointer} {value}") };
            assert!(got.starts_with(reason), "{pointer} {value}: {got}");
        }
        let mut without = state();
        without.as_object_mut().unwrap().remove("blocks");
        assert_eq!(restored(&without).unwrap_err(), invalid("the state has no block entries"));
        let mut nameless = state();
        nameless["response"].as_object_mut().unwrap().remove("api");
        assert_eq!(restored(&nameless).unwrap_err(), invalid("response.api is missing"));
    }

    #[test]
    fn the_state_of_another_wire_is_of_another_origin() {
        let mut state = state();
        state["response"]["api"] = json!("anthropic-messages");
        assert!(matches!(restored(&state), Err(InvalidReplay::OtherOrigin(_))));
    }

    #[test]
    fn a_foreign_turn_has_neither_reasoning_nor_blank_text() {
        let mut message = message();
        message.content.push(Block::Text(" \n".into()));
        message.content.push(Block::Other(raw(&json!({"type": "chart"}))));
        let turn = foreign(&message);
        assert!(matches!(&turn.parts[..], [Part::Text(_), Part::Call(Call { native: false, .. })]), "{turn:?}");
    }
}
