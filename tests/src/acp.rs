//! A client of `dsh acp`, as an editor would be one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::{Composition, PATIENCE};

/// A client with its own `dsh acp`. Dropping it kills the process with SIGKILL.
#[derive(Debug)]
pub struct AcpClient {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Value>,
    last_id: u64,
    /// The `update` of each `session/update` so far.
    pub updates: Vec<Value>,
}

impl AcpClient {
    /// Starts the process and initializes the connection.
    ///
    /// # Panics
    ///
    /// When that fails.
    #[must_use]
    pub fn start(composition: &Composition) -> Self {
        let mut command = composition.command(&["acp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                let message =
                    serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?} is no protocol line: {e}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut client = Self { child, stdin, lines, last_id: 0, updates: Vec::new() };
        let initialized = client.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }));
        assert_eq!(initialized["protocolVersion"], 1, "{initialized}");
        client
    }

    /// Creates a session.
    ///
    /// # Panics
    ///
    /// When the answer names none.
    #[must_use]
    pub fn new_session(&mut self, composition: &Composition) -> String {
        let result = self.call("session/new", &json!({ "cwd": composition.home(), "mcpServers": [] }));
        result["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {result}")).to_owned()
    }

    /// Sends a prompt; returns the stop reason of its turn.
    ///
    /// # Panics
    ///
    /// When the answer names none.
    pub fn prompt(&mut self, session: &str, text: &str) -> String {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        let result = self.call("session/prompt", &params);
        result["stopReason"].as_str().unwrap_or_else(|| panic!("no stop reason: {result}")).to_owned()
    }

    /// Makes a request and waits for its result.
    ///
    /// # Panics
    ///
    /// When the answer is an error or does not come.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params });
        self.stdin.write_all(format!("{request}\n").as_bytes()).unwrap();
        loop {
            let mut message =
                self.lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("no answer to {method}: {e}"));
            if message["method"] == "session/update" {
                self.updates.push(message["params"]["update"].take());
            } else if message["id"] == self.last_id && message.get("method").is_none() {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }
}

impl Drop for AcpClient {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
