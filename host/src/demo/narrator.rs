//! Tells what happens, as it happens, to a person who has read nothing.

use std::io::{IsTerminal, Write};

use serde_json::Value;

/// Writes the story. Output that cannot be written is given up: the story is judged by files, not by its telling.
pub struct Narrator {
    out: Box<dyn Write>,
    styled: bool,
    steps: u32,
    /// The kind of update whose text is on the current line.
    line: Option<&'static str>,
}

impl Narrator {
    /// Tells it on stdout.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(Box::new(std::io::stdout()), std::io::stdout().is_terminal())
    }

    /// Tells it on stderr.
    #[must_use]
    pub fn stderr() -> Self {
        Self::new(Box::new(std::io::stderr()), std::io::stderr().is_terminal())
    }

    fn new(out: Box<dyn Write>, is_terminal: bool) -> Self {
        let styled = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { out, styled, steps: 0, line: None }
    }

    fn write(&mut self, text: &str) {
        drop(self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()));
    }

    fn style(&self, code: &str, text: &str) -> String {
        if self.styled { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A numbered heading.
    pub(super) fn step(&mut self, title: &str) {
        self.steps += 1;
        let heading = self.style("1", &format!("{}. {title}", self.steps));
        self.write(&format!("\n{heading}\n"));
    }

    /// A paragraph.
    pub(super) fn text(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Real data, indented, with its name.
    pub(super) fn excerpt(&mut self, name: &str, text: &str) {
        let name = self.style("2", &format!("  [{name}]"));
        let body: String = text.trim_end().lines().map(|line| format!("  | {line}\n")).collect();
        self.write(&format!("{name}\n{body}"));
    }

    /// A claim that was checked; `found` says what is there instead.
    pub(super) fn verdict(&mut self, claim: &str, found: Option<&str>) {
        let line = match found {
            None => format!("  {} {claim}", self.style("32", "ok   ")),
            Some(found) => format!("  {} {claim}\n        {found}", self.style("31", "WRONG")),
        };
        self.write(&format!("{line}\n"));
    }

    /// A `session/update`, as it arrives: thought and answer are shown piece by piece.
    pub(super) fn update(&mut self, update: &Value) {
        let label = match update["sessionUpdate"].as_str() {
            Some("agent_thought_chunk") => "thought",
            Some("agent_message_chunk") => "answer",
            _ => return,
        };
        let Some(text) = update["content"]["text"].as_str() else { return };
        if self.line != Some(label) {
            self.end_updates();
            let name = self.style("2", &format!("  [{label}] "));
            self.write(&name);
            self.line = Some(label);
        }
        self.write(text);
    }

    /// Ends the line that updates are shown on.
    pub(super) fn end_updates(&mut self) {
        if self.line.take().is_some() {
            self.write("\n");
        }
    }
}
