//! Events that repeat the one before but for one string, some counts, and what nobody reads.
//!
//! Most events of a stream are the same JSON text with another piece of the answer in it. Where all other bytes are
//! those of the last event, and the piece is a JSON string again, the text is JSON with the same members, and does what
//! the last event did; it need not be read again.
//!
//! What an event does is for the wire to say: [`Repeat::learn`] is called for an event that did nothing but add that
//! one string and set those counts, and that would do nothing else if it came once more. Every other event that is read
//! calls [`Repeat::forget`]. What a wire takes from beside the data (the name of an event) must not matter to an event
//! that is learnt, since it is not compared.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem::Finder;
use serde_json::value::RawValue;

use super::streaming::says_something;

/// What an event did that may be repeated: it added a string to a block.
#[derive(Debug, Clone, Copy)]
pub struct Added<'a> {
    /// Where the block stands, in the wire's own reckoning.
    pub place: usize,
    /// The JSON text of the string, as it stands in the event.
    pub string: &'a RawValue,
    /// A string that was kept as it was written, where there was one. It may be `string` itself.
    pub fragment: Option<&'a RawValue>,
}

impl<'a> Added<'a> {
    /// A string was added, and nothing was kept as it was written.
    #[must_use]
    pub const fn new(place: usize, string: &'a RawValue) -> Self {
        Self { place, string, fragment: None }
    }
}

/// What an event does that repeats the last one.
#[derive(Debug, PartialEq, Eq)]
pub struct Repeated<'a, const COUNTS: usize> {
    /// See [`Added::place`].
    pub place: usize,
    /// The string. It is not empty.
    pub string: Cow<'a, str>,
    /// The JSON text of the [`Added::fragment`], with its quotes.
    pub fragment: Option<&'a str>,
    /// The counts, in the order in which they were given; `None` where the last event had none.
    pub counts: [Option<u64>; COUNTS],
}

/// The last event, where the next may repeat it.
#[derive(Debug)]
pub struct Repeat<const COUNTS: usize> {
    unread: Vec<Finder<'static>>,
    is_known: bool,
    place: usize,
    /// All of the last event that has to come again: what stands between the holes, one behind the other.
    text: String,
    /// In the order in which they stand in the event.
    holes: Vec<Hole>,
}

/// What may differ.
#[derive(Debug, Clone)]
struct Hole {
    kind: Kind,
    /// Where it stood in the event.
    range: Range<usize>,
    /// Where the text ends that stands before it.
    text_end: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The piece of the answer.
    String,
    /// The string that is kept as it was written.
    Fragment,
    /// One string that is both.
    StringAndFragment,
    /// The count of this place.
    Count(usize),
    /// A string or a number that nobody reads.
    Unread,
}

/// What JSON takes for white space.
const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// Digits of a count that always fits.
const DIGITS: usize = 18;

impl<const COUNTS: usize> Repeat<COUNTS> {
    /// Knows no event. `unread` are names of members that the wire reads nowhere in an event that is learnt, quoted and
    /// with their colon: padding, sequence numbers, sums. Beside a fragment everything counts, and no name is looked for.
    #[must_use]
    pub fn new(unread: &'static [&'static str]) -> Self {
        let unread = unread.iter().map(|name| Finder::new(*name)).collect();
        Self { unread, is_known: false, place: 0, text: String::new(), holes: Vec::new() }
    }

    /// The next event is not compared with the last one.
    pub const fn forget(&mut self) {
        self.is_known = false;
    }

    /// Remembers an event by its data, which is one JSON object without white space around it. The strings and the
    /// counts are parts of `data`; copies of them teach nothing, and neither do strings that are empty or counts that are
    /// no plain numbers.
    pub fn learn(&mut self, data: &str, added: Added<'_>, counts: [Option<&RawValue>; COUNTS]) {
        self.is_known = self.try_learn(data, added, counts).is_some();
    }

    fn try_learn(&mut self, data: &str, added: Added<'_>, counts: [Option<&RawValue>; COUNTS]) -> Option<()> {
        self.place = added.place;
        self.holes.clear();
        if ![Some(added.string), added.fragment].into_iter().flatten().all(says_something) {
            return None;
        }
        let string = range_of(data, added.string.get())?;
        let fragment = added.fragment.map(|fragment| range_of(data, fragment.get()));
        match fragment {
            None => self.may_differ(Kind::String, string),
            Some(fragment) if fragment.as_ref() == Some(&string) => self.may_differ(Kind::StringAndFragment, string),
            Some(fragment) => {
                self.may_differ(Kind::String, string);
                self.may_differ(Kind::Fragment, fragment?);
            }
        }
        for (place, count) in counts.into_iter().enumerate() {
            if let Some(count) = count {
                plain_number(count.get()).filter(|(_, rest)| rest.is_empty())?;
                self.may_differ(Kind::Count(place), range_of(data, count.get())?);
            }
        }
        if added.fragment.is_none() {
            // In sound JSON these bytes are nothing but the end of the name of a member and its colon, since a quote
            // inside of a string has a backslash before it. A name with more before a quote is one that no wire reads.
            for name in &self.unread {
                let values = name.find_iter(data.as_bytes()).map(|at| at + name.needle().len());
                self.holes.extend(values.filter_map(|at| unread_at(data, at)));
            }
        }
        self.holes.sort_unstable_by_key(|hole| hole.range.start);
        self.text.clear();
        let mut from = 0;
        for hole in &mut self.holes {
            // No hole is a part of another.
            self.text.push_str(data.get(from..hole.range.start)?);
            hole.text_end = self.text.len();
            from = hole.range.end;
        }
        self.text.push_str(end_of(data.get(from..)?)?);
        Some(())
    }

    fn may_differ(&mut self, kind: Kind, range: Range<usize>) {
        self.holes.push(Hole { kind, range, text_end: 0 });
    }

    /// What an event does that repeats the last one. `None` for any other event, for one whose string is empty, and for
    /// one with a string that holds half a surrogate pair.
    #[must_use]
    pub fn repeated<'a>(&self, data: &'a str) -> Option<Repeated<'a, COUNTS>> {
        if !self.is_known {
            return None;
        }
        let (mut rest, mut from) = (data, 0);
        let (mut string, mut fragment, mut counts) = (Cow::Borrowed(""), None, [None; COUNTS]);
        for Hole { kind, text_end, .. } in &self.holes {
            let value = rest.strip_prefix(self.text.get(from..*text_end)?)?;
            from = *text_end;
            match kind {
                Kind::String => (string, rest) = text(value)?,
                Kind::Fragment => {
                    rest = text(value)?.1;
                    fragment = value.get(..value.len() - rest.len());
                }
                Kind::StringAndFragment => {
                    (string, rest) = text(value)?;
                    fragment = value.get(..value.len() - rest.len());
                }
                Kind::Count(place) => {
                    let (count, behind) = plain_number(value)?;
                    (*counts.get_mut(*place)?, rest) = (Some(count), behind);
                }
                Kind::Unread => rest = behind_scalar(value)?,
            }
        }
        let repeats = end_of(rest)? == self.text.get(from..)?;
        (repeats && !string.is_empty()).then_some(Repeated { place: self.place, string, fragment, counts })
    }
}

/// The hole for the value that begins at this place or behind white space, where it is a whole string or number.
fn unread_at(data: &str, at: usize) -> Option<Hole> {
    let value = data.get(at..)?.trim_start_matches(BLANKS);
    let rest = behind_scalar(value).filter(|rest| rest.starts_with([',', '}']))?;
    Some(Hole { kind: Kind::Unread, range: data.len() - value.len()..data.len() - rest.len(), text_end: 0 })
}

/// What stands before the brace that ends an object and the white space before that, which Anthropic makes longer or
/// shorter so that lengths say nothing of the text.
fn end_of(text: &str) -> Option<&str> {
    Some(text.strip_suffix('}')?.trim_end_matches(BLANKS))
}

/// The text of the JSON string at the beginning, and what follows it.
fn text(text: &str) -> Option<(Cow<'_, str>, &str)> {
    if let Some((inner, rest)) = plain_string(text) {
        return Some((Cow::Borrowed(inner), rest));
    }
    let (string, rest) = text.split_at_checked(string_length(text)?)?;
    Some((Cow::Owned(serde_json::from_str(string).ok()?), rest))
}

/// What follows a plain string or number at the beginning of the text.
fn behind_scalar(text: &str) -> Option<&str> {
    plain_string(text).map(|(_, rest)| rest).or_else(|| plain_number(text).map(|(_, rest)| rest))
}

/// The inside of a JSON string without escapes at the beginning of the text, and what follows it.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let end = inner.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\')?;
    let (inner, rest) = inner.split_at(end);
    Some((inner, rest.strip_prefix('"')?))
}

/// A number at the beginning of the text that is written as nothing but digits, and what follows these.
fn plain_number(text: &str) -> Option<(u64, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(length)?;
    if length == 0 || length > DIGITS || (length > 1 && digits.starts_with('0')) {
        return None;
    }
    let number = digits.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some((number, rest))
}

/// Length in bytes of what stands at the beginning of the text up to the quote that would end a string.
fn string_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while *bytes.get(at)? != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some(at + 1)
}

/// Where `part`, which is a part of `data`, stands in it.
fn range_of(data: &str, part: &str) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    data.get(range.clone()).map(|_| range)
}

#[cfg(test)]
mod tests {
    use super::super::lenient::members;
    use super::*;

    const UNREAD: &[&str] = &["\"pad\":", "\"number\":"];

    /// What a reader that has just seen `last` takes of the next event: the string of its `a`, the count of its `n`.
    fn next(last: &str, data: &str) -> Option<(String, Option<u64>)> {
        let [a, n] = members(last, ["a", "n"]).unwrap().unwrap();
        let mut repeat = Repeat::new(UNREAD);
        repeat.learn(last, Added::new(7, a.unwrap()), [n]);
        let Repeated { place, string, fragment, counts: [count] } = repeat.repeated(data)?;
        assert_eq!((place, fragment), (7, None));
        Some((string.into_owned(), count))
    }

    #[test]
    fn only_an_event_that_differs_in_its_string_repeats_the_last_one() {
        for (data, expected) in [
            (r#"{"a":"y","b":1}"#, Some("y")),
            (r#"{"a":"é\n\"\ud83d\ude00","b":1}"#, Some("é\n\"😀")),
            (r#"{"a":"","b":1}"#, None),
            (r#"{"a":"y","b":2}"#, None),
            (r#"{"a":"y", "b":1}"#, None),
            (r#"{"a":7,"b":1}"#, None),
            (r#"{"a":"y","c":"z","b":1}"#, None),
            (r#"{"a":"y"z","b":1}"#, None),
            (r#"{"a":"y\","b":1}"#, None),
            (r#"{"a":"\ud83d","b":1}"#, None),
            (r#"{"a":"\x","b":1}"#, None),
            ("{\"a\":\"\t\",\"b\":1}", None),
            (r#"{"a":","b":1}"#, None),
            (r#"{"a":"#, None),
            ("", None),
        ] {
            let expected = expected.map(|string| (string.to_owned(), None));
            assert_eq!(next(r#"{"a":"x","b":1}"#, data), expected, "{data}");
        }
    }

    #[test]
    fn what_nobody_reads_may_differ_and_nothing_else() {
        let last = r#"{"number":9,"a":"x","b":1,"pad":"abc","c":{"number": 1}}"#;
        for (data, expected) in [
            (r#"{"number":10,"a":"y","b":1,"pad":"defg","c":{"number": 0}}"#, Some("y")),
            (r#"{"number":"x","a":"\n","b":1,"pad":"","c":{"number": 1}}"#, Some("\n")),
            (r#"{"number":9,"a":"y","b":2,"pad":"abc","c":{"number": 1}}"#, None),
            (r#"{"number":09,"a":"y","b":1,"pad":"abc","c":{"number": 1}}"#, None),
            (r#"{"number":-9,"a":"y","b":1,"pad":"abc","c":{"number": 1}}"#, None),
            (r#"{"number":9.5,"a":"y","b":1,"pad":"abc","c":{"number": 1}}"#, None),
            (r#"{"number":,"a":"y","b":1,"pad":"abc","c":{"number": 1}}"#, None),
            (r#"{"number":9,"a":"y","b":1,"pad":"abc","c":[]}"#, None),
            (r#"{"number":9,"a":"y","b":1,"pad":"\x","c":{"number": 1}}"#, None),
            (r#"{"number":9,"a":"y","b":1,"pad":"abc","a":"z","c":{"number": 1}}"#, None),
            (r#"{"number":9,"a":"y","b":1,"pad":"ab"#, None),
        ] {
            let expected = expected.map(|string| (string.to_owned(), None));
            assert_eq!(next(last, data), expected, "{data}");
        }
    }

    #[test]
    fn counts_are_read_where_they_are_plain_numbers() {
        let last = r#"{"a":"x","n":1}"#;
        for (last, data, expected) in [
            (last, r#"{"a":"y","n":20}"#, Some(20)),
            (last, r#"{"a":"y","n":0}"#, Some(0)),
            (last, r#"{"a":"y","n":123456789012345678}"#, Some(123_456_789_012_345_678)),
            (last, r#"{"a":"y","n":12345678901234567890}"#, None),
            (last, r#"{"a":"y","n":2.0}"#, None),
            (last, r#"{"a":"y","n":"2"}"#, None),
            (last, r#"{"a":"y","n":}"#, None),
            (last, r#"{"a":"y"}"#, None),
            (r#"{"a":"x","n":1.0}"#, r#"{"a":"y","n":1.0}"#, None),
            (r#"{"a":"x","n":"1"}"#, r#"{"a":"y","n":"1"}"#, None),
        ] {
            let expected = expected.map(|count| ("y".to_owned(), Some(count)));
            assert_eq!(next(last, data), expected, "{data}");
        }
    }

    #[test]
    fn white_space_before_the_last_brace_may_differ() {
        let last = r#"{"b":{"c":1},"a":"x"   }"#;
        for (data, expected) in [
            (r#"{"b":{"c":1},"a":"y"}"#, Some("y")),
            ("{\"b\":{\"c\":1},\"a\":\"y\"\r\n\t }", Some("y")),
            ("{\"b\":{\"c\":1},\"a\":\"y\"\u{a0}}", None),
            (r#"{"b":{"c":1 },"a":"y"}"#, None),
            (r#"{"b":{"c":1},"a":"y"} "#, None),
            (r#"{"b":{"c":1},"a":"y""#, None),
            (r#"{"b":{"c":1},"a":"y   }"#, None),
        ] {
            let expected = expected.map(|string| (string.to_owned(), None));
            assert_eq!(next(last, data), expected, "{data}");
        }
    }

    #[test]
    fn what_is_no_part_of_the_event_teaches_nothing() {
        let data = r#"{"a":"x"}"#;
        let [a] = members(data, ["a"]).unwrap().unwrap();
        let copy = a.unwrap().to_owned();
        let mut repeat: Repeat<0> = Repeat::new(&[]);
        repeat.learn(data, Added::new(0, &copy), []);
        assert_eq!(repeat.repeated(data), None);
        repeat.learn(data, Added::new(0, a.unwrap()), []);
        assert!(repeat.repeated(data).is_some());
        repeat.forget();
        assert_eq!(repeat.repeated(data), None);
    }
}
