//! The agent loop against a reference model, over random interleavings.
//!
//! A [`plan`] says what happens: prompts, streams that end in every way, tools, cancels and crashes at every moment, logs
//! that are cut at any byte after the last sync, sessions that are opened again. The real loop runs it with its real
//! log on disk, on tokio's paused clock ([`stage`]); the [`reference`] says what must come of it. Compared are the end of
//! each turn, the history in memory and on disk, each request, the calls that ran, and what the user was shown; the
//! file is read by itself ([`record`]). After every plan the session must still answer.
//!
//! `PROPTEST_CASES=50000 cargo test -p dsh-host --lib agent::tests::model` plays more plans than the usual number. A
//! failure prints the smallest plan that shows it and the seed, which `MODEL_SEED=…` plays again.

mod plan;
mod record;
mod reference;
mod said;
mod stage;

use std::path::PathBuf;
use std::sync::Arc;

use dsh_plugin_api::vocab::{Block, Routing};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tempfile::TempDir;

use super::world::composition;
use crate::agent::{Composition, Session, SessionOptions, TurnEnd, TurnReason, Update};
use crate::loader::AdapterHandle;
use plan::{MOMENTS, Moment, Plan, Prompt, any_plan};
use reference::{Outcome, Reference};
use said::{Said, words};
use stage::{Crash, Stage};

/// How many plans are played where nobody asks for more.
const PLANS: u32 = 500;

/// How often these are played at most until each moment was interrupted.
const ROUNDS: usize = 5;

/// What all plans share.
struct Theatre {
    stage: Stage,
    composition: Arc<Composition>,
    folder: TempDir,
}

#[test]
fn the_loop_does_what_the_reference_model_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let theatre = Theatre::new();
    let seed = std::env::var("MODEL_SEED").unwrap_or_else(|_| uuid::Uuid::new_v4().simple().to_string());
    assert_eq!(seed.len(), 32, "MODEL_SEED is what a failure printed");
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = PLANS;
    }
    let is_enough = config.cases >= PLANS;
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, seed.as_bytes()));
    // A moment that the plans missed by chance is met by those of another round.
    for _ in 0..ROUNDS {
        let played = runner.run(&any_plan(), |plan| runtime.block_on(theatre.play(&plan)));
        if let Err(failure) = played {
            panic!("MODEL_SEED={seed}\n{failure}\n{runner}");
        }
        if !is_enough || theatre.missed().is_empty() {
            break;
        }
    }
    println!("{:?}", theatre.stage.interrupted());
    assert!(!is_enough || theatre.missed().is_empty(), "never interrupted: {:?}", theatre.missed());
}

impl Theatre {
    fn new() -> Self {
        // In memory where that is offered: power failures are played by cutting the log, not by the disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let stage = Stage::default();
        let agent = format!("max_steps = {}", reference::MAX_STEPS);
        let transport = "retry_base_ms = 100\nprogress_timeout_ms = 20";
        let handle = Arc::new(stage.clone()) as Arc<dyn AdapterHandle>;
        let composition = Arc::new(composition(folder.path(), &agent, transport, handle));
        Self { stage, composition, folder }
    }

    /// Moments that no plan has interrupted so far.
    fn missed(&self) -> Vec<Moment> {
        let interrupted = self.stage.interrupted();
        MOMENTS.into_iter().filter(|moment| interrupted.keys().all(|(at, _)| at != moment)).collect()
    }

    fn options(&self) -> SessionOptions {
        SessionOptions { model: None, cwd: self.folder.path().to_owned() }
    }

    fn opened(&self, mut session: Session) -> Session {
        session.tools = Arc::new(self.stage.clone());
        self.stage.opened(session.writer.path().to_owned());
        session
    }

    async fn resume(&self, id: &str) -> Session {
        let composition = Arc::clone(&self.composition);
        self.opened(Session::resume(composition, id, self.options(), self.stage.sink()).await.unwrap())
    }

    async fn play(&self, Plan(prompts): &Plan) -> Result<(), TestCaseError> {
        self.stage.clear();
        let created = Session::create(Arc::clone(&self.composition), self.options(), self.stage.sink()).await;
        let mut session = self.opened(created.unwrap());
        let id = session.id().to_owned();
        let log = session.writer.path().to_owned();
        let mut reference = Reference::default();
        let mut executed = Vec::new();
        let last = Prompt::default();
        for (prompt, number) in prompts.iter().chain([&last]).zip(0..) {
            let text = format!("prompt-{number}");
            let before = reference.history.len();
            self.stage.begin(prompt);
            let ended = self.prompt(session, &text).await;

            let requests = std::mem::take(&mut self.stage.scene().requests);
            let ran = std::mem::take(&mut self.stage.scene().executed);
            let natives = requests.iter().map(|request| request.routing.contains(&Routing::Native)).collect();
            let outcome = reference.prompt(&text, prompt, natives);
            prop_assert_eq!(&ran, &outcome.executed, "the calls that ran");
            prop_assert_eq!(requests.len(), outcome.requests.len(), "requests");
            for (request, history) in requests.iter().zip(&outcome.requests) {
                said::check_request(request)?;
                prop_assert_eq!(said::comparable(said::request(request)), said::expected_request(history));
                check_words(request, history)?;
            }
            executed.extend(ran);

            session = match ended {
                Some((session, end)) => {
                    prop_assert_eq!(Some(reason(&end)), outcome.reason);
                    prop_assert_eq!(said::history(&session.history), &reference.history[..]);
                    self.check_shown(&reference.history[before..])?;
                    session
                }
                None => {
                    prop_assert_eq!(None, outcome.reason, "it died where the plan has no crash");
                    self.recover(&id, &log, prompt, &outcome, &mut reference).await?
                }
            };
            if prompt.reopen {
                drop(session);
                session = self.resume(&id).await;
                prop_assert_eq!(said::history(&session.history), &reference.history[..], "opened again");
            }
        }
        let Some(Said::Answer { interrupted: false, .. }) = reference.history.last() else {
            return Err(TestCaseError::fail("the session is stuck"));
        };
        drop(session);
        // Only ever appended to, so that what holds now held after each prompt.
        record::check(&std::fs::read(&log).unwrap(), &executed)?;
        std::fs::remove_file(&log).unwrap();
        std::fs::remove_file(log.with_extension("lock")).ok();
        Ok(())
    }

    /// Runs a prompt; `None` when its process died.
    async fn prompt(&self, mut session: Session, text: &str) -> Option<(Session, TurnEnd)> {
        let content = vec![Block::Text(text.to_owned())];
        let (cancel, crash) = {
            let scene = self.stage.scene();
            (scene.cancel.clone(), scene.crash.clone())
        };
        let mut task = tokio::spawn(async move {
            let end = session.prompt(content, &cancel).await.unwrap();
            (session, end)
        });
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            () = crash.cancelled() => {
                task.abort();
                task.await
            }
        };
        match ended {
            Ok(ended) => Some(ended),
            Err(stopped) if stopped.is_cancelled() => None,
            Err(panicked) => match panicked.into_panic() {
                crash if crash.is::<Crash>() => None,
                other => std::panic::resume_unwind(other),
            },
        }
    }

    /// Cuts the log as the crash left it and opens the session again.
    async fn recover(
        &self,
        id: &str,
        log: &PathBuf,
        prompt: &Prompt,
        outcome: &Outcome,
        reference: &mut Reference,
    ) -> Result<Session, TestCaseError> {
        cut(log, self.stage.scene().synced_at_crash, prompt.cut);
        let bytes = std::fs::read(log).unwrap();
        reference.history = record::survivors(&record::lines(&bytes));
        reference.opened = self.stage.scene().opened;
        let durable = &outcome.durable;
        prop_assert!(
            reference.history.starts_with(durable),
            "{durable:?} was durable, {:?} is left",
            reference.history
        );
        let mut session = self.resume(id).await;
        if let Some(again) = prompt.cut_again {
            drop(session);
            cut(log, bytes.len() as u64, again);
            session = self.resume(id).await;
        }
        prop_assert_eq!(said::history(&session.history), &reference.history[..], "what the crash left");
        Ok(session)
    }

    /// What the user was shown and not told to forget is what the answers say.
    fn check_shown(&self, said: &[Said]) -> Result<(), TestCaseError> {
        let (mut shown, mut attempt) = (String::new(), String::new());
        for update in &self.stage.scene().updates {
            match update {
                Update::Text(text) => attempt.push_str(text),
                Update::AttemptDiscarded => attempt.clear(),
                Update::ToolCall { .. } => shown.push_str(&std::mem::take(&mut attempt)),
                _ => {}
            }
        }
        let answers = said.iter().map(|said| if let Said::Answer { text, .. } = said { text } else { "" });
        let answers = answers.collect::<Vec<_>>().join(" ");
        prop_assert_eq!(words(&(shown + &attempt)), words(&answers), "what was shown");
        Ok(())
    }
}

/// Cuts a log between `from` bytes and its end.
fn cut(log: &PathBuf, from: u64, at: u8) {
    let file = std::fs::OpenOptions::new().write(true).open(log).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(from.min(length) + length.saturating_sub(from) * u64::from(at) / 255).unwrap();
}

/// No word of a request is from an attempt that left none in the history.
fn check_words(request: &dsh_plugin_api::abi::calls::Convert, history: &[Said]) -> Result<(), TestCaseError> {
    let (sent, known) = (format!("{:?}", request.request.messages), format!("{history:?}"));
    for word in sent.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
        let is_ours = ["text-", "thought-", "run-", "prompt-"].iter().any(|start| word.starts_with(start));
        prop_assert!(!is_ours || word == "tool-result" || known.contains(word), "{word} was sent and is in no message");
    }
    Ok(())
}

fn reason(end: &TurnEnd) -> &str {
    match &end.reason {
        TurnReason::Completed => "completed",
        TurnReason::MaxTokens => "max-tokens",
        TurnReason::MaxSteps => "max-steps",
        TurnReason::Aborted => "aborted",
        TurnReason::Error { failure } => failure.code.name(),
    }
}
