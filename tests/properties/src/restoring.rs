//! Stored replay metadata is data of the past: damaged, written by another version, edited by hand. Reading it ends in a
//! request or in an error that says why, never in a panic.

use dsh_plugin_api::Adapter;
use dsh_plugin_api::json::{self, Raw};
use dsh_plugin_api::vocab::{Block, Exchange, Message, ReplayEnvelope, Request, Role, Source};
use serde_json::{Value, json};

use crate::decoding::{COMMON_APIS, target};

/// A message whose blocks are of these kinds: `t`ext, `r`easoning, tool `c`all.
#[must_use]
pub fn message(kinds: &str, state: Option<Raw>) -> Message {
    let block = |(at, kind): (usize, char)| match kind {
        't' => Block::Text(format!("text {at}")),
        'r' => Block::Reasoning(format!("thought {at}")),
        _ => Block::ToolCall { id: format!("call_{at}"), name: "bash".to_owned(), arguments: "{}".to_owned() },
    };
    let content = kinds.chars().enumerate().map(block).collect();
    Message::new("a", Role::Assistant, content, Source::model("p", "m", state))
}

/// Reads a state for a message and, where that goes, writes the request that carries it. True when it goes.
#[must_use]
pub fn restores(adapter: &impl Adapter, api: &str, kinds: &str, state: &str) -> bool {
    let Ok(state) = json::from_str::<Raw>(state) else { return false };
    let Ok(envelope) = ReplayEnvelope::parse(&state) else { return false };
    // Whatever it says, reading it for a report must not fail either.
    let _ = (envelope.head(), envelope.block_types());
    let message = message(kinds, Some(state));
    let to = target(api);
    let Ok(native) = adapter.restore(&message, &envelope, &to) else { return false };
    let user = Message::user("u", "Go on.");
    let foreign = adapter.foreign(&user, &to).expect("a plain text can be sent");
    let request = Request { messages: vec![message, user], ..Request::default() };
    let encoded = adapter.encode(&request, vec![native, foreign], &to).expect("what was restored can be sent");
    let Exchange::Http(http) = encoded.exchange else { panic!("a request is HTTP") };
    assert!(serde_json::from_str::<Value>(&json::replace_lone_surrogates(http.body.get())).is_ok());
    true
}

/// The fuzz target: one byte chooses the message, the rest is its stored state.
pub fn check(adapter: &impl Adapter, apis: &[&str], data: &[u8]) {
    let Some((choice, state)) = data.split_first() else { return };
    let kinds = MESSAGES[usize::from(*choice) % MESSAGES.len()];
    let state = String::from_utf8_lossy(state);
    for api in apis {
        let _ = restores(adapter, api, kinds, &state);
    }
}

/// A sound state for a message of these kinds, as the adapter of the wire writes it; what can have a carrier has one.
#[must_use]
pub fn sound(api: &str, kinds: &str) -> Value {
    let (text, reasoning, call) = carriers(api);
    let entry = |kind| match kind {
        't' => json!({"type": "text", "textSignature": text}),
        'r' => json!({"type": "reasoning", "thinkingSignature": reasoning}),
        _ => json!({"type": "tool-call", "thoughtSignature": call}),
    };
    let blocks = kinds.chars().map(|kind| {
        let mut entry = entry(kind);
        if let Some(members) = entry.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
        entry
    });
    let mut response = json!({"kind": "pi-ai", "version": 2, "api": api, "provider": api, "model": "m",
        "responseModel": "m-1", "responseId": "r-1", "stopReason": "stop"});
    if api == "deepseek" {
        response["kind"] = json!("deepseek");
        response["version"] = json!(1);
    }
    json!({"response": response, "blocks": blocks.collect::<Vec<_>>()})
}

/// What a wire stores with a text, with reasoning and with a call.
fn carriers(api: &str) -> (Option<&'static str>, Option<&'static str>, Option<&'static str>) {
    match api {
        "openai-completions" => {
            (None, Some("reasoning_content"), Some(r#"{"type":"reasoning.encrypted","id":"c","data":"x"}"#))
        }
        "openai-responses" => (
            Some(r#"{"v":1,"id":"msg_1","phase":"final_answer"}"#),
            Some(r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}"#),
            None,
        ),
        "anthropic-messages" => (None, Some("ErUB"), None),
        "google-generative-ai" => (Some("AAAA"), Some("BBBB"), Some("CCCC")),
        "mistral-conversations" | "deepseek" => (None, None, None),
        other => panic!("say here what the wire {other} carries"),
    }
}

/// What [`check`] reads as sound states of the common wires for every message, and as their former, flat form; of one wire also with its
/// other carriers.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let states = |api, choice: usize, kinds| {
        let sound = sound(api, kinds);
        let other = match api {
            "openai-completions" => sound.to_string().replace(
                r#"thinkingSignature":"reasoning_content"#,
                r#"thinkingSignature":"[{\"type\":\"reasoning.text\",\"text\":\"x\"}]"#,
            ),
            "openai-responses" => {
                sound.to_string().replace(r#""textSignature":"{\"v\":1"#, r#""textSignature":"msg_1{"#)
            }
            _ => sound.to_string().replace(r#""type":"reasoning""#, r#""redacted":true,"type":"reasoning""#),
        };
        let states = [sound.to_string(), other, sound["response"].to_string()];
        states.map(|state| [&[choice as u8], state.as_bytes()].concat())
    };
    let of = |api| MESSAGES.iter().enumerate().flat_map(move |(choice, kinds)| states(api, choice, kinds));
    COMMON_APIS.into_iter().flat_map(of).collect()
}

/// The messages that states are read for, by the kinds of their blocks.
pub const MESSAGES: [&str; 8] = ["", "t", "rt", "rtc", "rc", "rtrcc", "c", "tt"];
