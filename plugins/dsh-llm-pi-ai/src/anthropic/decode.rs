//! From the events of a response to chunks.
//!
//! The `type` of the data names an event, or the event's own name where the data has none. `message_stop` is the
//! terminal event of this wire: with it the response is over and the end of the connection is not awaited; without it
//! no answer is complete.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::kit::body::Answer as _;
use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::{HeadFacts, excerpt};
use dsh_plugin_api::kit::lenient::{count, elements, filled, members, members_of, repaired};
use dsh_plugin_api::kit::repeat::Repeat;
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason, Target, Usage};
use dsh_plugin_api::{Chunks, StreamEnd};
use serde_json::value::RawValue;

use super::blocks::Blocks;
use crate::config::ApiName;
use crate::envelope::{ResponseFacts, StopReason};

/// Longest excerpt of an answer in a message, in characters.
const EXCERPT_LIMIT: usize = 300;

/// Decoder of one response.
pub(crate) type Decoder = dsh_plugin_api::kit::body::BodyDecoder<Answer>;

/// A decoder for a response to a request of this target.
pub(super) fn decoder(head: HeadFacts, target: &Target) -> Decoder {
    let facts = ResponseFacts::new(ApiName::AnthropicMessages, target.clone());
    Decoder::new(Answer {
        head,
        facts,
        blocks: Blocks::default(),
        ended: None,
        counts: Counts::default(),
        repeat: Repeat::new(&[]),
    })
}

/// How the provider says that the answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// The model was done, calls tools, or stopped for a reason that nobody knows.
    Done,
    /// The output limit, or the end of the window.
    Limit,
    /// A refusal or a filter, with what is said about it.
    Filtered(String),
    /// The provider gave up.
    Failed(String),
}

impl Ended {
    /// Reads a stop reason. `details` say more about a refusal.
    fn of(reason: &str, details: Option<&RawValue>) -> Self {
        match reason {
            "max_tokens" | "model_context_window_exceeded" | "length" => Self::Limit,
            "refusal" | "sensitive" | "content_filter" => {
                let explanation = details.and_then(|details| members_of(details, ["explanation"])?[0]);
                let explanation = filled(explanation).filter(|text| !text.trim().is_empty());
                Self::Filtered(
                    explanation.unwrap_or_else(|| format!("the provider stopped the answer: stop_reason {reason}")),
                )
            }
            "error" | "network_error" | "abort" => Self::Failed(reason.to_owned()),
            _ => Self::Done,
        }
    }
}

/// Token counts as far as they came. A later event overrides what it names.
#[derive(Debug, Default)]
struct Counts {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    reasoning: Option<u64>,
}

impl Counts {
    /// Takes the counts of an event. The provider's are disjoint already.
    fn take(&mut self, usage: &RawValue) {
        let names = [
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "cache_creation",
            "output_tokens_details",
        ];
        let Some([input, output, read, write, by_age, details]) = members_of(usage, names) else { return };
        let ages = ["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"];
        let by_age = by_age.and_then(|by_age| members_of(by_age, ages)).unwrap_or_default().map(count);
        let written = by_age.into_iter().flatten().reduce(u64::saturating_add);
        let [thinking] = details.and_then(|details| members_of(details, ["thinking_tokens"])).unwrap_or_default();
        self.input = count(input).or(self.input);
        self.output = count(output).or(self.output);
        self.cache_read = count(read).or(self.cache_read);
        self.cache_write = count(write).or(written).or(self.cache_write);
        self.reasoning = count(thinking).or(self.reasoning);
    }

    fn usage(&self) -> Option<Usage> {
        (self.input.is_some() || self.output.is_some()).then(|| Usage {
            input_tokens: self.input.unwrap_or(0),
            output_tokens: self.output.unwrap_or(0),
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
        })
    }
}

/// The answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
    blocks: Blocks,
    ended: Option<Ended>,
    counts: Counts,
    repeat: Repeat<0>,
}

impl dsh_plugin_api::kit::body::Answer for Answer {
    fn head(&self) -> &HeadFacts {
        &self.head
    }

    fn event(&mut self, event: &SseEvent, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        match event.data.trim() {
            // A mark of another wire, which gateways add.
            "" | "[DONE]" => {}
            data => match self.repeat.repeated(data) {
                Some(repeated) if self.blocks.repeat(&repeated, out) => {}
                _ => self.object(data, &event.name, out),
            },
        }
    }

    fn whole(&mut self, text: &str, out: &mut Chunks) {
        let text = text.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str::<&RawValue>(text) {
            Ok(value) => {
                // Some gateways wrap an error into a list.
                let value = elements(Some(value)).into_iter().next().unwrap_or(value);
                if let Some([content]) = members_of(value, ["content"])
                    && content.is_some()
                {
                    return self.message(value, out);
                }
                self.object(value.get(), "", out);
                if !out.is_finished() {
                    let message = format!("the provider's answer holds no content: {}", excerpt(text, EXCERPT_LIMIT));
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
        self.fail(errors::unfinished(&self.head, end), out);
    }

    fn partial_half(&self) -> Option<Raw> {
        self.blocks.any_started().then(|| self.facts.half(StopReason::Stop))
    }
}

impl Answer {
    /// The data of one event.
    fn object(&mut self, data: &str, event: &str, out: &mut Chunks) {
        self.repeat.forget();
        let names = ["type", "error", "request_id", "message", "index", "content_block", "delta", "usage"];
        let Ok(found) = members(data, names) else {
            return match repaired(data) {
                Some(repaired) => self.object(&repaired, event, out),
                None if event == "error" => self.fail(errors::unreadable(&self.head, data), out),
                None => self.fail(errors::malformed(&self.head, data), out),
            };
        };
        let Some([kind, error, request_id, message, index, block, delta, usage]) = found else { return };
        let named = filled(kind);
        // The name beside the data is not compared.
        let is_named = named.is_some();
        let kind = named.unwrap_or_else(|| event.to_owned());
        let index = count(index);
        match kind.as_str() {
            "message_start" => {
                if let Some([id, model, usage]) = message.and_then(|value| members_of(value, ["id", "model", "usage"]))
                {
                    self.identify(id, model);
                    self.usage(usage, out);
                }
            }
            "content_block_start" => {
                if let Some(block) = block {
                    self.blocks.start(index, block, &self.facts, out);
                }
            }
            "content_block_delta" => {
                if let Some(added) = delta.and_then(|delta| self.blocks.delta(index, delta, out)).filter(|_| is_named) {
                    self.repeat.learn(data, added, []);
                }
            }
            "content_block_stop" => self.blocks.stop(index, out),
            "message_delta" => {
                self.usage(usage, out);
                let names = ["stop_reason", "stop_details"];
                let [reason, details] = delta.and_then(|delta| members_of(delta, names)).unwrap_or_default();
                self.stopped(reason, details);
            }
            "message_stop" => self.conclude(out),
            "ping" => {}
            _ if kind == "error" || event == "error" || error.is_some() => {
                self.error(data, error, request_id, out);
            }
            _ => {
                let value = serde_json::from_str::<&RawValue>(data).ok();
                if value.is_some_and(|value| errors::error_of(value, None, "").is_some()) {
                    self.error(data, None, request_id, out);
                }
            }
        }
    }

    /// A whole message: what a server sends that does not stream.
    fn message(&mut self, message: &RawValue, out: &mut Chunks) {
        let names = ["id", "model", "usage", "content", "stop_reason", "stop_details"];
        let Some([id, model, usage, content, reason, details]) = members_of(message, names) else { return };
        self.identify(id, model);
        self.usage(usage, out);
        self.blocks.whole(content, &self.facts, out);
        self.stopped(reason, details);
        // A document that parses is whole, whether or not it says so.
        self.ended.get_or_insert(Ended::Done);
        self.conclude(out);
    }

    fn identify(&mut self, id: Option<&RawValue>, model: Option<&RawValue>) {
        if self.facts.response_id.is_none() {
            self.facts.response_id = filled(id);
        }
        if self.facts.response_model.is_none() {
            self.facts.response_model = filled(model).filter(|model| *model != self.facts.target.model);
        }
    }

    fn usage(&mut self, usage: Option<&RawValue>, out: &mut Chunks) {
        if let Some(usage) = usage {
            self.counts.take(usage);
            if let Some(usage) = self.counts.usage() {
                out.usage(usage);
            }
        }
    }

    /// The stop reason. The first one counts.
    fn stopped(&mut self, reason: Option<&RawValue>, details: Option<&RawValue>) {
        if self.ended.is_none() {
            self.ended = filled(reason).map(|reason| Ended::of(&reason, details));
        }
    }

    /// An `error` event. The request id stands beside the error.
    fn error(&self, data: &str, error: Option<&RawValue>, request_id: Option<&RawValue>, out: &mut Chunks) {
        let error = serde_json::from_str::<&RawValue>(data)
            .ok()
            .and_then(|value| errors::error_of(value, error, "error"))
            .map_or_else(|| errors::unreadable(&self.head, data), |error| errors::in_stream(&self.head, error));
        let request_id = error.request_id.clone().or_else(|| filled(request_id));
        self.fail(Failure { request_id, ..error }, out);
    }

    /// Ends a response whose terminal event has come.
    fn conclude(&mut self, out: &mut Chunks) {
        let Some(ended) = &self.ended else {
            // Gateways write the terminal event also after an upstream connection broke.
            let message = "the provider ended the answer without a stop reason";
            return self.fail(self.head.failure(FailureCode::Transport, message), out);
        };
        self.blocks.close_all(out);
        let ended = match ended {
            Ended::Filtered(explanation) => Err(self.head.failure(FailureCode::Refused, explanation)),
            Ended::Failed(reason) => {
                Err(self.head.failure(FailureCode::Server, format!("the provider gave up: stop_reason {reason}")))
            }
            Ended::Limit => Ok(FinishReason::MaxTokens),
            Ended::Done => self.blocks.said().finish(&self.head),
        };
        self.finish(ended, out);
    }

    fn finish(&self, ended: Result<FinishReason, Failure>, out: &mut Chunks) {
        match ended {
            Ok(reason) => out.finish(&reason, Some(self.facts.half(StopReason::of(&reason)))),
            Err(failure) => self.fail(failure, out),
        }
    }

    /// Ends the response with an error. What was streamed stays; blocks that are still open get no entry.
    fn fail(&self, failure: Failure, out: &mut Chunks) {
        out.fail(failure, self.partial_half());
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::Decoder as _;

    use super::*;
    use crate::testing::{head, target};

    #[test]
    fn events_of_a_steady_stream_are_compared_and_not_read() {
        for (event, next) in [
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}    }"#,
            ),
            (
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"a"}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"b"}}"#,
            ),
        ] {
            let mut decoder = decoder(head(), &target());
            let mut out = Chunks::new();
            decoder.feed(format!("event: content_block_delta\ndata: {event}\n\n").as_bytes(), &mut out);
            assert!(decoder.answer_mut().repeat.repeated(next).is_some(), "{next}");
        }
    }
}
