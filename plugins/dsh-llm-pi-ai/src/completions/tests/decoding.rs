//! Bytes to chunks.

use dsh_plugin_api::StreamEnd;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn call(index: Option<u64>, id: &str, name: &str, arguments: &str) -> String {
    let mut call = json!({"type": "function", "function": {"arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if !id.is_empty() {
        call["id"] = json!(id);
    }
    if !name.is_empty() {
        call["function"]["name"] = json!(name);
    }
    delta(json!({"tool_calls": [call]}))
}

#[test]
fn blocks_keep_the_order_in_which_they_came() {
    let decoded = decode(
        &[
            delta(json!({"reasoning": "one"})),
            delta(json!({"content": "Intro. "})),
            delta(json!({"reasoning": "two"})),
            call(Some(0), "c1", "bash", "{}"),
            delta(json!({"content": "Outro."})),
            end("tool_calls"),
        ]
        .concat(),
    );
    assert_eq!(
        decoded.content(),
        json!([
            {"type": "reasoning", "text": "one"},
            {"type": "text", "text": "Intro. "},
            {"type": "reasoning", "text": "two"},
            {"type": "tool-call", "id": "c1", "name": "bash", "arguments": "{}"},
            {"type": "text", "text": "Outro."},
        ])
    );
    assert_eq!(decoded.outcome(), "tool-calls");
    assert_eq!(decoded.response()["stopReason"], "toolUse");
    assert_eq!(decoded.entries()[2], json!({"type": "reasoning", "thinkingSignature": "reasoning"}));
}

#[test]
fn white_space_before_an_answer_costs_nothing_and_changes_nothing() {
    let answer = [delta(json!({"content": "hi"})), end("stop")].concat();
    let json = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let begun = std::time::Instant::now();
    for (blanks, body, outcome) in [
        ("\n", &*answer, "stop"),
        ("\r\n", &answer, "stop"),
        (" \n", &answer, "stop"),
        (" ", json, "stop"),
        // A field name that begins with a blank is no field: the rest of that line is lost.
        (" ", &format!("data: lost\n\n{answer}"), "stop"),
    ] {
        let body = blanks.repeat(4_000_000) + body;
        let decoded = decode_as((200, &[]), body.as_bytes(), 4096, &StreamEnd::Complete);
        assert_eq!(
            (decoded.outcome(), decoded.content()),
            (outcome, json!([{"type": "text", "text": "hi"}])),
            "{blanks:?}"
        );
    }
    // Looked at again with every piece, so much takes minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[test]
fn blanks_before_an_answer_mean_the_same_however_they_come() {
    let json = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    let events = delta(json!({"content": "hi"})) + &end("stop");
    for (body, outcome) in [
        // A byte-order mark is one only where a body begins.
        (format!("\n\u{feff}{json}"), "PROTOCOL"),
        (format!("\r\n\u{feff}{events}"), "EMPTY_RESPONSE"),
        (format!("\u{feff}\r\n \t{json}"), "stop"),
        (format!("\u{feff}\r\n{events}"), "stop"),
        // However long they are, what stands behind them is seen.
        (format!("{}no such page", "\n".repeat(5000)), "PROTOCOL"),
    ] {
        assert_eq!(decode(&body).outcome(), outcome, "{body:?}");
    }
}

#[test]
fn half_a_character_is_text() {
    assert_eq!(decode(&(delta(json!({"content": "@"})).replace('@', r"\ud83d") + &end("stop"))).outcome(), "stop");
}

#[test]
fn an_answer_of_very_many_blocks_takes_linear_time() {
    let many = 10_000;
    let begun = std::time::Instant::now();
    let calls_by_index: String = (0..many).map(|n| call(Some(n), &format!("c{n}"), "bash", "{}")).collect();
    let calls_by_id: String = (0..many).map(|n| call(None, &format!("c{n}"), "bash", "{}")).collect();
    let turns: String =
        (0..many / 2).flat_map(|_| [delta(json!({"reasoning": "a"})), delta(json!({"content": "b"}))]).collect();
    let detail =
        |n| json!({"reasoning_details": [{"type": "reasoning.encrypted", "id": format!("c{n}"), "data": "x"}]});
    let details: String = (0..many).map(|n| delta(detail(n))).collect();
    let unowned = |n| json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": n}]});
    let late: String = (0..many).map(|n| delta(unowned(n))).collect();
    let late = format!("{}{}{late}", delta(json!({"reasoning": "a"})), delta(json!({"content": "b"})));
    // Each of them asks whether the call before it is complete.
    let pieces: String = (0..many).map(|_| call(Some(0), "", "bash", "{")).collect();
    let named = format!("{}{pieces}", call(Some(0), "c0", "bash", &format!("{{\"a\":\"{}", "x".repeat(1 << 20))));
    for (body, blocks) in [
        (format!("{calls_by_index}{details}"), many),
        (calls_by_id, many),
        (turns, many),
        (format!("{details}{}", delta(json!({"content": "b"}))), 2),
        (late, 2),
        (named, 1),
    ] {
        let decoded = decode_as((200, &[]), (body + &end("stop")).as_bytes(), 16384, &StreamEnd::Complete);
        assert_eq!(decoded.blocks.len() as u64, blocks);
    }
    // In squared time it is minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(40), "{:?}", begun.elapsed());
}

#[test]
fn an_error_within_errors_ends_somewhere() {
    let depth = 50_000;
    let nested = r#"{"error":"#.repeat(depth) + "1" + &"}".repeat(depth);
    let decoded = decode_as((200, &[]), format!("data: {nested}\n\n").as_bytes(), 16384, &StreamEnd::Complete);
    assert_eq!(decoded.outcome(), "SERVER");
    let few = r#"data: {"error":{"error":{"error":{"message":"the cause","code":"insufficient_quota"}}}}"#;
    let decoded = decode(&format!("{few}\n\n"));
    assert_eq!((decoded.outcome(), decoded.finish.failure().unwrap().message.as_str()), ("QUOTA", "the cause"));
}

#[test]
fn a_call_with_a_huge_id_or_name_fails_the_answer() {
    let long = "n".repeat(100_000);
    for (id, name) in [(&*long, "bash"), ("c", &*long)] {
        let body = [delta(json!({"content": "hi"})), call(Some(0), id, name, "{}"), end("tool_calls")].concat();
        let decoded = decode(&body);
        assert_eq!((decoded.outcome(), decoded.content()), ("PROTOCOL", json!([{"type": "text", "text": "hi"}])));
        let failure = decoded.finish.failure().unwrap();
        assert!(failure.message.len() < 200 && failure.message.contains("100000 bytes"), "{failure}");
    }
}

#[test]
fn a_delta_finds_its_call_by_index_then_id_then_order() {
    let a = r#"{"a":1}"#;
    let b = r#"{"b":2}"#;
    for (about, events, expected) in [
        (
            "interleaved by index",
            vec![call(Some(0), "x", "f", "{\"a\""), call(Some(1), "y", "g", b), call(Some(0), "", "", ":1}")],
            vec![("x", "f", a), ("y", "g", b)],
        ),
        (
            "by id, without index",
            vec![call(None, "x", "f", "{\"a\""), call(None, "y", "g", b), call(None, "x", "", ":1}")],
            vec![("x", "f", a), ("y", "g", b)],
        ),
        ("the last one", vec![call(None, "x", "f", "{\"a\""), call(None, "", "", ":1}")], vec![("x", "f", a)]),
        (
            "one index for all, with ids",
            vec![call(Some(0), "x", "f", a), call(Some(0), "y", "g", b)],
            vec![("x", "f", a), ("y", "g", b)],
        ),
        (
            "id and name repeated in every delta",
            vec![call(Some(0), "x", "f", "{\"a\""), call(Some(0), "x", "f", ":1}"), call(Some(0), "x", "f", "")],
            vec![("x", "f", a)],
        ),
        (
            "another id without a name is the same call",
            vec![call(Some(0), "x", "f", "{\"a\""), call(Some(0), "z", "", ":1}")],
            vec![("z", "f", a)],
        ),
        (
            "the name comes late",
            vec![call(Some(0), "x", "", "{\"a\""), call(Some(0), "", "f", ":1}")],
            vec![("x", "f", a)],
        ),
    ] {
        let decoded = decode(&(events.concat() + &end("tool_calls")));
        assert_eq!(decoded.calls(), expected, "{about}");
        assert_eq!(decoded.outcome(), "tool-calls", "{about}");
    }
}

#[test]
fn calls_of_one_answer_never_share_an_id() {
    for deltas in [
        [call(Some(0), "a", "w", "{\"c\":1}"), call(Some(1), "a", "w", "{\"c\":2}")].concat(),
        [
            call(Some(0), "a", "w", "{\"c\":"),
            call(Some(0), "a", "w", "1}"),
            call(Some(1), "a", "w", "{\"c\":"),
            call(Some(1), "a", "w", "2}"),
        ]
        .concat(),
        [call(Some(0), "a", "w", "{\"c\":1}"), call(Some(1), "", "w", ""), call(Some(1), "a", "", "{\"c\":2}")]
            .concat(),
    ] {
        let decoded = decode(&(deltas.clone() + &end("tool_calls")));
        let [(first, _, one), (second, _, two)] = decoded.calls().try_into().unwrap();
        assert_eq!((first, one, two), ("a", "{\"c\":1}", "{\"c\":2}"), "{deltas}");
        assert!(!second.is_empty() && second != first, "{second} in {deltas}");
    }
}

#[test]
fn calls_without_ids_get_legal_ones_that_differ() {
    let body = call(Some(0), "", "f", "{}") + &call(Some(0), "", "g", "{}") + &end("stop");
    let decoded = decode(&body);
    let made: Vec<_> = decoded.calls().into_iter().map(|(id, ..)| id).collect();
    assert_eq!(made.len(), 2);
    assert_ne!(made[0], made[1]);
    assert!(made.iter().all(|id| dsh_plugin_api::kit::names::is_legal(id)), "{made:?}");
}

#[test]
fn arguments_that_are_no_string_are_kept_as_they_came() {
    for (arguments, kept) in
        [(json!({"a": 1}), r#"{"a":1}"#), (json!([1]), "[1]"), (json!(7), "7"), (Value::Null, ""), (json!({}), "{}")]
    {
        let call = json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}});
        let decoded = decode(&(delta(json!({"tool_calls": [call]})) + &end("tool_calls")));
        assert_eq!(decoded.calls(), [("c", "f", kept)]);
    }
}

#[test]
fn a_message_that_repeats_the_deltas_adds_nothing() {
    let whole = json!({"choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]});
    let decoded = decode(&(delta(json!({"content": "ok"})) + &format!("data: {whole}\n\ndata: [DONE]\n\n")));
    assert_eq!(decoded.content(), json!([{"type": "text", "text": "ok"}]));
    assert_eq!(decoded.outcome(), "stop");
}

#[test]
fn thinking_inside_the_content_is_reasoning() {
    let thought = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]);
    let answer = json!([{"type": "text", "text": "ok"}, {"type": "reference", "reference_ids": [1]}]);
    let decoded =
        decode(&[delta(json!({"content": thought})), delta(json!({"content": answer})), end("stop")].concat());
    assert_eq!(decoded.content(), json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "ok"}]));
    assert_eq!(decoded.entries(), json!([{"type": "reasoning"}, {"type": "text"}]));
}

#[test]
fn an_event_with_a_bare_control_character_or_backslash_is_mended() {
    for (written, read) in [("tab\there", "tab\there"), (r"c:\dir", r"c:\dir")] {
        let event = delta(json!({"content": "@"})).replace('@', written);
        assert_eq!(decode(&(event + &end("stop"))).content(), json!([{"type": "text", "text": read}]));
    }
    let broken = delta(json!({"content": "a"})) + "data: {\"id\": nothing}\n\n";
    assert_eq!(decode(&(broken + &end("stop"))).outcome(), "PROTOCOL");
}

#[test]
fn an_object_of_type_error_is_an_error() {
    for error in [json!({"type": "error", "message": "gone"}), json!({"object": "error", "message": "gone"})] {
        let decoded = decode(&(delta(json!({"content": "a"})) + &format!("data: {error}\n\ndata: [DONE]\n\n")));
        assert_eq!(decoded.finish.failure().unwrap().message, "gone");
    }
}

#[test]
fn an_error_event_without_json_is_an_error_with_its_text() {
    let decoded = decode(&(delta(json!({"content": "a"})) + "event: error\ndata: upstream is gone\n\n"));
    let failure = decoded.finish.failure().unwrap();
    assert_eq!((failure.code.name(), failure.message.as_str()), ("SERVER", "upstream is gone"));
}

#[test]
fn a_tool_call_without_a_name_breaks_the_wire() {
    assert_eq!(decode(&(call(Some(0), "x", "", "{}") + &end("tool_calls"))).outcome(), "PROTOCOL");
}

#[test]
fn arguments_as_an_object_keep_their_spelling() {
    let object = r#"{"n":12345678901234567890123,"a":1,"a":2}"#;
    let event = format!(r#"data: {{"choices":[{{"delta":{{"function_call":{{"name":"f","arguments":{object}}}}}}}]}}"#);
    let decoded = decode(&format!("{event}\n\n{}", end("function_call")));
    assert_eq!(decoded.calls()[0].2, object);
}

#[test]
fn how_it_ended() {
    let text = delta(json!({"content": "par"}));
    let thought = delta(json!({"reasoning_content": "hm"}));
    let no_mark = |reason: &str| end(reason).replace("data: [DONE]\n\n", "");
    for (body, outcome) in [
        (text.clone() + &end("stop"), "stop"),
        (text.clone() + &no_mark("stop"), "stop"),
        (text.clone() + &end("length"), "max-tokens"),
        (thought.clone() + &end("length"), "max-tokens"),
        (text.clone() + &end("tool_calls"), "stop"),
        (text.clone() + &end("eos_token_found"), "stop"),
        (text.clone() + &no_mark("eos_token_found"), "TRANSPORT"),
        (text.clone() + &end("content_filter"), "REFUSED"),
        (text.clone() + &end("network_error"), "SERVER"),
        (text.clone() + "data: [DONE]\n\n", "TRANSPORT"),
        (text.clone(), "TRANSPORT"),
        (text.clone() + "data: {\"choices\":", "TRANSPORT"),
        (text.clone() + "data: {\"choices\":\n\n", "PROTOCOL"),
        (text.clone() + "data: 7\n\ndata:\n\ndata: {}\n\n: x\n\n" + &end("stop"), "stop"),
        (delta(json!({"refusal": "No."})) + &end("stop"), "stop"),
        (delta(json!({"content": [{"type": "text", "text": "a"}, {"type": "x"}]})) + &end("stop"), "stop"),
        (delta(json!({"content": 7, "tool_calls": {}, "reasoning_details": "x"})) + &end("stop"), "EMPTY_RESPONSE"),
        (delta(json!({"content": " \n"})) + &end("stop"), "EMPTY_RESPONSE"),
        (thought.clone() + &end("stop"), "EMPTY_RESPONSE"),
        (end("stop"), "EMPTY_RESPONSE"),
        (String::new(), "TRANSPORT"),
        ("<html><h1>Welcome</h1></html>".into(), "PROTOCOL"),
        ("data: {\"error\":{\"message\":\"m\",\"code\":502}}\n\ndata: [DONE]\n\n".into(), "SERVER"),
        ("event: error\ndata: {\"message\":\"m\",\"type\":\"rate_limit_error\"}\n\n".into(), "RATE_LIMIT"),
        (
            "data: {\"object\":\"error\",\"message\":\"maximum context length\",\"code\":400}\n\n".into(),
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        (
            "data: {\"choices\":[{\"delta\":{},\"error\":{\"message\":\"m\"},\"finish_reason\":\"error\"}]}\n\n".into(),
            "SERVER",
        ),
    ] {
        let decoded = decode(&body);
        assert_eq!(decoded.outcome(), outcome, "{body}");
        assert_eq!(decoded.envelope.is_some(), !decoded.blocks.is_empty(), "{body}");
    }
}

#[test]
fn a_whole_json_answer_is_read_like_a_stream() {
    let answer = |message: &str, reason: &str| {
        format!(
            r#"{{"id":"r","model":"m","choices":[{{"message":{message},"finish_reason":{reason}}}],"usage":{{"prompt_tokens":5,"completion_tokens":1}}}}"#
        )
    };
    let call = r#"{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":{}}}]}"#;
    for (body, outcome, blocks) in [
        (answer(r#"{"content":"hello","reasoning_content":"hm"}"#, "\"stop\""), "stop", 2),
        (format!("\u{feff} \n{}", answer(r#"{"content":"hello"}"#, "null")), "stop", 1),
        (answer(call, "\"tool_calls\""), "tool-calls", 2),
        (answer(r#"{"content":""}"#, "\"stop\""), "EMPTY_RESPONSE", 0),
        (r#"{"error":{"message":"m","code":500}}"#.to_owned(), "SERVER", 0),
        (r#"[{"error":{"message":"m","code":429}}]"#.to_owned(), "RATE_LIMIT", 0),
        (r#"{"status":"ok"}"#.to_owned(), "PROTOCOL", 0),
        ("[]".to_owned(), "PROTOCOL", 0),
        ("{\"choices\":[{\"message\":{\"content\":\"hel".to_owned(), "TRANSPORT", 0),
        ("{\"choices\":oops}".to_owned(), "PROTOCOL", 0),
    ] {
        let decoded = decode(&body);
        assert_eq!((decoded.outcome(), decoded.blocks.len()), (outcome, blocks), "{body}");
    }
}

#[test]
fn the_end_is_not_awaited_once_the_usage_has_come() {
    let usage = r#"{"prompt_tokens":12,"completion_tokens":3}"#;
    for tail in [
        format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}\n\n"),
        format!("data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\",\"usage\":{usage}}}]}}\n\n"),
        end("stop").replace("data: [DONE]\n\n", "") + &format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"),
        end("stop"),
    ] {
        assert!(adapter(json!({}), json!({})).is_over_after(&(delta(json!({"content": "Hello."})) + &tail)), "{tail}");
    }
}

#[test]
fn counts_are_disjoint() {
    for (usage, expected) in [
        (
            json!({"prompt_tokens": 100, "completion_tokens": 60, "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 10}, "completion_tokens_details": {"reasoning_tokens": 40}}),
            (50, 60, Some(40), Some(10), Some(40)),
        ),
        (
            json!({"prompt_tokens": 100, "completion_tokens": 6, "prompt_cache_hit_tokens": 64}),
            (36, 6, Some(64), None, None),
        ),
        (json!({"prompt_tokens": 50, "completion_tokens": 5, "cached_tokens": 10}), (40, 5, Some(10), None, None)),
        (json!({"prompt_tokens": 9, "completion_tokens": 5, "reasoning_tokens": 3}), (9, 5, None, None, Some(3))),
        (
            json!({"prompt_tokens": 5, "completion_tokens": "1", "prompt_tokens_details": {"cached_tokens": 9}}),
            (0, 1, Some(9), None, None),
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 2, "cache_creation_tokens": 3}}),
            (4, 1, Some(2), Some(3), None),
        ),
    ] {
        let event = format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
        let counts = decode(&(delta(json!({"content": "a"})) + &event + &end("stop"))).usage.unwrap();
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
fn an_interrupted_answer_keeps_closed_blocks_with_their_entries() {
    let body = delta(json!({"reasoning_content": "plan"})) + &delta(json!({"content": "half an ans"}));
    for (end, code) in [
        (StreamEnd::Complete, "TRANSPORT"),
        (StreamEnd::Cut("reset".into()), "TRANSPORT"),
        (StreamEnd::TimedOut("silence".into()), "TIMEOUT"),
    ] {
        let decoded = decode_as((200, &[("x-request-id", "req")]), body.as_bytes(), 5, &end);
        assert_eq!(decoded.outcome(), code);
        assert_eq!(decoded.finish.failure().unwrap().request_id.as_deref(), Some("req"));
        assert_eq!(
            decoded.entries(),
            json!([{"type": "reasoning", "thinkingSignature": "reasoning_content"}, {"type": "text"}])
        );
        assert_eq!(decoded.response()["stopReason"], "stop");
        assert!(!decoded.chunks.iter().any(|chunk| matches!(chunk, Chunk::BlockEnd { index: 1, .. })));
    }
}

#[test]
fn a_finished_answer_is_not_spoiled_by_how_the_connection_ends() {
    let body = delta(json!({"content": "done"})) + &end("stop").replace("data: [DONE]\n\n", "");
    for end in [StreamEnd::Cut("reset".into()), StreamEnd::TimedOut("silence".into())] {
        assert_eq!(decode_as((200, &[]), body.as_bytes(), 9, &end).outcome(), "stop");
    }
}

#[test]
fn a_cancelled_answer_is_aborted_with_what_it_has() {
    let body = delta(json!({"reasoning": "a"})) + &delta(json!({"content": "b"}));
    let decoded = adapter(json!({}), json!({})).cancelled(&body);
    assert_eq!((decoded.outcome(), decoded.blocks.len()), ("ABORTED", 2));
    assert_eq!(decoded.response()["stopReason"], "stop");
}

#[test]
fn a_refusal_carries_what_the_head_says() {
    let headers = [("retry-after", "7"), ("x-request-id", "req_1"), ("content-type", "application/json")];
    let body = br#"{"error":{"message":"Rate limit reached"}}"#;
    for split in [1, 4, usize::MAX] {
        let decoded = decode_as((429, &headers), body, split, &StreamEnd::Complete);
        let failure = decoded.finish.failure().unwrap();
        assert_eq!((failure.status, failure.provider_retry_after_ms), (Some(429), Some(7000)));
        assert_eq!((failure.request_id.as_deref(), failure.message.as_str()), (Some("req_1"), "Rate limit reached"));
        assert!(decoded.envelope.is_none());
    }
}

#[test]
fn what_a_router_adds_to_the_reasoning_is_kept_whole() {
    let text = |text: &str| json!({"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": text}]});
    let encrypted =
        |id: &str| json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "BLOB", "id": id}]});
    let body = [
        delta(text("a")),
        delta(text("b")),
        delta(encrypted("c1")),
        delta(encrypted("rs_9")),
        delta(json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "SIG"}]})),
        call(Some(0), "c1", "f", "{}"),
        end("tool_calls"),
    ];
    let decoded = decode(&body.concat());
    let signature = |entry: &Value, name: &str| serde_json::from_str::<Value>(entry[name].as_str().unwrap()).unwrap();
    assert_eq!(
        signature(&decoded.entries()[0], "thinkingSignature"),
        json!([
            {"type": "reasoning.text", "index": 0, "text": "ab", "signature": "SIG"},
            {"type": "reasoning.encrypted", "data": "BLOB", "id": "rs_9"},
        ])
    );
    assert_eq!(
        signature(&decoded.entries()[1], "thoughtSignature"),
        json!({"type": "reasoning.encrypted", "data": "BLOB", "id": "c1"})
    );
    assert_eq!(decoded.content()[0]["text"], "ab");
}

#[test]
fn the_reasoning_of_several_steps_goes_back_in_the_order_in_which_it_came() {
    let detail = |index: u32, kind: &str, member: &str, id: &str| json!({"type": format!("reasoning.{kind}"), "index": index, member: "x", "id": id});
    let details = [
        detail(0, "summary", "summary", "rs_1"),
        detail(1, "encrypted", "data", "rs_1"),
        detail(2, "summary", "summary", "rs_2"),
        detail(3, "encrypted", "data", "rs_2"),
    ];
    let body: String = details.iter().map(|detail| delta(json!({"reasoning_details": [detail]}))).collect();
    let decoded = decode(&(body + &delta(json!({"content": "a"})) + &end("stop")));
    let kept = decoded.entries()[0]["thinkingSignature"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), json!(details));
}

fn stream() -> impl Strategy<Value = String> {
    let event = prop_oneof![
        Just(delta(json!({"content": "tex\u{e9}t "}))),
        Just("data: {\"choices\":[{\"delta\":{\"content\":\"x\\ud83d\"}}]}\n\n".to_owned()),
        Just("data: {\"choices\":[{\"delta\":{\"content\":\"\\ude00y\"}}]}\r\n\r\n".to_owned()),
        Just(delta(json!({"reasoning": "think"}))),
        Just(delta(json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "D", "id": "c1"}]}))),
        Just(call(Some(0), "c1", "f", "{\"a\":")),
        Just(call(Some(0), "", "", "1}")),
        Just(call(Some(1), "c2", "g", "{}")),
        Just(": keep-alive\r\r".to_owned()),
        Just("data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":3}}\n\n".to_owned()),
        Just("data: {\"error\":{\"message\":\"m\"}}\n\n".to_owned()),
        Just("data: {broken\n\n".to_owned()),
        Just(end("tool_calls")),
        Just(end("stop").replace("data: [DONE]\n\n", "")),
    ];
    (proptest::collection::vec(event, 0..9), "(\u{feff})?[ \n]{0,2}", "(data: \\[DONE\\])?")
        .prop_map(|(events, start, last)| start + &events.concat() + &last)
}

proptest! {
    #[test]
    fn any_split_gives_the_same_chunks(body in stream(), split in 1usize..12, cut: bool) {
        let end = if cut { StreamEnd::Cut("reset".into()) } else { StreamEnd::Complete };
        let whole = decode_as((200, &[]), body.as_bytes(), usize::MAX, &end);
        let pieces = decode_as((200, &[]), body.as_bytes(), split, &end);
        prop_assert_eq!(whole.text(), pieces.text());
    }

    #[test]
    fn arbitrary_bytes_never_look_like_an_answer(
        prefix in "(data: |event: error\n|\\{|\\[|data: \\{\"choices\":)?",
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
