//! Events that repeat the one before but for one string.
//!
//! Most events of a stream are the same JSON text with another piece of the answer in it. Where the bytes before and
//! behind that piece are those of the last event, and the piece is a JSON string again, the text is JSON with the same
//! members, and does what the last event did; it need not be read again. What an event does is for the wire to say:
//! [`Repeat::learn`] is called for an event that did nothing but add that one string, and that would do nothing else if
//! it came once more.

use std::borrow::Cow;

/// A member that no wire reads and that differs in every event: OpenAI pads its events with it, so that their lengths
/// say nothing of their text.
const PADDING: &str = r#""obfuscation":"#;

/// The last event, where the next may repeat it.
#[derive(Debug, Default)]
pub(crate) struct Repeat {
    is_known: bool,
    before: String,
    /// Behind the string, up to the value of the padding or to the end.
    after: String,
    /// Behind the padding, where there is one.
    end: Option<String>,
}

impl Repeat {
    /// The next event is not compared with the last one.
    pub const fn forget(&mut self) {
        self.is_known = false;
    }

    /// Remembers an event. `string` is the JSON text of the string that it added, as it stands in `data`; a copy of it
    /// teaches nothing.
    pub fn learn(&mut self, data: &str, string: &str) {
        let Some((before, after)) = around(data, string) else { return self.forget() };
        // In sound JSON these bytes are nothing but the name of a member and its colon: a quote inside of a string has
        // a backslash before it.
        let padded = after.find(PADDING).map(|at| after.split_at(at + PADDING.len()));
        let padded = padded.and_then(|(after, rest)| Some((after, plain_string(rest)?.1)));
        let (after, end) = padded.map_or((after, None), |(after, end)| (after, Some(end)));
        before.clone_into(&mut self.before);
        after.clone_into(&mut self.after);
        match (&mut self.end, end) {
            (Some(known), Some(end)) => end.clone_into(known),
            (known, end) => *known = end.map(str::to_owned),
        }
        self.is_known = true;
    }

    /// The string of an event that repeats the last one. `None` for any other event, for one whose string is empty, and
    /// for one whose string holds half a surrogate pair.
    pub fn string<'a>(&self, data: &'a str) -> Option<Cow<'a, str>> {
        if !self.is_known {
            return None;
        }
        let rest = data.strip_prefix(&*self.before)?;
        let (string, rest) = match plain_string(rest) {
            Some((inner, rest)) => (Cow::Borrowed(inner), rest),
            None => {
                let (string, rest) = rest.split_at_checked(string_length(rest)?)?;
                (Cow::Owned(serde_json::from_str(string).ok()?), rest)
            }
        };
        let rest = rest.strip_prefix(&*self.after)?;
        let repeats = match &self.end {
            None => rest.is_empty(),
            Some(end) => plain_string(rest).is_some_and(|(_, rest)| rest == end),
        };
        (repeats && !string.is_empty()).then_some(string)
    }
}

/// The inside of a JSON string without escapes at the beginning of the text, and what follows it.
fn plain_string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let end = inner.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\')?;
    let (inner, rest) = inner.split_at(end);
    Some((inner, rest.strip_prefix('"')?))
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

/// What stands in `data` before and behind `part`, which is a part of it.
fn around<'a>(data: &'a str, part: &str) -> Option<(&'a str, &'a str)> {
    let start = part.as_ptr().addr().checked_sub(data.as_ptr().addr())?;
    Some((data.get(..start)?, data.get(start.checked_add(part.len())?..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader that has just seen `{"a":"x"}` takes of the next event.
    fn next(data: &str) -> Option<String> {
        let last = r#"{"a":"x","b":1}"#;
        let mut repeat = Repeat::default();
        repeat.learn(last, &last[5..8]);
        repeat.string(data).map(Cow::into_owned)
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
            assert_eq!(next(data).as_deref(), expected, "{data}");
        }
    }

    #[test]
    fn padding_may_differ_and_nothing_else() {
        let last = r#"{"a":"x","b":1,"obfuscation":"abc","c":{}}"#;
        let mut repeat = Repeat::default();
        repeat.learn(last, &last[5..8]);
        for (data, expected) in [
            (r#"{"a":"y","b":1,"obfuscation":"defg","c":{}}"#, Some("y")),
            (r#"{"a":"\n","b":1,"obfuscation":"","c":{}}"#, Some("\n")),
            (r#"{"a":"y","b":2,"obfuscation":"abc","c":{}}"#, None),
            (r#"{"a":"y","b":1,"obfuscation":"abc","c":[]}"#, None),
            (r#"{"a":"y","b":1,"obfuscation":7,"c":{}}"#, None),
            (r#"{"a":"y","b":1,"obfuscation":"\x","c":{}}"#, None),
            (r#"{"a":"y","b":1,"obfuscation":"abc","a":"z","c":{}}"#, None),
            (r#"{"a":"y","b":1,"obfuscation":"ab"#, None),
        ] {
            assert_eq!(repeat.string(data).as_deref(), expected, "{data}");
        }
    }

    #[test]
    fn what_is_no_part_of_the_event_teaches_nothing() {
        let mut repeat = Repeat::default();
        repeat.learn(r#"{"a":"x"}"#, "\"x\"".to_owned().as_str());
        assert_eq!(repeat.string(r#"{"a":"x"}"#), None);
        let data = r#"{"a":"x"}"#;
        repeat.learn(data, &data[5..8]);
        repeat.forget();
        assert_eq!(repeat.string(data), None);
    }
}
