//! The reference model: what a prompt must come to, told from the plan alone.
//!
//! It knows no log, no stream and no clock, only the rules. The one thing that it is told is which requests carried
//! replay metadata, since routing is not the loop's business.

use std::collections::{HashMap, VecDeque};

use dsh_plugin_api::vocab::{Block, BlockType, Chunk};

use super::plan::{Attempt, End, Given, Moment, Prompt, Tool, What};
use super::said::{NOT_RUN, Said, words};

/// Retries by policy, as the composition has it.
const MAX_RETRIES: u32 = 2;
/// Steps of a turn, as the composition has it.
pub const MAX_STEPS: u32 = 4;

/// What is known of a session.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    pub history: Vec<Said>,
    /// Attempts so far.
    pub opened: usize,
}

/// What a prompt came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// `None` when the process died.
    pub reason: Option<&'static str>,
    /// What each request must say.
    pub requests: Vec<Vec<Said>>,
    /// Arguments of the calls that ran.
    pub executed: Vec<String>,
    /// The history when something was last waited for: that much survives every crash.
    pub durable: Vec<Said>,
}

/// The process dies here.
struct Died;

/// How an attempt ended.
enum Ended {
    Cancelled,
    /// With this finish, or with what stands for it.
    As(End),
}

/// How a request ended.
enum Request {
    Answered(End, Vec<(Block, bool)>),
    Ended(&'static str, Vec<(Block, bool)>),
}

struct Play<'a> {
    session: &'a mut Reference,
    outcome: Outcome,
    plan: &'a Prompt,
    attempts: VecDeque<Attempt>,
    tools: VecDeque<Tool>,
    natives: VecDeque<bool>,
    counts: HashMap<Moment, u8>,
    cancelled: bool,
}

impl Reference {
    /// What a prompt comes to. `natives` tells of each request whether it carried replay metadata.
    pub fn prompt(&mut self, text: &str, plan: &Prompt, natives: Vec<bool>) -> Outcome {
        let durable = self.history.clone();
        self.history.push(Said::User(text.to_owned()));
        let mut play = Play {
            session: self,
            outcome: Outcome { durable, ..Outcome::default() },
            plan,
            attempts: plan.attempts.clone().into(),
            tools: plan.tools.clone().into(),
            natives: natives.into(),
            counts: HashMap::new(),
            cancelled: false,
        };
        play.outcome.reason = play.turn().ok();
        play.outcome
    }
}

impl Play<'_> {
    fn reach(&mut self, moment: Moment) -> Result<(), Died> {
        let count = self.counts.entry(moment).or_default();
        let nth = *count;
        *count = count.saturating_add(1);
        let mut here = self.plan.interrupts.iter().filter(|interrupt| interrupt.at == moment && interrupt.nth == nth);
        if here.clone().any(|interrupt| interrupt.what == What::Crash) {
            return Err(Died);
        }
        self.cancelled |= here.any(|interrupt| interrupt.what == What::Cancel);
        Ok(())
    }

    fn turn(&mut self) -> Result<&'static str, Died> {
        for _ in 0..MAX_STEPS {
            let (end, blocks) = match self.request()? {
                Request::Answered(end, blocks) => (end, blocks),
                Request::Ended(reason, blocks) => {
                    self.keep(&blocks, true);
                    return Ok(reason);
                }
            };
            let calls = self.keep(&blocks, false);
            if end == End::MaxTokens {
                return Ok("max-tokens");
            }
            if calls.is_empty() {
                return Ok("completed");
            }
            for call in calls {
                self.call(&call)?;
            }
            if self.cancelled {
                return Ok("aborted");
            }
        }
        Ok("max-steps")
    }

    /// Asks until there is an answer, or none any more.
    fn request(&mut self) -> Result<Request, Died> {
        let mut retries = 0;
        loop {
            self.outcome.requests.push(self.session.history.clone());
            let native = self.natives.pop_front().unwrap_or(false);
            self.reach(Moment::Request)?;
            self.outcome.durable = self.session.history.clone();

            let attempt = self.attempts.pop_front().unwrap_or_else(Attempt::plain);
            let number = self.session.opened;
            self.session.opened += 1;
            let mut blocks = Vec::new();
            let mut shown = false;
            let end = match self.attempt(&attempt, number, &mut blocks, &mut shown)? {
                Ended::Cancelled => return Ok(Request::Ended("aborted", interrupted(blocks))),
                Ended::As(end) => end,
            };
            let (reason, tries) = match end {
                End::MaxTokens => {
                    blocks.retain(|(block, _)| !matches!(block, Block::ToolCall { .. }));
                    return Ok(Request::Answered(end, blocks));
                }
                End::Stop | End::ToolCalls => {
                    blocks.retain(|(block, _)| !matches!(block, Block::ToolCall { name, .. } if name.is_empty()));
                    let says = |block: &Block| !matches!(block, Block::Text(text) if text.trim().is_empty());
                    if blocks.iter().any(|(block, _)| says(block)) {
                        return Ok(Request::Answered(end, blocks));
                    }
                    ("EMPTY_RESPONSE", 2)
                }
                End::Cut => ("TRANSPORT", MAX_RETRIES),
                End::Stall { .. } => ("TIMEOUT", MAX_RETRIES),
                End::Overloaded => ("SERVER", MAX_RETRIES),
                End::RateLimit => ("RATE_LIMIT", MAX_RETRIES),
                End::LongRateLimit => ("RATE_LIMIT", 0),
                End::Unauthorized => ("AUTH", 0),
                End::Refused if native && !shown => continue,
                End::Refused => ("INVALID_REQUEST", 0),
                End::Aborted if self.cancelled => ("aborted", 0),
                End::Aborted => ("ABORTED", 0),
                End::Malformed => ("PROTOCOL", 0),
            };
            retries += 1;
            if retries > tries {
                return Ok(Request::Ended(reason, interrupted(blocks)));
            }
            self.reach(Moment::Retry)?;
            if !self.cancelled {
                self.reach(Moment::Wait)?;
            }
            if self.cancelled {
                return Ok(Request::Ended("aborted", interrupted(blocks)));
            }
            if shown {
                self.reach(Moment::Discarded)?;
            }
        }
    }

    fn attempt(
        &mut self,
        attempt: &Attempt,
        number: usize,
        blocks: &mut Vec<(Block, bool)>,
        shown: &mut bool,
    ) -> Result<Ended, Died> {
        let mut places = HashMap::new();
        for given in attempt.given(number) {
            if self.cancelled {
                return Ok(Ended::Cancelled);
            }
            let chunk = match given {
                Given::Pause => continue,
                Given::Malformed => return Ok(Ended::As(End::Malformed)),
                Given::Chunk(chunk) => chunk,
            };
            self.reach(Moment::Chunk)?;
            let (index, delta) = match chunk {
                Chunk::BlockStart { index, block_type } => {
                    places.insert(index, blocks.len());
                    blocks.push((empty(block_type), false));
                    continue;
                }
                Chunk::TextDelta { index, text } => (index, Block::Text(text)),
                Chunk::ReasoningDelta { index, text } => (index, Block::Reasoning(text)),
                Chunk::ToolCallDelta { index, id, name, arguments_delta } => {
                    (index, Block::ToolCall { id, name: name.unwrap_or_default(), arguments: arguments_delta })
                }
                Chunk::BlockEnd { index, .. } => {
                    blocks[places[&index]].1 = true;
                    continue;
                }
                Chunk::Usage { .. } => continue,
                Chunk::Finish { reason, .. } => {
                    // What the plan calls the end is what it says, whoever cancels from here on.
                    debug_assert!(reason == attempt.end.reason());
                    return Ok(Ended::As(attempt.end));
                }
            };
            let moment = match (&mut blocks[places[&index]].0, delta) {
                (Block::Text(text), Block::Text(delta)) => {
                    text.push_str(&delta);
                    Moment::Text
                }
                (Block::Reasoning(text), Block::Reasoning(delta)) => {
                    text.push_str(&delta);
                    Moment::Reasoning
                }
                (call, delta) => {
                    *call = delta;
                    continue;
                }
            };
            *shown = true;
            self.reach(moment)?;
        }
        if self.cancelled {
            return Ok(Ended::Cancelled);
        }
        // Asked again and again until the progress clock runs out; the plan interrupts only the first few.
        for _ in 0..3 {
            self.reach(Moment::Stall)?;
            if self.cancelled {
                return Ok(Ended::Cancelled);
            }
        }
        Ok(Ended::As(attempt.end))
    }

    /// Makes a message of an answer, if it makes one; returns its calls.
    fn keep(&mut self, blocks: &[(Block, bool)], interrupted: bool) -> Vec<(Option<String>, String)> {
        let (mut text, mut thought, mut calls, mut run) = (String::new(), String::new(), Vec::new(), Vec::new());
        for (block, _) in blocks {
            match block {
                Block::Text(piece) => text.push_str(piece),
                Block::Reasoning(piece) => thought.push_str(piece),
                Block::ToolCall { id, name, arguments } => {
                    calls.push((id.clone(), arguments.clone()));
                    let is_object = arguments.is_empty() || (arguments.starts_with('{') && arguments.ends_with('}'));
                    run.push(((name == "bash" && is_object).then(|| arguments.clone()), arguments.clone()));
                }
                _ => {}
            }
        }
        let (text, thought) = (words(&text), words(&thought));
        if !text.is_empty() || !calls.is_empty() || (!thought.is_empty() && !interrupted) {
            self.session.history.push(Said::Answer { text, thought, calls, interrupted });
        }
        run
    }

    /// Runs a call that can run, and answers any.
    fn call(&mut self, (runs, _): &(Option<String>, String)) -> Result<(), Died> {
        self.outcome.durable = self.session.history.clone();
        self.reach(Moment::Call)?;
        let result = match runs {
            Some(arguments) if !self.cancelled => {
                self.outcome.executed.push(arguments.clone());
                let tool = self.tools.pop_front().unwrap_or(Tool::Succeeds);
                self.reach(Moment::ToolBegins)?;
                self.reach(Moment::ToolRuns)?;
                let did = match tool {
                    _ if self.cancelled => "killed",
                    Tool::Succeeds => "ran",
                    Tool::Fails => "failed",
                    Tool::TimesOut => "timed out",
                };
                words(&format!("{did} {arguments}"))
            }
            _ => NOT_RUN.to_owned(),
        };
        self.reach(Moment::Result)?;
        self.session.history.push(Said::Result(result));
        Ok(())
    }
}

/// What is left of an answer that broke off.
fn interrupted(mut blocks: Vec<(Block, bool)>) -> Vec<(Block, bool)> {
    blocks.retain(|(block, closed)| match block {
        Block::ToolCall { .. } => false,
        Block::Reasoning(_) => *closed,
        _ => true,
    });
    blocks
}

fn empty(block_type: BlockType) -> Block {
    match block_type {
        BlockType::Text => Block::Text(String::new()),
        BlockType::Reasoning => Block::Reasoning(String::new()),
        BlockType::ToolCall => Block::ToolCall { id: String::new(), name: String::new(), arguments: String::new() },
    }
}
