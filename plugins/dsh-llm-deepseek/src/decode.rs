//! From the events of a response to chunks.
//!
//! `finish_reason` is the terminal event; once it and the usage, or `[DONE]`, have come, the response is over and the
//! end of the connection is not awaited. While the server is busy it sends comments, which are nothing here.

use dsh_plugin_api::json::{Joiner, Raw};
use dsh_plugin_api::kit::body;
use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::kit::lenient::{count, elements, filled, is_string, members, members_of};
use dsh_plugin_api::kit::repeat::{Added, Repeat, Repeated};
use dsh_plugin_api::kit::streaming::{Said, flush, made_up_id, says_something};
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{BlockType, Failure, FailureCode, FinishReason, Target, Usage};
use dsh_plugin_api::{Chunks, Slot, StreamEnd};
use serde_json::value::RawValue;

use crate::envelope::{ResponseFacts, StopReason, entry};

/// How long usage or `[DONE]` is waited for after the finish reason, in milliseconds.
const USAGE_PATIENCE_MS: u32 = 3_000;

/// How many counts a usage has; see [`counts`].
const COUNTS: usize = 4;

/// What is read nowhere and differs in every event: a sum tells nothing that its parts do not, nor does what was not in
/// the cache.
const UNREAD: &[&str] = &["\"total_tokens\":", "\"prompt_cache_miss_tokens\":"];

/// Where text and reasoning stand for [`Repeat`]; calls stand at their places.
const OPEN: usize = usize::MAX;

/// The answer as far as it came.
#[derive(Debug)]
pub struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
    /// In the order of their slots; calls without a name are none.
    calls: Vec<Call>,
    /// The text or reasoning block that takes deltas.
    open: Option<(Slot, BlockType, Joiner)>,
    any_block: bool,
    has_text: bool,
    finish: Option<String>,
    has_usage: bool,
    repeat: Repeat<COUNTS>,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    slot: Option<Slot>,
    id: String,
    name: String,
    /// Arguments that came before the name.
    early: String,
    joiner: Joiner,
}

impl Answer {
    /// Nothing so far.
    pub(crate) fn new(head: HeadFacts, target: &Target) -> Self {
        Self {
            head,
            facts: ResponseFacts { target: target.clone(), response_model: None, response_id: None },
            calls: Vec::new(),
            open: None,
            any_block: false,
            has_text: false,
            finish: None,
            has_usage: false,
            repeat: Repeat::new(UNREAD),
        }
    }

    fn object(&mut self, data: &str, event: &str, out: &mut Chunks) {
        self.repeat.forget();
        let Ok(found) = members(data, ["error", "id", "model", "usage", "choices"]) else {
            return self.fail(errors::malformed(&self.head, data), out);
        };
        let Some([error, id, model, usage, choices]) = found else { return };
        if (error.is_some() || choices.is_none())
            && let Ok(value) = serde_json::from_str::<&RawValue>(data)
            && let Some(error) = errors::error_of(value, error, event)
        {
            return self.fail(errors::in_stream(&self.head, error), out);
        }
        if self.facts.response_id.is_none() {
            self.facts.response_id = filled(id);
        }
        if self.facts.response_model.is_none() {
            self.facts.response_model = filled(model).filter(|model| *model != self.facts.target.model);
        }
        let counts = counts(usage);
        self.usage(counts.map(count), out);
        let choice = elements(choices).into_iter().next();
        let mut added = None;
        if let Some([delta, message, finish]) =
            choice.and_then(|choice| members_of(choice, ["delta", "message", "finish_reason"]))
        {
            if let Some(delta) = delta {
                added = self.delta(delta, out);
            } else if let Some(message) = message.filter(|_| !self.any_block) {
                self.delta(message, out);
            }
            if let Some(finish) = filled(finish).filter(|_| self.finish.is_none()) {
                self.close_all(out);
                self.finish = Some(finish);
            }
        }
        if let Some(added) = added.filter(|_| error.is_none() && self.finish.is_none()) {
            // What it says of the response as a whole is known by now.
            self.repeat.learn(data, added, counts);
        }
        match &self.finish {
            Some(finish) if self.has_usage && is_known(finish) => self.conclude(out),
            Some(finish) if is_known(finish) => out.end_within(USAGE_PATIENCE_MS),
            _ => {}
        }
    }

    /// Takes a delta, or the message of a whole answer. When all it does is to add one string to a block, and it would do
    /// no more if it came again with another, it says so.
    fn delta<'a>(&mut self, delta: &'a RawValue, out: &mut Chunks) -> Option<Added<'a>> {
        let [reasoning, content, calls] = members_of(delta, ["reasoning_content", "content", "tool_calls"])?;
        let (mut added, mut done) = (None, 0);
        for (kind, value) in [(BlockType::Reasoning, reasoning), (BlockType::Text, content)] {
            if let Some(value) = value.filter(|value| says_something(value)) {
                self.text(kind, value, out);
                (added, done) = (Some(Added::new(OPEN, value)), done + 1);
            }
        }
        for call in elements(calls) {
            if let Some([index, id, function]) = members_of(call, ["index", "id", "function"]) {
                added = self.call(count(index), &filled(id).unwrap_or_default(), function, out);
                done += 1;
            }
        }
        added.filter(|_| done == 1)
    }

    /// Does once more what [`Answer::delta`] did last, with another string. False when that cannot be done so simply: then
    /// nothing was done.
    fn append(&mut self, repeated: &Repeated<'_, COUNTS>, out: &mut Chunks) -> bool {
        let text = &*repeated.string;
        let (slot, joiner, is_text) = match &self.open {
            Some((slot, kind, joiner)) if repeated.place == OPEN => (Some(*slot), joiner, *kind == BlockType::Text),
            _ => match self.calls.get(repeated.place) {
                Some(Call { slot, joiner, .. }) => (*slot, joiner, false),
                None => return false,
            },
        };
        let Some(slot) = slot.filter(|_| !joiner.holds_half()) else { return false };
        out.delta(slot, text);
        self.has_text |= is_text && !text.trim().is_empty();
        true
    }

    fn text(&mut self, kind: BlockType, value: &RawValue, out: &mut Chunks) {
        if self.open.as_ref().is_none_or(|(_, open, _)| *open != kind) {
            self.close_open(out);
            let slot = if kind == BlockType::Text { out.start_text() } else { out.start_reasoning() };
            self.open = Some((slot, kind, Joiner::default()));
            self.any_block = true;
        }
        if let Some((slot, _, joiner)) = &mut self.open {
            let text = joiner.push(value.get());
            out.delta(*slot, &text);
            self.has_text |= kind == BlockType::Text && !text.trim().is_empty();
        }
    }

    fn call<'a>(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: Option<&'a RawValue>,
        out: &mut Chunks,
    ) -> Option<Added<'a>> {
        let [name, arguments] = function.and_then(|value| members_of(value, ["name", "arguments"])).unwrap_or_default();
        let name = filled(name).unwrap_or_default();
        // A delta belongs to the call of its index, unless it begins another one.
        let begins = |call: &Call| !id.is_empty() && !call.id.is_empty() && call.id != id && !name.is_empty();
        let place = self.calls.iter().rposition(|call| call.index == index).filter(|place| {
            let call = self.calls.get(*place);
            call.is_some_and(|call| !begins(call))
        });
        let place = place.unwrap_or_else(|| {
            self.close_open(out);
            let call = Call {
                index,
                slot: None,
                id: String::new(),
                name: String::new(),
                early: String::new(),
                joiner: Joiner::default(),
            };
            self.calls.push(call);
            self.calls.len() - 1
        });
        let only_adds = id.is_empty() && name.is_empty();
        let call = self.calls.get_mut(place)?;
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            call.name = name;
        }
        let text = match arguments {
            Some(arguments) if is_string(arguments) => call.joiner.push(arguments.get()),
            Some(arguments) => arguments.get().to_owned(),
            None => String::new(),
        };
        match call.slot {
            Some(slot) => {
                out.set_call(slot, &call.id, &call.name);
                if !text.is_empty() {
                    out.delta(slot, &text);
                }
            }
            None => {
                call.early.push_str(&text);
                if !call.name.is_empty() {
                    if call.id.is_empty() {
                        call.id = made_up_id(self.facts.response_id.as_deref(), place);
                    }
                    let slot = out.start_tool_call(&call.id, &call.name);
                    out.delta(slot, &call.early);
                    call.slot = Some(slot);
                    self.any_block = true;
                }
            }
        }
        arguments.filter(|_| only_adds).map(|arguments| Added::new(place, arguments))
    }

    fn close_open(&mut self, out: &mut Chunks) {
        if let Some((slot, kind, mut joiner)) = self.open.take() {
            self.has_text |= flush(slot, &mut joiner, out) && kind == BlockType::Text;
            out.end(slot, Some(entry(kind.name())));
        }
    }

    fn close_all(&mut self, out: &mut Chunks) {
        self.close_open(out);
        for call in &mut self.calls {
            if let Some(slot) = call.slot {
                flush(slot, &mut call.joiner, out);
                out.end(slot, Some(entry(BlockType::ToolCall.name())));
            }
        }
    }

    /// Takes the counts, made disjoint: what was read from the cache is not input.
    fn usage(&mut self, [prompt, completion, hit, reasoning]: [Option<u64>; COUNTS], out: &mut Chunks) {
        let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
        if prompt == 0 && completion == 0 {
            return;
        }
        out.usage(Usage {
            input_tokens: prompt.saturating_sub(hit.unwrap_or(0)),
            output_tokens: completion,
            cache_read_tokens: hit,
            cache_write_tokens: None,
            reasoning_tokens: reasoning,
        });
        self.has_usage = true;
    }

    /// Ends a response whose finish reason is known.
    fn conclude(&mut self, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        self.close_all(out);
        let finish = self.finish.as_deref().unwrap_or_default();
        let failure = match finish {
            "length" => return out.finish(&FinishReason::MaxTokens, Some(self.facts.half(StopReason::Length))),
            "content_filter" => {
                self.head.failure(FailureCode::Refused, "the provider stopped the answer: finish_reason content_filter")
            }
            "insufficient_system_resource" => self.head.failure(
                FailureCode::Server,
                "the provider ran out of resources: finish_reason insufficient_system_resource",
            ),
            _ => {
                let said = Said {
                    nameless_call: self.calls.iter().any(|call| call.slot.is_none()),
                    call: !self.calls.is_empty(),
                    text: self.has_text,
                };
                match said.finish(&self.head) {
                    Ok(reason) => {
                        let stop = if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
                        return out.finish(&reason, Some(self.facts.half(stop)));
                    }
                    Err(failure) => failure,
                }
            }
        };
        self.fail(failure, out);
    }

    fn fail(&self, failure: Failure, out: &mut Chunks) {
        out.fail(failure, body::Answer::partial_half(self));
    }
}

/// The values of the counts of a usage, as they were written: prompt, completion, read from the cache, reasoning.
fn counts(usage: Option<&RawValue>) -> [Option<&RawValue>; COUNTS] {
    let names = ["prompt_tokens", "completion_tokens", "prompt_cache_hit_tokens", "completion_tokens_details"];
    let Some([prompt, completion, hit, details]) = usage.and_then(|usage| members_of(usage, names)) else {
        return [None; COUNTS];
    };
    let [reasoning] = details.and_then(|details| members_of(details, ["reasoning_tokens"])).unwrap_or_default();
    [prompt, completion, hit, reasoning]
}

/// Finish reasons of the documentation. Another one ends the answer only together with `[DONE]`.
fn is_known(finish: &str) -> bool {
    matches!(finish, "stop" | "length" | "content_filter" | "tool_calls" | "insufficient_system_resource")
}

impl body::Answer for Answer {
    fn head(&self) -> &HeadFacts {
        &self.head
    }

    fn event(&mut self, event: &SseEvent, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        match event.data.trim() {
            "" => {}
            "[DONE]" if self.finish.is_some() => self.conclude(out),
            "[DONE]" => {
                let message = "the provider ended the stream without a finish reason";
                self.fail(self.head.failure(FailureCode::Transport, message), out);
            }
            data => match self.repeat.repeated(data) {
                Some(repeated) if self.append(&repeated, out) => self.usage(repeated.counts, out),
                _ => self.object(data, &event.name, out),
            },
        }
    }

    fn whole(&mut self, text: &str, out: &mut Chunks) {
        let text = text.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => {
                self.object(text, "", out);
                if self.finish.is_some() {
                    self.conclude(out);
                } else if !out.is_finished() {
                    let message = "the provider's answer holds no finished choice";
                    self.fail(self.head.failure(FailureCode::Protocol, message), out);
                }
            }
            // What is missing was lost on the way; `end` says so.
            Err(e) if e.is_eof() => {}
            Err(_) => self.fail(errors::malformed(&self.head, text), out),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        if self.finish.as_deref().is_some_and(is_known) {
            return self.conclude(out);
        }
        self.fail(errors::unfinished(&self.head, end), out);
    }

    fn partial_half(&self) -> Option<Raw> {
        self.any_block.then(|| self.facts.half(StopReason::Stop))
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::{Decoder as _, ResponseHead};

    use super::*;

    #[test]
    fn events_of_a_steady_stream_are_compared_and_not_read() {
        let target = Target { provider: "d".to_owned(), model: "m".to_owned() };
        let head = || HeadFacts::read(&ResponseHead::Http { status: 200, headers: Vec::new() }).unwrap();
        for (event, next) in [
            (
                r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"prompt_cache_miss_tokens":1,"total_tokens":9}}"#,
                r#"{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"prompt_cache_miss_tokens":2,"total_tokens":10}}"#,
            ),
            (
                r#"{"choices":[{"delta":{"content":null,"reasoning_content":"a"}}]}"#,
                r#"{"choices":[{"delta":{"content":null,"reasoning_content":"b"}}]}"#,
            ),
        ] {
            let mut decoder = body::BodyDecoder::new(Answer::new(head(), &target));
            let mut out = Chunks::new();
            decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut out);
            assert!(decoder.answer_mut().repeat.repeated(next).is_some(), "{next}");
        }
    }
}
