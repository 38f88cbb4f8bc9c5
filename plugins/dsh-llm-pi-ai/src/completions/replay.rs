//! What this wire carries along with its blocks: a reasoning block's `thinkingSignature` is the name of the field that the reasoning came
//! in, or the JSON array of its `reasoning_details`; a tool call's `thoughtSignature` is the JSON of the reasoning
//! detail (or an array of them) that belongs to that call.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::InvalidReplay;

use crate::config::ApiName;
use crate::envelope::{Entry, StoredEntry, invalid};
use crate::turn::Carriers;

/// The fields that servers of this wire send reasoning in, the one that wins first.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Completions {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Completions>;
/// One block.
pub(super) type Part = crate::turn::Part<Completions>;
/// A tool call; its carrier is the reasoning details that belong to it.
pub(super) type Call = crate::turn::Call<Completions>;

/// How a server wants its reasoning back.
#[derive(Debug, Clone)]
pub(crate) enum Carrier {
    /// It did not say.
    Unknown,
    /// In the field that it came in.
    Field(&'static str),
    /// As `reasoning_details`.
    Details(Vec<Raw>),
}

impl Carriers for Completions {
    const API: ApiName = ApiName::OpenaiCompletions;
    type Text = ();
    type Reasoning = Carrier;
    type Call = Vec<Raw>;

    fn text(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }

    fn reasoning(at: usize, entry: &StoredEntry) -> Result<Carrier, InvalidReplay> {
        entry.thinking_signature.as_ref().map_or(Ok(Carrier::Unknown), |signature| carrier(at, signature))
    }

    fn call(at: usize, entry: &StoredEntry) -> Result<Vec<Raw>, InvalidReplay> {
        entry.thought_signature.as_ref().map_or(Ok(Vec::new()), |signature| call_details(at, signature))
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
    use dsh_plugin_api::vocab::{Block, Message, ReplayEnvelope, Role, Source};
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
        Turn::restore(&message(), &ReplayEnvelope::parse(&raw(state))?)
    }

    #[test]
    fn a_sound_state_is_restored_with_its_carriers() {
        let turn = restored(&state()).unwrap();
        let [Part::Reasoning { carrier: Carrier::Field("reasoning"), .. }, Part::Text { .. }, Part::Call(call)] =
            &turn.parts[..]
        else {
            panic!("{turn:?}")
        };
        assert_eq!(call.carrier[0].get(), r#"{"type":"reasoning.encrypted","data":"x"}"#);
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
        let turn = Turn::foreign(&message);
        assert!(matches!(&turn.parts[..], [Part::Text { .. }, Part::Call(Call { native: false, .. })]), "{turn:?}");
    }
}
