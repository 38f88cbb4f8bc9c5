//! `dsh test`: every folder under `tests/scenarios` does what it says, and what is wrong with a scenario is told.

use std::fs;
use std::path::{Path, PathBuf};

use dsh_tests::{Composition, Outcome};
use serde_json::{Value, json};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// `dsh test ARGS… FOLDER`, with the built-in composition.
fn test(args: &[&str], folder: &Path) -> Outcome {
    let composition = Composition::new("");
    let mut command = composition.bare_command(&["test"]);
    command.args(args).arg(folder);
    dsh_tests::run(command)
}

#[test]
fn every_scenario_does_what_it_says() {
    let scenarios = fs::read_dir(root()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert!(scenarios >= 20, "scenarios are missing: there are {scenarios}");
    let outcome = test(&[], &root());
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_eq!(outcome.stdout.lines().last(), Some(&*format!("{scenarios} passed, 0 failed")), "{outcome}");
}

/// A scenario that can be changed.
struct Copy(TempDir);

impl Copy {
    fn of(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&root().join(name), dir.path());
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    fn replace(&self, name: &str, from: &str, to: &str) {
        let text = self.read(name);
        assert!(text.contains(from), "{name} does not have {from}");
        self.write(name, &text.replace(from, to));
    }

    fn test(&self, args: &[&str]) -> Outcome {
        test(args, self.0.path())
    }

    /// Its entry of `--json`, after a run that ends with this code.
    fn json(&self, code: i32) -> Value {
        let outcome = self.test(&["--json"]);
        assert_eq!(outcome.code, Some(code), "{outcome}");
        let report = outcome.json();
        assert_eq!(report["failed"], 1, "{report:#}");
        report["scenarios"][0].clone()
    }

    /// The error of a run that ends with this code.
    fn error(&self, code: i32) -> String {
        let scenario = self.json(code);
        assert_eq!(scenario["bad"], code == 2, "{scenario:#}");
        scenario["error"].as_str().unwrap_or_else(|| panic!("no error: {scenario:#}")).to_owned()
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn a_file_that_is_missing_or_not_used_is_an_error() {
    let scenario = Copy::of("max-tokens-continue");
    fs::remove_file(scenario.path("stdout.expected.jsonl")).unwrap();
    scenario.write("request.expected.json", "[]");
    assert_eq!(
        scenario.error(2),
        "stdout.expected.jsonl is missing; --update makes it; request.expected.json is not used"
    );
    let scenario = Copy::of("max-tokens-continue");
    scenario.write("session.jsonl", "");
    assert_eq!(scenario.error(2), "the model's side is given twice: provider.toml, session.jsonl; keep one");
    let scenario = Copy::of("max-tokens-continue");
    fs::remove_file(scenario.path("provider.toml")).unwrap();
    assert_eq!(scenario.error(2), "the model's side is missing: provider.toml, session.jsonl or traffic.json");
    let scenario = Copy::of("max-tokens-continue");
    scenario.write("sessions/old.jsonl", "");
    assert_eq!(scenario.error(2), "sessions/old is not used: no step loads session old");
}

#[test]
fn a_step_that_cannot_be_is_an_error_of_the_scenario() {
    let scenario = Copy::of("max-tokens-continue");
    scenario.write("input.json", r#"[{ "step": "initialise" }]"#);
    let error = scenario.error(2);
    assert!(error.starts_with("input.json: unknown variant `initialise`"), "{error}");
    scenario.write("input.json", r#"[{ "step": "newSession" }]"#);
    assert_eq!(scenario.error(2), "step 1 of input.json, newSession: no process runs; initialize starts one");
}

#[test]
fn an_error_that_no_step_expects_fails_and_so_does_one_that_does_not_come() {
    let scenario = Copy::of("max-tokens-continue");
    let steps = |fails: Value| {
        let mut load = json!({ "step": "loadSession" });
        if !fails.is_null() {
            load["fails"] = fails;
        }
        json!([{ "step": "initialize" }, { "step": "newSession" }, load]).to_string()
    };
    scenario.write("input.json", &steps(json!(-32002)));
    let error = scenario.error(1);
    assert!(error.starts_with("step 3 of input.json, loadSession: was to fail with -32002, and did not"), "{error}");
    scenario.write(
        "input.json",
        r#"[{ "step": "initialize" }, { "step": "newSession" }, { "step": "setConfig", "option": "a", "value": "b" }]"#,
    );
    let error = scenario.error(1);
    assert!(error.contains("-32601") && error.ends_with(r#"the step says "fails": -32601"#), "{error}");
}

#[test]
fn an_answer_of_the_provider_that_no_request_gets_is_an_error() {
    let scenario = Copy::of("max-tokens-continue");
    let script = scenario.read("provider.toml");
    scenario.write("provider.toml", &format!("{script}\n[[response]]\ntext = \"more\"\n"));
    let error = scenario.error(1);
    assert!(error.starts_with("[[response]] 3 of provider.toml: no request got it"), "{error}");
}

#[test]
fn a_difference_shows_what_was_expected_and_what_happened() {
    let scenario = Copy::of("max-tokens-continue");
    scenario.replace("stdout.expected.jsonl", "\"max_tokens\"", "\"end_turn\"");
    let outcome = scenario.test(&[]);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    let text = &outcome.stdout;
    assert!(text.contains("\n--- stdout.expected.jsonl\n+++ what happened\n"), "{outcome}");
    assert!(text.contains("\n-     \"stopReason\": \"end_turn\"\n+     \"stopReason\": \"max_tokens\"\n"), "{outcome}");
    assert!(!text.contains("session.expected.jsonl"), "{outcome}");
    assert_eq!(text.lines().last(), Some("0 passed, 1 failed"), "{outcome}");
}

#[test]
fn an_update_writes_what_happened_and_says_which_files() {
    let scenario = Copy::of("max-tokens-continue");
    let right = scenario.read("stdout.expected.jsonl");
    scenario.replace("stdout.expected.jsonl", "\"max_tokens\"", "\"end_turn\"");
    fs::remove_file(scenario.path("session.expected.jsonl")).unwrap();
    let outcome = scenario.test(&["--update"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    for file in ["stdout.expected.jsonl", "session.expected.jsonl"] {
        assert!(outcome.stdout.contains(&format!("\n{file} was rewritten: review it\n")), "{outcome}");
    }
    assert!(!outcome.stdout.contains("requests.expected.json was"), "{outcome}");
    assert_eq!(scenario.read("stdout.expected.jsonl"), right);
    let original = fs::read_to_string(root().join("max-tokens-continue/session.expected.jsonl")).unwrap();
    assert_eq!(scenario.read("session.expected.jsonl"), original);
    let outcome = scenario.test(&[]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
}

#[test]
fn the_working_folder_is_compared_file_by_file() {
    let scenario = Copy::of("parallel-tools");
    assert!(scenario.path("workspace.expected").is_dir() && scenario.path("workspace").is_dir());
    scenario.write("workspace.expected/c.txt", "another\n");
    scenario.write("workspace.expected/deep/gone.txt", "here\n");
    let scenario = scenario.json(1);
    let differences = scenario["differences"].as_array().unwrap();
    let files: Vec<_> = differences.iter().map(|it| it["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["workspace.expected/c.txt", "workspace.expected/deep/gone.txt"], "{scenario:#}");
    assert!(differences[0]["difference"].as_str().unwrap().contains("- another\n+ 2\n+ 1\n"), "{scenario:#}");
}

#[test]
fn a_scenario_is_meant_once_and_a_folder_without_any_is_bad_usage() {
    let composition = Composition::new("");
    let one = root().join("cancel-in-text");
    let mut command = composition.bare_command(&["test", "--jobs", "1"]);
    command.arg(&one).arg(&one);
    let outcome = dsh_tests::run(command);
    assert_eq!((outcome.code, outcome.stdout.lines().last()), (Some(0), Some("1 passed, 0 failed")), "{outcome}");
    let empty = tempfile::tempdir().unwrap();
    let outcome = test(&[], empty.path());
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(outcome.says("has neither an input.json nor folders with one"), "{outcome}");
}
