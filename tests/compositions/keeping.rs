//! Sessions that people mend, fork and delete, by the commands for it.

use std::fs;

use dsh_tests::Composition;
use serde_json::{Value, json};

const MANIFEST: &str = "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n\
                        [adapter.config.providers.keyless]\nreply = \"fine\"\n[agent]\nmodel = \"keyless/m\"\n";

/// A session of two turns, and its id.
fn with_session(composition: &Composition) -> String {
    let first = composition.dsh(&["run", "--json", "one"]);
    let result: Value = serde_json::from_str(first.stdout.lines().last().unwrap()).unwrap();
    let id = result["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(composition.dsh(&["run", "--session", &id, "two"]).code, Some(0));
    id
}

fn messages(composition: &Composition, id: &str) -> Value {
    composition.dsh(&["sessions", "show", "--messages", "--json", id]).json()
}

#[test]
fn a_damaged_session_is_repaired_and_goes_on() {
    let composition = Composition::new(MANIFEST);
    let id = with_session(&composition);
    let path = composition.home().join(format!("sessions/{id}.jsonl"));
    let text = fs::read_to_string(&path).unwrap();
    let damaged = text.replacen("\n{\"type\":\"turn/end\"", "\n\0\0gar\nbage{\"type\":\"turn/end\"", 1) + "{\"type\":";
    fs::write(&path, &damaged).unwrap();
    let before = messages(&composition, &id);
    let repaired = composition.dsh(&["sessions", "repair", "--json", &id]);
    assert_eq!(repaired.code, Some(0), "{repaired}");
    let repaired = repaired.json();
    assert_eq!((&repaired["repaired"], repaired["problems"].as_array().unwrap().len()), (&json!(true), 3));
    assert_eq!(fs::read_to_string(repaired["kept"].as_str().unwrap()).unwrap(), damaged);
    let verified = composition.dsh(&["sessions", "verify", &id]);
    assert_eq!(verified.code, Some(0), "{verified}");
    assert_eq!(messages(&composition, &id), before);
    let again = composition.dsh(&["sessions", "repair", &id]);
    assert!(again.code == Some(0) && again.stdout.contains("nothing to repair"), "{again}");
    assert_eq!(composition.dsh(&["run", "--session", &id, "three"]).code, Some(0));
}

#[test]
fn a_newer_session_is_not_repaired() {
    let composition = Composition::new(MANIFEST);
    let path = composition.file("n.jsonl", "{\"type\":\"session\",\"version\":7,\"id\":\"n\"}\ngarbage\n");
    let refused = composition.dsh(&["sessions", "repair", path.to_str().unwrap()]);
    assert!(refused.code == Some(1) && refused.says("format version 7"), "{refused}");
}

#[test]
fn a_fork_goes_on_by_itself() {
    let composition = Composition::new(MANIFEST);
    let id = with_session(&composition);
    let events = composition.dsh(&["sessions", "show", "--events", "--json", &id]).stdout;
    let kinds: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = kinds.iter().position(|event| event["type"] == "turn/end").unwrap();
    let fork = composition.dsh(&["sessions", "fork", &id, "--at", &end.to_string()]);
    assert_eq!(fork.code, Some(0), "{fork}");
    let fork = fork.stdout.trim_end();
    let whole = messages(&composition, &id);
    assert_eq!(messages(&composition, fork).as_array().unwrap()[..], whole.as_array().unwrap()[..2]);
    assert_eq!(composition.dsh(&["run", "--session", fork, "another"]).code, Some(0));
    assert_eq!(messages(&composition, fork)[2]["content"][0]["text"], "another");
    assert_eq!(messages(&composition, &id), whole, "the other one is as it was");
    let refused = composition.dsh(&["sessions", "fork", &id, "--at", "100000"]);
    assert!(refused.code == Some(2) && refused.says("no event 100000") && refused.says("show --events"), "{refused}");
}

#[test]
fn nothing_is_deleted_unasked() {
    let composition = Composition::new(MANIFEST);
    let id = with_session(&composition);
    let refused = composition.dsh(&["sessions", "delete", &id]);
    assert!(refused.code == Some(2) && refused.says("--yes"), "{refused}");
    let refused = composition.dsh(&["sessions", "delete", "--yes", &id, "nothing"]);
    assert!(refused.code == Some(2) && refused.says("there is no session"), "{refused}");
    assert_eq!(composition.dsh(&["sessions", "list", "--json"]).json().as_array().unwrap().len(), 1);
    let deleted = composition.dsh(&["sessions", "delete", "--yes", "--json", &id, &id]).json();
    let path = composition.home().join(format!("sessions/{id}.jsonl"));
    assert_eq!(deleted, json!([{"id": id, "removed": [path]}]));
    assert_eq!(composition.dsh(&["sessions", "list", "--json"]).json(), json!([]));
    assert_eq!(composition.dsh(&["sessions", "show", &id]).code, Some(2));
}

#[cfg(unix)]
#[test]
fn a_session_in_use_is_neither_repaired_nor_deleted() {
    let composition = Composition::new(MANIFEST);
    let id = with_session(&composition);
    let lock = fs::File::create(composition.home().join(format!("sessions/{id}.lock"))).unwrap();
    lock.lock().unwrap();
    fs::write(composition.home().join(format!("sessions/{id}.lock")), "4711\n").unwrap();
    for args in [vec!["sessions", "repair", &id], vec!["sessions", "delete", "--yes", &id]] {
        let refused = composition.dsh(&args);
        assert!(refused.code == Some(1) && refused.says("open in process 4711"), "{args:?}: {refused}");
    }
    assert_eq!(composition.dsh(&["sessions", "show", &id]).code, Some(0));
}

/// A file system that takes no more, without being root: the shell lets no file grow beyond 24 KiB.
#[cfg(unix)]
#[test]
fn a_turn_that_cannot_be_logged_stops_and_the_session_goes_on_where_there_is_room() {
    let long = "word ".repeat(6_000);
    let composition = Composition::new(&MANIFEST.replace("\"fine\"", &format!("\"{long}\"")));
    // Copies of libraries that were looked at are larger than that.
    assert_eq!(composition.dsh(&["plugins", "list"]).code, Some(0));
    let plain = composition.command(&["run", "--json", "one"]);
    let mut limited = std::process::Command::new("sh");
    // Bytes by blocks of 512. Who ignores the signal gets an error in its place.
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 48; exec \"$@\"", "sh"])
        .arg(plain.get_program())
        .args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(folder) = plain.get_current_dir() {
        limited.current_dir(folder);
    }
    let stopped = dsh_tests::run(limited);
    assert_eq!(stopped.code, Some(1), "{stopped}");
    assert!(stopped.says("ulimit -f") && stopped.says("What was saved before stays"), "{stopped}");
    assert!(!stopped.stdout.contains("\"turn/end\""), "nothing is claimed that is not in the log: {stopped}");
    let listed = composition.dsh(&["sessions", "list", "--json"]).json();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(composition.dsh(&["sessions", "verify", id]).code, Some(0));
    let acknowledged = stopped.stdout.lines().filter(|line| line.contains("\"seq\":")).count();
    let events = composition.dsh(&["sessions", "show", "--events", "--json", id]).stdout;
    let printed: Vec<&str> = stopped.stdout.lines().take(acknowledged).collect();
    assert!(acknowledged > 3 && events.lines().take(acknowledged).eq(printed), "{stopped}\n{events}");
    let on = composition.dsh(&["run", "--session", id, "two"]);
    assert_eq!(on.code, Some(0), "{on}");
    assert_eq!(messages(&composition, id)[0]["content"][0]["text"], "one");
}
