//! `dsh test`

use std::collections::HashSet;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use serde_json::{Value, json};

use super::{CommandError, Context, output};
use crate::scenario::{self, Outcome, Runner};

/// Shown below the options.
const AFTER_HELP: &str = "\
A scenario is a folder: input.json (what the client does), provider.toml, session.jsonl or traffic.json
(the model's side), overlay.toml or loader.toml, optional workspace/ and sessions/, and what is expected:
stdout.expected.jsonl, session.expected.jsonl, optional requests.expected.json and workspace.expected/.
It is played with `dsh acp` in a home folder of its own; --manifest and --overlay are its composition.

Exit codes: 0 all passed, 1 some failed, 2 bad usage or a bad scenario. docs/testing-compositions.md tells more.";

/// Arguments of `dsh test`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TestArgs {
    /// Scenario folders, or folders of them
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Rewrite the expectations that do not hold, and say which: review the difference
    #[arg(long)]
    update: bool,
    /// Print one JSON object: {passed, failed, scenarios}
    #[arg(long)]
    json: bool,
    /// Scenarios that are played at the same time [default: two for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Keep the folders that the scenarios are played in, and say where they are
    #[arg(long)]
    keep: bool,
}

pub(super) fn run(context: &Context, args: TestArgs) -> Result<ExitCode, CommandError> {
    let folders = folders(&args.folders)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|e| CommandError::failed_text(format!("the system refuses threads: {e}")))?;
    let dsh = std::env::current_exe()
        .map_err(|e| CommandError::failed_text(format!("this executable cannot be found: {e}")))?;
    let absolute = |path: &PathBuf| {
        std::path::absolute(path)
            .map_err(|e| CommandError::usage_text(format!("{}: {e}", path.display()), "give a file"))
    };
    let runner = Runner {
        dsh,
        manifest: context.lookup.manifest.as_ref().map(absolute).transpose()?,
        overlays: context.lookup.overlays.iter().map(absolute).collect::<Result<_, _>>()?,
        update: args.update,
        keep: args.keep,
        runtime: runtime.handle().clone(),
    };
    // Most of what a scenario does is waiting.
    let jobs = args.jobs.map_or_else(|| 2 * std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let outcomes = play(&runner, &folders, jobs);
    drop(runner);
    if args.json {
        output::print_json(&as_json(&outcomes))?;
    } else {
        output::print(&as_text(&outcomes))?;
    }
    Ok(if outcomes.iter().any(Outcome::is_bad) {
        ExitCode::from(2)
    } else if outcomes.iter().all(Outcome::passed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The scenarios that are meant, each once.
fn folders(roots: &[PathBuf]) -> Result<Vec<PathBuf>, CommandError> {
    let mut seen = HashSet::new();
    let mut folders = Vec::new();
    for root in roots {
        let found = scenario::folders(root)
            .map_err(|e| CommandError::usage_text(e, "give a scenario folder, or a folder of scenario folders"))?;
        // One that cannot be resolved is reported when it is played.
        let new = found.into_iter().filter(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
        folders.extend(new);
    }
    Ok(folders)
}

/// Plays them, `jobs` at a time; the outcomes are in the order of the folders.
fn play(runner: &Runner, folders: &[PathBuf], jobs: usize) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes: Vec<OnceLock<Outcome>> = folders.iter().map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(folders.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(folder), Some(place)) = (folders.get(at), outcomes.get(at)) else { return };
                    place.get_or_init(|| runner.run(folder));
                }
            });
        }
    });
    outcomes.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn name(outcome: &Outcome) -> String {
    outcome.folder.file_name().unwrap_or(outcome.folder.as_os_str()).to_string_lossy().into_owned()
}

fn counts(outcomes: &[Outcome]) -> (usize, usize) {
    let passed = outcomes.iter().filter(|outcome| outcome.passed()).count();
    (passed, outcomes.len() - passed)
}

fn as_text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let word = match outcome.passed() {
            true if outcome.updated.is_empty() => "ok  ",
            true => "NEW ",
            false => "FAIL",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word}  {}", name(outcome));
        text.push_str(&output::shown(&outcome.to_string()));
    }
    let (passed, failed) = counts(outcomes);
    let _ = writeln!(text, "{passed} passed, {failed} failed");
    text
}

fn as_json(outcomes: &[Outcome]) -> Value {
    let (passed, failed) = counts(outcomes);
    let scenario = |outcome: &Outcome| {
        let differences: Vec<Value> =
            outcome.differences.iter().map(|it| json!({ "file": it.file, "difference": it.text })).collect();
        let mut value = json!({
            "name": name(outcome),
            "folder": outcome.folder,
            "passed": outcome.passed(),
            "ms": u64::try_from(outcome.took.as_millis()).unwrap_or(u64::MAX),
            "differences": differences,
            "updated": outcome.updated,
        });
        if let Some(error) = &outcome.error {
            value["error"] = error.to_string().into();
            value["bad"] = outcome.is_bad().into();
        }
        if !outcome.diagnostics.is_empty() {
            value["stderr"] = outcome.diagnostics.clone().into();
        }
        if let Some(kept) = &outcome.kept {
            value["kept"] = kept.display().to_string().into();
        }
        value
    };
    json!({ "passed": passed, "failed": failed, "scenarios": outcomes.iter().map(scenario).collect::<Vec<_>>() })
}
