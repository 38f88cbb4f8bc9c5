//! JSON helpers: values kept as they were written, and text from JavaScript.
//!
//! Logs and provider streams are often written by JavaScript, whose strings may hold a lone UTF-16 surrogate,
//! written as the escape `\ud83d`. `serde_json` refuses such a string, so it must not meet one: [`from_str`] and
//! [`from_slice`] replace lone surrogates by U+FFFD before parsing, and [`Joiner`] puts the halves of a pair back
//! together when a stream split them over two deltas.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON value as the text it was written as: key order, duplicate keys and integers beyond 2^53 survive.
pub type Raw = Box<RawValue>;

/// The JSON text of a value.
///
/// # Panics
///
/// Only for a type whose `Serialize` implementation fails by itself (a map with keys that are no strings). No type
/// of the vocabulary does.
#[must_use]
pub fn raw<T: Serialize + ?Sized>(value: &T) -> Raw {
    #[expect(clippy::expect_used, reason = "JSON of a value in memory fails only for maps without string keys")]
    serde_json::value::to_raw_value(value).expect("the value has string keys only")
}

/// Parses JSON text, with lone surrogate escapes read as U+FFFD.
///
/// # Errors
///
/// The error of `serde_json`, with line and column.
pub fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    serde_json::from_str(&replace_lone_surrogates(text))
}

/// Parses JSON bytes; invalid UTF-8 and lone surrogate escapes are read as U+FFFD.
///
/// # Errors
///
/// The error of `serde_json`, with line and column.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    from_str(&lossy(bytes))
}

/// Bytes as text, with what is no UTF-8 read as U+FFFD.
///
/// The same as [`String::from_utf8_lossy`], which looks at one byte after the other; most bytes are UTF-8, and that is
/// seen many at a time.
#[must_use]
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// JSON text in which every lone surrogate escape is the escape of U+FFFD. Text without one is returned as it is.
///
/// The text need not be valid JSON: nothing but `\uXXXX` escapes is looked at. Nested JSON (the arguments of a tool
/// call, a string that holds JSON) is seen only where the text itself is that JSON.
#[must_use]
pub fn replace_lone_surrogates(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + offset;
        match escaped_unit(&bytes[start..]) {
            Some(high @ 0xD800..=0xDBFF) => {
                let low = escaped_unit(&bytes[start + 6..]);
                if matches!(low, Some(0xDC00..=0xDFFF)) {
                    at = start + 12;
                    continue;
                }
                debug_assert!(high >= 0xD800);
            }
            Some(0xDC00..=0xDFFF) => {}
            // `\uXXXX` of a scalar value, or any two-character escape: skip the backslash and what it escapes.
            _ => {
                at = (start + 2).min(bytes.len());
                continue;
            }
        }
        let text_out = out.get_or_insert_with(String::new);
        text_out.push_str(&text[copied..start]);
        text_out.push_str("\\ufffd");
        at = start + 6;
        copied = at;
    }
    match out {
        None => Cow::Borrowed(text),
        Some(mut text_out) => {
            text_out.push_str(&text[copied..]);
            Cow::Owned(text_out)
        }
    }
}

/// The code unit of a `\uXXXX` escape at the start of `bytes`.
fn escaped_unit(bytes: &[u8]) -> Option<u16> {
    let hex = bytes.get(..6)?.strip_prefix(b"\\u")?;
    hex.iter().try_fold(0u16, |unit, digit| {
        let value = (*digit as char).to_digit(16)?;
        Some(unit << 4 | value as u16)
    })
}

/// Reads the JSON strings of successive deltas and joins surrogate pairs that were split between two of them.
///
/// One joiner belongs to one block. A high surrogate at the end of a delta is held back; the next delta either
/// completes the pair or turns it into U+FFFD.
///
/// ```
/// use dsh_plugin_api::json::Joiner;
/// let mut joiner = Joiner::default();
/// assert_eq!(joiner.push(r#""a\ud83d""#), "a");
/// assert_eq!(joiner.push(r#""\ude00b""#), "😀b");
/// assert_eq!(joiner.finish(), None);
/// ```
#[derive(Debug, Default, Clone)]
pub struct Joiner {
    high: Option<u16>,
}

impl Joiner {
    /// The text of one JSON string, given as its JSON text with the quotes. Text that is no JSON string reads as
    /// the empty string.
    pub fn push(&mut self, json_string: &str) -> String {
        if self.high.is_none()
            && let Ok(text) = serde_json::from_str::<String>(json_string)
        {
            return text;
        }
        let Some(inner) = json_string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
            return String::new();
        };
        let mut out = String::with_capacity(inner.len());
        let mut rest = inner;
        while !rest.is_empty() {
            let Some(unit) = escaped_unit(rest.as_bytes()).filter(|unit| (0xD800..=0xDFFF).contains(unit)) else {
                let step = plain_length(rest);
                self.flush(&mut out);
                // The piece holds no surrogate escape, so `serde_json` reads it.
                match serde_json::from_str::<String>(&format!("\"{}\"", &rest[..step])) {
                    Ok(piece) => out.push_str(&piece),
                    Err(_) => out.push_str(&rest[..step]),
                }
                rest = &rest[step..];
                continue;
            };
            match (self.high.take(), unit) {
                (Some(high), 0xDC00..=0xDFFF) => {
                    let scalar = 0x10000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(unit) - 0xDC00);
                    out.push(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                (held, _) => {
                    if held.is_some() {
                        out.push(char::REPLACEMENT_CHARACTER);
                    }
                    if unit < 0xDC00 {
                        self.high = Some(unit);
                    } else {
                        out.push(char::REPLACEMENT_CHARACTER);
                    }
                }
            }
            rest = &rest[6..];
        }
        out
    }

    /// True while half a pair is held back.
    #[must_use]
    pub const fn holds_half(&self) -> bool {
        self.high.is_some()
    }

    /// What a high surrogate that was held back turns into when nothing follows it.
    pub fn finish(&mut self) -> Option<char> {
        self.high.take().map(|_| char::REPLACEMENT_CHARACTER)
    }

    fn flush(&mut self, out: &mut String) {
        out.extend(self.finish());
    }
}

/// Length in bytes of the part before the next surrogate escape.
fn plain_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', &bytes[at..]) {
        let start = at + offset;
        if matches!(escaped_unit(&bytes[start..]), Some(0xD800..=0xDFFF)) {
            return start;
        }
        at = (start + 2).min(bytes.len());
    }
    bytes.len()
}

/// A JSON object whose members keep their order and their text.
#[derive(Debug, Default, Clone)]
pub struct Object(Vec<(String, Raw)>);

impl Object {
    /// An object without members.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// True when there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last member of that name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// The last member of that name as a string, where it is one.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        from_str(self.get(key)?.get()).ok()
    }

    /// Removes every member of that name and returns the last one.
    pub fn take(&mut self, key: &str) -> Option<Raw> {
        let mut found = None;
        self.0.retain_mut(|(name, value)| {
            let hit = name == key;
            if hit {
                found = Some(std::mem::take(value));
            }
            !hit
        });
        found
    }

    /// Removes a member and parses it; `None` when it is absent or of another type.
    pub fn take_as<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        from_str(self.take(key)?.get()).ok()
    }

    /// Adds a member, or replaces the one of that name.
    pub fn set(&mut self, key: &str, value: Raw) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, Raw>()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_become_the_replacement_character_and_pairs_stay() {
        for (text, expected) in [
            (r#""plain""#, r#""plain""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\ude00x""#, r#""\ufffdx""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\ud83"#, r#""\ud83"#),
        ] {
            assert_eq!(replace_lone_surrogates(text), expected, "{text}");
        }
    }

    #[test]
    fn a_joiner_gives_the_same_text_as_the_whole_string() {
        let mut joiner = Joiner::default();
        let parts = [r#""x\ud83d""#, r#""""#, r#""\ude00\n\ud83d""#, r#""y\udc00""#, r#""\ud83d""#];
        let mut text: String = parts.iter().map(|part| joiner.push(part)).collect();
        text.extend(joiner.finish());
        assert_eq!(text, "x😀\n\u{fffd}y\u{fffd}\u{fffd}");
    }

    #[test]
    fn an_object_keeps_big_integers_and_order() {
        let text = r#"{"b":12345678901234567890123,"a":{"z":1,"z":2}}"#;
        let object: Object = serde_json::from_str(text).unwrap();
        assert_eq!(raw(&object).get(), text);
    }
}
