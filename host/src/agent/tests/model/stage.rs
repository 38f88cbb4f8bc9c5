//! The world that the real loop runs in: a model and tools that follow the plan, and interrupts at its moments.
//!
//! A cancel is the token of the prompt. A crash unwinds the task of the session at that very place, or drops it where
//! it waits: either way nothing of it runs on, as if the process had died. What its log wrote after the crash is cut off
//! by whoever plays the plan.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, Open};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Chunk, Exchange, Failure, FailureCode, FinishReason, InvalidReplay, ReplayDegrade};
use tokio_util::sync::CancellationToken;

use super::plan::{Attempt, End, Given, Interrupt, Moment, Prompt, Tool, What};
use crate::agent::{Update, UpdateSink};
use crate::loader::{AdapterHandle, StreamHandle};
use crate::tools::{BuiltIn, RunTool, Running, ToolContext, ToolOutput};

/// What a crash unwinds with.
pub struct Crash;

/// Shared by model, tools and whoever is shown the updates.
#[derive(Clone, Default)]
pub struct Stage {
    scene: Arc<Mutex<Scene>>,
    interrupted: Arc<Mutex<Interrupted>>,
}

/// How often a plan was interrupted at which moment, by cancel or crash.
pub type Interrupted = BTreeMap<(Moment, What), usize>;

/// The prompt that is played, and what was seen of it.
#[derive(Default)]
pub struct Scene {
    attempts: VecDeque<Attempt>,
    tools: VecDeque<Tool>,
    interrupts: Vec<Interrupt>,
    counts: HashMap<Moment, u8>,
    pub cancel: CancellationToken,
    /// Drops the session's task where it waits.
    pub crash: CancellationToken,
    pub log: PathBuf,
    /// Length of the log when it was last synced, in bytes.
    synced: u64,
    /// The same at the moment of the crash.
    pub synced_at_crash: u64,
    /// Attempts of the session so far.
    pub opened: usize,
    pub requests: Vec<Convert>,
    pub executed: Vec<String>,
    pub updates: Vec<Update>,
}

impl Stage {
    pub fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another session.
    pub fn clear(&self) {
        *self.scene() = Scene::default();
    }

    /// The session of this log has been opened.
    pub fn opened(&self, log: PathBuf) {
        let mut scene = self.scene();
        scene.synced = std::fs::metadata(&log).unwrap().len();
        scene.log = log;
    }

    pub fn begin(&self, prompt: &Prompt) {
        let mut scene = self.scene();
        *scene = Scene {
            attempts: prompt.attempts.clone().into(),
            tools: prompt.tools.clone().into(),
            interrupts: prompt.interrupts.clone(),
            log: std::mem::take(&mut scene.log),
            synced: scene.synced,
            opened: scene.opened,
            ..Scene::default()
        };
    }

    /// What happens at this moment; the crash of several interrupts wins.
    fn next(&self, moment: Moment) -> Option<What> {
        let mut scene = self.scene();
        let count = scene.counts.entry(moment).or_default();
        let nth = *count;
        *count = count.saturating_add(1);
        let here = scene.interrupts.iter().filter(|interrupt| interrupt.at == moment && interrupt.nth == nth);
        let what = here.map(|interrupt| interrupt.what).max()?;
        *self.interrupted.lock().unwrap().entry((moment, what)).or_default() += 1;
        Some(what)
    }

    /// The interrupts of all sessions so far.
    pub fn interrupted(&self) -> Interrupted {
        self.interrupted.lock().unwrap().clone()
    }

    fn reach(&self, moment: Moment) {
        match self.next(moment) {
            None => {}
            Some(What::Cancel) => self.scene().cancel.cancel(),
            Some(What::Crash) => {
                self.mark_crash();
                resume_unwind(Box::new(Crash));
            }
        }
    }

    fn mark_crash(&self) {
        let mut scene = self.scene();
        scene.synced_at_crash = scene.synced;
    }

    /// Lets some time of a wait pass.
    fn during_wait(&self) {
        let Some(what) = self.next(Moment::Wait) else { return };
        let stage = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if what == What::Crash {
                stage.mark_crash();
                stage.scene().crash.cancel();
            } else {
                stage.scene().cancel.cancel();
            }
        });
    }

    pub fn sink(&self) -> UpdateSink {
        let stage = self.clone();
        Arc::new(move |update| stage.shown(update))
    }

    fn shown(&self, update: Update) {
        let moment = match &update {
            Update::Text(_) => Moment::Text,
            Update::Reasoning(_) => Moment::Reasoning,
            Update::ToolCall { .. } => Moment::Call,
            Update::ToolResult { .. } => Moment::Result,
            Update::Retry { .. } => Moment::Retry,
            Update::AttemptDiscarded => Moment::Discarded,
            Update::Durable(_) => {
                let mut scene = self.scene();
                // A session that was dropped may still be writing, but not to this log.
                scene.synced = std::fs::metadata(&scene.log).map_or(0, |file| file.len());
                return;
            }
            Update::Degraded(_) | Update::Notice(_) => return,
        };
        self.scene().updates.push(update);
        self.reach(moment);
        if moment == Moment::Retry && !self.scene().cancel.is_cancelled() {
            self.during_wait();
        }
    }
}

impl AdapterHandle for Stage {
    fn check_history(&self, call: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> {
        Ok(vec![None; call.messages.len()])
    }

    fn convert(&self, call: &Convert) -> Result<Converted, Failure> {
        self.scene().requests.push(call.clone());
        self.reach(Moment::Request);
        Ok(Converted { exchange: Exchange::Polled(raw(&())), repairs: Vec::new() })
    }

    fn on_replay_degrade(&self, _: &ReplayDegrade) -> Result<(), Failure> {
        Ok(())
    }

    fn open(&self, _: &Open) -> Result<Box<dyn StreamHandle>, Failure> {
        let mut scene = self.scene();
        let attempt = scene.attempts.pop_front().unwrap_or_else(Attempt::plain);
        let given = attempt.given(scene.opened);
        scene.opened += 1;
        Ok(Box::new(Stream { stage: self.clone(), attempt, given, seen: 0 }))
    }
}

/// One attempt, as the host polls it.
struct Stream {
    stage: Stage,
    attempt: Attempt,
    given: VecDeque<Given>,
    /// How many parts have begun.
    seen: usize,
}

impl Stream {
    fn end(&self, reason: FinishReason) -> Vec<Item> {
        vec![Item::Chunk(Chunk::Finish { reason, replay_state: self.attempt.envelope(self.seen) })]
    }
}

impl StreamHandle for Stream {
    fn feed(&mut self, _: &[u8]) -> Vec<Item> {
        unreachable!("the exchange is polled")
    }

    fn finish(&mut self, _: &StreamEnd) -> Vec<Item> {
        match self.attempt.end {
            End::Stall { finishes: true } => self.end(self.attempt.end.reason()),
            _ => Vec::new(),
        }
    }

    fn poll(&mut self) -> Vec<Item> {
        match self.given.pop_front() {
            Some(Given::Chunk(chunk)) => {
                if let Chunk::BlockStart { index, .. } = &chunk {
                    self.seen = *index as usize + 1;
                }
                self.stage.reach(Moment::Chunk);
                vec![Item::Chunk(chunk)]
            }
            Some(Given::Pause) => vec![Item::Wait(1)],
            Some(Given::Malformed) => vec![Item::Malformed("it is odd".to_owned())],
            None => {
                self.stage.reach(Moment::Stall);
                Vec::new()
            }
        }
    }

    fn cancel(&mut self) -> Vec<Item> {
        self.end(FinishReason::Aborted { failure: Failure::new(FailureCode::Aborted, "as it was asked") })
    }
}

impl RunTool for Stage {
    fn run<'a>(
        &'a self,
        _: BuiltIn,
        arguments: &'a str,
        _: ToolContext<'a>,
        cancel: &'a CancellationToken,
    ) -> Running<'a> {
        Box::pin(async move {
            let tool = {
                let mut scene = self.scene();
                scene.executed.push(arguments.to_owned());
                scene.tools.pop_front().unwrap_or(Tool::Succeeds)
            };
            self.reach(Moment::ToolBegins);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.reach(Moment::ToolRuns);
            if cancel.is_cancelled() {
                return ToolOutput { aborted: true, ..ToolOutput::text(format!("killed {arguments}"), true) };
            }
            match tool {
                Tool::Succeeds => ToolOutput::text(format!("ran {arguments}"), false),
                Tool::Fails => ToolOutput::text(format!("failed {arguments}"), true),
                Tool::TimesOut => {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    ToolOutput::text(format!("timed out {arguments}"), true)
                }
            }
        })
    }
}
