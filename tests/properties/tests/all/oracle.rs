//! The framing against a parser that others wrote, `sseer`, on generated input. Where the two differ, the difference
//! is stated here with the section of the WHATWG HTML standard that decides it.
//!
//! `id` and `retry` are not compared: [`dsh_plugin_api::sse`] drops them, since no provider's stream is resumed.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dsh_properties::framing::{self, texts};
use dsh_properties::pieces::{pieces, widths};
use futures_core::Stream;
use proptest::prelude::*;
use sseer::EventStream;

/// The pieces of a body as a stream that is always ready.
struct Pieces(std::vec::IntoIter<Bytes>);

impl Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

/// Name and data of each event, in the oracle's reading. An event that it refuses is None.
fn theirs(body: &[u8], widths: &[u8]) -> Vec<Option<(String, String)>> {
    let pieces: Vec<Bytes> = pieces(body, widths).map(Bytes::copy_from_slice).collect();
    let mut stream = std::pin::pin!(EventStream::new(Pieces(pieces.into_iter())));
    let mut context = Context::from_waker(Waker::noop());
    let mut events = Vec::new();
    loop {
        match stream.as_mut().poll_next(&mut context) {
            Poll::Ready(None) => return events,
            Poll::Ready(Some(Ok(event))) => events.push(Some((event.event.to_string(), event.data.to_string()))),
            Poll::Ready(Some(Err(_))) => events.push(None),
            Poll::Pending => panic!("a stream that is always ready"),
        }
    }
}

/// Ours, complete events only. 9.2.6: an event without a name is of type `message`.
fn ours(body: &[u8], widths: &[u8]) -> Vec<Option<(String, String)>> {
    let named = |name: String| if name.is_empty() { "message".to_owned() } else { name };
    let events = framing::events(body, widths).into_iter();
    events.filter(|event| event.complete).map(|event| Some((named(event.name), event.data))).collect()
}

proptest! {
    #[test]
    fn the_framing_agrees_with_a_foreign_parser(body in texts(), widths in widths()) {
        // 9.2.6: a line without a colon is a field with an empty value, so `event` alone takes the name back. The
        // oracle leaves the name as it was.
        let body = body.replace("event\n", "x\n").replace("event\r", "x\r");
        prop_assert_eq!(ours(body.as_bytes(), &widths), theirs(body.as_bytes(), &[]));
    }
}

#[test]
fn the_two_differ_where_the_standard_decides_for_us_or_less_is_lost() {
    let event = |name: &str, data: &str| Some((name.to_owned(), data.to_owned()));
    // 9.2.6, "Otherwise, the string is not empty but does not contain a U+003A COLON": the value is empty.
    let body = b"event: a\nevent\ndata: x\n\n";
    assert_eq!((ours(body, &[]), theirs(body, &[])), (vec![event("message", "x")], vec![event("a", "x")]));
    // 9.2.5: "decoded using the UTF-8 decode algorithm", which replaces; the oracle refuses the event.
    let body = b"data: \xff\n\ndata: y\n\n";
    assert_eq!(ours(body, &[]), [event("message", "\u{fffd}"), event("message", "y")]);
    assert!(theirs(body, &[]).contains(&None));
    // 9.2.6 discards what the end of the stream leaves open. So do both; ours hands it out as well, marked.
    let body = b"data: [DONE]";
    assert_eq!((ours(body, &[]), theirs(body, &[])), (vec![], vec![]));
    assert_eq!(framing::events(body, &[])[0].data, "[DONE]");
    // 9.2.5: one byte-order mark at the start is no part of the text. Both agree, also byte by byte.
    let body = "\u{feff}data: x\n\n".as_bytes();
    assert_eq!((ours(body, &[1]), theirs(body, &[1])), (vec![event("message", "x")], vec![event("message", "x")]));
}
