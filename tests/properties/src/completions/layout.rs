//! How events are written down: line ends, marks, comments, fields that nobody reads, data over several lines.

use proptest::prelude::*;

/// The choices of one body. Lists are gone through by turns.
#[derive(Debug, Clone)]
pub struct Layout {
    mark: bool,
    ends: Vec<&'static str>,
    blanks: Vec<bool>,
    lines: Vec<bool>,
    between: Vec<&'static str>,
    turn: usize,
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
    )
        .prop_map(|(mark, ends, blanks, lines, between)| Layout { mark, ends, blanks, lines, between, turn: 0 })
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
