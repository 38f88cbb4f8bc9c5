//! The body of a response, whatever its wire: an event stream, a whole JSON answer, or a refusal.

use super::errors;
use super::head::HeadFacts;
use super::lenient::members;
use crate::json::{Raw, lossy};
use crate::sse::{SseEvent, SseParser};
use crate::{Chunks, Decoder, StreamEnd};

/// Longest part of a refusal's body that is looked at, in bytes.
const REFUSAL_LIMIT: usize = 256 * 1024;
/// How much of a body that holds no event is kept for its message, in bytes.
const UNREAD_LIMIT: usize = 2048;

/// What a wire makes of the events of a response, or of a whole JSON answer.
pub trait Answer {
    /// The head of the response.
    fn head(&self) -> &HeadFacts;

    /// Takes an event. After the finish chunk it is to do nothing.
    fn event(&mut self, event: &SseEvent, out: &mut Chunks);

    /// Takes the text of a complete body that is JSON instead of an event stream. It may be cut at its end.
    fn whole(&mut self, text: &str, out: &mut Chunks);

    /// The bytes are over: ends the response where that is not done yet.
    fn end(&mut self, end: &StreamEnd, out: &mut Chunks);

    /// The response half of a partial answer; none while there is no block.
    fn partial_half(&self) -> Option<Raw>;
}

/// Decoder of one response.
#[derive(Debug)]
pub struct BodyDecoder<A> {
    body: Body,
    answer: A,
}

#[derive(Debug)]
enum Body {
    /// Nothing but a byte-order mark and white space so far.
    Unknown(Vec<u8>),
    /// An event stream.
    Events { parser: SseParser, seen: bool, unread: Vec<u8> },
    /// A whole JSON answer.
    Json(Vec<u8>),
    /// The body of a status that is no success.
    Refusal(Vec<u8>),
}

impl<A: Answer> BodyDecoder<A> {
    /// A decoder that has seen the head.
    pub fn new(answer: A) -> Self {
        let refused = !(200..300).contains(&answer.head().status);
        Self { body: if refused { Body::Refusal(Vec::new()) } else { Body::Unknown(Vec::new()) }, answer }
    }

    /// The answer as far as it came.
    pub const fn answer_mut(&mut self) -> &mut A {
        &mut self.answer
    }
}

impl<A: Answer + Send + 'static> Decoder for BodyDecoder<A> {
    fn feed(&mut self, bytes: &[u8], out: &mut Chunks) {
        match &mut self.body {
            Body::Refusal(body) => body.extend(bytes.iter().take(REFUSAL_LIMIT.saturating_sub(body.len()))),
            Body::Json(body) => body.extend_from_slice(bytes),
            Body::Events { parser, seen, unread } => {
                let answer = &mut self.answer;
                parser.feed(bytes, |event| {
                    *seen = true;
                    answer.event(event, out);
                });
                if !*seen {
                    unread.extend(bytes.iter().take(UNREAD_LIMIT.saturating_sub(unread.len())));
                }
            }
            Body::Unknown(start) => {
                start.extend_from_slice(bytes);
                forget_blanks(start);
                let Some(is_json) = looks_like_json(start) else { return };
                let start = std::mem::take(start);
                if is_json {
                    self.body = Body::Json(start);
                } else {
                    self.body = Body::Events { parser: SseParser::new(), seen: false, unread: Vec::new() };
                    self.feed(&start, out);
                }
            }
        }
    }

    fn finish(&mut self, end: &StreamEnd, out: &mut Chunks) {
        let complete = *end == StreamEnd::Complete;
        let answer = &mut self.answer;
        match &mut self.body {
            Body::Refusal(body) => {
                let failure = errors::refused(answer.head(), body);
                return out.fail(failure, None);
            }
            Body::Json(body) if complete => answer.whole(&lossy(body), out),
            Body::Json(_) | Body::Unknown(_) => {}
            Body::Events { parser, seen, unread } => {
                if let Some(last) = parser.finish() {
                    // Without its blank line an event counts only when nothing of it is missing.
                    if last.data.trim() == "[DONE]" || members(&last.data, ["id"]).is_ok_and(|found| found.is_some()) {
                        answer.event(&last, out);
                    }
                } else if let Some(error) = stray_error(parser) {
                    answer.event(&error, out);
                } else if complete && !*seen && has_text(unread) {
                    let failure = errors::not_this_wire(answer.head(), unread);
                    return out.fail(failure, None);
                }
            }
        }
        answer.end(end, out);
    }

    fn cancel(&mut self, out: &mut Chunks) {
        let half = self.answer.partial_half();
        out.fail_as_aborted(half);
    }
}

const MARK: &[u8] = b"\xef\xbb\xbf";

/// True when JSON begins after a byte-order mark and white space, false when anything else does.
fn looks_like_json(start: &[u8]) -> Option<bool> {
    if start.len() < MARK.len() && MARK.starts_with(start) {
        return None;
    }
    let rest = start.strip_prefix(MARK).unwrap_or(start);
    let first = rest.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(matches!(first, b'{' | b'['))
}

/// Keeps the last of the blanks at the beginning: it says whether the line that is open begins with white space, and
/// that a byte-order mark after it is none. A server may keep a connection alive with any amount of them, and what is
/// made of the rest does not depend on how many came at once.
fn forget_blanks(start: &mut Vec<u8>) {
    let from = if start.starts_with(MARK) { MARK.len() } else { 0 };
    let blanks = start.iter().skip(from).take_while(|byte| byte.is_ascii_whitespace()).count();
    if blanks > 1 {
        start.drain(from..from + blanks - 1);
    }
}

/// An error that stands at the end of a stream without a field name, as the event that it was meant to be.
fn stray_error(parser: &SseParser) -> Option<SseEvent> {
    let data = lossy(parser.stray());
    let [error] = members(&data, ["error"]).ok()??;
    error.map(|_| SseEvent { data: data.trim_end().to_owned(), complete: true, ..SseEvent::default() })
}

/// True when a body that holds no event holds more than comments and white space.
fn has_text(unread: &[u8]) -> bool {
    let text = String::from_utf8_lossy(unread);
    text.trim_start_matches('\u{feff}')
        .split(['\n', '\r'])
        .any(|line| !line.trim().is_empty() && !line.starts_with(':') && !line.starts_with("event:"))
}
