//! Every folder under `tests/scenarios` does what it says. `DSH_SCENARIOS_UPDATE=1` rewrites the expectations that do
//! not hold, for a person to review; the test fails all the same.

use std::fs;
use std::path::Path;
use std::thread;

use dsh_tests::scenario::{self, Mode};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

#[test]
fn every_scenario_does_what_it_says() {
    let mode = match std::env::var_os("DSH_SCENARIOS_UPDATE") {
        Some(value) if value == "1" => Mode::Update,
        _ => Mode::Compare,
    };
    let folders = scenario::folders(&root());
    assert!(folders.len() >= 3, "scenarios are missing: {folders:?}");
    let report: Vec<String> = thread::scope(|scope| {
        let runs: Vec<_> =
            folders.iter().map(|folder| (folder, scope.spawn(move || scenario::run(folder, mode)))).collect();
        let failed = runs.into_iter().filter_map(|(folder, run)| Some((folder, run.join().unwrap().err()?)));
        failed.map(|(folder, error)| format!("scenario {}\n{error}", folder.display())).collect()
    });
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

/// A copy of a scenario, changed.
fn changed(change: impl FnOnce(&Path)) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(root().join("max-tokens-continue")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    change(dir.path());
    scenario::run(dir.path(), Mode::Compare)
}

#[test]
fn a_file_that_is_missing_or_not_used_is_an_error() {
    let error = changed(|folder| fs::remove_file(folder.join("requests.expected.json")).unwrap()).unwrap_err();
    assert_eq!(error, "requests.expected.json is missing");
    let error = changed(|folder| fs::write(folder.join("request.expected.json"), "[]").unwrap()).unwrap_err();
    assert_eq!(error, "request.expected.json is not used");
}

#[test]
fn a_difference_shows_what_was_expected_and_what_happened() {
    let error = changed(|folder| {
        let path = folder.join("stdout.expected.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"max_tokens\""));
        fs::write(&path, text.replace("\"max_tokens\"", "\"end_turn\"")).unwrap();
    });
    let error = error.unwrap_err();
    assert!(error.starts_with("--- stdout.expected.jsonl\n+++ what happened\n"), "{error}");
    assert!(error.contains("\n-     \"stopReason\": \"end_turn\"\n+     \"stopReason\": \"max_tokens\"\n"), "{error}");
    assert!(!error.contains("session.expected.jsonl"), "{error}");
}
