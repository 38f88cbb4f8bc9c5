//! History to request.

use dsh_plugin_api::vocab::HeaderValue;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{call, image, result, said, text, user};

/// An answer of the target itself: each block with the members of its entry.
fn own(blocks: &[(Value, Value)]) -> Value {
    let entries: Vec<_> = blocks
        .iter()
        .map(|(block, entry)| {
            let mut entry = entry.clone();
            entry["type"] = block["type"].clone();
            entry
        })
        .collect();
    let state = json!({"blocks": entries, "response": {"kind": "pi-ai", "version": 2, "api": "openai-responses",
        "provider": "local", "model": "m", "stopReason": "stop"}});
    let content: Vec<_> = blocks.iter().map(|(block, _)| block.clone()).collect();
    json!({"role": "assistant", "content": content,
        "source": {"kind": "model", "provider": "local", "model": "m", "replayState": state}})
}

fn thought(item: Value) -> (Value, Value) {
    (json!({"type": "reasoning", "text": "SECRET"}), json!({"thinkingSignature": item.to_string()}))
}

fn own_text(words: &str, signature: &str) -> (Value, Value) {
    (text(words), json!({"textSignature": signature}))
}

fn own_call(id: &str) -> (Value, Value) {
    (call(id, "{}"), json!({}))
}

/// The body of a request to a model with these flags.
fn body(model: Value, compat: Value, request: &Value) -> Value {
    adapter(model, compat).encode(request).0
}

fn input(list: Value) -> Value {
    body(json!({}), json!({}), &json!({"messages": list}))["input"].clone()
}

/// Ids of the items; null where there is none.
fn ids(input: &Value) -> Vec<Value> {
    input.as_array().unwrap().iter().map(|item| item["id"].clone()).collect()
}

#[test]
fn the_request_goes_to_the_route_with_its_credential_named() {
    let request = Request::default();
    let encoded = adapter(json!({}), json!({})).adapter.encode(&request, Vec::new(), &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    assert_eq!((http.method.as_str(), http.url.as_str()), ("POST", "http://gateway.test/v1/responses"));
    let credential = HeaderValue::Credential { reference: "KEY".into(), prefix: "Bearer ".into() };
    assert!(http.headers.iter().any(|header| header.name == "authorization" && header.value == credential));
}

#[test]
fn nothing_is_kept_at_the_server_and_at_least_sixteen_tokens_are_asked_for() {
    for (model, asked, limit) in [
        (json!({}), None, Some(8192)),
        (json!({}), Some(8), Some(16)),
        (json!({"max_tokens": null}), None, None),
        (json!({"context_window": 4100}), None, Some(16)),
    ] {
        let mut request = json!({"messages": [user("hi")], "temperature": 0.5});
        if let Some(asked) = asked {
            request["maxTokens"] = json!(asked);
        }
        let sent = body(model, json!({}), &request);
        assert_eq!((&sent["store"], &sent["stream"], &sent["temperature"]), (&json!(false), &json!(true), &json!(0.5)));
        assert_eq!(sent.get("max_output_tokens").and_then(Value::as_u64), limit);
    }
}

#[test]
fn instructions_have_the_role_that_the_model_takes() {
    for (model, compat, role) in [
        (json!({}), json!({}), "developer"),
        (json!({}), json!({"supports_developer_role": false}), "system"),
        (json!({"reasoning": false}), json!({}), "system"),
    ] {
        let note = json!({"role": "system", "content": [text("note")]});
        let sent = body(model, compat, &json!({"system": "sys", "messages": [user("q"), note]}));
        assert_eq!(sent["input"][0], json!({"role": role, "content": "sys"}));
        assert_eq!(sent["input"][2], json!({"role": role, "content": "note"}));
    }
    assert_eq!(
        body(json!({}), json!({}), &json!({"system": " \n", "messages": [user("q")]}))["input"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn thinking_is_switched_by_effort() {
    let include = json!(["reasoning.encrypted_content"]);
    let levels = json!({"thinking_level_map": {"off": "minimal", "high": "HIGH"}});
    for (model, effort, expected) in [
        (json!({}), Some("high"), json!({"reasoning": {"effort": "high", "summary": "auto"}, "include": include})),
        (levels.clone(), Some("high"), json!({"reasoning": {"effort": "HIGH", "summary": "auto"}, "include": include})),
        (json!({}), None, json!({"reasoning": {"effort": "none"}})),
        (json!({}), Some("off"), json!({"reasoning": {"effort": "none"}})),
        (levels, None, json!({"reasoning": {"effort": "minimal"}})),
        (json!({"thinking_level_map": {"off": false}}), None, json!({})),
        (json!({"reasoning": false}), Some("high"), json!({})),
    ] {
        let mut request = json!({"messages": [user("hi")]});
        if let Some(effort) = effort {
            request["reasoningEffort"] = json!(effort);
        }
        let mut sent = body(model.clone(), json!({}), &request);
        sent.as_object_mut().unwrap().retain(|key, _| key == "reasoning" || key == "include");
        assert_eq!(sent, expected, "{model} {effort:?}");
    }
    let request = Request { reasoning_effort: Some("max".into()), ..Request::default() };
    let failure = adapter(json!({}), json!({})).adapter.encode(&request, Vec::new(), &target()).unwrap_err();
    assert_eq!(failure.code.name(), "UNSUPPORTED");
}

/// The body for a route of another name with another retention.
fn body_of_route(name: &str, retention: &str, compat: Value) -> Value {
    let model = json!({"id": "m", "reasoning": true, "compat": compat});
    let config = json!({"providers": {name: {"api": "openai-responses", "base_url": "http://gateway.test",
        "cache_retention": retention, "models": [model]}}});
    let adapter = PiAi::new(serde_json::from_value(config).unwrap()).unwrap();
    let tool = json!([{"name": "a", "parameters": {"type": "object", "properties": {}}}]);
    let request: Request = serde_json::from_value(json!({"messages": [], "tools": tool})).unwrap();
    let encoded = adapter.encode(&request, Vec::new(), &Target { provider: name.into(), model: "m".into() }).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    serde_json::from_str(http.body.get()).unwrap()
}

#[test]
fn caching_follows_the_retention() {
    let explicit = json!({"supports_explicit_prompt_cache_mode": true});
    for (retention, compat, day, mode) in [
        ("short", json!({}), false, false),
        ("long", json!({}), true, false),
        ("long", json!({"supports_long_cache_retention": false}), false, false),
        ("none", json!({}), false, false),
        ("none", explicit.clone(), false, true),
        ("long", explicit, true, false),
    ] {
        let sent = body_of_route("local", retention, compat.clone());
        assert_eq!(sent.get("prompt_cache_retention").is_some_and(|value| value == "24h"), day, "{retention} {compat}");
        assert_eq!(sent.get("prompt_cache_options").is_some_and(|value| value["mode"] == "explicit"), mode);
    }
}

#[test]
fn what_is_known_of_a_provider_is_found_by_its_route() {
    for (route, strict, encrypted, off) in [
        ("local", false, false, true),
        ("openai", true, false, true),
        ("xai", false, true, true),
        ("github-copilot", false, false, false),
    ] {
        let sent = body_of_route(route, "short", json!({}));
        assert_eq!(sent["tools"][0].get("strict").is_some(), strict, "{route}");
        assert_eq!(sent.get("include").is_some(), encrypted, "{route}");
        assert_eq!(sent.get("reasoning").is_some(), off, "{route}");
    }
}

#[test]
fn schemas_are_those_of_objects_and_say_so() {
    for (schema, sent) in [
        (json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "null"}}}), None),
        (json!({}), Some(json!({"type": "object", "properties": {}}))),
        (json!(null), Some(json!({"type": "object", "properties": {}}))),
        (json!({"type": null, "properties": {"a": {}}}), Some(json!({"type": "object", "properties": {"a": {}}}))),
        (
            json!({"type": "object", "additionalProperties": true}),
            Some(json!({"type": "object", "additionalProperties": true, "properties": {}})),
        ),
    ] {
        let tool = |name: &str| json!({"name": name, "description": "d", "parameters": schema});
        let request = json!({"messages": [user("q")], "tools": [tool("a"), tool(&"x".repeat(80)), tool("a")]});
        let expected = sent.unwrap_or_else(|| schema.clone());
        assert_eq!(
            body(json!({}), json!({}), &request)["tools"],
            json!([{"type": "function", "name": "a", "description": "d", "parameters": expected}])
        );
    }
    assert!(body(json!({}), json!({}), &json!({"messages": [user("q")]})).get("tools").is_none());
}

#[test]
fn outputs_always_say_something_and_hold_their_images() {
    let list = json!([
        said(json!([call("a", "{}"), call("b", "{}"), call("c", "{}"), call("d", " ")])),
        result("a", json!([text("one"), text(" "), image(), text("two")])),
        result("b", json!([image()])),
        result("c", json!([])),
        result("d", json!([text("x")])),
    ]);
    let sent = input(list);
    let picture = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA=="});
    assert_eq!(sent[4]["output"], json!([{"type": "input_text", "text": "one\ntwo"}, picture]));
    assert_eq!(sent[5]["output"], json!([picture]));
    assert_eq!(sent[6]["output"], "(no tool output)");
    assert_eq!(sent[7], json!({"type": "function_call_output", "call_id": "d", "output": "x"}));
    assert_eq!(sent[3], json!({"type": "function_call", "call_id": "d", "name": "bash", "arguments": "{}"}));
}

#[test]
fn a_run_of_images_becomes_one_note_for_a_model_that_cannot_see() {
    let picture = json!({"role": "user", "content": [text("look"), image(), image(), text("now")]});
    let list = json!([picture, said(json!([call("a", "{}")])), result("a", json!([image()]))]);
    let (sent, repairs) = adapter(json!({"input": ["text"]}), json!({})).encode(&json!({"messages": list}));
    let texts: Vec<_> =
        sent["input"][0]["content"].as_array().unwrap().iter().map(|part| part["text"].clone()).collect();
    assert_eq!(texts, ["look", "(image omitted: model does not support images)", "now"]);
    assert_eq!(sent["input"][2]["output"], "(tool image omitted: model does not support images)");
    assert_eq!(repairs.iter().map(|repair| repair.message).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn arguments_stay_as_they_were_written() {
    for (stored, sent) in [
        (r#"{"n":12345678901234567890123,"a":1,"a":2}"#, r#"{"n":12345678901234567890123,"a":1,"a":2}"#),
        (r#"{"k\ude00":"x\ud83d \ud83d\ude00"}"#, r#"{"k\ufffd":"x\ufffd \ud83d\ude00"}"#),
        (" \n", "{}"),
        ("{\"a\":", "{}"),
        ("[1]", "{}"),
    ] {
        let list = json!([said(json!([call("c", stored)])), result("c", json!([text("out")]))]);
        assert_eq!(input(list)[0]["arguments"], sent, "{stored}");
    }
}

#[test]
fn ids_are_split_into_call_and_item_and_stay_legal() {
    let long = format!("call_x|fc_{}", "q".repeat(400));
    let list = json!([
        own(&[own_call("call_1|fc_1"), own_call("call_2|item_2"), own_call("call_3"), own_call("functions.f:0|fc_4")]),
        result("call_1|fc_1", json!([text("1")])),
        result("call_2|item_2", json!([text("2")])),
        result("call_3", json!([text("3")])),
        result("functions.f:0|fc_4", json!([text("4")])),
        said(json!([call(&long, "{}"), call("call_x|fc_9", "{}"), call("a b|fc_7", "{}")])),
        result(&long, json!([text("5")])),
        result("call_x|fc_9", json!([text("6")])),
        result("a b|fc_7", json!([text("7")])),
    ]);
    let sent = input(list);
    let calls: Vec<_> =
        sent.as_array().unwrap().iter().filter(|item| item["type"] == "function_call").cloned().collect();
    assert_eq!(
        ids(&json!(calls)),
        [json!("fc_1"), json!(null), json!(null), json!("fc_4"), json!(null), json!(null), json!(null)]
    );
    let call_ids: Vec<_> = calls.iter().map(|call| call["call_id"].as_str().unwrap()).collect();
    assert_eq!(call_ids[..3], ["call_1", "call_2", "call_3"]);
    assert!(call_ids[3].starts_with("functionsf0_") && call_ids[4] == "call_x", "{call_ids:?}");
    assert!(call_ids[5].starts_with("call_x_") && call_ids[6].starts_with("ab_"), "{call_ids:?}");
    let outputs: Vec<_> =
        sent.as_array().unwrap().iter().filter(|item| item["type"] == "function_call_output").collect();
    assert_eq!(outputs.iter().map(|item| item["call_id"].as_str().unwrap()).collect::<Vec<_>>(), call_ids);
}

#[test]
fn messages_go_by_their_own_id_where_that_can_be_one() {
    let long = format!("msg_{}", "z".repeat(80));
    let signed = |signature: &str| own(&[own_text("a", signature)]);
    let list = json!([
        signed(r#"{"v":1,"id":"msg_1","phase":"final_answer"}"#),
        signed("msg_plain"),
        signed("{not json"),
        signed(&long),
        signed("m"),
        signed("msg_plain"),
        own(&[(text("a"), json!({}))]),
        said(json!([text("a")])),
    ]);
    let sent = input(list);
    let ids = ids(&sent);
    assert_eq!(ids[..2], [json!("msg_1"), json!("msg_plain")]);
    assert_eq!(sent[0]["phase"], "final_answer");
    assert!(ids[2..].iter().all(|id| id.as_str().unwrap().starts_with("msg_dsh_")), "{ids:?}");
    assert_eq!(ids.iter().map(Value::to_string).collect::<std::collections::BTreeSet<_>>().len(), 8);
}

#[test]
fn reasoning_goes_back_only_with_what_followed_it() {
    let enc = |id: &str| thought(reasoning(id, &["s"], "ENC"));
    let bare = |id: &str| thought(json!({"id": id, "type": "reasoning", "summary": []}));
    let open = (json!({"type": "reasoning", "text": "SECRET"}), json!({}));
    let mark = |id: &str| format!("{{\"v\":1,\"id\":\"{id}\"}}");
    let made = Value::Null;
    for (blocks, expected, left_out) in [
        (vec![enc("rs_1"), own_text("a", &mark("msg_1"))], vec![json!("rs_1"), json!("msg_1")], false),
        (vec![enc("rs_1"), own_call("c|fc_1")], vec![json!("rs_1"), json!("fc_1")], false),
        (vec![enc("rs_1")], vec![], true),
        (vec![own_text("a", &mark("msg_1")), enc("rs_1")], vec![json!("msg_1")], true),
        (vec![enc("rs_1"), enc("rs_2"), own_text("a", &mark("msg_1"))], vec![json!("rs_2"), json!("msg_1")], true),
        (vec![enc("rs_1"), enc("rs_1"), own_text("a", &mark("msg_1"))], vec![json!("rs_1"), json!("msg_1")], true),
        (vec![bare("rs_1"), own_text("a", &mark("msg_1")), own_call("c|fc_1")], vec![made.clone(), made.clone()], true),
        (vec![open, own_text("a", &mark("msg_1"))], vec![made.clone()], true),
        (
            vec![enc("rs_1"), own_call("c|fc_1"), bare("rs_2"), own_call("d|fc_2"), enc("rs_3"), own_call("e|fc_3")],
            vec![json!("rs_1"), json!("fc_1"), made, json!("rs_3"), json!("fc_3")],
            true,
        ),
        (
            vec![enc("rs_1"), own_text(" ", &mark("msg_0")), own_text("a", &mark("msg_1"))],
            vec![json!("rs_1"), json!("msg_1")],
            false,
        ),
        (vec![enc("rs_1"), own_text(" ", &mark("msg_0"))], vec![], true),
    ] {
        let (sent, repairs) = adapter(json!({}), json!({})).encode(&json!({"messages": [own(&blocks)]}));
        let mut ids = ids(&sent["input"]);
        for id in &mut ids {
            if id.as_str().is_some_and(|id| id.starts_with("msg_dsh_")) {
                *id = Value::Null;
            }
        }
        assert_eq!(ids, expected, "{blocks:?}");
        assert_eq!(repairs.iter().any(|repair| repair.kind == "reasoning-left-out"), left_out, "{blocks:?}");
        assert!(!sent.to_string().contains("SECRET"));
    }
}

#[test]
fn a_reasoning_item_goes_back_without_what_the_wire_does_not_take() {
    let raw_thought = json!([{"type": "reasoning_text", "text": "hm"}]);
    for (stored, sent) in [
        (
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "E", "status": null, "content": null, "x": 1}),
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "E", "summary": []}),
        ),
        (
            json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": raw_thought, "status": "completed"}),
            json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": raw_thought, "status": "completed"}),
        ),
    ] {
        assert_eq!(input(json!([own(&[thought(stored), own_text("a", "msg_1")])]))[0], sent);
    }
}

#[test]
fn reasoning_of_another_origin_is_nowhere() {
    let list = json!([user("q"), said(json!([{"type": "reasoning", "text": "SECRET"}, text("a")])), user("r")]);
    let sent = input(list);
    assert!(!sent.to_string().contains("SECRET") && sent.as_array().unwrap().len() == 3, "{sent}");
}

fn history() -> impl Strategy<Value = Vec<Value>> {
    let block = prop_oneof![
        ("rs_[ab]", "E?").prop_map(|(id, data)| thought(reasoning(&id, &["s"], &data))),
        ("[ax ]", "(msg_[ab]|m|\\{\"v\":1,\"id\":\"msg_c\"\\}|\\{)").prop_map(|(words, mark)| own_text(&words, &mark)),
    ];
    let turn = prop_oneof![
        Just(vec![user("hi")]),
        Just(vec![said(json!([text("a")]))]),
        (proptest::collection::vec(block, 0..5), "[a-c]{1,2}(\\|(fc_[ab]|x.y|))?").prop_map(|(mut blocks, id)| {
            blocks.push(own_call(&id));
            vec![own(&blocks), result(&id, json!([image()]))]
        }),
        ".{0,70}".prop_map(|id| vec![said(json!([text("b"), call(&id, "{}")])), result(&id, json!([text("c")]))]),
    ];
    proptest::collection::vec(turn, 1..8).prop_map(|turns| turns.concat())
}

proptest! {
    /// Ids are legal and distinct, calls and outputs pair up, and reasoning has its follower.
    #[test]
    fn every_request_obeys_the_wire(list in history()) {
        let sent = input(json!(list));
        let items = sent.as_array().unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut open = std::collections::BTreeSet::new();
        let mut calls = std::collections::BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let kind = item["type"].as_str().unwrap_or("message");
            if let Some(id) = item["id"].as_str() {
                prop_assert!(super::super::item::is_legal_id(id) && seen.insert(id.to_owned()), "{} in {}", id, sent);
                let prefix = match kind { "message" => "msg", "reasoning" => "rs", _ => "fc" };
                prop_assert!(id.starts_with(prefix), "{}", id);
            }
            match kind {
                "function_call" => {
                    let id = item["call_id"].as_str().unwrap().to_owned();
                    prop_assert!((1..=64).contains(&id.len()) && calls.insert(id.clone()), "{} in {}", id, sent);
                    open.insert(id);
                }
                "function_call_output" => prop_assert!(open.remove(item["call_id"].as_str().unwrap()), "{}", sent),
                "reasoning" => {
                    let next = &items[at + 1];
                    prop_assert!(next["type"] == "function_call" || next["role"] == "assistant", "{}", sent);
                    prop_assert!(!item["encrypted_content"].as_str().unwrap().is_empty());
                }
                _ => if item["role"] == "assistant" {
                    prop_assert!(!item["content"][0]["text"].as_str().unwrap().trim().is_empty());
                },
            }
        }
        prop_assert!(open.is_empty(), "{}", sent);
    }
}
