//! From the bytes of a response to chunks.
//!
//! A response is an event stream, a whole JSON answer (one object, or the list of what would have been events), or a
//! refusal. `finishReason` is the terminal event of this wire; the usage comes along with it. Without a usage the
//! response is over a little later, and the end of the connection is not awaited.

use dsh_plugin_api::json::Raw;
use dsh_plugin_api::kit::body::Answer as _;
use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::{HeadFacts, cut, excerpt};
use dsh_plugin_api::kit::lenient::{count, elements, filled, is_object, members, members_of, repaired};
use dsh_plugin_api::kit::repeat::{Added, Repeat};
use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason, Target, Usage};
use dsh_plugin_api::{Chunks, StreamEnd};
use serde_json::value::RawValue;

use super::blocks::Blocks;
use crate::config::ApiName;
use crate::envelope::{ResponseFacts, StopReason};

/// Longest excerpt of an answer in a message, in characters.
const EXCERPT_LIMIT: usize = 300;
/// How long usage is waited for after the finish reason.
const USAGE_PATIENCE_MS: u32 = 3_000;

/// How many counts a usage has; see [`counts`].
const COUNTS: usize = 4;

/// What is read nowhere and differs in every event: the sum of the counts, and the counts by modality.
const UNREAD: &[&str] = &["\"totalTokenCount\":", "\"tokenCount\":"];

/// Decoder of one response.
pub(crate) type Decoder = dsh_plugin_api::kit::body::BodyDecoder<Answer>;

/// A decoder for a response to a request of this target.
pub(super) fn decoder(head: HeadFacts, target: &Target) -> Decoder {
    let facts = ResponseFacts::new(ApiName::GoogleGenerativeAi, target.clone());
    Decoder::new(Answer { head, facts, blocks: Blocks::default(), ended: None, repeat: Repeat::new(UNREAD) })
}

/// How the provider says that the answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    /// The model was done, or calls tools.
    Done,
    /// The output limit.
    Limit,
    /// A filter; with the provider's words.
    Filtered(String),
    /// The model or the provider gave up, or for a reason that nobody knows; with the provider's words.
    Failed(String),
}

impl Ended {
    /// `message` is what the provider says about the reason.
    fn of(reason: &str, message: Option<String>) -> Self {
        let words = || match &message {
            Some(message) => format!("finishReason {reason}: {}", cut(message, EXCERPT_LIMIT)),
            None => format!("finishReason {reason}"),
        };
        // Some gateways write the names of the enum in lower case.
        match reason.to_ascii_uppercase().as_str() {
            "STOP" => Self::Done,
            // `CONTINUATION` is the limit of one request, in which the provider would go on in another.
            "MAX_TOKENS" | "CONTINUATION" => Self::Limit,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION"
            | "MODEL_ARMOR" => Self::Filtered(words()),
            _ => Self::Failed(words()),
        }
    }
}

/// The answer as far as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    head: HeadFacts,
    facts: ResponseFacts,
    blocks: Blocks,
    ended: Option<Ended>,
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
            // Gateways in the manner of the completions wire write it; it says nothing about the answer.
            "[DONE]" => self.terminal_mark(out),
            data => match self.repeat.repeated(data) {
                Some(repeated) if self.blocks.repeat(&repeated, out) => {
                    usage_of(repeated.counts).into_iter().for_each(|usage| out.usage(usage));
                }
                _ => self.object(data, &event.name, out),
            },
        }
    }

    fn whole(&mut self, text: &str, out: &mut Chunks) {
        let text = text.trim_start_matches('\u{feff}').trim();
        match serde_json::from_str::<&RawValue>(text) {
            Ok(value) if is_object(value) => self.object(value.get(), "", out),
            Ok(value) => {
                for value in elements(Some(value)) {
                    self.object(value.get(), "", out);
                }
            }
            // What is missing was lost on the way; `end` says so.
            Err(e) if e.is_eof() => return,
            Err(_) => return self.fail(errors::malformed(&self.head, text), out),
        }
        if self.ended.is_some() {
            self.conclude(out);
        } else if !out.is_finished() && !self.blocks.any_started() {
            let message = format!("the provider's answer holds no candidate: {}", excerpt(text, EXCERPT_LIMIT));
            self.fail(self.head.failure(FailureCode::Protocol, message), out);
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Chunks) {
        if out.is_finished() {
            return;
        }
        if self.ended.is_some() {
            return self.conclude(out);
        }
        self.fail(errors::unfinished(&self.head, end), out);
    }

    fn partial_half(&self) -> Option<Raw> {
        self.blocks.any_started().then(|| self.facts.half(StopReason::Stop))
    }
}

impl Answer {
    /// One object of the wire: an event of a stream, or the whole answer.
    fn object(&mut self, data: &str, event: &str, out: &mut Chunks) {
        self.repeat.forget();
        if out.is_finished() {
            return;
        }
        let names = ["error", "responseId", "modelVersion", "usageMetadata", "promptFeedback", "candidates"];
        let Ok(found) = members(data, names) else {
            return match repaired(data) {
                Some(repaired) => self.object(&repaired, event, out),
                None if event == "error" => self.fail(errors::unreadable(&self.head, data), out),
                None => self.fail(errors::malformed(&self.head, data), out),
            };
        };
        let Some([error, id, model, usage, feedback, candidates]) = found else { return };
        let is_plain = error.is_none() && candidates.is_some();
        if (error.is_some() || candidates.is_none())
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
        let usage = usage_of(counts.map(count));
        usage.into_iter().for_each(|usage| out.usage(usage));
        if let Some(blocked) = feedback.and_then(blocked) {
            return self.fail(self.head.failure(FailureCode::Refused, blocked), out);
        }
        let candidate = elements(candidates).into_iter().next();
        if let Some([content, reason, message]) =
            candidate.and_then(|candidate| members_of(candidate, ["content", "finishReason", "finishMessage"]))
        {
            let added = self.content(content, out);
            // The first name is that of a field which was not set.
            if let Some(reason) = filled(reason).filter(|reason| reason != "FINISH_REASON_UNSPECIFIED") {
                self.end_with(Ended::of(&reason, filled(message)), out);
            }
            if let Some(added) = added.filter(|_| is_plain && self.ended.is_none()) {
                // What it says of the response as a whole is known by now.
                self.repeat.learn(data, added, counts);
            }
        }
        if self.ended.is_some() && usage.is_some() {
            self.conclude(out);
        } else if self.ended.is_some() {
            out.end_within(USAGE_PATIENCE_MS);
        }
    }

    /// Every part, until the answer has ended. When all they do is to add one string to a block, and they would do no more
    /// if they came again with another, it says so.
    fn content<'a>(&mut self, content: Option<&'a RawValue>, out: &mut Chunks) -> Option<Added<'a>> {
        let [parts] = members_of(content.filter(|_| self.ended.is_none())?, ["parts"])?;
        let parts = elements(parts);
        let mut added = None;
        for part in &parts {
            added = self.blocks.part(part, &self.facts, out);
        }
        added.filter(|_| parts.len() == 1)
    }

    /// The finish reason: every block is complete. The first one counts.
    fn end_with(&mut self, ended: Ended, out: &mut Chunks) {
        if self.ended.is_none() {
            self.blocks.close(out);
            self.ended = Some(ended);
        }
    }

    /// `[DONE]`. Without a finish reason the answer is not known to be complete.
    fn terminal_mark(&mut self, out: &mut Chunks) {
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
    fn conclude(&self, out: &mut Chunks) {
        let Some(ended) = &self.ended else { return };
        let ended = match ended {
            Ended::Filtered(words) => {
                Err(self.head.failure(FailureCode::Refused, format!("the provider stopped the answer: {words}")))
            }
            Ended::Failed(words) => {
                Err(self.head.failure(FailureCode::Server, format!("the provider gave up the answer: {words}")))
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

/// The values of the counts of a usage, as they were written: prompt, candidates, thoughts, read from a cache.
fn counts(usage: Option<&RawValue>) -> [Option<&RawValue>; COUNTS] {
    let names = ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount"];
    usage.and_then(|usage| members_of(usage, names)).unwrap_or_default()
}

/// The counts, which every event repeats with what was added, made disjoint: what was read from a cache is not input;
/// thoughts are output. `None` for empty counts.
fn usage_of([prompt, candidates, thoughts, cached]: [Option<u64>; COUNTS]) -> Option<Usage> {
    let (prompt, candidates) = (prompt.unwrap_or(0), candidates.unwrap_or(0));
    let output_tokens = candidates.saturating_add(thoughts.unwrap_or(0));
    (prompt != 0 || output_tokens != 0).then(|| Usage {
        input_tokens: prompt.saturating_sub(cached.unwrap_or(0)),
        output_tokens,
        cache_read_tokens: cached,
        cache_write_tokens: None,
        reasoning_tokens: thoughts,
    })
}

/// What the provider says of a prompt that it does not answer.
fn blocked(feedback: &RawValue) -> Option<String> {
    let [reason, message] = members_of(feedback, ["blockReason", "blockReasonMessage"])?;
    let reason = filled(reason).filter(|reason| reason != "BLOCK_REASON_UNSPECIFIED")?;
    let why = filled(message).map(|message| format!(": {}", cut(&message, EXCERPT_LIMIT))).unwrap_or_default();
    Some(format!("the provider blocked the prompt: blockReason {reason}{why}"))
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
                r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":9,"totalTokenCount":18}}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":"b"}]}}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":10,"totalTokenCount":19}}"#,
            ),
            (
                r#"{"candidates":[{"content":{"parts":[{"text":"a","thought":true}]}}],"usageMetadata":{"promptTokensDetails":[{"modality":"TEXT","tokenCount":9}]}}"#,
                r#"{"candidates":[{"content":{"parts":[{"text":"b","thought":true}]}}],"usageMetadata":{"promptTokensDetails":[{"modality":"TEXT","tokenCount":10}]}}"#,
            ),
        ] {
            let mut decoder = decoder(head(), &target());
            let mut out = Chunks::new();
            decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut out);
            assert!(decoder.answer_mut().repeat.repeated(next).is_some(), "{next}");
        }
    }
}
