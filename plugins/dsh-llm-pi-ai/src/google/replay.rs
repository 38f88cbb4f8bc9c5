//! What this wire carries along with its blocks: a part's `thoughtSignature`, stored as `textSignature`,
//! `thinkingSignature` or `thoughtSignature` by the kind of its block. A signature is padded base64, since the wire's
//! field is of bytes; it stays with the part that it came with. The provider refuses a request with any other, and
//! takes one without: what is no base64 is left out on the way, and the rest of the message stays native.

use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::vocab::InvalidReplay;

use crate::config::ApiName;
use crate::envelope::{Entry, StoredEntry, nothing};
use crate::turn::Carriers;

/// What this wire carries along with its blocks.
#[derive(Debug, Clone)]
pub(crate) enum Google {}

/// One message.
pub(crate) type Turn = crate::turn::Turn<Google>;
/// One block.
pub(super) type Part = crate::turn::Part<Google>;
/// A tool call; its carrier is its signature.
pub(super) type Call = crate::turn::Call<Google>;

impl Carriers for Google {
    const API: ApiName = ApiName::GoogleGenerativeAi;
    type Text = Option<String>;
    type Reasoning = Option<String>;
    type Call = Option<String>;

    fn text(_: usize, entry: &StoredEntry) -> Result<Option<String>, InvalidReplay> {
        Ok(entry.text_signature.clone())
    }

    fn reasoning(at: usize, entry: &StoredEntry) -> Result<Option<String>, InvalidReplay> {
        nothing(at, "redacted", entry.redacted)?;
        Ok(entry.thinking_signature.clone())
    }

    fn call(_: usize, entry: &StoredEntry) -> Result<Option<String>, InvalidReplay> {
        Ok(entry.thought_signature.clone())
    }

    /// A signature may stand on a part without text, and the model misses it when it does not come back.
    fn keeps_blank(text: &Option<String>) -> bool {
        text.as_deref().is_some_and(is_signature)
    }
}

/// True for padded base64, which is how the wire writes bytes.
pub(super) fn is_signature(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    !body.is_empty()
        && text.len().is_multiple_of(4)
        && padding <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

/// Entry of a text block.
pub(super) fn text_entry(signature: Option<String>) -> Raw {
    raw(&Entry { kind: "text", text_signature: signature, ..Entry::default() })
}

/// Entry of a reasoning block.
pub(super) fn reasoning_entry(signature: Option<String>) -> Raw {
    raw(&Entry { kind: "reasoning", thinking_signature: signature, ..Entry::default() })
}

/// Entry of a tool call.
pub(super) fn call_entry(signature: Option<String>) -> Raw {
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
            Block::Text(String::new()),
        ];
        Message::new("m", Role::Assistant, content, Source::model("p", "m", None))
    }

    fn state() -> Value {
        json!({
            "response": {"kind": "pi-ai", "version": 2, "api": "google-generative-ai", "provider": "p", "model": "m",
                "stopReason": "toolUse"},
            "blocks": [{"type": "reasoning", "thinkingSignature": "AAAA"}, {"type": "text", "textSignature": "QQ=="},
                {"type": "tool-call", "thoughtSignature": "+/8="}, {"type": "text", "textSignature": "Qg=="}],
        })
    }

    fn restored(state: &Value) -> Result<Turn, InvalidReplay> {
        Turn::restore(&message(), &ReplayEnvelope::parse(&raw(state))?)
    }

    #[test]
    fn a_sound_state_is_restored_with_its_signatures() {
        let turn = restored(&state()).unwrap();
        let [
            Part::Reasoning { carrier: Some(plan), .. },
            Part::Text { carrier: Some(said), .. },
            Part::Call(Call { carrier: Some(call), native: true, .. }),
            Part::Text { text, carrier: Some(last) },
        ] = &turn.parts[..]
        else {
            panic!("{turn:?}")
        };
        assert_eq!([plan, said, call, last].map(String::as_str), ["AAAA", "QQ==", "+/8=", "Qg=="]);
        assert_eq!(text, "");
    }

    #[test]
    fn entries_without_signature_are_fine_and_an_unsigned_blank_text_is_left_out() {
        let mut state = state();
        state["blocks"] = json!([{"type": "reasoning", "thinkingSignature": "", "x": 1}, {"type": "text"},
            {"type": "tool-call"}, {"type": "text"}]);
        let turn = restored(&state).unwrap();
        assert!(
            matches!(
                &turn.parts[..],
                [
                    Part::Reasoning { carrier: None, .. },
                    Part::Text { carrier: None, .. },
                    Part::Call(Call { carrier: None, .. })
                ]
            ),
            "{turn:?}"
        );
    }

    #[test]
    fn every_entry_that_this_wire_does_not_write_is_refused_with_its_member() {
        for (at, entry, reason) in [
            (0, json!({"type": "reasoning", "redacted": true}), "blocks[0].redacted is nothing that this wire writes"),
            (1, json!({"type": "text", "textSignature": 7}), "blocks[1].textSignature is not a string"),
            (2, json!({"type": "tool-call", "thoughtSignature": 7}), "blocks[2].thoughtSignature is not a string"),
        ] {
            let mut state = state();
            state["blocks"][at] = entry.clone();
            let Err(InvalidReplay::Invalid(got)) = restored(&state) else { panic!("{entry}") };
            assert!(got.starts_with(reason), "{entry}: {got}");
        }
    }
}
