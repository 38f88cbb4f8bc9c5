//! The tool `bash`: one command in a fresh shell, in a process group of its own.
//!
//! Output and errors arrive in the order they were written. A command that outlives its time, or whose turn is
//! cancelled, is ended with its whole process group. What a command left running in the background goes on, but its
//! output is no longer read.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::{ToolContext, ToolOutput};

const DEFAULT_TIMEOUT_MS: u64 = 120_000;
const LONGEST_TIMEOUT_MS: u64 = 600_000;
/// How long a process group may take to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(500);
/// How long output is awaited after the command ended, for background processes that still hold the pipe.
const DRAIN: Duration = Duration::from_millis(200);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    command: String,
    timeout_ms: Option<u64>,
    /// Asked for because it makes models plan; shown to nobody here.
    #[serde(rename = "description")]
    _description: Option<String>,
}

pub(super) fn description() -> String {
    format!(
        "Run a command with `bash -c` in the working folder and return what it printed, standard output and standard \
         error together. Every call is a fresh shell: nothing but files persists. A failing command ends with a line \
         [exit code: N]. Long output keeps its beginning and its end. The default time limit is {DEFAULT_TIMEOUT_MS} \
         ms, the longest {LONGEST_TIMEOUT_MS} ms. There is no terminal and no input."
    )
}

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "description": "The command." },
            "timeout_ms": { "type": "integer", "description": "Time limit in milliseconds." },
            "description": { "type": "string", "description": "What the command does, in a few words." }
        },
        "required": ["command"],
        "additionalProperties": false
    })
}

pub(super) async fn run(arguments: Arguments, context: ToolContext<'_>, cancel: &CancellationToken) -> ToolOutput {
    let limit = arguments.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).clamp(1, LONGEST_TIMEOUT_MS);
    let (mut child, mut output) = match spawn(&arguments.command, context) {
        Ok(started) => started,
        Err(e) => {
            let cwd = context.cwd.display();
            return ToolOutput::text(format!("The command was not run: cannot start bash in {cwd}: {e}"), true);
        }
    };
    let mut capture = Capture::default();
    let end = tokio::select! {
        status = read_to_end(&mut child, &mut output, &mut capture) => End::Exited(status),
        () = sleep(Duration::from_millis(limit)) => End::TimedOut,
        () = cancel.cancelled() => End::Cancelled,
    };
    if !matches!(end, End::Exited(_)) {
        end_group(&mut child).await;
        // What the group wrote on its way out belongs to the answer.
        let _ = timeout(DRAIN, read_pipe(&mut output, &mut capture)).await;
    }
    let mut text = capture.into_text();
    let aborted = matches!(end, End::Cancelled);
    let (mark, is_error) = match end {
        End::Exited(Ok(status)) if status.success() => (None, false),
        End::Exited(Ok(status)) => (Some(exit_mark(status)), true),
        End::Exited(Err(e)) => (Some(format!("[the command's end could not be observed: {e}]")), true),
        End::TimedOut => (Some(format!("[killed: the command ran longer than {limit} ms]")), true),
        End::Cancelled => (Some("[killed: the user cancelled]".to_owned()), true),
    };
    if let Some(mark) = mark {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&mark);
    }
    if text.trim().is_empty() {
        text = "(no output)".to_owned();
    }
    ToolOutput { aborted, ..ToolOutput::text(text, is_error) }
}

enum End {
    Exited(std::io::Result<ExitStatus>),
    TimedOut,
    Cancelled,
}

fn spawn(command: &str, context: ToolContext<'_>) -> std::io::Result<(Child, pipe::Receiver)> {
    let (reader, writer) = std::io::pipe()?;
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(command).current_dir(context.cwd).process_group(0).kill_on_drop(true);
    bash.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    for name in context.hidden_env {
        bash.env_remove(name);
    }
    // `bash` holds the write ends until it is dropped at the end of this function, so that the reader sees the end.
    let child = bash.spawn()?;
    Ok((child, pipe::Receiver::from_owned_fd(reader.into())?))
}

/// Reads until the command has ended and its output is drained.
async fn read_to_end(
    child: &mut Child,
    output: &mut pipe::Receiver,
    capture: &mut Capture,
) -> std::io::Result<ExitStatus> {
    tokio::select! {
        status = child.wait() => {
            let status = status?;
            let _ = timeout(DRAIN, read_pipe(output, capture)).await;
            Ok(status)
        }
        () = read_pipe(output, capture) => child.wait().await,
    }
}

async fn read_pipe(output: &mut pipe::Receiver, capture: &mut Capture) {
    let mut buffer = [0u8; 16 * 1024];
    // A pipe has no read error that would leave more to read.
    while let Ok(length @ 1..) = output.read(&mut buffer).await {
        capture.push(&buffer[..length]);
    }
}

/// Asks the process group to end, then makes it.
async fn end_group(child: &mut Child) {
    let Some(group) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
    // The group may be gone already; then there is nothing to signal.
    let _ = kill_process_group(group, Signal::TERM);
    let _ = timeout(GRACE, child.wait()).await;
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait().await;
}

fn exit_mark(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("[exit code: {code}]"),
        (None, Some(signal)) => format!("[ended by signal {signal}]"),
        (None, None) => "[ended without an exit code]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use dsh_plugin_api::vocab::Block;

    use super::*;

    async fn bash(command: &str, timeout_ms: Option<u64>, cancel: &CancellationToken) -> (String, bool) {
        let arguments = Arguments { command: command.to_owned(), timeout_ms, _description: None };
        let hidden = ["CARGO_MANIFEST_DIR".to_owned()];
        let output = run(arguments, ToolContext { cwd: Path::new("/"), hidden_env: &hidden }, cancel).await;
        let [Block::Text(text)] = output.content.as_slice() else { panic!("one text block") };
        (text.clone(), output.is_error)
    }

    #[tokio::test]
    async fn output_and_errors_come_in_order_with_the_exit_code() {
        let go = CancellationToken::new();
        for (command, expected, is_error) in [
            ("echo a; echo b >&2; echo c", "a\nb\nc\n", false),
            ("printf x; exit 3", "x\n[exit code: 3]", true),
            ("true", "(no output)", false),
            ("kill -TERM $$", "[ended by signal 15]", true),
            ("pwd", "/\n", false),
        ] {
            assert_eq!(bash(command, None, &go).await, (expected.to_owned(), is_error), "{command}");
        }
    }

    #[tokio::test]
    async fn a_command_that_outlives_its_time_is_killed_with_its_children_and_its_output_kept() {
        let begun = Instant::now();
        let (text, is_error) =
            bash("echo started; (sleep 60; echo late) & sleep 60", Some(300), &CancellationToken::new()).await;
        assert!(is_error && text.starts_with("started\n[killed: the command ran longer than 300 ms"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[tokio::test]
    async fn cancelling_kills_the_process_group() {
        let cancel = CancellationToken::new();
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("pid");
        let command = format!("sleep 61 & echo $! > {}; trap '' TERM; wait; sleep 61", marker.display());
        let stop = cancel.clone();
        let seen = marker.clone();
        tokio::spawn(async move {
            while std::fs::read_to_string(&seen).map_or(true, |text| !text.ends_with('\n')) {
                sleep(Duration::from_millis(10)).await;
            }
            stop.cancel();
        });
        let (text, is_error) = bash(&command, None, &cancel).await;
        assert!(is_error && text.contains("the user cancelled"), "{text}");
        let pid = std::fs::read_to_string(&marker).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        // An orphan may stay a zombie until it is reaped; what matters is that it no longer runs.
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        assert!(state.is_err() || state.unwrap().contains(") Z "), "the background process still runs");
    }

    #[tokio::test]
    async fn a_background_process_does_not_hold_up_the_answer() {
        let begun = Instant::now();
        let (text, is_error) = bash("sleep 5 & echo done", None, &CancellationToken::new()).await;
        assert_eq!((text.as_str(), is_error), ("done\n", false));
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[tokio::test]
    async fn hidden_variables_are_not_seen() {
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets what this test hides");
        let (text, _) =
            bash("echo \"[${PATH:+path}${CARGO_MANIFEST_DIR-unset}]\"", None, &CancellationToken::new()).await;
        assert_eq!(text, "[pathunset]\n");
    }
}
