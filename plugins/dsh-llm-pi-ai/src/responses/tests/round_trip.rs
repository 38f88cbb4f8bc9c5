//! What a server sent is what it gets back: decode, store, restore, encode.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::next_request;

/// The items of the request after an answer, its calls answered.
fn sent_back(fixture: &Fixture, body: &str) -> Vec<Value> {
    let (body, repairs) = fixture.encode(&next_request(&decode(body)));
    assert!(repairs.is_empty(), "{repairs:?}");
    let items = body["input"].as_array().unwrap().iter().skip(1);
    items.filter(|item| item["type"] != "function_call_output").cloned().collect()
}

fn item() -> impl Strategy<Value = Value> {
    let words = "[a-z\\\\\"é😀 \n]{0,12}";
    prop_oneof![
        words.prop_map(|text| {
            let mut item = message("msg", &format!("x{text}"));
            item["phase"] = json!("commentary");
            item
        }),
        words.prop_map(|text| function_call("", &json!({"a": text, "n": 1.50}).to_string())),
        (proptest::collection::vec(words, 0..3), "[A-Za-z0-9+/=_-]{1,40}", words).prop_map(
            |(texts, data, follower)| {
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                json!([reasoning("rs", &texts, &data), message("msg", &format!("y{follower}"))])
            }
        ),
    ]
}

/// An item as events: announced, in two deltas, done.
fn streamed(index: usize, item: &Value) -> String {
    let (kind, text) = match item["type"].as_str().unwrap() {
        "message" => ("output_text", item["content"][0]["text"].as_str().unwrap()),
        "reasoning" => ("reasoning_summary_text", item["summary"][0]["text"].as_str().unwrap_or_default()),
        _ => ("function_call_arguments", item["arguments"].as_str().unwrap()),
    };
    let mut head = item.clone();
    for member in ["content", "summary"] {
        if head.get(member).is_some() {
            head[member] = json!([]);
        }
    }
    if head.get("arguments").is_some() {
        head["arguments"] = json!("");
    }
    let middle = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(at, _)| at);
    added(index, &head)
        + &delta(kind, index, &text[..middle])
        + &delta(kind, index, &text[middle..])
        + &done(index, item)
}

proptest! {
    #[test]
    fn an_answer_goes_back_item_by_item(items in proptest::collection::vec(item(), 1..6)) {
        let mut items: Vec<Value> =
            items.into_iter().flat_map(|item| item.as_array().cloned().unwrap_or_else(|| vec![item])).collect();
        for (n, item) in items.iter_mut().enumerate() {
            item["id"] = json!(format!("{}_{n}", item["id"].as_str().unwrap().trim_end_matches('_')));
            if item.get("call_id").is_some() {
                item["call_id"] = json!(format!("call_{n}"));
            }
        }
        let body: String = items.iter().enumerate().map(|(index, item)| streamed(index, item)).collect();
        let mut sent = sent_back(&adapter(json!({}), json!({})), &(body + &completed()));
        for (sent, item) in sent.iter_mut().zip(&items) {
            if item["type"] == "function_call" {
                sent["status"] = json!("completed");
            }
        }
        prop_assert_eq!(sent, items);
    }
}

#[test]
fn opaque_values_go_back_byte_for_byte() {
    let arguments = r#"{"n":12345678901234567890123,"a":1,"a":2}"#;
    let item = r#"{"type":"reasoning","id":"rs_1","encrypted_content":"gA\/\u0041==","summary":[]}"#;
    let body = done(0, &json!("@")).replace("\"@\"", item) + &done(1, &function_call("1", arguments)) + &completed();
    let message = decode(&body).message();
    let adapter = adapter(json!({}), json!({})).adapter;
    let Source::Model { replay_state: Some(state), .. } = &message.source else { panic!("no state") };
    let native = adapter.restore(&message, &ReplayEnvelope::parse(state).unwrap(), &target()).unwrap();
    let encoded = adapter.encode(&Request::default(), vec![native], &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    assert!(http.body.get().contains(item), "{}", http.body.get());
    assert!(http.body.get().contains(&json!(arguments).to_string()));
}

#[test]
fn every_entry_that_this_wire_does_not_write_is_refused() {
    let body = done(0, &reasoning("rs_1", &["a"], "E"))
        + &done(1, &message("msg_1", "x"))
        + &done(2, &function_call("1", "{}"));
    let message = decode(&(body + &completed())).message();
    let Source::Model { replay_state: Some(state), .. } = &message.source else { panic!("no state") };
    let state: Value = serde_json::from_str(state.get()).unwrap();
    let adapter = adapter(json!({}), json!({})).adapter;
    for (pointer, value, reason) in [
        ("/response/api", json!(7), "response.api is not a string"),
        ("/blocks/0/thinkingSignature", json!("{"), "blocks[0].thinkingSignature is no reasoning item"),
        ("/blocks/0/thinkingSignature", json!("ErUB=="), "blocks[0].thinkingSignature is no reasoning item"),
        ("/blocks/0/thinkingSignature", json!("[]"), "blocks[0].thinkingSignature is no reasoning item"),
        (
            "/blocks/0/thinkingSignature",
            json!(r#"{"type":"message"}"#),
            "blocks[0].thinkingSignature is no reasoning item",
        ),
        (
            "/blocks/0/thinkingSignature",
            json!(r#"{"type":"reasoning","id":1}"#),
            "blocks[0].thinkingSignature is a reasoning item whose id",
        ),
        (
            "/blocks/0/thinkingSignature",
            json!(r#"{"type":"reasoning","summary":{}}"#),
            "blocks[0].thinkingSignature is a reasoning item whose summary",
        ),
        (
            "/blocks/0/thinkingSignature",
            json!(r#"{"type":"reasoning","encrypted_content":[]}"#),
            "blocks[0].thinkingSignature is a reasoning item whose encrypted_content",
        ),
        (
            "/blocks/0",
            json!({"type": "reasoning", "redacted": true}),
            "blocks[0].redacted is nothing that this wire writes",
        ),
        ("/blocks/1/textSignature", json!({}), "blocks[1].textSignature is not a string"),
        (
            "/blocks/2",
            json!({"type": "tool-call", "thoughtSignature": "x"}),
            "blocks[2].thoughtSignature is nothing that this wire writes",
        ),
        ("/blocks", json!([]), "the state has 0 block entries for 3 blocks"),
    ] {
        let mut state = state.clone();
        *state.pointer_mut(pointer).unwrap() = value.clone();
        let got = ReplayEnvelope::parse(&raw(&state)).and_then(|state| adapter.restore(&message, &state, &target()));
        let got = got.unwrap_err().to_string();
        assert!(got.contains(reason), "{pointer} {value}: {got}");
    }
}
