//! Output items: what a message, a reasoning item and a function call say, and the ids that they go by.

use dsh_plugin_api::json::{self, Object, Raw, raw, replace_lone_surrogates};
use dsh_plugin_api::kit::lenient::{elements, filled, is_string, members_of, string};
use serde_json::value::RawValue;

/// The longest id of an item or a call that the wire takes.
const LONGEST_ID: usize = 64;

/// The kinds of items that become blocks. Others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `message`
    Message,
    /// `reasoning`
    Reasoning,
    /// `function_call`
    Call,
}

/// What an item says of itself; absent members are empty.
#[derive(Debug)]
pub(super) struct Facts<'a> {
    pub kind: Kind,
    pub id: String,
    pub phase: Option<String>,
    pub call_id: String,
    pub name: String,
    /// Of a call: its arguments, as JSON text of a string, or of whatever stands in its place.
    pub arguments: Option<&'a RawValue>,
    /// The readable text of a message or of reasoning.
    pub text: String,
    /// The item as it was written.
    pub item: &'a RawValue,
}

impl<'a> Facts<'a> {
    /// Reads an item; `None` for one of another kind.
    pub fn read(item: &'a RawValue) -> Option<Self> {
        let [kind, id, phase, call_id, name, arguments, content, summary] =
            members_of(item, ["type", "id", "phase", "call_id", "name", "arguments", "content", "summary"])?;
        let kind = match filled(kind).as_deref() {
            Some("message") => Kind::Message,
            Some("reasoning") => Kind::Reasoning,
            Some("function_call") => Kind::Call,
            Some(_) => return None,
            None if arguments.is_some() || call_id.is_some() => Kind::Call,
            None if summary.is_some() => Kind::Reasoning,
            None if content.is_some() => Kind::Message,
            None => return None,
        };
        let text = match kind {
            Kind::Message => parts_text(content, ""),
            Kind::Reasoning => Some(parts_text(summary, "\n\n"))
                .filter(|text| !text.trim().is_empty())
                .unwrap_or_else(|| parts_text(content, "\n\n")),
            Kind::Call => String::new(),
        };
        Some(Self {
            kind,
            id: filled(id).unwrap_or_default(),
            phase: filled(phase),
            call_id: filled(call_id).unwrap_or_default(),
            name: filled(name).unwrap_or_default(),
            arguments,
            text,
            item,
        })
    }

    /// The whole arguments of a call.
    pub fn arguments_text(&self) -> String {
        self.arguments.map(arguments_text).unwrap_or_default()
    }
}

/// Arguments as text: a string's content, or the JSON of what a server puts in place of a string.
pub(super) fn arguments_text(value: &RawValue) -> String {
    string(value).unwrap_or_else(|| replace_lone_surrogates(value.get()).into_owned())
}

/// The texts of content parts; a text alone counts as one part. The halves of a surrogate pair may stand in two parts.
fn parts_text(parts: Option<&RawValue>, separator: &str) -> String {
    let Some(parts) = parts else { return String::new() };
    if is_string(parts) {
        return string(parts).unwrap_or_default();
    }
    let mut out = String::new();
    let mut joiner = json::Joiner::default();
    for part in elements(Some(parts)) {
        let Some([text, refusal]) = members_of(part, ["text", "refusal"]) else { continue };
        let Some(text) = text.or(refusal).filter(|value| is_string(value)) else { continue };
        if !separator.is_empty() {
            out.extend(joiner.finish());
            if !out.is_empty() {
                out.push_str(separator);
            }
        }
        out.push_str(&joiner.push(text.get()));
    }
    out.extend(joiner.finish());
    out
}

/// True for an id that OpenAI takes.
pub(super) fn is_legal_id(id: &str) -> bool {
    (1..=LONGEST_ID).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// The id of a call in the history: the id that its result names, and that of the item, which pairs with reasoning.
pub(super) fn composite_id(call_id: &str, item_id: &str) -> String {
    match (call_id, item_id) {
        ("", item_id) => item_id.to_owned(),
        (call_id, "") if !call_id.contains('|') => call_id.to_owned(),
        (call_id, item_id) => format!("{call_id}|{item_id}"),
    }
}

/// The two halves of a [`composite_id`]; the second is empty where there is none.
pub(super) fn halves(id: &str) -> (&str, &str) {
    match id.rsplit_once('|') {
        Some(("", item_id)) => (item_id, ""),
        Some(halves) => halves,
        None => (id, ""),
    }
}

/// Members of a reasoning item that the wire takes back.
const REASONING_MEMBERS: [&str; 6] = ["type", "id", "summary", "content", "encrypted_content", "status"];

/// A stored reasoning item as it can go back, with its id. `None` when the server could not read it: nothing is kept
/// there, so that an id alone says nothing.
pub(super) fn sendable_reasoning(item: &Raw) -> Option<(String, Raw)> {
    let text = replace_lone_surrogates(item.get());
    let stored: Object = serde_json::from_str(&text).ok()?;
    let id = stored.get_str("id").filter(|id| is_legal_id(id))?;
    let encrypted = stored.get_str("encrypted_content").is_some_and(|data| !data.trim().is_empty());
    if !encrypted && parts_text(stored.get("content"), "").trim().is_empty() {
        return None;
    }
    let mut out = Object::new();
    for (name, value) in stored.iter() {
        if REASONING_MEMBERS.contains(&name) && value.get() != "null" {
            out.set(name, value.to_owned());
        }
    }
    if !out.get("summary").is_some_and(|summary| summary.get().starts_with('[')) {
        out.set("summary", raw::<[&str]>(&[]));
    }
    Some((id, raw(&out)))
}
