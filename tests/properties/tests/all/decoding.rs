//! The same properties for every wire.

use dsh_plugin_api::StreamEnd;
use dsh_properties::bodies::COMPLETIONS;
use dsh_properties::completions::Completions;
use dsh_properties::decoding::{Answer, Decoded, STREAM, Wire, check, check_body, decode};
use dsh_properties::pieces::{Damage, widths};
use proptest::prelude::*;
use proptest::sample::Index;

/// What a decoder must make of a generated answer, and that it does so whatever the split.
fn reads<W: Wire>(answer: &Answer, widths: &[u8]) {
    let decoded = check_body::<W>(STREAM, &answer.body, widths, &StreamEnd::Complete);
    let got = (decoded.outcome(), decoded.text(), decoded.reasoning(), decoded.calls());
    let expected = (answer.outcome, answer.text.clone(), answer.reasoning.clone(), answer.calls.clone());
    assert_eq!(got, expected);
}

/// Cut anywhere, an answer is a success exactly when its terminal event is whole; where a line ends does not matter.
fn cut<W: Wire>(answer: &Answer, places: &[Index], end: &StreamEnd) {
    let around = answer.complete_at.into_iter().flat_map(|at| at.saturating_sub(3)..(at + 4).min(answer.body.len()));
    for at in places.iter().map(|place| place.index(answer.body.len() + 1)).chain(around) {
        let decoded = decode::<W>(STREAM, &answer.body[..at], &[], end);
        let complete = answer.complete_at.is_some_and(|complete_at| at >= complete_at);
        assert_eq!(decoded.is_success(), complete, "cut at {at} of {:?}: {}", answer.complete_at, decoded.outcome());
        if complete {
            assert_eq!(decoded.outcome(), answer.outcome, "cut at {at}");
        }
    }
}

fn refused<W: Wire>(answer: &Answer, status: u16, widths: &[u8]) -> Decoded {
    check_body::<W>((status, "application/json"), &answer.body, widths, &StreamEnd::Complete)
}

/// Bodies as servers spell them, whole, in pieces, and cut: at every byte of the end, and here and there before it.
fn bodies<W: Wire>(bodies: &[(&str, &[u8])]) {
    for (name, body) in bodies {
        for width in [1, 2, 3, 7, 64] {
            for end in [StreamEnd::Complete, StreamEnd::Cut("reset".to_owned())] {
                check_body::<W>(STREAM, body, &[width], &end);
            }
        }
        let whole = decode::<W>(STREAM, body, &[], &StreamEnd::Complete);
        let places = (0..=body.len()).filter(|at| at % 29 == 0 || at + 150 > body.len());
        let mut cut = places.map(|at| decode::<W>(STREAM, &body[..at], &[], &StreamEnd::Complete).is_success());
        assert_eq!(cut.any(|success| success), whole.is_success(), "{name}");
        assert!(cut.all(|success| success), "{name}: a success is lost by what follows it");
    }
}

macro_rules! properties {
    ($name:ident, $wire:ty, $bodies:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn the_bodies_of_servers_are_read_alike_however_they_come() {
                bodies::<$wire>($bodies);
            }

            proptest! {
                #[test]
                fn any_split_of_any_answer_gives_the_same_chunks(answer in <$wire>::answers(), widths in widths()) {
                    reads::<$wire>(&answer, &widths);
                }

                #[test]
                fn a_cut_answer_is_a_success_only_with_its_terminal_event(
                    answer in <$wire>::answers(),
                    places in proptest::collection::vec(any::<Index>(), 6),
                ) {
                    cut::<$wire>(&answer, &places, &StreamEnd::Complete);
                }

                #[test]
                fn no_status_but_that_of_success_is_one(
                    answer in <$wire>::answers(),
                    status in proptest::sample::select(&[300u16, 307, 400, 401, 404, 429, 500, 503, 529][..]),
                    widths in widths(),
                ) {
                    prop_assert_eq!(refused::<$wire>(&answer, status, &widths).finish.kind(), "error");
                }

                #[test]
                fn a_damaged_answer_never_only_looks_like_a_success(
                    answer in <$wire>::answers(),
                    damage in proptest::collection::vec(Damage::any(<$wire>::WORDS), 1..4),
                    widths in widths(),
                ) {
                    let mut body = answer.body;
                    damage.iter().for_each(|damage| damage.apply(&mut body));
                    check_body::<$wire>(STREAM, &body, &widths, &StreamEnd::Complete);
                }

                #[test]
                fn no_bytes_make_the_decoder_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
                    check::<$wire>(&data);
                }
            }
        }
    };
}

properties!(completions, Completions, COMPLETIONS);
