//! What the provider sent is what it gets back: decode, store, restore, encode.

use proptest::prelude::*;

use super::*;
use crate::testing::next_request;

/// One block of an answer: its events, and how it goes back.
fn block(index: u64) -> impl Strategy<Value = (String, Option<Value>)> {
    let opaque = "[A-Za-z0-9+/]{1,40}={0,2}";
    let arguments =
        prop_oneof![Just("{}".to_owned()), "[a-z]{1,8}".prop_map(|v| format!("{{\"k\": \"{v}\", \"n\": 1}}"))];
    prop_oneof![
        ("[a-z ]{0,12}", "[a-z\u{e9}😀]{0,6}", opaque).prop_map(move |(first, second, signed)| {
            let sent = json!({"type": "thinking", "thinking": format!("{first}{second}"), "signature": signed});
            (thinking(index, &first, &second, &signed), Some(sent))
        }),
        opaque.prop_map(move |data| {
            let events = start(index, json!({"type": "redacted_thinking", "data": data})) + &stop(index);
            (events, Some(json!({"type": "redacted_thinking", "data": data})))
        }),
        "[ \n]{0,1}[a-z]{0,9}".prop_map(move |said| {
            let sent = (!said.trim().is_empty()).then(|| json!({"type": "text", "text": said}));
            (text(index, &said), sent)
        }),
        arguments.prop_map(move |arguments| {
            let id = format!("toolu_{index}");
            let input: Value = serde_json::from_str(&arguments).unwrap();
            (
                call(index, &id, "f", &arguments),
                Some(json!({"type": "tool_use", "id": id, "name": "f", "input": input})),
            )
        }),
    ]
}

/// The assistant message of the request after an answer, its calls answered; `None` when the answer is not sent back.
fn sent_back(body: &str) -> Option<Value> {
    let decoded = decode_as((200, &[]), body.as_bytes(), 11, &StreamEnd::Complete);
    let (body, repairs) = adapter(json!({}), json!({})).encode(&next_request(&decoded));
    assert!(repairs.is_empty(), "{repairs:?}");
    body["messages"].get(1).map(|message| message["content"].clone())
}

fn answer() -> impl Strategy<Value = Vec<(String, Option<Value>)>> {
    (1u64..7).prop_flat_map(|count| (0..count).map(block).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn an_answer_goes_back_as_it_came(blocks in answer()) {
        let mut sent: Vec<_> = blocks.iter().filter_map(|(_, sent)| sent.clone()).collect();
        while sent.last().is_some_and(|last| last["type"] == "thinking" || last["type"] == "redacted_thinking") {
            sent.pop();
        }
        let events: String = blocks.into_iter().map(|(events, _)| events).collect();
        let got = sent_back(&(message_start() + &events + &end("end_turn")));
        prop_assert_eq!(got.unwrap_or_else(|| json!([])), json!(sent));
    }
}

#[test]
fn opaque_values_go_back_byte_for_byte() {
    let fragments = ["abab", "ab", "abcd==", "\"\\u0041"];
    let body = message_start()
        + &start(0, json!({"type": "thinking", "thinking": "", "signature": "S0"}))
        + &fragments.map(|fragment| signature(0, fragment)).concat()
        + &stop(0)
        + &text(1, "ok")
        + &end("end_turn");
    let content = sent_back(&body).unwrap();
    assert_eq!(
        content[0],
        json!({"type": "thinking", "thinking": "", "signature": format!("S0{}", fragments.concat())})
    );
}
