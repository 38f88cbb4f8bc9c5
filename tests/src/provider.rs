//! A scripted provider, served by `dsh mock-provider` in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::built;

/// A provider that answers from a script. Dropping it ends it.
#[derive(Debug)]
pub struct Provider {
    child: Child,
    url: String,
    folder: TempDir,
}

impl Provider {
    /// Starts a provider with these answers: the `[[response]]` tables of `docs/mock-provider.md`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    #[must_use]
    pub fn start(answers: &[Value]) -> Self {
        let folder = TempDir::new().unwrap();
        let script = folder.path().join("script.json");
        std::fs::write(&script, json!({ "response": answers }).to_string()).unwrap();
        let mut command = Command::new(&built().dsh);
        command.arg("--home").arg(folder.path()).args(["mock-provider", "--script"]).arg(&script);
        command.arg("--log").arg(folder.path().join("requests.jsonl"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "the mock provider did not start");
        Self { child, url, folder }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The records of the requests that it got, in order.
    ///
    /// # Panics
    ///
    /// When its log cannot be read.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.folder.path().join("requests.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The `messages` of the requests whose body contains a text, in order of arrival.
    #[must_use]
    pub fn conversations(&self, containing: &str) -> Vec<Vec<Value>> {
        let requests = self.requests();
        let bodies = requests.iter().map(|request| &request["body"]);
        let about = bodies.filter(|body| body.to_string().contains(containing));
        about.map(|body| body["messages"].as_array().cloned().unwrap_or_default()).collect()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The assistant's messages of a request.
#[must_use]
pub fn assistants(messages: &[Value]) -> Vec<&Value> {
    messages.iter().filter(|message| message["role"] == "assistant").collect()
}

/// The text of a message of a request, whether it is a string or parts.
#[must_use]
pub fn text_of(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
