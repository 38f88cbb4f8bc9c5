//! `reasoning_details`: structured reasoning that a router passes on and wants back.
//!
//! A detail may come in fragments with the same type, index and id; their texts and opaque values are joined byte for
//! byte, and the whole list goes back as it came.

use dsh_plugin_api::json::Object;
use dsh_plugin_api::kit::lenient::{filled, is_plainly, is_string, members_of, string};
use dsh_plugin_api::kit::streaming::says_something;
use serde_json::value::RawValue;

/// The details of one reasoning block in the order in which they came, fragments joined.
#[derive(Debug, Default)]
pub(super) struct Details {
    list: Vec<Object>,
    /// The place of each among all details of the answer.
    places: Vec<usize>,
    /// Members of the last detail that were joined of several fragments: the JSON text of each without its closing
    /// quote. They replace those in the list at the end, since a long text comes in many fragments.
    growing: Vec<(&'static str, String)>,
    /// The member that the last detail lengthened.
    lengthened: Option<&'static str>,
}

/// Members whose fragments are joined.
const JOINED: [&str; 4] = ["text", "summary", "data", "signature"];

impl Details {
    /// Adds a detail, or joins it to the fragment before it. When joining it once more would do nothing but lengthen one
    /// member, gives the name of that.
    pub fn push(&mut self, place: usize, detail: Object) -> Option<&'static str> {
        self.lengthened = None;
        match self.list.last_mut() {
            Some(last) if continues(last, &detail) => {
                join(last, &mut self.growing, &detail);
                self.lengthened = lengthened_by(&detail).filter(|name| last.get(name).is_some_and(is_string));
            }
            _ => {
                self.settle();
                self.list.push(detail);
                self.places.push(place);
            }
        }
        self.lengthened
    }

    /// Joins the detail of the last [`Details::push`] once more with another fragment, which is the JSON text of a string.
    /// False when that did not give the name of a member: then nothing is done.
    pub fn repeat(&mut self, fragment: &str) -> bool {
        let Some((name, last)) = self.lengthened.zip(self.list.last()) else { return false };
        let Some(known) = last.get(name) else { return false };
        append(&mut self.growing, name, known.get(), fragment);
        true
    }

    /// Adds details that were held back, each where it came: a router refuses a list in another order.
    pub fn put_back(&mut self, held_back: Vec<(usize, Object)>) {
        self.settle();
        let known = std::mem::take(self);
        let mut all: Vec<_> = known.places.into_iter().zip(known.list).chain(held_back).collect();
        all.sort_by_key(|(place, _)| *place);
        for (place, detail) in all {
            self.push(place, detail);
        }
    }

    /// The details in order.
    pub fn list(&mut self) -> &[Object] {
        self.settle();
        &self.list
    }

    fn settle(&mut self) {
        for (name, open) in self.growing.drain(..) {
            if let (Some(last), Ok(whole)) = (self.list.last_mut(), RawValue::from_string(open + "\"")) {
                last.set(name, whole);
            }
        }
    }

    /// The id of the tool call that an encrypted detail names.
    pub fn call_of(detail: &Object) -> Option<String> {
        let encrypted = is_encrypted(detail) && detail.get("data").is_some();
        detail.get("id").filter(|_| encrypted).and_then(|id| filled(Some(id)))
    }
}

fn is_encrypted(detail: &Object) -> bool {
    const ENCRYPTED: &str = "reasoning.encrypted";
    detail.get("type").is_some_and(|kind| is_plainly(kind, ENCRYPTED) || string(kind).as_deref() == Some(ENCRYPTED))
}

/// True for a fragment of the same detail: same type, same index, and no other id. Without an index only readable
/// reasoning continues, since encrypted data comes whole.
fn continues(last: &Object, next: &Object) -> bool {
    let same = |key: &str| last.get(key).map(RawValue::get) == next.get(key).map(RawValue::get);
    let id_fits = next.get("id").is_none_or(|id| id.get() == "null") || same("id");
    same("type") && same("index") && id_fits && (next.get("index").is_some() || !is_encrypted(next))
}

fn join(last: &mut Object, growing: &mut Vec<(&'static str, String)>, next: &Object) {
    for (name, value) in next.iter() {
        let joined = JOINED.into_iter().find(|joined| *joined == name);
        match (joined, last.get(name)) {
            // A value that is no string gives way to one that is.
            (Some(joined), Some(known)) if is_string(known) => append(growing, joined, known.get(), value.get()),
            (Some(_), Some(_)) if !is_string(value) => {}
            _ if value.get() == "null" => {}
            _ => last.set(name, value.to_owned()),
        }
    }
}

/// The only member of a fragment that is joined and not empty.
fn lengthened_by(detail: &Object) -> Option<&'static str> {
    let says = |(name, value)| JOINED.into_iter().find(|joined| *joined == name && says_something(value));
    let mut found = detail.iter().filter_map(says);
    found.next().filter(|_| found.next().is_none())
}

/// Two JSON strings as one, escapes untouched, so that the halves of a surrogate pair meet again.
fn append(growing: &mut Vec<(&'static str, String)>, name: &'static str, known: &str, value: &str) {
    let Some(more) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return };
    match growing.iter_mut().find(|(grown, _)| *grown == name) {
        Some((_, open)) => open.push_str(more),
        None => growing.push((name, format!("{}{more}", known.strip_suffix('"').unwrap_or_default()))),
    }
}

/// The readable reasoning of a detail, as the JSON text of a string.
pub(super) fn detail_text(detail: &RawValue) -> Option<&RawValue> {
    let [text, summary] = members_of(detail, ["text", "summary"])?;
    [text, summary].into_iter().flatten().find(|value| is_string(value) && value.get() != "\"\"")
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::json::raw;

    use super::*;

    fn joined(details: &[&str]) -> String {
        let mut list = Details::default();
        for (place, detail) in details.iter().enumerate() {
            list.push(place, serde_json::from_str(detail).unwrap());
        }
        raw(list.list()).get().to_owned()
    }

    #[test]
    fn fragments_of_one_detail_are_joined_byte_for_byte() {
        assert_eq!(
            joined(&[
                r#"{"type":"reasoning.text","index":0,"text":"a\ud83d"}"#,
                r#"{"type":"reasoning.text","index":0,"text":"\ude00b","signature":"abab"}"#,
                r#"{"type":"reasoning.text","index":0,"signature":"abcd","format":"x","text":null}"#,
            ]),
            r#"[{"type":"reasoning.text","index":0,"text":"a\ud83d\ude00b","signature":"abababcd","format":"x"}]"#
        );
    }

    #[test]
    fn details_of_another_kind_index_or_id_stand_alone() {
        for pair in [
            [
                r#"{"type":"reasoning.text","index":0,"text":"a"}"#,
                r#"{"type":"reasoning.encrypted","index":0,"data":"x"}"#,
            ],
            [r#"{"type":"reasoning.text","index":0,"text":"a"}"#, r#"{"type":"reasoning.text","index":1,"text":"b"}"#],
            [
                r#"{"type":"reasoning.encrypted","index":0,"data":"x","id":"1"}"#,
                r#"{"type":"reasoning.encrypted","index":0,"data":"y","id":"2"}"#,
            ],
            [r#"{"type":"reasoning.encrypted","data":"x"}"#, r#"{"type":"reasoning.encrypted","data":"y"}"#],
        ] {
            assert_eq!(joined(&pair), format!("[{},{}]", pair[0], pair[1]));
        }
    }
    #[test]
    fn details_that_were_held_back_stand_where_they_came() {
        let detail = |kind: &str, id: &str| -> Object {
            serde_json::from_str(&format!(r#"{{"type":"reasoning.{kind}","id":"{id}"}}"#)).unwrap()
        };
        let mut list = Details::default();
        for (place, kind, id) in [(1, "summary", "a"), (3, "summary", "b")] {
            list.push(place, detail(kind, id));
        }
        list.put_back([(0, "x"), (2, "a"), (4, "b")].map(|(place, id)| (place, detail("encrypted", id))).into());
        let ids: Vec<_> = list.list().iter().filter_map(|detail| detail.get_str("id")).collect();
        assert_eq!(ids, ["x", "a", "a", "b", "b"]);
        list.push(5, detail("summary", "c"));
        assert_eq!(list.list().len(), 6);
    }
}
