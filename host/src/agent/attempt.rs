//! One request with its retries.
//!
//! Every attempt is logged chunk by chunk; an attempt that is followed by `llm/retry` makes no message. `llm/retry`
//! stands where the further attempt begins: an answer that broke off is kept when the user cancels, or the process
//! dies, while the next attempt is awaited. A refusal that may mean the request's replay metadata, its images or its
//! size is followed by an attempt without them (`ladder`), and is remembered for the session and route.

use std::time::Duration;

use dsh_plugin_api::vocab::{Chunk, Failure, FailureCode, FinishReason};
use tokio_util::sync::CancellationToken;

use super::turn::Turn;
use super::{AgentError, Session, TurnReason, Update};
use crate::llm::assembler::{Assembled, BlockAssembler};
use crate::llm::client::{Prepared, prepare};
use crate::llm::ladder::{Rung, Spared};
use crate::llm::retry;
use crate::llm::view::RequestInput;
use crate::session::batch::NewEvents;
use crate::session::event::{LlmRetry, NewEvent};
use crate::session::keep::{Ending, makes_message};

/// How far a stream may run ahead of its log, in bytes of memory. A provider that sends faster than the disk takes is
/// slowed down: its bytes wait in the connection, not in memory, and a cancelled turn has little left to write. One
/// half of it is written while the other comes in.
const AHEAD_OF_LOG: usize = 1 << 20;

/// How a request ended.
pub(super) enum StepOutcome {
    /// With an answer: `stop`, `tool-calls` or `max-tokens`.
    Answered(Assembled),
    /// Cancelled or broken off for good, with what had arrived of it.
    Interrupted(Assembled, TurnReason),
    /// It could not be made.
    Unsent(Failure),
}

/// The attempts of one request that followed the first.
#[derive(Default)]
struct Retries {
    /// By the retry policy.
    spent: u32,
    /// Down the ladder, which is beside the policy.
    rungs: u32,
}

impl Session {
    /// Asks the model, with retries.
    ///
    /// # Errors
    ///
    /// Only the log's: nothing is sent that is not durable.
    pub(super) async fn request(&mut self, turn: &mut Turn<'_>) -> Result<StepOutcome, AgentError> {
        let provider = turn.target.provider.clone();
        let config = *self.composition.client.config();
        let mut retries = Retries::default();
        let mut lower = None;
        loop {
            let spared = self.spared.get(&provider).copied().unwrap_or_default();
            let prepared = match lower.take().unwrap_or_else(|| self.prepare(turn, spared)) {
                Ok(prepared) => prepared,
                Err(failure) => return Ok(StepOutcome::Unsent(failure)),
            };
            self.report_degraded(turn.number, turn.step, &turn.target, &prepared.degraded);
            turn.note_degraded(&prepared.degraded);
            self.writer.checkpoint().await?;

            let Attempt { assembled, shown } = self.attempt(turn, &prepared).await;
            if let Some(usage) = &assembled.usage {
                turn.add_usage(usage);
            }
            let failure = match &assembled.finish {
                FinishReason::MaxTokens => return Ok(StepOutcome::Answered(assembled)),
                FinishReason::Stop | FinishReason::ToolCalls => {
                    if makes_message(Ending::Complete, &assembled.content) {
                        return Ok(StepOutcome::Answered(assembled));
                    }
                    Failure::new(FailureCode::EmptyResponse, "the model ended its answer without any content")
                }
                FinishReason::Aborted { .. } if turn.cancel.is_cancelled() => {
                    return Ok(StepOutcome::Interrupted(assembled, TurnReason::Aborted));
                }
                // An end that the user did not ask for is a failure, whoever calls it aborted.
                FinishReason::Aborted { failure } | FinishReason::Error { failure } => failure.clone(),
            };

            if !shown && let Some((rung, request)) = self.next_rung(turn, &prepared, spared, &failure) {
                retries.rungs += 1;
                self.log_retry(turn, &retries, 0, &failure, Some(rung));
                self.report_rung(&provider, rung, &prepared.images, &failure);
                self.spared.entry(provider.clone()).or_default().add(rung);
                lower = Some(request);
                continue;
            }

            let delay_ms = match retry::delay(&config, retries.spent + 1, &failure, retry::jitter()) {
                retry::Decision::After(delay_ms) => delay_ms,
                retry::Decision::GiveUp(why) => {
                    self.report_giving_up(why);
                    return Ok(StepOutcome::Interrupted(assembled, TurnReason::Error { failure }));
                }
            };
            retries.spent += 1;
            self.update(Update::Retry {
                retry: retries.spent,
                max_retries: config.max_retries,
                delay_ms,
                failure: failure.clone(),
            });
            if !wait(delay_ms, turn.cancel).await {
                return Ok(StepOutcome::Interrupted(assembled, TurnReason::Aborted));
            }
            // Not before the wait: as long as no attempt follows, what the user saw of this one is the answer.
            self.log_retry(turn, &retries, delay_ms, &failure, None);
            if shown {
                self.update(Update::AttemptDiscarded);
            }
        }
    }

    /// The next request, without what its route is spared.
    pub(super) fn prepare(&self, turn: &Turn<'_>, spared: Spared) -> Result<Prepared, Failure> {
        let input = RequestInput {
            system: Some(turn.preamble.system.clone()).filter(|system| !system.is_empty()),
            history: self.history.clone(),
            tools: turn.preamble.tools.clone(),
            max_tokens: turn.agent.max_tokens,
            temperature: turn.agent.temperature,
            reasoning_effort: turn.agent.reasoning_effort.clone(),
            images_from: spared.images_from,
        };
        prepare(&turn.route, &turn.target, &input, spared.replay())
    }

    /// Says why there is no further attempt, where the failure itself does not.
    fn report_giving_up(&self, why: retry::GiveUp) {
        match why {
            retry::GiveUp::Fatal | retry::GiveUp::Spent { retries: 0 } => {}
            retry::GiveUp::Spent { .. } | retry::GiveUp::WaitTooLong { .. } => {
                self.update(Update::Notice(format!("no further attempt: {why}")));
            }
        }
    }

    /// Logs that a further attempt begins, after `delay_ms` milliseconds. The last one is void from here on.
    fn log_retry(&self, turn: &Turn<'_>, retries: &Retries, delay_ms: u64, failure: &Failure, rung: Option<Rung>) {
        let (replay, images_from) = match rung {
            None => (None, None),
            Some(Rung::Metadata) => (Some(LlmRetry::FOREIGN), None),
            Some(Rung::Images { from }) => (None, Some(from)),
        };
        self.log(vec![NewEvent::llm_retry(&LlmRetry {
            turn: turn.number,
            step: turn.step,
            provider: &turn.target.provider,
            retry: retries.spent + retries.rungs,
            max_retries: self.composition.client.config().max_retries + retries.rungs,
            delay_ms,
            failure,
            replay,
            images_from,
        })]);
    }

    /// One attempt: streams, logs and assembles. Nothing it meets is an error here; all ends are finish reasons.
    async fn attempt(&self, turn: &Turn<'_>, prepared: &Prepared) -> Attempt {
        let mut stream = self.composition.client.open(prepared);
        let mut assembler = BlockAssembler::new();
        let mut shown = false;
        let mut unsettled = 0;
        let mut settling = None;
        loop {
            if unsettled >= AHEAD_OF_LOG / 2 {
                unsettled = 0;
                if let Some(earlier) = settling.replace(Box::pin(self.writer.checkpoint())) {
                    tokio::select! {
                        () = turn.cancel.cancelled() => {}
                        // An error is that of the next checkpoint as well, which ends the turn.
                        _ = earlier => {}
                    }
                }
            }
            let next = tokio::select! {
                biased;
                () = turn.cancel.cancelled() => {
                    self.take_chunks(turn, &mut assembler, &mut shown, &stream.cancel());
                    break;
                }
                next = stream.next() => next,
            };
            let Some(next) = next else { break };
            let chunks: Vec<Chunk> = std::iter::once(next).chain(stream.ready()).collect();
            unsettled += self.take_chunks(turn, &mut assembler, &mut shown, &chunks);
        }
        Attempt { assembled: assembler.assemble(), shown }
    }

    /// Assembles, logs and shows chunks that came together. Returns about how much memory they take until they are
    /// written, in bytes.
    fn take_chunks(
        &self,
        turn: &Turn<'_>,
        assembler: &mut BlockAssembler,
        shown: &mut bool,
        chunks: &[Chunk],
    ) -> usize {
        for chunk in chunks {
            assembler.push(chunk);
        }
        let events = NewEvents::of_chunks(turn.number, turn.step, chunks);
        let cost = events.iter().map(NewEvents::cost).sum();
        self.writer.append(events);
        for update in visible(chunks) {
            *shown = true;
            self.update(update);
        }
        cost
    }
}

/// What the user sees of chunks; neighbours of one kind are one piece.
fn visible(chunks: &[Chunk]) -> Vec<Update> {
    let mut pieces: Vec<Update> = Vec::new();
    for chunk in chunks {
        match (pieces.last_mut(), chunk) {
            (Some(Update::Text(piece)), Chunk::TextDelta { text, .. })
            | (Some(Update::Reasoning(piece)), Chunk::ReasoningDelta { text, .. }) => piece.push_str(text),
            (_, Chunk::TextDelta { text, .. }) => pieces.push(Update::Text(text.clone())),
            (_, Chunk::ReasoningDelta { text, .. }) => pieces.push(Update::Reasoning(text.clone())),
            (
                _,
                Chunk::BlockStart { .. }
                | Chunk::ToolCallDelta { .. }
                | Chunk::BlockEnd { .. }
                | Chunk::Usage { .. }
                | Chunk::Finish { .. },
            ) => {}
        }
    }
    pieces
}

struct Attempt {
    assembled: Assembled,
    /// True when the user saw something of it.
    shown: bool,
}

/// False when it was cancelled.
async fn wait(delay_ms: u64, cancel: &CancellationToken) -> bool {
    tokio::select! {
        () = cancel.cancelled() => false,
        () = tokio::time::sleep(Duration::from_millis(delay_ms)) => true,
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::Block;

    use super::*;

    #[test]
    fn neighbours_of_one_kind_are_shown_as_one_piece() {
        let text = |text: &str| Chunk::TextDelta { index: 0, text: text.to_owned() };
        let reasoning = |text: &str| Chunk::ReasoningDelta { index: 1, text: text.to_owned() };
        let end = Chunk::BlockEnd { index: 0, block: Block::Text("ab".to_owned()) };
        let shown = visible(&[reasoning("h"), reasoning("m"), text("a"), end, text("b"), reasoning("so")]);
        let shown: Vec<String> = shown.iter().map(|update| format!("{update:?}")).collect();
        assert_eq!(shown, [r#"Reasoning("hm")"#, r#"Text("ab")"#, r#"Reasoning("so")"#]);
    }
}
