//! Bytes to chunks.

use std::time::{Duration, Instant};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::kit::streaming::made_up_id;
use dsh_plugin_api::vocab::Chunk;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn thought(text: &str) -> Value {
    json!({"text": text, "thought": true})
}

fn function(name: &str, args: Value) -> Value {
    json!({"functionCall": {"name": name, "args": args}})
}

#[test]
fn half_a_character_is_text() {
    for text in ["\\ud83d", " \\ud83d"] {
        let event = parts(&json!([{"text": "@"}])).replace('@', text);
        let decoded = gemini().decode(&(event + &end("STOP")));
        assert_eq!(decoded.outcome(), "stop", "{text}");
        assert_eq!(decoded.content(), json!([{"type": "text", "text": text.replace("\\ud83d", "\u{fffd}")}]));
    }
}

#[test]
fn parts_become_blocks_in_their_order_with_their_signatures() {
    let mut call = function("bash", json!({"command": "ls"}));
    call["thoughtSignature"] = json!("Q0FMTA==");
    let decoded = gemini().decode(
        &[
            parts(&json!([thought("pl"), thought("an")])),
            parts(&json!([{"text": "Rea"}])),
            parts(&json!([{"text": "ding.", "thoughtSignature": "VEVYVA=="}])),
            parts(&json!([thought("more")])),
            parts(&json!([call, function("read", json!({}))])),
            parts(&json!([{"text": "Done."}])),
            end("STOP"),
        ]
        .concat(),
    );
    let ids: Vec<_> = decoded.calls().iter().map(|(id, ..)| (*id).to_owned()).collect();
    assert_eq!(
        decoded.content(),
        json!([
            {"type": "reasoning", "text": "plan"},
            {"type": "text", "text": "Reading."},
            {"type": "reasoning", "text": "more"},
            {"type": "tool-call", "id": ids[0], "name": "bash", "arguments": "{\"command\":\"ls\"}"},
            {"type": "tool-call", "id": ids[1], "name": "read", "arguments": "{}"},
            {"type": "text", "text": "Done."},
        ])
    );
    assert_eq!(
        decoded.entries(),
        json!([
            {"type": "reasoning"},
            {"type": "text", "textSignature": "VEVYVA=="},
            {"type": "reasoning"},
            {"type": "tool-call", "thoughtSignature": "Q0FMTA=="},
            {"type": "tool-call"},
            {"type": "text"},
        ])
    );
    assert_eq!(decoded.outcome(), "tool-calls");
    assert_eq!(
        decoded.response(),
        json!({"kind": "pi-ai", "version": 2, "api": "google-generative-ai", "provider": "local",
            "model": "gemini-3-pro-preview", "responseModel": "g", "responseId": "r-1", "stopReason": "toolUse"})
    );
}

#[test]
fn a_signature_stays_with_its_part() {
    let signed = |text: &str, signature: &str| json!({"text": text, "thoughtSignature": signature});
    for (list, content, entries) in [
        // On the first delta, on the last one, on an empty last one, repeated: one block.
        (json!([signed("a", "QQ=="), {"text": "b"}]), vec!["ab"], vec![Some("QQ==")]),
        (json!([{"text": "a"}, signed("b", "QQ==")]), vec!["ab"], vec![Some("QQ==")]),
        (json!([{"text": "a"}, signed("", "QQ==")]), vec!["a"], vec![Some("QQ==")]),
        (json!([signed("a", "QQ=="), signed("b", "QQ==")]), vec!["ab"], vec![Some("QQ==")]),
        // Two signatures are two parts.
        (json!([signed("a", "QQ=="), signed("b", "Qg==")]), vec!["a", "b"], vec![Some("QQ=="), Some("Qg==")]),
        (json!([signed("a", "QQ=="), signed("", "Qg==")]), vec!["a", ""], vec![Some("QQ=="), Some("Qg==")]),
        // Without a text.
        (json!([{"text": "a"}, {"thoughtSignature": "QQ=="}]), vec!["a"], vec![Some("QQ==")]),
        // Not of a part that has no block, and none that is no base64.
        (
            json!([{"text": "a"}, {"inlineData": {"data": "x"}, "thoughtSignature": "QQ=="}, {"text": "b"}]),
            vec!["ab"],
            vec![None],
        ),
        (json!([signed("a", "no base64!"), signed("b", "")]), vec!["ab"], vec![None]),
    ] {
        let decoded = gemini().decode(&(parts(&list) + &end("STOP")));
        let entry = |signature: &Option<&str>| match signature {
            Some(signature) => json!({"type": "text", "textSignature": signature}),
            None => json!({"type": "text"}),
        };
        let texts: Vec<_> = content.iter().map(|text| json!({"type": "text", "text": text})).collect();
        assert_eq!(decoded.content(), json!(texts), "{list}");
        assert_eq!(decoded.entries(), json!(entries.iter().map(entry).collect::<Vec<_>>()), "{list}");
    }
}

#[test]
fn a_signature_behind_a_thought_or_a_call_has_a_block_of_its_own() {
    let last = json!({"text": "", "thoughtSignature": "QQ=="});
    for before in [thought("plan"), function("bash", json!({}))] {
        let decoded =
            gemini().decode(&(parts(&json!([before, last])) + &parts(&json!([{"text": "x"}])) + &end("STOP")));
        assert_eq!(decoded.content()[1], json!({"type": "text", "text": "x"}), "{before}");
        assert_eq!(decoded.entries()[1]["textSignature"], "QQ==", "{before}");
        assert_eq!(decoded.entries()[0].as_object().unwrap().len(), 1, "{before}");
    }
    let signed = json!({"text": "", "thought": true, "thoughtSignature": "QQ=="});
    let decoded = gemini().decode(&(parts(&json!([thought("plan"), signed, {"text": "x"}])) + &end("STOP")));
    assert_eq!(decoded.entries()[0], json!({"type": "reasoning", "thinkingSignature": "QQ=="}));
}

#[test]
fn calls_keep_ids_that_differ_and_get_others() {
    let with_id = |id: &str| json!({"functionCall": {"id": id, "name": "bash", "args": {}}});
    let list = json!([with_id("a"), with_id("a"), with_id(""), function("bash", json!({})), with_id("b")]);
    let decoded = gemini().decode(&(parts(&list) + &end("STOP")));
    let ids: Vec<_> = decoded.calls().iter().map(|(id, ..)| *id).collect();
    assert_eq!((ids[0], ids[4]), ("a", "b"));
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "{ids:?}");
    assert!(ids.iter().all(|id| dsh_plugin_api::kit::names::is_legal(id)), "{ids:?}");
}

#[test]
fn arguments_keep_their_spelling() {
    for (written, kept) in [
        (
            r#"{"n":12345678901234567890123,"b":1.50,"a":2,"a":3}"#,
            r#"{"n":12345678901234567890123,"b":1.50,"a":2,"a":3}"#,
        ),
        (r#"{"k":"\ud83d \ud83d\ude00"}"#, r#"{"k":"\ufffd \ud83d\ude00"}"#),
        ("[1]", "[1]"),
        ("null", "{}"),
    ] {
        let event = parts(&json!([function("bash", json!("@"))])).replace("\"@\"", written);
        assert_eq!(gemini().decode(&(event + &end("STOP"))).calls()[0].2, kept);
    }
    let bare = json!([{"functionCall": {"name": "bash"}}]);
    assert_eq!(gemini().decode(&(parts(&bare) + &end("STOP"))).calls()[0].2, "{}");
}

#[test]
fn how_it_ended() {
    let text = parts(&json!([{"text": "par"}]));
    let plan = parts(&json!([thought("hm")]));
    let call = parts(&json!([function("bash", json!({}))]));
    let no_usage = |reason: &str| format!("data: {{\"candidates\":[{{\"finishReason\":\"{reason}\"}}]}}\n\n");
    let event = |value: Value| format!("data: {value}\n\n");
    for (body, outcome, blocks) in [
        (text.clone() + &end("STOP"), "stop", 1),
        (text.clone() + &no_usage("STOP"), "stop", 1),
        (text.clone() + &no_usage("STOP") + "data: [DONE]\n\n", "stop", 1),
        (call.clone() + &end("STOP"), "tool-calls", 1),
        (text.clone() + &end("MAX_TOKENS"), "max-tokens", 1),
        (call.clone() + &end("MAX_TOKENS"), "max-tokens", 1),
        (no_usage("MAX_TOKENS"), "max-tokens", 0),
        (text.clone() + &end("CONTINUATION"), "max-tokens", 1),
        (text.clone() + &end("SAFETY"), "REFUSED", 1),
        (end("RECITATION"), "REFUSED", 0),
        (call.clone() + &end("PROHIBITED_CONTENT"), "REFUSED", 1),
        (text.clone() + &end("SPII"), "REFUSED", 1),
        (text.clone() + &end("BLOCKLIST"), "REFUSED", 1),
        (text.clone() + &end("MALFORMED_FUNCTION_CALL"), "SERVER", 1),
        (call.clone() + &end("UNEXPECTED_TOOL_CALL"), "SERVER", 1),
        (text.clone() + &end("OTHER"), "SERVER", 1),
        (text.clone() + &end("LANGUAGE"), "SERVER", 1),
        (text.clone() + &end("A_REASON_OF_TOMORROW"), "SERVER", 1),
        (plan.clone() + &end("STOP"), "EMPTY_RESPONSE", 1),
        (end("STOP"), "EMPTY_RESPONSE", 0),
        (parts(&json!([{"text": " \n"}])) + &end("STOP"), "EMPTY_RESPONSE", 1),
        (parts(&json!([{"functionCall": {"args": {}}}])) + &end("STOP"), "PROTOCOL", 0),
        (text.clone() + &end("FINISH_REASON_UNSPECIFIED") + &text + &end("STOP"), "stop", 1),
        (text.clone() + &end("FINISH_REASON_UNSPECIFIED"), "TRANSPORT", 1),
        (text.clone() + "data: [DONE]\n\n", "TRANSPORT", 1),
        (text.clone(), "TRANSPORT", 1),
        (String::new(), "TRANSPORT", 0),
        (text.clone() + "data: {\"candidates\":[{\"content\":{\"par", "TRANSPORT", 1),
        (text.clone() + "data: {\"candidates\":\n\n", "PROTOCOL", 1),
        ("<html><h1>Welcome</h1></html>".into(), "PROTOCOL", 0),
        (event(json!({"promptFeedback": {"blockReason": "OTHER"}})), "REFUSED", 0),
        (event(json!({"promptFeedback": {"safetyRatings": []}})) + &text + &end("STOP"), "stop", 1),
        (event(json!({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED"}})), "RATE_LIMIT", 0),
        (text.clone() + &event(json!({"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}})), "SERVER", 1),
        ("event: error\ndata: upstream is gone\n\n".into(), "SERVER", 0),
        // What nobody knows is skipped.
        (event(json!({"candidates": []})) + ": x\n\ndata: 7\n\ndata:\n\n" + &text + &end("STOP"), "stop", 1),
        (parts(&json!([7, {}, {"text": 1}, {"executableCode": {"code": "x"}}])) + &text + &end("STOP"), "stop", 1),
        // Nothing counts after the end.
        (text.clone() + &no_usage("STOP") + &parts(&json!([{"text": "more"}])) + &no_usage("SAFETY"), "stop", 1),
    ] {
        let decoded = gemini().decode(&body);
        assert_eq!((decoded.outcome(), decoded.blocks.len()), (outcome, blocks), "{body}");
        assert_eq!(decoded.envelope.is_some(), blocks > 0 || outcome == "max-tokens", "{body}");
    }
}

#[test]
fn a_failure_says_what_the_provider_said() {
    let candidate = json!({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "Malformed function call: x("});
    for (event, words) in [
        (json!({"candidates": [candidate]}), "finishReason MALFORMED_FUNCTION_CALL: Malformed function call: x("),
        (json!({"candidates": [{"finishReason": "SAFETY"}]}), "finishReason SAFETY"),
        (
            json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}}),
            "blockReason PROHIBITED_CONTENT: no",
        ),
    ] {
        let decoded = gemini().decode(&format!("data: {event}\n\n"));
        assert!(decoded.failure().ends_with(words), "{}", decoded.failure());
    }
}

#[test]
fn a_whole_json_answer_is_read_like_a_stream() {
    let event = |parts: Value, more: Value| {
        let mut candidate = json!({"content": {"parts": parts}});
        candidate.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 5}, "responseId": "r"})
    };
    let stop = json!({"finishReason": "STOP"});
    let text = json!([{"text": "hi"}]);
    for (body, outcome, blocks) in [
        (event(text.clone(), stop.clone()).to_string(), "stop", 1),
        (json!([event(text.clone(), json!({})), event(text.clone(), stop.clone())]).to_string(), "stop", 1),
        (format!("\u{feff} \n{:#}", event(json!([function("f", json!({"a": 1}))]), stop.clone())), "tool-calls", 1),
        (event(json!([]), stop).to_string(), "EMPTY_RESPONSE", 0),
        (event(text, json!({})).to_string(), "TRANSPORT", 1),
        (
            json!([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}]).to_string(),
            "INVALID_REQUEST",
            0,
        ),
        (json!({"status": "ok"}).to_string(), "PROTOCOL", 0),
        ("[]".to_owned(), "PROTOCOL", 0),
        ("[{\"candidates\":[{\"content\":".to_owned(), "TRANSPORT", 0),
        ("[{\"candidates\":oops}]".to_owned(), "PROTOCOL", 0),
    ] {
        let decoded = gemini().decode(&body);
        assert_eq!((decoded.outcome(), decoded.blocks.len()), (outcome, blocks), "{body}");
    }
}

#[test]
fn the_end_is_not_awaited_once_reason_and_usage_have_come() {
    let text = parts(&json!([{"text": "Hello."}]));
    let reason = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n";
    let usage = "data: {\"usageMetadata\":{\"promptTokenCount\":7}}\n\n";
    for (tail, over) in [
        (end("STOP"), true),
        (end("SAFETY"), true),
        (format!("{reason}{usage}"), true),
        (format!("{reason}data: [DONE]\n\n"), true),
        (reason.to_owned(), false),
        (usage.to_owned(), false),
    ] {
        assert_eq!(gemini().is_over_after(&(text.clone() + &tail)), over, "{tail}");
    }
}

#[test]
fn a_finished_answer_is_not_spoiled_by_how_the_connection_ends() {
    let body = parts(&json!([{"text": "done"}])) + "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n";
    for end in [StreamEnd::Cut("reset".into()), StreamEnd::TimedOut("silence".into())] {
        assert_eq!(gemini().decode_as((200, &[]), body.as_bytes(), 9, &end).outcome(), "stop");
    }
}

#[test]
fn counts_are_disjoint_and_the_last_ones_count() {
    for (usage, expected) in [
        (
            json!({"promptTokenCount": 1000, "candidatesTokenCount": 40, "thoughtsTokenCount": 200,
                "cachedContentTokenCount": 600, "totalTokenCount": 1240}),
            (400, 240, Some(600), Some(200)),
        ),
        (json!({"promptTokenCount": 5, "thoughtsTokenCount": "100"}), (5, 100, None, Some(100))),
        (
            json!({"promptTokenCount": 5, "cachedContentTokenCount": 9, "candidatesTokenCount": 1}),
            (0, 1, Some(9), None),
        ),
        (json!({"promptTokenCount": null, "candidatesTokenCount": 3}), (0, 3, None, None)),
    ] {
        let event = |usage: &Value| format!("data: {}\n\n", json!({"usageMetadata": usage}));
        let last = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage});
        let body =
            event(&json!({"promptTokenCount": 77})) + &parts(&json!([{"text": "a"}])) + &format!("data: {last}\n\n");
        let counts = gemini().decode(&body).usage.unwrap();
        let got = (counts.input_tokens, counts.output_tokens, counts.cache_read_tokens, counts.reasoning_tokens);
        assert_eq!(got, expected, "{usage}");
        assert_eq!(counts.cache_write_tokens, None);
    }
}

#[test]
fn an_interrupted_answer_keeps_closed_blocks_with_their_entries() {
    let plan = json!({"text": "plan", "thought": true, "thoughtSignature": "QQ=="});
    let half = json!({"text": "half an ans", "thoughtSignature": "Qg=="});
    let body = parts(&json!([plan])) + &parts(&json!([half]));
    let entries = json!([{"type": "reasoning", "thinkingSignature": "QQ=="}, {"type": "text"}]);
    for (end, code) in [
        (StreamEnd::Complete, "TRANSPORT"),
        (StreamEnd::Cut("reset".into()), "TRANSPORT"),
        (StreamEnd::TimedOut("silence".into()), "TIMEOUT"),
    ] {
        let decoded = gemini().decode_as((200, &[("x-goog-request-id", "req")]), body.as_bytes(), 5, &end);
        assert_eq!(decoded.outcome(), code);
        assert_eq!(decoded.finish.failure().unwrap().request_id.as_deref(), Some("req"));
        assert_eq!((decoded.entries(), &decoded.response()["stopReason"]), (entries.clone(), &json!("stop")));
        assert!(!decoded.chunks.iter().any(|chunk| matches!(chunk, Chunk::BlockEnd { index: 1, .. })));
    }
    let stopped = gemini().cancelled(&body);
    assert_eq!((stopped.outcome(), stopped.entries()), ("ABORTED", entries));
}

#[test]
fn a_refusal_carries_what_head_and_body_say() {
    let delay = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"});
    for (status, headers, error, code, wait) in [
        (
            429,
            vec![],
            json!({"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": [delay]}),
            "RATE_LIMIT",
            Some(36_500),
        ),
        (429, vec![("retry-after", "7")], json!({"message": "slow", "details": [delay]}), "RATE_LIMIT", Some(7000)),
        (400, vec![], json!({"message": "no", "details": [{"reason": "API_KEY_INVALID"}]}), "AUTH", None),
        (403, vec![], json!({"message": "no", "status": "PERMISSION_DENIED"}), "AUTH", None),
        (
            400,
            vec![],
            json!({"message": "The input token count (9) exceeds the maximum", "status": "INVALID_ARGUMENT"}),
            "CONTEXT_WINDOW_EXCEEDED",
            None,
        ),
        (
            400,
            vec![],
            json!({"message": "Function call is missing a thought_signature", "status": "INVALID_ARGUMENT"}),
            "INVALID_REQUEST",
            None,
        ),
        (404, vec![], json!({"message": "no model", "status": "NOT_FOUND"}), "INVALID_REQUEST", None),
        (503, vec![], json!({"message": "overloaded", "status": "UNAVAILABLE"}), "SERVER", None),
        (504, vec![], json!({"message": "late", "status": "DEADLINE_EXCEEDED"}), "SERVER", None),
    ] {
        for body in [json!({"error": error}), json!([{"error": error}])] {
            let decoded = gemini().decode_as((status, &headers), body.to_string().as_bytes(), 5, &StreamEnd::Complete);
            let failure = decoded.finish.failure().unwrap();
            assert_eq!(
                (failure.code.name(), failure.status, failure.provider_retry_after_ms),
                (code, Some(status), wait),
                "{body}"
            );
            assert!(decoded.envelope.is_none());
        }
    }
}

#[test]
fn an_answer_of_very_many_parts_takes_linear_time() {
    let many = 10_000;
    let begun = Instant::now();
    let calls: String = (0..many).map(|_| parts(&json!([function("f", json!({}))]))).collect();
    let turns: String = (0..many / 2).map(|_| parts(&json!([thought("a"), {"text": "b"}]))).collect();
    // A server that has taken the ids which would be made up for the calls that follow.
    let taken = |n| json!({"functionCall": {"id": made_up_id(None, n), "name": "f", "args": {}}});
    let taken: String = (many / 2..many).map(|n| parts(&json!([taken(n)]))).collect();
    let unnamed: String = (0..many / 2).map(|_| parts(&json!([function("f", json!({}))]))).collect();
    for (body, blocks) in [(calls, many), (taken + &unnamed, many), (turns, many), (text_stream(many), 1)] {
        let body = body + &end("STOP");
        let decoded = gemini().decode_as((200, &[]), body.as_bytes(), 16_384, &StreamEnd::Complete);
        assert_eq!(decoded.blocks.len(), blocks);
    }
    // In squared time it is minutes.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

fn stream() -> impl Strategy<Value = String> {
    let event = prop_oneof![
        Just(parts(&json!([{"text": "tex\u{e9}t "}]))),
        Just("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\\ud83d\"}]}}]}\n\n".to_owned()),
        Just("data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\ude00y\"}]}}]}\r\r".to_owned()),
        Just(parts(&json!([thought("think"), {"text": "", "thoughtSignature": "QQ=="}]))),
        Just(parts(&json!([function("f", json!({"a": 1})), function("g", json!({}))]))),
        Just(": keep-alive\r\r".to_owned()),
        Just("data: {\"usageMetadata\":\ndata: {\"promptTokenCount\":3}}\n\n".to_owned()),
        Just("data: {\"error\":{\"message\":\"m\"}}\n\n".to_owned()),
        Just("data: {broken\n\n".to_owned()),
        Just("data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n".to_owned()),
        Just(end("MAX_TOKENS")),
        Just(end("STOP")),
    ];
    (proptest::collection::vec(event, 0..9), "(\u{feff})?[ \n]{0,2}", "(data: \\[DONE\\])?")
        .prop_map(|(events, start, last)| start + &events.concat() + &last)
}

proptest! {
    #[test]
    fn any_split_gives_the_same_chunks(body in stream(), split in 1usize..12, cut: bool) {
        let end = if cut { StreamEnd::Cut("reset".into()) } else { StreamEnd::Complete };
        let whole = gemini().decode_as((200, &[]), body.as_bytes(), usize::MAX, &end);
        let pieces = gemini().decode_as((200, &[]), body.as_bytes(), split, &end);
        prop_assert_eq!(whole.text(), pieces.text());
    }

    #[test]
    fn arbitrary_bytes_never_look_like_an_answer(
        prefix in "(data: |event: error\n|\\{|\\[|data: \\{\"candidates\":\\[)?",
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        status in prop_oneof![Just(200u16), 100u16..600],
        split in 1usize..20,
    ) {
        let body = [prefix.as_bytes(), &bytes].concat();
        let decoded = gemini().decode_as((status, &[]), &body, split, &StreamEnd::Complete);
        prop_assert!(decoded.finish.failure().is_some());
        prop_assert!(decoded.blocks.is_empty());
    }

    #[test]
    fn a_damaged_stream_ends_once_and_the_same_in_any_split(
        body in stream(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        split in 1usize..20,
    ) {
        let mut body = (body + &end("STOP")).into_bytes();
        for (place, byte) in damage {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let whole = gemini().decode_as((200, &[]), &body, usize::MAX, &StreamEnd::Complete);
        let pieces = gemini().decode_as((200, &[]), &body, split, &StreamEnd::Complete);
        prop_assert_eq!(whole.text(), pieces.text());
    }

    #[test]
    fn a_stream_that_lost_its_end_is_no_answer(count in 1usize..4, lost in 1usize..400, split in 1usize..20) {
        let body = text_stream(count);
        let last = end("STOP").len();
        let kept = &body.as_bytes()[..body.len() - lost.clamp(5, last)];
        let decoded = gemini().decode_as((200, &[]), kept, split, &StreamEnd::Complete);
        prop_assert_eq!(decoded.outcome(), "TRANSPORT");
    }
}
