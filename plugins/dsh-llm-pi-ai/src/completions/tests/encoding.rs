//! History to request.

use dsh_plugin_api::vocab::HeaderValue;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{call, image, result, said, text, user};

/// The body of a request to a model with these flags.
fn body(model: Value, compat: Value, request: &Value) -> Value {
    adapter(model, compat).encode(request).0
}

fn messages(compat: Value, list: Value) -> Value {
    body(json!({}), compat, &json!({"messages": list}))["messages"].clone()
}

#[test]
fn the_request_goes_to_the_route_with_its_credential_named() {
    let request = Request::default();
    let encoded = adapter(json!({}), json!({})).adapter.encode(&request, Vec::new(), &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    assert_eq!((http.method.as_str(), http.url.as_str()), ("POST", "http://gateway.test/v1/chat/completions"));
    let credential = HeaderValue::Credential { reference: "KEY".into(), prefix: "Bearer ".into() };
    assert!(http.headers.iter().any(|header| header.name == "authorization" && header.value == credential));
}

#[test]
fn a_model_that_is_not_listed_gets_cautious_defaults() {
    let adapter = adapter(json!({}), json!({}));
    let to = Target { provider: "local".into(), model: "new".into() };
    let message: Message = serde_json::from_value(json!({"role": "user", "content": [text("see"), image()]})).unwrap();
    let request = Request { messages: vec![message], reasoning_effort: Some("high".into()), ..Request::default() };
    let history = vec![adapter.adapter.foreign(&request.messages[0], &to).unwrap()];
    let encoded = adapter.adapter.encode(&request, history, &to).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    let body: Value = serde_json::from_str(http.body.get()).unwrap();
    assert_eq!(body["model"], "new");
    assert!(body.get("reasoning_effort").is_none() && body.get("max_completion_tokens").is_none());
    assert_eq!(encoded.repairs, [Repair { message: 0, kind: "image-omitted".into() }]);
}

#[test]
fn arguments_stay_as_they_were_written() {
    for (stored, sent) in [
        (r#"{"n":12345678901234567890123,"a":1,"a":2}"#, r#"{"n":12345678901234567890123,"a":1,"a":2}"#),
        (r#" {"b":1.50} "#, r#" {"b":1.50} "#),
        (r#"{"k\ude00":"x\ud83d \ud83d\ude00"}"#, r#"{"k\ufffd":"x\ufffd \ud83d\ude00"}"#),
        ("", "{}"),
        (" \n", "{}"),
        ("{\"a\":", "{}"),
        ("[1]", "{}"),
    ] {
        let list = json!([user("go"), said(json!([call("c", stored)])), result("c", json!([text("out")]))]);
        assert_eq!(messages(json!({}), list)[1]["tool_calls"][0]["function"]["arguments"], sent, "{stored}");
    }
}

#[test]
fn results_always_say_something_and_their_images_follow_the_run() {
    let list = json!([
        user("go"),
        said(json!([call("a", "{}"), call("b", "{}"), call("c", "{}")])),
        result("a", json!([text("one"), text(" "), text("two"), image()])),
        result("b", json!([image()])),
        result("c", json!([])),
        user("and?"),
    ]);
    let sent = messages(json!({}), list);
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}});
    assert_eq!(sent[2], json!({"role": "tool", "content": "one\ntwo", "tool_call_id": "a"}));
    assert_eq!(sent[3]["content"], "(see attached image)");
    assert_eq!(sent[4]["content"], "(no tool output)");
    assert_eq!(sent[5]["content"], json!([text("Attached image(s) from tool result:"), picture, picture]));
    assert_eq!(sent[6], json!({"role": "user", "content": "and?"}));
}

#[test]
fn a_run_of_images_becomes_one_note_for_a_model_that_cannot_see() {
    let picture = json!({"role": "user", "content": [text("look"), image(), image(), text("now")]});
    let list = json!([picture, said(json!([call("a", "{}")])), result("a", json!([image()]))]);
    let (sent, repairs) = adapter(json!({"input": ["text"]}), json!({})).encode(&json!({"messages": list}));
    let note = text("(image omitted: model does not support images)");
    assert_eq!(sent["messages"][0]["content"], json!([text("look"), note, text("now")]));
    assert_eq!(sent["messages"][2]["content"], "(tool image omitted: model does not support images)");
    assert_eq!(repairs.iter().map(|repair| repair.message).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn an_attachment_that_nobody_resolved_is_a_note() {
    let picture = json!({"role": "user", "content": [{"type": "image", "attachment": {"path": "a.png"}}]});
    let (sent, repairs) = adapter(json!({}), json!({})).encode(&json!({"messages": [picture]}));
    assert_eq!(sent["messages"][0]["content"], "(image omitted: its data is not available)");
    assert_eq!(repairs.len(), 1);
}

#[test]
fn reasoning_of_another_origin_is_nowhere() {
    let list = json!([
        user("q"),
        said(json!([{"type": "reasoning", "text": "SECRET"}, text("a")])),
        said(json!([{"type": "reasoning", "text": "SECRET"}])),
        user("r"),
    ]);
    for compat in [
        json!({}),
        json!({"requires_thinking_as_text": true}),
        json!({"reasoning_field": "reasoning"}),
        json!({"requires_reasoning_content_on_assistant_messages": true}),
    ] {
        let sent = messages(compat, list.clone());
        assert!(!sent.to_string().contains("SECRET"), "{sent}");
        assert_eq!(sent.as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_strict_template_gets_alternating_turns() {
    let list = json!([
        said(json!([text("Welcome.")])),
        user("one"),
        {"role": "system", "content": [text("note")]},
        user("two"),
        said(json!([text("a")])),
        said(json!([text("b"), call("c", "{}")])),
        result("c", json!([image()])),
        user("three"),
    ]);
    let request = json!({"system": "sys", "messages": list});
    let sent = body(json!({}), json!({"strict_alternation": true}), &request)["messages"].clone();
    let roles: Vec<_> = sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(sent[3]["content"], "one\n\nnote\n\ntwo");
    assert_eq!(sent[4]["content"], "a\n\nb");
    assert_eq!(sent[7]["content"].as_array().unwrap().last().unwrap(), &text("three"));
}

#[test]
fn the_output_limit_fits_the_window_beside_the_prompt() {
    let long = "x".repeat(40_000);
    for (model, asked, limit) in [
        (json!({}), None, Some(8192)),
        (json!({}), Some(512), Some(512)),
        (json!({"max_tokens": null}), None, None),
        (json!({"context_window": null}), Some(9_000_000), Some(9_000_000)),
        (json!({"context_window": 16_096}), None, Some(2000)),
        (json!({"context_window": 8000}), None, Some(1)),
    ] {
        let mut request = json!({"messages": [user(&long)]});
        if let Some(asked) = asked {
            request["maxTokens"] = json!(asked);
        }
        let sent = body(model.clone(), json!({}), &request);
        assert_eq!(sent.get("max_completion_tokens").and_then(Value::as_u64), limit, "{model} {asked:?}");
    }
}

#[test]
fn thinking_is_switched_as_the_dialect_says() {
    let levels = json!({"thinking_level_map": {"off": "none", "high": "HIGH"}});
    let never_off = json!({"thinking_level_map": {"off": false}});
    let fields = ["reasoning_effort", "thinking", "enable_thinking", "chat_template_kwargs", "reasoning"];
    let kwargs =
        json!({"e": {"var": "thinking.enabled"}, "r": {"var": "thinking.effort", "omit_when_off": true}, "k": 3});
    let cases = [
        ("openai", json!({}), json!({"reasoning_effort": "high"}), json!({})),
        ("openai", levels.clone(), json!({"reasoning_effort": "HIGH"}), json!({"reasoning_effort": "none"})),
        (
            "deepseek",
            json!({}),
            json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
            json!({"thinking": {"type": "disabled"}}),
        ),
        (
            "deepseek",
            never_off.clone(),
            json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
            json!({}),
        ),
        (
            "zai",
            json!({}),
            json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "high"}),
            json!({"thinking": {"type": "disabled"}}),
        ),
        (
            "qwen",
            json!({}),
            json!({"enable_thinking": true, "reasoning_effort": "high"}),
            json!({"enable_thinking": false}),
        ),
        (
            "qwen-chat-template",
            json!({}),
            json!({"chat_template_kwargs": {"enable_thinking": true, "preserve_thinking": true}}),
            json!({"chat_template_kwargs": {"enable_thinking": false, "preserve_thinking": true}}),
        ),
        (
            "chat-template",
            json!({}),
            json!({"chat_template_kwargs": {"e": true, "r": "high", "k": 3}}),
            json!({"chat_template_kwargs": {"e": false, "k": 3}}),
        ),
        (
            "zai",
            never_off.clone(),
            json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "high"}),
            json!({"thinking": {"type": "disabled"}}),
        ),
        ("openrouter", json!({}), json!({"reasoning": {"effort": "high"}}), json!({"reasoning": {"effort": "none"}})),
        ("openrouter", never_off, json!({"reasoning": {"effort": "high"}}), json!({})),
        (
            "together",
            json!({}),
            json!({"reasoning": {"enabled": true}, "reasoning_effort": "high"}),
            json!({"reasoning": {"enabled": false}}),
        ),
        ("string-thinking", json!({}), json!({"thinking": "high"}), json!({"thinking": "none"})),
        ("ant-ling", json!({}), json!({}), json!({})),
        ("ant-ling", levels, json!({"reasoning": {"effort": "HIGH"}}), json!({})),
    ];
    for (format, model, on, off) in cases {
        let compat = json!({"thinking_format": format, "chat_template_kwargs": kwargs});
        for (effort, expected) in [(Some("high"), on), (None, off.clone()), (Some("off"), off)] {
            let mut request = json!({"messages": [user("hi")]});
            if let Some(effort) = effort {
                request["reasoningEffort"] = json!(effort);
            }
            let mut sent = body(model.clone(), compat.clone(), &request);
            sent.as_object_mut().unwrap().retain(|key, _| fields.contains(&key.as_str()));
            assert_eq!(sent, expected, "{format} {model} {effort:?}");
        }
    }
}

#[test]
fn a_template_variable_for_the_effort_is_left_out_when_off_has_no_spelling() {
    let kwargs = json!({"effort": {"var": "thinking.effort"}});
    let compat = json!({"thinking_format": "chat-template", "chat_template_kwargs": kwargs});
    let request = json!({"messages": [user("hi")]});
    for (model, expected) in [
        (json!({}), Value::Null),
        (json!({"thinking_level_map": {"off": false}}), Value::Null),
        (json!({"thinking_level_map": {"off": "no"}}), json!({"effort": "no"})),
    ] {
        assert_eq!(body(model, compat.clone(), &request)["chat_template_kwargs"], expected);
    }
}

#[test]
fn a_model_that_does_not_think_is_asked_without_effort() {
    for effort in ["high", "ultra"] {
        let request = json!({"messages": [user("hi")], "reasoningEffort": effort});
        let sent = body(json!({"reasoning": false}), json!({"thinking_format": "deepseek"}), &request);
        assert!(sent.get("thinking").is_none() && sent.get("reasoning_effort").is_none(), "{sent}");
    }
}

#[test]
fn the_estimate_of_tools_does_not_depend_on_their_white_space() {
    let request = |schema: &str| {
        let text = format!(r#"{{"messages":[],"tools":[{{"name":"a","description":"d","parameters":{schema}}}]}}"#);
        let request: Request = serde_json::from_str(&text).unwrap();
        let adapter = adapter(json!({"context_window": 4196, "max_tokens": 100}), json!({}));
        let encoded = adapter.adapter.encode(&request, Vec::new(), &target()).unwrap();
        let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
        serde_json::from_str::<Value>(http.body.get()).unwrap()["max_completion_tokens"].clone()
    };
    let compact = r#"{"type":"object","properties":{"p":{"type":"string"}}}"#;
    assert_eq!(request(compact), request(&compact.replace(':', " :   ").replace(',', " ,\n  ")));
    assert_eq!(request(compact), json!(100 - 25));
}

#[test]
fn a_level_that_the_model_does_not_have_is_refused_with_those_it_has() {
    let adapter = adapter(json!({"thinking_level_map": {"low": false, "max": "MAX"}}), json!({}));
    for level in ["low", "xhigh", "ultra"] {
        let request = Request { reasoning_effort: Some(level.into()), ..Request::default() };
        let failure = adapter.adapter.encode(&request, Vec::new(), &target()).unwrap_err();
        assert_eq!(failure.code.name(), "UNSUPPORTED");
        assert!(failure.message.ends_with("it takes off, minimal, medium, high, max"), "{}", failure.message);
    }
}

#[test]
fn tools_are_offered_once_by_legal_names_and_never_as_an_empty_list() {
    let tool = |name: &str| json!({"name": name, "description": "d", "parameters": {"type": "object", "n": 1.50}});
    let list = json!([user("go"), said(json!([call("c", "{}")])), result("c", json!([text("out")]))]);
    assert!(body(json!({}), json!({}), &json!({"messages": list})).get("tools").is_none());
    let request = json!({"messages": list, "tools": [tool("read"), tool(&"x".repeat(80)), tool("read")]});
    let sent = body(json!({}), json!({"supports_strict_mode": true, "zai_tool_stream": true}), &request);
    assert_eq!(sent["tools"].as_array().unwrap().len(), 1);
    assert_eq!(sent["tools"][0]["function"]["strict"], false);
    assert_eq!(sent["tool_stream"], true);
}

#[test]
fn marks_for_the_prompt_cache_stand_on_instructions_last_tool_and_last_text() {
    let tool = |name: &str| json!({"name": name, "parameters": {}});
    let request = json!({"system": "sys", "tools": [tool("a"), tool("b")],
        "messages": [user("q"), said(json!([text("say"), call("c", "{}")])), result("c", json!([text("out")]))]});
    let sent = body(json!({}), json!({"cache_control_format": "anthropic"}), &request);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(sent["messages"][0]["content"][0]["cache_control"], mark);
    assert_eq!(sent["messages"][3]["content"][0]["cache_control"], mark);
    assert_eq!(sent["tools"][1]["cache_control"], mark);
    assert_eq!(sent.to_string().matches("cache_control").count(), 3);
}

fn history() -> impl Strategy<Value = Vec<Value>> {
    let turn = prop_oneof![
        Just(vec![user("hi")]),
        Just(vec![json!({"role": "system", "content": [text("note")]})]),
        Just(vec![said(json!([text("a")]))]),
        ".{0,70}".prop_map(|id| vec![said(json!([text("b"), call(&id, "{}")])), result(&id, json!([image()]))]),
        Just(vec![
            said(json!([call("x", "{}"), call("x", "{\"a\":1}")])),
            result("x", json!([])),
            result("x", json!([]))
        ]),
    ];
    proptest::collection::vec(turn, 1..8).prop_map(|turns| turns.concat())
}

proptest! {
    /// Calls and results pair up with legal, distinct ids; roles alternate where that is wanted.
    #[test]
    fn every_request_obeys_the_wire(list in history(), alternate: bool, max in prop_oneof![Just(9usize), Just(16), 20usize..70]) {
        let compat = json!({"strict_alternation": alternate, "max_tool_call_id_length": max});
        let sent = messages(compat, json!(list));
        let mut open: Vec<String> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        let mut before = "system";
        for message in sent.as_array().unwrap() {
            let role = message["role"].as_str().unwrap();
            if role == "tool" {
                let id = message["tool_call_id"].as_str().unwrap();
                let place = open.iter().position(|open| open == id);
                prop_assert!(place.is_some(), "{}", sent);
                open.remove(place.unwrap());
            } else {
                prop_assert!(open.is_empty(), "{}", sent);
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                let id = call["id"].as_str().unwrap().to_owned();
                prop_assert!((1..=max).contains(&id.len()), "{}", id);
                prop_assert!(seen.insert(id.clone()), "{} twice", id);
                open.push(id);
            }
            if alternate {
                let fits = matches!((before, role), ("system", "system" | "user") | ("user", "assistant")
                    | ("assistant", "user" | "tool") | ("tool", "tool" | "assistant"));
                prop_assert!(fits, "{} after {} in {}", role, before, sent);
            }
            before = role;
        }
        prop_assert!(open.is_empty());
    }
}
