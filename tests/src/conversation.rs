//! Turns of a session, as `dsh run --json` shows them, and the log that they leave.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{Composition, Outcome, Provider};

impl Composition {
    /// A composition of the adapter pi-ai with two routes to a provider: `mock`, whose model `m` is the agent's, and
    /// `spare`. There is one retry, and it is quick. `more` goes into the table `[transport]`.
    #[must_use]
    pub fn on(provider: &Provider, more: &str) -> Self {
        let url = provider.url();
        Self::new(&format!(
            r#"version = 1

[[adapter]]
id = "pi-ai"
library = "dsh-llm-pi-ai"

[adapter.config.providers.mock]
api = "openai-completions"
base_url = "{url}"
models = [{{ id = "m", reasoning = true }}, {{ id = "other", reasoning = true }}]

[adapter.config.providers.spare]
api = "openai-completions"
base_url = "{url}"
models = [{{ id = "m", reasoning = true }}]

[agent]
model = "mock/m"
tools = ["bash"]

[transport]
max_retries = 1
retry_base_ms = 10
retry_max_ms = 1000
{more}"#
        ))
    }

    /// Runs one prompt with `dsh run --json`.
    #[must_use]
    pub fn prompt(&self, args: &[&str], prompt: &str) -> Run {
        let mut all = vec!["run", "--json"];
        all.extend(args);
        all.push(prompt);
        Run::read(self.dsh(&all))
    }

    /// Where the log of a session is.
    #[must_use]
    pub fn log(&self, session: &str) -> PathBuf {
        self.home().join("sessions").join(format!("{session}.jsonl"))
    }

    /// The ids of the sessions that have a log.
    ///
    /// # Panics
    ///
    /// When they cannot be listed.
    #[must_use]
    pub fn sessions(&self) -> Vec<String> {
        let Ok(folder) = std::fs::read_dir(self.home().join("sessions")) else { return Vec::new() };
        let names = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect()
    }

    /// The events of a session's log, after a check that the log is well formed.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[must_use]
    pub fn events(&self, session: &str) -> Vec<Value> {
        let verified = self.dsh(&["sessions", "verify", "--json", session]);
        assert!(verified.code == Some(0) && verified.json()["ok"] == true, "{verified}");
        let shown = self.dsh(&["sessions", "show", "--events", "--json", session]);
        assert_eq!(shown.code, Some(0), "{shown}");
        shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes the log of a session in which one turn was had per answer: content and source of its assistant message.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write_session(&self, session: &str, answers: &[(Value, Value)]) {
        let mut lines = vec![json!({ "type": "session", "version": 0, "id": session, "createdAt": 1, "cwd": "/" })];
        let mut event = |kind: &str, data: Value, message: bool| {
            let mut event = json!({ "type": kind, "seq": lines.len() - 1, "time": 1, "data": data });
            if message {
                event["surfaceOp"] = json!("append");
            }
            lines.push(event);
        };
        for (position, (content, source)) in answers.iter().enumerate() {
            let turn = position + 1;
            let text = json!([{ "type": "text", "text": format!("question {turn}") }]);
            let asked =
                json!({ "id": format!("u{turn}"), "role": "user", "content": text, "source": { "kind": "user" } });
            let said = json!({ "id": format!("a{turn}"), "role": "assistant", "content": content, "source": source });
            event("turn/start", json!({ "turn": turn }), false);
            event("step/start", json!({ "turn": turn, "step": 1 }), false);
            event("user/message", asked, true);
            event("assistant/message", json!({ "turn": turn, "step": 1, "message": said }), true);
            event("step/end", json!({ "turn": turn, "step": 1 }), false);
            event("turn/end", json!({ "turn": turn, "reason": { "kind": "completed" } }), false);
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let path = self.log(session);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// One turn.
#[derive(Debug)]
pub struct Run {
    /// How the process ended.
    pub outcome: Outcome,
    /// The durable events that it printed.
    pub events: Vec<Value>,
    /// Its last line.
    pub result: Value,
}

impl Run {
    /// Reads what `dsh run --json` printed.
    ///
    /// # Panics
    ///
    /// When a line is no JSON, or the last is no result.
    #[must_use]
    pub fn read(outcome: Outcome) -> Self {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?} is no JSON ({e}): {outcome}"));
        let mut events: Vec<Value> = outcome.stdout.lines().map(line).collect();
        let result = events.pop().unwrap_or_default();
        assert_eq!(result["type"], "result", "the last line is no result: {outcome}");
        Self { outcome, events, result }
    }

    /// The same, after a check that the turn completed.
    ///
    /// # Panics
    ///
    /// When it did not.
    #[expect(clippy::must_use_candidate, reason = "the check may be all that is wanted")]
    pub fn completed(self) -> Self {
        let done = self.outcome.code == Some(0) && self.result["reason"]["kind"] == "completed";
        assert!(done, "the turn did not complete: {}", self.outcome);
        self
    }

    /// Id of the session.
    ///
    /// # Panics
    ///
    /// When the result names none.
    #[must_use]
    pub fn session(&self) -> &str {
        self.result["sessionId"].as_str().expect("the result names the session")
    }

    /// The data of the events of a kind.
    #[must_use]
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        of_kind(&self.events, kind)
    }
}

/// The data of the events of a kind.
#[must_use]
pub fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).map(|event| &event["data"]).collect()
}
