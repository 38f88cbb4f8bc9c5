//! From the bytes of a response to chunks.
//!
//! A response is an event stream, a whole JSON answer, or a refusal. The first two are read by the same code, an
//! answer like a stream of one event. `finish_reason` is the terminal event of this wire: once it was seen, and the
//! usage that was asked for or `[DONE]` has come, the response is over and the end of the connection is not awaited.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::kit::body::Answer as _;
use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::{HeadFacts, excerpt};
use dsh_plugin_api::kit::lenient::{count, elements, filled, is_object, is_plainly, members_of, repaired};
use dsh_plugin_api::kit::repeat::Repeat;
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason, Target, Usage};
use dsh_plugin_api::{Chunks, StreamEnd};
use serde_json::value::RawValue;

use super::blocks::Blocks;
use super::event::{Choice, Delta, Event, First};
use crate::config::ApiName;
use crate::envelope::{ResponseFacts, StopReason};

/// Longest excerpt of an answer in a message, in characters.
const EXCERPT_LIMIT: usize = 300;

/// How many counts a usage has; see [`counts`].
const COUNTS: usize = 5;

/// What is read nowhere and differs in every event: OpenAI pads its events so that their lengths say nothing of their
/// text, and a sum tells nothing that its parts do not.
const UNREAD: &[&str] = &["\"obfuscation\":", "\"total_tokens\":"];

/// Decoder of one response.
pub(crate) type Decoder = dsh_plugin_api::kit::body::BodyDecoder<Answer>;

/// A decoder for a response of `api`, this wire or one that answers like it. `expects_usage`: the stream tells the
/// usage.
pub(crate) fn decoder(api: ApiName, head: HeadFacts, target: &Target, expects_usage: bool) -> Decoder {
    let facts = ResponseFacts::new(api, target.clone());
    Decoder::new(Answer {
        head,
        facts,
        expects_usage,
        blocks: Blocks::default(),
        ended: None,
        usage_at_end: false,
        repeat: Repeat::new(UNREAD),
    })
}

/// How the provider says that the answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// The model was done, or calls tools.
    Done,
    /// The output limit.
    Limit,
    /// A filter.
    Filtered(String),
    /// The provider gave up.
    Failed(String),
    /// A reason that nobody knows: an end only when the wire's terminal mark follows.
    Unknown(String),
}

impl Ended {
    fn of(reason: String) -> Self {
        match reason.to_ascii_lowercase().as_str() {
            "stop" | "end" | "end_turn" | "stop_sequence" | "tool_calls" | "tool_use" | "function_call" => Self::Done,
            "length" | "max_tokens" | "max_output_tokens" | "model_length" | "model_context_window_exceeded" => {
                Self::Limit
            }
            "content_filter" | "sensitive" | "safety" => Self::Filtered(reason),
            "error" | "network_error" | "abort" | "insufficient_system_resource" => Self::Failed(reason),
            _ => Self::Unknown(reason),
        }
    }
}

/// How long usage or `[DONE]` is waited for after the finish reason. Some servers send neither and keep the connection
/// open.
const USAGE_PATIENCE_MS: u32 = 3_000;

/// The answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
    expects_usage: bool,
    blocks: Blocks,
    ended: Option<Ended>,
    /// Usage came with the finish reason or after it.
    usage_at_end: bool,
    repeat: Repeat<COUNTS>,
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
            "" => {}
            "[DONE]" => self.terminal_mark(out),
            data => match self.repeat.repeated(data) {
                Some(repeated) if self.blocks.repeat(&repeated, out) => {
                    usage_of(repeated.counts).into_iter().for_each(|usage| out.usage(usage));
                }
                _ => self.object(data, &event.name, out),
            },
        }
    }

    /// Its end is the terminal mark.
    fn whole(&mut self, text: &str, out: &mut Chunks) {
        let text = text.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str::<&RawValue>(text) {
            Ok(value) => {
                // Some gateways wrap an error into a list.
                let value = elements(Some(value)).into_iter().next().unwrap_or(value);
                self.object(value.get(), "", out);
                if self.ended.is_none() && self.blocks.any_started() {
                    // A document that parses is whole, whether or not it says so.
                    self.end_with(Ended::Done, out);
                }
                if self.ended.is_some() {
                    self.terminal_mark(out);
                } else if !out.is_finished() {
                    let message = format!("the provider's answer holds no choice: {}", excerpt(text, EXCERPT_LIMIT));
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
        if self.ended.as_ref().is_some_and(|ended| !matches!(ended, Ended::Unknown(_))) {
            return self.conclude(out);
        }
        self.fail(errors::unfinished(&self.head, end), out);
    }

    fn partial_half(&self) -> Option<Raw> {
        self.blocks.any_started().then(|| self.facts.half(StopReason::Stop))
    }
}

impl Answer {
    /// One object of the wire: a chunk of a stream, or the whole answer.
    fn object(&mut self, data: &str, event: &str, out: &mut Chunks) {
        self.repeat.forget();
        let Ok(found) = Event::read(data) else {
            return match repaired(data) {
                Some(repaired) => self.object(&repaired, event, out),
                None if event == "error" => self.fail(errors::unreadable(&self.head, data), out),
                None => self.fail(errors::malformed(&self.head, data), out),
            };
        };
        let Some(Event { error, id, model, usage, choices }) = found else { return };
        let is_plain = error.is_none() && choices.is_some();
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
            let asked = &self.facts.target.model;
            let other = model.filter(|model| !is_plainly(model, asked));
            self.facts.response_model = filled(other).filter(|model| model != asked);
        }
        let counts = counts(usage);
        let mut got_usage = take(&counts, out);
        let mut is_repeatable = is_plain;
        let choice = choices.and_then(|First(choice)| choice);
        let mut added = None;
        if let Some(Choice { usage: choice_usage, error, delta, message, finish_reason }) = choice {
            if let Some(error) = error.filter(|error| is_object(error)) {
                return self.fail(errors::in_stream(&self.head, error), out);
            }
            got_usage |= !got_usage && take(&self::counts(choice_usage), out);
            is_repeatable &= choice_usage.is_none();
            if let Some(delta) = delta {
                added = self.blocks.delta(&delta, &self.facts, out);
            } else if let Some(message) = message.filter(|_| !self.blocks.any_started()) {
                // Beside or after deltas a `message` only repeats what they said.
                self.blocks.delta(&Delta::of_message(message), &self.facts, out);
            }
            if let Some(reason) = filled(finish_reason) {
                self.end_with(Ended::of(reason), out);
            }
        }
        match added {
            // What it says of the response as a whole is known by now.
            Some(added) if is_repeatable && self.ended.is_none() => self.repeat.learn(data, added, counts),
            _ => {}
        }
        if self.ended.is_some() {
            self.usage_at_end |= got_usage;
            let known = !matches!(self.ended, Some(Ended::Unknown(_)));
            if known && (self.usage_at_end || !self.expects_usage) {
                self.conclude(out);
            } else if known {
                out.end_within(USAGE_PATIENCE_MS);
            }
        }
    }

    /// The finish reason: every block is complete. The first one counts.
    fn end_with(&mut self, ended: Ended, out: &mut Chunks) {
        if self.ended.is_none() {
            self.blocks.close_all(out);
            self.ended = Some(ended);
        }
    }

    /// `[DONE]`, or the end of a whole answer. Without a finish reason the answer is not known to be complete:
    /// gateways write the mark also after an upstream connection broke.
    fn terminal_mark(&mut self, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        if self.ended.is_some() {
            self.conclude(out);
        } else {
            self.fail(
                self.head.failure(FailureCode::Transport, "the provider ended the stream without a finish reason"),
                out,
            );
        }
    }

    /// Ends a response whose finish reason is known.
    fn conclude(&mut self, out: &mut Chunks) {
        self.blocks.close_all(out);
        let Some(ended) = &self.ended else { return };
        let ended = match ended {
            Ended::Filtered(reason) => Err(self
                .head
                .failure(FailureCode::Refused, format!("the provider stopped the answer: finish_reason {reason}"))),
            Ended::Failed(reason) => {
                Err(self.head.failure(FailureCode::Server, format!("the provider gave up: finish_reason {reason}")))
            }
            Ended::Limit => Ok(FinishReason::MaxTokens),
            Ended::Done | Ended::Unknown(_) => self.blocks.said().finish(&self.head),
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

/// The values of the counts of a usage, as they were written: prompt, completion, read from a cache, written to one,
/// reasoning. Servers have several names for the third and fourth; the first that holds a count is taken, and an
/// absent one otherwise.
fn counts(usage: Option<&RawValue>) -> [Option<&RawValue>; COUNTS] {
    let names = [
        "prompt_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "prompt_cache_hit_tokens",
        "cached_tokens",
        "num_cached_tokens",
        "reasoning_tokens",
    ];
    let Some([prompt, completion, prompt_details, completion_details, hit, cached, number_cached, thought]) =
        usage.and_then(|usage| members_of(usage, names))
    else {
        return [None; COUNTS];
    };
    // The last name is LiteLLM's.
    let [read, write, created] = prompt_details
        .and_then(|details| members_of(details, ["cached_tokens", "cache_write_tokens", "cache_creation_tokens"]))
        .unwrap_or_default();
    let [reasoning] =
        completion_details.and_then(|details| members_of(details, ["reasoning_tokens"])).unwrap_or_default();
    let cache_read = first_count([read, hit, cached, number_cached]);
    [prompt, completion, cache_read, first_count([write, created]), first_count([reasoning, thought])]
}

fn first_count<const N: usize>(values: [Option<&RawValue>; N]) -> Option<&RawValue> {
    values.into_iter().find(|value| count(*value).is_some()).flatten()
}

/// Takes the counts; true when there are any.
fn take(counts: &[Option<&RawValue>; COUNTS], out: &mut Chunks) -> bool {
    let usage = usage_of(counts.map(count));
    usage.into_iter().for_each(|usage| out.usage(usage));
    usage.is_some()
}

/// The counts made disjoint: what was read from or written to a cache is not input. `None` for empty counts, which some
/// servers put into every chunk; they are no final usage.
fn usage_of([prompt, completion, cache_read, cache_write, reasoning]: [Option<u64>; COUNTS]) -> Option<Usage> {
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    (prompt != 0 || completion != 0).then(|| Usage {
        input_tokens: prompt.saturating_sub(cache_read.unwrap_or(0)).saturating_sub(cache_write.unwrap_or(0)),
        output_tokens: completion,
        cache_read_tokens: cache_read,
        cache_write_tokens: cache_write,
        reasoning_tokens: reasoning,
    })
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
                r#"{"choices":[{"delta":{"content":"a"}}],"obfuscation":"xyz"}"#,
                r#"{"choices":[{"delta":{"content":"b"}}],"obfuscation":""}"#,
            ),
            (
                r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"\n"}}]}"#,
            ),
            (
                r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}"#,
                r#"{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":9,"completion_tokens":10,"total_tokens":19}}"#,
            ),
            (
                r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"a"}]}]}}]}"#,
                r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":"b"}]}]}}]}"#,
            ),
        ] {
            let mut decoder = decoder(ApiName::OpenaiCompletions, head(), &target(), true);
            let mut out = Chunks::new();
            decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut out);
            assert!(decoder.answer_mut().repeat.repeated(next).is_some(), "{next}");
        }
    }
}
