//! History to request.

use dsh_plugin_api::Adapter;
use dsh_plugin_api::vocab::{Exchange, HeaderValue, HttpRequest, Message, Repair, Request, Target};
use proptest::prelude::*;

use super::*;
use crate::testing::{call, said, target, text, user};

/// An answer of this model with its state.
fn native(content: Value, entries: Value) -> Value {
    let state = json!({"response": {"kind": "pi-ai", "version": 2, "api": "anthropic-messages", "provider": "local",
        "model": "m", "stopReason": "stop"}, "blocks": entries});
    json!({"role": "assistant", "content": content,
        "source": {"kind": "model", "provider": "local", "model": "m", "replayState": state}})
}

fn result(id: &str, content: Value, is_error: bool) -> Value {
    json!({"role": "user", "source": {"kind": "tool", "callId": id},
        "content": [{"type": "tool-result", "toolCallId": id, "content": content, "isError": is_error}]})
}

fn image(mime: &str) -> Value {
    json!({"type": "image", "mimeType": mime, "data": "AA=="})
}

fn picture(media_type: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": "AA=="}})
}

fn thought() -> (Value, Value) {
    (json!({"type": "reasoning", "text": "plan"}), json!({"type": "reasoning", "thinkingSignature": "SIG"}))
}

/// The body of a request to a model with these flags.
fn body(model: Value, compat: Value, request: &Value) -> Value {
    adapter(model, compat).encode(request).0
}

/// Messages as they go out, without marks for the cache.
fn messages(compat: Value, list: Value) -> Value {
    adapter_with("none", json!({}), compat).encode(&json!({"messages": list})).0["messages"].clone()
}

fn http(adapter: &Fixture, request: &Value) -> HttpRequest {
    let request: Request = serde_json::from_value(request.clone()).unwrap();
    let history = request.messages.iter().map(|message| adapter.adapter.foreign(message, &target()).unwrap()).collect();
    let Exchange::Http(http) = adapter.adapter.encode(&request, history, &target()).unwrap().exchange else {
        panic!("no HTTP")
    };
    http
}

fn header_of(http: &HttpRequest, name: &str) -> Option<HeaderValue> {
    http.headers.iter().find(|header| header.name == name).map(|header| header.value.clone())
}

#[test]
fn the_request_goes_to_the_route_with_version_credential_and_betas() {
    let tool = json!([{"name": "t", "description": "d", "parameters": {"type": "object"}}]);
    let no_eager = json!({"supports_eager_tool_input_streaming": false});
    let text = |value: &str| Some(HeaderValue::Text(value.to_owned()));
    for (compat, request, betas) in [
        (json!({}), json!({"messages": []}), None),
        (no_eager.clone(), json!({"messages": []}), None),
        (no_eager.clone(), json!({"messages": [], "tools": tool}), text("fine-grained-tool-streaming-2025-05-14")),
        (json!({}), json!({"messages": [], "reasoningEffort": "low"}), text("interleaved-thinking-2025-05-14")),
        (json!({"force_adaptive_thinking": true}), json!({"messages": [], "reasoningEffort": "low"}), None),
        (
            no_eager,
            json!({"messages": [], "tools": tool, "reasoningEffort": "low"}),
            text("interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14"),
        ),
    ] {
        let http = http(&adapter(json!({}), compat), &request);
        assert_eq!((http.method.as_str(), http.url.as_str()), ("POST", "http://gateway.test/v1/messages"));
        let credential = HeaderValue::Credential { reference: "KEY".into(), prefix: String::new() };
        assert_eq!(header_of(&http, "x-api-key"), Some(credential));
        assert_eq!(header_of(&http, "anthropic-version"), text("2023-06-01"));
        assert_eq!(header_of(&http, "anthropic-beta"), betas, "{request}");
    }
}

#[test]
fn a_model_that_is_not_listed_gets_cautious_defaults() {
    let adapter = adapter(json!({}), json!({}));
    let to = Target { provider: "local".into(), model: "new".into() };
    let message: Message =
        serde_json::from_value(json!({"role": "user", "content": [text("see"), image("image/png")]})).unwrap();
    let request = Request { messages: vec![message], reasoning_effort: Some("high".into()), ..Request::default() };
    let history = vec![adapter.adapter.foreign(&request.messages[0], &to).unwrap()];
    let encoded = adapter.adapter.encode(&request, history, &to).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    let body: Value = serde_json::from_str(http.body.get()).unwrap();
    assert_eq!((&body["model"], &body["max_tokens"]), (&json!("new"), &json!(4096)));
    assert!(body.get("thinking").is_none());
    assert_eq!(encoded.repairs, [Repair { message: 0, kind: "image-omitted".into() }]);
}

#[test]
fn turns_alternate_and_results_come_first() {
    let sent = messages(
        json!({}),
        json!([
            said(json!([text("Welcome.")])),
            user("one"),
            user("two"),
            said(json!([text("a")])),
            said(json!([text("b"), call("c", "{}"), call("d", "{}")])),
            result("c", json!([text("x"), text("y")]), false),
            {"role": "system", "content": [text("note")]},
            result("d", json!([]), false),
            user("three"),
        ]),
    );
    assert_eq!(
        sent,
        json!([
            {"role": "user", "content": [text("(continuing the conversation)")]},
            {"role": "assistant", "content": [text("Welcome.")]},
            {"role": "user", "content": [text("one"), text("two")]},
            {"role": "assistant", "content": [text("a"), text("b"),
                {"type": "tool_use", "id": "c", "name": "bash", "input": {}},
                {"type": "tool_use", "id": "d", "name": "bash", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [text("x\ny")]},
                {"type": "tool_result", "tool_use_id": "d"}, text("note"), text("three")]},
        ])
    );
    assert_eq!(messages(json!({}), json!([]))[0]["content"][0]["text"], "(continuing the conversation)");
}

#[test]
fn leading_instructions_join_the_system_prompt_and_blank_ones_are_left_out() {
    let list = json!([{"role": "system", "content": [text("more"), text(" ")]}, user("hi")]);
    for (system, expected) in [("sys", json!("sys\n\nmore")), (" \n", json!("more"))] {
        let sent = body(json!({}), json!({}), &json!({"system": system, "messages": list}));
        assert_eq!(sent["system"][0]["text"], expected);
    }
    assert!(body(json!({}), json!({}), &json!({"system": " ", "messages": [user("hi")]})).get("system").is_none());
}

#[test]
fn images_go_where_the_provider_takes_them() {
    let sent = messages(
        json!({}),
        json!([
            {"role": "user", "content": [text("look"), image("image/JPG; x=1"), image("image/bmp"), image("image/svg+xml")]},
            said(json!([call("a", "{}"), call("b", "{}"), call("c", "{}"), call("d", "{}")])),
            result("a", json!([text("png"), image("image/png")]), false),
            result("b", json!([text("boom"), image("image/gif")]), true),
            result("c", json!([image("image/webp")]), true),
            result("d", json!([]), true),
        ]),
    );
    let note = text("(image omitted: the provider takes no images of its type)");
    assert_eq!(sent[0]["content"], json!([text("look"), picture("image/jpeg"), note]));
    let error = |id: &str, said: &str| json!({"type": "tool_result", "tool_use_id": id, "content": [text(said)], "is_error": true});
    assert_eq!(
        sent[2]["content"],
        json!([
            {"type": "tool_result", "tool_use_id": "a", "content": [text("png"), picture("image/png")]},
            error("b", "boom"), error("c", "(see attached image)"), error("d", "(no tool output)"),
            text("Attached image(s) from tool result:"), picture("image/gif"),
            text("Attached image(s) from tool result:"), picture("image/webp"),
        ])
    );
}

#[test]
fn a_run_of_images_becomes_one_note_for_a_model_that_cannot_see() {
    let list = json!([
        {"role": "user", "content": [text("look"), image("image/png"), image("image/bmp"), text("now")]},
        said(json!([call("a", "{}")])),
        result("a", json!([image("image/png"), {"type": "image", "attachment": {"path": "a"}}]), false),
    ]);
    let (sent, repairs) = adapter(json!({"input": ["text"]}), json!({})).encode(&json!({"messages": list}));
    let note = text("(image omitted: model does not support images)");
    assert_eq!(sent["messages"][0]["content"], json!([text("look"), note, text("now")]));
    let noted = json!([text("(tool image omitted: model does not support images)")]);
    assert_eq!(sent["messages"][2]["content"][0]["content"], noted);
    assert_eq!(repairs.iter().map(|repair| repair.message).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn arguments_go_out_as_they_were_written() {
    for (stored, sent) in [
        (r#"{"n":12345678901234567890123,"a":1,"a":2}"#, r#"{"n":12345678901234567890123,"a":1,"a":2}"#),
        (r#" {"b":1.50} "#, r#"{"b":1.50}"#),
        (r#"{"k":"x\ud83d \ud83d\ude00"}"#, r#"{"k":"x\ufffd \ud83d\ude00"}"#),
        ("", "{}"),
        ("{\"a\":", "{}"),
        ("[1]", "{}"),
    ] {
        let list = json!({"messages": [said(json!([call("c", stored)])), result("c", json!([text("out")]), false)]});
        let sent_body = http(&adapter(json!({}), json!({})), &list).body;
        assert!(sent_body.get().contains(&format!("\"input\":{sent}}}")), "{stored}: {}", sent_body.get());
    }
}

#[test]
fn ids_and_names_become_legal_also_those_of_the_model_itself() {
    let long = "x".repeat(70);
    let content = json!([call("call:1/é", "{}"), call(&long, "{}"), call("ok", "{}"), call("ok", "{}"),
        {"type": "tool-call", "id": "n", "name": "a.b", "arguments": "{}"}]);
    let entries = json!([{"type": "tool-call"}, {"type": "tool-call"}, {"type": "tool-call"}, {"type": "tool-call"}, {"type": "tool-call"}]);
    let results = ["call:1/é", &long, "ok", "ok", "n"].map(|id| result(id, json!([text("out")]), false));
    let mut list = vec![user("go"), native(content, entries)];
    list.extend(results);
    let (sent, repairs) = adapter(json!({}), json!({})).encode(&json!({"messages": list}));
    let calls = sent["messages"][1]["content"].as_array().unwrap().clone();
    let answers = sent["messages"][2]["content"].as_array().unwrap();
    let legal =
        |id: &str| (1..=64).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let ids: std::collections::BTreeSet<_> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 5 && ids.iter().all(|id| legal(id)), "{ids:?}");
    for (call, answer) in calls.iter().zip(answers) {
        assert_eq!(call["id"], answer["tool_use_id"]);
    }
    assert_eq!(calls[2]["id"], "ok");
    assert!(legal(calls[4]["name"].as_str().unwrap()));
    let kinds: Vec<_> = repairs.iter().map(|repair| repair.kind.as_str()).collect();
    assert_eq!(kinds, ["call-id-rewritten", "tool-name-rewritten"]);
}

#[test]
fn only_signed_thinking_of_this_model_goes_back() {
    let (thought, signed) = thought();
    let redacted = json!({"type": "reasoning", "thinkingSignature": "BLOB", "redacted": true});
    let hidden = json!({"type": "redacted_thinking", "data": "BLOB"});
    let thinking = |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
    let empty = json!({"type": "reasoning", "text": ""});
    let unsigned = json!({"type": "reasoning"});
    let entry = json!({"type": "text"});
    let unsigned_goes = json!({"allow_empty_signature": true});
    for (compat, message, expected) in [
        (
            json!({}),
            native(json!([thought, text("a")]), json!([signed, entry])),
            json!([thinking("plan", "SIG"), text("a")]),
        ),
        (json!({}), native(json!([empty, text("a")]), json!([signed, entry])), json!([thinking("", "SIG"), text("a")])),
        (json!({}), native(json!([thought, text("a")]), json!([redacted, entry])), json!([hidden, text("a")])),
        (json!({}), native(json!([thought, text("a")]), json!([unsigned, entry])), json!([text("a")])),
        (
            unsigned_goes.clone(),
            native(json!([thought, text("a")]), json!([unsigned, entry])),
            json!([thinking("plan", ""), text("a")]),
        ),
        (unsigned_goes.clone(), native(json!([empty, text("a")]), json!([unsigned, entry])), json!([text("a")])),
        (unsigned_goes, said(json!([thought, text("a")])), json!([text("a")])),
        (json!({}), said(json!([thought, text("a")])), json!([text("a")])),
        // The provider refuses an answer that ends with thinking.
        (json!({}), native(json!([text("a"), thought]), json!([entry, signed])), json!([text("a")])),
    ] {
        let sent = messages(compat, json!([user("q"), message, user("r")]));
        assert_eq!(sent[1]["content"], expected, "{message}");
    }
    let alone = native(json!([thought]), json!([signed]));
    let sent = messages(json!({}), json!([user("q"), alone, user("r")]));
    assert_eq!(sent, json!([{"role": "user", "content": [text("q"), text("r")]}]));
}

#[test]
fn thinking_is_switched_by_budget_or_effort() {
    let adaptive = json!({"force_adaptive_thinking": true});
    let named = json!({"thinking_level_map": {"low": "tiny", "max": "max"}});
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens, "display": "summarized"});
    let large = json!({"max_tokens": 64_000, "thinking_level_map": {"max": "max"}});
    let on = json!({"type": "adaptive", "display": "summarized"});
    let off = json!({"type": "disabled"});
    let never_off = json!({"thinking_level_map": {"off": false}});
    for (model, compat, effort, thinking, output) in [
        (large.clone(), json!({}), Some("minimal"), budget(1024), Value::Null),
        (large.clone(), json!({}), Some("low"), budget(2048), Value::Null),
        (large.clone(), json!({}), Some("medium"), budget(8192), Value::Null),
        (large.clone(), json!({}), Some("high"), budget(16_384), Value::Null),
        (large, json!({}), Some("max"), budget(16_384), Value::Null),
        (json!({}), json!({}), None, off.clone(), Value::Null),
        (json!({}), json!({}), Some("off"), off.clone(), Value::Null),
        (never_off.clone(), json!({}), None, Value::Null, Value::Null),
        (json!({}), adaptive.clone(), None, off, Value::Null),
        (json!({}), adaptive.clone(), Some("minimal"), on.clone(), json!({"effort": "low"})),
        (json!({}), adaptive.clone(), Some("medium"), on.clone(), json!({"effort": "medium"})),
        (json!({}), adaptive.clone(), Some("high"), on.clone(), json!({"effort": "high"})),
        (named.clone(), adaptive.clone(), Some("low"), on.clone(), json!({"effort": "tiny"})),
        (named, adaptive.clone(), Some("max"), on, json!({"effort": "max"})),
        (json!({"reasoning": false}), adaptive, Some("high"), Value::Null, Value::Null),
    ] {
        let mut request = json!({"messages": [user("hi")]});
        if let Some(effort) = effort {
            request["reasoningEffort"] = json!(effort);
        }
        let sent = body(model.clone(), compat.clone(), &request);
        assert_eq!((&sent["thinking"], &sent["output_config"]), (&thinking, &output), "{model} {compat} {effort:?}");
    }
}

#[test]
fn a_budget_leaves_room_for_the_answer_and_fits_limit_and_window() {
    for (model, asked, effort, limit, budget) in [
        (json!({"max_tokens": 64_000}), None, "medium", 64_000, Some(8192)),
        (json!({"max_tokens": 64_000}), Some(4000), "medium", 12_192, Some(8192)),
        (json!({"max_tokens": 64_000}), Some(1000), "medium", 9192, Some(8168)),
        (json!({"max_tokens": 64_000}), Some(500), "minimal", 1524, Some(1024)),
        (json!({"max_tokens": 8192}), None, "high", 8192, Some(7168)),
        (json!({"max_tokens": null}), None, "low", 6144, Some(2048)),
        (json!({"context_window": 9098}), None, "high", 5000, Some(3976)),
        (json!({"context_window": 5098}), None, "high", 1000, None),
        (json!({"max_tokens": 1024}), None, "minimal", 1024, None),
    ] {
        let mut request = json!({"messages": [user("12345678")], "reasoningEffort": effort, "temperature": 0.5});
        if let Some(asked) = asked {
            request["maxTokens"] = json!(asked);
        }
        let (sent, repairs) = adapter(model.clone(), json!({})).encode(&request);
        assert_eq!(sent["max_tokens"], json!(limit), "{model} {asked:?}");
        assert_eq!(sent["thinking"].get("budget_tokens").and_then(Value::as_u64), budget, "{model} {asked:?}");
        // Thinking takes no temperature; when it is paused, that is reported.
        assert_eq!(sent.get("temperature").is_some(), budget.is_none());
        assert_eq!(repairs.len(), usize::from(budget.is_none()));
    }
}

#[test]
fn thinking_is_paused_while_an_answer_without_it_waits_for_results() {
    let (thought, signed) = thought();
    let entry = json!({"type": "tool-call"});
    let foreign = said(json!([thought, call("c", "{}")]));
    let known = native(json!([thought, call("c", "{}")]), json!([signed, entry]));
    let out = result("c", json!([text("out")]), false);
    let failed = result("c", json!([text("no"), image("image/png")]), true);
    let adaptive = json!({"force_adaptive_thinking": true});
    for (compat, list, thinking) in [
        (json!({}), json!([user("q"), foreign, out]), "disabled"),
        (json!({}), json!([user("q"), foreign, failed]), "disabled"),
        (json!({}), json!([user("q"), foreign, out, user("go on")]), "enabled"),
        (json!({}), json!([user("q"), known, out]), "enabled"),
        (adaptive, json!([user("q"), foreign, out]), "adaptive"),
    ] {
        let request = json!({"messages": list, "reasoningEffort": "low"});
        let (sent, repairs) = adapter(json!({}), compat).encode(&request);
        assert_eq!(sent["thinking"]["type"], thinking, "{list}");
        let paused = Repair { message: 1, kind: "thinking-paused".into() };
        assert_eq!(repairs.contains(&paused), thinking == "disabled");
    }
}

#[test]
fn temperature_goes_out_where_the_model_takes_it() {
    for (compat, effort, sent) in [
        (json!({}), "off", true),
        (json!({"supports_temperature": false}), "off", false),
        (json!({}), "low", false),
        (json!({"force_adaptive_thinking": true}), "low", false),
    ] {
        let request = json!({"messages": [user("hi")], "temperature": 0.5, "reasoningEffort": effort});
        assert_eq!(body(json!({}), compat.clone(), &request).get("temperature").is_some(), sent, "{compat} {effort}");
    }
}

#[test]
fn marks_for_the_prompt_cache_stand_on_system_last_tool_and_last_block_of_the_user() {
    let tool = |name: &str| json!({"name": name, "parameters": {"type": "object"}});
    let request = json!({"system": "sys", "tools": [tool("a"), tool("b")],
        "messages": [user("q"), said(json!([call("c", "{}")])), result("c", json!([text("out")]), false)]});
    let (short, long) = (json!({"type": "ephemeral"}), json!({"type": "ephemeral", "ttl": "1h"}));
    for (retention, compat, mark, tools) in [
        ("none", json!({}), Value::Null, false),
        ("short", json!({}), short.clone(), true),
        ("long", json!({}), long, true),
        ("long", json!({"supports_long_cache_retention": false}), short.clone(), true),
        ("short", json!({"supports_cache_control_on_tools": false}), short, false),
    ] {
        let sent = adapter_with(retention, json!({}), compat).encode(&request).0;
        assert_eq!(sent["system"][0]["cache_control"], mark);
        assert_eq!(sent["messages"][2]["content"][0]["cache_control"], mark);
        assert_eq!(sent["messages"][0]["content"][0].get("cache_control"), None);
        assert_eq!(sent["tools"][0].get("cache_control"), None);
        assert_eq!(sent["tools"][1].get("cache_control"), Some(&mark).filter(|_| tools));
    }
    let open = json!({"messages": [user("q"), said(json!([text("a")]))]});
    assert!(!body(json!({}), json!({}), &open)["messages"].to_string().contains("cache_control"));
}

#[test]
fn tools_are_offered_once_by_legal_names_and_never_as_an_empty_list() {
    let tool = |name: &str, description: &str| json!({"name": name, "description": description, "parameters": null});
    assert!(body(json!({}), json!({}), &json!({"messages": [user("hi")]})).get("tools").is_none());
    let request = json!({"messages": [user("hi")], "tools": [tool("read", "d"), tool(&"x".repeat(80), ""), tool("read", ""), tool("b", " ")]});
    let sent = body(json!({}), json!({}), &request);
    let schema = json!({"type": "object", "properties": {}});
    assert_eq!(
        sent["tools"],
        json!([{"name": "read", "description": "d", "eager_input_streaming": true, "input_schema": schema},
            {"name": "b", "eager_input_streaming": true, "input_schema": schema, "cache_control": {"type": "ephemeral"}}])
    );
    let sent = body(json!({}), json!({"supports_eager_tool_input_streaming": false}), &request);
    assert!(!sent["tools"].to_string().contains("eager_input_streaming"));
}

/// One answer of any origin with the results of its calls, and what the user says then.
fn step() -> impl Strategy<Value = Vec<Value>> {
    let block = prop_oneof![
        ("[a-z]{0,3}", "[A-Z]{0,2}").prop_map(|(text, signed)| {
            (json!({"type": "reasoning", "text": text}), json!({"type": "reasoning", "thinkingSignature": signed}))
        }),
        Just((
            json!({"type": "reasoning", "text": "x"}),
            json!({"type": "reasoning", "thinkingSignature": "D", "redacted": true})
        )),
        "[a-z \n]{0,3}".prop_map(|said| (text(&said), json!({"type": "text"}))),
        "[a-c|é:]{1,3}|x{70}".prop_map(|id| (call(&id, "{}"), json!({"type": "tool-call"}))),
    ];
    (proptest::collection::vec(block, 0..4), any::<bool>(), any::<bool>(), "[a-z ]{0,3}").prop_map(
        |(blocks, known, is_error, after)| {
            let (content, entries): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
            let mut list = vec![if known { native(json!(content), json!(entries)) } else { said(json!(content)) }];
            for call in content.iter().filter(|block| block["type"] == "tool-call") {
                list.push(result(call["id"].as_str().unwrap(), json!([image("image/png")]), is_error));
            }
            list.push(user(&after));
            list
        },
    )
}

proptest! {
    #[test]
    fn any_history_becomes_one_that_the_provider_takes(steps in proptest::collection::vec(step(), 0..5), thinks: bool) {
        let mut request = json!({"messages": steps.concat()});
        if thinks {
            request["reasoningEffort"] = json!("low");
        }
        let sent = body(json!({}), json!({}), &request);
        let list = sent["messages"].as_array().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<String> = Vec::new();
        for (at, message) in list.iter().enumerate() {
            prop_assert_eq!(&message["role"], if at % 2 == 0 { "user" } else { "assistant" });
            let blocks = message["content"].as_array().unwrap();
            let of = |kind: &str, id: &str| -> Vec<String> {
                let these = blocks.iter().filter(|block| block["type"] == kind);
                these.map(|block| block[id].as_str().unwrap().to_owned()).collect()
            };
            let (results, calls) = (of("tool_result", "tool_use_id"), of("tool_use", "id"));
            prop_assert_eq!(&results, &open);
            prop_assert!(blocks.iter().take(results.len()).all(|block| block["type"] == "tool_result"));
            prop_assert!(of("text", "text").iter().all(|text| !text.trim().is_empty()));
            prop_assert!(of("thinking", "signature").iter().all(|signed| !signed.is_empty()));
            for id in &calls {
                prop_assert!(id.len() <= 64 && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{}", id);
                prop_assert!(seen.insert(id.clone()), "{} is used twice", id);
            }
            let last = blocks.last().unwrap()["type"].as_str().unwrap();
            prop_assert!(!last.contains("thinking"));
            open = calls;
        }
        prop_assert!(open.is_empty());
    }
}
