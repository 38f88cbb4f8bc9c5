//! The push parser of event streams, against itself under every split and against the plain [`mod@reference`].

use dsh_plugin_api::sse::{SseEvent, SseParser};
use proptest::prelude::*;

use crate::pieces::pieces;
use crate::reference;

/// What the parser makes of a body that comes in pieces.
#[must_use]
pub fn events(body: &[u8], widths: &[u8]) -> Vec<SseEvent> {
    let mut parser = SseParser::new();
    let mut events = Vec::new();
    for piece in pieces(body, widths) {
        parser.feed(piece, |event| events.push(event.clone()));
    }
    events.extend(parser.finish());
    assert_eq!(parser.finish(), None, "a parser that is finished has nothing left");
    events
}

/// Any split gives the same events, and they are those of the standard; the one that the end left open is marked.
pub fn check_body(body: &[u8], widths: &[u8]) {
    let whole = events(body, &[]);
    assert_eq!(events(body, widths), whole, "pieces of {widths:?}");
    let (complete, open) = reference::events(body);
    let event = |complete: bool| move |(name, data)| SseEvent { name, data, complete };
    let expected: Vec<_> = complete.into_iter().map(event(true)).chain(open.into_iter().map(event(false))).collect();
    assert_eq!(whole, expected, "the parser and the standard disagree");
}

/// The fuzz target: the first byte says how many of the next bytes are widths, the rest is a body.
pub fn check(data: &[u8]) {
    let Some((count, rest)) = data.split_first() else { return };
    let (widths, body) = rest.split_at_checked(usize::from(count % 8)).unwrap_or((rest, &[]));
    check_body(body, widths);
}

/// What [`check`] reads as these widths (at most 7) and this body.
#[must_use]
pub fn seed(body: &[u8], widths: &[u8]) -> Vec<u8> {
    let count = widths.len().min(7);
    [&[count as u8], &widths[..count], body].concat()
}

/// Bodies made of what matters to the format: field names, line ends, marks, characters of every length, bytes that
/// are no UTF-8.
pub fn bodies() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(word(true), 0..40).prop_map(|words| words.concat())
}

/// [`bodies`] that are UTF-8.
pub fn texts() -> impl Strategy<Value = String> {
    let words = proptest::collection::vec(word(false), 0..40);
    words.prop_map(|words| String::from_utf8_lossy(&words.concat()).into_owned())
}

fn word(any_bytes: bool) -> impl Strategy<Value = Vec<u8>> {
    let words: &[&str] = &[
        "data",
        "data:",
        "data: ",
        "event:",
        "event: ",
        "event",
        "id: 7",
        "retry: 3",
        ":",
        " ",
        "x",
        "é",
        "語",
        "😀",
        "\u{feff}",
        "\0",
        "\n",
        "\n",
        "\n\n",
        "\r",
        "\r\n",
        "\r\n\r\n",
        "data: {\"a\":1}\n\n",
    ];
    let text = proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
    let bytes = proptest::collection::vec(any::<u8>(), 1..4);
    prop_oneof![12 => text, u32::from(any_bytes) => bytes]
}
