//! The same answer in every wire.

use dsh_plugin_api::kit::errors;
use dsh_plugin_api::kit::head::HeadFacts;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::mock::script::{Body, Script};

const SCRIPT: &str = r#"
[[response]]
reasoning = "think a bit"
text = "Hel\u00e9lo"
tool_calls = [{ id = "call_1", name = "bash", arguments = '{"command":"ls"}' }]
usage = { input = 100, output = 20, cache_read = 7, cache_write = 3, reasoning = 5 }
signature = "c2lnbmVk"
chunk_chars = 4
"#;

fn spelled(script: &str, path: &str, body: &Value) -> Result<Reply, String> {
    let script = Script::parse("script", script).unwrap();
    let Body::Described(answer) = script.responses[0].body() else { panic!("it describes an answer") };
    let body = body.to_string().into_bytes();
    let request = Request {
        method: "POST".into(),
        path: path.into(),
        headers: Vec::new(),
        body,
        keep_alive: true,
        is_http_10: false,
    };
    Wire::of(path).expect("a wire").spell(&answer, &Ask::new(&request, 3)?)
}

/// The data of the events.
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.content_type, "text/event-stream");
    let data = reply.pieces.iter().map(|piece| piece.strip_suffix("\n\n").unwrap().rsplit_once("data: ").unwrap().1);
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// What stands at a place of the events, joined.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

fn streaming() -> Value {
    json!({ "model": "m", "stream": true, "include": ["reasoning.encrypted_content"] })
}

#[test]
fn a_path_tells_its_wire_whatever_stands_before_and_behind() {
    for (path, wire) in [
        ("/chat/completions", Some(Wire::Completions)),
        ("/v1/chat/completions?x=1", Some(Wire::Completions)),
        ("/mistral/v1/chat/completions", Some(Wire::Mistral)),
        ("/a/deepseek/chat/completions", Some(Wire::DeepSeek)),
        ("/a-deepseek/chat/completions", Some(Wire::Completions)),
        ("/a/v1/messages?beta=true", Some(Wire::Anthropic)),
        ("/v1/responses", Some(Wire::Responses)),
        ("/v1beta/models/gemini-x:streamGenerateContent?alt=sse", Some(Wire::Google)),
        ("/models/gemini-x:generateContent", Some(Wire::Google)),
        ("/models/gemini-x:countTokens", None),
        ("/v1/embeddings", None),
    ] {
        assert_eq!(Wire::of(path), wire, "{path}");
    }
}

#[test]
fn anthropic_streams_signed_blocks_one_after_the_other() {
    let reply = spelled(SCRIPT, "/v1/messages", &streaming()).unwrap();
    assert!(reply.pieces[0].starts_with("event: message_start\ndata: {"), "{}", reply.pieces[0]);
    let events = events(&reply);
    let kinds: Vec<_> = events.iter().filter_map(|event| event["content_block"]["type"].as_str()).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    for (pointer, expected) in [
        ("/delta/thinking", "think a bit"),
        ("/delta/signature", "c2lnbmVk"),
        ("/delta/text", "Helélo"),
        ("/delta/partial_json", r#"{"command":"ls"}"#),
        ("/delta/stop_reason", "tool_use"),
    ] {
        assert_eq!(joined(&events, pointer), expected, "{pointer}");
    }
    let usage = &events[0]["message"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["cache_read_input_tokens"]), (&json!(90), &json!(7)));
    assert_eq!(usage["cache_creation_input_tokens"], 3);
    assert_eq!(events[events.len() - 2]["usage"]["output_tokens"], 20);
}

#[test]
fn responses_streams_items_that_its_end_lists() {
    let events = events(&spelled(SCRIPT, "/responses", &streaming()).unwrap());
    for (position, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], position);
    }
    let done: Vec<_> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    let end = events.last().unwrap();
    assert_eq!(end["type"], "response.completed");
    let output = end["response"]["output"].as_array().unwrap();
    assert!(done.iter().map(|event| &event["item"]).eq(output), "{output:#?}");
    assert_eq!(output[0]["encrypted_content"], "c2lnbmVk");
    let usage = &end["response"]["usage"];
    assert_eq!((&usage["input_tokens"], &usage["total_tokens"]), (&json!(100), &json!(120)));
    assert_eq!(usage["input_tokens_details"], json!({ "cached_tokens": 7, "cache_write_tokens": 3 }));
    for (kind, expected) in [
        ("response.reasoning_summary_text.delta", "think a bit"),
        ("response.output_text.delta", "Helélo"),
        ("response.function_call_arguments.delta", r#"{"command":"ls"}"#),
    ] {
        let of_kind: Vec<_> = events.iter().filter(|event| event["type"] == kind).cloned().collect();
        assert_eq!(joined(&of_kind, "/delta"), expected, "{kind}");
    }
    let plain = spelled(SCRIPT, "/responses", &json!({ "model": "m" })).unwrap();
    let plain: Value = serde_json::from_str(&plain.pieces[0]).unwrap();
    assert!(plain["output"][0].get("encrypted_content").is_none(), "it comes only when it is asked for");
}

#[test]
fn google_signs_the_first_call_or_the_end_of_the_text() {
    let path = "/v1beta/models/g:streamGenerateContent?alt=sse";
    let parts = |reply: &Reply| -> Vec<Value> {
        events(reply).iter().map(|event| event["candidates"][0]["content"]["parts"][0].clone()).collect()
    };
    let reply = spelled(SCRIPT, path, &json!({})).unwrap();
    let call = json!({ "id": "call_1", "name": "bash", "args": { "command": "ls" } });
    let all = parts(&reply);
    assert_eq!(all.last(), Some(&json!({ "functionCall": call, "thoughtSignature": "c2lnbmVk" })));
    assert_eq!(all.iter().filter(|part| part["thought"] == true).count(), 3);
    let last = events(&reply).pop().unwrap();
    assert_eq!((&last["candidates"][0]["finishReason"], &last["modelVersion"]), (&json!("STOP"), &json!("g")));
    assert_eq!(last["usageMetadata"]["candidatesTokenCount"], 15);

    let reply =
        spelled("[[response]]\ntext = \"hi\"\nreasoning = \"hm\"\nfinish = \"length\"", path, &json!({})).unwrap();
    let made_up = json!({ "text": "", "thoughtSignature": "bW9jayBzaWduYXR1cmUg0003" });
    assert_eq!(parts(&reply).last(), Some(&made_up));
    assert_eq!(events(&reply).pop().unwrap()["candidates"][0]["finishReason"], "MAX_TOKENS");

    let array = spelled(SCRIPT, "/models/g:streamGenerateContent", &json!({})).unwrap();
    let array: Vec<Value> = serde_json::from_str(&array.pieces.concat()).unwrap();
    assert_eq!(array.len(), all.len());
}

#[test]
fn mistral_thinks_inside_its_content_and_sends_calls_whole() {
    let events = events(&spelled(SCRIPT, "/mistral/v1/chat/completions", &streaming()).unwrap());
    assert_eq!(joined(&events, "/choices/0/delta/content/0/thinking/0/text"), "think a bit");
    assert_eq!(joined(&events, "/choices/0/delta/content"), "Helélo");
    let last = events.last().unwrap();
    let function = json!({ "name": "bash", "arguments": r#"{"command":"ls"}"# });
    let call = json!([{ "id": "call_1", "type": "function", "function": function, "index": 0 }]);
    assert_eq!(last["choices"][0]["delta"]["tool_calls"], call);
    assert_eq!(
        (&last["choices"][0]["finish_reason"], &last["usage"]["total_tokens"]),
        (&json!("tool_calls"), &json!(120))
    );
}

#[test]
fn deepseek_thinks_beside_its_content_and_counts_hits_and_misses() {
    let events = events(&spelled(SCRIPT, "/deepseek/chat/completions", &streaming()).unwrap());
    assert_eq!(joined(&events, "/choices/0/delta/reasoning_content"), "think a bit");
    assert_eq!(joined(&events, "/choices/0/delta/content"), "Helélo");
    assert_eq!(joined(&events, "/choices/0/delta/tool_calls/0/function/arguments"), r#"{"command":"ls"}"#);
    let last = events.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
    let usage = &last["usage"];
    let counts = ["prompt_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens"].map(|name| &usage[name]);
    assert_eq!(counts, [&json!(100), &json!(7), &json!(93)]);
}

#[test]
fn without_a_stream_every_wire_answers_with_one_value() {
    for (path, pointer) in [
        ("/chat/completions", "/choices/0/message/content"),
        ("/mistral/v1/chat/completions", "/choices/0/message/content/1/text"),
        ("/deepseek/chat/completions", "/choices/0/message/content"),
        ("/responses", "/output/1/content/0/text"),
        ("/v1/messages", "/content/1/text"),
        ("/models/g:generateContent", "/candidates/0/content/parts/1/text"),
    ] {
        let reply = spelled(SCRIPT, path, &json!({ "model": "m" })).unwrap();
        assert_eq!((reply.content_type, reply.pieces.len()), ("application/json", 1), "{path}");
        let whole: Value = serde_json::from_str(&reply.pieces[0]).unwrap();
        assert_eq!(whole.pointer(pointer), Some(&json!("Helélo")), "{path}: {whole:#}");
    }
}

#[test]
fn a_call_that_is_cut_off_is_refused_where_the_wire_has_no_form_for_it() {
    let script =
        "[[response]]\ntool_calls = [{ id = \"c\", name = \"bash\", arguments = '{\"comm' }]\nfinish = \"length\"";
    for (path, body, is_refused) in [
        ("/chat/completions", streaming(), false),
        ("/responses", streaming(), false),
        ("/v1/messages", streaming(), false),
        ("/v1/messages", json!({}), true),
        ("/models/g:streamGenerateContent?alt=sse", streaming(), true),
    ] {
        let refused = spelled(script, path, &body).err();
        assert_eq!(refused.is_some(), is_refused, "{path}: {refused:?}");
        assert!(refused.is_none_or(|message| message.contains(r#"those of the call "c" are none"#)), "{path}");
    }
}

#[test]
fn reasoning_that_is_hidden_comes_as_its_opaque_value_where_there_is_one() {
    let script = SCRIPT.replace("chunk_chars", "reasoning_hidden = true\nchunk_chars");
    for (path, ..) in PATHS {
        let opaque = ["responses", "messages", "models"].iter().any(|part| path.contains(part));
        let streamed = path.replace("generateContent", "streamGenerateContent?alt=sse");
        for (path, body) in [(path, json!({ "include": "reasoning.encrypted_content" })), (&streamed, streaming())] {
            let said = spelled(&script, path, &body).unwrap().pieces.concat();
            assert!(!said.contains("think a"), "{path}: {said}");
            assert!(said.contains("c2lnbmVk") == opaque && said.contains("Hel"), "{path}: {said}");
        }
    }
}

/// A path of each wire, and how it says that a filter ended an answer.
const PATHS: [(&str, &str, Option<&str>); 6] = [
    ("/chat/completions", "/choices/0/finish_reason", Some("content_filter")),
    ("/mistral/v1/chat/completions", "", None),
    ("/deepseek/chat/completions", "/choices/0/finish_reason", Some("content_filter")),
    ("/responses", "/incomplete_details/reason", Some("content_filter")),
    ("/v1/messages", "/stop_reason", Some("refusal")),
    ("/models/g:generateContent", "/candidates/0/finishReason", Some("SAFETY")),
];

#[test]
fn a_filter_ends_an_answer_on_every_wire_that_knows_one() {
    for (path, pointer, expected) in PATHS {
        let reply = spelled("[[response]]\nfinish = \"content_filter\"", path, &json!({ "model": "m" }));
        let said = reply.map(|reply| serde_json::from_str::<Value>(&reply.pieces[0]).unwrap());
        let reason = said.as_ref().ok().map(|whole| whole.pointer(pointer).cloned().unwrap());
        assert_eq!(reason, expected.map(|reason| json!(reason)), "{path}: {said:?}");
    }
}

#[test]
fn an_error_is_what_its_kind_says_to_every_reader_as_a_refusal_and_inside_a_stream() {
    let kinds = [
        ("invalid_request", "INVALID_REQUEST"),
        ("authentication", "AUTH"),
        ("permission", "AUTH"),
        ("not_found", "INVALID_REQUEST"),
        ("rate_limit", "RATE_LIMIT"),
        ("quota", "QUOTA"),
        ("context_window", "CONTEXT_WINDOW_EXCEEDED"),
        ("server", "SERVER"),
        ("overloaded", "SERVER"),
    ];
    for ((path, ..), (kind, code)) in PATHS.into_iter().flat_map(|path| kinds.map(|kind| (path, kind))) {
        let path = path.replace("generateContent", "streamGenerateContent?alt=sse");
        let head = |status| HeadFacts { status, content_type: String::new(), request_id: None, retry_after_ms: None };
        let script = format!("[[response]]\nerror = {{ kind = \"{kind}\" }}");
        let Body::Refused(error) = Script::parse("script", &script).unwrap().responses[0].body() else {
            panic!("it refuses the request")
        };
        let (status, body) = Wire::of(&path).unwrap().refuse(&error, 3);
        assert!((400..=599).contains(&status), "{path}, {kind}: {status}");
        assert_eq!(errors::refused(&head(status), body.as_bytes()).code.name(), code, "{path}: {body}");

        let script = format!(
            "[[response]]\ntext = \"Helélo\"\nchunk_chars = 4\nerror = {{ kind = \"{kind}\", in_stream = true }}"
        );
        let reply = spelled(&script, &path, &streaming()).unwrap();
        let whole = reply.pieces.concat();
        assert!(!whole.contains("[DONE]") && !whole.contains("message_stop"), "{path}: {whole}");
        let all = events(&reply);
        let (last, before) = all.split_last().unwrap();
        assert!(before.iter().any(|event| event.to_string().contains("lo\"")), "{path}: {whole}");
        let last = last.to_string();
        let last: &RawValue = serde_json::from_str(&last).unwrap();
        // The failed response of the wire responses holds its error.
        let [error, response] =
            dsh_plugin_api::kit::lenient::members_of(last, ["error", "response"]).unwrap_or_default();
        let error = match response {
            Some(response) => dsh_plugin_api::kit::lenient::members_of(response, ["error"]).unwrap()[0].unwrap(),
            None => errors::error_of(last, error, "").expect("an error"),
        };
        assert_eq!(errors::in_stream(&head(200), error).code.name(), code, "{path}: {last}");
    }
}

#[test]
fn an_error_says_what_the_script_says_and_needs_a_stream_to_be_inside_one() {
    let script = "[[response]]\nerror = { kind = \"overloaded\", message = \"come back <later>\", in_stream = true }";
    for (path, ..) in PATHS {
        let refused = spelled(script, path, &json!({ "model": "m" })).unwrap_err();
        assert!(refused.contains("the request asks for none"), "{path}: {refused}");
        let path = path.replace("generateContent", "streamGenerateContent?alt=sse");
        let said = spelled(script, &path, &streaming()).unwrap().pieces.concat();
        assert!(said.contains("come back <later>"), "{path}: {said}");
    }
}
