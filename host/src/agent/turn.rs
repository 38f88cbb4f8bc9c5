//! One turn: a prompt, then requests and tools until the model is done.

use std::sync::Arc;

use dsh_plugin_api::vocab::{Block, FinishReason, Message, Role, Source, Target, Usage};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::attempt::StepOutcome;
use super::prompt::{Preamble, fallback_title};
use super::session::message_id;
use super::{AgentError, Session, TurnEnd, TurnReason, Update};
use crate::llm::assembler::Assembled;
use crate::llm::client::Degraded;
use crate::llm::registry::Route;
use crate::llm::view::HistoryMessage;
use crate::manifest::Agent;
use crate::session::event::{NewEvent, ToolError};
use crate::session::keep::{Ending, makes_message};
use crate::tools::{self, BuiltIn, ToolContext, ToolOutput};

/// What one turn needs at every step.
pub(super) struct Turn<'a> {
    pub(super) number: u64,
    pub(super) step: u64,
    pub(super) route: Arc<Route>,
    pub(super) target: Target,
    pub(super) agent: Agent,
    pub(super) preamble: Preamble,
    pub(super) cancel: &'a CancellationToken,
    text: String,
    degraded: Vec<Degraded>,
    usage: Usage,
}

impl Turn<'_> {
    /// Adds the tokens of an attempt.
    pub(super) fn add_usage(&mut self, more: &Usage) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let total = &mut self.usage;
        total.input_tokens = total.input_tokens.saturating_add(more.input_tokens);
        total.output_tokens = total.output_tokens.saturating_add(more.output_tokens);
        total.cache_read_tokens = sum(total.cache_read_tokens, more.cache_read_tokens);
        total.cache_write_tokens = sum(total.cache_write_tokens, more.cache_write_tokens);
        total.reasoning_tokens = sum(total.reasoning_tokens, more.reasoning_tokens);
    }

    /// Notes what a request degraded, one entry per message, in order.
    pub(super) fn note_degraded(&mut self, degraded: &[Degraded]) {
        for degrade in degraded {
            if let Err(place) = self.degraded.binary_search_by_key(&degrade.message, |known| known.message) {
                self.degraded.insert(place, degrade.clone());
            }
        }
    }
}

impl Session {
    /// Runs one turn. Cancelling ends it with [`TurnReason::Aborted`], what was streamed kept.
    ///
    /// # Errors
    ///
    /// Only when the log cannot be written or the model cannot be resolved; a failed request is a [`TurnEnd`].
    pub async fn prompt(&mut self, content: Vec<Block>, cancel: &CancellationToken) -> Result<TurnEnd, AgentError> {
        let (route, target) = self.target().map_err(AgentError::Failure)?;
        let agent = self.agent();
        let preamble = Preamble::new(&agent, &self.cwd);
        self.turn += 1;
        let mut turn = Turn {
            number: self.turn,
            step: 1,
            route,
            target,
            agent,
            preamble,
            cancel,
            text: String::new(),
            degraded: Vec::new(),
            usage: Usage::default(),
        };
        self.begin(&turn, content);
        let reason = loop {
            let ended = self.step(&mut turn).await?;
            self.log(vec![NewEvent::step_end(turn.number, turn.step)]);
            if let Some(reason) = ended {
                break reason;
            }
            if turn.agent.max_steps != 0 && turn.step >= u64::from(turn.agent.max_steps) {
                break TurnReason::MaxSteps;
            }
            turn.step += 1;
            self.log(vec![NewEvent::step_start(turn.number, turn.step)]);
        };
        self.log(vec![NewEvent::turn_end(turn.number, &reason.logged())]);
        self.writer.checkpoint().await?;
        Ok(TurnEnd { reason, text: turn.text, degraded: turn.degraded, usage: turn.usage })
    }

    fn begin(&mut self, turn: &Turn<'_>, content: Vec<Block>) {
        let message = Message::new(message_id(), Role::User, content, Source::User);
        let seq = self.log(vec![
            NewEvent::turn_start(turn.number),
            NewEvent::step_start(turn.number, turn.step),
            NewEvent::user_message(&message),
        ]);
        if !self.titled
            && let Some(title) = fallback_title(&message.text())
        {
            self.log(vec![NewEvent::session_title(&title, &[seq + 2], &json!({ "kind": "fallback" }))]);
            self.titled = true;
        }
        self.history.push(HistoryMessage { message, interrupted: false });
        self.log_header(turn);
        self.report_remembered(&turn.target.provider);
    }

    /// One request and the tools that it calls for. `None` means that a further step follows.
    async fn step(&mut self, turn: &mut Turn<'_>) -> Result<Option<TurnReason>, AgentError> {
        let assembled = match self.request(turn).await? {
            StepOutcome::Answered(assembled) => assembled,
            StepOutcome::Interrupted(assembled, reason) => {
                self.keep(turn, assembled, Ending::Interrupted);
                return Ok(Some(reason));
            }
            StepOutcome::Unsent(failure) => return Ok(Some(TurnReason::Error { failure })),
        };
        let finish = assembled.finish.clone();
        let calls = self.keep(turn, assembled, Ending::Complete);
        match finish {
            FinishReason::MaxTokens => Ok(Some(TurnReason::MaxTokens)),
            FinishReason::ToolCalls => self.run_tools(turn, calls).await,
            FinishReason::Stop | FinishReason::Aborted { .. } | FinishReason::Error { .. } => {
                Ok(Some(TurnReason::Completed))
            }
        }
    }

    /// Puts an answer that makes a message into the log and the history; returns its tool calls as id, name and
    /// arguments.
    fn keep(&mut self, turn: &mut Turn<'_>, assembled: Assembled, ending: Ending) -> Vec<(String, String, String)> {
        if !makes_message(ending, &assembled.content) {
            return Vec::new();
        }
        let interrupted = ending == Ending::Interrupted;
        let source = Source::model(turn.target.provider.clone(), turn.target.model.clone(), assembled.replay_state);
        let message = Message::new(message_id(), Role::Assistant, assembled.content, source);
        let calls = message.content.iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => Some((id.clone(), name.clone(), arguments.clone())),
            _ => None,
        });
        let calls = calls.collect();
        turn.text = message.text();
        self.log(vec![NewEvent::assistant_message(
            turn.number,
            turn.step,
            &message,
            assembled.usage.as_ref(),
            interrupted,
        )]);
        self.history.push(HistoryMessage { message, interrupted });
        calls
    }

    async fn run_tools(
        &mut self,
        turn: &Turn<'_>,
        calls: Vec<(String, String, String)>,
    ) -> Result<Option<TurnReason>, AgentError> {
        for (id, name, arguments) in calls {
            self.log(vec![NewEvent::tool_call(turn.number, turn.step, &id, &name, &arguments)]);
            self.writer.checkpoint().await?;
            self.update(Update::ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() });
            let (output, error) = match turn.cancel.is_cancelled() {
                true => (not_dispatched(), Some("ABORTED_BEFORE_DISPATCH")),
                false => {
                    let output = self.run_tool(turn, &name, &arguments).await;
                    let error = output.aborted.then_some("ABORTED");
                    (output, error)
                }
            };
            self.update(Update::ToolResult {
                id: id.clone(),
                content: output.content.clone(),
                is_error: output.is_error,
            });
            let result = Block::ToolResult {
                tool_call_id: id.clone(),
                content: output.content,
                is_error: Some(output.is_error),
            };
            let message = Message::new(message_id(), Role::User, vec![result], Source::Tool { call_id: id });
            let error = error.map(|code| ToolError { name: "AbortError".to_owned(), code: code.to_owned() });
            self.log(vec![NewEvent::tool_result(turn.number, turn.step, &message, error.as_ref())]);
            self.history.push(HistoryMessage { message, interrupted: false });
        }
        Ok(turn.cancel.is_cancelled().then_some(TurnReason::Aborted))
    }

    async fn run_tool(&self, turn: &Turn<'_>, name: &str, arguments: &str) -> ToolOutput {
        if let Some(reason) = tools::unparseable(arguments) {
            return ToolOutput::text(reason, true);
        }
        let tool = turn.agent.tools.iter().find(|known| *known == name).and_then(|name| BuiltIn::by_name(name));
        let Some(tool) = tool else {
            let known = turn.agent.tools.join(", ");
            return ToolOutput::text(format!("The call was not run: there is no tool {name:?}. Tools: {known}"), true);
        };
        let hidden_env: Vec<String> =
            self.composition.registry.routes.values().filter_map(|route| route.credential.clone()).collect();
        let context = ToolContext { cwd: &self.cwd, hidden_env: &hidden_env };
        self.tools.run(tool, arguments, context, turn.cancel).await
    }
}

/// The result of a call that the turn was stopped before.
fn not_dispatched() -> ToolOutput {
    ToolOutput::text("The call was not run: the user cancelled.", true)
}
