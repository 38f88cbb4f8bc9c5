//! What this wire carries along with its blocks: a reasoning block's `thinkingSignature` is the signature of its
//! thinking, or with `redacted` the opaque data of thinking that is hidden. Texts and tool calls carry nothing; what an
//! entry holds beside that says nothing on this wire.

use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::vocab::InvalidReplay;

use crate::config::ApiName;
use crate::envelope::{Entry, StoredEntry, invalid};
use crate::turn::Carriers;

/// What is shown of thinking that is hidden.
pub(super) const REDACTED: &str = "[Reasoning redacted]";

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Anthropic {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Anthropic>;
/// One block.
pub(super) type Part = crate::turn::Part<Anthropic>;
/// A tool call.
pub(super) type Call = crate::turn::Call<Anthropic>;

/// How the provider knows its thinking again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// It does not: nothing was signed.
    Unsigned,
    /// By its signature.
    Signature(String),
    /// The thinking itself, as opaque data.
    Redacted(String),
}

impl Carriers for Anthropic {
    const API: ApiName = ApiName::AnthropicMessages;
    type Text = ();
    type Reasoning = Carrier;
    type Call = ();

    fn text(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }

    fn reasoning(at: usize, entry: &StoredEntry) -> Result<Carrier, InvalidReplay> {
        match (&entry.thinking_signature, entry.redacted) {
            (Some(data), true) if !data.trim().is_empty() => Ok(Carrier::Redacted(data.clone())),
            (_, true) => Err(invalid(format!("blocks[{at}].redacted is true without a thinkingSignature"))),
            (Some(signature), false) if !signature.trim().is_empty() => Ok(Carrier::Signature(signature.clone())),
            (_, false) => Ok(Carrier::Unsigned),
        }
    }

    fn call(_: usize, _: &StoredEntry) -> Result<(), InvalidReplay> {
        Ok(())
    }
}

/// Entry of a text block.
pub(super) fn text_entry() -> Raw {
    raw(&Entry { kind: "text", ..Entry::default() })
}

/// Entry of a reasoning block. A blank signature is none.
pub(super) fn reasoning_entry(signature: &str) -> Raw {
    let signature = Some(signature.to_owned()).filter(|text| !text.trim().is_empty());
    raw(&Entry { kind: "reasoning", thinking_signature: signature, ..Entry::default() })
}

/// Entry of a reasoning block that is hidden.
pub(super) fn redacted_entry(data: &str) -> Raw {
    let data = Some(data.to_owned());
    raw(&Entry { kind: "reasoning", thinking_signature: data, redacted: true, ..Entry::default() })
}

/// Entry of a tool call.
pub(super) fn call_entry() -> Raw {
    raw(&Entry { kind: "tool-call", ..Entry::default() })
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
            "response": {"kind": "pi-ai", "version": 2, "api": "anthropic-messages", "provider": "p", "model": "m",
                "responseModel": "m-1", "responseId": "msg_1", "stopReason": "toolUse"},
            "blocks": [{"type": "reasoning", "thinkingSignature": "EqQB=="}, {"type": "text"}, {"type": "tool-call"}],
        })
    }

    fn restored(state: &Value) -> Result<Turn, InvalidReplay> {
        Turn::restore(&message(), &ReplayEnvelope::parse(&raw(state))?)
    }

    #[test]
    fn a_sound_state_is_restored_with_its_signature() {
        let unsigned = [
            json!({"type": "reasoning"}),
            json!({"type": "reasoning", "thinkingSignature": "", "more": 1}),
            json!({"type": "reasoning", "thinkingSignature": " \n", "textSignature": "x", "thoughtSignature": "x"}),
        ];
        let redacted = json!({"type": "reasoning", "thinkingSignature": "BLOB", "redacted": true});
        let mut cases = vec![(state()["blocks"][0].clone(), Carrier::Signature("EqQB==".into()))];
        cases.push((redacted, Carrier::Redacted("BLOB".into())));
        cases.extend(unsigned.map(|entry| (entry, Carrier::Unsigned)));
        for (entry, expected) in cases {
            let mut state = state();
            state["blocks"][0] = entry.clone();
            let turn = restored(&state).unwrap();
            let [Part::Reasoning { carrier, .. }, Part::Text { .. }, Part::Call(Call { native: true, .. })] =
                &turn.parts[..]
            else {
                panic!("{turn:?}")
            };
            assert_eq!(*carrier, expected, "{entry}");
        }
    }

    #[test]
    fn what_this_wire_would_not_have_written_is_refused_by_name() {
        for (at, entry, reason) in [
            (0, json!({"type": "reasoning", "thinkingSignature": 7}), "blocks[0].thinkingSignature is not a string"),
            (0, json!({"type": "reasoning", "redacted": true}), "blocks[0].redacted is true without"),
            (0, json!({"type": "reasoning", "redacted": true, "thinkingSignature": " "}), "blocks[0].redacted is true"),
            (0, json!({"type": "reasoning", "redacted": 1}), "blocks[0].redacted is neither"),
            (0, json!({"type": "text"}), "blocks[0].type is \"text\""),
            (2, json!({"type": "tool-call", "thoughtSignature": 7}), "blocks[2].thoughtSignature is not a string"),
        ] {
            let mut state = state();
            state["blocks"][at] = entry.clone();
            let Err(InvalidReplay::Invalid(got)) = restored(&state) else { panic!("{entry}") };
            assert!(got.starts_with(reason), "{entry}: {got}");
        }
    }

    #[test]
    fn what_an_entry_holds_for_other_wires_says_nothing_here() {
        let mut state = state();
        state["blocks"][1] = json!({"type": "text", "textSignature": "x", "thinkingSignature": "x", "redacted": true});
        state["blocks"][2] = json!({"type": "tool-call", "thoughtSignature": "x", "thinkingSignature": "x"});
        let turn = restored(&state).unwrap();
        assert!(
            matches!(
                &turn.parts[..],
                [
                    Part::Reasoning { carrier: Carrier::Signature(_), .. },
                    Part::Text { .. },
                    Part::Call(Call { native: true, .. })
                ]
            ),
            "{turn:?}"
        );
    }

    #[test]
    fn the_state_of_another_wire_is_of_another_origin() {
        let mut state = state();
        state["response"]["api"] = json!("openai-responses");
        assert!(matches!(restored(&state), Err(InvalidReplay::OtherOrigin(_))));
    }
}
