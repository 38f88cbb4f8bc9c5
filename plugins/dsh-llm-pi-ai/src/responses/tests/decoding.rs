//! Bytes to chunks.

use proptest::prelude::*;

use super::*;

fn signature(decoded: &Decoded, at: usize, name: &str) -> Value {
    serde_json::from_str(decoded.entries()[at][name].as_str().unwrap()).unwrap()
}

#[test]
fn half_a_character_is_text() {
    for text in ["\\ud83d", " \\ud83d"] {
        let decoded = decode(&(delta("output_text", 0, "@").replace('@', text) + &completed()));
        assert_eq!(decoded.finish, FinishReason::Stop, "{text}");
        assert_eq!(decoded.content(), json!([{"type": "text", "text": text.replace("\\ud83d", "\u{fffd}")}]));
    }
}

#[test]
fn a_long_answer_is_its_deltas() {
    let decoded = decode(&long_stream(40));
    assert_eq!(decoded.content(), json!([{"type": "text", "text": "a word or two ".repeat(40)}]));
    let deltas = decoded.chunks.iter().filter(|chunk| matches!(chunk, Chunk::TextDelta { .. })).count();
    assert_eq!((decoded.outcome(), deltas), ("stop", 40));
    assert_eq!(decoded.response()["responseId"], "resp_1");
}

#[test]
fn reasoning_is_stored_as_the_item_that_was_done() {
    let item = reasoning("rs_1", &["**Plan** a", "**Check** b"], "ENC==");
    let part = |n: usize, text: &str| {
        event(
            &json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": n, "delta": text}),
        )
    };
    let body = [
        added(0, &reasoning("rs_1", &[], "ENC_partial")),
        part(0, "**Plan**"),
        part(0, " a"),
        part(1, "**Check** b"),
        done(0, &item),
        done(1, &message("msg_1", "Done.")),
        completed(),
    ];
    let decoded = decode(&body.concat());
    assert_eq!(decoded.content()[0], json!({"type": "reasoning", "text": "**Plan** a\n\n**Check** b"}));
    assert_eq!(signature(&decoded, 0, "thinkingSignature"), item);
    assert_eq!(signature(&decoded, 1, "textSignature"), json!({"v": 1, "id": "msg_1"}));
}

#[test]
fn encrypted_reasoning_that_comes_with_the_end_is_added() {
    let mut bare = reasoning("rs_1", &["a"], "");
    bare.as_object_mut().unwrap().remove("encrypted_content");
    for listed in [reasoning("rs_1", &["a"], "ENC"), reasoning("rs_other", &["a"], "ENC")] {
        let output = json!({"output": [listed, message("msg_1", "x")]});
        let decoded = decode(&[done(0, &bare), done(1, &message("msg_1", "x")), end("completed", output)].concat());
        assert_eq!(signature(&decoded, 0, "thinkingSignature")["encrypted_content"], "ENC");
        assert_eq!(decoded.blocks.len(), 2);
    }
    let known = reasoning("rs_1", &["a"], "FIRST");
    let output = json!({"output": [reasoning("rs_1", &["a"], "SECOND")]});
    let decoded = decode(&[done(0, &known), done(1, &message("m", "x")), end("completed", output)].concat());
    assert_eq!(signature(&decoded, 0, "thinkingSignature"), known);
}

/// The same answer, told in many ways.
#[test]
fn an_answer_is_read_whatever_a_gateway_leaves_out() {
    let call = function_call("1", r#"{"a":1}"#);
    let call_head =
        json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "bash", "arguments": ""});
    let message_head = json!({"id": "msg_1", "type": "message", "content": []});
    let arguments = |name: &str, text: &str| {
        let member = if name == "done" { "arguments" } else { "delta" };
        event(&json!({"type": format!("response.function_call_arguments.{name}"), "output_index": 1, member: text}))
    };
    let text = |more: Value| {
        let mut data = json!({"type": "response.output_text.delta"});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event(&data)
    };
    let hi = message("msg_1", "Hi 😀");
    let listed = end("completed", json!({"output": [hi, call]}));
    let calls = added(1, &call_head) + &arguments("delta", "{\"a\"") + &arguments("delta", ":1}") + &done(1, &call);
    for (name, body) in [
        ("only the end lists the items", listed.clone()),
        ("items are done without being announced", done(0, &hi) + &done(1, &call) + &completed()),
        ("the end repeats the items", done(0, &hi) + &done(1, &call) + &listed),
        (
            "deltas and nothing done",
            added(0, &message_head)
                + &delta("output_text", 0, "Hi 😀")
                + &added(1, &call_head)
                + &arguments("delta", "{\"a\":1}")
                + &completed(),
        ),
        ("nothing but what was announced", added(0, &hi) + &added(1, &call) + &completed()),
        (
            "half of the text in deltas",
            added(0, &message_head) + &delta("output_text", 0, "Hi") + &done(0, &hi) + &calls + &completed(),
        ),
        (
            "other deltas than the item says",
            added(0, &message_head) + &delta("output_text", 0, "Ho") + &done(0, &hi) + &calls + &completed(),
        ),
        (
            "arguments only when complete",
            done(0, &hi) + &added(1, &call_head) + &arguments("done", "{\"a\":1}") + &completed(),
        ),
        (
            "neither index nor id",
            added(0, &message_head)
                + &text(json!({"delta": "Hi "}))
                + &text(json!({"delta": "😀"}))
                + &done(0, &hi)
                + &calls
                + &completed(),
        ),
        (
            "another id in every event",
            added(0, &message_head)
                + &text(json!({"delta": "Hi ", "item_id": "x", "output_index": 0}))
                + &text(json!({"delta": "😀", "item_id": "y", "output_index": 0}))
                + &done(0, &hi)
                + &calls
                + &completed(),
        ),
        (
            "a pair split between deltas",
            added(0, &message_head)
                + &text(json!({"delta": "Hi @1", "output_index": 0})).replace("@1", "\\ud83d")
                + &text(json!({"delta": "@2", "output_index": 0})).replace("@2", "\\ude00")
                + &done(0, &hi)
                + &calls
                + &completed(),
        ),
        (
            "an item announced twice",
            added(0, &message_head).repeat(2)
                + &delta("output_text", 0, "Hi 😀")
                + &done(0, &hi).repeat(2)
                + &calls
                + &completed(),
        ),
        (
            "a delta before its item",
            delta("output_text", 0, "Hi 😀") + &added(0, &message_head) + &done(0, &hi) + &calls + &completed(),
        ),
        (
            "unknown events and items between",
            done(0, &hi)
                + &done(7, &json!({"type": "web_search_call", "id": "ws_1"}))
                + &event(&json!({"type": "response.new_thing", "x": [1]}))
                + "data: 7\n\n: ping\n\ndata: {\"type\":\"keepalive\"}\n\n"
                + &calls
                + &completed(),
        ),
        (
            "the name of events only beside their data",
            (done(0, &hi) + &calls + &completed())
                .replace("\"type\":\"response.output_item.done\"", "\"x\":1")
                .replace("\"type\":\"response.completed\"", "\"x\":1"),
        ),
        (
            "the name of events only in their data",
            (done(0, &hi) + &calls + &completed())
                .lines()
                .filter(|line| !line.starts_with("event:"))
                .map(|line| format!("{line}\r\n"))
                .collect(),
        ),
        (
            "a whole JSON answer",
            json!({"id": "resp_1", "object": "response", "status": "completed", "error": null, "output": [hi, call]})
                .to_string(),
        ),
        ("a whole JSON answer without status", json!({"id": "resp_1", "output": [hi, call]}).to_string()),
    ] {
        let decoded = decode(&body);
        let expected = json!([{"type": "text", "text": "Hi 😀"},
            {"type": "tool-call", "id": "call_1|fc_1", "name": "bash", "arguments": r#"{"a":1}"#}]);
        assert_eq!((decoded.outcome(), decoded.content()), ("tool-calls", expected), "{name}");
        assert_eq!(signature(&decoded, 0, "textSignature")["id"], "msg_1", "{name}");
        assert_eq!(decoded.entries()[1], json!({"type": "tool-call"}), "{name}");
    }
}

#[test]
fn items_at_one_place_are_told_apart_by_their_ids() {
    let body = [
        added(0, &message("msg_1", "")),
        done(0, &message("msg_1", "a")),
        done(0, &message("msg_2", "b")),
        completed(),
    ];
    assert_eq!(decode(&body.concat()).content(), json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]));
}

#[test]
fn interleaved_calls_keep_their_arguments_and_ids_may_be_missing() {
    let head = |id: Value, call_id: Value| json!({"type": "function_call", "id": id, "call_id": call_id, "name": "f"});
    let arguments = |index: usize, text: &str| delta("function_call_arguments", index, text);
    let body = [
        added(0, &head(json!("fc_1"), json!("call_1"))),
        added(1, &head(json!(null), json!("call_2"))),
        added(2, &head(json!("fc_3"), json!(null))),
        added(3, &head(json!(null), json!(null))),
        arguments(1, "{\"n\":"),
        arguments(0, "{}"),
        arguments(1, "12345678901234567890123}"),
        completed(),
    ];
    let decoded = decode(&body.concat());
    let ids: Vec<_> = decoded.content().as_array().unwrap().iter().map(|block| block["id"].clone()).collect();
    assert_eq!(ids[..3], [json!("call_1|fc_1"), json!("call_2"), json!("fc_3")]);
    assert!(ids[3].as_str().unwrap().starts_with("call_"));
    assert_eq!(decoded.content()[1]["arguments"], "{\"n\":12345678901234567890123}");
}

#[test]
fn arguments_as_an_object_keep_their_spelling() {
    let object = r#"{"n":12345678901234567890123,"a":1,"a":2}"#;
    let body = done(0, &function_call("1", "@")).replace("\"@\"", object) + &completed();
    assert_eq!(decode(&body).content()[0]["arguments"], object);
}

#[test]
fn how_it_ended() {
    let text = || done(0, &message("msg_1", "par"));
    let incomplete = |reason: Value| end("incomplete", json!({"incomplete_details": {"reason": reason}}));
    let failed = |error: Value| end("failed", json!({"error": error}));
    let error = |data: Value| event(&data);
    for (body, outcome) in [
        (text() + &completed(), "stop"),
        (text() + &end("done", json!({})), "stop"),
        (text() + &incomplete(json!("max_output_tokens")), "max-tokens"),
        (text() + &incomplete(json!("something_new")), "max-tokens"),
        (text() + &end("incomplete", json!({})), "max-tokens"),
        (text() + &incomplete(json!("content_filter")), "REFUSED"),
        (text() + &end("completed", json!({"status": "in_progress"})), "stop"),
        (text() + &end("completed", json!({"status": "incomplete"})), "max-tokens"),
        (text() + &end("completed", json!({"status": "failed", "error": {"message": "m"}})), "SERVER"),
        (text() + &end("cancelled", json!({})), "SERVER"),
        (failed(json!({"code": "server_error", "message": "m"})), "SERVER"),
        (failed(json!({"code": "rate_limit_exceeded", "message": "m"})), "RATE_LIMIT"),
        (failed(json!({"code": "insufficient_quota", "message": "m"})), "QUOTA"),
        (failed(json!({"code": "context_length_exceeded", "message": "m"})), "CONTEXT_WINDOW_EXCEEDED"),
        (failed(json!({"code": "invalid_prompt", "message": "m"})), "INVALID_REQUEST"),
        (failed(json!({"code": "image_content_policy_violation", "message": "m"})), "REFUSED"),
        (failed(json!(null)), "SERVER"),
        (
            text() + &error(json!({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": null})),
            "RATE_LIMIT",
        ),
        (
            text() + &error(json!({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}})),
            "INVALID_REQUEST",
        ),
        (text() + &error(json!({"type": "error"})), "SERVER"),
        (text() + "data: {\"error\":{\"message\":\"m\",\"code\":502}}\n\n", "SERVER"),
        (text() + "event: error\ndata: upstream is gone\n\n", "SERVER"),
        (text(), "TRANSPORT"),
        (text() + "data: [DONE]\n\n", "TRANSPORT"),
        (text() + "data: {\"type\":\"response.comp", "TRANSPORT"),
        (text() + "data: {\"type\":\n\n", "PROTOCOL"),
        (completed(), "EMPTY_RESPONSE"),
        (done(0, &message("msg_1", " \n")) + &completed(), "EMPTY_RESPONSE"),
        (done(0, &reasoning("rs_1", &["a"], "E")) + &completed(), "EMPTY_RESPONSE"),
        (done(0, &json!({"type": "function_call", "call_id": "c", "arguments": "{}"})) + &completed(), "PROTOCOL"),
        (
            done(0, &json!({"id": "m", "type": "message", "content": [{"type": "refusal", "refusal": "No."}]}))
                + &completed(),
            "stop",
        ),
        (delta("refusal", 0, "No.") + &completed(), "stop"),
        (json!({"status": "in_progress", "output": []}).to_string(), "PROTOCOL"),
        (
            json!({"status": "failed", "error": {"message": "m", "code": "server_error"}, "output": []}).to_string(),
            "SERVER",
        ),
        (json!({"error": {"message": "m", "code": 429}}).to_string(), "RATE_LIMIT"),
        ("{\"output\":[".to_owned(), "TRANSPORT"),
        ("{\"status\":\"ok\"}".to_owned(), "PROTOCOL"),
        ("<html>Welcome</html>".to_owned(), "PROTOCOL"),
        (String::new(), "TRANSPORT"),
    ] {
        let decoded = decode(&body);
        assert_eq!(decoded.outcome(), outcome, "{body}");
        assert_eq!(decoded.envelope.is_some(), !decoded.blocks.is_empty(), "{body}");
    }
}

#[test]
fn counts_are_disjoint() {
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}});
    let details = json!({"reason": "max_output_tokens"});
    for end in [
        end("completed", json!({"usage": usage})),
        end("incomplete", json!({"usage": usage, "incomplete_details": details})),
        end("failed", json!({"usage": usage})),
    ] {
        let counts = decode(&(done(0, &message("m", "a")) + &end)).usage.unwrap();
        let read = (counts.input_tokens, counts.cache_read_tokens, counts.cache_write_tokens);
        assert_eq!(read, (30, Some(60), Some(10)));
        assert_eq!((counts.output_tokens, counts.reasoning_tokens), (9, Some(4)));
    }
    assert!(decode(&(done(0, &message("m", "a")) + &end("completed", json!({"usage": null})))).usage.is_none());
}

#[test]
fn the_end_of_the_connection_is_not_awaited() {
    for end in [completed(), end("incomplete", json!({})), end("failed", json!({}))] {
        assert!(adapter(json!({}), json!({})).is_over_after(&(done(0, &message("m", "a")) + &end)), "{end}");
    }
}

#[test]
fn an_interrupted_answer_keeps_closed_blocks_with_their_entries() {
    let item = reasoning("rs_1", &["plan"], "ENC");
    let body = done(0, &item) + &added(1, &message("msg_1", "")) + &delta("output_text", 1, "half an ans");
    for (end, code) in [
        (StreamEnd::Complete, "TRANSPORT"),
        (StreamEnd::Cut("reset".into()), "TRANSPORT"),
        (StreamEnd::TimedOut("silence".into()), "TIMEOUT"),
    ] {
        let decoded = decode_as((200, &[("x-request-id", "req")]), body.as_bytes(), 5, &end);
        assert_eq!(decoded.outcome(), code);
        assert_eq!(decoded.finish.failure().unwrap().request_id.as_deref(), Some("req"));
        assert_eq!(signature(&decoded, 0, "thinkingSignature"), item);
        assert_eq!(decoded.entries()[1], json!({"type": "text"}));
        assert_eq!(decoded.response()["stopReason"], "stop");
    }
}

#[test]
fn reasoning_that_was_cut_off_has_no_signature() {
    let body = added(0, &reasoning("rs_1", &[], "ENC_partial")) + &delta("reasoning_summary_text", 0, "pla");
    for end in [end("incomplete", json!({})), String::new()] {
        assert_eq!(decode(&(body.clone() + &end)).entries(), json!([{"type": "reasoning"}]));
    }
}

fn stream() -> impl Strategy<Value = String> {
    let event = prop_oneof![
        Just(added(0, &json!({"id": "msg_1", "type": "message", "content": []}))),
        Just(delta("output_text", 0, "tex\u{e9}t ")),
        Just("data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\\ud83d\"}\r\n\r\n".to_owned()),
        Just("data: {\"type\":\"response.output_text.delta\",\"delta\":\"\\ude00y\"}\n\n".to_owned()),
        Just(done(0, &message("msg_1", "tex\u{e9}t "))),
        Just(added(1, &reasoning("rs_1", &[], ""))),
        Just(delta("reasoning_summary_text", 1, "think")),
        Just(done(1, &reasoning("rs_1", &["think", "more"], "E"))),
        Just(added(2, &function_call("1", ""))),
        Just(delta("function_call_arguments", 2, "{\"a\":")),
        Just(done(2, &function_call("1", "{\"a\":1}"))),
        Just(": keep-alive\r\r".to_owned()),
        Just("data: {broken\n\n".to_owned()),
        Just(event(&json!({"type": "error", "message": "m"}))),
        Just(end("incomplete", json!({}))),
        Just(end("completed", json!({"output": [message("msg_1", "text"), function_call("2", "{}")]}))),
    ];
    (proptest::collection::vec(event, 0..9), "(\u{feff})?[ \n]{0,2}")
        .prop_map(|(events, start)| start + &events.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_chunks(body in stream(), split in 1usize..12, cut: bool) {
        let end = if cut { StreamEnd::Cut("reset".into()) } else { StreamEnd::Complete };
        let whole = decode_as((200, &[]), body.as_bytes(), usize::MAX, &end);
        let pieces = decode_as((200, &[]), body.as_bytes(), split, &end);
        prop_assert_eq!(whole.text(), pieces.text());
        let terminal = body.contains("response.completed") || body.contains("response.incomplete");
        prop_assert!(terminal || whole.finish.failure().is_some());
    }

    #[test]
    fn a_mutated_stream_never_panics(body in stream(), at: prop::sample::Index, byte: u8, split in 1usize..9) {
        let mut bytes = body.into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = decode_as((200, &[]), &bytes, usize::MAX, &StreamEnd::Complete);
        prop_assert_eq!(whole.text(), decode_as((200, &[]), &bytes, split, &StreamEnd::Complete).text());
    }

    #[test]
    fn arbitrary_bytes_never_look_like_an_answer(
        prefix in "(data: |event: response.completed\n|\\{|\\[|data: \\{\"type\":)?",
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
