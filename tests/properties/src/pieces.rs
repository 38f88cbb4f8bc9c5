//! How a body comes in: cut into pieces, and damaged on the way.

use proptest::prelude::*;
use proptest::sample::Index;

/// The pieces of a body whose widths (in bytes, 0 counts as 256) repeat in this order. Without widths the body comes
/// whole.
pub fn pieces<'a>(body: &'a [u8], widths: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = body;
    let mut width = widths.iter().cycle();
    std::iter::from_fn(move || {
        let wanted = match width.next() {
            None => rest.len(),
            Some(0) => 256,
            Some(width) => usize::from(*width),
        };
        let (piece, after) = rest.split_at_checked(wanted).unwrap_or((rest, &[]));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Widths for [`pieces`]: byte by byte, small pieces that fall into every line, and pieces of any width.
pub fn widths() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(vec![1]), proptest::collection::vec(1u8..9, 1..6), proptest::collection::vec(any::<u8>(), 1..6),]
}

/// One change to a body. Places are relative to its length.
#[derive(Debug, Clone)]
pub enum Damage {
    /// One byte becomes another.
    Replace(Index, u8),
    /// The bytes between two places are lost.
    Lose(Index, Index),
    /// The bytes between two places come twice.
    Repeat(Index, Index),
    /// Bytes of elsewhere get in.
    Insert(Index, Vec<u8>),
}

impl Damage {
    /// Damages of every kind; `words` are what may get in, beside arbitrary bytes.
    pub fn any(words: &'static [&'static str]) -> impl Strategy<Value = Self> {
        let word = proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec());
        let foreign = prop_oneof![3 => word, 1 => proptest::collection::vec(any::<u8>(), 1..6)];
        prop_oneof![
            (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Self::Replace(at, byte)),
            (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Self::Lose(from, to)),
            (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Self::Repeat(from, to)),
            (any::<Index>(), foreign).prop_map(|(at, bytes)| Self::Insert(at, bytes)),
        ]
    }

    /// Does it.
    pub fn apply(&self, body: &mut Vec<u8>) {
        let range = |from: &Index, to: &Index| {
            let (from, to) = (from.index(body.len() + 1), to.index(body.len() + 1));
            from.min(to)..from.max(to)
        };
        match self {
            Self::Replace(at, byte) if !body.is_empty() => {
                let at = at.index(body.len());
                body[at] = *byte;
            }
            Self::Replace(..) => {}
            Self::Lose(from, to) => drop(body.drain(range(from, to))),
            Self::Repeat(from, to) => {
                let range = range(from, to);
                let again = body[range.clone()].to_vec();
                body.splice(range.end..range.end, again);
            }
            Self::Insert(at, bytes) => {
                let at = at.index(body.len() + 1);
                body.splice(at..at, bytes.iter().copied());
            }
        }
    }
}
