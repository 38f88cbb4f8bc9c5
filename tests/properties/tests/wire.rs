//! What is tested of every wire.

use std::path::Path;

use dsh_plugin_api::{Adapter, StreamEnd};
use dsh_properties::bodies::Body;
use dsh_properties::decoding::{Answer, Decoded, STREAM, Wire, check_body, decode};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

/// What a decoder must make of a generated answer, and that it does so whatever the split.
pub fn reads<W: Wire>(adapter: &impl Adapter, answer: &Answer, widths: &[u8]) {
    let decoded = check_body::<W>(adapter, STREAM, &answer.body, widths, &StreamEnd::Complete);
    let got = (decoded.outcome(), decoded.text(), decoded.reasoning(), decoded.calls());
    let expected = (answer.outcome, answer.text.clone(), answer.reasoning.clone(), answer.calls.clone());
    assert_eq!(got, expected);
}

/// Cut anywhere, an answer is a success exactly when its terminal event is whole; where a line ends does not matter.
pub fn cut<W: Wire>(adapter: &impl Adapter, answer: &Answer, places: &[Index], end: &StreamEnd) {
    let around = answer.complete_at.into_iter().flat_map(|at| at.saturating_sub(3)..(at + 4).min(answer.body.len()));
    for at in places.iter().map(|place| place.index(answer.body.len() + 1)).chain(around) {
        let decoded = decode::<W>(adapter, STREAM, &answer.body[..at], &[], end);
        let complete = answer.complete_at.is_some_and(|complete_at| at >= complete_at);
        assert_eq!(decoded.is_success(), complete, "cut at {at} of {:?}: {}", answer.complete_at, decoded.outcome());
        if complete {
            assert_eq!(decoded.outcome(), answer.outcome, "cut at {at}");
        }
    }
}

/// An error that a gateway writes behind an event as it is, without a field name, is what the answer fails with.
pub fn stray_error<W: Wire>(adapter: &impl Adapter, answer: &Answer, place: Index, widths: &[u8]) {
    let begun = &answer.body[..answer.complete_at.unwrap_or_default().saturating_sub(2)];
    let ends: Vec<usize> = (1..begun.len()).filter(|at| begun[..*at].ends_with(b"\n\n")).collect();
    let is_stream = !begun.trim_ascii_start().starts_with(b"{") && !begun.trim_ascii_start().starts_with(b"[");
    if ends.is_empty() || !is_stream {
        return;
    }
    let error = serde_json::json!({"error": {"message": "the upstream fell over", "code": 503}});
    for error in [error.to_string(), format!("{error:#}\n\n")] {
        let body = [&begun[..*place.get(&ends)], error.as_bytes()].concat();
        for end in [StreamEnd::Complete, StreamEnd::Cut("reset".to_owned())] {
            let decoded = check_body::<W>(adapter, STREAM, &body, widths, &end);
            let failure = decoded.finish.failure().expect("an error fails the answer");
            assert!(failure.message.contains("the upstream fell over"), "{failure:?}");
        }
    }
}

/// What is made of an answer under another status.
pub fn refused<W: Wire>(adapter: &impl Adapter, answer: &Answer, status: u16, widths: &[u8]) -> Decoded {
    check_body::<W>(adapter, (status, "application/json"), &answer.body, widths, &StreamEnd::Complete)
}

/// Bodies as servers spell them, whole, in pieces, and cut: at every byte of the end, and here and there before it.
pub fn bodies<W: Wire>(adapter: &impl Adapter, bodies: &[Body]) {
    for (name, body) in bodies {
        for width in [1, 2, 3, 7, 64] {
            for end in [StreamEnd::Complete, StreamEnd::Cut("reset".to_owned())] {
                check_body::<W>(adapter, STREAM, body, &[width], &end);
            }
        }
        let whole = decode::<W>(adapter, STREAM, body, &[], &StreamEnd::Complete);
        let places = (0..=body.len()).filter(|at| at % 29 == 0 || at + 150 > body.len());
        let mut cut =
            places.map(|at| decode::<W>(adapter, STREAM, &body[..at], &[], &StreamEnd::Complete).is_success());
        assert_eq!(cut.any(|success| success), whole.is_success(), "{name}");
        assert!(cut.all(|success| success), "{name}: a success is lost by what follows it");
    }
}

/// Runs every file of a target's corpus; an empty or missing corpus is an error, so that the replay cannot go silent.
pub fn replay(target: &str, check: impl Fn(&[u8]) + std::panic::RefUnwindSafe) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let outcome = std::panic::catch_unwind(|| check(&data));
        assert!(outcome.is_ok(), "{} fails; its panic stands above", path.display());
        count += 1;
    }
    assert!(count > 0, "{} holds no file", folder.display());
}

/// Values of every type, and strings that are JSON themselves.
pub fn value() -> impl Strategy<Value = Value> {
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

/// The properties of a wire; the module around it says by `adapter()` who serves it.
#[macro_export]
macro_rules! properties {
    ($name:ident, $wire:ty, $bodies:expr) => {
        mod $name {
            use dsh_plugin_api::StreamEnd;
            use dsh_properties::decoding::{STREAM, Wire, check, check_body};
            use dsh_properties::pieces::{Damage, widths};
            use dsh_properties::{repeating, returning};
            use proptest::prelude::*;
            use proptest::sample::Index;

            use super::*;
            use $crate::wire::{bodies, cut, reads, refused, stray_error};

            #[test]
            fn the_bodies_of_servers_are_read_alike_however_they_come() {
                bodies::<$wire>(adapter(), $bodies);
            }

            proptest! {
                #[test]
                fn any_split_of_any_answer_gives_the_same_chunks(answer in <$wire>::answers(), widths in widths()) {
                    reads::<$wire>(adapter(), &answer, &widths);
                }

                #[test]
                fn a_cut_answer_is_a_success_only_with_its_terminal_event(
                    answer in <$wire>::answers(),
                    places in proptest::collection::vec(any::<Index>(), 6),
                ) {
                    cut::<$wire>(adapter(), &answer, &places, &StreamEnd::Complete);
                }

                #[test]
                fn an_error_without_a_field_name_is_that_error(
                    answer in <$wire>::answers(),
                    place in any::<Index>(),
                    widths in widths(),
                ) {
                    stray_error::<$wire>(adapter(), &answer, place, &widths);
                }

                #[test]
                fn no_status_but_that_of_success_is_one(
                    answer in <$wire>::answers(),
                    status in proptest::sample::select(&[300u16, 307, 400, 401, 404, 429, 500, 503, 529][..]),
                    widths in widths(),
                ) {
                    prop_assert_eq!(refused::<$wire>(adapter(), &answer, status, &widths).finish.kind(), "error");
                }

                #[test]
                fn a_damaged_answer_never_only_looks_like_a_success(
                    answer in <$wire>::answers(),
                    damage in proptest::collection::vec(Damage::any(<$wire>::WORDS), 1..4),
                    widths in widths(),
                ) {
                    let mut body = answer.body;
                    damage.iter().for_each(|damage| damage.apply(&mut body));
                    check_body::<$wire>(adapter(), STREAM, &body, &widths, &StreamEnd::Complete);
                }

                #[test]
                fn an_event_that_repeats_the_last_one_does_what_reading_it_would_do(
                    bodies in proptest::collection::vec(repeating::streams::<$wire>(), 4),
                ) {
                    for body in bodies {
                        repeating::check_body::<$wire>(adapter(), &body, &StreamEnd::Complete);
                    }
                }

                #[test]
                fn what_only_the_provider_reads_goes_back_byte_for_byte(answer in <$wire>::answers()) {
                    returning::check::<$wire>(adapter(), &answer);
                }

                #[test]
                fn no_bytes_make_the_decoder_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
                    check::<$wire>(adapter(), &data);
                }
            }
        }
    };
}

/// The properties of the replay metadata of some wires; the module around it says by `adapter()` who serves them.
#[macro_export]
macro_rules! restoring {
    ($name:ident, $apis:expr) => {
        mod $name {
            use dsh_properties::restoring::{MESSAGES, check, restores, sound};
            use proptest::prelude::*;
            use serde_json::Value;

            use super::adapter;

            proptest! {
                #[test]
                fn a_sound_state_restores_and_no_change_to_it_panics(
                    api in proptest::sample::select($apis),
                    kinds in proptest::sample::select(&MESSAGES[..]),
                    members in proptest::collection::vec(
                        (proptest::sample::select(&["response", "blocks", "kind", "version", "api", "responseId", "stopReason",
                            "type", "thinkingSignature", "thoughtSignature", "textSignature", "redacted"][..]),
                        any::<proptest::sample::Index>(), $crate::wire::value()), 0..4),
                ) {
                    let mut state = sound(api, kinds);
                    prop_assert!(restores(adapter(), api, kinds, &state.to_string()));
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
                    let _ = restores(adapter(), api, kinds, &state.to_string());
                }

                #[test]
                fn no_bytes_make_the_reading_panic(data in proptest::collection::vec(any::<u8>(), 0..200)) {
                    check(adapter(), $apis, &data);
                }
            }
        }
    };
}
