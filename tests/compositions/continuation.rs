//! A conversation goes on, with as much fidelity as its replay metadata allows and never with less than its content.

use dsh_tests::{AcpClient, Composition, Provider, Run, Running, assistants, for_each, of_kind, text_of};
use serde_json::{Value, json};

const THOUGHT: &str = "One shell command will do.";
const SAID: &str = "I will look now.";

/// A thought, a text, and a tool call that the output limit cuts off.
fn truncated() -> Value {
    let call = json!({ "id": "call_1", "name": "bash", "arguments": "{\"command\":\"touch ran; ec" });
    json!({ "reasoning": THOUGHT, "text": SAID, "tool_calls": [call], "finish": "length" })
}

/// The second request carries the kept blocks natively, and the log what was kept and nothing else.
fn assert_pruned(composition: &Composition, provider: &Provider, session: &str) {
    let conversations = provider.conversations("");
    assert_eq!(conversations.len(), 2, "{conversations:#?}");
    let said = assistants(&conversations[1]);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!((said[0]["reasoning_content"].as_str(), text_of(said[0]).as_str()), (Some(THOUGHT), SAID));
    assert!(conversations[1].iter().all(|message| message.get("tool_calls").is_none()), "{conversations:#?}");
    assert!(conversations[1].iter().all(|message| message["role"] != "tool"), "{conversations:#?}");

    let events = composition.events(session);
    let message = &of_kind(&events, "assistant/message")[0]["message"];
    let blocks = json!([{ "type": "reasoning", "text": THOUGHT }, { "type": "text", "text": SAID }]);
    assert_eq!(message["content"], blocks);
    let entries = json!([{ "type": "reasoning", "thinkingSignature": "reasoning_content" }, { "type": "text" }]);
    assert_eq!(message["source"]["replayState"]["blocks"], entries);
    assert_eq!(message["source"]["replayState"]["response"]["stopReason"], "length");
    // What was streamed is in the log all the same.
    assert!(events.iter().any(|event| event["data"]["chunk"]["type"] == "tool-call-delta"));
    assert!(of_kind(&events, "tool/call").is_empty() && !composition.home().join("ran").exists());
    assert!(of_kind(&events, "llm/degrade").is_empty());
}

#[test]
fn a_truncated_answer_goes_back_natively_without_its_call_within_one_process() {
    let provider = Provider::start(&[truncated(), json!({ "text": "done" })]);
    let composition = Composition::on(&provider, "");
    let mut client = AcpClient::start(composition.command(&["acp"])).unwrap();
    client.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} })).unwrap();
    let made = client.call("session/new", &json!({ "cwd": composition.home(), "mcpServers": [] })).unwrap();
    let session = made["sessionId"].as_str().unwrap();
    for (prompt, stop) in [("look", "max_tokens"), ("go on", "end_turn")] {
        let params = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": prompt }] });
        assert_eq!(client.call("session/prompt", &params).unwrap()["stopReason"], stop);
    }
    client.close().unwrap();
    assert_pruned(&composition, &provider, session);
}

#[test]
fn a_truncated_answer_goes_back_natively_without_its_call_across_processes() {
    let provider = Provider::start(&[truncated(), json!({ "text": "done" })]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "look");
    assert_eq!((first.outcome.code, &first.result["reason"]["kind"]), (Some(0), &json!("max-tokens")));
    let second = composition.prompt(&["--session", first.session()], "go on").completed();
    assert_eq!((second.session(), &second.result["degraded"]), (first.session(), &json!([])));
    assert_pruned(&composition, &provider, first.session());
}

#[test]
fn a_tool_turn_goes_back_natively_with_its_thought_and_its_call() {
    let call = json!({ "id": "call_1", "name": "bash", "arguments": "{\"command\":\"echo found\"}" });
    let provider = Provider::start(&[
        json!({ "reasoning": THOUGHT, "text": SAID, "tool_calls": [call.clone()] }),
        json!({ "reasoning": "It is there.", "text": "found it" }),
        json!({ "text": "bye" }),
    ]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "look").completed();
    composition.prompt(&["--session", first.session()], "thanks").completed();

    let conversations = provider.conversations("");
    // Within the turn, and from the log in another process.
    for messages in &conversations[1..] {
        let said = assistants(messages)[0];
        assert_eq!((said["reasoning_content"].as_str(), text_of(said).as_str()), (Some(THOUGHT), SAID));
        let sent = &said["tool_calls"][0];
        assert_eq!((&sent["id"], &sent["function"]["arguments"]), (&call["id"], &call["arguments"]));
    }
    let last = assistants(&conversations[2])[1];
    assert_eq!((last["reasoning_content"].as_str(), text_of(last).as_str()), (Some("It is there."), "found it"));
}

#[test]
fn a_hand_over_to_another_model_is_neutral_and_the_first_model_finds_its_thoughts_again() {
    let provider = Provider::start(&[json!({ "repeat": true, "reasoning": THOUGHT, "text": SAID })]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "look").completed();
    let on = |args: &[&str]| composition.prompt(&[&["--session", first.session()], args].concat(), "more").completed();
    for (model, native) in
        [("mock/other", vec![false]), ("spare/m", vec![false; 2]), ("mock/m", vec![true, false, false])]
    {
        let turn = on(&["-m", model]);
        assert_eq!(turn.result["degraded"], json!([]), "{model}");
        assert!(!turn.outcome.stderr.contains("warning"), "{}", turn.outcome);
        let last = provider.conversations("").pop().unwrap();
        let sent: Vec<bool> =
            assistants(&last).iter().map(|message| message.get("reasoning_content").is_some()).collect();
        assert_eq!(sent, native, "{model}");
        // Thoughts of another model are not shown as something that was said.
        assert!(assistants(&last).iter().all(|message| text_of(message) == SAID), "{last:#?}");
    }
    assert!(of_kind(&composition.events(first.session()), "llm/degrade").is_empty());
}

#[test]
fn what_a_killed_process_acknowledged_is_kept_and_the_model_is_told_of_the_interruption() {
    let provider = Provider::start(&[
        json!({ "reasoning": THOUGHT, "text": "Half of it and the rest", "chunk_chars": 11, "stall_after": 5 }),
        json!({ "text": "done" }),
    ]);
    let composition = Composition::on(&provider, "");
    let mut running = Running::start(composition.command(&["run", "--json", "go"]));
    running.wait_for("\"text\":\"Half of it \"");
    running.signal("KILL");
    let killed = running.finish();
    assert_eq!(killed.code, None, "{killed}");
    let whole_lines = killed.stdout.rsplit_once('\n').unwrap().0;
    let acknowledged: Vec<Value> = whole_lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

    let session = composition.sessions().pop().unwrap();
    composition.prompt(&["--session", &session], "go on").completed();
    let events = composition.events(&session);
    assert_eq!(events[..acknowledged.len()], acknowledged);
    let kept = of_kind(&events, "assistant/message")[0];
    assert_eq!(kept["interrupted"], true, "{kept}");
    assert_eq!(of_kind(&events, "turn/end")[0]["reason"]["kind"], "interrupted");
    let sent = provider.conversations("").pop().unwrap();
    assert_eq!(text_of(assistants(&sent)[0]), "Half of it ");
    assert!(
        sent.iter().any(|message| message["role"] == "user" && text_of(message).contains("interrupted")),
        "{sent:#?}"
    );
}

/// The content of an answer, and the state that pi-ai stores for it.
fn content() -> Value {
    json!([{ "type": "reasoning", "text": THOUGHT }, { "type": "text", "text": SAID }])
}

fn sound_state() -> Value {
    json!({
        "response": {
            "kind": "pi-ai", "version": 2, "api": "openai-completions", "provider": "mock", "model": "m",
            "responseId": "r", "stopReason": "stop",
        },
        "blocks": [{ "type": "reasoning", "thinkingSignature": "reasoning_content" }, { "type": "text" }],
    })
}

fn flat_version_1(entries: usize) -> Value {
    let blocks = json!([{ "type": "reasoning", "thinkingSignature": "reasoning_content" }, { "type": "text" }, {}]);
    json!({
        "kind": "pi-ai", "version": 1, "api": "openai-completions", "provider": "mock", "model": "m", "stopReason": "stop",
        "blocks": blocks.as_array().unwrap()[..entries],
    })
}

fn source(state: &Value) -> Value {
    json!({ "kind": "model", "provider": "mock", "model": "m", "replayState": state })
}

/// Position of the message with the state under test among the messages of [`write_poisoned`].
const POISONED: usize = 3;

/// A session of three answers, the second of which has this state.
fn write_poisoned(composition: &Composition, session: &str, state: &Value) {
    let [first, second, third] = [&sound_state(), state, &sound_state()].map(|state| (content(), source(state)));
    composition.write_session(session, &[first, second, third]);
}

#[test]
fn a_version_1_state_with_another_block_count_is_reported_once_everywhere_and_the_session_goes_on() {
    let provider = Provider::start(&[json!({ "repeat": true, "text": "done" })]);
    let composition = Composition::on(&provider, "");
    write_poisoned(&composition, "old", &flat_version_1(3));
    let before = std::fs::read(composition.log("old")).unwrap();

    let run = composition.prompt(&["--session", "old"], "go on").completed();
    let degraded = run.result["degraded"].as_array().unwrap();
    assert_eq!(degraded.len(), 1, "{}", run.result);
    assert_eq!((&degraded[0]["message"], &degraded[0]["code"]), (&json!(POISONED), &json!("INVALID_REPLAY_STATE")));
    let reason = degraded[0]["reason"].as_str().unwrap();
    let line = run.events.iter().find(|event| event["type"] == "llm/degrade").expect("an llm/degrade line");
    assert_eq!(line["ignorable"], true, "{line}");
    let event = &line["data"];
    assert_eq!((event["reason"].as_str(), &event["messageId"]), (Some(reason), &json!("a2")), "{event}");
    assert_eq!((&event["message"], &event["code"]), (&json!(POISONED), &degraded[0]["code"]), "{event}");
    assert!(
        run.outcome.stderr.contains("INVALID_REPLAY_STATE") && run.outcome.stderr.contains(reason),
        "{}",
        run.outcome
    );

    // Without --json the warning is the same, but this message, reason and route were reported before.
    let again = composition.dsh(&["run", "--session", "old", "and on"]);
    assert_eq!((again.code, again.stdout.as_str()), (Some(0), "done\n"), "{again}");
    assert!(!again.stderr.contains("INVALID_REPLAY_STATE"), "{again}");
    assert_eq!(of_kind(&composition.events("old"), "llm/degrade"), [event]);

    // The stored state is evidence; it stays as it was.
    assert!(std::fs::read(composition.log("old")).unwrap().starts_with(&before));
}

#[test]
fn the_warning_reaches_a_person_who_did_not_ask_for_json() {
    let provider = Provider::start(&[json!({ "repeat": true, "text": "done" })]);
    let composition = Composition::on(&provider, "");
    write_poisoned(&composition, "old", &flat_version_1(3));
    let outcome = composition.dsh(&["run", "--session", "old", "go on"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "done\n"), "{outcome}");
    let warnings = outcome.stderr.lines().filter(|line| line.contains("INVALID_REPLAY_STATE")).count();
    assert_eq!(warnings, 1, "{outcome}");
}

/// Every way in which a state cannot be used, with words of the reason.
fn unusable() -> Vec<(&'static str, Value, &'static str)> {
    let with = |pointer: &str, value: Value| {
        let mut state = sound_state();
        *state.pointer_mut(pointer).unwrap() = value;
        state
    };
    let without = |pointer: &str, key: &str| {
        let mut state = sound_state();
        state.pointer_mut(pointer).unwrap().as_object_mut().unwrap().remove(key);
        state
    };
    let reasoning = |signature: Value| json!({ "type": "reasoning", "thinkingSignature": signature });
    vec![
        ("flat-v1", flat_version_1(2), "flat"),
        ("flat-v1-count", flat_version_1(3), "flat"),
        ("other-kind", with("/response/kind", json!("dsh-replay")), "kind \"dsh-replay\""),
        ("version-99", with("/response/version", json!(99)), "version 99"),
        ("version-as-text", with("/response/version", json!("2")), "version"),
        ("no-version", without("/response", "version"), "version"),
        ("null", Value::Null, "not an object"),
        ("a-string", json!("pi-ai"), "not an object"),
        ("a-list", json!([sound_state()]), "not an object"),
        ("empty", json!({}), "response"),
        ("response-null", with("/response", Value::Null), "response"),
        (
            "too-many-entries",
            with(
                "/blocks",
                json!([reasoning(json!("reasoning_content")), { "type": "text" }, { "type": "tool-call" }]),
            ),
            "3 block entries",
        ),
        ("too-few-entries", with("/blocks", json!([{ "type": "text" }])), "1 block entries"),
        ("no-entries", without("", "blocks"), "no block entries"),
        ("entries-no-list", with("/blocks", json!({})), "blocks"),
        (
            "entry-order",
            with("/blocks", json!([{ "type": "text" }, reasoning(json!("reasoning_content"))])),
            "of type \"text\"",
        ),
        ("signature-number", with("/blocks/0", reasoning(json!(7))), "thinkingSignature is not a string"),
        ("signature-null", with("/blocks/0", reasoning(Value::Null)), "thinkingSignature is not a string"),
        ("signature-unknown", with("/blocks/0", reasoning(json!("EqQBCg=="))), "thinkingSignature"),
        ("other-provider", with("/response/provider", json!("elsewhere")), "provider \"elsewhere\""),
        ("other-model", with("/response/model", json!("m-2")), "model \"m-2\""),
    ]
}

#[test]
fn every_unusable_state_costs_its_own_message_some_fidelity_and_nothing_else() {
    let provider = Provider::start(&[json!({ "repeat": true, "text": "done" })]);
    let composition = Composition::on(&provider, "");
    for_each(&unusable(), |(name, state, words)| {
        write_poisoned(&composition, name, state);
        let check = |run: &Run| {
            let degraded = run.result["degraded"].as_array().unwrap();
            assert_eq!(degraded.len(), 1, "{name}: {}", run.result);
            assert_eq!(degraded[0]["message"], json!(POISONED), "{name}: {}", run.result);
            let reason = degraded[0]["reason"].as_str().unwrap();
            assert!(reason.contains(words), "{name}: {reason}");
        };
        let first = composition.prompt(&["--session", name], &format!("<{name}>")).completed();
        check(&first);
        assert!(first.outcome.stderr.contains("INVALID_REPLAY_STATE"), "{name}: {}", first.outcome);
        let second = composition.prompt(&["--session", name], "again").completed();
        check(&second);
        assert!(!second.outcome.stderr.contains("INVALID_REPLAY_STATE"), "{name}: {}", second.outcome);
        assert_eq!(of_kind(&composition.events(name), "llm/degrade").len(), 1, "{name}");

        let conversations = provider.conversations(&format!("<{name}>"));
        assert_eq!(conversations.len(), 2, "{name}: each turn is one request");
        for messages in conversations {
            let said = assistants(&messages);
            assert!(said[..3].iter().all(|message| text_of(message) == SAID), "{name}: {said:#?}");
            let native: Vec<bool> =
                said[..3].iter().map(|message| message.get("reasoning_content").is_some()).collect();
            assert_eq!(native, [true, false, true], "{name}: {said:#?}");
            assert_eq!(messages.iter().filter(|message| message.to_string().contains(THOUGHT)).count(), 2, "{name}");
        }
    });
}
