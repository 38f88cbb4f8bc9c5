//! The arguments of a tool call as they stream in, and whether they are one whole JSON object.
//!
//! Some servers name the tool in every delta, so that the question comes up with each of them. The text is therefore
//! never read from its beginning more than once: brackets are counted as they arrive, and only a text that has closed
//! its first one is parsed.

use std::cell::OnceCell;

use dsh_plugin_api::kit::lenient::is_object_text;

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    text: String,
    scan: Scan,
    /// What parsing said of a text that is [`Scan::Closed`]; white space behind it changes nothing.
    parses: OnceCell<bool>,
}

/// How far the first object of a text has come.
#[derive(Debug, Default, Clone, Copy)]
enum Scan {
    /// Nothing but white space.
    #[default]
    Before,
    /// Inside of this many brackets.
    Open { depth: usize, string: InString },
    /// The first bracket is closed, and white space may follow.
    Closed,
    /// No continuation is an object.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InString {
    No,
    Yes,
    /// Behind a backslash.
    Escaped,
}

impl Arguments {
    /// Adds the next piece.
    pub fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        self.scan = piece.bytes().fold(self.scan, Scan::next);
    }

    /// The text so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True when the text is one JSON object.
    pub fn is_whole(&self) -> bool {
        matches!(self.scan, Scan::Closed) && *self.parses.get_or_init(|| is_object_text(&self.text))
    }
}

impl Scan {
    const fn next(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Never, _) => Self::Never,
            (Self::Before | Self::Closed, b' ' | b'\t' | b'\n' | b'\r') => self,
            (Self::Before, b'{') => Self::Open { depth: 1, string: InString::No },
            (Self::Before | Self::Closed, _) => Self::Never,
            (Self::Open { depth, string: InString::No }, byte) => match byte {
                b'{' | b'[' => Self::Open { depth: depth + 1, string: InString::No },
                b'}' | b']' if depth == 1 => Self::Closed,
                b'}' | b']' => Self::Open { depth: depth - 1, string: InString::No },
                b'"' => Self::Open { depth, string: InString::Yes },
                _ => self,
            },
            (Self::Open { depth, string: InString::Yes }, byte) => {
                let string = match byte {
                    b'"' => InString::No,
                    b'\\' => InString::Escaped,
                    _ => InString::Yes,
                };
                Self::Open { depth, string }
            }
            (Self::Open { depth, string: InString::Escaped }, _) => Self::Open { depth, string: InString::Yes },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_pieces(pieces: &[String]) -> Arguments {
        let mut arguments = Arguments::default();
        for piece in pieces {
            arguments.push(piece);
            // Asking in between changes no later answer.
            arguments.is_whole();
        }
        arguments
    }

    #[test]
    fn a_text_is_whole_when_it_is_one_object() {
        for (pieces, whole) in [
            (&["{\"a\":", "\"}\"", "}"][..], true),
            (&[" {}", "\n"], true),
            (&["{\"a\":\"\\", "\"}\"}"], true),
            (&["{\"a\":\"}"], false),
            (&["{}", "{}"], false),
            (&["{", "x}"], false),
            (&["[{}]"], false),
            (&[], false),
        ] {
            let pieces: Vec<String> = pieces.iter().map(|piece| (*piece).to_owned()).collect();
            assert_eq!(in_pieces(&pieces).is_whole(), whole, "{pieces:?}");
        }
    }

    proptest! {
        #[test]
        fn it_says_what_parsing_the_whole_text_says(
            pieces in prop::collection::vec("[ {}\\[\\]\"\\\\:,a1]{0,6}|\\{\"a\":|\\{\\}|\"x\"\\}", 0..8)
        ) {
            let arguments = in_pieces(&pieces);
            prop_assert_eq!(arguments.text(), pieces.concat());
            prop_assert_eq!(arguments.is_whole(), is_object_text(&pieces.concat()));
        }
    }
}
