//! The blocks of an answer as they stream in, by the index that the wire gives them. Several may be open at once.
//!
//! Gateways leave things out or send them twice. A piece without its start begins a block, a start that repeats an
//! open block begins none, a piece of another kind than its block begins a block of its own, and an index may be used
//! again. What a block of a kind that is not shown (a tool of the provider's own and its result) brings is skipped.

use std::collections::HashMap;

use dsh_plugin_api::json::{Joiner, replace_lone_surrogates};
use dsh_plugin_api::kit::lenient::{elements, filled, is_object, is_string, members_of, string};
use dsh_plugin_api::kit::repeat::{Added, Repeated};
use dsh_plugin_api::kit::streaming::{Said, flush, made_up_id};
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use super::replay::{REDACTED, call_entry, reasoning_entry, redacted_entry, text_entry};
use crate::envelope::ResponseFacts;

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Part>,
    /// Place of the latest block of an index.
    by_index: HashMap<u64, usize>,
    calls: usize,
    has_text: bool,
    nameless_call: bool,
}

#[derive(Debug)]
enum Part {
    Text {
        slot: Slot,
        joiner: Joiner,
    },
    Thinking {
        slot: Slot,
        joiner: Joiner,
        signature: String,
    },
    Redacted {
        slot: Slot,
        data: String,
    },
    /// `input` came with the start; it stands for arguments that never stream.
    Call {
        slot: Slot,
        joiner: Joiner,
        input: Option<String>,
    },
    /// Of a kind that is not shown.
    Skipped,
}

impl Part {
    const fn slot(&self) -> Option<Slot> {
        match self {
            Self::Text { slot, .. }
            | Self::Thinking { slot, .. }
            | Self::Redacted { slot, .. }
            | Self::Call { slot, .. } => Some(*slot),
            Self::Skipped => None,
        }
    }

    const fn is_text(&self) -> bool {
        matches!(self, Self::Text { .. })
    }

    const fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. })
    }

    const fn is_call(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

impl Blocks {
    /// True when a block was started.
    pub fn any_started(&self) -> bool {
        self.blocks.iter().any(|part| part.slot().is_some())
    }

    /// What there is of a complete answer.
    pub fn said(&self) -> Said {
        Said { nameless_call: self.nameless_call, call: self.calls > 0, text: self.has_text }
    }

    /// Takes the `content` of a whole answer.
    pub fn whole(&mut self, content: Option<&RawValue>, facts: &ResponseFacts, out: &mut Chunks) {
        for block in elements(content) {
            self.start(None, block, facts, out);
            self.stop(None, out);
        }
    }

    /// A block begins; it may hold something from the start.
    pub fn start(&mut self, index: Option<u64>, block: &RawValue, facts: &ResponseFacts, out: &mut Chunks) {
        let names = ["type", "text", "thinking", "signature", "data", "id", "name", "input"];
        let Some([kind, text, thinking, signature, data, id, name, input]) = members_of(block, names) else { return };
        match filled(kind).as_deref() {
            Some("text") => {
                let place = match self.repeated(index, out, Part::is_text) {
                    Some(place) => place,
                    None => self.begin_text(index, out),
                };
                self.text(place, text, out);
            }
            Some("thinking") => {
                let place = match self.repeated(index, out, Part::is_thinking) {
                    Some(place) => place,
                    None => self.begin_thinking(index, out),
                };
                self.thinking(place, thinking, out);
                self.sign(place, signature, out);
            }
            Some("redacted_thinking") => {
                self.stop(index, out);
                let part = filled(data).map_or(Part::Skipped, |data| {
                    let slot = out.start_reasoning();
                    out.delta(slot, REDACTED);
                    Part::Redacted { slot, data }
                });
                self.begin(index, part);
            }
            Some("tool_use") => self.start_call(index, (filled(id), filled(name), input), facts, out),
            _ => {
                self.stop(index, out);
                self.begin(index, Part::Skipped);
            }
        }
    }

    fn start_call(
        &mut self,
        index: Option<u64>,
        (id, name, input): (Option<String>, Option<String>, Option<&RawValue>),
        facts: &ResponseFacts,
        out: &mut Chunks,
    ) {
        let is_same = |part: &Part| match part {
            Part::Call { slot, .. } => id.as_deref() == Some(out.call_of(*slot).0) && out.is_open(*slot),
            _ => false,
        };
        if self.place(index).and_then(|place| self.blocks.get(place)).is_some_and(is_same) {
            return;
        }
        self.stop(index, out);
        let Some(name) = name else {
            self.nameless_call = true;
            self.begin(index, Part::Skipped);
            return;
        };
        let id = id.unwrap_or_else(|| made_up_id(facts.response_id.as_deref(), self.calls));
        let slot = out.start_tool_call(&id, &name);
        out.delta(slot, "");
        self.calls += 1;
        let input =
            input.filter(|input| is_object(input)).map(|input| replace_lone_surrogates(input.get()).into_owned());
        self.begin(index, Part::Call { slot, joiner: Joiner::default(), input });
    }

    /// A piece of a block. When all it does is to add one string to it, and it would do no more if it came again with
    /// another, it says so.
    pub fn delta<'a>(&mut self, index: Option<u64>, delta: &'a RawValue, out: &mut Chunks) -> Option<Added<'a>> {
        let names = ["type", "text", "thinking", "signature", "partial_json"];
        let [kind, text, thinking, signature, json] = members_of(delta, names)?;
        let kind = filled(kind);
        // A piece that does not say its kind is known by its member.
        let is = |name: &str, value: Option<&RawValue>| kind.as_deref().map_or(value.is_some(), |kind| kind == name);
        let place = self.place(index);
        let fits = |wanted: fn(&Part) -> bool| place.filter(|place| self.blocks.get(*place).is_some_and(wanted));
        if matches!(place.and_then(|place| self.blocks.get(place)), Some(Part::Skipped)) {
            return None;
        }
        if is("text_delta", text) {
            let place = fits(Part::is_text).unwrap_or_else(|| self.begin_text(index, out));
            self.text(place, text, out);
            return Some(Added::new(place, text?));
        } else if is("thinking_delta", thinking) {
            let place = fits(Part::is_thinking).unwrap_or_else(|| self.begin_thinking(index, out));
            self.thinking(place, thinking, out);
            return Some(Added::new(place, thinking?));
        } else if is("signature_delta", signature) {
            let known = fits(Part::is_thinking);
            if let Some(place) = known.or_else(|| place.is_none().then(|| self.begin_thinking(index, out))) {
                self.sign(place, signature, out);
            }
        } else if is("input_json_delta", json) {
            let call = fits(Part::is_call);
            self.arguments(place, json, out);
            return Some(Added::new(call?, json?));
        }
        None
    }

    /// Does once more what [`Blocks::delta`] did last, with another string. False when that cannot be done so simply:
    /// then nothing was done.
    pub fn repeat(&mut self, repeated: &Repeated<'_, 0>, out: &mut Chunks) -> bool {
        let Some(part) = self.blocks.get(repeated.place) else { return false };
        let (Part::Text { slot, joiner } | Part::Thinking { slot, joiner, .. } | Part::Call { slot, joiner, .. }) =
            part
        else {
            return false;
        };
        if !out.is_open(*slot) || joiner.holds_half() {
            return false;
        }
        out.delta(*slot, &repeated.string);
        self.has_text |= part.is_text() && !repeated.string.trim().is_empty();
        true
    }

    /// A block is complete.
    pub fn stop(&mut self, index: Option<u64>, out: &mut Chunks) {
        if let Some(place) = self.place(index) {
            self.close(place, out);
        }
    }

    /// The answer is complete, and every block with it.
    pub fn close_all(&mut self, out: &mut Chunks) {
        for place in 0..self.blocks.len() {
            self.close(place, out);
            // A signature that came after the end of its block is whole now.
            if let Some(Part::Thinking { slot, signature, .. }) = self.blocks.get(place) {
                out.set_entry(*slot, reasoning_entry(signature));
            }
        }
    }

    /// The latest block of an index, or the latest of all where the wire says none.
    fn place(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(index) => self.by_index.get(&index).copied(),
            None => self.blocks.len().checked_sub(1),
        }
    }

    /// The block that a start repeats: open, of the same kind, and still empty.
    fn repeated(&self, index: Option<u64>, out: &Chunks, same: fn(&Part) -> bool) -> Option<usize> {
        let place = self.place(index)?;
        let part = self.blocks.get(place).filter(|part| same(part))?;
        part.slot().filter(|slot| out.is_open(*slot) && out.text_of(*slot).is_empty()).map(|_| place)
    }

    fn begin(&mut self, index: Option<u64>, part: Part) -> usize {
        let place = self.blocks.len();
        self.blocks.push(part);
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        place
    }

    fn begin_text(&mut self, index: Option<u64>, out: &mut Chunks) -> usize {
        self.stop(index, out);
        self.begin(index, Part::Text { slot: out.start_text(), joiner: Joiner::default() })
    }

    fn begin_thinking(&mut self, index: Option<u64>, out: &mut Chunks) -> usize {
        self.stop(index, out);
        let slot = out.start_reasoning();
        self.begin(index, Part::Thinking { slot, joiner: Joiner::default(), signature: String::new() })
    }

    fn text(&mut self, place: usize, value: Option<&RawValue>, out: &mut Chunks) {
        if let (Some(Part::Text { slot, joiner }), Some(value)) = (self.blocks.get_mut(place), value)
            && out.is_open(*slot)
        {
            let text = joiner.push(value.get());
            out.delta(*slot, &text);
            self.has_text |= !text.trim().is_empty();
        }
    }

    fn thinking(&mut self, place: usize, value: Option<&RawValue>, out: &mut Chunks) {
        if let (Some(Part::Thinking { slot, joiner, .. }), Some(value)) = (self.blocks.get_mut(place), value)
            && out.is_open(*slot)
        {
            out.delta(*slot, &joiner.push(value.get()));
        }
    }

    /// Fragments of a signature are joined byte for byte. One that comes after the end of its block makes what was
    /// stored a fragment too: until the answer is complete the block has none.
    fn sign(&mut self, place: usize, value: Option<&RawValue>, out: &mut Chunks) {
        let fragment = value.and_then(string).filter(|fragment| !fragment.is_empty());
        if let (Some(Part::Thinking { slot, signature, .. }), Some(fragment)) = (self.blocks.get_mut(place), fragment) {
            signature.push_str(&fragment);
            if !out.is_open(*slot) {
                out.set_entry(*slot, reasoning_entry(""));
            }
        }
    }

    fn arguments(&mut self, place: Option<usize>, json: Option<&RawValue>, out: &mut Chunks) {
        let Some(json) = json else { return };
        match place.and_then(|place| self.blocks.get_mut(place)) {
            Some(Part::Call { slot, joiner, .. }) if out.is_open(*slot) => {
                let text = if is_string(json) {
                    joiner.push(json.get())
                } else {
                    // Not a string: an object is the arguments themselves; anything else is kept and never runs.
                    replace_lone_surrogates(json.get()).into_owned()
                };
                out.delta(*slot, &text);
            }
            // Arguments of a call whose start was lost.
            None => self.nameless_call |= json.get() != "\"\"",
            Some(_) => {}
        }
    }

    fn close(&mut self, place: usize, out: &mut Chunks) {
        let Some(part) = self.blocks.get_mut(place) else { return };
        if !part.slot().is_some_and(|slot| out.is_open(slot)) {
            return;
        }
        match part {
            Part::Text { slot, joiner } => {
                flush(*slot, joiner, out);
                // A half of a pair that lost its other half is text too.
                self.has_text |= !out.text_of(*slot).trim().is_empty();
                out.end(*slot, Some(text_entry()));
            }
            Part::Thinking { slot, joiner, signature } => {
                flush(*slot, joiner, out);
                out.end(*slot, Some(reasoning_entry(signature)));
            }
            Part::Redacted { slot, data } => out.end(*slot, Some(redacted_entry(data))),
            Part::Call { slot, joiner, input } => {
                flush(*slot, joiner, out);
                if let Some(input) = input.take().filter(|_| out.text_of(*slot).trim().is_empty()) {
                    out.delta(*slot, &input);
                }
                out.end(*slot, Some(call_entry()));
            }
            Part::Skipped => {}
        }
    }
}
