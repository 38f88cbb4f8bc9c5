//! Response to chunks.

use dsh_plugin_api::vocab::Chunk;
use proptest::prelude::*;

use super::*;

#[test]
fn blocks_may_interleave_and_keep_their_order() {
    let tool = |index: u64, id: &str| start(index, json!({"type": "tool_use", "id": id, "name": "f", "input": {}}));
    let body = [
        message_start(),
        thinking(0, "a", "b", "SIG"),
        tool(2, "t2"),
        tool(1, "t1"),
        json_delta(1, "{\"n\":"),
        json_delta(2, "{\"m\":2}"),
        json_delta(1, "1}"),
        stop(2),
        stop(1),
        text(3, "done"),
        end("tool_use"),
    ];
    let decoded = decode(&body.concat());
    assert_eq!(
        decoded.content(),
        json!([
            {"type": "reasoning", "text": "ab"},
            {"type": "tool-call", "id": "t2", "name": "f", "arguments": "{\"m\":2}"},
            {"type": "tool-call", "id": "t1", "name": "f", "arguments": "{\"n\":1}"},
            {"type": "text", "text": "done"},
        ])
    );
    assert_eq!(
        decoded.entries(),
        json!([{"type": "reasoning", "thinkingSignature": "SIG"}, {"type": "tool-call"}, {"type": "tool-call"}, {"type": "text"}])
    );
    assert_eq!((decoded.outcome(), &decoded.response()["stopReason"]), ("tool-calls", &json!("toolUse")));
    assert_eq!(decoded.response()["responseId"], "msg_1");
    assert!(decoded.response().get("responseModel").is_none());
}

#[test]
fn how_it_ended() {
    let part = message_start() + &text(0, "par");
    let reason_alone = |reason: &str| end(reason).replace(&event(json!({"type": "message_stop"})), "");
    let server_tool = start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}));
    for (body, outcome) in [
        (part.clone() + &end("end_turn"), "stop"),
        (part.clone() + &end("stop_sequence"), "stop"),
        (part.clone() + &end("pause_turn"), "stop"),
        (part.clone() + &end("tool_use"), "stop"),
        (part.clone() + &end("compaction"), "stop"),
        (part.clone() + &end("something_new"), "stop"),
        (part.clone() + &call(1, "t", "f", "{}") + &end("end_turn"), "tool-calls"),
        (part.clone() + &call(1, "t", "f", "{}") + &end("something_new"), "tool-calls"),
        (part.clone() + &end("max_tokens"), "max-tokens"),
        (part.clone() + &end("model_context_window_exceeded"), "max-tokens"),
        (message_start() + &end("max_tokens"), "max-tokens"),
        (part.clone() + &end("refusal"), "REFUSED"),
        (part.clone() + &end("sensitive"), "REFUSED"),
        (part.clone() + &end("network_error"), "SERVER"),
        (part.clone() + &end("end_turn").replace("\"end_turn\"", "null"), "TRANSPORT"),
        (part.clone() + &reason_alone("end_turn"), "TRANSPORT"),
        (part.clone(), "TRANSPORT"),
        (part.clone() + "data: [DONE]\n\n", "TRANSPORT"),
        (part.clone() + "event: content_block_delta\ndata: {\"type\":\"conte", "TRANSPORT"),
        (part.clone() + "data: {broken}\n\n", "PROTOCOL"),
        (part.clone() + "data: 7\n\ndata:\n\ndata: {}\n\nevent: news\ndata: []\n\n" + &end("end_turn"), "stop"),
        (message_start() + &end("end_turn"), "EMPTY_RESPONSE"),
        (message_start() + &text(0, " \n") + &end("end_turn"), "EMPTY_RESPONSE"),
        (message_start() + &thinking(0, "a", "b", "S") + &end("end_turn"), "EMPTY_RESPONSE"),
        (message_start() + &server_tool + &json_delta(0, "{}") + &stop(0) + &end("end_turn"), "EMPTY_RESPONSE"),
        (start(0, json!({"type": "tool_use", "id": "t", "input": {}})) + &end("tool_use"), "PROTOCOL"),
        (part.clone() + &json_delta(1, "{}") + &end("tool_use"), "PROTOCOL"),
        (String::new(), "TRANSPORT"),
        ("<html><h1>Welcome</h1></html>".into(), "PROTOCOL"),
    ] {
        let decoded = decode(&body);
        assert_eq!(decoded.outcome(), outcome, "{body}");
        let failed_empty = decoded.finish.failure().is_some() && decoded.blocks.is_empty();
        assert_eq!(decoded.envelope.is_none(), failed_empty, "{body}");
    }
}

#[test]
fn a_refusal_says_why_and_keeps_what_was_said() {
    let refused = json!({"type": "message_delta", "delta": {"stop_reason": "refusal",
        "stop_details": {"type": "refusal", "explanation": "Not this."}}});
    let body = message_start() + &text(0, "So,") + &event(refused) + &event(json!({"type": "message_stop"}));
    let decoded = decode(&body);
    assert_eq!(decoded.finish.failure().unwrap().message, "Not this.");
    assert_eq!(decoded.content(), json!([{"type": "text", "text": "So,"}]));
}

#[test]
fn what_gateways_leave_out_or_repeat_changes_nothing() {
    let expected = json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Start rest"},
        {"type": "tool-call", "id": "t", "name": "f", "arguments": "{\"a\":1}"}]);
    let thought = |index: u64| delta(index, json!({"type": "thinking_delta", "thinking": "hm"}));
    let tool = start(2, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}));
    let usual = [
        message_start(),
        start(0, json!({"type": "thinking", "thinking": ""})),
        thought(0),
        signature(0, "SIG"),
        stop(0),
        start(1, json!({"type": "text", "text": "Start "})),
        text_delta(1, "rest"),
        stop(1),
        tool.clone(),
        json_delta(2, "{\"a\":1}"),
        stop(2),
        end("tool_use"),
    ];
    let usual = usual.concat();
    let no_names: String = usual.lines().filter(|line| !line.starts_with("event:")).map(|l| format!("{l}\n")).collect();
    let mut no_types = usual.clone();
    for kind in ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"] {
        no_types = no_types.replace(&format!("\"type\":\"{kind}\""), "\"more\":1");
    }
    let no_stops = usual.replace(&stop(0), "").replace(&stop(1), "").replace(&stop(2), "");
    let no_starts = usual
        .replace(&start(0, json!({"type": "thinking", "thinking": ""})), "")
        .replace(&start(1, json!({"type": "text", "text": "Start "})), &text_delta(1, "Start "));
    let twice = usual.replace(&tool, &(tool.clone() + &tool)).replace(&message_start(), &message_start().repeat(2));
    let start_twice = usual.replace(
        &start(0, json!({"type": "thinking", "thinking": ""})),
        &start(0, json!({"type": "thinking", "thinking": ""})).repeat(2),
    );
    let input_in_start = usual
        .replace(&json_delta(2, "{\"a\":1}"), "")
        .replace(&tool, &start(2, json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}})));
    let input_twice =
        usual.replace(&tool, &start(2, json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}})));
    let same_index = usual.replace("\"index\":1", "\"index\":0").replace("\"index\":2", "\"index\":0");
    let no_index = ["0", "1", "2"].iter().fold(usual.clone(), |body, n| body.replace(&format!("\"index\":{n},"), ""));
    let no_index = no_index.replace(",\"index\":0", "").replace("\"index\":0", "\"more\":0");
    let mixed_in =
        usual.replace(&stop(1), &(stop(1) + "data: [DONE]\n\n" + &delta(1, json!({"type": "citations_delta"}))));
    let late_signature = usual
        .replace(&signature(0, "SIG"), "")
        .replace(&stop(1), &(signature(0, "S") + &stop(1) + &signature(0, "IG")));
    for body in [
        usual,
        no_names,
        no_types,
        no_stops,
        no_starts,
        twice,
        start_twice,
        input_in_start,
        input_twice,
        same_index,
        no_index,
        mixed_in,
        late_signature,
    ] {
        let decoded = decode(&body);
        assert_eq!(decoded.content(), expected, "{body}");
        assert_eq!(decoded.outcome(), "tool-calls", "{body}");
        assert_eq!(
            decoded.entries(),
            json!([{"type": "reasoning", "thinkingSignature": "SIG"}, {"type": "text"}, {"type": "tool-call"}]),
            "{body}"
        );
    }
}

#[test]
fn a_piece_of_another_kind_begins_a_block_of_its_own() {
    let body = message_start()
        + &start(0, json!({"type": "text", "text": ""}))
        + &delta(0, json!({"type": "thinking_delta", "thinking": "hm"}))
        + &signature(0, "S")
        + &text_delta(0, "ok")
        + &end("end_turn");
    let decoded = decode(&body);
    assert_eq!(
        decoded.content(),
        json!([{"type": "text", "text": ""}, {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "ok"}])
    );
    assert_eq!(decoded.entries()[1]["thinkingSignature"], "S");
}

#[test]
fn a_call_without_arguments_or_id_is_complete() {
    for (block, arguments) in [
        (json!({"type": "tool_use", "id": "t", "name": "now", "input": {}}), "{}"),
        (json!({"type": "tool_use", "id": "t", "name": "now"}), ""),
        (json!({"type": "tool_use", "id": "t", "name": "now", "input": "x"}), ""),
    ] {
        let decoded = decode(&(message_start() + &start(0, block) + &json_delta(0, "") + &stop(0) + &end("tool_use")));
        assert_eq!(decoded.content()[0]["arguments"], arguments);
    }
    let nameless =
        start(0, json!({"type": "tool_use", "name": "a"})) + &start(1, json!({"type": "tool_use", "name": "b"}));
    let decoded = decode(&(message_start() + &nameless + &end("tool_use")));
    let ids: Vec<_> = decoded.content().as_array().unwrap().iter().map(|call| call["id"].clone()).collect();
    assert!(ids[0] != ids[1] && ids[0].as_str().unwrap().starts_with("call_"), "{ids:?}");
}

#[test]
fn arguments_keep_their_spelling() {
    let arguments = r#"{"n": 12345678901234567890123, "a": 1, "a": 2}"#;
    let object = format!(
        "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{arguments}}}}}\n\n"
    );
    for body in [call(0, "t", "f", arguments), object] {
        let decoded = decode(&(message_start() + &body + &end("tool_use")));
        assert_eq!(decoded.content()[0]["arguments"], arguments, "{body}");
    }
}

#[test]
fn hidden_thinking_is_stored_with_its_data() {
    let body = message_start()
        + &start(0, json!({"type": "redacted_thinking", "data": "EmwK/+=="}))
        + &stop(0)
        + &text(1, "ok")
        + &end("end_turn");
    let decoded = decode(&body);
    assert_eq!(decoded.content()[0], json!({"type": "reasoning", "text": "[Reasoning redacted]"}));
    assert_eq!(
        decoded.entries(),
        json!([{"type": "reasoning", "thinkingSignature": "EmwK/+==", "redacted": true}, {"type": "text"}])
    );
}

#[test]
fn a_pair_of_surrogates_is_joined_and_a_lone_one_replaced() {
    let raw = |text: &str| {
        format!(
            "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        )
    };
    let body = start(0, json!({"type": "text", "text": ""})) + &raw("a\\ud83d") + &raw("\\ude00b\\ud83d") + &stop(0);
    let decoded = decode(&(message_start() + &body + &end("end_turn")));
    assert_eq!(decoded.content()[0]["text"], "a😀b\u{fffd}");
}

#[test]
fn an_event_with_a_bare_control_character_is_mended() {
    let body = message_start() + &text(0, "@") + &end("end_turn");
    assert_eq!(decode(&body.replace('@', "tab\there")).content()[0]["text"], "tab\there");
}

#[test]
fn counts_come_from_both_ends_and_stay_disjoint() {
    let stop = event(json!({"type": "message_stop"}));
    let ended = |usage: Value| {
        let delta = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
        message_start() + &text(0, "a") + &event(delta) + &stop
    };
    for (usage, expected) in [
        (json!({"output_tokens": 42}), (25, 42, Some(2000), Some(100), None)),
        (
            json!({"output_tokens": 9, "input_tokens": null, "output_tokens_details": {"thinking_tokens": 4}}),
            (25, 9, Some(2000), Some(100), Some(4)),
        ),
        (
            json!({"output_tokens": "7", "input_tokens": 3, "cache_read_input_tokens": 0, "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 6}}),
            (3, 7, Some(0), Some(11), None),
        ),
        (Value::Null, (25, 1, Some(2000), Some(100), None)),
    ] {
        let counts = decode(&ended(usage.clone())).usage.unwrap();
        let got = (
            counts.input_tokens,
            counts.output_tokens,
            counts.cache_read_tokens,
            counts.cache_write_tokens,
            counts.reasoning_tokens,
        );
        assert_eq!(got, expected, "{usage}");
    }
}

#[test]
fn an_error_in_the_stream_is_classed_and_carries_its_request_id() {
    for (kind, message, code) in [
        ("overloaded_error", "Overloaded", "SERVER"),
        ("api_error", "Internal server error", "SERVER"),
        ("rate_limit_error", "slow down", "RATE_LIMIT"),
        ("authentication_error", "no", "AUTH"),
        ("permission_error", "no", "AUTH"),
        ("billing_error", "no", "QUOTA"),
        ("invalid_request_error", "Your credit balance is too low", "QUOTA"),
        ("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum", "CONTEXT_WINDOW_EXCEEDED"),
        ("invalid_request_error", "bad", "INVALID_REQUEST"),
        ("request_too_large", "too large", "INVALID_REQUEST"),
        ("not_found_error", "model: x", "INVALID_REQUEST"),
    ] {
        let data = json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"});
        for head in [String::new(), message_start() + &text(0, "par")] {
            let decoded = decode(&(head + &event(data.clone())));
            let failure = decoded.finish.failure().unwrap();
            assert_eq!((failure.code.name(), failure.message.as_str()), (code, message), "{kind}");
            assert_eq!(failure.request_id.as_deref(), Some("req_1"));
        }
    }
    for data in
        ["event: error\ndata: upstream is gone\n\n", "event: error\ndata: {\"message\":\"upstream is gone\"}\n\n"]
    {
        let decoded = decode(&(message_start() + data));
        let failure = decoded.finish.failure().unwrap();
        assert_eq!((failure.code.name(), failure.message.as_str()), ("SERVER", "upstream is gone"));
    }
}

#[test]
fn a_whole_json_answer_is_read_like_a_stream() {
    let answer = |content: Value, reason: Value| {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m-2", "content": content,
            "stop_reason": reason, "usage": {"input_tokens": 5, "output_tokens": 1}})
        .to_string()
    };
    let blocks = json!([{"type": "thinking", "thinking": "hm", "signature": "SIG"}, {"type": "text", "text": "hello"},
        {"type": "web_search_tool_result"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]);
    let decoded = decode(&answer(blocks, json!("tool_use")));
    assert_eq!((decoded.outcome(), decoded.blocks.len()), ("tool-calls", 3));
    assert_eq!(decoded.content()[2]["arguments"], "{\"a\":1}");
    assert_eq!(decoded.entries()[0]["thinkingSignature"], "SIG");
    assert_eq!(decoded.response()["responseModel"], "m-2");
    let text = json!([{"type": "text", "text": "hello"}]);
    for (body, outcome, blocks) in [
        (answer(text.clone(), Value::Null), "stop", 1),
        (format!("\u{feff} \n{}", answer(text.clone(), json!("max_tokens"))), "max-tokens", 1),
        (answer(json!([]), json!("end_turn")), "EMPTY_RESPONSE", 0),
        (answer(text, json!("end_turn")).replace("]", ""), "PROTOCOL", 0),
        (r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#.into(), "SERVER", 0),
        (r#"[{"error":{"message":"m","code":429}}]"#.into(), "RATE_LIMIT", 0),
        (r#"{"status":"ok"}"#.into(), "PROTOCOL", 0),
        ("{\"content\":[{\"type\":\"text\",\"te".into(), "TRANSPORT", 0),
    ] {
        let decoded = decode(&body);
        assert_eq!((decoded.outcome(), decoded.blocks.len()), (outcome, blocks), "{body}");
    }
}

#[test]
fn an_interrupted_answer_keeps_closed_blocks_with_their_entries() {
    let open = start(1, json!({"type": "thinking", "thinking": ""})) + &signature(1, "PART");
    let body = message_start() + &thinking(0, "a", "b", "SIG") + &open + &text_delta(2, "half an ans");
    for (end, code) in [
        (StreamEnd::Complete, "TRANSPORT"),
        (StreamEnd::Cut("reset".into()), "TRANSPORT"),
        (StreamEnd::TimedOut("silence".into()), "TIMEOUT"),
    ] {
        let decoded = decode_as((200, &[("request-id", "req")]), body.as_bytes(), 5, &end);
        assert_eq!(decoded.outcome(), code);
        assert_eq!(decoded.finish.failure().unwrap().request_id.as_deref(), Some("req"));
        assert_eq!(
            decoded.entries(),
            json!([{"type": "reasoning", "thinkingSignature": "SIG"}, {"type": "reasoning"}, {"type": "text"}])
        );
        assert_eq!(decoded.response()["stopReason"], "stop");
        assert!(!decoded.chunks.iter().any(|chunk| matches!(chunk, Chunk::BlockEnd { index: 1.., .. })));
    }
}

#[test]
fn a_signature_that_is_cut_off_after_its_block_is_not_stored() {
    let body = message_start() + &thinking(0, "a", "b", "SI") + &signature(0, "G");
    assert_eq!(decode(&body).entries(), json!([{"type": "reasoning"}]));
    assert_eq!(decode(&(body + &text(1, "x") + &end("end_turn"))).entries()[0]["thinkingSignature"], "SIG");
}

#[test]
fn the_end_is_not_awaited_after_the_terminal_event() {
    assert!(adapter(json!({}), json!({})).is_over_after(&text_stream(20)));
}

#[test]
fn a_refused_request_carries_what_the_head_and_body_say() {
    let headers = [("retry-after", "7"), ("content-type", "application/json")];
    let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_2"}"#;
    for split in [1, 4, usize::MAX] {
        let decoded = decode_as((529, &headers), body, split, &StreamEnd::Complete);
        let failure = decoded.finish.failure().unwrap();
        assert_eq!((failure.code.name(), failure.status), ("SERVER", Some(529)));
        assert_eq!((failure.provider_retry_after_ms, failure.request_id.as_deref()), (Some(7000), Some("req_2")));
    }
}

/// Streams of sound and broken pieces.
fn stream() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(message_start()),
        Just(text(0, "tex\u{e9}t")),
        Just("data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"x\\ud83d\"}}\n\n".to_owned()),
        Just(
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"text\":\"\\ude00y\"}}\r\n\r\n".to_owned()
        ),
        Just(thinking(1, "a", "b", "SIG")),
        Just(signature(1, "LATE")),
        Just(call(2, "t", "f", "{\"a\":1}")),
        Just(start(2, json!({"type": "tool_use", "id": "u", "name": "g", "input": {"b": 2}}))),
        Just(json_delta(2, "{\"c\":")),
        Just(start(3, json!({"type": "redacted_thinking", "data": "BLOB"}))),
        Just(stop(2)),
        Just(": keep-alive\r\r".to_owned()),
        Just("event: content_block_stop\ndata: {\ndata: \"index\":0}\n\n".to_owned()),
        Just(event(json!({"type": "error", "error": {"message": "m"}}))),
        Just("data: {broken\n\n".to_owned()),
        Just(end("end_turn")),
        Just(event(json!({"type": "message_stop"}))),
    ];
    (proptest::collection::vec(piece, 0..10), "(\u{feff})?[ \n]{0,2}")
        .prop_map(|(pieces, first)| first + &pieces.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_chunks(body in stream(), split in 1usize..12, cut: bool) {
        let end = if cut { StreamEnd::Cut("reset".into()) } else { StreamEnd::Complete };
        let whole = decode_as((200, &[]), body.as_bytes(), usize::MAX, &end);
        let pieces = decode_as((200, &[]), body.as_bytes(), split, &end);
        prop_assert_eq!(whole.text(), pieces.text());
        prop_assert!(whole.finish.failure().is_some() || body.contains("message_stop"));
    }

    #[test]
    fn a_stream_that_lost_its_end_never_looks_like_success(body in stream(), keep in 0usize..2000) {
        let body = body.replace("message_stop", "message_stopp");
        let cut = &body.as_bytes()[..keep.min(body.len())];
        let decoded = decode_as((200, &[]), cut, 7, &StreamEnd::Complete);
        prop_assert!(decoded.finish.failure().is_some());
    }

    #[test]
    fn arbitrary_bytes_never_look_like_an_answer(
        prefix in "(data: |event: message_stop\n|event: error\n|\\{|\\[|data: \\{\"type\":\")?",
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        status in prop_oneof![Just(200u16), 100u16..600],
        split in 1usize..20,
    ) {
        let body = [prefix.as_bytes(), &bytes].concat();
        let decoded = decode_as((status, &[]), &body, split, &StreamEnd::Complete);
        prop_assert!(decoded.finish.failure().is_some());
        prop_assert!(decoded.blocks.is_empty());
    }
}
