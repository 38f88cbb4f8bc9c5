//! What a person, or a program, sees of a turn.
//!
//! The answer goes to stdout as it streams; with `--json` the durable events do, a line each, and last the result.
//! Everything else goes to stderr: notes that start with `dsh: `, tool calls that start with `· `, and on a terminal
//! the reasoning, dimmed. Two answers of one turn never share a line, and on a terminal no note stands inside one.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dsh_plugin_api::json::{self, Object, raw};
use dsh_plugin_api::vocab::{Block, Failure, FailureCode, Usage};
use serde_json::json;

use crate::agent::{AgentError, TurnEnd, TurnReason, Update};
use crate::cli::output::{clip, shown};
use crate::session::batch::Durable;

/// Longest tool argument or failure that is shown, in characters.
const TOOL_WIDTH: usize = 100;

/// About how many bytes of JSON lines are written at once.
const LINES: usize = 64 << 10;

/// Prints one turn.
pub(super) struct Output {
    json: bool,
    screen: Mutex<Screen>,
}

/// The two streams, and what stands on the line that is being written.
struct Screen {
    out: Stream,
    err: Stream,
    open: Option<Line>,
}

struct Stream {
    to: Box<dyn Write + Send>,
    is_terminal: bool,
    /// Why it did not take everything; the first reason.
    unwritten: Option<io::Error>,
}

/// A line without its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// Of the answer, on stdout.
    Text,
    /// Of reasoning, on stderr.
    Reasoning,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let out = Stream { is_terminal: out.is_terminal(), to: Box::new(out), unwritten: None };
        let err = Stream { is_terminal: err.is_terminal(), to: Box::new(err), unwritten: None };
        Self { json, screen: Mutex::new(Screen { out, err, open: None }) }
    }

    pub(super) fn take(&self, update: Update) {
        let mut screen = self.screen();
        match update {
            Update::Durable(events) => {
                if self.json {
                    screen.events(&events);
                }
            }
            Update::Text(text) => {
                if !self.json {
                    screen.text(&text);
                }
            }
            Update::Reasoning(text) => {
                if !self.json {
                    screen.reasoning(&text);
                }
            }
            Update::ToolCall { name, arguments, .. } => {
                screen.end_answer();
                screen.line(&format!("· {name} {}", brief(&arguments)));
            }
            Update::ToolResult { content, is_error: true, .. } => {
                let text = content.iter().map(|block| if let Block::Text(text) = block { text.as_str() } else { "" });
                screen.line(&format!("· failed: {}", clip(&text.collect::<String>(), TOOL_WIDTH)));
            }
            Update::ToolResult { is_error: false, .. } => {}
            Update::Degraded(degraded) => screen.note(&format!("warning: {}", degraded.describe())),
            Update::Retry { retry, max_retries, delay_ms, failure } => screen.note(&format!(
                "the request failed: {}; retry {retry} of {max_retries} in {} s",
                describe(&failure),
                delay_ms as f64 / 1000.0
            )),
            Update::AttemptDiscarded => {
                screen.end_answer();
                screen.note("the answer broke off; what stands above is void and asked for again");
            }
            Update::Notice(text) => screen.note(&text),
        }
    }

    /// Prints the end of the turn and says how the process ends.
    pub(super) fn finish(&self, session: &str, result: Result<TurnEnd, AgentError>) -> ExitCode {
        let again = format!("continue with `dsh run --session {session} …`");
        let (end, note) = match result {
            Ok(end) => {
                let note = ending(&end.reason, &again);
                (end, note)
            }
            Err(AgentError::Failure(failure)) => {
                let note = format!("the turn could not begin: {failure}");
                (failed(failure), Some(note))
            }
            Err(AgentError::Store(error)) => {
                let note = format!(
                    "the turn was stopped, since the session can no longer be written: {error}. What was saved before \
                     stays; {again}"
                );
                (failed(Failure::new(FailureCode::from("STORE"), error.to_string())), Some(note))
            }
        };
        let mut screen = self.screen();
        if self.json {
            let result = json!({
                "type": "result",
                "sessionId": session,
                "reason": end.reason,
                "text": end.text,
                "degraded": end.degraded,
                "usage": end.usage,
            });
            screen.out.write(&format!("{result}\n"));
        }
        screen.end_answer();
        if let Some(note) = note {
            screen.note(&note);
        }
        if let Some(error) = screen.out.unwritten.take() {
            screen.note(&format!("stdout cannot be written ({error}); the answer is in session {session}"));
            return ExitCode::FAILURE;
        }
        match end.reason {
            TurnReason::Completed | TurnReason::MaxTokens | TurnReason::MaxSteps => ExitCode::SUCCESS,
            TurnReason::Aborted | TurnReason::Error { .. } => ExitCode::FAILURE,
        }
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a person is told of the end of a turn; nothing where the answer says it all.
fn ending(reason: &TurnReason, again: &str) -> Option<String> {
    match reason {
        TurnReason::Completed => None,
        TurnReason::MaxTokens => Some(format!("the answer was cut off by the output limit; {again}")),
        TurnReason::MaxSteps => Some(format!("the turn reached its limit of steps; {again}")),
        TurnReason::Aborted => Some(format!("stopped; what was said is kept; {again}")),
        TurnReason::Error { failure } => {
            Some(format!("the turn failed: {}. What was said is kept; {again}", describe(failure)))
        }
    }
}

/// A failure on one line, with its status and the wait that the provider asks for.
pub(in crate::cli) fn describe(failure: &Failure) -> String {
    let status = failure.status.map(|status| format!(" (status {status})")).unwrap_or_default();
    let wait = failure.provider_retry_after_ms.map(|ms| format!("; the provider asks to wait {ms} ms"));
    // Messages quote providers.
    format!("{}{status}: {}{}", failure.code, shown(&failure.message), wait.unwrap_or_default())
}

fn failed(failure: Failure) -> TurnEnd {
    TurnEnd {
        reason: TurnReason::Error { failure },
        text: String::new(),
        degraded: Vec::new(),
        usage: Usage::default(),
    }
}

/// Arguments on one line: the command where there is one, else the JSON.
fn brief(arguments: &str) -> String {
    let command = json::from_str::<Object>(arguments).ok().and_then(|arguments| arguments.get_str("command"));
    clip(command.as_deref().unwrap_or(arguments), TOOL_WIDTH)
}

impl Screen {
    /// A line of JSON each, many of them in one write.
    fn events(&mut self, events: &Durable) {
        let mut lines = String::new();
        for event in events.events() {
            lines.push_str(raw(&*event).get());
            lines.push('\n');
            if lines.len() >= LINES {
                self.out.write(&lines);
                lines.clear();
            }
        }
        self.out.write(&lines);
    }

    fn text(&mut self, text: &str) {
        if self.open == Some(Line::Reasoning) {
            self.end_line();
        }
        // A model's text must not steer the terminal; a file gets it as it is.
        if self.out.is_terminal {
            self.out.write(&shown(text));
        } else {
            self.out.write(text);
        }
        self.opened(Line::Text, text);
    }

    fn reasoning(&mut self, text: &str) {
        if !self.err.is_terminal {
            return;
        }
        if self.open == Some(Line::Text) {
            self.end_line();
        }
        self.err.write(&format!("\x1b[2m{}\x1b[0m", shown(text)));
        self.opened(Line::Reasoning, text);
    }

    fn opened(&mut self, line: Line, text: &str) {
        if let Some(last) = text.chars().last() {
            self.open = (last != '\n').then_some(line);
        }
    }

    /// Ends the line that an answer, or the reasoning before it, stands on.
    fn end_answer(&mut self) {
        if self.open.is_some() {
            self.end_line();
        }
    }

    fn end_line(&mut self) {
        match self.open.take() {
            Some(Line::Text) => self.out.write("\n"),
            Some(Line::Reasoning) => self.err.write("\n"),
            None => {}
        }
    }

    /// A line for the person. It ends a line of the answer only where both share a screen.
    fn line(&mut self, text: &str) {
        let shared = self.out.is_terminal && self.err.is_terminal;
        if self.open == Some(Line::Reasoning) || shared {
            self.end_line();
        }
        self.err.write(&format!("{}\n", shown(text)));
    }

    fn note(&mut self, text: &str) {
        self.line(&format!("dsh: {text}"));
    }
}

impl Stream {
    fn write(&mut self, text: &str) {
        // A reader that went away is no reason to stop a turn. Another failure is told at its end.
        if let Err(error) = self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.unwritten.get_or_insert(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_failure_that_quotes_a_provider_cannot_steer_the_terminal() {
        let failure = Failure::new(FailureCode::Auth, "wrong \u{1b}[31mkey\u{7}");
        assert_eq!(describe(&failure), "AUTH: wrong [31mkey");
    }

    /// Both streams in the order they were written, as one screen shows them, and stdout alone.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<(String, String)>>);

    struct Side(Paper, bool);

    impl Write for Side {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let text = std::str::from_utf8(bytes).unwrap();
            let mut paper = self.0.0.lock().unwrap();
            paper.0.push_str(text);
            if self.1 {
                paper.1.push_str(text);
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn output(json: bool, is_terminal: bool) -> (Output, Paper) {
        let paper = Paper::default();
        let stream = |is_out| Stream { to: Box::new(Side(paper.clone(), is_out)), is_terminal, unwritten: None };
        let screen = Screen { out: stream(true), err: stream(false), open: None };
        (Output { json, screen: Mutex::new(screen) }, paper)
    }

    fn play(is_terminal: bool) -> (String, String) {
        let (output, paper) = output(false, is_terminal);
        let failure = Failure::new(FailureCode::Server, "busy");
        for update in [
            Update::Reasoning("hm".into()),
            Update::Text("I\x1b look".into()),
            Update::ToolCall { id: "c".into(), name: "bash".into(), arguments: r#"{"command":"ls\nx"}"#.into() },
            Update::ToolResult { id: "c".into(), content: vec![Block::Text("no".into())], is_error: true },
            Update::Text("half".into()),
            Update::Retry { retry: 1, max_retries: 3, delay_ms: 1500, failure: failure.clone() },
            Update::AttemptDiscarded,
            Update::Text("Done.".into()),
            Update::Notice("n".into()),
        ] {
            output.take(update);
        }
        output.finish("s", Ok(failed(failure)));
        let paper = paper.0.lock().unwrap();
        paper.clone()
    }

    #[test]
    fn a_terminal_shows_reasoning_and_no_note_inside_an_answer() {
        assert_eq!(
            play(true).0,
            "\x1b[2mhm\x1b[0m\nI look\n· bash ls x\n· failed: no\nhalf\n\
             dsh: the request failed: SERVER: busy; retry 1 of 3 in 1.5 s\n\
             dsh: the answer broke off; what stands above is void and asked for again\nDone.\ndsh: n\n\
             dsh: the turn failed: SERVER: busy. What was said is kept; continue with `dsh run --session s …`\n"
        );
    }

    #[test]
    fn a_file_gets_the_answers_alone_each_on_its_line() {
        assert_eq!(play(false).1, "I\x1b look\nhalf\nDone.\n");
    }

    #[test]
    fn json_has_events_and_a_result_and_nothing_else_on_stdout() {
        let (output, paper) = output(true, false);
        output.take(Update::Text("x".into()));
        output.take(Update::Notice("n".into()));
        output.finish("s", Err(AgentError::Failure(Failure::new(FailureCode::UnknownModel, "which?"))));
        let out = paper.0.lock().unwrap().1.clone();
        let result: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(result["type"], "result");
        assert_eq!(result["reason"]["failure"]["code"], "UNKNOWN_MODEL");
    }
}
