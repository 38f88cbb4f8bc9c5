//! Takes out of a run what is different in every run.
//!
//! - Ids become `<session>` and `<id-1>`, `<id-2>` … in order of first appearance (stdout, then log, then requests), so
//!   that it stays visible which are the same. Folders and the provider's URL become `<workspace>`, `<home>`,
//!   `<provider>`, this build's version `<version>`.
//! - `time`, `createdAt` and `seq` leave the log: the reader has checked that `seq` counts from 0. What refers to a seq
//!   stays as it is.
//! - How long a retry waits is partly chance: `delayMs` of `llm/retry` becomes `<ms>`, the note that says it `<s>`.
//! - How text was cut into pieces is a matter of timing. Neighbouring chunks of one kind are joined, in the messages of
//!   the agent and in the log; log rows are expanded before. What stood between them still keeps them apart.
//! - Of a request the method, the path and the body stay.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::log::SessionLog;

/// The names for what a run made up.
pub(super) struct Names {
    /// The text for each folder, URL and session of the run, with the name that stands for it.
    known: Vec<(String, String)>,
    ids: HashMap<String, String>,
}

impl Names {
    pub(super) fn new(known: Vec<(String, String)>) -> Self {
        Self { known, ids: HashMap::new() }
    }

    pub(super) fn stdout(&mut self, messages: Vec<Value>) -> Vec<Value> {
        let version = ["result", "agentInfo", "version"];
        let mut joined = join(messages, &["params", "update", "content", "text"]);
        for message in &mut joined {
            if let Some(Value::String(text)) = at(message, &["params", "update", "content", "text"]) {
                *text = without_waits(text);
            }
            if let Some(found) = at(message, &version)
                && *found == env!("CARGO_PKG_VERSION")
            {
                *found = json!("<version>");
            }
        }
        self.all(joined)
    }

    pub(super) fn session(&mut self, log: SessionLog) -> Vec<Value> {
        let SessionLog { mut header, mut events, .. } = log;
        remove(&mut header, "createdAt");
        for event in &mut events {
            remove(event, "seq");
            remove(event, "time");
            // A part of it is chance.
            if event["type"] == "llm/retry"
                && let Some(delay) = at(event, &["data", "delayMs"])
            {
                *delay = json!("<ms>");
            }
        }
        events = join(events, &["data", "chunk", "text"]);
        events = join(events, &["data", "chunk", "argumentsDelta"]);
        events.insert(0, header);
        self.all(events)
    }

    pub(super) fn requests(&mut self, requests: &[Value]) -> Vec<Value> {
        let kept = |request: &Value| {
            let members = ["method", "path", "body"].map(|member| (member.to_owned(), request[member].clone()));
            Value::Object(Map::from_iter(members))
        };
        self.all(requests.iter().map(kept).collect())
    }

    /// Files by path. Ids in them are not ours to name.
    pub(super) fn files(&self, files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
        let named = |bytes: Vec<u8>| match String::from_utf8(bytes) {
            Ok(text) => self.places(&text).into_bytes(),
            Err(binary) => binary.into_bytes(),
        };
        files.into_iter().map(|(path, bytes)| (path, named(bytes))).collect()
    }

    fn all(&mut self, mut values: Vec<Value>) -> Vec<Value> {
        values.iter_mut().for_each(|value| self.value(value));
        values
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => members.values_mut().for_each(|member| self.value(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        let next = self.ids.len() + 1;
        if is_made_up(text) && self.known.iter().all(|(known, _)| known != text) {
            return self.ids.entry(text.to_owned()).or_insert_with(|| format!("<id-{next}>")).clone();
        }
        self.places(text)
    }

    fn places(&self, text: &str) -> String {
        self.known.iter().fold(text.to_owned(), |text, (known, name)| text.replace(known, name))
    }
}

/// True for the ids that `dsh` makes: UUIDs, and those of messages that recovery adds.
fn is_made_up(text: &str) -> bool {
    let is_uuid = text.len() == 36
        && text.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        });
    let number = text.strip_prefix("recovered-");
    is_uuid || number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The host's notes on retries say how long they wait, and a part of that is chance.
fn without_waits(text: &str) -> String {
    let note = |line: &str| match line.rsplit_once(" in ") {
        Some((note, wait))
            if line.starts_with("dsh: ") && note.contains("; retry ") && wait.trim_end().ends_with(" s") =>
        {
            format!("{note} in <s> s\n")
        }
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(note).collect()
}

fn remove(value: &mut Value, member: &str) {
    value.as_object_mut().and_then(|members| members.shift_remove(member));
}

fn at<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, member| value.get_mut(member))
}

/// Joins neighbours that are the same but for the text at this place.
fn join(values: Vec<Value>, path: &[&str]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for mut value in values {
        let text = match at(&mut value, path) {
            Some(Value::String(text)) => std::mem::take(text),
            _ => {
                joined.push(value);
                continue;
            }
        };
        if let Some(last) = joined.last_mut()
            && let Some(Value::String(before)) = at(last, path)
        {
            let mut whole = std::mem::take(before);
            let same = *last == value;
            if same {
                whole.push_str(&text);
            }
            if let Some(place) = at(last, path) {
                *place = whole.into();
            }
            if same {
                continue;
            }
        }
        if let Some(place) = at(&mut value, path) {
            *place = text.into();
        }
        joined.push(value);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: &str, text: &str) -> Value {
        json!({ "kind": kind, "content": { "text": text } })
    }

    #[test]
    fn pieces_are_joined_only_with_neighbours_of_their_kind() {
        let found = join(
            vec![chunk("a", "1"), chunk("a", "2"), chunk("b", "3"), chunk("a", "4"), json!({}), chunk("a", "5")],
            &["content", "text"],
        );
        assert_eq!(found, [chunk("a", "12"), chunk("b", "3"), chunk("a", "4"), json!({}), chunk("a", "5")]);
    }

    #[test]
    fn the_wait_of_a_retry_is_taken_out_and_nothing_else() {
        let note = "dsh: the request failed (SERVER: in trouble); retry 1 of 3 in 0.001 s\ndsh: void\n";
        let expected = "dsh: the request failed (SERVER: in trouble); retry 1 of 3 in <s> s\ndsh: void\n";
        assert_eq!(without_waits(note), expected);
        for other in ["; retry 1 of 3 in 0.001 s", "dsh: back in 3 s\n", "a\nb"] {
            assert_eq!(without_waits(other), other);
        }
    }

    #[test]
    fn ids_are_named_by_first_appearance_and_places_inside_texts() {
        let known = vec![("http://127.0.0.1:9".to_owned(), "<provider>".to_owned())];
        let mut names = Names { known, ids: HashMap::new() };
        let (a, b) = ("80cc72e3-69b2-4a2b-a637-afee60ce9d69", "recovered-14");
        let found = names.all(vec![json!([a, { "b": b }, a, "at http://127.0.0.1:9/v1", "recovered-", "recovered-x"])]);
        let expected = json!(["<id-1>", { "b": "<id-2>" }, "<id-1>", "at <provider>/v1", "recovered-", "recovered-x"]);
        assert_eq!(found, [expected]);
    }
}
