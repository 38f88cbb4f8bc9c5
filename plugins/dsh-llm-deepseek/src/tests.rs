//! The adapter through its own trait.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::{raw, replace_lone_surrogates};
use dsh_plugin_api::vocab::{
    Block, Chunk, Exchange, FinishReason, InvalidReplay, Message, Repair, ReplayEnvelope, Request, Role, Source,
    Target, Usage,
};
use dsh_plugin_api::{Adapter, Chunks, Decoder as _, ResponseHead, StreamEnd};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn adapter(model: Value) -> DeepSeek {
    let mut entry = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192});
    if let (Some(entry), Some(model)) = (entry.as_object_mut(), model.as_object()) {
        entry.extend(model.clone());
    }
    let providers = json!({"d": {"base_url": "http://d.test", "credential": "KEY", "models": [entry]}});
    DeepSeek::new(serde_json::from_value(json!({"providers": providers})).unwrap()).unwrap()
}

fn target() -> Target {
    Target { provider: "d".into(), model: "m".into() }
}

#[derive(Debug)]
struct Decoded {
    chunks: Vec<Chunk>,
    blocks: Vec<Block>,
    finish: FinishReason,
    state: Option<ReplayEnvelope>,
    usage: Option<Usage>,
}

impl Decoded {
    fn outcome(&self) -> &str {
        self.finish.failure().map_or(self.finish.kind(), |failure| failure.code.name())
    }

    fn text(&self) -> String {
        raw(&self.chunks).get().to_owned()
    }
}

fn decode_pieces<'a>(status: u16, pieces: impl Iterator<Item = &'a [u8]>, end: &StreamEnd) -> Decoded {
    let head = ResponseHead::Http { status, headers: vec![("x-ds-trace-id".into(), "t".into())] };
    let mut decoder = adapter(json!({})).decoder(&head, &target()).unwrap();
    let mut out = Chunks::new();
    for piece in pieces {
        decoder.feed(piece, &mut out);
    }
    decoder.finish(end, &mut out);
    let batch = out.take_batch();
    let mut reader = BatchReader::default();
    let mut chunks = Vec::new();
    reader.read(&batch, |item| {
        if let Item::Chunk(chunk) = item {
            chunks.push(chunk);
        }
    });
    let mut decoded =
        Decoded { chunks: Vec::new(), blocks: Vec::new(), finish: FinishReason::Stop, state: None, usage: None };
    for chunk in &chunks {
        match chunk {
            Chunk::BlockEnd { block, .. } => decoded.blocks.push(block.clone()),
            Chunk::Usage { usage } => decoded.usage = Some(*usage),
            Chunk::Finish { reason, replay_state } => {
                decoded.finish = reason.clone();
                decoded.state.clone_from(replay_state);
            }
            _ => {}
        }
    }
    decoded.chunks = chunks;
    decoded
}

fn decode(body: &str) -> Decoded {
    decode_pieces(200, std::iter::once(body.as_bytes()), &StreamEnd::Complete)
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn delta(delta: Value) -> String {
    event(&json!({"id": "r1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

fn last(finish: &str) -> String {
    let usage = json!({"prompt_tokens": 30, "completion_tokens": 9, "prompt_cache_hit_tokens": 20,
        "prompt_cache_miss_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 4}});
    event(&json!({"id": "r1", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": finish}],
        "usage": usage}))
        + "data: [DONE]\n\n"
}

fn call(index: u64, id: &str, name: &str, arguments: &str) -> String {
    delta(json!({"tool_calls": [{"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments}}]}))
}

/// Reasoning, text and two interleaved calls, with comments and an empty first delta.
fn answer() -> String {
    [
        ": keep-alive\n\n".to_owned(),
        delta(json!({"role": "assistant", "content": null, "reasoning_content": ""})),
        delta(json!({"content": null, "reasoning_content": "plan é"})),
        delta(json!({"content": null, "reasoning_content": "ning"})),
        delta(json!({"content": "Reading.", "reasoning_content": null})),
        call(0, "call_00_a", "bash", ""),
        call(1, "call_01_b", "bash", "{\"command\":"),
        delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"n\":12345678901234567890,\"n\":1}"}}]})),
        delta(json!({"tool_calls": [{"index": 1, "function": {"arguments": "\"ls\"}"}}]})),
        last("tool_calls"),
    ]
    .concat()
}

#[test]
fn an_answer_is_read_with_its_reasoning_calls_and_usage() {
    let decoded = decode(&answer());
    assert_eq!(decoded.outcome(), "tool-calls");
    assert_eq!(
        serde_json::to_value(&decoded.blocks).unwrap(),
        json!([
            {"type": "reasoning", "text": "plan éning"},
            {"type": "text", "text": "Reading."},
            {"type": "tool-call", "id": "call_00_a", "name": "bash", "arguments": "{\"n\":12345678901234567890,\"n\":1}"},
            {"type": "tool-call", "id": "call_01_b", "name": "bash", "arguments": "{\"command\":\"ls\"}"},
        ])
    );
    let usage = decoded.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.reasoning_tokens), (10, Some(20), Some(4)));
    let state = serde_json::to_value(decoded.state.unwrap()).unwrap();
    assert_eq!(
        state["response"],
        json!({"kind": "deepseek", "version": 1, "provider": "d", "model": "m", "responseId": "r1", "stopReason": "toolUse"})
    );
    assert_eq!(
        state["blocks"],
        json!([{"type": "reasoning"}, {"type": "text"}, {"type": "tool-call"}, {"type": "tool-call"}])
    );
}

#[test]
fn every_end_is_told_apart() {
    let text = delta(json!({"content": "x"}));
    for (body, outcome) in [
        (text.clone() + &last("stop"), "stop"),
        (text.clone() + &last("length"), "max-tokens"),
        (text.clone() + &last("content_filter"), "REFUSED"),
        (text.clone() + &last("insufficient_system_resource"), "SERVER"),
        (text.clone() + &last("something_new"), "stop"),
        (text.clone() + &last("something_new").replace("data: [DONE]\n\n", ""), "TRANSPORT"),
        (text.clone() + "data: [DONE]\n\n", "TRANSPORT"),
        (text.clone(), "TRANSPORT"),
        (last("stop"), "EMPTY_RESPONSE"),
        (delta(json!({"reasoning_content": "x"})) + &last("stop"), "EMPTY_RESPONSE"),
        (call(0, "a", "", "{}") + &last("tool_calls"), "PROTOCOL"),
        (text.clone() + "data: {\"broken\n\n", "PROTOCOL"),
        (text.clone() + "data: {\"error\":{\"message\":\"busy\",\"code\":503}}\n\n", "SERVER"),
        ("<html>no</html>\n\n".to_owned(), "PROTOCOL"),
        (String::new(), "TRANSPORT"),
        ("\n\n {\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}".to_owned(), "stop"),
        ("{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_re".to_owned(), "TRANSPORT"),
    ] {
        assert_eq!(decode(&body).outcome(), outcome, "{body}");
    }
}

#[test]
fn a_refusal_is_classed() {
    for (status, body, code) in [
        (
            400,
            r#"{"error":{"message":"The `reasoning_content` in the thinking mode must be passed back to the API.","type":"invalid_request_error","code":"invalid_request_error"}}"#,
            "INVALID_REQUEST",
        ),
        (401, r#"{"error":{"message":"Authentication Fails","type":"authentication_error"}}"#, "AUTH"),
        (402, r#"{"error":{"message":"Insufficient Balance"}}"#, "QUOTA"),
        (422, "", "INVALID_REQUEST"),
        (429, "", "RATE_LIMIT"),
        (500, "", "SERVER"),
        (503, "", "SERVER"),
    ] {
        let decoded = decode_pieces(status, std::iter::once(body.as_bytes()), &StreamEnd::Complete);
        assert_eq!(decoded.outcome(), code, "{status} {body}");
        assert_eq!(decoded.finish.failure().unwrap().status, Some(status));
    }
}

fn assistant(content: Vec<Block>) -> Message {
    Message::new("a", Role::Assistant, content, Source::model("d", "m", None))
}

fn user(content: Vec<Block>) -> Message {
    Message::new("u", Role::User, content, Source::User)
}

fn result(id: &str, text: &str) -> Block {
    Block::ToolResult { tool_call_id: id.into(), content: vec![Block::Text(text.into())], is_error: Some(false) }
}

/// The body and the repairs of a request over these turns; natives carry the state of their own answer.
fn encoded(adapter: &DeepSeek, effort: Option<&str>, turns: Vec<(Message, bool)>) -> (Value, Vec<Repair>) {
    let turns = turns.into_iter().map(|(message, native)| Turn { message, native }).collect();
    let request = Request {
        system: Some("Be brief.".into()),
        reasoning_effort: effort.map(str::to_owned),
        temperature: Some(0.5),
        ..Request::default()
    };
    let encoded = adapter.encode(&request, turns, &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!() };
    assert_eq!(http.url, "http://d.test/chat/completions");
    (serde_json::from_str(http.body.get()).unwrap(), encoded.repairs)
}

fn tool_turn() -> Vec<Block> {
    vec![
        Block::Reasoning("plan".into()),
        Block::ToolCall { id: "call_00_a".into(), name: "bash".into(), arguments: "{\"a\":1}".into() },
    ]
}

#[test]
fn in_thinking_mode_the_reasoning_of_own_answers_goes_back_and_that_of_others_does_not() {
    let turns = |native| {
        vec![
            (user(vec![Block::Text("q".into())]), false),
            (assistant(tool_turn()), native),
            (user(vec![result("call_00_a", "r")]), false),
        ]
    };
    for (effort, native, expected) in [
        (Some("high"), true, json!("plan")),
        (Some("high"), false, json!("")),
        (None, true, Value::Null),
        (None, false, Value::Null),
    ] {
        let (body, repairs) = encoded(&adapter(json!({})), effort, turns(native));
        assert_eq!(body["messages"][2]["reasoning_content"], expected, "{effort:?} {native}");
        assert_eq!(body["messages"][2]["tool_calls"][0]["id"], "call_00_a");
        assert_eq!(body["messages"][3], json!({"role": "tool", "content": "r", "tool_call_id": "call_00_a"}));
        assert!(repairs.is_empty());
    }
}

#[test]
fn thinking_is_switched_as_the_api_names_it() {
    for (model, effort, thinking, wire_effort, temperature) in [
        (json!({}), None, json!({"type": "disabled"}), Value::Null, json!(0.5)),
        (json!({}), Some("off"), json!({"type": "disabled"}), Value::Null, json!(0.5)),
        (json!({}), Some("minimal"), json!({"type": "enabled"}), json!("low"), Value::Null),
        (json!({}), Some("medium"), json!({"type": "enabled"}), json!("high"), Value::Null),
        (json!({}), Some("max"), json!({"type": "enabled"}), json!("max"), Value::Null),
        (json!({"thinking": false}), Some("high"), Value::Null, Value::Null, json!(0.5)),
    ] {
        let turns = vec![(user(vec![Block::Text("q".into())]), false)];
        let (body, _) = encoded(&adapter(model), effort, turns);
        assert_eq!(
            (&body["thinking"], &body["reasoning_effort"], &body["temperature"]),
            (&thinking, &wire_effort, &temperature),
            "{effort:?}"
        );
        assert_eq!(body["max_tokens"], 8192);
    }
    let request = Request { reasoning_effort: Some("huge".into()), ..Request::default() };
    let failure = adapter(json!({})).encode(&request, Vec::new(), &target()).unwrap_err();
    assert!(failure.code == FailureCode::Unsupported && failure.message.contains("xhigh"), "{failure}");
}

#[test]
fn what_the_api_cannot_take_is_repaired_and_reported() {
    let image = Block::Image(dsh_plugin_api::vocab::Image::Data { mime_type: "image/png".into(), data: "AA==".into() });
    let call = |id: &str, name: &str, arguments: &str| Block::ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let turns = vec![
        (user(vec![image.clone(), image.clone(), Block::Text("look".into())]), false),
        (assistant(vec![call("a|b", "a tool", "{\"x\":"), call("a|b", "t", "")]), false),
        (
            user(vec![
                result("a|b", "one"),
                Block::ToolResult { tool_call_id: "a|b".into(), content: vec![image], is_error: None },
            ]),
            false,
        ),
    ];
    let (body, repairs) = encoded(&adapter(json!({})), None, turns.clone());
    let kinds: Vec<_> = repairs.iter().map(|repair| (repair.message, repair.kind.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (0, "image-omitted"),
            (1, "tool-name-rewritten"),
            (1, "call-id-rewritten"),
            (1, "arguments-emptied"),
            (2, "image-omitted")
        ]
    );
    let calls = &body["messages"][2]["tool_calls"];
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    assert_eq!(
        (&body["messages"][3]["tool_call_id"], &body["messages"][4]["tool_call_id"]),
        (&calls[0]["id"], &calls[1]["id"])
    );
    assert_eq!(calls[0]["function"]["arguments"], "{}");

    let (body, repairs) = encoded(&adapter(json!({"images": true})), None, turns);
    assert!(repairs.iter().all(|repair| repair.kind != "image-omitted"));
    assert_eq!(body["messages"][1]["content"].as_array().unwrap().len(), 3);
    assert_eq!(body["messages"][5]["content"][1]["type"], "image_url");
}

#[test]
fn what_was_decoded_is_restored_and_sent_back() {
    let decoded = decode(&answer());
    let message = assistant(decoded.blocks.clone());
    let adapter = adapter(json!({}));
    let turn = adapter.restore(&message, &decoded.state.unwrap(), &target()).unwrap();
    let (body, repairs) = encoded(
        &adapter,
        Some("high"),
        vec![(user(vec![Block::Text("q".into())]), false), (turn.message, turn.native)],
    );
    assert!(repairs.is_empty());
    let sent = &body["messages"][2];
    assert_eq!((&sent["reasoning_content"], &sent["content"]), (&json!("plan éning"), &json!("Reading.")));
    assert_eq!(sent["tool_calls"][0]["function"]["arguments"], "{\"n\":12345678901234567890,\"n\":1}");
}

#[test]
fn a_state_that_this_adapter_would_not_have_written_is_refused() {
    let message = assistant(tool_turn());
    let sound = json!({"response": {"kind": "deepseek", "version": 1, "provider": "d", "model": "m", "stopReason": "toolUse"},
        "blocks": [{"type": "reasoning"}, {"type": "tool-call"}]});
    let restored = |state: &Value| {
        let state = ReplayEnvelope::parse(&raw(state)).unwrap();
        adapter(json!({})).restore(&message, &state, &target())
    };
    assert!(restored(&sound).is_ok());
    for (pointer, value, reason) in [
        ("/response/stopReason", json!(1), "response.stopReason is not a string"),
        ("/response/responseId", json!([]), "response.responseId is not a string"),
        ("/blocks/0/type", json!("text"), "blocks[0].type is \"text\" for a block of type \"reasoning\""),
        ("/blocks/1", json!(7), "blocks[1] is not an object"),
        ("/blocks", json!([{"type": "reasoning"}]), "the state has 1 block entries for 2 blocks"),
    ] {
        let mut state = sound.clone();
        match state.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => state["response"]["responseId"] = value,
        }
        let Err(InvalidReplay::Invalid(got)) = restored(&state) else { panic!("{pointer}") };
        assert_eq!(got, reason);
    }
}

#[test]
fn the_server_is_asked_for_its_models_and_its_list_can_be_written_down() {
    let config = json!({ "providers": { "own": { "base_url": "https://x.test/beta/", "credential": "KEY" } } });
    let adapter = DeepSeek::new(serde_json::from_value(config).unwrap()).unwrap();
    let request = adapter.models_request("own").unwrap();
    assert_eq!((request.method.as_str(), request.url.as_str()), ("GET", "https://x.test/beta/models"));
    let secret = dsh_plugin_api::vocab::HeaderValue::Credential { reference: "KEY".into(), prefix: "Bearer ".into() };
    assert!(request.headers.iter().any(|header| header.name == "authorization" && header.value == secret));

    let answered =
        |status, body: &str| adapter.models_response("own", &ResponseHead::Http { status, headers: Vec::new() }, body);
    let body = r#"{"object":"list","data":[{"id":"deepseek-chat","object":"model","owned_by":"deepseek"},
        {"id":"b","context_length":9,"max_output_tokens":3,"supports_image_in":true}]}"#;
    let page = answered(200, body).unwrap();
    let entries: Vec<Value> = page.models.iter().filter_map(|model| model.entry()).map(Value::Object).collect();
    let full = json!({ "id": "b", "context_window": 9, "max_tokens": 3, "images": true });
    assert_eq!(entries, [json!({ "id": "deepseek-chat" }), full]);
    let config = json!({ "providers": { "own": { "models": entries } } });
    assert!(DeepSeek::new(serde_json::from_value(config).unwrap()).is_ok());

    assert_eq!(answered(401, "{}").unwrap_err().code, FailureCode::Auth);
    assert_eq!(adapter.models_request("other").unwrap_err().code, FailureCode::UnknownModel);
}

#[test]
fn a_configuration_is_checked() {
    let made = |providers: Value| DeepSeek::new(serde_json::from_value(json!({"providers": providers})).unwrap());
    let route = &made(json!({"d": {"credential": "K"}})).unwrap().routes()[0];
    assert_eq!(route.origin.as_deref(), Some("https://api.deepseek.com"));
    for (providers, path) in [
        (json!({"a b": {}}), "providers.a b"),
        (json!({"d": {"base_url": "x"}}), "providers.d.base_url"),
        (json!({"d": {"credential": ""}}), "providers.d.credential"),
        (json!({"d": {"models": [{"id": " "}]}}), "providers.d.models[0].id"),
        (json!({"d": {"models": [{"id": "a"}, {"id": "a"}]}}), "providers.d.models[1].id"),
    ] {
        assert_eq!(made(providers).unwrap_err().path, path);
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_chunks(cuts in proptest::collection::vec(0usize..2000, 0..12)) {
        let body = answer();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % body.len()).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &body.as_bytes()[cut[0]..cut[1]]);
        prop_assert_eq!(decode_pieces(200, pieces, &StreamEnd::Complete).text(), decode(&body).text());
    }

    #[test]
    fn arbitrary_bytes_never_look_like_success(mut bytes: Vec<u8>, whole: bool) {
        if whole {
            let start = answer().replace("finish_reason\":\"tool_calls", "x\":\"y").replace("[DONE]", "");
            bytes.splice(0..0, start.into_bytes());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        prop_assume!(!replace_lone_surrogates(&text).contains("finish_reason\":\""));
        let decoded = decode_pieces(200, std::iter::once(&bytes[..]), &StreamEnd::Complete);
        prop_assert!(decoded.finish.failure().is_some(), "{:?}", decoded.finish);
    }
}
