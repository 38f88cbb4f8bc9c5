//! What a server sent is what it gets back: decode, store, restore, encode.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A part that the model may send, and the one that goes back.
fn part() -> impl Strategy<Value = Value> {
    let signature = proptest::option::of("[A-Za-z0-9+/]{4,24}");
    let data = prop_oneof![
        "[a-z\u{e9}\u{1f600}]{1,9}".prop_map(|text| json!({"text": text})),
        "[a-z]{1,9}".prop_map(|text| json!({"text": text, "thought": true})),
        ("[a-z_]{1,9}", any::<u64>()).prop_map(|(name, number)| {
            json!({"functionCall": {"name": name, "args": {"n": number, "b": [null, "\u{1f600}"]}}})
        }),
        Just(json!({"text": ""})),
    ];
    (data, signature).prop_map(|(mut part, signature)| {
        if let Some(signature) = signature {
            let whole = signature.len() / 4 * 4;
            part["thoughtSignature"] = json!(signature[..whole]);
        }
        part
    })
}

/// What a stream of these parts means: pieces of one kind are joined unless both are signed; what says nothing is gone.
fn joined(parts: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for part in parts {
        if part["text"] == "" && part["thoughtSignature"].is_null() {
            continue;
        }
        let continues = |last: &&mut Value| {
            let both = [&**last, part].iter().all(|part| part["thoughtSignature"].is_string());
            last["text"].is_string()
                && part["text"].is_string()
                && last["thought"] == part["thought"]
                && !(both && last["thoughtSignature"] != part["thoughtSignature"])
        };
        match out.last_mut().filter(continues) {
            Some(last) => {
                last["text"] = json!(format!("{}{}", last["text"].as_str().unwrap(), part["text"].as_str().unwrap()));
                if part["thoughtSignature"].is_string() {
                    last["thoughtSignature"] = part["thoughtSignature"].clone();
                }
            }
            None => out.push(part.clone()),
        }
    }
    out
}

proptest! {
    #[test]
    fn every_part_goes_back_with_its_signature(
        list in proptest::collection::vec(part(), 1..9),
        cuts in proptest::collection::vec(1usize..4, 9),
    ) {
        let mut rest = &list[..];
        let mut body = String::new();
        for cut in cuts {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            body += &parts(&json!(now));
            rest = later;
        }
        let answer = gemini().decode(&(body + &end("STOP")));
        let mut expected = joined(&list);
        let calls = answer.calls();
        let mut ids = calls.iter().map(|(id, ..)| *id);
        let mut first = true;
        for part in expected.iter_mut().filter(|part| part["functionCall"].is_object()) {
            part["functionCall"]["id"] = json!(ids.next().unwrap());
            if std::mem::take(&mut first) && part["thoughtSignature"].is_null() {
                part["thoughtSignature"] = json!("skip_thought_signature_validator");
            }
        }
        // Unsigned thoughts alone are not sent.
        let says = |part: &Value| part["thought"] != true || part["thoughtSignature"].is_string();
        if answer.envelope.is_some() && expected.iter().any(says) {
            let sent = gemini().sent_back(&answer);
            prop_assert_eq!(&sent["contents"][1]["parts"], &json!(expected));
        }
    }
}

#[test]
fn arguments_go_back_as_they_were_written() {
    let arguments = r#"{"n":12345678901234567890123,"b":1.50,"a":2,"a":3}"#;
    let event = parts(&json!([{"functionCall": {"name": "f", "args": "@"}}])).replace("\"@\"", arguments);
    let message = gemini().decode(&(event + &end("STOP"))).message();
    let request = json!({"messages": [crate::testing::user("go"), message]});
    let (http, _) = gemini().request(&request).unwrap();
    assert!(http.body.get().contains(arguments), "{}", http.body);
}
