//! The server over real sockets, byte by byte.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

async fn start(script: &str) -> MockProvider {
    MockProvider::start(Script::parse("script", script).unwrap(), None, 0).await.unwrap()
}

async fn connect(provider: &MockProvider) -> TcpStream {
    TcpStream::connect(provider.url().strip_prefix("http://").unwrap()).await.unwrap()
}

fn post(path: &str, body: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn last_post(body: &str) -> String {
    post("/chat/completions", body, "connection: close\r\n")
}

/// Sends one request on a connection of its own and reads until the server closes it.
async fn ask(provider: &MockProvider, request: &str) -> String {
    let mut stream = connect(provider).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
    read.await.expect("the server closes the connection").unwrap();
    String::from_utf8(answer).unwrap()
}

/// The body of a chunked answer.
fn dechunk(answer: &str) -> String {
    let mut rest = answer.split_once("\r\n\r\n").unwrap().1;
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            assert_eq!(after, "\r\n", "the body ends with its last chunk");
            return body;
        }
        body.push_str(&after[..size]);
        rest = after[size..].strip_prefix("\r\n").unwrap();
    }
}

fn events(body: &str) -> Vec<Value> {
    let mut lines: Vec<_> = body.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(lines.pop(), Some("[DONE]"));
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const STREAMING: &str = r#"{"model":"m1","stream":true,"stream_options":{"include_usage":true}}"#;

#[tokio::test]
async fn a_described_answer_streams_as_an_openai_compatible_server_would() {
    let provider = start(
        r#"
        [[response]]
        reasoning = "think a bit"
        text = "Partial answer"
        tool_calls = [{ id = "call_1", name = "bash", arguments = '{"command":"ec' }]
        finish = "length"
        usage = { input = 100, output = 20, cache_read = 7, reasoning = 5 }
        chunk_chars = 6
        "#,
    )
    .await;
    let answer = ask(&provider, &last_post(STREAMING)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/event-stream\r\n"), "{answer}");
    let events = events(&dechunk(&answer));
    for event in &events {
        assert_eq!((&event["model"], &event["id"]), (&json!("m1"), &json!("chatcmpl-mock-1")));
        assert_eq!(event["object"], "chat.completion.chunk");
        assert!(event["created"].as_u64().unwrap() > 1_600_000_000);
    }
    let deltas: Vec<_> = events.iter().map(|event| event["choices"][0]["delta"].clone()).collect();
    let call = |value: Value| json!({ "tool_calls": [value] });
    let expected = [
        json!({ "role": "assistant", "content": "" }),
        json!({ "reasoning_content": "think " }),
        json!({ "reasoning_content": "a bit" }),
        json!({ "content": "Partia" }),
        json!({ "content": "l answ" }),
        json!({ "content": "er" }),
        call(
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "bash", "arguments": "" } }),
        ),
        call(json!({ "index": 0, "function": { "arguments": "{\"comm" } })),
        call(json!({ "index": 0, "function": { "arguments": "and\":\"" } })),
        call(json!({ "index": 0, "function": { "arguments": "ec" } })),
        json!({}),
        Value::Null,
    ];
    assert_eq!(deltas, expected);
    let finishes: Vec<_> = events.iter().map(|event| event["choices"][0]["finish_reason"].clone()).collect();
    assert_eq!(finishes.iter().position(|finish| finish == "length"), Some(10));
    let usage = &events[11]["usage"];
    assert_eq!(events[11]["choices"], json!([]));
    assert_eq!((&usage["prompt_tokens"], &usage["total_tokens"]), (&json!(100), &json!(120)));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 7);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 5);
}

#[tokio::test]
async fn usage_comes_only_when_it_is_asked_for_and_a_whole_answer_when_no_stream_is() {
    let provider =
        start("[[response]]\ntext = \"hi\"\nrepeat = true\nreasoning = \"hm\"\nreasoning_field = \"reasoning\"").await;
    let body = dechunk(&ask(&provider, &last_post(r#"{"model":"m","stream":true}"#)).await);
    assert!(!body.contains("usage"), "{body}");
    let body = dechunk(&ask(&provider, &last_post(r#"{"model":"m"}"#)).await);
    let whole: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["choices"][0]["message"], json!({ "role": "assistant", "content": "hi", "reasoning": "hm" }));
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn answers_are_used_in_order_then_by_rule_and_a_request_without_one_is_told_so() {
    let provider = start(
        r#"
        [[response]]
        match = { body_contains = "special", header = { X-Test = "on" } }
        body = "ruled"
        repeat = true
        [[response]]
        body = "first"
        [[response]]
        match = { path_contains = "/other" }
        body = "other"
        [[response]]
        body = "second"
        "#,
    )
    .await;
    let special = post("/x", "special", "connection: close\r\nx-test: is on\r\n");
    for (request, expected) in [
        (last_post("special"), "first"),
        (special.clone(), "ruled"),
        (last_post("b"), "second"),
        (special, "ruled"),
        (post("/v1/other", "c", "connection: close\r\n"), "other"),
    ] {
        let answer = ask(&provider, &request).await;
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, expected, "{request}");
    }
    let answer = ask(&provider, &last_post("d")).await;
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    let error: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("no answer for request 6, POST /chat/completions: it has 4 responses"), "{message}");
    let chosen: Vec<_> = provider.requests().iter().map(|record| record.response).collect();
    assert_eq!(chosen, [Some(1), Some(0), Some(3), Some(0), Some(2), None]);
}

#[tokio::test]
async fn models_are_listed() {
    let provider = start("models = [\"a\", \"b\"]\n[[response]]\nbody = \"for a POST\"").await;
    let answer = ask(&provider, "GET /v1/models HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    let list: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((&list["data"][0]["id"], &list["data"][1]["id"]), (&json!("a"), &json!("b")));
}

#[tokio::test]
async fn a_connection_takes_one_request_after_the_other_however_their_bodies_come() {
    let provider =
        start("[[response]]\ntext = \"1\"\n[[response]]\nbody = \"two\"\n[[response]]\nbody = \"three\"").await;
    let chunked = "POST /2 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n";
    let all = [post("/chat/completions", STREAMING, ""), chunked.to_owned(), last_post("z")].concat();
    let answer = ask(&provider, &all).await;
    let positions: Vec<_> = ["[DONE]", "two", "three"].iter().map(|part| answer.find(part).expect(part)).collect();
    assert!(positions.is_sorted(), "{answer}");
    assert_eq!(answer.matches("connection: close").count(), 1);
    assert_eq!(provider.requests()[1].body.get(), r#""abcde""#);
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_before_it_sends_its_body() {
    let provider = start("[[response]]\nbody = \"ok\"").await;
    let mut stream = connect(&provider).await;
    let head = "POST /x HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
}

#[tokio::test]
async fn each_framing_marks_the_end_in_its_own_way() {
    for (framing, expected) in [
        ("chunked", "transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"),
        ("length", "content-length: 3\r\n\r\nabc"),
        ("close", "connection: close\r\n\r\nabc"),
    ] {
        let script =
            format!("[[response]]\nframing = \"{framing}\"\nchunks = [{{ text = \"a\" }}, {{ hex = \"62 63\" }}]");
        // Only `close` ends the connection; the others need to be asked to.
        let headers = if framing == "close" { "" } else { "connection: close\r\n" };
        let answer = ask(&start(&script).await, &post("/x", "", headers)).await;
        let without = if framing == "close" { answer } else { answer.replace("connection: close\r\n", "") };
        assert!(without.ends_with(expected), "{framing}: {without:?}");
    }
}

#[tokio::test]
async fn status_and_headers_are_the_scripts_own() {
    let provider = start(
        r#"
        [[response]]
        status = 429
        headers = { Retry-After = "7", Content-Type = "text/html", Connection = "close" }
        body = "<html>"
        [[response]]
        status = 529
        [[response]]
        status = 418
        error = { kind = "quota", message = "no money" }
        [[response]]
        error = { kind = "context_window" }
        "#,
    )
    .await;
    let answer = ask(&provider, &post("/x", "", "")).await;
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
    assert!(answer.contains("Retry-After: 7\r\n") && answer.contains("Content-Type: text/html\r\n"), "{answer}");
    assert_eq!(answer.to_ascii_lowercase().matches("content-type").count(), 1);
    let answer = ask(&provider, &last_post("")).await;
    assert!(answer.starts_with("HTTP/1.1 529 ") && answer.contains("scripted status 529"), "{answer}");
    let answer = ask(&provider, &post("/v1/messages", "{}", "connection: close\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 418 ") && answer.contains("content-type: application/json"), "{answer}");
    assert!(answer.contains(r#""type":"billing_error""#) && answer.contains("no money"), "{answer}");
    let answer = ask(&provider, &post("/no/wire", "no json", "connection: close\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("context_length_exceeded"), "{answer}");
}

#[tokio::test]
async fn a_cut_stream_ends_without_its_last_chunk_after_exactly_the_pieces_it_names() {
    let provider = start("[[response]]\ntext = \"abcdef\"\nchunk_chars = 1\nstop_after = 3\nclose = \"cut\"").await;
    let answer = ask(&provider, &post("/chat/completions", STREAMING, "")).await;
    assert_eq!(answer.matches("data: ").count(), 3);
    assert!(answer.contains(r#""content":"b""#) && !answer.contains(r#""content":"c""#), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_reset_is_a_reset_and_a_connection_without_a_head_sends_nothing() {
    for script in ["close = \"reset\"\nbody = \"x\"", "close = \"reset\"\nno_head = true"] {
        let provider = start(&format!("[[response]]\n{script}")).await;
        let mut stream = connect(&provider).await;
        stream.write_all(post("/x", "", "").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
        let error = read.await.expect("the connection is reset").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{script}");
        assert!(answer.is_empty() == script.contains("no_head"), "{script}: {answer:?}");
    }
    let provider = start("[[response]]\nclose = \"cut\"\nno_head = true").await;
    assert_eq!(ask(&provider, &post("/x", "", "")).await, "");
}

#[tokio::test]
async fn delays_and_stalls_fall_between_the_pieces_that_they_name() {
    let provider = start(
        r#"
        [[response]]
        head_delay_ms = 60
        chunks = [{ text = "a" }, { text = "b", delay_ms = 60 }, { text = "c" }]
        stall_after = 2
        stall_ms = 60
        framing = "close"
        "#,
    )
    .await;
    let begin = Instant::now();
    let mut stream = connect(&provider).await;
    stream.write_all(post("/x", "", "").as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    for end in ["\r\n\r\na", "b", "c"] {
        let mut part = String::new();
        while !part.ends_with(end) {
            part.push(char::from(stream.read_u8().await.unwrap()));
        }
        seen.push(begin.elapsed());
    }
    for (seen, least) in seen.iter().zip([60, 120, 180]) {
        assert!(*seen >= Duration::from_millis(least), "{seen:?} < {least}");
    }
}

#[tokio::test]
async fn hold_and_endless_stall_keep_the_connection_open_until_the_client_leaves() {
    for script in ["close = \"hold\"", "stall_after = 0"] {
        let provider = start(&format!(
            "[[response]]\nbody = \"abc\"\nframing = \"chunked\"\n{script}\n[[response]]\nbody = \"next\""
        ))
        .await;
        let mut stream = connect(&provider).await;
        stream.write_all(post("/x", "", "").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_millis(150), stream.read_to_end(&mut answer)).await;
        assert!(read.is_err(), "{script}: the connection was closed");
        assert!(answer.ends_with(b"abc\r\n") == script.contains("hold"), "{script}: {answer:?}");
        drop(stream);
        assert!(ask(&provider, &last_post("")).await.ends_with("next"), "others are served meanwhile");
    }
}

#[tokio::test]
async fn what_is_no_http_is_answered_and_the_connection_closed() {
    let provider = start("").await;
    for request in [
        "hello\r\n\r\n",
        "GET / HTTP/9\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "POST / HTTP/1.1\r\nno colon\r\n\r\n",
    ] {
        let answer = ask(&provider, request).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("mock_provider"), "{request:?}: {answer}");
    }
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn the_log_has_a_request_before_its_answer_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.jsonl");
    let script = Script::parse("script", "[[response]]\nbody = \"x\"\nrepeat = true").unwrap();
    let provider = MockProvider::start(script, Some(&log), 0).await.unwrap();
    for number in 1..=2 {
        ask(&provider, &post("/x", "{\"a\":\n1}", "authorization: Bearer k\r\nconnection: close\r\n")).await;
        let text = std::fs::read_to_string(&log).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), number);
        let last = &lines[number - 1];
        assert_eq!((&last["request"], &last["method"], &last["path"]), (&json!(number), &json!("POST"), &json!("/x")));
        assert_eq!((&last["body"], &last["headers"]["authorization"]), (&json!({ "a": 1 }), &json!("<redacted>")));
    }
}

#[tokio::test]
async fn dropping_the_provider_ends_its_connections() {
    let provider = start("[[response]]\nbody = \"x\"\nclose = \"hold\"").await;
    let mut stream = connect(&provider).await;
    stream.write_all(post("/x", "", "").as_bytes()).await.unwrap();
    stream.read_u8().await.unwrap();
    drop(provider);
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "the connection is still open");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let provider = start("").await;
    let port = provider.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let error = MockProvider::start(Script::default(), None, port).await.unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[test]
fn a_script_that_contradicts_itself_is_refused_with_its_place() {
    for (script, expected) in [
        ("[[response]]\ntxet = \"a\"", "script: TOML parse error at line 2, column 1"),
        ("[[response]]\ntxet = \"a\"", "unknown field `txet`"),
        ("{\"response\":[{\"text\":\"a\",\n\"clos\":1}]}", "unknown field `clos`"),
        ("{\"response\":[{\"text\":\"a\",\n\"clos\":1}]}", "at line 2 column"),
        ("[[response]]\nclose = \"bang\"", "unknown variant `bang`"),
        ("[[response]]\nbody = \"a\"\n[[response]]\nbody = \"a\"\nchunks = []", "response 2: `body` and `chunks`"),
        ("[[response]]\nbody = \"a\"\ntext = \"b\"", "`text` describes an answer"),
        ("[[response]]\nstatus = 500\ntext = \"b\"", "the status is 500"),
        ("[[response]]\nstatus = 99", "not from 200 to 599"),
        ("[[response]]\nerror = { kind = \"odd\" }", "unknown variant `odd`"),
        ("[[response]]\nerror = { kind = \"server\" }\nbody = \"a\"", "`error` describes an answer"),
        ("[[response]]\nerror = { kind = \"server\" }\ntext = \"a\"", "set its `in_stream`"),
        ("[[response]]\nerror = { kind = \"server\" }\nstatus = 200", "the status is 200"),
        ("[[response]]\nerror = { kind = \"server\", in_stream = true }\nstatus = 500", "the status is 500"),
        ("[[response]]\nerror = { kind = \"server\", in_stream = true }\nfinish = \"stop\"", "there is no `finish`"),
        ("[[response]]\nchunks = [{ delay_ms = 1 }]", "either `text` or `hex`"),
        ("[[response]]\nchunks = [{ hex = \"abc\" }]", "pairs of hex digits"),
        ("[[response]]\nheaders = { \"a b\" = \"c\" }", "header \"a b\" cannot be sent"),
        ("[[response]]\nchunk_chars = 0", "the least is 1"),
        ("[[response]]\nstall_ms = 5", "`stall_after`"),
        ("[[response]]\nno_head = true", "`no_head` needs `close`"),
    ] {
        let error = Script::parse("script", script).unwrap_err().to_string();
        assert!(error.contains(expected), "{script:?}: {error}");
    }
}

#[test]
fn toml_and_json_say_the_same_and_a_log_is_relative_to_its_script() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.toml", "log = \"r.jsonl\"\n[[response]]\ntext = \"hi\"\nfinish = \"length\""),
        ("a.json", r#"{"log":"r.jsonl","response":[{"text":"hi","finish":"length"}]}"#),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let script = Script::load(&path).unwrap();
        assert_eq!(script.log, Some(folder.path().join("r.jsonl")));
        let Body::Described(answer) = script.responses[0].body() else { panic!("{name} describes an answer") };
        assert_eq!((answer.text.as_str(), answer.finish, answer.chunk_chars), ("hi", Finish::Length, 16));
    }
    let error = Script::load(&folder.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
}
