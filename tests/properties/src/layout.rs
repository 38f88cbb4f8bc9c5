//! How answers are written down: line ends, marks, comments, fields that nobody reads, data over several lines.

use proptest::prelude::*;

/// The choices of one body. Lists are gone through by turns.
#[derive(Debug, Clone)]
pub struct Layout {
    mark: bool,
    ends: Vec<&'static str>,
    blanks: Vec<bool>,
    lines: Vec<bool>,
    between: Vec<&'static str>,
    types: Types,
    turn: usize,
}

/// Where an event says its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    /// In its data and beside it.
    Both,
    /// In its data.
    Inside,
    /// Beside its data.
    Beside,
}

/// Any layout.
pub fn layouts() -> impl Strategy<Value = Layout> {
    let ends = prop_oneof![
        4 => Just(vec!["\n"]),
        2 => Just(vec!["\r\n"]),
        1 => Just(vec!["\r"]),
        2 => proptest::collection::vec(proptest::sample::select(&["\n", "\r\n", "\r"][..]), 1..5),
    ];
    let between = proptest::sample::select(
        &["", "", "", ": keep-alive", "id: 1", "retry: 10", "event: message", "event:", ":", "x: y", " data: no"][..],
    );
    (
        proptest::bool::weighted(0.2),
        ends,
        proptest::collection::vec(any::<bool>(), 1..4),
        proptest::collection::vec(proptest::bool::weighted(0.2), 1..4),
        proptest::collection::vec(between, 1..4),
        proptest::sample::select(&[Types::Both, Types::Both, Types::Inside, Types::Beside][..]),
    )
        .prop_map(|(mark, ends, blanks, lines, between, types)| Layout {
            mark,
            ends,
            blanks,
            lines,
            between,
            types,
            turn: 0,
        })
}

impl Layout {
    /// The beginning of a body.
    pub fn start(&self) -> Vec<u8> {
        if self.mark { "\u{feff}".into() } else { Vec::new() }
    }

    /// Writes an event. Returns the length of the body up to the last byte of its data.
    pub fn event(&mut self, body: &mut Vec<u8>, name: &str, data: &str) -> usize {
        self.turn += 1;
        let turn = self.turn;
        let between = self.between[turn % self.between.len()];
        if !between.is_empty() {
            self.line(body, between);
        }
        if !name.is_empty() {
            self.line(body, &format!("event: {name}"));
        }
        let colon = if self.blanks[turn % self.blanks.len()] { "data: " } else { "data:" };
        let inside = data.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match inside.filter(|_| self.lines[turn % self.lines.len()]) {
            Some(inside) => {
                self.line(body, &format!("{colon}{{"));
                self.line(body, &format!("{colon}{inside}"));
                body.extend_from_slice(format!("{colon}}}").as_bytes());
            }
            None => body.extend_from_slice(format!("{colon}{data}").as_bytes()),
        }
        let complete_at = body.len();
        self.line(body, "");
        self.line(body, "");
        complete_at
    }

    /// Writes an event of a wire whose events have types; `members` are those of its data beside `type`. Returns what
    /// [`Layout::event`] does.
    pub fn typed(&mut self, body: &mut Vec<u8>, kind: &str, members: &str) -> usize {
        let name = if self.types == Types::Inside { "" } else { kind };
        let comma = if members.is_empty() { "" } else { "," };
        match self.types {
            Types::Beside => self.event(body, name, &format!("{{{members}}}")),
            Types::Both | Types::Inside => self.event(body, name, &format!(r#"{{"type":"{kind}"{comma}{members}}}"#)),
        }
    }

    /// Ends a line that holds this much more.
    fn line(&mut self, body: &mut Vec<u8>, text: &str) {
        body.extend_from_slice(text.as_bytes());
        self.turn += 1;
        let end = self.ends[self.turn % self.ends.len()];
        // Behind CR, LF would be the same line end.
        let end = if end == "\n" && body.last() == Some(&b'\r') { "\r" } else { end };
        body.extend_from_slice(end.as_bytes());
    }
}

/// What stands around an answer that is one JSON document.
#[derive(Debug, Clone)]
pub struct Around {
    mark: bool,
    before: &'static str,
    after: &'static str,
}

/// Anything that may stand there.
pub fn arounds() -> impl Strategy<Value = Around> {
    let blanks = || proptest::sample::select(&["", "\n", " \r\n", "\t"][..]);
    (any::<bool>(), blanks(), blanks()).prop_map(|(mark, before, after)| Around { mark, before, after })
}

impl Around {
    /// The body, and its length up to the end of the document.
    #[must_use]
    pub fn put(&self, document: &str) -> (Vec<u8>, usize) {
        let mark = if self.mark { "\u{feff}" } else { "" };
        let start = format!("{mark}{}{document}", self.before);
        let complete_at = start.len();
        ((start + self.after).into_bytes(), complete_at)
    }
}
