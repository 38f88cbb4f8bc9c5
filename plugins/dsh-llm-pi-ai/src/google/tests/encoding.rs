//! History to request.

use dsh_plugin_api::vocab::{HeaderValue, Target};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{call, image, result, said, text, user};

const UNSIGNED: &str = "skip_thought_signature_validator";

fn contents(route: &Fixture, messages: Value) -> Value {
    route.body(&json!({"messages": messages}))["contents"].clone()
}

/// An answer of Gemini 3 itself, with these entries.
fn own(content: Value, entries: Value) -> Value {
    let response = json!({"kind": "pi-ai", "version": 2, "api": "google-generative-ai", "provider": "local",
        "model": "gemini-3-pro-preview", "stopReason": "toolUse"});
    json!({"role": "assistant", "content": content, "source": {"kind": "model", "provider": "local",
        "model": "gemini-3-pro-preview", "replayState": {"response": response, "blocks": entries}}})
}

#[test]
fn the_request_goes_to_the_model_with_the_credential_named() {
    for (model, path) in [
        ("gemini-3-pro-preview", "/v1/models/gemini-3-pro-preview:streamGenerateContent?alt=sse"),
        ("models/gemini-2.5-flash", "/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
        ("tunedModels/x-1", "/v1/tunedModels/x-1:streamGenerateContent?alt=sse"),
        ("a b?c#d%/e", "/v1/models/a%20b%3Fc%23d%25/e:streamGenerateContent?alt=sse"),
    ] {
        let (http, _) = route(model, json!({})).request(&json!({"messages": [user("hi")]})).unwrap();
        assert_eq!((http.method.as_str(), http.url), ("POST", format!("http://gateway.test{path}")));
        let credential = HeaderValue::Credential { reference: "KEY".into(), prefix: String::new() };
        assert!(http.headers.iter().any(|header| header.name == "x-goog-api-key" && header.value == credential));
    }
}

#[test]
fn a_model_that_is_not_listed_gets_cautious_defaults() {
    let mut route = gemini();
    route.target = Target { provider: "local".into(), model: "gemini-new".into() };
    let picture = json!({"role": "user", "content": [text("see"), image()], "source": {"kind": "user"}});
    let request = json!({"messages": [picture], "reasoningEffort": "high"});
    assert!(route.body(&request).get("generationConfig").is_none());
    assert_eq!(route.repairs(&request), [(0, "image-omitted".to_owned())]);
}

#[test]
fn the_configuration_holds_limit_temperature_and_thinking() {
    let tool = json!({"name": "read", "description": "d", "parameters": {"type": "object", "$defs": {"n": {}}}});
    let request = json!({"messages": [user("hi")], "system": "Be brief.", "tools": [tool], "maxTokens": 100,
        "temperature": 0.5, "reasoningEffort": "low"});
    assert_eq!(
        gemini().body(&request),
        json!({
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "read", "description": "d",
                "parametersJsonSchema": {"type": "object", "$defs": {"n": {}}}}]}],
            "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100,
                "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "LOW"}},
        })
    );
    let plain = route("gemini-2.0-flash", json!({"reasoning": false, "max_tokens": 0}));
    assert_eq!(
        plain.body(&json!({"messages": [user("hi")], "system": " \n", "reasoningEffort": "ultra"})),
        json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
    );
}

#[test]
fn the_output_limit_fits_the_window_beside_the_prompt() {
    let route = route("gemini-2.5-flash", json!({"context_window": 4296, "max_tokens": 1000}));
    let limit =
        |messages: Value| route.body(&json!({"messages": messages}))["generationConfig"]["maxOutputTokens"].clone();
    assert_eq!(limit(json!([user("four")])), 199);
    assert_eq!(limit(json!([user(&"x".repeat(8000))])), 1);
}

#[test]
fn a_level_that_the_model_does_not_have_is_refused_with_those_it_has() {
    let request = json!({"messages": [user("hi")], "reasoningEffort": "xhigh"});
    let failure = gemini().request(&request).unwrap_err();
    assert_eq!(failure.code.name(), "UNSUPPORTED");
    assert!(failure.message.ends_with("it takes off, minimal, low, medium, high"), "{failure}");
}

#[test]
fn tools_are_offered_once_by_legal_names_and_never_as_an_empty_list() {
    let tool = |name: &str, schema: Value| json!({"name": name, "description": "d", "parameters": schema});
    let offered =
        |tools: Value| gemini().body(&json!({"messages": [user("hi")], "tools": tools})).get("tools").cloned();
    let list =
        json!([tool("read", Value::Null), tool("3d", json!({})), tool("a b", json!({})), tool("read", json!({}))]);
    assert_eq!(offered(list), Some(json!([{"functionDeclarations": [{"name": "read", "description": "d"}]}])));
    assert_eq!(offered(json!([tool("3d", json!({}))])), None);
    assert_eq!(offered(json!([])), None);
}

#[test]
fn results_stand_alone_in_the_order_of_their_calls() {
    let mut failed = result("b", json!([text("boom")]));
    failed["content"][0]["isError"] = json!(true);
    let list = json!([
        user("go"),
        said(json!([text("Look."), call("a", "{}"), call("b", "{}"), call("c", "{}")])),
        result("c", json!([])),
        failed,
        {"role": "user", "content": [text("and?"), {"type": "tool-result", "toolCallId": "a", "content": [text("one"), text("two")]}]},
    ]);
    let response =
        |id: &str, response: Value| json!({"functionResponse": {"id": id, "name": "bash", "response": response}});
    let sent = contents(&gemini(), list);
    assert_eq!(
        sent[2],
        json!({"role": "user", "parts": [response("a", json!({"output": "one\ntwo"})),
            response("b", json!({"error": "boom"})), response("c", json!({"output": ""}))]})
    );
    assert_eq!(sent[3], json!({"role": "user", "parts": [{"text": "and?"}]}));
}

#[test]
fn images_of_tools_stand_in_the_result_or_behind_all_of_them() {
    let list = json!([
        user("go"),
        said(json!([call("a", "{}"), call("b", "{}")])),
        result("a", json!([text("one"), image(), image()])),
        result("b", json!([image()])),
        user("and?"),
    ]);
    let picture = json!({"inlineData": {"mimeType": "image/png", "data": "AA=="}});
    let sent = contents(&gemini(), list.clone());
    let responses = sent[2]["parts"].as_array().unwrap();
    assert_eq!(responses[0]["functionResponse"]["parts"], json!([picture, picture]));
    assert_eq!(responses[1]["functionResponse"]["response"], json!({"output": "(see attached image)"}));
    assert_eq!(responses[1]["functionResponse"]["parts"], json!([picture]));
    assert_eq!(sent[3]["parts"], json!([{"text": "and?"}]));

    let sent = contents(&route("gemini-2.5-flash", json!({})), list.clone());
    let response = |text: &str| json!({"functionResponse": {"name": "bash", "response": {"output": text}}});
    assert_eq!(sent[1]["parts"][0], json!({"functionCall": {"name": "bash", "args": {}}}));
    assert_eq!(sent[2]["parts"], json!([response("one"), response("(see attached image)")]));
    let note = json!({"text": "Tool result image:"});
    assert_eq!(sent[3]["parts"], json!([note, picture, picture, note, picture]));

    let blind = route("gemini-2.5-flash", json!({"input": ["text"]}));
    let sent = contents(&blind, list);
    assert_eq!(
        sent[2]["parts"],
        json!([
            response("one\n(tool image omitted: model does not support images)"),
            response("(tool image omitted: model does not support images)")
        ])
    );
}

#[test]
fn an_image_that_cannot_be_sent_is_a_note_and_is_reported() {
    let picture =
        json!({"role": "user", "content": [text("look"), image(), image(), text("now")], "source": {"kind": "user"}});
    let blind = route("gemini-2.5-flash", json!({"input": ["text"]}));
    let note = json!({"text": "(image omitted: model does not support images)"});
    assert_eq!(contents(&blind, json!([picture]))[0]["parts"], json!([{"text": "look"}, note, {"text": "now"}]));
    let gone = json!({"role": "user", "content": [{"type": "image", "attachment": "x"}], "source": {"kind": "user"}});
    assert_eq!(
        contents(&gemini(), json!([gone]))[0]["parts"],
        json!([{"text": "(image omitted: its data is not available)"}])
    );
    for (route, message) in [(blind, picture), (gemini(), gone)] {
        assert_eq!(route.repairs(&json!({"messages": [user("hi"), message]})), [(1, "image-omitted".to_owned())]);
    }
}

#[test]
fn the_first_unsigned_call_of_each_step_of_the_current_turn_gets_the_placeholder() {
    let calls = json!([call("a", "{}"), call("b", "{}")]);
    let results = [result("a", json!([text("1")])), result("b", json!([text("2")]))];
    let signed = own(calls.clone(), json!([{"type": "tool-call", "thoughtSignature": "QQ=="}, {"type": "tool-call"}]));
    let late = own(calls.clone(), json!([{"type": "tool-call"}, {"type": "tool-call", "thoughtSignature": "QQ=="}]));
    let bare = own(calls.clone(), json!([{"type": "tool-call"}, {"type": "tool-call"}]));
    let foreign = said(calls);
    let signatures = |route: &Fixture, steps: &[&Value], after: Option<&str>| {
        let mut list = vec![user("go")];
        for step in steps {
            list.push((*step).clone());
            list.extend(results.clone());
        }
        list.extend(after.map(user));
        let sent = contents(route, json!(list));
        let parts = sent.as_array().unwrap().iter().filter(|content| content["role"] == "model");
        parts
            .flat_map(|content| content["parts"].as_array().unwrap().clone())
            .map(|part| part["thoughtSignature"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let (own_one, placeholder) = (Some("QQ==".to_owned()), Some(UNSIGNED.to_owned()));
    for (steps, after, expected) in [
        (vec![&signed], None, vec![own_one.clone(), None]),
        (vec![&bare], None, vec![placeholder.clone(), None]),
        (vec![&foreign], None, vec![placeholder.clone(), None]),
        (vec![&late], None, vec![placeholder.clone(), own_one.clone()]),
        (vec![&signed, &foreign], None, vec![own_one.clone(), None, placeholder.clone(), None]),
        (vec![&foreign], Some("next"), vec![None, None]),
    ] {
        assert_eq!(signatures(&gemini(), &steps, after), expected);
    }
    assert_eq!(signatures(&route("gemini-2.5-flash", json!({})), &[&foreign], None), [None, None]);
}

#[test]
fn thoughts_and_blank_texts_go_back_only_where_they_are_of_use() {
    let thoughts =
        json!([{"type": "reasoning", "text": "plan"}, {"type": "reasoning", "text": ""}, text(""), text("Hi.")]);
    let entries = |signature: Value| {
        json!([{"type": "reasoning"}, {"type": "reasoning", "thinkingSignature": signature},
        {"type": "text", "textSignature": signature}, {"type": "text"}])
    };
    let sent = |message: Value| contents(&gemini(), json!([user("go"), message, user("on")]));
    assert_eq!(
        sent(own(thoughts.clone(), entries(json!("QQ=="))))[1]["parts"],
        json!([{"text": "plan", "thought": true}, {"text": "", "thought": true, "thoughtSignature": "QQ=="},
            {"text": "", "thoughtSignature": "QQ=="}, {"text": "Hi."}])
    );
    assert_eq!(
        sent(own(thoughts.clone(), entries(json!(""))))[1]["parts"],
        json!([{"text": "plan", "thought": true}, {"text": "Hi."}])
    );
    assert_eq!(sent(said(thoughts))[1]["parts"], json!([{"text": "Hi."}]));
    let alone = own(json!([{"type": "reasoning", "text": "plan"}]), json!([{"type": "reasoning"}]));
    assert_eq!(sent(alone).as_array().unwrap().len(), 2);
}

#[test]
fn a_signature_that_is_no_base64_is_left_out_and_the_message_stays_native() {
    let content = json!([{"type": "reasoning", "text": "plan"}, text("Hi."), text(""), call("a", "{}")]);
    let sent = |signature: &str| {
        let entries = json!([{"type": "reasoning", "thinkingSignature": signature},
            {"type": "text", "textSignature": "QQ=="}, {"type": "text", "textSignature": signature},
            {"type": "tool-call", "thoughtSignature": signature}]);
        let list = json!([user("go"), own(content.clone(), entries), result("a", json!([text("1")])), user("on")]);
        let request = json!({"messages": list});
        (gemini().body(&request)["contents"][1]["parts"].clone(), gemini().repairs(&request))
    };
    for signature in ["{}", "msg_1", "QQ=", "====", "A A="] {
        let (parts, repairs) = sent(signature);
        assert_eq!(
            parts,
            json!([{"text": "plan", "thought": true}, {"text": "Hi.", "thoughtSignature": "QQ=="},
                {"functionCall": {"id": "a", "name": "bash", "args": {}}}]),
            "{signature}"
        );
        assert_eq!(repairs, [(1, "signature-left-out".to_owned())], "{signature}");
    }
    assert_eq!(sent("QQ==").1, []);
}

#[test]
fn calls_are_made_legal_and_what_was_changed_is_reported() {
    let odd = json!({"type": "tool-call", "id": "call|item", "name": "3d.view", "arguments": "{\"cut\":"});
    let request = json!({"messages": [user("go"), said(json!([odd])), result("call|item", json!([text("out")]))]});
    let sent = gemini().body(&request);
    let made = &sent["contents"][1]["parts"][0]["functionCall"];
    let answer = &sent["contents"][2]["parts"][0]["functionResponse"];
    assert!(dsh_plugin_api::kit::names::is_legal(made["id"].as_str().unwrap()), "{made}");
    assert!(dsh_plugin_api::kit::names::is_legal_word(made["name"].as_str().unwrap()), "{made}");
    assert_eq!((&made["id"], &made["name"]), (&answer["id"], &answer["name"]));
    assert_eq!(made["args"], json!({}));
    let kinds = ["tool-name-rewritten", "call-id-rewritten", "arguments-emptied"];
    assert_eq!(gemini().repairs(&request), kinds.map(|kind| (1, kind.to_owned())));
    // Without ids on the wire there is none to rewrite.
    let kinds = ["tool-name-rewritten", "arguments-emptied"];
    assert_eq!(route("gemini-2.5-flash", json!({})).repairs(&request), kinds.map(|kind| (1, kind.to_owned())));
}

#[test]
fn the_user_speaks_first_and_neighbours_of_the_model_are_one() {
    let note = json!({"role": "system", "content": [text("note")], "source": {"kind": "plugin", "plugin": "p"}});
    for (list, expected) in [
        (json!([]), json!([["user", 1]])),
        (json!([said(json!([text("Hi.")])), user("go")]), json!([["user", 1], ["model", 1], ["user", 1]])),
        (
            json!([
                user("go"),
                said(json!([text("a")])),
                said(json!([call("c", "{}")])),
                result("c", json!([])),
                note,
                user("b")
            ]),
            json!([["user", 1], ["model", 2], ["user", 1], ["user", 1], ["user", 1]]),
        ),
        (json!([user("go"), result("lost", json!([text("out")]))]), json!([["user", 1], ["user", 1]])),
    ] {
        let sent = contents(&gemini(), list.clone());
        let shape = |content: &Value| json!([content["role"], content["parts"].as_array().unwrap().len()]);
        assert_eq!(json!(sent.as_array().unwrap().iter().map(shape).collect::<Vec<_>>()), expected, "{list}");
    }
}

fn history() -> impl Strategy<Value = Vec<Value>> {
    let turn = prop_oneof![
        Just(vec![user("hi")]),
        Just(vec![json!({"role": "system", "content": [text("note")]})]),
        Just(vec![said(json!([text("a")]))]),
        Just(vec![own(json!([{"type": "reasoning", "text": "t"}]), json!([{"type": "reasoning"}]))]),
        ".{0,70}".prop_map(|id| vec![said(json!([text("b"), call(&id, "{}")])), result(&id, json!([image()]))]),
        Just(vec![
            said(json!([call("x", "{}"), call("x", "{\"a\":1}")])),
            result("x", json!([])),
            result("x", json!([text("2")])),
        ]),
        Just(vec![
            own(
                json!([call("y", "{}"), call("z", "{}")]),
                json!([{"type": "tool-call", "thoughtSignature": "QQ=="}, {"type": "tool-call"}])
            ),
            result("z", json!([text("z")])),
            result("y", json!([text("y"), image()])),
        ]),
    ];
    proptest::collection::vec(turn, 0..8).prop_map(|turns| turns.concat())
}

proptest! {
    /// The user begins; a content of calls stands behind one of the user and before exactly its responses, in order;
    /// every part says something; ids are paired and distinct where the wire takes them.
    #[test]
    fn every_request_obeys_the_wire(list in history(), model in prop_oneof![Just("gemini-3-pro-preview"), Just("gemini-2.5-flash")]) {
        let sent = contents(&route(model, json!({})), json!(list));
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<Value> = Vec::new();
        let mut before = "model";
        for content in sent.as_array().unwrap() {
            let role = content["role"].as_str().unwrap();
            let parts = content["parts"].as_array().unwrap();
            prop_assert!(!parts.is_empty());
            prop_assert!(role == "user" || before == "user", "{}", sent);
            let of = |name: &str| parts.iter().filter_map(|part| part.get(name).cloned()).collect::<Vec<_>>();
            let (calls, responses) = (of("functionCall"), of("functionResponse"));
            let heads = |list: &[Value]| list.iter().map(|part| (part["id"].clone(), part["name"].clone())).collect::<Vec<_>>();
            prop_assert_eq!(heads(&open), heads(&responses));
            prop_assert!(responses.is_empty() || responses.len() == parts.len(), "{}", sent);
            for call in &calls {
                prop_assert!(call["args"].is_object());
                prop_assert_eq!(call["id"].is_string(), model.starts_with("gemini-3"));
                prop_assert!(!call["id"].is_string() || seen.insert(call["id"].to_string()), "{} twice", call);
            }
            for part in parts {
                let blank = part["text"].as_str().is_some_and(|text| text.trim().is_empty());
                prop_assert!(!blank || part["thoughtSignature"].is_string(), "{}", sent);
                prop_assert!(part["thoughtSignature"].is_null() || role == "model");
            }
            open = calls;
            before = role;
        }
        prop_assert!(open.is_empty());
    }
}
