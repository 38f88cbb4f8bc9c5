//! An ACP client on the stdin and stdout of `dsh acp`, which keeps everything that it was told.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long the agent may take for any one thing.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `dsh acp`. Dropping it kills it.
#[derive(Debug)]
pub struct AcpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Every message of the agent, in order.
    pub messages: Vec<Value>,
}

impl AcpClient {
    /// Starts the agent: `dsh … acp`. Its stderr is shown with that of the test.
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
        Ok(Self { child, stdin, lines, messages: Vec::new() })
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
        let stdin = self.stdin.as_mut().ok_or("the input was closed")?;
        writeln!(stdin, "{message}").and_then(|()| stdin.flush()).map_err(|e| format!("cannot send {method}: {e}"))
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

    /// Waits for the answer to a request.
    ///
    /// # Errors
    ///
    /// It does not come, or stdout carries something else than protocol messages.
    pub fn answer(&mut self, id: u64) -> Result<Value, String> {
        loop {
            let message = self.receive(&format!("the answer to request {id}"))?;
            if message.get("method").is_none() && message["id"] == id {
                return Ok(message);
            }
        }
    }

    /// Waits until the agent's visible text since message number `from` has these words.
    ///
    /// # Errors
    ///
    /// As [`AcpClient::answer`], or a request was answered before.
    pub fn until(&mut self, from: usize, words: &str) -> Result<(), String> {
        loop {
            let updates = self.messages[from..].iter().map(|message| &message["params"]["update"]);
            let text: String = updates
                .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
                .filter_map(|update| update["content"]["text"].as_str())
                .collect();
            if text.contains(words) {
                return Ok(());
            }
            let message = self.receive(&format!("the text {words:?}"))?;
            if message.get("method").is_none() {
                return Err(format!("waited for the text {words:?} and got an answer: {message}"));
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
        Ok(message)
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
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
