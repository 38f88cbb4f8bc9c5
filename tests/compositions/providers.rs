//! A provider that fails gives a failed turn that says so, and the session goes on.

use dsh_tests::{Composition, Provider, assistants, for_each, of_kind, text_of};
use serde_json::{Value, json};

/// What arrived of an answer that broke off.
const PARTIAL: &str = "Half an answ";

/// A way to fail. The answer is given again and again.
struct Broken {
    name: &'static str,
    answer: Value,
    code: &'static str,
    status: Option<u16>,
    /// Whether it is asked once more.
    retried: bool,
    /// Whether [`PARTIAL`] had arrived.
    partial: bool,
    /// Words of the message.
    says: &'static str,
}

/// The stream up to and including [`PARTIAL`], ended in this way.
fn partial_stream(end: Value) -> Value {
    let delta = json!({ "role": "assistant", "content": PARTIAL });
    let chunk = json!({ "id": "c", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let mut answer = json!({ "chunks": [{ "text": format!("data: {chunk}\n\n") }] });
    let answer_members = answer.as_object_mut().unwrap();
    answer_members.extend(end.as_object().unwrap().clone());
    answer
}

fn ways_to_fail() -> Vec<Broken> {
    let html = "<html><head><title>Gateway</title></head><body>Down for now</body></html>";
    let keep_alives = |count| {
        let mut answer = partial_stream(json!({ "close": "hold" }));
        let comment = json!({ "text": ": keep-alive\n\n", "delay_ms": 50 });
        answer["chunks"].as_array_mut().unwrap().extend(vec![comment; count]);
        answer
    };
    let way = |name, answer, code, status, retried, partial, says| Broken {
        name,
        answer,
        code,
        status,
        retried,
        partial,
        says,
    };
    vec![
        way("down", Value::Null, "TRANSPORT", None, true, false, "connection refused"),
        way("silent", json!({ "no_head": true, "close": "hold" }), "TIMEOUT", None, true, false, "no answer from"),
        way("stalled", partial_stream(json!({ "close": "hold" })), "TIMEOUT", None, true, true, "sent nothing for 1 s"),
        way("busy", keep_alives(200), "TIMEOUT", None, true, true, "nothing new for 2 s"),
        way(
            "unauthorized",
            json!({ "status": 401, "body": "{\"error\":{\"message\":\"wrong key\"}}" }),
            "AUTH",
            Some(401),
            false,
            false,
            "wrong key",
        ),
        way(
            "limited",
            json!({ "status": 429, "headers": { "retry-after": "3600" }, "body": "{\"error\":{\"message\":\"too fast\"}}" }),
            "RATE_LIMIT",
            Some(429),
            false,
            false,
            "the provider asks to wait 3600000 ms",
        ),
        way(
            "broken",
            json!({ "status": 500, "body": "{\"error\":{\"message\":\"boom\"}}" }),
            "SERVER",
            Some(500),
            true,
            false,
            "boom",
        ),
        way(
            "page",
            json!({ "headers": { "content-type": "text/html" }, "body": html }),
            "PROTOCOL",
            None,
            false,
            false,
            "check base_url",
        ),
        way(
            "error-page",
            json!({ "status": 500, "headers": { "content-type": "text/html" }, "body": html }),
            "SERVER",
            Some(500),
            true,
            false,
            "Down for now",
        ),
        way("cut", partial_stream(json!({ "close": "cut" })), "TRANSPORT", None, true, true, "broke"),
        way("ended", partial_stream(json!({})), "TRANSPORT", None, true, true, "ended before"),
        // The pause lets the text arrive before the reset, which discards what was not read.
        way(
            "reset",
            partial_stream(json!({ "stall_after": 1, "stall_ms": 300, "close": "reset" })),
            "TRANSPORT",
            None,
            true,
            true,
            "connection reset",
        ),
        way("empty", json!({ "text": "" }), "EMPTY_RESPONSE", None, true, false, "without content"),
    ]
}

#[test]
fn a_provider_that_fails_gives_a_failed_turn_that_says_so_and_the_session_goes_on() {
    let ways = ways_to_fail();
    // Later requests of a session contain its first prompt, so the rule for them comes first.
    let mut answers = vec![json!({ "match": { "body_contains": "and now?" }, "repeat": true, "text": "all is well" })];
    for way in ways.iter().filter(|way| !way.answer.is_null()) {
        let mut answer = way.answer.clone();
        answer["repeat"] = json!(true);
        answer["match"] = json!({ "body_contains": format!("<{}>", way.name) });
        answers.push(answer);
    }
    let provider = Provider::start(&answers);
    let composition = Composition::on(&provider, "");
    let overlay =
        |name: &str, text: &str| composition.file(name, &format!("version = 1\n{text}")).to_str().unwrap().to_owned();
    let hasty = overlay("hasty.toml", "[transport]\nidle_timeout_ms = 1000\nprogress_timeout_ms = 2000\n");
    // Nothing listens on this port: it is reserved, and not for this.
    let down = "[[adapter]]\nid = \"pi-ai\"\n[adapter.config.providers.mock]\nbase_url = \"http://127.0.0.1:1\"\n";
    let down = overlay("down.toml", down);
    for_each(&ways, |way| {
        let Broken { name, code, status, retried, partial, says, .. } = *way;
        let overlay = if name == "down" { &down } else { &hasty };
        let failed = composition.prompt(&["--overlay", overlay], &format!("<{name}>"));
        let (outcome, reason) = (&failed.outcome, &failed.result["reason"]);
        assert_eq!((outcome.code, &reason["kind"]), (Some(1), &json!("error")), "{name}: {outcome}");
        let failure = &reason["failure"];
        assert_eq!(
            (failure["code"].as_str(), failure["status"].as_u64()),
            (Some(code), status.map(u64::from)),
            "{name}: {reason}"
        );
        for part in ["the turn failed", code, says] {
            assert!(outcome.stderr.contains(part), "{name}: {part:?}: {outcome}");
        }
        let status = status.map(|status| format!("status {status}")).unwrap_or_default();
        assert!(outcome.stderr.contains(&status), "{name}: {outcome}");
        let retries = failed.of_kind("llm/retry");
        assert_eq!(retries.len(), usize::from(retried), "{name}: {outcome}");
        assert!(retries.iter().all(|retry| retry["failure"]["code"] == code), "{name}: {retries:?}");
        assert_eq!(failed.of_kind("turn/end")[0]["reason"]["error"]["code"], code, "{name}");

        let kept = failed.of_kind("assistant/message");
        assert_eq!(kept.len(), usize::from(partial), "{name}: {outcome}");
        assert!(kept.iter().all(|kept| kept["interrupted"] == true), "{name}: {kept:?}");
        assert_eq!(failed.result["text"], if partial { PARTIAL } else { "" }, "{name}");

        let next = composition.prompt(&["--session", failed.session()], "and now?").completed();
        assert_eq!((&next.result["text"], &next.result["degraded"]), (&json!("all is well"), &json!([])), "{name}");
        let sent = provider.conversations(&format!("<{name}>")).pop().unwrap();
        let said: Vec<String> = assistants(&sent).into_iter().map(text_of).collect();
        assert_eq!(said, vec![PARTIAL; usize::from(partial)], "{name}: {sent:#?}");
        let told = sent.iter().any(|message| message["role"] == "user" && text_of(message).contains("interrupted"));
        assert_eq!(told, partial, "{name}: {sent:#?}");
        assert!(text_of(sent.last().unwrap()).ends_with("and now?"), "{name}: {sent:#?}");
        let logged = composition.events(failed.session());
        assert_eq!(of_kind(&logged, "llm/retry").len(), usize::from(retried), "{name}");
    });
}

#[test]
fn a_failure_that_passes_is_retried_and_leaves_one_answer() {
    let provider = Provider::start(&[partial_stream(json!({ "close": "cut" })), json!({ "text": "whole" })]);
    let composition = Composition::on(&provider, "");
    let run = composition.prompt(&[], "hi").completed();
    assert_eq!((&run.result["text"], run.of_kind("llm/retry").len()), (&json!("whole"), 1));
    let messages = run.of_kind("assistant/message");
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(run.outcome.stderr.contains("TRANSPORT"), "{}", run.outcome);
}

fn refusal() -> Value {
    json!({ "status": 400, "body": "{\"error\":{\"message\":\"Invalid thinking block\",\"type\":\"invalid_request_error\"}}" })
}

#[test]
fn a_refusal_of_replay_metadata_costs_one_foreign_retry_that_is_remembered_across_processes() {
    let mut refused = refusal();
    refused["match"] = json!({ "body_contains": "reasoning_content" });
    refused["repeat"] = json!(true);
    let thinking = json!({ "reasoning": "hm", "text": "one" });
    let fine = json!({ "repeat": true, "reasoning": "hm", "text": "more" });
    let provider = Provider::start(&[refused, thinking, fine]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "hi").completed();
    let second = composition.prompt(&["--session", first.session()], "go on").completed();
    let requests = provider.requests();
    assert_eq!(requests.len(), 3, "{requests:#?}");
    let [native, foreign] = [1, 2].map(|at| assistants(requests[at]["body"]["messages"].as_array().unwrap())[0]);
    assert!(native.get("reasoning_content").is_some() && foreign.get("reasoning_content").is_none(), "{requests:#?}");
    assert_eq!(text_of(foreign), "one");
    let retries = second.of_kind("llm/retry");
    assert_eq!(retries.len(), 1, "{retries:?}");
    assert_eq!((&retries[0]["replay"], &retries[0]["failure"]["status"]), (&json!("foreign"), &json!(400)));
    assert_eq!(second.of_kind("assistant/message").len(), 1);
    assert!(second.outcome.stderr.contains("without replay metadata"), "{}", second.outcome);

    let third = composition.prompt(&["--session", first.session()], "and on").completed();
    assert_eq!((provider.requests().len(), third.of_kind("llm/retry").len()), (4, 0), "{}", third.outcome);

    // It is remembered for this session and this route only.
    composition.prompt(&["--session", first.session(), "-m", "spare/m"], "elsewhere").completed();
    let back = composition.prompt(&["--session", first.session(), "-m", "spare/m"], "still there").completed();
    assert_eq!(back.of_kind("llm/retry").len(), 1, "the other route learns for itself: {}", back.outcome);
}

#[test]
fn a_request_that_is_refused_either_way_is_sent_twice_and_no_more() {
    let good = json!({ "match": { "body_contains": "something else" }, "text": "fine" });
    let mut refused = refusal();
    refused["repeat"] = json!(true);
    let provider = Provider::start(&[good, json!({ "reasoning": "hm", "text": "one" }), refused]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "hi").completed();
    let on = |prompt: &str| composition.prompt(&["--session", first.session()], prompt);
    for requests in [3, 4] {
        let failed = on("go on");
        assert_eq!(failed.outcome.code, Some(1), "{}", failed.outcome);
        assert_eq!(failed.result["reason"]["failure"]["code"], "INVALID_REQUEST");
        assert!(failed.of_kind("assistant/message").is_empty());
        assert_eq!(provider.requests().len(), requests, "{}", failed.outcome);
    }
    let bodies: Vec<String> = provider.requests().iter().map(|request| request["body"].to_string()).collect();
    assert!(
        bodies.iter().enumerate().all(|(at, body)| !bodies[..at].contains(body)),
        "a request was sent again as it was"
    );
    on("something else").completed();
}

#[test]
fn a_refused_request_that_would_be_the_same_without_its_metadata_is_not_sent_again() {
    let mut refused = refusal();
    refused["repeat"] = json!(true);
    let provider = Provider::start(&[json!({ "text": "one" }), refused]);
    let composition = Composition::on(&provider, "");
    let first = composition.prompt(&[], "hi").completed();
    let session = ["--session", first.session()];
    let request = composition.dsh(&["request", "-m", "mock/m", session[0], session[1], "--json"]).json();
    assert_eq!((&request["neutral"], &request["degraded"]), (&json!([]), &json!([])), "it is native: {request:#}");
    let failed = composition.prompt(&session, "go on");
    assert_eq!((failed.outcome.code, provider.requests().len()), (Some(1), 2), "{}", failed.outcome);
    assert!(failed.of_kind("llm/retry").is_empty(), "{}", failed.outcome);
    assert!(!failed.outcome.stderr.contains("without replay metadata"), "{}", failed.outcome);
}

#[test]
fn a_refusal_without_replay_metadata_is_not_sent_again() {
    let mut refused = refusal();
    refused["repeat"] = json!(true);
    let provider = Provider::start(&[refused]);
    let composition = Composition::on(&provider, "");
    let failed = composition.prompt(&[], "hi");
    assert_eq!((failed.outcome.code, provider.requests().len()), (Some(1), 1), "{}", failed.outcome);
    assert_eq!(failed.result["reason"]["failure"]["status"], 400);
    assert!(failed.of_kind("llm/retry").is_empty() && failed.of_kind("assistant/message").is_empty());
}
