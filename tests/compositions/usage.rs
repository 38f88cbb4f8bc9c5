//! Bad input gets a message that says what to do, exit code 2, and leaves nothing behind.

use std::io::Read;
use std::process::{Command, Stdio};

use dsh_tests::{Composition, Outcome, Provider, Running, of_kind, run, text_of, wait_until};
use serde_json::json;

/// A run without a manifest and without any credential.
fn bare(composition: &Composition, args: &[&str]) -> Outcome {
    let mut command: Command = composition.bare_command(args);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.ends_with("_API_KEY")) {
            command.env_remove(name);
        }
    }
    run(command)
}

/// It was refused as bad usage, said all this, and made no session.
fn assert_refused(composition: &Composition, outcome: &Outcome, expected: &[&str]) {
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome}");
    for part in expected {
        assert!(outcome.says(part), "{part:?}: {outcome}");
    }
    assert_eq!(composition.sessions(), [""; 0], "{outcome}");
}

#[test]
fn without_a_manifest_the_default_composition_answers_on_its_keyless_route() {
    let composition = Composition::new("");
    let outcome = bare(&composition, &["run", "-m", "keyless/hello", "hi"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(outcome.stdout.contains("keyless route") && outcome.stdout.ends_with('\n'), "{outcome}");
    assert_eq!((composition.sessions().len(), outcome.stderr.as_str()), (1, ""), "{outcome}");
    // The session goes on with its own model, not with the agent's, which needs a credential.
    let again = bare(&composition, &["run", "--continue", "again"]);
    assert_eq!((again.code, composition.sessions().len()), (Some(0), 1), "{again}");
}

#[test]
fn a_missing_credential_is_named_with_what_to_do_about_it() {
    let composition = Composition::new("");
    let expected = ["deepseek/deepseek-chat", "export DEEPSEEK_API_KEY=", "OPENAI_API_KEY", "dsh run -m keyless/hello"];
    assert_refused(&composition, &bare(&composition, &["run", "hi"]), &expected);
}

#[test]
fn a_manifest_that_cannot_be_used_is_refused_with_its_place() {
    let adapter = "[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n";
    let route = "[adapter.config.providers.x]\napi = \"openai-completions\"\nbase_url = \"http://127.0.0.1:1\"\n";
    for (manifest, expected) in [
        ("version = 1\n[agent\n".to_owned(), &["composition.toml:2", "`]`"][..]),
        (
            "version = 1\n[sesions]\ndir = \"x\"\n".to_owned(),
            &["composition.toml:2", "`sesions`", "did you mean `sessions`"],
        ),
        (
            "version = 1\n[agent]\nmodle = \"x/m\"\n".to_owned(),
            &["composition.toml:3", "`modle`", "did you mean `model`"],
        ),
        (
            "version = 1\n[agent]\ntools = [\"bahs\"]\n".to_owned(),
            &["composition.toml:3", "`bahs`", "did you mean `bash`"],
        ),
        (
            format!("version = 1\n{adapter}{route}base_ulr = \"y\"\n"),
            &["composition.toml:8", "`base_ulr`", "did you mean `base_url`"],
        ),
        (format!("version = 1\n{adapter}[agent]\nmodel = \"x\"\n"), &["PROVIDER/MODEL"]),
        (format!("version = 1\n{adapter}{route}"), &["no model is named", "-m PROVIDER/MODEL"]),
        (
            "version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"dsh-llm-pi-aii\"\n[agent]\nmodel = \"x/m\"\n".to_owned(),
            &["\"a\" is not loaded", "dsh-llm-pi-aii", "close to it", "libdsh_llm_pi_ai", "DSH_PLUGIN_PATH"],
        ),
    ] {
        let composition = Composition::new(&manifest);
        assert_refused(&composition, &composition.dsh(&["run", "hi"]), expected);
    }
    let composition = Composition::new("");
    let outcome = bare(&composition, &["--manifest", "nowhere.toml", "run", "hi"]);
    assert_refused(&composition, &outcome, &["nowhere.toml", "no such file"]);
}

#[test]
fn bad_arguments_are_refused_before_anything_is_made() {
    let composition = Composition::new("");
    for (args, expected) in [
        (&["run", " \n"][..], &["the prompt is blank"][..]),
        (&["run"], &["PROMPT"]),
        (&["run", "-m", "keyles/hello", "hi"], &["\"keyles\"", "did you mean \"keyless\"", "dsh models"]),
        (&["run", "-m", "keyless", "hi"], &["PROVIDER/MODEL", "keyless/hello"]),
        (&["run", "--session", "nobody", "hi"], &["no session \"nobody\"", "dsh sessions list"]),
        (&["run", "--session", ".hidden", "hi"], &["\".hidden\""]),
        (&["run", "--continue", "hi"], &["no session to continue", "without --continue"]),
        (&["run", "--session", "x", "--continue", "hi"], &["cannot be used with"]),
        (&["rum", "hi"], &["rum", "run"]),
    ] {
        assert_refused(&composition, &bare(&composition, args), expected);
    }
}

#[test]
fn the_newest_session_is_the_one_that_continues() {
    let provider = Provider::start(&[json!({ "repeat": true, "text": "yes" })]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "the older one").completed();
    let second = composition.prompt(&[], "the newer one").completed();
    let third = composition.prompt(&["--continue"], "which?").completed();
    assert_eq!(third.session(), second.session());
    assert_ne!(third.session(), first.session());
    let sent = provider.conversations("").pop().unwrap();
    assert!(sent.iter().any(|message| text_of(message) == "the newer one"), "{sent:#?}");
}

#[test]
fn a_session_that_another_process_writes_is_refused_with_its_process_id() {
    let provider = Provider::start(&[json!({ "text": "Wait for", "stall_after": 2 })]);
    let composition = Composition::on(&provider, "");
    let mut running = Running::start(composition.command(&["run", "--json", "hi"]));
    running.wait_for("Wait for");
    let session = composition.sessions().pop().unwrap();
    let outcome = composition.dsh(&["run", "--session", &session, "me too"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{outcome}");
    assert!(outcome.says(&format!("is open in process {}", running.pid())), "{outcome}");
    // Reading is free.
    let shown = composition.dsh(&["sessions", "show", "--messages", "--json", &session]);
    assert_eq!((shown.code, shown.json()[0]["role"].as_str()), (Some(0), Some("user")), "{shown}");
    running.signal("INT");
    assert_eq!(running.finish().code, Some(1));
    assert_eq!(of_kind(&composition.events(&session), "user/message").len(), 1, "the refused prompt is not in the log");
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_turn() {
    let text = "word ".repeat(40);
    let provider = Provider::start(&[json!({ "repeat": true, "text": text, "chunk_chars": 5, "delay_ms": 5 })]);
    for json in [false, true] {
        let composition = Composition::on(&provider, "");
        let args: &[&str] = if json { &["run", "--json", "hi"] } else { &["run", "hi"] };
        let mut command = composition.command(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // As `dsh run … | head -c 1` does.
        let mut byte = [0];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut byte).unwrap();
        drop(stdout);
        let mut code = None;
        wait_until("dsh ends", || {
            code = child.try_wait().unwrap().map(|status| status.code());
            code.is_some()
        });
        assert_eq!(code, Some(Some(0)), "--json: {json}");
        let events = composition.events(&composition.sessions()[0]);
        assert_eq!(of_kind(&events, "turn/end")[0]["reason"]["kind"], "completed");
        assert_eq!(of_kind(&events, "assistant/message")[0]["message"]["content"][0]["text"], text.as_str());
    }
}
