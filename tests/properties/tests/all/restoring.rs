//! Stored replay metadata.

use dsh_properties::restoring::{APIS, MESSAGES, check, restores, sound};
use proptest::prelude::*;
use serde_json::Value;

/// Values of every type, and strings that are JSON themselves.
fn value() -> impl Strategy<Value = Value> {
    proptest::sample::select(
        &[
            "null",
            "true",
            "7",
            "-1e99",
            "\"\"",
            "\"x\"",
            "[]",
            "{}",
            "[null]",
            "{\"type\":\"text\"}",
            "\"reasoning_content\"",
            "\"[{}]\"",
            "\"[\"",
            "\"{\\\"type\\\":\\\"reasoning.encrypted\\\"}\"",
            "\"[1]\"",
            "[[[[[[[[]]]]]]]]",
        ][..],
    )
    .prop_map(|text| serde_json::from_str(text).unwrap())
}

proptest! {
    #[test]
    fn a_sound_state_restores_and_no_change_to_it_panics(
        api in proptest::sample::select(&APIS[..]),
        kinds in proptest::sample::select(&MESSAGES[..]),
        members in proptest::collection::vec(
            (proptest::sample::select(&["response", "blocks", "kind", "version", "api", "responseId", "stopReason",
                "type", "thinkingSignature", "thoughtSignature", "textSignature", "redacted"][..]),
            any::<proptest::sample::Index>(), value()), 0..4),
    ) {
        let mut state = sound(api, kinds);
        prop_assert!(restores(api, kinds, &state.to_string()));
        for (name, place, value) in members {
            let within = match name {
                "response" | "blocks" => Some(&mut state),
                "kind" | "version" | "api" | "responseId" | "stopReason" => state.get_mut("response"),
                _ => state.get_mut("blocks").and_then(Value::as_array_mut).filter(|blocks| !blocks.is_empty())
                    .map(|blocks| { let at = place.index(blocks.len()); &mut blocks[at] }),
            };
            if let Some(Value::Object(within)) = within {
                within.insert(name.to_owned(), value);
            }
        }
        let _ = restores(api, kinds, &state.to_string());
    }

    #[test]
    fn no_bytes_make_the_reading_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        check(&data);
    }
}
