//! Server-sent events by push: bytes in, events out, whatever the split.
//!
//! Follows the WHATWG HTML standard, section "Parsing an event stream": UTF-8 with an optional byte-order mark, lines
//! ended by CR, LF or CRLF, comments, multi-line data, an event ended by a blank line; invalid UTF-8 reads as U+FFFD.
//! Two departures, towards losing less: [`SseParser::finish`] hands out an event that the end of the stream left without
//! its blank line, marked as such, and [`SseParser::stray`] JSON that stands in the stream without a field name. `id` and
//! `retry` are not used by any provider and are dropped.
//!
//! The parser sets no limit of its own. What it holds grows only with the line and the event that are open, to at most
//! twice their bytes and a few kilobytes, and not with the number of lines, comments or events; a line without an end is
//! therefore bounded by what the caller feeds. The host feeds at most 256 MiB of one answer.

use crate::json::lossy;

/// Bytes of the text of an event that are kept for the next one.
const KEPT: usize = 4 * 1024;
/// Longest stray text that is kept, in bytes.
const STRAY_LIMIT: usize = 16 * 1024;

/// One event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; empty when there was none.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: String,
    /// False when the stream ended before the event's blank line.
    pub complete: bool,
}

/// An incremental parser. Its memory is bounded by the longest line and the longest event, see the module.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    /// The event that is open.
    event: SseEvent,
    has_data: bool,
    stray: Vec<u8>,
    after_cr: bool,
    started: bool,
}

impl SseParser {
    /// A parser at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and calls `on_event` for each event that they complete.
    pub fn feed(&mut self, mut bytes: &[u8], mut on_event: impl FnMut(&SseEvent)) {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) {
            let ended_by_cr = bytes[end] == b'\r';
            if self.line.is_empty() {
                self.take_line(&bytes[..end], &mut on_event);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut on_event);
                self.line = line;
                self.line.clear();
            }
            bytes = &bytes[end + 1..];
            if ended_by_cr {
                match bytes.first() {
                    None => self.after_cr = true,
                    Some(b'\n') => bytes = &bytes[1..],
                    Some(_) => {}
                }
            }
        }
        self.line.extend_from_slice(bytes);
    }

    /// The event that the end of the stream left open, if it has data. A last line without its line end counts.
    pub fn finish(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            // A line that is not empty ends no event.
            self.take_line(&line, &mut |_| {});
        }
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(SseEvent { complete: false, ..event })
    }

    /// The lines behind the last event that are no field, from the first that begins with `{`; its first 16 KiB. Some
    /// servers write an error that way into a stream that has begun. Empty when there are none.
    #[must_use]
    pub fn stray(&self) -> &[u8] {
        &self.stray
    }

    fn take_line(&mut self, line: &[u8], on_event: &mut impl FnMut(&SseEvent)) {
        let line = if self.started { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        self.started = true;
        if line.is_empty() {
            return self.end_event(on_event);
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(&lossy(value));
            }
            b"event" => {
                self.event.name.clear();
                self.event.name.push_str(&lossy(value));
            }
            b"" | b"id" | b"retry" => {}
            _ if self.stray.is_empty() && !line.starts_with(b"{") => {}
            _ => {
                let room = STRAY_LIMIT.saturating_sub(self.stray.len());
                self.stray.extend(line.iter().chain(b"\n").take(room));
            }
        }
    }

    fn end_event(&mut self, on_event: &mut impl FnMut(&SseEvent)) {
        let Self { event, has_data, stray, .. } = self;
        if std::mem::take(has_data) {
            event.complete = true;
            on_event(event);
            stray.clear();
        }
        // What one event took is there for the next, but not for ever.
        for text in [&mut event.name, &mut event.data] {
            text.clear();
            text.shrink_to(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(bytes: &[u8], split: usize) -> Vec<(String, String, bool)> {
        let mut parser = SseParser::new();
        let mut out = Vec::new();
        for piece in bytes.chunks(split.max(1)) {
            parser.feed(piece, |event| out.push((event.name.clone(), event.data.clone(), event.complete)));
        }
        out.extend(parser.finish().map(|event| (event.name, event.data, event.complete)));
        out
    }

    #[test]
    fn every_line_ending_comment_and_field_form_is_read() {
        let text = "\u{feff}: hello\r\nevent: a\r\ndata: 1\rdata:2\n\n\ndata\n\nid: 7\nretry: 3\n\ndata: {\"x\": 1}";
        for split in 1..=text.len() {
            assert_eq!(
                events(text.as_bytes(), split),
                [
                    ("a".into(), "1\n2".into(), true),
                    (String::new(), String::new(), true),
                    (String::new(), "{\"x\": 1}".into(), false)
                ],
                "split {split}"
            );
        }
    }

    #[test]
    fn json_without_a_field_name_is_kept_until_the_next_event() {
        let stray = |text: &str, split: usize| {
            let mut parser = SseParser::new();
            text.as_bytes().chunks(split).for_each(|piece| parser.feed(piece, |_| {}));
            parser.finish();
            lossy(parser.stray()).into_owned()
        };
        for (text, expected) in [
            ("data: 1\n\n{\"error\": 1}", "{\"error\": 1}\n"),
            ("data: 1\n\n: c\nid: 1\n{\r\n\r\n : x\n: c\n\"a\": 1\nretry\n}\n", "{\n : x\n\"a\": 1\n}\n"),
            ("data: 1\n\n{\"a\": 1}\ndata: 2\n\n", ""),
            ("data: {\"a\": 1}\nfield: {\n", ""),
        ] {
            for split in 1..=text.len() {
                assert_eq!(stray(text, split), expected, "{text:?}, split {split}");
            }
        }
        assert_eq!(stray(&("{".repeat(1000) + "\n").repeat(100), 7).len(), STRAY_LIMIT);
    }

    /// Bytes that a parser has allocated.
    fn held(parser: &SseParser) -> usize {
        parser.line.capacity() + parser.event.data.capacity() + parser.event.name.capacity() + parser.stray.capacity()
    }

    #[test]
    fn memory_grows_with_the_open_event_and_not_with_the_stream() {
        let mut parser = SseParser::new();
        for _ in 0..50_000 {
            parser.feed(b"event: a\nda", |_| {});
            parser.feed(b"ta: x\r\n\r\n: keep-alive\nid: 7\n", |_| {});
        }
        assert!(held(&parser) < 256, "{}", held(&parser));

        let (piece, pieces) = ([b'x'; 1000], 4_000);
        parser.feed(b"data: ", |_| {});
        for _ in 0..pieces {
            parser.feed(&piece, |_| {});
        }
        let fed = piece.len() * pieces;
        assert!((fed..2 * fed + 256).contains(&held(&parser)), "{} for {fed}", held(&parser));
        assert_eq!(parser.finish().map(|event| (event.data.len(), event.complete)), Some((fed, false)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(text in "(data: ?|event:|:|x|é|\r|\n|\r\n){0,40}", split in 1usize..9) {
            prop_assert_eq!(events(text.as_bytes(), split), events(text.as_bytes(), usize::MAX));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), split in 1usize..9) {
            prop_assert_eq!(events(&bytes, split), events(&bytes, usize::MAX));
        }
    }
}
