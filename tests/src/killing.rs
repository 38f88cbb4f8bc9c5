//! Kills `dsh run` with SIGKILL at a random moment of a turn, and judges what is left.
//!
//! The turn has everything: reasoning, text, a tool call, a tool that takes its time, a second answer. After each kill
//! [`Bench::trial`] holds to account:
//!
//! - every event that stdout had acknowledged is in the log, as it was told;
//! - `sessions verify` finds nothing but at most a torn last line;
//! - `sessions show` has the text that was streamed;
//! - another process continues the session at once and completes; the request that it sends has the text, says that it
//!   was interrupted, and answers every call;
//! - what was in the log stays there as it was, and the log is sound;
//! - the same holds for the log with its end torn off, at every byte of it ([`tearing`]), and a whole turn runs on one of
//!   these.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use dsh_host::scenario::SessionLog;
use serde_json::Value;

use crate::stage::Stage;
use crate::{Outcome, PATIENCE, run, tearing};

/// What the prompts that follow a kill begin with; the provider answers them with [`ANSWER`].
const CONTINUE: &str = "GO ON";
const ANSWER: &str = "So be it.";

const PROVIDER: &str = r#"
[[response]]
match = { body_contains = "GO ON" }
repeat = true
text = "So be it."

[[response]]
match = { body_contains = "\"role\":\"tool\"" }
repeat = true
reasoning = "The command has run, so the note is there."
text = "The note is written, and it says what you wanted it to say. Tell me when there is more to write down."
chunk_chars = 8
delay_ms = 7

[[response]]
repeat = true
reasoning = "A note in a file: one command will do."
text = "I will write the note now, with one command, and I will tell you when it is there. It does not take long."
tool_calls = [{ id = "call_note", name = "bash", arguments = '{"command":"sleep 0.1; echo water the plants"}' }]
chunk_chars = 8
delay_ms = 7
"#;

const OVERLAY: &str = r#"
version = 1
[[adapter]]
id = "pi-ai"
[adapter.config.providers.mock]
api = "openai-completions"
base_url = "@PROVIDER@"
[[adapter.config.providers.mock.models]]
id = "thinker"
reasoning = true
[agent]
model = "mock/thinker"
system = "Be brief."
"#;

/// How the sessions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As lines.
    Plain,
    /// As Zstandard frames.
    Compressed,
}

/// When the process is killed.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// So long after its start.
    AfterStart(Duration),
    /// So long after it has printed so many lines.
    AfterLines(usize, Duration),
}

/// Where in the turn a kill fell, by what the log holds. In the order of the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// There is no session.
    BeforeTheSession,
    /// Nothing of an answer is logged.
    BeforeTheAnswer,
    /// Its reasoning came last.
    InTheReasoning,
    /// Its text came last.
    InTheText,
    /// Its call came last.
    InTheCall,
    /// The call is logged, its result is not.
    InTheTool,
    /// The result is logged.
    InTheSecondAnswer,
    /// The turn was over.
    AfterTheTurn,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::BeforeTheSession => "before the session existed",
            Self::BeforeTheAnswer => "before the first piece of an answer",
            Self::InTheReasoning => "in the reasoning",
            Self::InTheText => "in the text",
            Self::InTheCall => "in the tool call",
            Self::InTheTool => "while the tool was to run",
            Self::InTheSecondAnswer => "in the second answer",
            Self::AfterTheTurn => "after the end of the turn",
        })
    }
}

/// What one kill left.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Where it fell.
    pub place: Place,
    /// Events that stdout had acknowledged.
    pub acknowledged: usize,
    /// Events in the log.
    pub logged: usize,
    /// The last line was torn.
    pub torn: bool,
    /// Characters of text that was streamed and not yet a message.
    pub partial: usize,
    /// Lengths that the log was torn to.
    pub tears: usize,
}

/// A composition to kill processes of.
#[derive(Debug)]
pub struct Bench {
    stage: Stage,
    random: Random,
    trials: usize,
    /// Lines that a whole turn prints.
    lines: usize,
    /// How long it takes.
    duration: Duration,
}

impl Bench {
    /// Sets up, and runs a turn to its end to learn how long one is. The same seed gives the same moments, as far as
    /// lines go.
    ///
    /// # Panics
    ///
    /// When the turn does not complete.
    #[must_use]
    pub fn new(seed: u64, form: Form) -> Self {
        let stage = match form {
            Form::Plain => Stage::new(PROVIDER, OVERLAY),
            Form::Compressed => Stage::new(PROVIDER, &format!("{OVERLAY}[sessions]\ncompression = \"zstd\"\n")),
        };
        let begun = Instant::now();
        let whole = run(stage.command(&["run", "--json", "Trial 0."]));
        assert_eq!(whole.code, Some(0), "{whole}");
        let lines = whole.stdout.lines().count();
        assert!(lines > 60, "the turn is shorter than it is meant to be: {whole}");
        Self { stage, random: Random(seed), trials: 0, lines, duration: begun.elapsed() }
    }

    /// Runs a turn, kills it, tears its log at every `step`th byte of the end, and continues its session.
    ///
    /// # Panics
    ///
    /// When anything is not as promised; the message has the moment and what was found.
    pub fn trial(&mut self, step: usize) -> Trial {
        self.trials += 1;
        let moment = match self.random.below(3) {
            0 => Moment::AfterStart(self.duration.mul_f64(self.random.fraction())),
            _ => {
                let lines = usize::try_from(self.random.below(self.lines as u64)).unwrap();
                // The log is written, and lines are printed, in batches of up to 100 ms.
                Moment::AfterLines(lines, Duration::from_millis(130).mul_f64(self.random.fraction()))
            }
        };
        let context = format!("trial {}, killed {moment:?}", self.trials);
        let known = self.stage.sessions();
        let prompt = format!("Trial {}.", self.trials);
        let acknowledged = self.killed(&prompt, moment);
        let path = self.stage.sessions().into_iter().find(|path| !known.contains(path));
        let log = path.as_deref().and_then(|path| SessionLog::read(path).unwrap());
        let (Some(path), Some(log)) = (path, log) else {
            assert!(acknowledged.is_empty(), "{context}: events of a session that does not exist: {acknowledged:#?}");
            let list = self.dsh(&["sessions", "list", "--json"]);
            assert_eq!(list.code, Some(0), "{context}: {list}");
            let place = Place::BeforeTheSession;
            return Trial { place, acknowledged: 0, logged: 0, torn: false, partial: 0, tears: 0 };
        };
        for event in &acknowledged {
            let seq = usize::try_from(event["seq"].as_u64().unwrap()).unwrap();
            assert_eq!(log.events.get(seq), Some(event), "{context}: an acknowledged event is not in the log");
        }
        // What no message holds yet.
        let partial = log.text_since("assistant/message");
        self.judge_readers(&context, &path, &log, &prompt, &partial);
        let tears = tearing::judge(&path, step, &context);
        self.judge_torn(&context, &path);
        self.judge_continuation(&context, &path, &log, &prompt, &partial);
        Trial {
            place: place(&log),
            acknowledged: acknowledged.len(),
            logged: log.events.len(),
            torn: log.torn,
            partial: partial.chars().count(),
            tears,
        }
    }

    /// Runs a turn until that moment; returns the events that were printed.
    fn killed(&self, prompt: &str, moment: Moment) -> Vec<Value> {
        let mut command = self.stage.command(&["run", "--json", prompt]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let lines = complete_lines(child.stdout.take().unwrap());
        let mut printed: Vec<Value> = Vec::new();
        match moment {
            Moment::AfterStart(time) => std::thread::sleep(time.saturating_sub(begun.elapsed())),
            Moment::AfterLines(count, delay) => {
                // The process may also end before.
                printed.extend(lines.iter().take(count));
                std::thread::sleep(delay);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => printed.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the killed process's stdout is still open"),
            }
        }
        printed.retain(|line| line["type"] != "result");
        printed
    }

    fn judge_readers(&self, context: &str, path: &Path, log: &SessionLog, prompt: &str, partial: &str) {
        let path = path.to_str().unwrap();
        let verified = self.dsh(&["sessions", "verify", "--json", path]);
        let problems = verified.json()["problems"].as_array().cloned().unwrap();
        let kinds: Vec<&str> = problems.iter().map(|problem| problem["kind"].as_str().unwrap()).collect();
        let expected: &[&str] = if log.torn { &["torn-tail"] } else { &[] };
        let torn_block = path.ends_with(".zst") && kinds == ["torn-frame"];
        assert!(kinds == expected || torn_block, "{context}: {verified}");

        let shown = self.dsh(&["sessions", "show", "--messages", "--json", path]);
        let messages = shown.json().as_array().cloned().unwrap();
        let text = |message: Option<&Value>| -> String {
            let blocks = message.and_then(|message| message["content"].as_array()).into_iter().flatten();
            blocks.filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str()).collect()
        };
        if log.events.iter().any(|event| event["type"] == "user/message") {
            assert_eq!(text(messages.first()), prompt, "{context}: {shown}");
        } else {
            assert!(messages.is_empty(), "{context}: {shown}");
        }
        if !partial.trim().is_empty() {
            assert_eq!(messages.last().unwrap()["role"], "assistant", "{context}: {shown}");
            assert_eq!(text(messages.last()), partial, "{context}: {shown}");
        }
    }

    fn judge_continuation(&self, context: &str, path: &Path, before: &SessionLog, prompt: &str, partial: &str) {
        let again = format!("{CONTINUE} {}.", self.trials);
        let id = path.file_name().unwrap().to_str().unwrap().split(".jsonl").next().unwrap();
        let continued = self.dsh(&["run", "--session", id, "--json", &again]);
        assert_eq!(continued.code, Some(0), "{context}: {continued}");
        let result: Value = serde_json::from_str(continued.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(result["reason"]["kind"], "completed", "{context}: {continued}");
        assert_eq!(result["text"], ANSWER, "{context}: {continued}");

        let requests = self.stage.requests();
        let messages = requests.iter().rev().filter_map(|request| request["body"]["messages"].as_array());
        let mut messages = messages.filter(|messages| messages.last().is_some_and(|last| last["content"] == *again));
        let messages = messages.next().unwrap_or_else(|| panic!("{context}: no request ends with {again:?}"));
        if let Err(wrong) = judge_request(messages, before, prompt, partial) {
            panic!("{context}: {wrong}: {:#}", Value::Array(messages.clone()));
        }

        let after = SessionLog::read(path).unwrap().unwrap();
        assert!(!after.torn, "{context}: the log is still torn");
        assert_eq!(after.events[..before.events.len()], before.events, "{context}: what was in the log has changed");
        let verified = self.dsh(&["sessions", "verify", "--json", id]);
        assert_eq!(verified.code, Some(0), "{context}: {verified}");
    }

    /// Runs a turn on a copy of the log that is torn at a random byte of its end.
    fn judge_torn(&mut self, context: &str, path: &Path) {
        let bytes = std::fs::read(path).unwrap();
        let end = tearing::END.min(bytes.len() - tearing::header_length(path, &bytes)) as u64;
        let torn = usize::try_from(self.random.below(end + 1)).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().replacen(|_: char| true, "t", 1);
        let copy = path.with_file_name(&name);
        std::fs::write(&copy, &bytes[..bytes.len() - torn]).unwrap();
        let id = name.split(".jsonl").next().unwrap();
        let context = format!("{context}, {torn} bytes torn off");
        let continued = self.dsh(&["run", "--session", id, "--json", &format!("{CONTINUE} {}.", self.trials)]);
        assert_eq!(continued.code, Some(0), "{context}: {continued}");
        let result: Value = serde_json::from_str(continued.stdout.lines().last().unwrap()).unwrap();
        assert_eq!(result["text"], ANSWER, "{context}: {continued}");
        let verified = self.dsh(&["sessions", "verify", "--json", id]);
        assert_eq!(verified.code, Some(0), "{context}: {verified}");
        std::fs::remove_file(copy).unwrap();
    }

    fn dsh(&self, args: &[&str]) -> Outcome {
        run(self.stage.command(args))
    }
}

/// The lines of a pipe as JSON, without a last one that was torn.
fn complete_lines(pipe: impl std::io::Read + Send + 'static) -> Receiver<Value> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = String::new();
            let read = pipe.read_line(&mut line).unwrap();
            if read == 0 || !line.ends_with('\n') {
                return;
            }
            let line = serde_json::from_str(&line).unwrap_or_else(|e| panic!("stdout carries {line:?}: {e}"));
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

fn place(log: &SessionLog) -> Place {
    let has = |kind: &str| log.events.iter().any(|event| event["type"] == kind);
    if has("turn/end") {
        return Place::AfterTheTurn;
    }
    if has("tool/result") {
        return Place::InTheSecondAnswer;
    }
    if has("assistant/message") {
        return Place::InTheTool;
    }
    let last = log.events.iter().rev().find(|event| event["type"] == "assistant/chunk");
    let Some(last) = last else { return Place::BeforeTheAnswer };
    let chunk = &last["data"]["chunk"];
    let kinds = [&chunk["type"], &chunk["blockType"], &chunk["block"]["type"]];
    let is = |kind: &str| kinds.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(kind)));
    match (is("reasoning"), is("text")) {
        (true, _) => Place::InTheReasoning,
        (_, true) => Place::InTheText,
        _ => Place::InTheCall,
    }
}

/// The rules that hold for every request after a kill.
fn judge_request(messages: &[Value], log: &SessionLog, prompt: &str, partial: &str) -> Result<(), String> {
    let logged = |kind: &str| log.events.iter().any(|event| event["type"] == kind);
    let says = |message: &Value, words: &str| message["content"].as_str().is_some_and(|text| text.contains(words));
    if logged("user/message") && !messages.iter().any(|message| message["role"] == "user" && says(message, prompt)) {
        return Err("the prompt of the killed turn is missing".to_owned());
    }
    if !partial.trim().is_empty() {
        let at = messages.iter().position(|message| message["role"] == "assistant" && message["content"] == *partial);
        let at = at.ok_or_else(|| format!("the partial text {partial:?} is missing"))?;
        if !messages.get(at + 1).is_some_and(|next| next["role"] == "user" && says(next, "interrupted")) {
            return Err("nothing says that the text was interrupted".to_owned());
        }
    }
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let answered = open.iter().position(|id| **id == message["tool_call_id"]);
            open.remove(answered.ok_or_else(|| format!("a result without its call: {message}"))?);
            if !logged("tool/result") && !says(message, "interrupted") {
                return Err("nothing says that the call was interrupted".to_owned());
            }
            continue;
        }
        if !open.is_empty() {
            return Err(format!("calls without results before {message}"));
        }
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            serde_json::from_str::<Value>(arguments)
                .map_err(|e| format!("arguments that are no JSON ({e}): {call}"))?;
            open.push(&call["id"]);
        }
        if message.get("tool_calls").is_none() && message["content"].as_str().is_none_or(|text| text.trim().is_empty())
        {
            return Err(format!("a message without content: {message}"));
        }
    }
    if logged("assistant/message") && !messages.iter().any(|message| message.get("tool_calls").is_some()) {
        return Err("the call of the killed turn is missing".to_owned());
    }
    Ok(())
}

/// What many trials found.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    places: BTreeMap<Place, usize>,
    /// Events that stdout had acknowledged, all of them found in the logs.
    pub acknowledged: usize,
    /// Events in the logs.
    pub logged: usize,
    /// Logs whose last line was torn.
    pub torn: usize,
    /// Kills that left text which no message held yet.
    pub partial: usize,
    /// Lengths that logs were torn to.
    pub tears: usize,
}

impl Figures {
    /// Adds a trial.
    pub fn add(&mut self, trial: &Trial) {
        *self.places.entry(trial.place).or_default() += 1;
        self.acknowledged += trial.acknowledged;
        self.logged += trial.logged;
        self.torn += usize::from(trial.torn);
        self.partial += usize::from(trial.partial > 0);
        self.tears += trial.tears;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| the kill fell | kills |\n|---|---|")?;
        for (place, count) in &self.places {
            writeln!(f, "| {place} | {count} |")?;
        }
        writeln!(f, "| all | {} |", self.places.values().sum::<usize>())?;
        writeln!(f, "\nevents acknowledged on stdout: {}, all of them in the logs", self.acknowledged)?;
        writeln!(f, "events in the logs: {}", self.logged)?;
        writeln!(f, "logs with a torn last line: {}", self.torn)?;
        writeln!(f, "lengths that logs were torn to, each opened and continued: {}", self.tears)?;
        write!(
            f,
            "kills that left text which no message held yet, shown and sent again as interrupted: {}",
            self.partial
        )
    }
}

/// SplitMix64: small, and good enough to spread moments.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `limit`; the bias of the remainder does not matter here.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From 0 to below 1.
    fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap()) / (f64::from(u32::MAX) + 1.0)
    }
}
