//! The whole story without a key: a turn that is cut off inside a tool call, the process that ran it killed, and
//! another process that goes on natively.
//!
//! The demo is a witness, not a simulation. It starts the mock provider, runs its own executable twice as a user
//! would, and then judges from what lies on disk alone (the session log and the provider's request log) whether
//! everything happened as told. It needs no network and no credential, and keeps to a fresh folder of its own.

mod evidence;
mod narrator;
mod process;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::mock::{Entry, Finish, MockError, MockProvider, Script, ToolCall};
use evidence::{Kept, RequestLog, SessionLog};
pub use narrator::Narrator;
use process::{AcpClient, Stage};

/// Route of the demo.
const ROUTE: &str = "demo";
/// Its model.
const MODEL: &str = "thinker";
const FIRST_PROMPT: &str = "Write a note for tomorrow into notes.txt.";
const SECOND_PROMPT: &str = "You were cut off. Go on, please.";

/// What must survive of the answer that is cut off.
const KEPT: Kept<'_> = Kept {
    reasoning: "The user wants a note in a file. One shell command will do.",
    text: "I will write the note now.",
    reasoning_field: "reasoning_content",
};

/// What the demo found, as `--json` prints it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Id of the session.
    pub session_id: String,
    /// Its log.
    pub session_file: PathBuf,
    /// What the provider received, one JSON object a line.
    pub request_log: PathBuf,
    /// Folder with everything the demo made; it is kept.
    pub folder: PathBuf,
    /// The processes that ran the two turns, in order.
    pub processes: [Ended; 2],
    /// True when every claim holds.
    pub ok: bool,
    /// Claims that do not hold, and what was found instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<String>,
}

/// How a process ended.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// Its id.
    pub pid: u32,
    /// Signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// A demo that could not go on.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file or a process.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The provider.
    #[error(transparent)]
    Mock(#[from] MockError),
    /// A process did not do its part.
    #[error("{process} {what}{}", stderr_of(stderr))]
    Process {
        /// Its command line.
        process: String,
        /// What went wrong.
        what: String,
        /// The last lines of its stderr.
        stderr: String,
    },
    /// SIGINT or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

fn stderr_of(stderr: &str) -> String {
    if stderr.is_empty() { "; it wrote nothing to stderr".to_owned() } else { format!("; its stderr ends:\n{stderr}") }
}

fn io<T>(what: impl FnOnce() -> String, result: std::io::Result<T>) -> Result<T, DemoError> {
    result.map_err(|source| DemoError::Io { what: what(), source })
}

/// Tells the story and judges it. Processes that it started are gone when this returns, however it does.
///
/// # Errors
///
/// [`DemoError`], when the story cannot be told to its end. Claims that do not hold are no error: see [`Outcome::ok`].
pub async fn run(narrator: &mut Narrator) -> Result<Outcome, DemoError> {
    let mut terminate = io(|| "cannot wait for SIGTERM".to_owned(), signal(SignalKind::terminate()))?;
    let mut interrupt = io(|| "cannot wait for SIGINT".to_owned(), signal(SignalKind::interrupt()))?;
    // Leaving drops the story, and with it its processes, which are killed on drop.
    tokio::select! {
        outcome = story(narrator) => outcome,
        _ = terminate.recv() => Err(DemoError::Interrupted),
        _ = interrupt.recv() => Err(DemoError::Interrupted),
    }
}

async fn story(narrator: &mut Narrator) -> Result<Outcome, DemoError> {
    narrator.text(
        "An agent talks to a model. The model is cut off in the middle of a tool call, and then the agent's\n\
         process is killed. With most harnesses that conversation is lost, or every later request fails.\n\
         Here it goes on. No key and no network are needed: a scripted provider on this machine answers.",
    );

    narrator.step("A provider and a composition");
    let stage = prepare()?;
    let request_log = stage.folder.join("requests.jsonl");
    let provider = MockProvider::start(script(), Some(&request_log), 0).await?;
    let overlay = overlay(provider.url());
    io(|| format!("cannot write {}", stage.overlay.display()), std::fs::write(&stage.overlay, &overlay))?;
    narrator.text(&format!(
        "The provider listens at {} and speaks real HTTP. An overlay adds it to the default\n\
         composition as route `demo`; everything else is what ships:",
        provider.url()
    ));
    narrator.excerpt(&stage.overlay.display().to_string(), &overlay);

    narrator.step("A turn that is cut off");
    let (session_id, first) = first_turn(&stage, narrator).await?;
    let session_file = stage.home.join("sessions").join(format!("{session_id}.jsonl"));

    narrator.step("What is on disk");
    let log = SessionLog::read(&session_file)?;
    narrator.text(
        "The model had streamed three blocks, the last one half a tool call. Half a call must not run, so it\n\
         is dropped, and in the same decision so is its replay metadata. The stored message:",
    );
    narrator.excerpt("assistant/message, content", &log.message_part("/content"));
    narrator.excerpt("assistant/message, replay metadata per block", &log.message_part("/source/replayState/blocks"));

    narrator.step("Another process goes on");
    let second = second_turn(&stage, &session_id, narrator).await?;

    narrator.step("What the provider received");
    let requests = RequestLog::read(&request_log)?;
    narrator.text(
        "The thought went back in the field it came in, as this provider wants it, and the answer's text with\n\
         it. The half call is nowhere. The assistant message of request 2:",
    );
    narrator.excerpt("request 2, assistant message", &requests.assistant_message(2));

    narrator.step("The claims, checked against the files");
    let wrong = claims(&log, &requests, &session_id, (&first, &second))
        .into_iter()
        .filter_map(|(claim, verdict)| {
            narrator.verdict(claim, verdict.as_ref().err().map(String::as_str));
            verdict.err().map(|found| format!("{claim}: {found}"))
        })
        .collect::<Vec<_>>();
    narrator.text(&format!(
        "Everything is kept in {}:\n  session log   {}\n  request log   {}",
        stage.folder.display(),
        session_file.display(),
        request_log.display()
    ));
    let ok = wrong.is_empty();
    let processes = [first, second.ended];
    Ok(Outcome { session_id, session_file, request_log, folder: stage.folder, processes, ok, wrong })
}

/// What the mock provider answers: a thought, a sentence and a tool call that the output limit cuts off; then, to the
/// follow-up, a plain answer.
fn script() -> Script {
    let call = ToolCall {
        id: "call_note".to_owned(),
        name: "bash".to_owned(),
        arguments: r#"{"command":"echo water the pla"#.to_owned(),
    };
    let cut_off = Entry {
        reasoning: Some(KEPT.reasoning.to_owned()),
        reasoning_field: Some(KEPT.reasoning_field.to_owned()),
        text: Some(KEPT.text.to_owned()),
        tool_calls: Some(vec![call]),
        finish: Some(Finish::Length),
        chunk_chars: Some(9),
        delay_ms: Some(12),
        ..Entry::default()
    };
    let follow_up = Entry {
        text: Some("The command was cut off before it ran, so nothing was written yet.".to_owned()),
        ..Entry::default()
    };
    Script { responses: vec![cut_off, follow_up], ..Script::default() }
}

/// A fresh folder: a home of its own, a working folder, and the place of the overlay.
fn prepare() -> Result<Stage, DemoError> {
    let exe = io(|| "cannot find this executable".to_owned(), std::env::current_exe())?;
    let name = uuid::Uuid::new_v4().simple().to_string();
    // The processes run in another folder, so a relative `TMPDIR` must not stay relative.
    let folder = std::env::temp_dir().join(format!("dsh-demo-{}", &name[..8]));
    let folder = io(|| format!("cannot resolve {}", folder.display()), std::path::absolute(&folder))?;
    let (home, work) = (folder.join("home"), folder.join("work"));
    for path in [&folder, &home, &work] {
        let made = DirBuilder::new().mode(0o700).create(path);
        io(|| format!("cannot make the folder {}", path.display()), made)?;
    }
    Ok(Stage { exe, overlay: folder.join("overlay.toml"), folder, home, work })
}

fn overlay(url: &str) -> String {
    format!(
        r#"version = 1

[[adapter]]
id = "pi-ai"

[adapter.config.providers.{ROUTE}]
api = "openai-completions"
base_url = "{url}"

[[adapter.config.providers.{ROUTE}.models]]
id = "{MODEL}"
context_window = 65536
max_tokens = 4096
reasoning = true

[agent]
model = "{ROUTE}/{MODEL}"
"#
    )
}

/// The first turn over ACP, as an editor would run it, and SIGKILL after it.
async fn first_turn(stage: &Stage, narrator: &mut Narrator) -> Result<(String, Ended), DemoError> {
    let mut client = AcpClient::start(stage)?;
    narrator.text(&format!("Process {} runs `dsh acp`, the agent as an editor starts it. The prompt:", client.pid()));
    narrator.excerpt("session/prompt", FIRST_PROMPT);
    client.initialize().await?;
    let session = client.new_session(&stage.work).await?;
    let stop = client.prompt(&session, FIRST_PROMPT, |update| narrator.update(update)).await?;
    narrator.end_updates();
    if stop != "max_tokens" {
        return Err(client.failed(format!("ended the turn with stopReason {stop:?} instead of \"max_tokens\"")));
    }
    narrator
        .text("The answer ended with stopReason `max_tokens`: the output limit, inside the arguments of a tool call.");
    let ended = client.kill().await?;
    narrator.text(&format!(
        "Now the process is killed, with SIGKILL: nothing can be saved on the way out.\n\
                            Process {} is gone (signal {}).",
        ended.pid,
        ended.signal.unwrap_or_default()
    ));
    Ok((session, ended))
}

/// What the second process said and how it ended.
struct SecondTurn {
    ended: Ended,
    result: serde_json::Value,
}

async fn second_turn(stage: &Stage, session: &str, narrator: &mut Narrator) -> Result<SecondTurn, DemoError> {
    let run = process::run_prompt(stage, session, SECOND_PROMPT).await?;
    narrator.text(&format!(
        "Process {} runs `dsh run --session {session}` with the prompt {SECOND_PROMPT:?}\n\
         It rebuilds the conversation from the log, and the model answers:",
        run.ended.pid
    ));
    narrator.excerpt("answer", run.result["text"].as_str().unwrap_or_default());
    Ok(SecondTurn { ended: run.ended, result: run.result })
}

type Claim = (&'static str, Result<(), String>);

fn claims(
    log: &SessionLog,
    requests: &RequestLog,
    session: &str,
    (first, second): (&Ended, &SecondTurn),
) -> Vec<Claim> {
    vec![
        ("the first process was killed by signal 9", evidence::is(&first.signal, &Some(9))),
        ("the second is another process", evidence::differ(first.pid, second.ended.pid)),
        ("the second ended with exit code 0", evidence::is(&second.ended.exit_code, &Some(0))),
        ("it continued the same session", evidence::is(&second.result["sessionId"], &session.into())),
        ("its turn completed", evidence::is(&second.result["reason"]["kind"], &"completed".into())),
        ("nothing was degraded", evidence::is(&second.result["degraded"], &serde_json::json!([]))),
        ("the half call was streamed, and the log has it", log.streamed_half_call()),
        ("the first turn ended at the output limit", log.first_turn_ended_at_the_limit()),
        ("the stored message has the kept blocks and no call", log.kept_blocks(&KEPT)),
        ("its metadata has one entry for each kept block", log.entries_match_blocks(&KEPT)),
        ("no tool ran", log.no_tool_ran()),
        ("the provider received two requests", requests.count(2)),
        ("request 2 carries the thought in its own field, and the text", requests.native(2, &KEPT)),
        ("request 2 carries no tool_calls", requests.no_tool_calls(2)),
    ]
}

/// Reads a file of JSON lines.
fn read_lines(path: &Path) -> Result<Vec<serde_json::Value>, DemoError> {
    let what = || format!("cannot read {}", path.display());
    let text = io(what, std::fs::read_to_string(path))?;
    let line = |line: &str| serde_json::from_str(line).map_err(std::io::Error::from);
    io(what, text.lines().map(line).collect())
}
