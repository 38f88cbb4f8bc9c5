//! The scripted provider speaks every wire as its adapter reads it: one description comes out of each decoder as the
//! same content, with what the wire has of its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use dsh_tests::wires::{ROUTES, Route};
use dsh_tests::{Composition, Provider, Run, for_each};
use serde_json::{Value, json};

/// Everything that an answer can have.
fn described(route: Route) -> Value {
    let call = |id: &str, arguments: &str| json!({ "id": id, "name": "bash", "arguments": arguments });
    route.signed(json!({
        "reasoning": "think a bit",
        "text": "Helélo",
        "tool_calls": [call("call_1", r#"{"command":"true"}"#), call("call_2", r#"{"command":"echo é"}"#)],
        "usage": { "input": 100, "output": 20, "cache_read": 7, "cache_write": 3, "reasoning": 5 },
        "chunk_chars": 4,
    }))
}

/// What the chunks come to: each block with the pieces that it came in, then counts and end.
fn folded(chunks: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    let mut ended = 0;
    for chunk in chunks {
        let at = usize::try_from(chunk["index"].as_u64().unwrap_or_default()).unwrap();
        match chunk["type"].as_str().unwrap() {
            "block-start" => {
                assert_eq!(at, out.len(), "blocks come in order: {chunks:#?}");
                out.push(json!({ "type": chunk["blockType"], "pieces": [] }));
            }
            "block-end" => {
                let pieces = out[at]["pieces"].as_array().unwrap();
                let whole: String = pieces.iter().map(|piece| piece.as_str().unwrap()).collect();
                let block = &chunk["block"];
                let said = if block["type"] == "tool-call" { &block["arguments"] } else { &block["text"] };
                assert_eq!(said, &json!(whole), "{chunk}");
                ended += 1;
            }
            "usage" => out.push(chunk["usage"].clone()),
            "finish" => out.push(json!([chunk["reason"]["kind"], chunk["replayState"]])),
            _ => {
                let piece = if chunk["type"] == "tool-call-delta" {
                    out[at]["id"] = chunk["id"].clone();
                    out[at]["name"] = chunk["name"].clone();
                    &chunk["argumentsDelta"]
                } else {
                    &chunk["text"]
                };
                if piece != "" {
                    out[at]["pieces"].as_array_mut().unwrap().push(piece.clone());
                }
            }
        }
    }
    assert_eq!(
        ended,
        out.iter().filter(|block| block.get("pieces").is_some()).count(),
        "every block ends: {chunks:#?}"
    );
    out
}

/// What [`described`] comes to on a route, streamed or as one document, as the answer to the first request.
fn expected(route: Route, streamed: bool) -> Vec<Value> {
    let pieces = |text: &str, split: bool| -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        letters.chunks(if split { 4 } else { letters.len() }).map(|piece| piece.iter().collect()).collect()
    };
    let has_whole_calls = ["google", "mistral"].contains(&route.name);
    let call = |position: usize, arguments: &str| {
        let mut id = format!("call_{}", position + 1);
        if route.name == "responses" {
            id.push_str(&format!("|fc_mock_1_{position}"));
        }
        json!({ "type": "tool-call", "pieces": pieces(arguments, streamed && !has_whole_calls), "id": id, "name": "bash" })
    };
    let (usage, id, reasoning, text, call_entry) = match route.name {
        "completions" => (
            json!({ "inputTokens": 90, "outputTokens": 20, "cacheReadTokens": 7, "cacheWriteTokens": 3, "reasoningTokens": 5 }),
            "chatcmpl-mock-1",
            json!({ "thinkingSignature": "reasoning_content" }),
            json!({}),
            json!({}),
        ),
        "anthropic" => (
            json!({ "inputTokens": 90, "outputTokens": 20, "cacheReadTokens": 7, "cacheWriteTokens": 3 }),
            "msg_mock_1",
            json!({ "thinkingSignature": route.signature }),
            json!({}),
            json!({}),
        ),
        "responses" => {
            let summary = json!([{ "type": "summary_text", "text": "think a bit" }]);
            let item = json!({ "id": "rs_mock_1", "type": "reasoning", "summary": summary, "encrypted_content": route.signature });
            (
                json!({ "inputTokens": 90, "outputTokens": 20, "cacheReadTokens": 7, "cacheWriteTokens": 3, "reasoningTokens": 5 }),
                "resp_mock_1",
                json!({ "thinkingSignature": item.to_string() }),
                json!({ "textSignature": json!({ "v": 1, "id": "msg_mock_1" }).to_string() }),
                json!({}),
            )
        }
        "google" => (
            json!({ "inputTokens": 93, "outputTokens": 20, "cacheReadTokens": 7, "reasoningTokens": 5 }),
            "mock-1",
            json!({}),
            json!({}),
            json!({ "thoughtSignature": route.signature }),
        ),
        "mistral" => (
            json!({ "inputTokens": 93, "outputTokens": 20, "cacheReadTokens": 7 }),
            "chatcmpl-mock-1",
            json!({}),
            json!({}),
            json!({}),
        ),
        "deepseek" => (
            json!({ "inputTokens": 93, "outputTokens": 20, "cacheReadTokens": 7, "reasoningTokens": 5 }),
            "chatcmpl-mock-1",
            json!({}),
            json!({}),
            json!({}),
        ),
        other => panic!("say here what the answer comes to on the route {other}"),
    };
    let blocks = [("reasoning", reasoning), ("text", text), ("tool-call", call_entry), ("tool-call", json!({}))].map(
        |(kind, more)| {
            let mut entry = json!({ "type": kind });
            entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            entry
        },
    );
    let mut response = json!({ "kind": route.adapter, "version": if route.api.is_some() { 2 } else { 1 } });
    if let Some(api) = route.api {
        response["api"] = json!(api);
    }
    let more = json!({ "provider": route.name, "model": "m", "responseId": id, "stopReason": "toolUse" });
    response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    vec![
        json!({ "type": "reasoning", "pieces": pieces("think a bit", streamed) }),
        json!({ "type": "text", "pieces": pieces("Helélo", streamed) }),
        call(0, r#"{"command":"true"}"#),
        call(1, r#"{"command":"echo é"}"#),
        usage,
        json!(["tool-calls", { "response": response, "blocks": blocks }]),
    ]
}

/// The chunks of the first step.
fn chunks(run: &Run) -> Vec<Value> {
    let of_step = run.of_kind("assistant/chunk").into_iter().filter(|data| data["step"] == 1);
    of_step.map(|data| data["chunk"].clone()).collect()
}

#[test]
fn one_description_streams_through_every_adapter_in_the_pieces_of_its_wire() {
    for_each(&ROUTES, |route| {
        let provider = Provider::start(&[described(*route), json!({ "text": "done" })]);
        let run = Composition::on_every_wire(&provider).prompt(&["-m", &route.model()], "go").completed();
        let got = folded(&chunks(&run));
        assert_eq!(json!(got), json!(expected(*route, true)), "{}: {got:#?}", route.name);
    });
}

/// What the provider answers to a request of an old client, which gets the body as it is and then the end of the
/// connection.
fn post(provider: &Provider, path: &str, body: &Value) -> String {
    let mut stream = TcpStream::connect(provider.url().strip_prefix("http://").unwrap()).unwrap();
    let body = body.to_string();
    write!(stream, "POST {path} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("content-type: application/json"), "{head}");
    body.to_owned()
}

#[test]
fn without_a_stream_every_adapter_reads_the_same_from_one_document() {
    for_each(&ROUTES, |route| {
        let paths: &[&str] = match route.name {
            "completions" => &["/v1/chat/completions"],
            "anthropic" => &["/v1/messages"],
            "responses" => &["/v1/responses"],
            // A stream that is not asked for as events is one document too, a list.
            "google" => &["/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent"],
            "mistral" => &["/mistral/v1/chat/completions"],
            "deepseek" => &["/deepseek/chat/completions"],
            other => panic!("say here where the route {other} leads"),
        };
        let asked = json!({ "model": "m", "include": ["reasoning.encrypted_content"] });
        for path in paths {
            let provider = Provider::start(&[described(*route)]);
            let composition = Composition::on_every_wire(&provider);
            let captured = composition.file("captured", &post(&provider, path, &asked));
            let header = "content-type: application/json";
            let decoded = composition
                .dsh(&["decode", "-m", &route.model(), "--header", header, captured.to_str().unwrap()])
                .json();
            let got = folded(decoded["chunks"].as_array().unwrap());
            let expected = expected(*route, path.contains("stream"));
            assert_eq!(json!(got), json!(expected), "{} at {path}: {got:#?}", route.name);
        }
    });
}

#[test]
fn an_error_is_understood_from_every_wire_as_a_refusal_and_inside_a_stream() {
    let refusal = json!({ "error": { "kind": "rate_limit", "message": "slower please" } });
    let inside = json!({ "text": "as far as it", "error": { "kind": "rate_limit", "message": "slower please", "in_stream": true } });
    for_each(&ROUTES, |route| {
        let provider = Provider::start(&[refusal.clone(), inside.clone()]);
        let composition = Composition::on_every_wire(&provider);
        for (status, text) in [(json!(429), ""), (Value::Null, "as far as it")] {
            let run = composition.prompt(&["-m", &route.model()], "go");
            let failure = &run.result["reason"]["failure"];
            assert_eq!(failure["code"], "RATE_LIMIT", "{}: {}", route.name, run.outcome);
            // Inside a stream only some wires tell a status.
            assert!(!text.is_empty() || failure["status"] == status, "{}: {failure}", route.name);
            assert!(failure["message"].as_str().unwrap().contains("slower please"), "{}: {failure}", route.name);
            assert_eq!(run.result["text"], text, "{}: {}", route.name, run.outcome);
        }
    });
}
