//! The wire as a whole, through the adapter's own trait. How a stream is read is tested where it is shared, with the
//! completions wire.

use dsh_plugin_api::vocab::{InvalidReplay, ReplayEnvelope};
use dsh_plugin_api::{Adapter, StreamEnd};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::testing::{Fixture, call, image, result, said, text, user};

fn route(model: &str, more: Value) -> Fixture {
    Fixture::new("mistral-conversations", model, more)
}

fn magistral() -> Fixture {
    route("magistral-medium-latest", json!({}))
}

fn messages(list: Value) -> Value {
    magistral().body(&json!({"messages": list}))["messages"].clone()
}

fn delta(delta: Value) -> String {
    format!("data: {}\n\n", json!({"id": "cmpl-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn thinking(text: &str) -> Value {
    json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
}

fn end(reason: &str) -> String {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "num_cached_tokens": 4});
    let event = json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": reason}], "usage": usage});
    format!("data: {event}\n\ndata: [DONE]\n\n")
}

/// A stream of `count` deltas of text, as the provider sends it.
fn text_stream(count: usize) -> String {
    (0..count).map(|n| delta(json!({"content": format!("word {n} and ")}))).collect::<String>() + &end("stop")
}

#[test]
fn thinking_text_and_calls_are_decoded_and_go_back() {
    let arguments = r#"{"n":12345678901234567890123,"a":1,"a":2}"#;
    let calls = json!([{"id": "D681PevKs", "index": 0, "function": {"name": "bash", "arguments": arguments}}]);
    let body = [
        delta(json!({"content": [thinking("hm")]})),
        delta(json!({"content": [thinking("m"), text("o")]})),
        delta(json!({"content": "k"})),
        delta(json!({"tool_calls": calls})),
        end("tool_calls"),
    ];
    let answer = magistral().decode(&body.concat());
    assert_eq!(
        answer.content(),
        json!([{"type": "reasoning", "text": "hmm"}, {"type": "text", "text": "ok"},
            {"type": "tool-call", "id": "D681PevKs", "name": "bash", "arguments": arguments}])
    );
    assert_eq!(answer.entries(), json!([{"type": "reasoning"}, {"type": "text"}, {"type": "tool-call"}]));
    assert_eq!(answer.response()["api"], "mistral-conversations");
    let usage = answer.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cache_read_tokens), (6, Some(4)));
    let sent = magistral().sent_back(&answer);
    assert_eq!(
        sent["messages"][1],
        json!({"role": "assistant", "content": [thinking("hmm"), text("ok")], "tool_calls": [
            {"id": "D681PevKs", "type": "function", "function": {"name": "bash", "arguments": arguments}}]})
    );
    assert_eq!(
        sent["messages"][2],
        json!({"role": "tool", "content": "out", "tool_call_id": "D681PevKs", "name": "bash"})
    );
}

#[test]
fn how_it_ended() {
    let par = delta(json!({"content": "par"}));
    for (body, outcome) in [
        (par.clone() + &end("stop"), "stop"),
        (par.clone() + &end("length"), "max-tokens"),
        (par.clone() + &end("model_length"), "max-tokens"),
        (par.clone() + &end("error"), "SERVER"),
        (delta(json!({"content": [thinking("hm")]})) + &end("stop"), "EMPTY_RESPONSE"),
        (par.clone(), "TRANSPORT"),
        (
            par + "data: {\"object\":\"error\",\"message\":\"m\",\"type\":\"rate_limited\",\"code\":429}\n\n",
            "RATE_LIMIT",
        ),
        (text_stream(3), "stop"),
    ] {
        assert_eq!(magistral().decode(&body).outcome(), outcome, "{body}");
    }
    let refused = br#"{"object":"error","message":"Unauthorized","request_id":"r"}"#;
    let decoded = magistral().decode_as((401, &[]), refused, 7, &StreamEnd::Complete);
    assert_eq!(decoded.outcome(), "AUTH");
    assert_eq!(decoded.finish.failure().unwrap().request_id.as_deref(), Some("r"));
}

#[test]
fn a_missing_id_is_made_up() {
    for id in [json!("null"), json!(null), json!("")] {
        let calls = json!([{"id": id, "index": 0, "function": {"name": "bash", "arguments": "{}"}}]);
        let answer = magistral().decode(&(delta(json!({"tool_calls": calls})) + &end("tool_calls")));
        assert!(answer.calls()[0].0.starts_with("call_"), "{id}");
    }
}

#[test]
fn thinking_is_switched_by_mode_or_by_effort() {
    let fields = |model: &str, more: Value, effort: Value| {
        let body = route(model, more).body(&json!({"messages": [user("hi")], "reasoningEffort": effort}));
        (body["prompt_mode"].clone(), body["reasoning_effort"].clone())
    };
    let (on, off) = (json!("high"), Value::Null);
    let mapped = json!({"thinking_level_map": {"off": "none", "low": "high"}});
    for (model, more, effort, mode, level) in [
        ("magistral-medium-latest", json!({}), &on, json!("reasoning"), Value::Null),
        ("magistral-medium-latest", json!({}), &off, Value::Null, Value::Null),
        ("magistral-medium-latest", mapped.clone(), &off, Value::Null, Value::Null),
        ("mistral-small-latest", json!({}), &json!("low"), Value::Null, json!("high")),
        ("mistral-small-latest", json!({}), &off, Value::Null, Value::Null),
        ("mistral-small-latest", mapped, &off, Value::Null, json!("none")),
        ("mistral-large-latest", json!({"reasoning": false}), &on, Value::Null, Value::Null),
    ] {
        assert_eq!(fields(model, more, effort.clone()), (mode, level), "{model} {effort}");
    }
}

#[test]
fn the_request_goes_to_the_chat_endpoint_with_limit_and_tools() {
    let tool = json!({"name": "read", "description": "d", "parameters": null});
    let request =
        json!({"messages": [user("hi")], "system": "Be brief.", "tools": [tool], "maxTokens": 100, "temperature": 0});
    let (http, _) = magistral().request(&request).unwrap();
    assert_eq!(http.url, "http://gateway.test/v1/chat/completions");
    assert_eq!(
        serde_json::from_str::<Value>(http.body.get()).unwrap(),
        json!({"model": "magistral-medium-latest", "stream": true, "max_tokens": 100, "temperature": 0.0,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "read", "description": "d", "parameters": {}}}]})
    );
}

#[test]
fn results_say_that_they_failed_and_hold_their_images() {
    let mut failed = result("b", json!([]));
    failed["content"][0]["isError"] = json!(true);
    let calls = said(json!([call("a", "{}"), call("b", "{}"), call("c", "{\"cut")]));
    let list =
        json!([user("go"), calls, result("a", json!([text("one"), image()])), failed, result("c", json!([image()]))]);
    let sent = messages(list.clone());
    let picture = json!({"type": "image_url", "image_url": "data:image/png;base64,AA=="});
    assert_eq!(sent[2]["content"], json!([text("one"), picture]));
    assert_eq!(sent[3]["content"], "[tool error] (no tool output)");
    assert_eq!(sent[4]["content"], json!([text("(see attached image)"), picture]));
    for (answer, call) in (2..5).zip(sent[1]["tool_calls"].as_array().unwrap()) {
        assert_eq!(sent[answer]["tool_call_id"], call["id"]);
    }
    let kinds = ["call-id-rewritten", "arguments-emptied"];
    assert_eq!(magistral().repairs(&json!({"messages": list})), kinds.map(|kind| (1, kind.to_owned())));
    let blind = route("m", json!({"input": ["text"]})).body(&json!({"messages": list}));
    assert_eq!(blind["messages"][4]["content"], "(tool image omitted: model does not support images)");
}

#[test]
fn an_entry_that_this_wire_does_not_write_is_refused_with_its_member() {
    let fixture = magistral();
    let body = delta(json!({"content": [thinking("hm"), text("ok")]}))
        + &delta(json!({"tool_calls": [{"id": "D681PevKs", "function": {"name": "f", "arguments": "{}"}}]}))
        + &end("tool_calls");
    let answer = fixture.decode(&body);
    for (at, member, value) in
        [(0, "redacted", json!(true)), (1, "textSignature", json!("s")), (2, "thoughtSignature", json!("s"))]
    {
        let mut state = serde_json::to_value(&answer.envelope).unwrap();
        state["blocks"][at][member] = value;
        let envelope = ReplayEnvelope::parse(&dsh_plugin_api::json::raw(&state)).unwrap();
        let refused = fixture.adapter.restore(&answer.message(), &envelope, &fixture.target);
        let Err(InvalidReplay::Invalid(reason)) = refused else { panic!("{member}") };
        assert!(reason.starts_with(&format!("blocks[{at}].{member} ")), "{reason}");
    }
}

fn history() -> impl Strategy<Value = Vec<Value>> {
    let turn = prop_oneof![
        Just(vec![user("hi")]),
        Just(vec![json!({"role": "system", "content": [text("note")]})]),
        Just(vec![said(json!([text("a")]))]),
        Just(vec![said(json!([{"type": "reasoning", "text": "t"}]))]),
        ".{0,70}".prop_map(|id| vec![said(json!([text("b"), call(&id, "{}")])), result(&id, json!([image()]))]),
        Just(vec![said(json!([call("x", "{}"), call("x", "{}")])), result("x", json!([])), result("x", json!([]))]),
    ];
    proptest::collection::vec(turn, 0..8).prop_map(|turns| turns.concat())
}

proptest! {
    /// The user begins, no role follows one that the server refuses it after, and calls are answered by nine letters
    /// or digits of their own.
    #[test]
    fn every_request_obeys_the_wire(list in history()) {
        let sent = messages(json!(list));
        let mut before = "";
        let mut open: Vec<String> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for message in sent.as_array().unwrap() {
            let role = message["role"].as_str().unwrap();
            let fits = matches!((before, role), ("", "user") | ("user", "user" | "assistant")
                | ("assistant", "user" | "tool") | ("tool", "tool" | "assistant"));
            prop_assert!(fits, "{} after {} in {}", role, before, sent);
            if role == "tool" {
                let id = message["tool_call_id"].as_str().unwrap();
                let place = open.iter().position(|open| open == id);
                prop_assert!(place.is_some(), "{}", sent);
                open.remove(place.unwrap());
            } else {
                prop_assert!(open.is_empty(), "{}", sent);
                prop_assert!(message["content"].is_string() || message["content"].is_array() || message["tool_calls"].is_array());
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let id = call["id"].as_str().unwrap().to_owned();
                prop_assert!(id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric()), "{}", id);
                prop_assert!(seen.insert(id.clone()), "{} twice", id);
                open.push(id);
            }
            before = role;
        }
        prop_assert!(open.is_empty());
    }
}
