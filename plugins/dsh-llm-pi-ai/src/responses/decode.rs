//! From the bytes of a response to chunks.
//!
//! A response is an event stream, a whole JSON answer, or a refusal. The first two are read by the same code, an
//! answer like the event that ends a stream. `response.completed`, `response.incomplete` and `response.failed` are the
//! terminal events of this wire: with one of them the response is over and the end of the connection is not awaited.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::kit::body::Answer as _;
use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::{HeadFacts, excerpt};
use dsh_plugin_api::kit::lenient::{count, elements, filled, members, members_of, repaired};
use dsh_plugin_api::kit::repeat::{Added, Repeat};
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason, Target, Usage};
use dsh_plugin_api::{Chunks, StreamEnd};
use serde_json::value::RawValue;

use super::blocks::{Blocks, Key, PartKey};
use super::item::{Facts, Kind};
use crate::config::ApiName;
use crate::envelope::{ResponseFacts, StopReason};

/// Longest excerpt of an answer in a message, in characters.
const EXCERPT_LIMIT: usize = 300;

/// What is read nowhere and differs in every event: its number, and what OpenAI pads it with so that its length says
/// nothing of its text.
const UNREAD: &[&str] = &["\"sequence_number\":", "\"obfuscation\":"];

/// Decoder of one response.
pub(crate) type Decoder = dsh_plugin_api::kit::body::BodyDecoder<Answer>;

/// A decoder for a response to a request of this target.
pub(super) fn decoder(head: HeadFacts, target: &Target) -> Decoder {
    let facts = ResponseFacts::new(ApiName::OpenaiResponses, target.clone());
    Decoder::new(Answer { head, facts, blocks: Blocks::default(), repeat: Repeat::new(UNREAD) })
}

/// How the provider says that the answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// The model was done, or calls tools.
    Done,
    /// The output limit, or another one.
    Limit,
    /// A filter.
    Filtered(String),
    /// The provider gave up.
    Failed,
    /// Somebody stopped it.
    Cancelled,
}

impl Ended {
    /// By the status of the response where it is one that ends it, else by the name of the event.
    fn of(status: Option<String>, event: &str, incomplete_reason: Option<String>) -> Option<Self> {
        let from = |word: &str| match word {
            "completed" | "done" => Some(Self::Done),
            "incomplete" => Some(match incomplete_reason.clone() {
                Some(reason) if matches!(reason.as_str(), "content_filter" | "safety") => Self::Filtered(reason),
                _ => Self::Limit,
            }),
            "failed" => Some(Self::Failed),
            "cancelled" | "canceled" => Some(Self::Cancelled),
            _ => None,
        };
        let by_event = event.strip_prefix("response.").and_then(from);
        status.as_deref().and_then(from).or(by_event)
    }
}

/// The members of an event that count, whichever it is.
#[derive(Debug)]
struct Event<'a> {
    name: String,
    /// The name stands in the data.
    is_named: bool,
    error: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    item: Option<&'a RawValue>,
    part: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
    arguments: Option<&'a RawValue>,
    output_index: Option<&'a RawValue>,
    item_id: Option<&'a RawValue>,
    content_index: Option<&'a RawValue>,
    summary_index: Option<&'a RawValue>,
}

impl<'a> Event<'a> {
    /// Reads the data of an event; `name` stands beside it. `Ok(None)` for JSON that is no object.
    fn read(data: &'a str, name: &str) -> serde_json::Result<Option<Self>> {
        let names = [
            "type",
            "error",
            "response",
            "item",
            "part",
            "delta",
            "text",
            "refusal",
            "arguments",
            "output_index",
            "item_id",
            "content_index",
            "summary_index",
        ];
        let found = members(data, names)?;
        Ok(found.map(
            |[
                kind,
                error,
                response,
                item,
                part,
                delta,
                text,
                refusal,
                arguments,
                output_index,
                item_id,
                content_index,
                summary_index,
            ]| {
                let named = filled(kind);
                Self {
                    is_named: named.is_some(),
                    name: named.unwrap_or_else(|| name.to_owned()),
                    error,
                    response,
                    item,
                    part,
                    delta,
                    text,
                    refusal,
                    arguments,
                    output_index,
                    item_id,
                    content_index,
                    summary_index,
                }
            },
        ))
    }

    /// The item that it is about.
    fn key(&self) -> Key {
        Key { index: count(self.output_index), id: filled(self.item_id).unwrap_or_default() }
    }

    /// The part of the item that it is about.
    fn part_key(&self, kind: Kind, is_content: bool) -> Option<PartKey> {
        let index = if is_content { self.content_index } else { self.summary_index };
        count(index).filter(|_| kind != Kind::Call).map(|index| PartKey { is_content, index })
    }

    /// The item that it brings.
    fn item(&self) -> Option<(Key, Facts<'a>)> {
        let facts = Facts::read(self.item?)?;
        let mut key = self.key();
        if !facts.id.is_empty() {
            key.id.clone_from(&facts.id);
        }
        Some((key, facts))
    }
}

/// The answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
    blocks: Blocks,
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
            "" => {}
            // Gateways write it also after an upstream connection broke.
            "[DONE]" => {
                let message = "the provider ended the stream without a terminal event";
                self.fail(self.head.failure(FailureCode::Transport, message), out);
            }
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
                let [error, output] = members_of(value, ["error", "output"]).unwrap_or_default();
                if output.is_some() {
                    self.terminal(value, "", out);
                } else if let Some(error) = errors::error_of(value, error, "") {
                    self.fail(errors::in_stream(&self.head, error), out);
                }
                if !out.is_finished() {
                    let excerpt = excerpt(text, EXCERPT_LIMIT);
                    let message = format!("the provider's answer is no complete response: {excerpt}");
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
    /// One event. Its name stands in its data, and beside it; a gateway may have lost one of them.
    fn object(&mut self, data: &str, name: &str, out: &mut Chunks) {
        self.repeat.forget();
        let Ok(found) = Event::read(data, name) else {
            return match repaired(data) {
                Some(repaired) => self.object(&repaired, name, out),
                None if name == "error" => self.fail(errors::unreadable(&self.head, data), out),
                None => self.fail(errors::malformed(&self.head, data), out),
            };
        };
        let Some(event) = found else { return };
        match event.name.as_str() {
            "response.created" | "response.queued" | "response.in_progress" => {
                if let Some(response) = event.response {
                    self.identify(response);
                }
            }
            "response.output_item.added" => {
                if let Some((key, facts)) = event.item() {
                    self.blocks.added(key, &facts, &self.facts, out);
                }
            }
            "response.output_item.done" => {
                if let Some((key, facts)) = event.item() {
                    self.blocks.done(&key, &facts, &self.facts, out);
                }
            }
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.canceled" => {
                if let Some(response) = event.response.or_else(|| serde_json::from_str(data).ok()) {
                    self.terminal(response, &event.name, out);
                }
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => self.part(&event, out),
            kind if kind.starts_with("response.") && kind != "response.error" => {
                // The name beside the data is not compared.
                if let Some(added) = self.text(&event, out).filter(|_| event.is_named) {
                    self.repeat.learn(data, added, []);
                }
            }
            kind => {
                let Ok(value) = serde_json::from_str::<&RawValue>(data) else { return };
                let error = errors::error_of(value, event.error, &event.name);
                let is_error = kind == "error" || kind == "response.error";
                if let Some(error) = error.or_else(|| is_error.then_some(value)) {
                    self.fail(errors::in_stream(&self.head, error), out);
                }
            }
        }
    }

    /// An event with a piece of an item, or with a complete one. When all it does is to add one string to an item, and it
    /// would do no more if it came again with another, it says so.
    fn text<'a>(&mut self, event: &Event<'a>, out: &mut Chunks) -> Option<Added<'a>> {
        let (about, what) = event.name.rsplit_once('.')?;
        let (kind, is_content) = match about {
            "response.output_text" | "response.refusal" => (Kind::Message, true),
            "response.reasoning_text" | "response.reasoning" => (Kind::Reasoning, true),
            "response.reasoning_summary_text" | "response.reasoning_summary" => (Kind::Reasoning, false),
            "response.function_call_arguments" => (Kind::Call, true),
            _ => return None,
        };
        let part = event.part_key(kind, is_content);
        match what {
            "delta" => {
                let piece = event.delta.or(event.text)?;
                let place = self.blocks.delta(kind, &event.key(), part, piece, out)?;
                Some(Added::new(place, piece))
            }
            "done" => {
                let whole = event.text.or(event.refusal).or(event.arguments)?;
                self.blocks.part_done(kind, &event.key(), part, whole, out);
                None
            }
            _ => None,
        }
    }

    /// The end of a part, which repeats its text.
    fn part(&mut self, event: &Event<'_>, out: &mut Chunks) {
        let Some([kind, text, refusal]) = event.part.and_then(|part| members_of(part, ["type", "text", "refusal"]))
        else {
            return;
        };
        let (kind, is_content) = match filled(kind).as_deref() {
            Some("output_text" | "refusal") => (Kind::Message, true),
            Some("reasoning_text") => (Kind::Reasoning, true),
            Some("summary_text") => (Kind::Reasoning, false),
            None if event.name == "response.reasoning_summary_part.done" => (Kind::Reasoning, false),
            _ => return,
        };
        if let Some(text) = text.or(refusal) {
            self.blocks.part_done(kind, &event.key(), event.part_key(kind, is_content), text, out);
        }
    }

    fn identify(&mut self, response: &RawValue) {
        let [id, model] = members_of(response, ["id", "model"]).unwrap_or_default();
        if self.facts.response_id.is_none() {
            self.facts.response_id = filled(id);
        }
        if self.facts.response_model.is_none() {
            self.facts.response_model = filled(model).filter(|model| *model != self.facts.target.model);
        }
    }

    /// The end of the response. `event` is the name of the event that brought it; empty for a whole answer.
    fn terminal(&mut self, response: &RawValue, event: &str, out: &mut Chunks) {
        self.identify(response);
        let names = ["status", "error", "incomplete_details", "usage", "output"];
        let [status, error, details, usage, output] = members_of(response, names).unwrap_or_default();
        let reason = details.and_then(|details| members_of(details, ["reason"])).and_then(|[reason]| filled(reason));
        // A document that parses is whole, whether or not it says so.
        let event = if event.is_empty() && status.is_none() { "response.completed" } else { event };
        let Some(ended) = Ended::of(filled(status), event, reason.clone()) else { return };
        Self::usage(usage, out);
        self.blocks.listed(&elements(output), &self.facts, out);
        let failure = match ended {
            Ended::Done | Ended::Limit => {
                self.blocks.close_all(out);
                return self.conclude(&ended, out);
            }
            Ended::Filtered(reason) => {
                self.blocks.close_all(out);
                let message = format!("the provider stopped the answer: incomplete_details.reason {reason}");
                self.head.failure(FailureCode::Refused, message)
            }
            Ended::Failed => match (error, reason) {
                (Some(error), _) => errors::in_stream(&self.head, error),
                (None, Some(reason)) => {
                    self.head.failure(FailureCode::Server, format!("the provider gave up: {reason}"))
                }
                (None, None) => self.head.failure(FailureCode::Server, "the provider gave up without saying why"),
            },
            Ended::Cancelled => self.head.failure(FailureCode::Server, "the provider cancelled the response"),
        };
        self.fail(failure, out);
    }

    /// Takes the counts, made disjoint: what was read from or written to a cache is not input.
    fn usage(usage: Option<&RawValue>, out: &mut Chunks) {
        let names = ["input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details"];
        let Some([input, output, input_details, output_details]) =
            usage.and_then(|usage| members_of(usage, names)).filter(|counts| counts.iter().any(Option::is_some))
        else {
            return;
        };
        let [read, write] = input_details
            .and_then(|details| members_of(details, ["cached_tokens", "cache_write_tokens"]))
            .unwrap_or_default();
        let [reasoning] =
            output_details.and_then(|details| members_of(details, ["reasoning_tokens"])).unwrap_or_default();
        let (cache_read, cache_write) = (count(read), count(write));
        let input = count(input).unwrap_or(0);
        out.usage(Usage {
            input_tokens: input.saturating_sub(cache_read.unwrap_or(0)).saturating_sub(cache_write.unwrap_or(0)),
            output_tokens: count(output).unwrap_or(0),
            cache_read_tokens: cache_read,
            cache_write_tokens: cache_write,
            reasoning_tokens: count(reasoning),
        });
    }

    /// Ends a response that the model brought to its end, or to its limit.
    fn conclude(&self, ended: &Ended, out: &mut Chunks) {
        let ended = match ended {
            Ended::Limit => Ok(FinishReason::MaxTokens),
            _ => self.blocks.said().finish(&self.head),
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
                r#"{"type":"response.output_text.delta","sequence_number":9,"item_id":"m","output_index":0,"content_index":0,"delta":"a","obfuscation":"xyz"}"#,
                r#"{"type":"response.output_text.delta","sequence_number":10,"item_id":"m","output_index":0,"content_index":0,"delta":"b","obfuscation":"w"}"#,
            ),
            (
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"a"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"b"}"#,
            ),
        ] {
            let mut decoder = decoder(head(), &target());
            let mut out = Chunks::new();
            decoder.feed(format!("event: message\ndata: {event}\n\n").as_bytes(), &mut out);
            assert!(decoder.answer_mut().repeat.repeated(next).is_some(), "{next}");
        }
    }
}
