//! Reading of provider JSON: known members by name, everything else skipped, a member of another type is absent.
//!
//! Values are borrowed as the text they were written as, so that strings with half a surrogate pair can be joined
//! later, and numbers and nested objects keep their spelling.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json;

/// The members of these names, in the order of the names; the last one of a name counts, and `null` is absent.
/// `Ok(None)` for JSON that is no object.
///
/// # Errors
///
/// The text is no JSON.
pub fn members<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> serde_json::Result<Option<[Option<&'a RawValue>; N]>> {
    let found = members_as_written(text, names)?;
    Ok(found.map(|found| found.map(|value| value.filter(|value| value.get() != "null"))))
}

/// [`members`] with those that are `null`.
pub(crate) fn members_as_written<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> serde_json::Result<Option<[Option<&'a RawValue>; N]>> {
    if !text.trim_start().starts_with('{') {
        return serde_json::from_str::<&RawValue>(text).map(|_| None);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let names: [(&str, usize); N] = std::array::from_fn(|place| (names[place], place));
    let found = deserializer.deserialize_map(Members(&names))?;
    deserializer.end()?;
    Ok(Some(found))
}

/// [`members`] of a value that is known to be JSON.
pub fn members_of<'a, const N: usize>(value: &'a RawValue, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    members(value.get(), names).ok().flatten()
}

struct Members<'n, const N: usize>(&'n [(&'n str, usize); N]);

impl<'de, const N: usize> Visitor<'de> for Members<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(place) = map.next_key_seed(Named(self.0))? {
            match place.and_then(|place| found.get_mut(*place)) {
                Some(slot) => *slot = Some(map.next_value::<&RawValue>()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

#[macro_export]
#[doc(hidden)]
macro_rules! lenient_object {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident<'a> {
        $($(#[$member_attribute:meta])* $member:ident: $type:ty,)+
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Default)]
        $visibility struct $name<'a> {
            $($(#[$member_attribute])* pub $member: Option<$type>,)+
        }

        impl<'de: 'a, 'a> $crate::serde::Deserialize<'de> for $name<'a> {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members<'a>(std::marker::PhantomData<&'a ()>);
                impl<'de: 'a, 'a> $crate::serde::de::Visitor<'de> for Members<'a> {
                    type Value = $name<'a>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a JSON object")
                    }

                    fn visit_map<A: $crate::serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        #[expect(non_camel_case_types, reason = "they are called as the members are")]
                        enum Member {
                            $($member,)+
                        }
                        const NAMES: &[(&str, Member)] = &[$((stringify!($member), Member::$member)),+];
                        let mut found = $name::default();
                        while let Some(member) = map.next_key_seed($crate::kit::lenient::Named(NAMES))? {
                            match member {
                                $(Some(Member::$member) => found.$member = map.next_value()?,)+
                                None => {
                                    map.next_value::<$crate::serde::de::IgnoredAny>()?;
                                }
                            }
                        }
                        Ok(found)
                    }
                }
                deserializer.deserialize_map(Members(std::marker::PhantomData))
            }
        }
    };
}
/// A struct of the members of these names, read in one pass: the last one of a name counts, `null` is absent, others
/// are skipped. Reading fails for a value of another type, and for what is no object; see [`members`] for that.
#[doc(inline)]
pub use crate::lenient_object as object;

/// Finds a key among names, and what stands for it. Keys are read as bytes, since one with a lone surrogate is no `str`.
pub struct Named<'n, T>(pub &'n [(&'n str, T)]);

impl<'de, 'n, T> DeserializeSeed<'de> for Named<'n, T> {
    type Value = Option<&'n T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'n, T> Visitor<'_> for Named<'n, T> {
    type Value = Option<&'n T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_bytes<E: serde::de::Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|(name, _)| name.as_bytes() == key).map(|(_, member)| member))
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        self.visit_bytes(key.as_bytes())
    }
}

/// A string, with lone surrogates as U+FFFD.
pub fn string(value: &RawValue) -> Option<String> {
    match plain_text(value) {
        Some(text) => Some(text.to_owned()),
        // The error that is made for another type would cost more than the reading.
        None => is_string(value).then(|| json::from_str(value.get()).ok())?,
    }
}

/// The text of a string that is written without escapes.
fn plain_text(value: &RawValue) -> Option<&str> {
    let inner = value.get().strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', inner.as_bytes()).is_none().then_some(inner)
}

/// A string that is not empty.
pub fn filled(value: Option<&RawValue>) -> Option<String> {
    string(value?).filter(|text| !text.is_empty())
}

/// A count: a number, or a string that holds one. Fractions are cut; negative numbers are absent.
pub fn count(value: Option<&RawValue>) -> Option<u64> {
    let value = value?;
    let text = if is_string(value) { Cow::Owned(string(value)?) } else { Cow::Borrowed(value.get()) };
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        return Some(number);
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts beyond 2^64 saturate")]
    Some(number as u64)
}

/// The elements of an array; none for any other value.
pub fn elements(value: Option<&RawValue>) -> Vec<&RawValue> {
    let array = value.filter(|value| value.get().starts_with('['));
    array.and_then(|array| serde_json::from_str(array.get()).ok()).unwrap_or_default()
}

/// True for the JSON text of this string, written without escapes.
pub fn is_plainly(value: &RawValue, text: &str) -> bool {
    plain_text(value) == Some(text)
}

/// True for a JSON object.
pub fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// True for a JSON string.
pub fn is_string(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

/// True when the text is one JSON object.
pub fn is_object_text(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// A JSON text with the two faults that gateways commit mended: a control character that stands unescaped in a
/// string, and a backslash before a character that it cannot escape, which is taken for itself. `None` when the text is
/// no JSON even so.
pub fn repaired(text: &str) -> Option<String> {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len() + 16);
    let mut in_string = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '\\' if in_string => {
                let unit = rest.as_str().get(1..5).is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
                match rest.clone().next() {
                    Some(next @ ('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't')) => {
                        out.extend([c, next]);
                        rest.next();
                    }
                    Some('u') if unit => out.push(c),
                    _ => out.push_str("\\\\"),
                }
            }
            control if in_string && control < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    (out != text && serde_json::from_str::<&RawValue>(&out).is_ok()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_common_faults_are_mended_and_nothing_else() {
        for (text, mended) in [
            ("{\"a\":\"x\ty\n\"}", Some(r#"{"a":"x\u0009y\u000a"}"#)),
            (r#"{"a":"c:\d\\e\u0041\uzz"}"#, Some(r#"{"a":"c:\\d\\e\u0041\\uzz"}"#)),
            (r#"{"a":"\é \""}"#, Some(r#"{"a":"\\é \""}"#)),
            (r#"{"a":"x"}"#, None),
            (r#"{"a":"x"#, None),
            ("{'a':1}", None),
            ("{\"a\":\"x\ty", None),
        ] {
            assert_eq!(repaired(text).as_deref(), mended, "{text}");
        }
    }

    #[test]
    fn members_are_found_whatever_stands_beside_them() {
        let text = r#" {"b":null,"\ud83d":1,"a":"x","a":{"n":12345678901234567890123},"c":[1,]} "#.replace(",]", "]");
        let [a, b, c] = members(&text, ["a", "b", "c"]).unwrap().unwrap();
        assert_eq!(a.unwrap().get(), r#"{"n":12345678901234567890123}"#);
        assert!(b.is_none());
        assert_eq!(elements(c).len(), 1);
    }

    #[test]
    fn json_that_is_no_object_is_told_from_what_is_no_json() {
        for text in ["1", "\"x\"", "null", "[]", "\"\\ud83d\""] {
            assert!(members(text, ["a"]).unwrap().is_none(), "{text}");
        }
        for text in ["", "{", "{\"a\":1", "{\"a\":1} x", "tru", "{'a':1}"] {
            assert!(members(text, ["a"]).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_read_from_what_servers_write() {
        for (text, expected) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7.9", Some(7)),
            ("\"7\"", Some(7)),
            ("-1", None),
            ("\"x\"", None),
            ("{}", None),
            ("1e3", Some(1000)),
        ] {
            let value: &RawValue = serde_json::from_str(text).unwrap();
            assert_eq!(count(Some(value)), expected, "{text}");
        }
    }
}
