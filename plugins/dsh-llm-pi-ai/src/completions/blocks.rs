//! The blocks of an answer that is being streamed: which delta belongs to which block, and when a block is complete.
//!
//! Text and reasoning are complete as soon as something else begins; they keep the order in which they came. Tool
//! calls may be interleaved and are complete when the answer is.

use std::collections::{HashMap, HashSet};

use dsh_plugin_api::json::{Joiner, Object, replace_lone_surrogates};
use dsh_plugin_api::kit::lenient::{count, elements, filled, members_of};
use dsh_plugin_api::kit::repeat::{Added, Repeated};
use dsh_plugin_api::kit::streaming::{Said, flush, made_up_id, says_something};
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use super::arguments::Arguments;
use super::details::{Details, detail_text};
use super::event::{Call, Delta, Function};
use super::replay::{call_entry, reasoning_entry, text_entry};
use crate::envelope::ResponseFacts;

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Part>,
    /// Place of the text or reasoning block that takes deltas.
    open: Option<usize>,
    /// Place of the last reasoning block.
    last_reasoning: Option<usize>,
    /// Encrypted details by the id of their call, which may come before the call; each with its place among all details.
    for_calls: HashMap<String, Vec<(usize, Object)>>,
    details_seen: usize,
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
    Call(StreamedCall),
}

#[derive(Debug)]
struct StreamedCall {
    /// None until the name is known: a call without a name is no block.
    slot: Option<Slot>,
    id: String,
    /// What the wire calls it, which another call of the answer may be called as well.
    wire_id: String,
    name: String,
    arguments: Arguments,
    joiner: Joiner,
}

/// What a delta did so far.
enum Done<'a> {
    Nothing,
    Added(Added<'a>),
    /// Anything else, or several things.
    More,
}

impl<'a> Done<'a> {
    fn add(&mut self, added: Added<'a>) {
        *self = match self {
            Self::Nothing => Self::Added(added),
            Self::Added(_) | Self::More => Self::More,
        };
    }

    /// The detail whose fragment this is repeats the text that was added, or adds it.
    fn add_fragment(&mut self, fragment: &'a RawValue, added: Option<Added<'a>>) {
        *self = match (&self, added) {
            (Self::Added(Added { place, string, fragment: None }), None) => {
                Self::Added(Added { place: *place, string, fragment: Some(fragment) })
            }
            (Self::Nothing, Some(added)) => Self::Added(Added { fragment: Some(fragment), ..added }),
            _ => Self::More,
        };
    }
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
        self.blocks.iter().any(|part| !matches!(part, Part::Call(StreamedCall { slot: None, .. })))
    }

    /// What there is of a complete answer.
    pub fn said(&self) -> Said {
        Said {
            nameless_call: self.calls().any(|call| call.slot.is_none()),
            call: self.calls().any(|call| call.slot.is_some()),
            text: self.has_text,
        }
    }

    fn calls(&self) -> impl Iterator<Item = &StreamedCall> {
        self.blocks.iter().filter_map(|part| if let Part::Call(call) = part { Some(call) } else { None })
    }

    /// Takes a `delta`, or the `message` of a whole answer. When all it does is to add one string to a part, and it would
    /// do no more if it came again with another, it says so.
    pub fn delta<'a>(&mut self, delta: &Delta<'a>, facts: &ResponseFacts, out: &mut Chunks) -> Option<Added<'a>> {
        let Delta { reasoning_details, content, refusal, tool_calls, function_call, .. } = delta;
        let mut done = Done::Nothing;
        let fields = delta.reasoning().into_iter();
        let text = fields.filter_map(|(field, value)| Some((field, value?))).find(|(_, value)| says_something(value));
        if let Some((field, value)) = text {
            done.add(Added::new(self.reasoning(Some(field), value, out), value));
        }
        for detail in elements(*reasoning_details) {
            match self.detail(detail, text.is_some(), out) {
                Some((fragment, added)) => done.add_fragment(fragment, added),
                None => done = Done::More,
            }
        }
        content_parts(*content, |part| match part {
            ContentPart::Text(text) => done.add(Added::new(self.text(text, out), text)),
            ContentPart::Thinking(_) if text.is_some() => {}
            ContentPart::Thinking(thought) => done.add(Added::new(self.reasoning(None, thought, out), thought)),
        });
        if let Some(refusal) = refusal.filter(|value| says_something(value)) {
            done.add(Added::new(self.text(refusal, out), refusal));
        }
        for Call { index, id, function } in tool_calls.iter().flatten() {
            let key = count(*index).map_or(Key::None, Key::Index);
            // Mistral spells a missing id "null".
            let id = filled(*id).filter(|id| id != "null").unwrap_or_default();
            let nothing = Function::default();
            let function = function.as_ref().unwrap_or(&nothing);
            let adds_arguments = id.is_empty() && filled(function.name).is_none();
            let place = self.call(key, id, function, facts, out);
            match function.arguments.filter(|_| adds_arguments) {
                Some(arguments) if says_something(arguments) => done.add(Added::new(place, arguments)),
                _ => done = Done::More,
            }
        }
        if let Some(function) = function_call {
            self.call(Key::Legacy, String::new(), function, facts, out);
            done = Done::More;
        }
        match done {
            Done::Added(added) => Some(added),
            Done::Nothing | Done::More => None,
        }
    }

    /// Does once more what [`Blocks::delta`] did last, with other strings. False when that cannot be done so simply: then
    /// nothing was done.
    pub fn repeat<const COUNTS: usize>(&mut self, repeated: &Repeated<'_, COUNTS>, out: &mut Chunks) -> bool {
        let (text, fragment) = (&*repeated.string, repeated.fragment);
        match self.blocks.get_mut(repeated.place) {
            Some(Part::Text { slot, joiner }) if !joiner.holds_half() => {
                out.delta(*slot, text);
                self.has_text |= !text.trim().is_empty();
                true
            }
            Some(Part::Reasoning { slot, joiner, details, .. }) if !joiner.holds_half() => {
                if let Some(fragment) = fragment {
                    if !details.repeat(fragment) {
                        return false;
                    }
                    self.details_seen += 1;
                }
                out.delta(*slot, text);
                true
            }
            Some(Part::Call(StreamedCall { slot: Some(slot), arguments, joiner, .. })) if !joiner.holds_half() => {
                arguments.push(text);
                out.delta(*slot, text);
                true
            }
            _ => false,
        }
    }

    fn text(&mut self, value: &RawValue, out: &mut Chunks) -> usize {
        if !matches!(self.open_part(), Some(Part::Text { .. })) {
            self.close_open(out);
            self.begin(Part::Text { slot: out.start_text(), joiner: Joiner::default() });
        }
        if let Some(Part::Text { slot, joiner }) = self.open_part() {
            let text = joiner.push(value.get());
            out.delta(*slot, &text);
            self.has_text |= !text.trim().is_empty();
        }
        self.open_place()
    }

    /// `string` is a JSON string.
    fn reasoning(&mut self, field: Option<&'static str>, string: &RawValue, out: &mut Chunks) -> usize {
        self.open_reasoning(out);
        if let Some(Part::Reasoning { slot, joiner, field: known, .. }) = self.open_part() {
            *known = known.or(field);
            out.delta(*slot, &joiner.push(string.get()));
        }
        self.open_place()
    }

    /// Where the open part stands; what this gives without one is not asked for.
    fn open_place(&self) -> usize {
        self.open.unwrap_or_default()
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
    ///
    /// When all it does is to lengthen the detail before it, it gives the fragment, and what was added to the text with it.
    fn detail<'a>(
        &mut self,
        detail: &'a RawValue,
        text_is_known: bool,
        out: &mut Chunks,
    ) -> Option<(&'a RawValue, Option<Added<'a>>)> {
        let object = detail_object(detail)?;
        let place = self.details_seen;
        self.details_seen += 1;
        if let Some(call) = Details::call_of(&object) {
            self.for_calls.entry(call).or_default().push((place, object));
            return None;
        }
        let mut added = None;
        if let Some(text) = detail_text(detail) {
            if text_is_known {
                self.open_reasoning(out);
            } else {
                added = Some(Added::new(self.reasoning(None, text, out), text));
            }
        } else if self.last_reasoning.is_none() {
            self.open_reasoning(out);
        }
        let is_last = self.open.is_some() && self.open == self.last_reasoning;
        let (slot, details, field) = self.reasoning_details()?;
        let lengthened = details.push(place, object);
        // What was stored is a part of the list now. It is written anew when the answer is complete, not with each
        // detail, which would take the square of their number.
        if !out.is_open(slot) {
            out.set_entry(slot, reasoning_entry(field, &[]));
        }
        let [fragment] = members_of(detail, [lengthened.filter(|_| is_last)?])?;
        Some((fragment?, added))
    }

    /// Slot, details and field of the last reasoning block.
    fn reasoning_details(&mut self) -> Option<(Slot, &mut Details, Option<&'static str>)> {
        match self.blocks.get_mut(self.last_reasoning?)? {
            Part::Reasoning { slot, details, field, .. } => Some((*slot, details, *field)),
            Part::Text { .. } | Part::Call(_) => None,
        }
    }

    fn call(
        &mut self,
        key: Key,
        id: String,
        function: &Function<'_>,
        facts: &ResponseFacts,
        out: &mut Chunks,
    ) -> usize {
        let name = filled(function.name).unwrap_or_default();
        let arguments = function.arguments.map(RawValue::get).unwrap_or_default();
        let place = self.place_of(key, &id, &name, arguments).unwrap_or_else(|| {
            self.close_open(out);
            // Results are paired by id, so an id that another call of this answer has is as good as none.
            let is_usable = !id.is_empty() && !self.calls.by_id.contains_key(&id);
            let id = if is_usable { id.clone() } else { made_up_id(facts.response_id.as_deref(), self.calls.count) };
            let place = self.blocks.len();
            self.calls.count += 1;
            self.calls.last = Some(place);
            self.calls.by_key.insert(key, place);
            self.calls.by_id.insert(id.clone(), place);
            let call = StreamedCall {
                slot: None,
                id,
                wire_id: String::new(),
                name: String::new(),
                arguments: Arguments::default(),
                joiner: Joiner::default(),
            };
            self.blocks.push(Part::Call(call));
            place
        });
        let Some(Part::Call(call)) = self.blocks.get_mut(place) else { return place };
        if !id.is_empty() && id != call.wire_id {
            call.wire_id.clone_from(&id);
            if !self.calls.by_id.contains_key(&id) {
                self.calls.by_id.insert(id.clone(), place);
                call.id = id;
            }
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
        call.arguments.push(&text);
        match call.slot {
            Some(slot) => {
                out.set_call(slot, &call.id, &call.name);
                if !text.is_empty() {
                    out.delta(slot, &text);
                }
            }
            None if !call.name.is_empty() => {
                let slot = out.start_tool_call(&call.id, &call.name);
                out.delta(slot, call.arguments.text());
                call.slot = Some(slot);
            }
            None => {}
        }
        place
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
            let other_id = !id.is_empty() && call.wire_id != id && !call.name.is_empty();
            let brings_arguments = arguments.starts_with("\"{") || arguments.starts_with('{');
            other_id || ((id.is_empty() || id != call.wire_id) && brings_arguments && call.arguments.is_whole())
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
                self.has_text |= flush(*slot, joiner, out);
                out.end(*slot, Some(text_entry()));
            }
            Some(Part::Reasoning { slot, joiner, field, details }) => {
                flush(*slot, joiner, out);
                let entry = reasoning_entry(*field, details.list());
                if out.is_open(*slot) {
                    out.end(*slot, Some(entry));
                } else {
                    out.set_entry(*slot, entry);
                }
            }
            Some(Part::Call(StreamedCall { slot: Some(slot), id, joiner, .. })) => {
                flush(*slot, joiner, out);
                let details: Vec<_> = self.for_calls.get(id).into_iter().flatten().map(|(_, detail)| detail).collect();
                let entry = call_entry(&details);
                if out.is_open(*slot) {
                    out.end(*slot, Some(entry));
                } else {
                    out.set_entry(*slot, entry);
                }
            }
            Some(Part::Call(StreamedCall { slot: None, .. })) | None => {}
        }
    }

    /// Encrypted details whose id is that of no call belong to the reasoning.
    fn give_details_to_reasoning(&mut self, out: &mut Chunks) {
        let ids: HashSet<&str> = self.calls().map(|call| call.id.as_str()).collect();
        let unmatched: Vec<String> = self.for_calls.keys().filter(|id| !ids.contains(id.as_str())).cloned().collect();
        if unmatched.is_empty() {
            return;
        }
        let unmatched = unmatched.iter().filter_map(|id| self.for_calls.remove(id)).flatten().collect();
        if self.last_reasoning.is_none() {
            self.open_reasoning(out);
            self.open = None;
        }
        if let Some((slot, details, field)) = self.reasoning_details() {
            details.put_back(unmatched);
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

/// Gives the strings of `content` that say something: itself, or the text and thinking parts of an array. Parts of other
/// kinds are skipped.
fn content_parts<'a>(content: Option<&'a RawValue>, mut take: impl FnMut(ContentPart<'a>)) {
    let Some(content) = content else { return };
    if says_something(content) {
        take(ContentPart::Text(content));
    }
    for part in elements(Some(content)) {
        let Some([text, thinking]) = members_of(part, ["text", "thinking"]) else { continue };
        text.filter(|value| says_something(value)).map(ContentPart::Text).into_iter().for_each(&mut take);
        let inner = elements(thinking).into_iter().filter_map(|part| members_of(part, ["text"])?[0]);
        let thoughts = thinking.into_iter().chain(inner).filter(|value| says_something(value));
        thoughts.map(ContentPart::Thinking).for_each(&mut take);
    }
}

/// A detail is kept as it was written; only keys with half a surrogate pair cannot be.
fn detail_object(detail: &RawValue) -> Option<Object> {
    let as_written = serde_json::from_str(detail.get());
    as_written.or_else(|_| serde_json::from_str(&replace_lone_surrogates(detail.get()))).ok()
}
