//! Stored replay metadata is data of the past: damaged, written by another version, edited by hand. Reading it ends in a
//! request or in an error that says why, never in a panic.

use dsh_plugin_api::Adapter;
use dsh_plugin_api::json::{self, Raw};
use dsh_plugin_api::vocab::{Block, Exchange, Message, ReplayEnvelope, Request, Role, Source};
use serde_json::{Value, json};

use crate::decoding::{ADAPTER, target};

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
pub fn restores(api: &str, kinds: &str, state: &str) -> bool {
    let Ok(state) = json::from_str::<Raw>(state) else { return false };
    let Ok(envelope) = ReplayEnvelope::parse(&state) else { return false };
    // Whatever it says, reading it for a report must not fail either.
    let _ = (envelope.head(), envelope.block_types());
    let message = message(kinds, Some(state));
    let to = target(api);
    let Ok(native) = ADAPTER.restore(&message, &envelope, &to) else { return false };
    let user = Message::user("u", "Go on.");
    let foreign = ADAPTER.foreign(&user, &to).expect("a plain text can be sent");
    let request = Request { messages: vec![message, user], ..Request::default() };
    let encoded = ADAPTER.encode(&request, vec![native, foreign], &to).expect("what was restored can be sent");
    let Exchange::Http(http) = encoded.exchange else { panic!("a request is HTTP") };
    assert!(serde_json::from_str::<serde_json::Value>(&json::replace_lone_surrogates(http.body.get())).is_ok());
    true
}

/// The wires whose states are read.
pub const APIS: [&str; 1] = ["openai-completions"];

/// The fuzz target: one byte chooses the message, the rest is its stored state.
pub fn check(data: &[u8]) {
    let Some((choice, state)) = data.split_first() else { return };
    let kinds = MESSAGES[usize::from(*choice) % MESSAGES.len()];
    let state = String::from_utf8_lossy(state);
    for api in APIS {
        let _ = restores(api, kinds, &state);
    }
}

/// A sound state for a message of these kinds, as this adapter writes it; reasoning and calls have their carriers.
#[must_use]
pub fn sound(api: &str, kinds: &str) -> Value {
    let entry = |kind| match kind {
        't' => json!({"type": "text"}),
        'r' => json!({"type": "reasoning", "thinkingSignature": "reasoning_content"}),
        _ => json!({"type": "tool-call", "thoughtSignature": r#"{"type":"reasoning.encrypted","id":"c","data":"x"}"#}),
    };
    json!({
        "response": {"kind": "pi-ai", "version": 2, "api": api, "provider": api, "model": "m", "responseModel": "m-1",
            "responseId": "r-1", "stopReason": "stop"},
        "blocks": kinds.chars().map(entry).collect::<Vec<_>>(),
    })
}

/// What [`check`] reads as sound states of every message, and as their former, flat form.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let states = |(choice, kinds): (usize, &&str)| {
        let sound = sound(APIS[0], kinds);
        let listed = sound.to_string().replace(
            r#"thinkingSignature":"reasoning_content"#,
            r#"thinkingSignature":"[{\"type\":\"reasoning.text\",\"text\":\"x\"}]"#,
        );
        let states = [sound.to_string(), listed, sound["response"].to_string()];
        states.map(|state| [&[choice as u8], state.as_bytes()].concat())
    };
    MESSAGES.iter().enumerate().flat_map(states).collect()
}

/// The messages that states are read for, by the kinds of their blocks.
pub const MESSAGES: [&str; 8] = ["", "t", "rt", "rtc", "rc", "rtrcc", "c", "tt"];
