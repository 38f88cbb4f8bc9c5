//! The processes of the story: this executable, started as a user or an editor would start it.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::{DemoError, Ended, io};

/// How long a process may take for any one thing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the story takes place.
#[derive(Debug)]
pub(super) struct Stage {
    pub exe: PathBuf,
    pub folder: PathBuf,
    pub home: PathBuf,
    pub work: PathBuf,
    pub overlay: PathBuf,
}

/// One started process.
#[derive(Debug)]
struct Process {
    child: Child,
    pid: u32,
    /// For messages.
    line: String,
    stderr: PathBuf,
}

impl Stage {
    /// Starts `dsh ARGS…` in the working folder, with the demo's home and overlay. It dies with the returned value.
    fn start(&self, args: &[&str], stdin: Stdio) -> Result<Process, DemoError> {
        let stderr = self.folder.join(format!("{}.stderr", args[0]));
        let file = io(|| format!("cannot write {}", stderr.display()), File::create(&stderr))?;
        let mut command = Command::new(&self.exe);
        command.arg("--home").arg(&self.home).arg("--overlay").arg(&self.overlay).args(args);
        command.current_dir(&self.work).stdin(stdin).stdout(Stdio::piped()).stderr(file).kill_on_drop(true);
        // The provider is on this machine; a proxy of the environment must not be asked for it.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        let line = format!("`dsh {}`", args.join(" "));
        let child = io(|| format!("cannot start {line} ({})", self.exe.display()), command.spawn())?;
        let pid = child.id().unwrap_or_default();
        Ok(Process { child, pid, line, stderr })
    }
}

impl Process {
    fn failed(&self, what: impl Into<String>) -> DemoError {
        let stderr = std::fs::read_to_string(&self.stderr).unwrap_or_else(|e| format!("(cannot be read: {e})"));
        let lines: Vec<_> = stderr.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        DemoError::Process { process: self.line.clone(), what: what.into(), stderr: last }
    }

    async fn wait(&mut self) -> Result<Ended, DemoError> {
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) => Ok(self.ended(status)),
            Ok(Err(e)) => Err(self.failed(format!("cannot be waited for: {e}"))),
            Err(_) => Err(self.failed(format!("did not end within {} s", PATIENCE.as_secs()))),
        }
    }

    fn ended(&self, status: ExitStatus) -> Ended {
        Ended { pid: self.pid, signal: status.signal(), exit_code: status.code() }
    }
}

/// A minimal ACP client on the stdin and stdout of `dsh acp`.
pub(super) struct AcpClient {
    process: Process,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

impl AcpClient {
    pub fn start(stage: &Stage) -> Result<Self, DemoError> {
        let mut process = stage.start(&["acp"], Stdio::piped())?;
        let (Some(stdin), Some(stdout)) = (process.child.stdin.take(), process.child.stdout.take()) else {
            return Err(process.failed("has no stdin and stdout"));
        };
        Ok(Self { process, stdin, lines: BufReader::new(stdout).lines(), last_id: 0 })
    }

    pub const fn pid(&self) -> u32 {
        self.process.pid
    }

    pub fn failed(&self, what: impl Into<String>) -> DemoError {
        self.process.failed(what)
    }

    pub async fn initialize(&mut self) -> Result<(), DemoError> {
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let result = self.call("initialize", params, |_| {}).await?;
        if result["protocolVersion"] == 1 {
            return Ok(());
        }
        Err(self.failed(format!("answered initialize with protocolVersion {}", result["protocolVersion"])))
    }

    /// Creates a session and gives back its id.
    pub async fn new_session(&mut self, cwd: &Path) -> Result<String, DemoError> {
        let result = self.call("session/new", json!({ "cwd": cwd, "mcpServers": [] }), |_| {}).await?;
        match result["sessionId"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => Err(self.failed(format!("answered session/new without a sessionId: {result}"))),
        }
    }

    /// Sends a prompt and gives back the stop reason of its turn.
    pub async fn prompt(
        &mut self,
        session: &str,
        text: &str,
        on_update: impl FnMut(&Value),
    ) -> Result<String, DemoError> {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] });
        let result = self.call("session/prompt", params, on_update).await?;
        match result["stopReason"].as_str() {
            Some(reason) => Ok(reason.to_owned()),
            None => Err(self.failed(format!("answered session/prompt without a stopReason: {result}"))),
        }
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub async fn kill(mut self) -> Result<Ended, DemoError> {
        let killed = self.process.child.start_kill();
        io(|| format!("cannot kill process {}", self.process.pid), killed)?;
        self.process.wait().await
    }

    async fn call(
        &mut self,
        method: &str,
        params: Value,
        mut on_update: impl FnMut(&Value),
    ) -> Result<Value, DemoError> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        loop {
            let message = match timeout(PATIENCE, self.lines.next_line()).await {
                Ok(Ok(Some(line))) => serde_json::from_str::<Value>(&line)
                    .map_err(|e| self.failed(format!("wrote a line to stdout that is no JSON ({e}): {line}")))?,
                Ok(Ok(None)) => return Err(self.failed(format!("ended before it answered {method}"))),
                Ok(Err(e)) => return Err(self.failed(format!("cannot be read from: {e}"))),
                Err(_) => {
                    let patience = PATIENCE.as_secs();
                    return Err(
                        self.failed(format!("said nothing for {patience} s while it owed an answer to {method}"))
                    );
                }
            };
            match (message["method"].as_str(), message.get("id")) {
                (Some("session/update"), None) => on_update(&message["params"]["update"]),
                (Some(_), None) => {}
                (Some(asked), Some(request)) => {
                    let text = format!("the demo does not serve {asked}");
                    let error = json!({ "code": -32601, "message": text });
                    self.send(&json!({ "jsonrpc": "2.0", "id": request, "error": error })).await?;
                }
                (None, Some(answered)) if *answered == json!(id) => {
                    return match message.get("error") {
                        Some(error) => Err(self.failed(format!("answered {method} with the error {error}"))),
                        None => Ok(message["result"].clone()),
                    };
                }
                (None, _) => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), DemoError> {
        let line = format!("{message}\n");
        let sent = async {
            self.stdin.write_all(line.as_bytes()).await?;
            self.stdin.flush().await
        };
        let sent = sent.await;
        sent.map_err(|e| self.failed(format!("does not take its input: {e}")))
    }
}

/// How `dsh run --json` went.
#[derive(Debug)]
pub(super) struct Run {
    pub ended: Ended,
    /// Its last line.
    pub result: Value,
}

/// Runs one prompt on a session that exists, to its end.
pub(super) async fn run_prompt(stage: &Stage, session: &str, prompt: &str) -> Result<Run, DemoError> {
    let mut process = stage.start(&["run", "--session", session, "--json", prompt], Stdio::null())?;
    let Some(stdout) = process.child.stdout.take() else { return Err(process.failed("has no stdout")) };
    let mut lines = BufReader::new(stdout).lines();
    let mut last = None;
    loop {
        match timeout(PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(line))) => last = Some(line),
            Ok(Ok(None)) => break,
            Ok(Err(e)) => return Err(process.failed(format!("cannot be read from: {e}"))),
            Err(_) => return Err(process.failed(format!("said nothing for {} s", PATIENCE.as_secs()))),
        }
    }
    let ended = process.wait().await?;
    let result =
        last.and_then(|line| serde_json::from_str::<Value>(&line).ok()).filter(|last| last["type"] == "result");
    match result {
        Some(result) => Ok(Run { ended, result }),
        None => Err(process.failed(format!("printed no result as its last line (exit code {:?})", ended.exit_code))),
    }
}
