//! Text as JavaScript has it, and the JSON strings that servers write for it.
//!
//! A text is a list of UTF-16 units, so that a stream can cut it between the halves of a surrogate pair, and a half can
//! lack its partner.

use std::fmt::Write as _;

use proptest::prelude::*;

/// UTF-16 units.
pub type Units = Vec<u16>;

/// Texts of words, characters of one to four bytes of UTF-8, characters that JSON must escape, white space, and now
/// and then half a surrogate pair.
pub fn units() -> impl Strategy<Value = Units> {
    let words: &[&str] = &[
        "a",
        "word ",
        "Ωé",
        "語\u{2028}",
        "😀",
        "👩‍🚀",
        "\u{10ffff}",
        "\"",
        "\\",
        "/",
        "\n",
        "\r",
        "\t",
        "\0",
        "\u{feff}",
        " ",
        "data: [DONE]",
        "\\u0041",
        "\"finish_reason\":\"stop\"",
    ];
    let word = proptest::sample::select(words).prop_map(|word| word.encode_utf16().collect());
    let half = proptest::sample::select(&[0xd83du16, 0xde00][..]).prop_map(|unit| vec![unit]);
    proptest::collection::vec(prop_oneof![20 => word, 1 => half], 0..8).prop_map(|words: Vec<Units>| words.concat())
}

/// The text of units; a half pair reads as U+FFFD.
#[must_use]
pub fn text(units: &[u16]) -> String {
    String::from_utf16_lossy(units)
}

/// Cuts units into as many fragments as there are bits and one more; each bit pattern is a place.
#[must_use]
pub fn fragments<'a>(units: &'a [u16], cuts: &[prop::sample::Index]) -> Vec<&'a [u16]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(units.len() + 1)).collect();
    places.sort_unstable();
    places.push(units.len());
    let mut from = 0;
    places.iter().map(|to| &units[std::mem::replace(&mut from, *to)..*to]).collect()
}

/// A JSON string. Characters that need no escape are written as they are or as `\u` escapes, by turns of `escapes`.
#[must_use]
pub fn string(units: &[u16], escapes: &[bool]) -> String {
    let mut out = String::from("\"");
    let mut escape = escapes.iter().cycle().copied();
    for c in char::decode_utf16(units.iter().copied()) {
        let escaped = escape.next().unwrap_or(false);
        let short = match c {
            Ok('"') => Some("\\\""),
            Ok('\\') => Some("\\\\"),
            Ok('\n') => Some("\\n"),
            Ok('\r') => Some("\\r"),
            Ok('\t') => Some("\\t"),
            _ => None,
        };
        let mut written = [0; 2];
        let units = match (&c, short) {
            (_, Some(short)) if !escaped => {
                out.push_str(short);
                continue;
            }
            (Ok(c), None) if !escaped && *c >= ' ' => {
                out.push(*c);
                continue;
            }
            (Ok(c), _) => &*c.encode_utf16(&mut written),
            (Err(half), _) => {
                written[0] = half.unpaired_surrogate();
                &written[..1]
            }
        };
        for unit in units {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    out + "\""
}
