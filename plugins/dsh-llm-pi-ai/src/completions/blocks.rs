//! The blocks of an answer that is being streamed: which delta belongs to which block, and when a block is complete.
//!
//! Text and reasoning are complete as soon as something else begins; they keep the order in which they came. Tool
//! calls may be interleaved and are complete when the answer is.

use std::collections::{HashMap, HashSet};

use dsh_plugin_api::json::{Joiner, Object, replace_lone_surrogates};
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use super::details::{Details, detail_text};
use super::replay::{REASONING_FIELDS, call_entry, reasoning_entry, text_entry};
use crate::envelope::ResponseFacts;
use crate::lenient::{count, elements, filled, is_object_text, is_string, members_of};
use crate::streaming::{flush, made_up_id, says_something};

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Part>,
    /// Place of the text or reasoning block that takes deltas.
    open: Option<usize>,
    /// Place of the last reasoning block.
    last_reasoning: Option<usize>,
    /// Encrypted details by the id of their call, which may come before the call; each with its place among them all.
    for_calls: HashMap<String, Vec<(usize, Object)>>,
    details_for_calls: usize,
    calls: CallPlaces,
    has_text: bool,
}

/// Where calls stand, so that an answer of very many calls takes no time per call and call.
#[derive(Debug, Default)]
struct CallPlaces {
    count: usize,
    last: Option<usize>,
    by_key: HashMap<Key, usize>,
    by_id: HashMap<String, usize>,
}

#[derive(Debug)]
enum Part {
    Text { slot: Slot, joiner: Joiner },
    Reasoning { slot: Slot, joiner: Joiner, field: Option<&'static str>, details: Details },
    Call(Call),
}

#[derive(Debug)]
struct Call {
    /// None until the name is known: a call without a name is no block.
    slot: Option<Slot>,
    id: String,
    name: String,
    arguments: String,
    joiner: Joiner,
}

/// What the wire calls a call by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Index(u64),
    /// No index.
    None,
    /// The one `function_call` of the old form.
    Legacy,
}

impl Blocks {
    /// True when a block was started.
    pub fn any_started(&self) -> bool {
        self.blocks.iter().any(|part| !matches!(part, Part::Call(Call { slot: None, .. })))
    }

    /// True when there is text that is not blank.
    pub const fn has_text(&self) -> bool {
        self.has_text
    }

    /// True when there is a tool call.
    pub fn has_call(&self) -> bool {
        self.calls().any(|call| call.slot.is_some())
    }

    /// True when a tool call never got a name.
    pub fn has_nameless_call(&self) -> bool {
        self.calls().any(|call| call.slot.is_none())
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.blocks.iter().filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None })
    }

    /// Takes a `delta`, or the `message` of a whole answer.
    pub fn delta(&mut self, delta: &RawValue, facts: &ResponseFacts, out: &mut Chunks) {
        let [first, second, third] = REASONING_FIELDS;
        let names = [first, second, third, "reasoning_details", "content", "refusal", "tool_calls", "function_call"];
        let Some([first, second, third, details, content, refusal, calls, legacy]) = members_of(delta, names) else {
            return;
        };
        let fields = REASONING_FIELDS.into_iter().zip([first, second, third]);
        let text = fields.filter_map(|(field, value)| Some((field, value?))).find(|(_, value)| says_something(value));
        if let Some((field, value)) = text {
            self.reasoning(Some(field), value.get(), out);
        }
        for detail in elements(details) {
            self.detail(detail, text.is_some(), out);
        }
        for part in content_parts(content) {
            match part {
                ContentPart::Text(text) => self.text(text, out),
                ContentPart::Thinking(_) if text.is_some() => {}
                ContentPart::Thinking(thought) => self.reasoning(None, thought.get(), out),
            }
        }
        if let Some(refusal) = refusal.filter(|value| says_something(value)) {
            self.text(refusal, out);
        }
        for call in elements(calls) {
            if let Some([index, id, function]) = members_of(call, ["index", "id", "function"]) {
                let key = count(index).map_or(Key::None, Key::Index);
                // Mistral spells a missing id "null".
                let id = filled(id).filter(|id| id != "null").unwrap_or_default();
                self.call(key, id, function, facts, out);
            }
        }
        if legacy.is_some() {
            self.call(Key::Legacy, String::new(), legacy, facts, out);
        }
    }

    fn text(&mut self, value: &RawValue, out: &mut Chunks) {
        if !matches!(self.open_part(), Some(Part::Text { .. })) {
            self.close_open(out);
            self.begin(Part::Text { slot: out.start_text(), joiner: Joiner::default() });
        }
        if let Some(Part::Text { slot, joiner }) = self.open_part() {
            let text = joiner.push(value.get());
            out.delta(*slot, &text);
            self.has_text |= !text.trim().is_empty();
        }
    }

    /// `json_string` is the JSON text of a string.
    fn reasoning(&mut self, field: Option<&'static str>, json_string: &str, out: &mut Chunks) {
        self.open_reasoning(out);
        if let Some(Part::Reasoning { slot, joiner, field: known, .. }) = self.open_part() {
            *known = known.or(field);
            out.delta(*slot, &joiner.push(json_string));
        }
    }

    fn open_reasoning(&mut self, out: &mut Chunks) {
        if !matches!(self.open_part(), Some(Part::Reasoning { .. })) {
            self.close_open(out);
            let (slot, joiner) = (out.start_reasoning(), Joiner::default());
            self.begin(Part::Reasoning { slot, joiner, field: None, details: Details::default() });
        }
    }

    /// A reasoning detail. One with text belongs to the reasoning of its place in the stream; one without may come
    /// late and belongs to the reasoning before it, or to the call that it names.
    fn detail(&mut self, detail: &RawValue, text_is_known: bool, out: &mut Chunks) {
        let Ok(object) = serde_json::from_str::<Object>(&replace_odd_keys(detail)) else { return };
        if let Some(call) = Details::call_of(&object) {
            self.for_calls.entry(call).or_default().push((self.details_for_calls, object));
            self.details_for_calls += 1;
            return;
        }
        if let Some(text) = detail_text(detail) {
            if text_is_known {
                self.open_reasoning(out);
            } else {
                self.reasoning(None, text.get(), out);
            }
        } else if self.last_reasoning.is_none() {
            self.open_reasoning(out);
        }
        if let Some((slot, details, field)) = self.reasoning_details() {
            details.push(object);
            if !out.is_open(slot) {
                out.set_entry(slot, reasoning_entry(field, details.list()));
            }
        }
    }

    /// Slot, details and field of the last reasoning block.
    fn reasoning_details(&mut self) -> Option<(Slot, &mut Details, Option<&'static str>)> {
        match self.blocks.get_mut(self.last_reasoning?)? {
            Part::Reasoning { slot, details, field, .. } => Some((*slot, details, *field)),
            Part::Text { .. } | Part::Call(_) => None,
        }
    }

    fn call(&mut self, key: Key, id: String, function: Option<&RawValue>, facts: &ResponseFacts, out: &mut Chunks) {
        let [name, arguments] = function.and_then(|value| members_of(value, ["name", "arguments"])).unwrap_or_default();
        let name = filled(name).unwrap_or_default();
        let arguments = arguments.map(RawValue::get).unwrap_or_default();
        let place = self.place_of(key, &id, &name, arguments).unwrap_or_else(|| {
            self.close_open(out);
            let id = if id.is_empty() { made_up_id(facts, self.calls.count) } else { id.clone() };
            let place = self.blocks.len();
            self.calls.count += 1;
            self.calls.last = Some(place);
            self.calls.by_key.insert(key, place);
            self.calls.by_id.insert(id.clone(), place);
            let call =
                Call { slot: None, id, name: String::new(), arguments: String::new(), joiner: Joiner::default() };
            self.blocks.push(Part::Call(call));
            place
        });
        let Some(Part::Call(call)) = self.blocks.get_mut(place) else { return };
        if !id.is_empty() && id != call.id {
            self.calls.by_id.insert(id.clone(), place);
            call.id = id;
        }
        if !name.is_empty() {
            call.name = name;
        }
        let text = if arguments.starts_with('"') {
            call.joiner.push(arguments)
        } else {
            // Not a string: an object is the arguments themselves; anything else is kept as it is and never runs.
            replace_lone_surrogates(arguments).into_owned()
        };
        call.arguments.push_str(&text);
        match call.slot {
            Some(slot) => {
                out.set_call(slot, &call.id, &call.name);
                if !text.is_empty() {
                    out.delta(slot, &text);
                }
            }
            None if !call.name.is_empty() => {
                let slot = out.start_tool_call(&call.id, &call.name);
                out.delta(slot, &call.arguments);
                call.slot = Some(slot);
            }
            None => {}
        }
    }

    /// The call that a delta continues: by index, else by id, else the last one. A delta that names a tool begins a
    /// call of its own when the call it would continue has another id, or is complete while the delta brings further
    /// arguments; some servers give every call the same index, or none.
    fn place_of(&self, key: Key, id: &str, name: &str, arguments: &str) -> Option<usize> {
        // A call that was renamed since has lost its first id.
        let has_id = |place: &usize| matches!(self.blocks.get(*place), Some(Part::Call(call)) if call.id == id);
        let by_id = || self.calls.by_id.get(id).copied().filter(|place| !id.is_empty() && has_id(place));
        let by_key = || self.calls.by_key.get(&key).copied();
        let place = match key {
            Key::Index(_) => by_key().or_else(|| by_id().filter(|_| name.is_empty())),
            Key::Legacy => by_key(),
            Key::None => by_id().or_else(|| self.calls.last.filter(|_| id.is_empty())),
        }?;
        let Some(Part::Call(call)) = self.blocks.get(place) else { return None };
        let is_other = || {
            let other_id = !id.is_empty() && call.id != id && !call.name.is_empty();
            let brings_arguments = arguments.starts_with("\"{") || arguments.starts_with('{');
            other_id || (id != call.id && brings_arguments && is_object_text(&call.arguments))
        };
        if !name.is_empty() && is_other() {
            return by_id();
        }
        Some(place)
    }

    fn open_part(&mut self) -> Option<&mut Part> {
        self.blocks.get_mut(self.open?)
    }

    fn begin(&mut self, part: Part) {
        self.open = Some(self.blocks.len());
        if matches!(part, Part::Reasoning { .. }) {
            self.last_reasoning = self.open;
        }
        self.blocks.push(part);
    }

    fn close_open(&mut self, out: &mut Chunks) {
        if let Some(place) = self.open.take() {
            self.close(place, out);
        }
    }

    /// Every block is complete.
    pub fn close_all(&mut self, out: &mut Chunks) {
        self.open = None;
        self.give_details_to_reasoning(out);
        for place in 0..self.blocks.len() {
            self.close(place, out);
        }
    }

    fn close(&mut self, place: usize, out: &mut Chunks) {
        match self.blocks.get_mut(place) {
            Some(Part::Text { slot, joiner }) => {
                flush(*slot, joiner, out);
                out.end(*slot, Some(text_entry()));
            }
            Some(Part::Reasoning { slot, joiner, field, details }) => {
                flush(*slot, joiner, out);
                out.end(*slot, Some(reasoning_entry(*field, details.list())));
            }
            Some(Part::Call(Call { slot: Some(slot), id, joiner, .. })) => {
                flush(*slot, joiner, out);
                let details: Vec<_> = self.for_calls.get(id).into_iter().flatten().map(|(_, detail)| detail).collect();
                let entry = call_entry(&details);
                if out.is_open(*slot) {
                    out.end(*slot, Some(entry));
                } else {
                    out.set_entry(*slot, entry);
                }
            }
            Some(Part::Call(Call { slot: None, .. })) | None => {}
        }
    }

    /// Encrypted details whose id is that of no call belong to the reasoning.
    fn give_details_to_reasoning(&mut self, out: &mut Chunks) {
        let ids: HashSet<&str> = self.calls().map(|call| call.id.as_str()).collect();
        let unmatched: Vec<String> = self.for_calls.keys().filter(|id| !ids.contains(id.as_str())).cloned().collect();
        if unmatched.is_empty() {
            return;
        }
        let mut unmatched: Vec<_> = unmatched.iter().filter_map(|id| self.for_calls.remove(id)).flatten().collect();
        unmatched.sort_unstable_by_key(|(order, _)| *order);
        if self.last_reasoning.is_none() {
            self.open_reasoning(out);
            self.open = None;
        }
        if let Some((slot, details, field)) = self.reasoning_details() {
            for (_, detail) in unmatched {
                details.push(detail);
            }
            if !out.is_open(slot) {
                out.set_entry(slot, reasoning_entry(field, details.list()));
            }
        }
    }
}

/// A piece of `content`.
enum ContentPart<'a> {
    Text(&'a RawValue),
    /// Mistral's reasoning models think inside the content.
    Thinking(&'a RawValue),
}

/// The strings of `content`: itself, or the text and thinking parts of an array. Parts of other kinds are skipped.
fn content_parts(content: Option<&RawValue>) -> Vec<ContentPart<'_>> {
    let Some(content) = content else { return Vec::new() };
    let mut parts = Vec::new();
    if is_string(content) {
        parts.push(ContentPart::Text(content));
    }
    for part in elements(Some(content)) {
        let Some([text, thinking]) = members_of(part, ["text", "thinking"]) else { continue };
        parts.extend(text.map(ContentPart::Text));
        parts.extend(thinking.filter(|value| is_string(value)).map(ContentPart::Thinking));
        let inner = elements(thinking).into_iter().filter_map(|part| members_of(part, ["text"])?[0]);
        parts.extend(inner.map(ContentPart::Thinking));
    }
    parts.retain(|(ContentPart::Text(value) | ContentPart::Thinking(value))| says_something(value));
    parts
}

/// A detail is kept as it was written; only keys with half a surrogate pair cannot be.
fn replace_odd_keys(detail: &RawValue) -> std::borrow::Cow<'_, str> {
    if serde_json::from_str::<Object>(detail.get()).is_ok() {
        return detail.get().into();
    }
    replace_lone_surrogates(detail.get())
}
