//! The blocks of an answer that is being streamed: one for each output item that becomes one.
//!
//! An item is found by its id, else by its place in the output: some gateways write another id into every event,
//! others leave one of the two out. What an item says when it is done wins over its deltas, and an item that was never
//! announced is taken from there.

use std::collections::HashMap;

use dsh_plugin_api::json::{Joiner, Object, Raw};
use dsh_plugin_api::kit::lenient::{is_string, string};
use dsh_plugin_api::kit::repeat::Repeated;
use dsh_plugin_api::kit::streaming::{Said, made_up_id};
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use super::item::{Facts, Kind, arguments_text, composite_id};
use super::replay::{MessageMark, call_entry, reasoning_entry, text_entry};
use crate::envelope::ResponseFacts;

/// What an event says about the item that it belongs to.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// `output_index`
    pub index: Option<u64>,
    /// `item_id`, or the id of the item itself; empty when absent.
    pub id: String,
}

/// A part of an item: of a message or of reasoning, by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartKey {
    /// Summaries and contents of reasoning are counted each for itself.
    pub is_content: bool,
    /// `summary_index` or `content_index`
    pub index: u64,
}

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    items: Vec<Item>,
    by_id: HashMap<String, usize>,
    by_index: HashMap<u64, usize>,
    calls: usize,
    has_text: bool,
}

#[derive(Debug)]
struct Item {
    kind: Kind,
    /// None until there is something to show: text for a message, the name for a call.
    slot: Option<Slot>,
    is_done: bool,
    mark: MessageMark,
    call: CallHead,
    /// Arguments that came before the name.
    waiting: String,
    /// What the item said when it was announced; counts only when nothing follows.
    announced: String,
    joiner: Joiner,
    part: Option<PartKey>,
    /// Length of the text before the part.
    part_start: usize,
    /// The reasoning item as it was when it was done.
    stored: Option<Raw>,
}

#[derive(Debug, Default)]
struct CallHead {
    id: String,
    name: String,
}

impl Item {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            slot: None,
            is_done: false,
            mark: MessageMark::default(),
            call: CallHead::default(),
            waiting: String::new(),
            announced: String::new(),
            joiner: Joiner::default(),
            part: None,
            part_start: 0,
            stored: None,
        }
    }

    /// Shows text or arguments.
    fn say(&mut self, text: &str, out: &mut Chunks) {
        if self.slot.is_none() && self.kind == Kind::Message && !text.is_empty() {
            self.slot = Some(out.start_text());
        }
        match self.slot {
            Some(slot) if !text.is_empty() => out.delta(slot, text),
            Some(_) => {}
            None => self.waiting.push_str(text),
        }
    }

    fn said<'a>(&'a self, out: &'a Chunks) -> &'a str {
        self.slot.map_or(&self.waiting, |slot| out.text_of(slot))
    }

    /// A part begins. Those of reasoning are set apart by a blank line.
    fn begin_part(&mut self, part: Option<PartKey>, out: &mut Chunks) {
        if part.is_none() || part == self.part {
            return;
        }
        if self.part.is_none() {
            // What came before it without saying which part it is of is of this one.
            self.part = part;
            return;
        }
        if self.kind == Kind::Reasoning && !self.said(out).is_empty() {
            let rest = self.joiner.finish().map(String::from).unwrap_or_default();
            self.say(&(rest + "\n\n"), out);
        }
        self.part = part;
        self.part_start = self.said(out).len();
    }

    /// Says what a complete text has beyond what was streamed of it, from `start` on. False when it differs.
    fn complete(&mut self, whole: &str, start: usize, out: &mut Chunks) -> bool {
        let Some(rest) = whole.strip_prefix(self.said(out).get(start..).unwrap_or_default()) else { return false };
        let rest = rest.to_owned();
        if !rest.is_empty() {
            // It begins with what was held back.
            self.joiner = Joiner::default();
            self.say(&rest, out);
        }
        true
    }

    /// Closes the block with its final text; an empty one leaves what was streamed. True for a message that is not
    /// blank.
    fn close(&mut self, whole: &str, entry: Option<Raw>, out: &mut Chunks) -> bool {
        self.is_done = true;
        let replaces = !whole.is_empty() && !self.complete(whole, 0, out);
        if !replaces && let Some(rest) = self.joiner.finish() {
            // A half of a pair that lost its other half is text too, even if there is no other.
            self.say(&String::from(rest), out);
        }
        let Some(slot) = self.slot else { return false };
        let text = if replaces { whole } else { out.text_of(slot) };
        let says_something = self.kind == Kind::Message && !text.trim().is_empty();
        if replaces {
            out.end_with(slot, whole.to_owned(), entry);
        } else {
            out.end(slot, entry);
        }
        says_something
    }

    fn entry(&self) -> Option<Raw> {
        match self.kind {
            Kind::Message => Some(text_entry(&self.mark)),
            Kind::Call => Some(call_entry()),
            Kind::Reasoning => self.stored.as_deref().map(reasoning_entry),
        }
    }
}

impl Blocks {
    /// True when a block was started.
    pub fn any_started(&self) -> bool {
        self.items.iter().any(|item| item.slot.is_some())
    }

    /// What there is of a complete answer.
    pub fn said(&self) -> Said {
        Said {
            nameless_call: self.items.iter().any(|item| item.kind == Kind::Call && item.slot.is_none()),
            call: self.items.iter().any(|item| item.kind == Kind::Call && item.slot.is_some()),
            text: self.has_text,
        }
    }

    /// An item is announced.
    pub fn added(&mut self, key: Key, facts: &Facts<'_>, response: &ResponseFacts, out: &mut Chunks) {
        // A delta may come before its item.
        let known = self.by_id.get(&key.id).or_else(|| self.by_index.get(&key.index?)).copied();
        let again = known.and_then(|place| self.items.get(place)).is_some_and(|item| {
            let same_id = !key.id.is_empty() && item.mark.id.as_ref().is_none_or(|id| *id == key.id);
            same_id && item.kind == facts.kind && !item.is_done
        });
        let place = match known.filter(|_| again) {
            Some(place) => {
                self.by_id.insert(key.id, place);
                place
            }
            None => self.begin(facts.kind, &key, out),
        };
        self.head(place, facts, response, out);
        if let Some(item) = self.items.get_mut(place) {
            item.announced = if facts.kind == Kind::Call { facts.arguments_text() } else { facts.text.clone() };
            if item.kind == Kind::Message && item.slot.is_none() && !item.announced.is_empty() {
                // Its place is before the items that are announced after it.
                item.slot = Some(out.start_text());
            }
        }
    }

    /// A piece of text or arguments; `value` is a JSON string. Gives the place of the item that it was added to.
    pub fn delta(
        &mut self,
        kind: Kind,
        key: &Key,
        part: Option<PartKey>,
        value: &RawValue,
        out: &mut Chunks,
    ) -> Option<usize> {
        if !is_string(value) {
            return None;
        }
        let place = self.place(kind, key).unwrap_or_else(|| self.begin(kind, key, out));
        let item = self.items.get_mut(place).filter(|item| !item.is_done)?;
        item.begin_part(part, out);
        let text = item.joiner.push(value.get());
        item.say(&text, out);
        self.has_text |= kind == Kind::Message && !text.trim().is_empty();
        Some(place)
    }

    /// Does once more what [`Blocks::delta`] did last, with another string. False when that cannot be done so simply:
    /// then nothing was done.
    pub fn repeat(&mut self, repeated: &Repeated<'_, 0>, out: &mut Chunks) -> bool {
        let Some(item) = self.items.get(repeated.place).filter(|item| !item.is_done && !item.joiner.holds_half())
        else {
            return false;
        };
        let Some(slot) = item.slot else { return false };
        out.delta(slot, &repeated.string);
        self.has_text |= item.kind == Kind::Message && !repeated.string.trim().is_empty();
        true
    }

    /// A part is complete; `value` repeats it. What the deltas lacked is made up for.
    pub fn part_done(&mut self, kind: Kind, key: &Key, part: Option<PartKey>, value: &RawValue, out: &mut Chunks) {
        let whole = if kind == Kind::Call { Some(arguments_text(value)) } else { string(value) };
        let Some(whole) = whole.filter(|whole| !whole.is_empty()) else { return };
        let place = self.place(kind, key).unwrap_or_else(|| self.begin(kind, key, out));
        let Some(item) = self.items.get_mut(place).filter(|item| !item.is_done) else { return };
        if part.is_some() && part < item.part {
            return;
        }
        item.begin_part(part, out);
        item.complete(&whole, item.part_start, out);
        self.has_text |= kind == Kind::Message && !whole.trim().is_empty();
    }

    /// An item is complete.
    pub fn done(&mut self, key: &Key, facts: &Facts<'_>, response: &ResponseFacts, out: &mut Chunks) {
        let place = self.place(facts.kind, key).unwrap_or_else(|| self.begin(facts.kind, key, out));
        self.settle(place, facts, response, out);
    }

    /// The output that the end of a response lists: what was not streamed is taken from there, and what only the end
    /// tells is added to what was.
    pub fn listed(&mut self, output: &[&RawValue], response: &ResponseFacts, out: &mut Chunks) {
        let streamed = self.items.len();
        let mut is_matched = vec![false; streamed];
        let mut next = [0; 3];
        for (index, facts) in output.iter().enumerate().filter_map(|(index, item)| Some((index, Facts::read(item)?))) {
            let kind = facts.kind;
            let fits = |place: &usize, items: &[Item], is_matched: &[bool]| {
                is_matched.get(*place) == Some(&false) && items.get(*place).is_some_and(|item| item.kind == kind)
            };
            let by_id = self.by_id.get(&facts.id).copied().filter(|_| !facts.id.is_empty());
            let by_index = || self.by_index.get(&(index as u64)).copied();
            let found = by_id
                .filter(|place| fits(place, &self.items, &is_matched))
                .or_else(|| by_index().filter(|place| fits(place, &self.items, &is_matched)))
                .or_else(|| {
                    let cursor = next.get_mut(kind as usize)?;
                    let found = (*cursor..streamed).find(|place| fits(place, &self.items, &is_matched));
                    *cursor = found.unwrap_or(streamed);
                    found
                });
            let place = found.unwrap_or_else(|| {
                let key = Key { index: None, id: facts.id.clone() };
                self.begin(kind, &key, out)
            });
            if let Some(is_matched) = is_matched.get_mut(place) {
                *is_matched = true;
            }
            if self.items.get(place).is_some_and(|item| item.is_done) {
                self.backfill(place, &facts, out);
            } else {
                self.settle(place, &facts, response, out);
            }
        }
    }

    /// Every block is complete as it is.
    pub fn close_all(&mut self, out: &mut Chunks) {
        for item in self.items.iter_mut().filter(|item| !item.is_done) {
            let announced = std::mem::take(&mut item.announced);
            let whole = if item.said(out).is_empty() { announced } else { String::new() };
            let entry = item.entry();
            self.has_text |= item.close(&whole, entry, out);
        }
    }

    /// The item that an event belongs to.
    fn place(&self, kind: Kind, key: &Key) -> Option<usize> {
        let of_kind = |place: &usize| self.items.get(*place).is_some_and(|item| item.kind == kind);
        let by_id = self.by_id.get(&key.id).copied().filter(|place| !key.id.is_empty() && of_kind(place));
        let by_index = || {
            let place = self.by_index.get(&key.index?).copied().filter(of_kind)?;
            let item = self.items.get(place)?;
            // A server that counts wrongly begins a new item at the place of a complete one.
            let other = item.is_done && !key.id.is_empty() && item.mark.id.as_ref().is_some_and(|id| *id != key.id);
            (!other).then_some(place)
        };
        let last = || self.items.iter().rposition(|item| item.kind == kind && !item.is_done);
        by_id.or_else(by_index).or_else(|| last().filter(|_| key.index.is_none() && key.id.is_empty()))
    }

    fn begin(&mut self, kind: Kind, key: &Key, out: &mut Chunks) -> usize {
        let place = self.items.len();
        let mut item = Item::new(kind);
        if kind == Kind::Reasoning {
            item.slot = Some(out.start_reasoning());
        }
        if !key.id.is_empty() {
            item.mark.id = Some(key.id.clone());
            self.by_id.insert(key.id.clone(), place);
        }
        if let Some(index) = key.index {
            self.by_index.insert(index, place);
        }
        self.items.push(item);
        place
    }

    /// Takes ids, name and phase, as far as they are not known.
    fn head(&mut self, place: usize, facts: &Facts<'_>, response: &ResponseFacts, out: &mut Chunks) {
        if let Some(item) = self.items.get_mut(place) {
            if !facts.id.is_empty() && (facts.kind != Kind::Call || item.mark.id.is_none()) {
                item.mark.id = Some(facts.id.clone());
            }
            if facts.phase.is_some() {
                item.mark.phase.clone_from(&facts.phase);
            }
        }
        if facts.kind == Kind::Call {
            self.name_call(place, &facts.call_id, &facts.name, response, out);
        }
    }

    /// Gives a call its id and name; a call without a name is no block yet.
    fn name_call(&mut self, place: usize, call_id: &str, name: &str, response: &ResponseFacts, out: &mut Chunks) {
        let Some(item) = self.items.get_mut(place).filter(|item| item.kind == Kind::Call) else { return };
        if !name.is_empty() {
            name.clone_into(&mut item.call.name);
        }
        if item.call.id.is_empty() || (!item.call.id.contains('|') && !call_id.is_empty()) {
            item.call.id = composite_id(call_id, item.mark.id.as_deref().unwrap_or_default());
        }
        if item.call.name.is_empty() {
            return;
        }
        if item.call.id.is_empty() && item.slot.is_none() {
            item.call.id = made_up_id(response.response_id.as_deref(), self.calls);
        }
        match item.slot {
            Some(slot) => out.set_call(slot, &item.call.id, &item.call.name),
            None => {
                self.calls += 1;
                let slot = out.start_tool_call(&item.call.id, &item.call.name);
                out.delta(slot, &std::mem::take(&mut item.waiting));
                item.slot = Some(slot);
            }
        }
    }

    /// Closes a block with what its item says.
    fn settle(&mut self, place: usize, facts: &Facts<'_>, response: &ResponseFacts, out: &mut Chunks) {
        if self.items.get(place).is_none_or(|item| item.is_done) {
            return;
        }
        self.head(place, facts, response, out);
        let Some(item) = self.items.get_mut(place) else { return };
        let whole = if facts.kind == Kind::Call { facts.arguments_text() } else { facts.text.clone() };
        if facts.kind == Kind::Reasoning {
            item.stored = Some(facts.item.to_owned());
        }
        let entry = item.entry();
        self.has_text |= item.close(&whole, entry, out);
    }

    /// Encrypted reasoning may come only with the end of the response.
    fn backfill(&mut self, place: usize, facts: &Facts<'_>, out: &mut Chunks) {
        let Some(item) = self.items.get_mut(place).filter(|item| item.kind == Kind::Reasoning) else { return };
        let parse = |item: &RawValue| serde_json::from_str::<Object>(item.get()).ok();
        let listed = parse(facts.item).unwrap_or_default();
        let (Some(encrypted), Some(slot)) =
            (listed.get("encrypted_content").filter(|value| is_string(value)), item.slot)
        else {
            return;
        };
        let Some(mut stored) = item.stored.as_deref().map_or_else(|| Some(listed.clone()), parse) else { return };
        if stored.get("encrypted_content").is_some_and(|known| is_string(known) && known.get() != "\"\"") {
            return;
        }
        stored.set("encrypted_content", encrypted.to_owned());
        let stored = dsh_plugin_api::json::raw(&stored);
        out.set_entry(slot, reasoning_entry(&stored));
        item.stored = Some(stored);
    }
}
