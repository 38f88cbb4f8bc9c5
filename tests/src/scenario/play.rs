//! The steps of a scenario, and how they are played.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::acp::AcpClient;
use crate::log::SessionLog;
use crate::stage::Stage;

/// How long the log may take to hold what a step waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the client does. One session, one prompt at a time.
#[derive(Debug, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Step {
    /// Starts `dsh acp` where none runs, and says hello.
    Initialize {},
    NewSession {},
    /// Loads the session that `newSession` made.
    LoadSession {},
    /// Sends a prompt and waits for its answer, or only until the agent's text has these words.
    Prompt {
        text: String,
        until: Option<String>,
    },
    /// Cancels the prompt that `until` left running, and waits for its answer.
    Cancel {},
    /// Kills the process with SIGKILL; with `onceLogged` not before the streamed text in the log has these words.
    Kill {
        once_logged: Option<String>,
    },
}

/// What came of it, as it was.
pub(super) struct Played {
    /// Messages of the agent, and after those of each process how it ended.
    pub stdout: Vec<Value>,
    pub log: SessionLog,
    pub requests: Vec<Value>,
    pub session: String,
    /// The text for each folder and URL of this run, with the name that stands for it.
    pub places: Vec<(String, &'static str)>,
}

pub(super) fn play(input: &str, script: &str, overlay: &str) -> Result<Played, String> {
    let steps: Vec<Step> = serde_json::from_str(input).map_err(|e| format!("input.json: {e}"))?;
    let stage = Stage::new(script, overlay);
    let mut player =
        Player { stage: &stage, client: None, stdout: Vec::new(), requests: 0, prompt: None, session: None };
    for (position, step) in steps.into_iter().enumerate() {
        let named = format!("step {} of input.json, {step:?}", position + 1);
        player.step(step).map_err(|e| format!("{named}: {e}"))?;
    }
    if let Some(client) = player.client.take() {
        let ended = client.close()?;
        player.ended(ended);
    }
    let sessions = stage.sessions();
    let [path] = sessions.as_slice() else { return Err(format!("there are {} sessions, not one", sessions.len())) };
    let log = SessionLog::read(path).filter(|log| !log.torn).ok_or("the session log is torn")?;
    let places = vec![
        (stage.url().to_owned(), "<provider>"),
        (stage.home().display().to_string(), "<home>"),
        (stage.work().display().to_string(), "<workspace>"),
    ];
    let session = player.session.ok_or("no step makes a session")?;
    Ok(Played { stdout: player.stdout, log, requests: stage.requests(), session, places })
}

struct Player<'a> {
    stage: &'a Stage,
    client: Option<AcpClient>,
    stdout: Vec<Value>,
    /// Requests so far; ids go on over processes.
    requests: u64,
    /// The prompt that runs.
    prompt: Option<u64>,
    session: Option<String>,
}

impl Player<'_> {
    fn step(&mut self, step: Step) -> Result<(), String> {
        if self.prompt.is_some() && !matches!(step, Step::Cancel {} | Step::Kill { .. }) {
            return Err("a prompt runs; only cancel and kill can follow its `until`".to_owned());
        }
        match step {
            Step::Initialize {} => {
                if self.client.is_none() {
                    self.client = Some(AcpClient::start(self.stage.command(&["acp"]))?);
                }
                self.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
            }
            Step::NewSession {} => {
                let answer = self.call("session/new", &json!({ "cwd": self.stage.work(), "mcpServers": [] }))?;
                let id = answer["result"]["sessionId"].as_str().ok_or_else(|| format!("no sessionId: {answer}"))?;
                self.session = Some(id.to_owned());
            }
            Step::LoadSession {} => {
                let session = self.session()?;
                let params = json!({ "sessionId": session, "cwd": self.stage.work(), "mcpServers": [] });
                self.call("session/load", &params)?;
            }
            Step::Prompt { text, until } => {
                let params = json!({ "sessionId": self.session()?, "prompt": [{ "type": "text", "text": text }] });
                let seen = self.client()?.messages.len();
                let id = self.send("session/prompt", &params)?;
                match until {
                    None => drop(self.client()?.answer(id)?),
                    Some(words) => {
                        self.client()?.until(seen, &words)?;
                        self.prompt = Some(id);
                    }
                }
            }
            Step::Cancel {} => {
                let id = self.prompt.take().ok_or("no prompt runs")?;
                let params = json!({ "sessionId": self.session()? });
                let client = self.client()?;
                client.send(None, "session/cancel", &params)?;
                client.answer(id)?;
            }
            Step::Kill { once_logged } => {
                if let Some(words) = once_logged {
                    self.wait_for_log(&words)?;
                }
                self.prompt = None;
                let client = self.client.take().ok_or("no process runs")?;
                let ended = client.kill()?;
                self.ended(ended);
            }
        }
        Ok(())
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        let id = self.send(method, params)?;
        self.client()?.answer(id)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64, String> {
        self.requests += 1;
        let id = self.requests;
        self.client()?.send(Some(id), method, params)?;
        Ok(id)
    }

    fn client(&mut self) -> Result<&mut AcpClient, String> {
        self.client.as_mut().ok_or_else(|| "no process runs; initialize starts one".to_owned())
    }

    fn session(&self) -> Result<String, String> {
        self.session.clone().ok_or_else(|| "there is no session yet".to_owned())
    }

    /// What is visible is not yet durable: the log follows within its batching window.
    fn wait_for_log(&self, words: &str) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let logs = self.stage.sessions();
            let mut logs = logs.iter().filter_map(|path| SessionLog::read(path));
            if logs.any(|log| log.text_since("user/message").contains(words)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the log did not get the text {words:?} within {PATIENCE:?}"))
    }

    fn ended(&mut self, (messages, how): (Vec<Value>, String)) {
        self.stdout.extend(messages);
        self.stdout.push(json!({ "process": how }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_misspelt_is_an_error() {
        for wrong in [
            r#"{ "step": "promt", "text": "a" }"#,
            r#"{ "step": "prompt", "txt": "a" }"#,
            r#"{ "step": "prompt", "text": "a", "untill": "b" }"#,
            r#"{ "step": "kill", "once_logged": "a" }"#,
            r#"{ "step": "cancel", "text": "a" }"#,
        ] {
            assert!(serde_json::from_str::<Step>(wrong).is_err(), "{wrong}");
        }
        let kill: Step = serde_json::from_str(r#"{ "step": "kill", "onceLogged": "a" }"#).unwrap();
        assert!(matches!(kill, Step::Kill { once_logged: Some(words) } if words == "a"));
    }
}
