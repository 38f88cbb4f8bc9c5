//! Sessions whose logs somebody else wrote, or a broken disk: each is shown, and each can go on.

use dsh_tests::Composition;

const MANIFEST: &str = "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n\
                        [adapter.config.providers.keyless]\nreply = \"fine\"\n[agent]\nmodel = \"keyless/m\"\n";

fn user(seq: u64) -> String {
    format!(
        r#"{{"type":"user/message","seq":{seq},"time":1,"data":{{"id":"u","role":"user","content":[{{"type":"text","text":"hi"}}],"source":{{"kind":"user"}}}},"surfaceOp":"append"}}"#
    )
}

fn result(content: &str) -> String {
    format!(
        r#"{{"type":"tool/result","seq":1,"time":1,"data":{{"turn":1,"step":1,"message":{{"id":"r","role":"user","content":{content},"source":{{"kind":"tool","callId":"c"}}}}}},"surfaceOp":"append"}}"#
    )
}

#[test]
fn no_log_keeps_a_session_from_going_on() {
    let composition = Composition::new(MANIFEST);
    let sessions = composition.home().join("sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let deep = 100_000;
    let results = r#"[{"type":"tool-result","toolCallId":"c","content":"#.repeat(deep) + "[]" + &"}]".repeat(deep);
    let arrays = "[".repeat(deep) + &"]".repeat(deep);
    for (id, lines) in [
        (
            "greatest-turn",
            vec![r#"{"type":"turn/start","seq":0,"time":1,"data":{"turn":18446744073709551615}}"#.into()],
        ),
        ("nested-results", vec![user(0), result(&results)]),
        ("nested-content", vec![user(0), result(&arrays)]),
        ("nested-data", vec![format!(r#"{{"type":"user/message","seq":0,"time":1,"data":{arrays}}}"#), user(1)]),
        ("no-message", vec![user(0), r#"{"type":"assistant/message","seq":1,"time":1,"data":null}"#.into()]),
        ("carriage-returns", vec![user(0) + "\r", "\r".into(), user(1) + "\r"]),
        ("byte-order-mark", vec!["\u{feff}".into(), user(0)]),
        ("zeros", vec![user(0), "\0".repeat(100_000), user(1)]),
    ] {
        let header = format!(r#"{{"type":"session","version":0,"id":"{id}","createdAt":1}}"#);
        let log = [vec![header], lines].concat().join("\n") + "\n";
        std::fs::write(sessions.join(format!("{id}.jsonl")), log).unwrap();
        for prompt in ["on", "and on"] {
            let outcome = composition.dsh(&["run", "--session", id, prompt]);
            assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "fine\n"), "{id}: {outcome}");
        }
        let shown = composition.dsh(&["sessions", "show", "--messages", "--json", id]);
        assert_eq!(shown.code, Some(0), "{id}: {}", shown.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_no_regular_file_is_no_session() {
    let composition = Composition::new(MANIFEST);
    for (args, says) in [
        (vec!["sessions", "show", "/dev/zero"], "it is a device"),
        (vec!["sessions", "verify", "/dev/zero"], "it is a device"),
        (vec!["run", "--session", "/dev/zero", "on"], "regular file"),
        (vec!["run", "--session", "/proc/self", "on"], "regular file"),
    ] {
        let outcome = composition.dsh(&args);
        assert_eq!(outcome.code, Some(1), "{args:?}: {outcome}");
        // A report wraps its lines.
        let told = (outcome.stdout.clone() + &outcome.stderr).replace('│', " ");
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains(says), "{args:?}: {outcome}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_stdout_did_not_take_is_told() {
    let composition = Composition::new(MANIFEST);
    for json in [&["run", "hi"][..], &["run", "--json", "hi"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = composition.command(json).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("stdout cannot be written") && stderr.contains("the answer is in session"), "{stderr}");
    }
}
