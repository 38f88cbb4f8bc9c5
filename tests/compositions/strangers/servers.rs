//! Servers that others wrote: how they are found, started, and asked what they got.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use dsh_tests::Running;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The key that aimock takes.
pub const AIMOCK_KEY: &str = "test-key-of-aimock";
/// The key that LiteLLM takes.
pub const LITELLM_KEY: &str = "sk-test-key-of-litellm";

/// How long a server may take until it answers. A Python proxy that starts for the first time compiles itself.
const START_PATIENCE: Duration = Duration::from_secs(180);

/// A program that is not part of this repository.
pub struct Program {
    name: &'static str,
    variable: &'static str,
    install: &'static str,
}

/// A mock of many providers in one process: npm package `@copilotkit/aimock`.
pub const AIMOCK: Program =
    Program { name: "aimock", variable: "DSH_TEST_AIMOCK", install: "npm install -g @copilotkit/aimock" };
/// A proxy that rewrites every request and every answer: Python package `litellm`.
pub const LITELLM: Program =
    Program { name: "litellm", variable: "DSH_TEST_LITELLM", install: "pip install 'litellm[proxy]'" };

impl Program {
    /// The command: what the variable names, else the program in `PATH`. Where there is neither, says so past the
    /// capture of test output, since a test that is skipped looks like one that passed.
    ///
    /// # Panics
    ///
    /// When the variable names something that is no file.
    pub fn find(&self) -> Option<OsString> {
        let Self { name, variable, install } = self;
        if let Some(command) = std::env::var_os(variable) {
            assert!(Path::new(&command).is_file(), "{variable} names no file: {}", command.display());
            return Some(command);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        if found.is_none() {
            let line = format!("skipped: {name} is not installed; `{install}`, or name its command in {variable}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
        found.map(Into::into)
    }
}

/// A running aimock.
pub struct Aimock {
    port: u16,
    _process: Running,
    _folder: TempDir,
}

impl Aimock {
    /// Starts it with these fixtures, on a port of its own choice.
    pub fn start(command: &OsStr, fixtures: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, value: &Value| std::fs::write(folder.path().join(name), value.to_string()).unwrap();
        write("fixtures.json", &json!({ "fixtures": fixtures }));
        write("aimock.json", &json!({ "port": 0, "host": "127.0.0.1", "llm": { "fixtures": "fixtures.json" } }));
        let mut start = Command::new(command);
        start.args(["--config", "aimock.json"]).current_dir(folder.path()).env("AIMOCK_API_KEYS", AIMOCK_KEY);
        let mut process = Running::start(start);
        process.wait_for("listening on http://127.0.0.1:");
        process.wait_for("\n");
        let text = process.stdout();
        let port = text.split("127.0.0.1:").nth(1).and_then(|rest| rest.split_whitespace().next());
        let port = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("aimock names no port: {text}"));
        Self { port, _process: process, _folder: folder }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The messages of every request that it got whose body contains a text, in order of arrival, in its own form:
    /// that of Chat Completions, whatever wire they came by.
    pub fn conversations(&self, containing: &str) -> Vec<Vec<Value>> {
        let (status, body) = get(self.port, "/__aimock/journal", AIMOCK_KEY).unwrap();
        let journal: Vec<Value> =
            serde_json::from_str(&body).unwrap_or_else(|e| panic!("its journal is no list ({e}), {status}: {body}"));
        let bodies = journal.iter().map(|entry| &entry["body"]);
        let about = bodies.filter(|body| body.to_string().contains(containing));
        about.map(|body| body["messages"].as_array().cloned().unwrap_or_default()).collect()
    }
}

/// A running LiteLLM proxy.
pub struct Litellm {
    port: u16,
    _process: Running,
    _folder: TempDir,
}

impl Litellm {
    /// Starts it before an aimock. Its models: `gpt` goes on as Chat Completions, `claude` as Anthropic Messages,
    /// `locked` as the first with a key that is refused.
    pub fn start(command: &OsStr, aimock: &Aimock) -> Self {
        let folder = TempDir::new().unwrap();
        let model = |name: &str, model: &str, path: &str, key: &str| {
            let api_base = format!("{}{path}", aimock.url());
            json!({ "model_name": name, "litellm_params": { "model": model, "api_base": api_base, "api_key": key } })
        };
        // YAML holds all of JSON.
        let config = json!({
            "model_list": [
                model("gpt", "openai/gpt-5-mini", "/v1", AIMOCK_KEY),
                model("claude", "anthropic/claude-sonnet-4-20250514", "", AIMOCK_KEY),
                model("locked", "openai/gpt-5-mini", "/v1", "another-key"),
            ],
            "general_settings": { "master_key": LITELLM_KEY },
            "litellm_settings": { "num_retries": 0, "telemetry": false },
            "router_settings": { "num_retries": 0 },
        });
        let file = folder.path().join("litellm.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        // It takes no port of its own choice. This one was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut start = Command::new(command);
        start.arg("--config").arg(&file).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        start.current_dir(folder.path()).env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("NO_PROXY", "127.0.0.1");
        let process = Running::start(start);
        let begun = Instant::now();
        while !get(port, "/health/liveliness", LITELLM_KEY).is_ok_and(|(status, _)| status == 200) {
            assert!(begun.elapsed() < START_PATIENCE, "litellm does not answer: {}", process.stdout());
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { port, _process: process, _folder: folder }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Status and body of a page. HTTP/1.0 keeps the body in one piece.
fn get(port: u16, path: &str, key: &str) -> std::io::Result<(u16, String)> {
    let mut connection = TcpStream::connect(("127.0.0.1", port))?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    let head = format!("GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n\r\n");
    connection.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}
