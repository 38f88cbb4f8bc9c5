//! The blocks of an answer that is being streamed: which part continues which block, and when a block is complete.
//!
//! Text and reasoning come in pieces and are complete as soon as something else begins. A tool call comes whole.

use std::collections::HashSet;

use dsh_plugin_api::json::{Joiner, replace_lone_surrogates};
use dsh_plugin_api::kit::lenient::{filled, is_string, members_of};
use dsh_plugin_api::kit::repeat::{Added, Repeated};
use dsh_plugin_api::kit::streaming::{Said, flush, made_up_id, says_something};
use dsh_plugin_api::{Chunks, Slot};
use serde_json::value::RawValue;

use super::replay::{call_entry, is_signature, reasoning_entry, text_entry};
use crate::envelope::ResponseFacts;

/// The blocks of one answer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Option<Open>,
    ids: HashSet<String>,
    calls: usize,
    /// The least ordinal whose made-up id may be free. It only grows, so that ids which a server has taken beforehand cost
    /// one look each and not one per call.
    ordinal: usize,
    has_text: bool,
    has_nameless_call: bool,
    any_started: bool,
}

/// The text or reasoning block that takes deltas.
#[derive(Debug)]
struct Open {
    kind: Kind,
    slot: Slot,
    joiner: Joiner,
    signature: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

impl Blocks {
    /// True when a block was started.
    pub const fn any_started(&self) -> bool {
        self.any_started
    }

    /// What there is of a complete answer.
    pub fn said(&self) -> Said {
        Said { nameless_call: self.has_nameless_call, call: self.calls > 0, text: self.has_text }
    }

    /// Takes a part. Parts with data of other kinds are skipped. When all it does is to add one string to the open block,
    /// and it would do no more if it came again with another, it says so.
    pub fn part<'a>(&mut self, part: &'a RawValue, facts: &ResponseFacts, out: &mut Chunks) -> Option<Added<'a>> {
        let names = ["text", "thought", "thoughtSignature", "functionCall"];
        let [text, thought, signature, call] = members_of(part, names)?;
        let text = text.filter(|text| is_string(text));
        let signature = filled(signature).filter(|signature| is_signature(signature));
        let kind = if thought.is_some_and(|thought| thought.get() == "true") { Kind::Reasoning } else { Kind::Text };
        let said = text.filter(|text| says_something(text));
        if let Some(text) = said {
            self.text(kind, text.get(), signature.clone().filter(|_| call.is_none()), out);
        } else if call.is_none() && signature.is_some() && (text.is_some() || !has_other_data(part)) {
            // The signature of what came before, or of nothing that shows.
            self.text(kind, "\"\"", signature.clone(), out);
        }
        if let Some(call) = call {
            self.call(call, signature, facts, out);
            return None;
        }
        // One block is open at a time.
        said.map(|text| Added::new(0, text))
    }

    /// Does once more what [`Blocks::part`] did last, with another string. False when that cannot be done so simply: then
    /// nothing was done.
    pub fn repeat<const COUNTS: usize>(&mut self, repeated: &Repeated<'_, COUNTS>, out: &mut Chunks) -> bool {
        let Some(open) = self.open.as_ref().filter(|open| !open.joiner.holds_half()) else { return false };
        out.delta(open.slot, &repeated.string);
        self.has_text |= open.kind == Kind::Text && !repeated.string.trim().is_empty();
        true
    }

    /// `json_string` is the JSON text of a string.
    fn text(&mut self, kind: Kind, json_string: &str, signature: Option<String>, out: &mut Chunks) {
        // Two parts that are both signed stay two parts.
        let continues = |open: &Open| {
            let both = open.signature.as_ref().zip(signature.as_ref());
            open.kind == kind && both.is_none_or(|(known, new)| known == new)
        };
        if !self.open.as_ref().is_some_and(continues) {
            self.close(out);
            let slot = match kind {
                Kind::Text => out.start_text(),
                Kind::Reasoning => out.start_reasoning(),
            };
            self.any_started = true;
            self.open = Some(Open { kind, slot, joiner: Joiner::default(), signature: None });
        }
        if let Some(open) = &mut self.open {
            let text = open.joiner.push(json_string);
            out.delta(open.slot, &text);
            open.signature = open.signature.take().or(signature);
            self.has_text |= kind == Kind::Text && !text.trim().is_empty();
        }
    }

    fn call(&mut self, call: &RawValue, signature: Option<String>, facts: &ResponseFacts, out: &mut Chunks) {
        self.close(out);
        let [id, name, arguments] = members_of(call, ["id", "name", "args"]).unwrap_or_default();
        let Some(name) = filled(name) else {
            self.has_nameless_call = true;
            return;
        };
        let mut id = filled(id).unwrap_or_default();
        self.ordinal = self.ordinal.max(self.calls);
        while id.is_empty() || self.ids.contains(&id) {
            id = made_up_id(facts.response_id.as_deref(), self.ordinal);
            self.ordinal += 1;
        }
        let slot = out.start_tool_call(&id, &name);
        self.any_started = true;
        self.calls += 1;
        self.ids.insert(id);
        // What is no object is kept as it is and never runs.
        out.delta(slot, &replace_lone_surrogates(arguments.map_or("{}", RawValue::get)));
        out.end(slot, Some(call_entry(signature)));
    }

    /// The block that takes deltas is complete.
    pub fn close(&mut self, out: &mut Chunks) {
        if let Some(Open { kind, slot, mut joiner, signature }) = self.open.take() {
            self.has_text |= flush(slot, &mut joiner, out) && kind == Kind::Text;
            out.end(
                slot,
                Some(match kind {
                    Kind::Text => text_entry(signature),
                    Kind::Reasoning => reasoning_entry(signature),
                }),
            );
        }
    }
}

/// True for a part with data that this adapter has no block for.
fn has_other_data(part: &RawValue) -> bool {
    let names = ["inlineData", "fileData", "executableCode", "codeExecutionResult", "functionResponse"];
    members_of(part, names).is_some_and(|found| found.iter().any(Option::is_some))
}
