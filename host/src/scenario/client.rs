//! An ACP client on the stdin and stdout of `dsh acp`, which keeps everything that it was told.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

/// How long the agent may take for any one thing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answer to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// The offered option of this kind.
    AllowOnce,
    /// The offered option of this kind.
    AllowAlways,
    /// The offered option of this kind.
    RejectOnce,
    /// The offered option of this kind.
    RejectAlways,
    /// None: the prompt was cancelled meanwhile.
    Cancelled,
}

impl Permission {
    const fn kind(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
            Self::Cancelled => "cancelled",
        }
    }

    /// The result of `session/request_permission`.
    fn result(self, params: &Value) -> Result<Value, String> {
        if self == Self::Cancelled {
            return Ok(json!({ "outcome": { "outcome": "cancelled" } }));
        }
        let options = params["options"].as_array().map_or(&[][..], Vec::as_slice);
        match options.iter().find(|option| option["kind"] == self.kind()) {
            Some(option) => Ok(json!({ "outcome": { "outcome": "selected", "optionId": option["optionId"] } })),
            None => Err(format!("the agent asks for a permission and offers no {}: {params}", self.kind())),
        }
    }
}

/// A running `dsh acp`. Dropping it kills it.
#[derive(Debug)]
pub struct AcpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Every message of the agent, in order.
    pub messages: Vec<Value>,
    /// What is answered to the next permission requests, in order; one more is an error.
    pub permissions: VecDeque<Permission>,
}

impl AcpClient {
    /// Starts the agent: `dsh … acp`. Its stderr goes where the command says.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("cannot start `dsh acp`: {e}"))?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // The end of the pipe, or of the client, ends this.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, lines, messages: Vec::new(), permissions: VecDeque::new() })
    }

    /// Its process id.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a request, or without `id` a notification.
    ///
    /// # Errors
    ///
    /// The agent does not take it.
    pub fn send(&mut self, id: Option<u64>, method: &str, params: &Value) -> Result<(), String> {
        let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        if let Some(id) = id {
            message["id"] = id.into();
        }
        self.write(&message).map_err(|e| format!("cannot send {method}: {e}"))
    }

    fn write(&mut self, message: &Value) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("the input was closed")?;
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).map_err(|e| e.to_string())
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    ///
    /// As [`AcpClient::send`] and [`AcpClient::answer`], or the answer is an error.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        // Ids beyond those that a caller of `send` chooses.
        let id = 1_000_000 + self.messages.len() as u64;
        self.send(Some(id), method, params)?;
        let mut answer = self.answer(id)?;
        if answer.get("result").is_some() { Ok(answer["result"].take()) } else { Err(format!("{method}: {answer}")) }
    }

    /// Waits for the answer to a request, which may have come already.
    ///
    /// # Errors
    ///
    /// It does not come, or stdout carries something else than protocol messages.
    pub fn answer(&mut self, id: u64) -> Result<Value, String> {
        let is_it = |message: &&Value| message.get("method").is_none() && message["id"] == id;
        if let Some(message) = self.messages.iter().rev().find(is_it) {
            return Ok(message.clone());
        }
        loop {
            let message = self.receive(&format!("the answer to request {id}"))?;
            if message.get("method").is_none() && message["id"] == id {
                return Ok(message);
            }
        }
    }

    /// Waits until the agent's visible text in this session since message number `from` has these words.
    ///
    /// # Errors
    ///
    /// As [`AcpClient::answer`], or a request was answered before.
    pub fn until(&mut self, session: &str, from: usize, words: &str) -> Result<(), String> {
        self.until_shown(session, from, &format!("the text {words:?}"), |updates| {
            let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
            let text: String = chunks.filter_map(|update| update["content"]["text"].as_str()).collect();
            text.contains(words)
        })
    }

    /// Waits until the agent has shown a tool call of this session since message number `from`.
    ///
    /// # Errors
    ///
    /// As [`AcpClient::until`].
    pub fn until_call(&mut self, session: &str, from: usize) -> Result<(), String> {
        self.until_shown(session, from, "a tool call", |updates| {
            updates.iter().any(|update| update["sessionUpdate"] == "tool_call")
        })
    }

    fn until_shown(
        &mut self,
        session: &str,
        from: usize,
        what: &str,
        is_shown: impl Fn(&[&Value]) -> bool,
    ) -> Result<(), String> {
        loop {
            let params = self.messages[from..].iter().map(|message| &message["params"]);
            let updates = params.filter(|params| params["sessionId"] == session).map(|params| &params["update"]);
            if is_shown(&updates.collect::<Vec<_>>()) {
                return Ok(());
            }
            let message = self.receive(what)?;
            if message.get("method").is_none() {
                return Err(format!("waited for {what} and got an answer: {message}"));
            }
        }
    }

    fn receive(&mut self, what: &str) -> Result<Value, String> {
        let line = self.lines.recv_timeout(PATIENCE).map_err(|e| match e {
            RecvTimeoutError::Timeout => format!("{what} did not come within {PATIENCE:?}"),
            RecvTimeoutError::Disconnected => format!("the agent ended before {what}"),
        })?;
        self.keep(&line)
    }

    fn keep(&mut self, line: &str) -> Result<Value, String> {
        let message: Value = serde_json::from_str(line)
            .map_err(|e| format!("stdout carries a line that is no message ({e}): {line}"))?;
        self.messages.push(message.clone());
        if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
            self.serve(method, id, &message["params"])?;
        }
        Ok(message)
    }

    /// Answers a request of the agent.
    fn serve(&mut self, method: &str, id: &Value, params: &Value) -> Result<(), String> {
        let mut answer = json!({ "jsonrpc": "2.0", "id": id });
        if method == "session/request_permission" {
            let Some(permission) = self.permissions.pop_front() else {
                return Err(format!("the agent asks for a permission and no answer is given: {params}"));
            };
            answer["result"] = permission.result(params)?;
        } else {
            answer["error"] = json!({ "code": -32601, "message": format!("this client does not serve {method}") });
        }
        // An agent that has ended by now takes no answer; how it ended is judged elsewhere.
        let _ = self.write(&answer);
        Ok(())
    }

    /// Kills the process with SIGKILL, and takes what it had still written.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub fn kill(mut self) -> Result<(Vec<Value>, String), String> {
        self.child.kill().map_err(|e| format!("cannot kill the agent: {e}"))?;
        self.end()
    }

    /// Closes the input, and takes what comes until the process has ended: its messages, and how it ended.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub fn close(mut self) -> Result<(Vec<Value>, String), String> {
        self.stdin = None;
        self.end()
    }

    fn end(&mut self) -> Result<(Vec<Value>, String), String> {
        let begun = Instant::now();
        loop {
            match self.lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
                Ok(line) => drop(self.keep(&line)?),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(format!("the agent did not end within {PATIENCE:?}")),
            }
        }
        let status = self.child.wait().map_err(|e| format!("cannot wait for the agent: {e}"))?;
        Ok((std::mem::take(&mut self.messages), describe(status)))
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or_default()),
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // It may be gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent that asks this once it has got a line, and answers request 1 with the answer that it gets.
    fn agent(question: &str) -> AcpClient {
        let script = format!(
            "read line; echo '{question}'; read answer; \
             echo '{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":'\"$answer\"'}}'"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        AcpClient::start(command).unwrap()
    }

    fn ask(client: &mut AcpClient) -> Result<Value, String> {
        client.send(Some(1), "session/prompt", &json!({})).unwrap();
        client.answer(1).map(|mut answer| answer["result"].take())
    }

    const PERMISSION: &str = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"options":[
        {"optionId":"yes","kind":"allow_once"},{"optionId":"no","kind":"reject_once"}]}}"#;

    fn permission(answer: Option<Permission>) -> Result<Value, String> {
        let mut client = agent(&PERMISSION.replace('\n', ""));
        client.permissions.extend(answer);
        ask(&mut client)
    }

    #[test]
    fn a_permission_is_answered_with_the_option_of_the_kind_that_was_given() {
        let selected = |id: &str| json!({ "outcome": { "outcome": "selected", "optionId": id } });
        for (permission, result) in [
            (Permission::AllowOnce, selected("yes")),
            (Permission::RejectOnce, selected("no")),
            (Permission::Cancelled, json!({ "outcome": { "outcome": "cancelled" } })),
        ] {
            let answer = self::permission(Some(permission)).unwrap();
            assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 7, "result": result }));
        }
    }

    #[test]
    fn a_permission_that_is_not_foreseen_is_an_error() {
        let error = permission(None).unwrap_err();
        assert!(error.contains("no answer is given"), "{error}");
        let error = permission(Some(Permission::AllowAlways)).unwrap_err();
        assert!(error.contains("offers no allow_always"), "{error}");
    }

    #[test]
    fn any_other_request_of_the_agent_is_refused() {
        let mut client = agent(r#"{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{}}"#);
        assert_eq!(ask(&mut client).unwrap()["error"]["code"], -32601);
    }
}
