//! Plays the steps of a scenario.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};

use super::Error;
use super::client::AcpClient;
use super::folder::Folder;
use super::log::SessionLog;
use super::stage::{PATIENCE, Stage, session_name};
use super::steps::{Step, name};

/// What came of it, as it was.
#[derive(Debug)]
pub(super) struct Played {
    /// Messages of the agent, and after those of each process how it ended.
    pub stdout: Vec<Value>,
    /// The logs of the sessions, in the order in which the steps name them.
    pub logs: Vec<(String, SessionLog)>,
    /// The text for each id of a new session, with the name that stands for it.
    pub ids: Vec<(String, String)>,
}

pub(super) fn play(scenario: &Folder, stage: &Stage) -> Result<Played, Error> {
    let sessions = scenario.logs.keys().map(|name| (name.clone(), name.clone())).collect();
    let mut player = Player {
        stage,
        client: None,
        stdout: Vec::new(),
        requests: 0,
        prompts: HashMap::new(),
        sessions,
        made: Vec::new(),
    };
    for (position, step) in scenario.steps.iter().enumerate() {
        let named = |e: String| format!("step {} of input.json, {}: {e}", position + 1, described(step));
        player.step(step).map_err(|e| match e {
            Error::Bad(e) => Error::Bad(named(e)),
            Error::Failed(e) => Error::Failed(named(e)),
        })?;
    }
    if player.client.is_some() {
        player.step(&Step::Close {}).map_err(|e| Error::Failed(format!("at the end: {e}")))?;
    }
    player.played(scenario)
}

/// The name of a step as `input.json` spells it.
fn described(step: &Step) -> &'static str {
    match step {
        Step::Initialize { .. } => "initialize",
        Step::NewSession { .. } => "newSession",
        Step::LoadSession { .. } => "loadSession",
        Step::Prompt { .. } => "prompt",
        Step::Cancel { .. } => "cancel",
        Step::SetConfig { .. } => "setConfig",
        Step::Close {} => "close",
        Step::Kill { .. } => "kill",
    }
}

struct Player<'a> {
    stage: &'a Stage,
    client: Option<AcpClient>,
    stdout: Vec<Value>,
    /// Requests so far; ids go on over processes.
    requests: u64,
    /// The prompts that were left running, by session.
    prompts: HashMap<String, u64>,
    /// Ids of the sessions, by name.
    sessions: BTreeMap<String, String>,
    /// Ids and names of those that steps made.
    made: Vec<(String, String)>,
}

impl Player<'_> {
    fn step(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Initialize { fails } => {
                if self.client.is_none() {
                    self.client = Some(AcpClient::start(self.stage.acp()?)?);
                }
                self.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }), *fails)?;
            }
            Step::NewSession { session, fails } => {
                let name = name(session.as_deref());
                if self.sessions.contains_key(&name) {
                    return Err(Error::Bad(format!("there is a session {name} already")));
                }
                let params = json!({ "cwd": self.stage.work(), "mcpServers": [] });
                let answer = self.call("session/new", &params, *fails)?;
                if fails.is_none() {
                    let id = answer["result"]["sessionId"].as_str();
                    let id = id.ok_or_else(|| Error::Failed(format!("no sessionId: {answer}")))?.to_owned();
                    self.made.push((id.clone(), session_name(&name)));
                    self.sessions.insert(name, id);
                }
            }
            Step::LoadSession { session, fails } => {
                let name = name(session.as_deref());
                // What is expected to fail may be a session that does not exist.
                let id = match self.sessions.get(&name) {
                    None if fails.is_some() => name,
                    _ => self.session(&name)?,
                };
                let params = json!({ "sessionId": id, "cwd": self.stage.work(), "mcpServers": [] });
                self.call("session/load", &params, *fails)?;
            }
            Step::Prompt { session, text, until, until_file, permissions, fails } => {
                let name = name(session.as_deref());
                if self.prompts.contains_key(&name) {
                    return Err(Error::Bad(format!("a prompt of session {name} runs; cancel or kill it first")));
                }
                let session = self.session(&name)?;
                let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
                let seen = self.client()?.messages.len();
                self.client()?.permissions.extend(permissions);
                let id = self.send("session/prompt", &params)?;
                match (until, until_file) {
                    (None, None) => {
                        let answer = self.client()?.answer(id)?;
                        check(&answer, *fails)?;
                        if !self.client()?.permissions.is_empty() {
                            return Err(Error::Failed("the agent asked for fewer permissions than were given".into()));
                        }
                        return Ok(());
                    }
                    _ if fails.is_some() => {
                        return Err(Error::Bad("`fails` is for a prompt whose answer is waited for".to_owned()));
                    }
                    (Some(words), None) => self.client()?.until(&session, seen, words)?,
                    (None, Some(file)) => {
                        self.wait(&format!("the file {file}"), |stage| {
                            // It is there a moment before what is written to it.
                            Ok(stage.work().join(file).metadata().is_ok_and(|file| file.len() > 0))
                        })?;
                        // The tool that made it may run before its call is shown.
                        self.client()?.until_call(&session, seen)?;
                    }
                    (Some(_), Some(_)) => return Err(Error::Bad("give `until` or `untilFile`".to_owned())),
                }
                self.prompts.insert(name, id);
            }
            Step::Cancel { session } => {
                let name = name(session.as_deref());
                let no_prompt = || Error::Bad(format!("no prompt of session {name} runs"));
                let id = self.prompts.remove(&name).ok_or_else(no_prompt)?;
                let params = json!({ "sessionId": self.session(&name)? });
                let client = self.client()?;
                client.send(None, "session/cancel", &params)?;
                check(&client.answer(id)?, None)?;
            }
            Step::SetConfig { session, option, value, fails } => {
                let session = self.session(&name(session.as_deref()))?;
                let params = json!({ "sessionId": session, "configId": option, "value": value });
                self.call("session/set_config_option", &params, *fails)?;
            }
            Step::Close {} => {
                if !self.prompts.is_empty() {
                    return Err(Error::Bad("a prompt runs; cancel or kill it first".to_owned()));
                }
                let ended = self.take_client()?.close()?;
                self.ended(ended);
            }
            Step::Kill { session, once_logged } => {
                if let Some(words) = once_logged {
                    let id = self.session(&name(session.as_deref()))?;
                    // What is visible is not yet durable: the log follows within its batching window.
                    self.wait(&format!("the text {words:?} in the log"), |stage| {
                        let logs = stage.logs()?;
                        let file = logs.iter().find(|(it, _)| *it == id);
                        let log = file.map(|(_, path)| SessionLog::read(path)).transpose()?.flatten();
                        Ok(log.is_some_and(|log| log.text_since("user/message").contains(words)))
                    })?;
                } else if session.is_some() {
                    return Err(Error::Bad("`session` says whose log `onceLogged` waits for".to_owned()));
                }
                self.prompts.clear();
                let ended = self.take_client()?.kill()?;
                self.ended(ended);
            }
        }
        Ok(())
    }

    fn call(&mut self, method: &str, params: &Value, fails: Option<i64>) -> Result<Value, Error> {
        let id = self.send(method, params)?;
        let answer = self.client()?.answer(id)?;
        check(&answer, fails)?;
        Ok(answer)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<u64, Error> {
        self.requests += 1;
        let id = self.requests;
        self.client()?.send(Some(id), method, params)?;
        Ok(id)
    }

    fn client(&mut self) -> Result<&mut AcpClient, Error> {
        self.client.as_mut().ok_or_else(|| Error::Bad("no process runs; initialize starts one".to_owned()))
    }

    fn take_client(&mut self) -> Result<AcpClient, Error> {
        self.client.take().ok_or_else(|| Error::Bad("no process runs; initialize starts one".to_owned()))
    }

    fn session(&self, name: &str) -> Result<String, Error> {
        self.sessions.get(name).cloned().ok_or_else(|| Error::Bad(format!("there is no session {name} yet")))
    }

    fn wait(&self, what: &str, come: impl Fn(&Stage) -> Result<bool, Error>) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if come(self.stage)? {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Err(Error::Failed(format!("{what} did not come within {PATIENCE:?}")))
    }

    fn ended(&mut self, (messages, how): (Vec<Value>, String)) {
        self.stdout.extend(messages);
        self.stdout.push(json!({ "process": how }));
    }

    fn played(self, scenario: &Folder) -> Result<Played, Error> {
        let mut files: BTreeMap<String, PathBuf> = self.stage.logs()?.into_iter().collect();
        let mut logs = Vec::new();
        for name in &scenario.sessions {
            let id = self.session(name)?;
            let path = files.remove(&id).ok_or_else(|| Error::Failed(format!("session {name} has no log")))?;
            let log = SessionLog::read(&path)?.filter(|log| !log.torn);
            logs.push((name.clone(), log.ok_or_else(|| Error::Failed(format!("the log of {name} is torn")))?));
        }
        match files.keys().next() {
            Some(id) => Err(Error::Failed(format!("there is a log {id} of a session that no step makes"))),
            None => Ok(Played { stdout: self.stdout, logs, ids: self.made }),
        }
    }
}

/// An answer has to be an error exactly where one is expected.
fn check(answer: &Value, fails: Option<i64>) -> Result<(), Error> {
    match (answer.get("error"), fails) {
        (None, None) => Ok(()),
        (Some(error), Some(code)) if error["code"] == code => Ok(()),
        (Some(error), Some(code)) => Err(Error::Failed(format!("was to fail with {code}, and failed with {error}"))),
        (None, Some(code)) => Err(Error::Failed(format!("was to fail with {code}, and did not: {answer}"))),
        (Some(error), None) => Err(Error::Failed(format!(
            "the agent answered with an error: {error}; where that is right, the step says \"fails\": {}",
            error["code"]
        ))),
    }
}
