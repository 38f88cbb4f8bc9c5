//! Events that repeat the one before but for one string.
//!
//! Most events of a stream are the same JSON text with another piece of the answer in it. Where the bytes before and
//! behind that piece are those of the last event, and the piece is a JSON string again, the text is JSON with the same
//! members, and does what the last event did; it need not be read again. What an event does is for the wire to say:
//! [`Repeat::learn`] is called for an event that did nothing but add that one string, and that would do nothing else if
//! it came once more.

use std::borrow::Cow;

/// The last event, where the next may repeat it.
#[derive(Debug, Default)]
pub(crate) struct Repeat {
    is_known: bool,
    before: String,
    after: String,
}

impl Repeat {
    /// The next event is not compared with the last one.
    pub fn forget(&mut self) {
        self.is_known = false;
    }

    /// Remembers an event. `string` is the JSON text of the string that it added, as it stands in `data`; a copy of it
    /// teaches nothing.
    pub fn learn(&mut self, data: &str, string: &str) {
        let Some((before, after)) = around(data, string) else { return self.forget() };
        self.before.clear();
        self.before.push_str(before);
        self.after.clear();
        self.after.push_str(after);
        self.is_known = true;
    }

    /// The string of an event that repeats the last one. `None` for any other event, for one whose string is empty, and
    /// for one whose string holds half a surrogate pair.
    pub fn string<'a>(&self, data: &'a str) -> Option<Cow<'a, str>> {
        if !self.is_known {
            return None;
        }
        let string = data.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
        let inner = string.strip_prefix('"')?.strip_suffix('"').filter(|inner| !inner.is_empty())?;
        if inner.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(string).ok().map(Cow::Owned)
    }
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
