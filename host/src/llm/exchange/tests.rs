//! Against servers that chunk, stall, cut and lie, and an adapter that breaks its rules.

mod adapter;
mod server;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::OpenHead;
use dsh_plugin_api::adapter::header;
use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::vocab::{
    Chunk, EnvelopeId, Exchange, Failure, FailureCode, FinishReason, HeaderValue, HttpHeader, HttpRequest,
    ReplayEnvelope, RouteInfo, Target,
};

use self::adapter::{Lines, Saw, delta, error, finish};
use self::server::{Server, Step, head, ok, send};
use crate::llm::client::{Client, Prepared, ResponseStream};
use crate::llm::registry::Route;
use crate::manifest::Transport;

/// Nothing in a test lasts as long, so that only what a test sets can run out.
const PATIENT: Transport = Transport {
    connect_timeout_ms: 30_000,
    idle_timeout_ms: 30_000,
    progress_timeout_ms: 30_000,
    max_retries: 0,
    retry_base_ms: 1,
    retry_max_ms: 1,
};

/// Set by cargo for every test, and printable.
const SET_VARIABLE: &str = "CARGO_PKG_NAME";
const ITS_VALUE: &str = env!("CARGO_PKG_NAME");

fn request(origin: &str) -> HttpRequest {
    let body: Raw = serde_json::from_str(r#"{"b":1,  "a":12345678901234567890123}"#).unwrap();
    HttpRequest { method: "POST".into(), url: format!("{origin}/v1/x"), headers: Vec::new(), body }
}

fn credential(reference: &str) -> HttpHeader {
    let value = HeaderValue::Credential { reference: reference.into(), prefix: "Bearer ".into() };
    HttpHeader { name: "authorization".into(), value }
}

fn prepared(adapter: Lines, origin: Option<&str>, credential: Option<&str>, exchange: Exchange) -> Prepared {
    let info = RouteInfo {
        name: "local".into(),
        api: None,
        origin: origin.map(str::to_owned),
        credential: credential.map(str::to_owned),
        models: Vec::new(),
        any_model: true,
    };
    let route = Route {
        info,
        adapter: "lines".into(),
        envelope: EnvelopeId { kind: "lines".into(), version: 1 },
        handle: Arc::new(adapter),
        credential: credential.map(str::to_owned),
        origin: origin.map(str::to_owned),
    };
    Prepared {
        route: Arc::new(route),
        target: Target { provider: "local".into(), model: "m".into() },
        exchange,
        degraded: Vec::new(),
        neutral: Vec::new(),
        repairs: Vec::new(),
        native: 0,
    }
}

fn to(server: &Server, adapter: Lines) -> Prepared {
    prepared(adapter, Some(&server.origin), None, Exchange::Http(request(&server.origin)))
}

/// What a reader got: the text, and the one finish.
struct Got {
    text: String,
    reason: FinishReason,
}

impl Got {
    fn failure(&self) -> &Failure {
        self.reason.failure().unwrap()
    }
}

async fn read(stream: &mut ResponseStream) -> Got {
    let mut chunks = Vec::new();
    while let Some(chunk) = stream.next().await {
        chunks.push(chunk);
    }
    assert!(stream.next().await.is_none(), "a chunk after the end");
    assert!(stream.cancel().is_empty(), "a chunk is due after the end");
    got(chunks)
}

/// Checks the grammar: one finish, at the end.
fn got(mut chunks: Vec<Chunk>) -> Got {
    let Some(Chunk::Finish { reason, .. }) = chunks.pop() else { panic!("the last chunk is no finish") };
    let text = chunks.into_iter().map(|chunk| match chunk {
        Chunk::TextDelta { text, .. } => text,
        other => panic!("unexpected {other:?}"),
    });
    Got { text: text.collect(), reason }
}

async fn exchange(config: Transport, prepared: &Prepared) -> Got {
    read(&mut Client::new(config).unwrap().open(prepared)).await
}

/// One request to a server with this script.
async fn against(config: Transport, script: Vec<Step>, adapter: Lines) -> (Got, Arc<Mutex<Saw>>, Server) {
    let server = Server::start(vec![script]).await;
    let saw = Arc::clone(&adapter.saw);
    let got = exchange(config, &to(&server, adapter)).await;
    (got, saw, server)
}

#[tokio::test]
async fn pieces_become_chunks_in_order() {
    let script = vec![ok(), send("+Hel"), Step::Pause(20), send("lo\n+ wor"), Step::Pause(20), send("ld\n.\n")];
    let (got, saw, _server) = against(PATIENT, script, Lines::default()).await;
    assert_eq!((got.text.as_str(), got.reason), ("Hello world", FinishReason::Stop));
    let saw = saw.lock().unwrap();
    assert_eq!(saw.ends, [], "a finished decoder is told of an end");
    assert_eq!(saw.closed, 1);
}

#[tokio::test]
async fn the_request_is_what_the_adapter_said_and_what_it_left_to_the_host() {
    let server = Server::start(vec![vec![ok(), send(".\n")]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![header("x-one", "1"), header("x-one", "2"), credential(SET_VARIABLE)];
    let prepared =
        prepared(Lines::default(), Some(&server.origin), Some(SET_VARIABLE), Exchange::Http(request.clone()));
    assert_eq!(exchange(PATIENT, &prepared).await.reason, FinishReason::Stop);
    let seen = server.requests().remove(0);
    assert!(seen.head.starts_with("POST /v1/x HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.body, request.body.get(), "the body is sent byte for byte");
    for (name, values) in [
        ("x-one", vec!["1", "2"]),
        ("authorization", vec![&*format!("Bearer {ITS_VALUE}")]),
        ("content-type", vec!["application/json"]),
        ("accept", vec!["text/event-stream, application/json;q=0.9, */*;q=0.5"]),
        ("accept-encoding", vec!["gzip"]),
        ("user-agent", vec![concat!("dsh/", env!("CARGO_PKG_VERSION"))]),
        ("content-length", vec![&*request.body.get().len().to_string()]),
    ] {
        assert_eq!(seen.header(name), values, "{name} in {}", seen.head);
    }
}

#[tokio::test]
async fn headers_of_the_adapter_win_over_the_defaults() {
    let server = Server::start(vec![vec![ok(), send(".\n")]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![header("content-type", "application/x-own"), header("accept", "application/json")];
    exchange(PATIENT, &prepared(Lines::default(), Some(&server.origin), None, Exchange::Http(request))).await;
    let seen = server.requests().remove(0);
    assert_eq!(seen.header("content-type"), ["application/x-own"]);
    assert_eq!(seen.header("accept"), ["application/json"]);
}

#[tokio::test]
async fn every_status_opens_the_decoder_with_its_headers() {
    let script = vec![head("418 Teapot", "X-Mixed-Case: Yes\r\n"), send("!AUTH no\n")];
    let (got, saw, _server) = against(PATIENT, script, Lines::default()).await;
    assert_eq!((got.failure().code.name(), got.failure().status), ("AUTH", Some(418)));
    let saw = saw.lock().unwrap();
    let [OpenHead::Http { status: 418, headers }] = saw.heads.as_slice() else { panic!("{:?}", saw.heads) };
    assert!(headers.contains(&("x-mixed-case".into(), "Yes".into())), "{headers:?}");
}

#[tokio::test]
async fn the_end_of_the_connection_is_not_awaited() {
    let (got, _, server) = against(PATIENT, vec![ok(), send("+a\n.\n"), Step::Hold], Lines::default()).await;
    assert_eq!(got.reason, FinishReason::Stop);
    server.until_gone(1).await;
}

#[tokio::test]
async fn connections_are_used_again() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n.\n";
    let server = Server::start(vec![vec![send(answer), Step::KeepAlive], vec![send(answer), Step::KeepAlive]]).await;
    let client = Client::new(PATIENT).unwrap();
    for _ in 0..2 {
        assert_eq!(read(&mut client.open(&to(&server, Lines::default()))).await.reason, FinishReason::Stop);
        // The pool takes a connection back in a task of its own.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.requests().iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn a_body_that_ends_without_a_finish_is_told_to_the_decoder_and_fails() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n+a\n\r\n";
    let cut = "the connection to http://";
    for (name, script, is_cut, says) in [
        ("HTTP/1.0 and close", vec![send("HTTP/1.0 200 OK\r\n\r\n+a\n")], false, "before the answer was complete"),
        ("chunked, complete", vec![send(format!("{chunked}0\r\n\r\n"))], false, "before the answer was complete"),
        ("chunked, cut", vec![send(chunked)], true, cut),
        ("short of its length", vec![send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n+a\n")], true, cut),
        ("reset", vec![send(chunked), Step::Pause(200), Step::Reset], true, "connection reset by the server"),
    ] {
        let (got, saw, _server) = against(PATIENT, script, Lines::default()).await;
        assert_eq!((got.text.as_str(), got.failure().code.name()), ("a", "TRANSPORT"), "{name}");
        assert!(got.failure().message.contains(says), "{name}: {}", got.failure().message);
        let ends = saw.lock().unwrap().ends.clone();
        assert!(matches!(ends.as_slice(), [end] if matches!(end, StreamEnd::Cut(_)) == is_cut), "{name}: {ends:?}");
    }
}

#[tokio::test]
async fn what_the_decoder_makes_of_the_end_is_the_end() {
    let adapter = Lines { at_end: vec![delta("b"), finish(FinishReason::Stop)], ..Lines::default() };
    let (got, ..) = against(PATIENT, vec![ok(), send("+a\n")], adapter).await;
    assert_eq!((got.text.as_str(), got.reason), ("ab", FinishReason::Stop));
}

#[tokio::test]
async fn compressed_answers_arrive_as_text() {
    // `+zip\n.\n` as one stored block.
    let gzip: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1, 7, 0, 0xf8, 0xff, b'+', b'z', b'i', b'p', b'\n', b'.', b'\n', 0xfd,
        0x51, 0xd4, 0xb6, 7, 0, 0, 0,
    ];
    let script = vec![head("200 OK", "content-encoding: gzip\r\n"), send(gzip)];
    let (got, ..) = against(PATIENT, script, Lines::default()).await;
    assert_eq!(got.text, "zip", "{:?}", got.reason);
}

#[tokio::test]
async fn silence_ends_the_attempt_by_the_idle_clock() {
    let config = Transport { idle_timeout_ms: 150, ..PATIENT };
    for (name, script, text, says) in [
        ("before the head", vec![Step::Hold], "", "no answer from http://"),
        ("inside the head", vec![send("HTTP/1.1 200 OK\r\n"), Step::Hold], "", "within 0.15 s"),
        ("before the body", vec![ok(), Step::Hold], "", "sent nothing for 0.15 s"),
        ("inside the body", vec![ok(), send("+a\n+b"), Step::Hold], "a", "sent nothing for 0.15 s"),
    ] {
        let (got, _, server) = against(config, script, Lines::default()).await;
        assert_eq!((got.text.as_str(), got.failure().code.name()), (text, "TIMEOUT"), "{name}");
        assert!(got.failure().message.contains(says), "{name}: {}", got.failure().message);
        server.until_gone(1).await;
    }
}

#[tokio::test]
async fn bytes_without_progress_do_not_hide_a_stall() {
    let config = Transport { progress_timeout_ms: 400, ..PATIENT };
    for (name, every_ms) in [("keep-alives", 20), ("a flood", 0)] {
        let (got, saw, _server) =
            against(config, vec![ok(), send("+a\n"), Step::Repeat(every_ms, "#\n")], Lines::default()).await;
        assert_eq!((got.text.as_str(), got.failure().code.name()), ("a", "TIMEOUT"), "{name}");
        assert!(got.failure().message.contains("nothing new for 0.4 s"), "{name}: {}", got.failure().message);
        assert!(matches!(saw.lock().unwrap().ends.as_slice(), [StreamEnd::TimedOut(_)]), "{name}");
    }
}

#[tokio::test]
async fn progress_restarts_both_clocks() {
    let config = Transport { idle_timeout_ms: 600, progress_timeout_ms: 600, ..PATIENT };
    let mut script = vec![ok()];
    for _ in 0..8 {
        script.extend([send("+a\n"), Step::Pause(150)]);
    }
    script.push(send(".\n"));
    let (got, ..) = against(config, script, Lines::default()).await;
    assert_eq!((got.text.as_str(), got.reason), ("aaaaaaaa", FinishReason::Stop));
}

#[tokio::test]
async fn a_slow_reader_is_no_stalled_provider() {
    let config = Transport { idle_timeout_ms: 300, progress_timeout_ms: 300, ..PATIENT };
    let server = Server::start(vec![vec![ok(), send("+a\n"), Step::Pause(900), send(".\n")]]).await;
    let mut stream = Client::new(config).unwrap().open(&to(&server, Lines::default()));
    assert!(matches!(stream.next().await, Some(Chunk::TextDelta { .. })));
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert_eq!(read(&mut stream).await.reason, FinishReason::Stop);
}

#[tokio::test]
async fn a_transport_failure_of_the_decoder_after_a_stall_reads_as_a_timeout() {
    let config = Transport { idle_timeout_ms: 100, ..PATIENT };
    for (code, expected) in [("TRANSPORT", "TIMEOUT"), ("SERVER", "SERVER")] {
        let adapter = Lines { at_end: vec![finish(error(code, "gone"))], ..Lines::default() };
        let (got, ..) = against(config, vec![ok(), Step::Hold], adapter).await;
        assert_eq!(got.failure().code.name(), expected);
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_loses_nothing_and_does_not_restart_the_clocks() {
    let config = Transport { idle_timeout_ms: 1_500, ..PATIENT };
    let script =
        vec![Step::Pause(150), ok(), Step::Pause(150), send("+a\n"), Step::Pause(150), send("+b\n"), Step::Hold];
    let server = Server::start(vec![script]).await;
    let mut stream = Client::new(config).unwrap().open(&to(&server, Lines::default()));
    let begun = Instant::now();
    let mut chunks = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_millis(7), stream.next()).await {
            Ok(Some(chunk)) => chunks.push(chunk),
            Ok(None) => break,
            Err(_) => assert!(begun.elapsed() < Duration::from_secs(15), "the idle clock starts again and again"),
        }
    }
    let got = got(chunks);
    assert_eq!((got.text.as_str(), got.failure().code.name()), ("ab", "TIMEOUT"));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn nobody_at_the_other_end_is_said_in_plain_words() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reset = Server::start(vec![vec![Step::Reset]]).await;
    let closed = Server::start(vec![vec![]]).await;
    let babble = Server::start(vec![vec![send("220 mail.example.com ESMTP\r\n")]]).await;
    for (origin, says) in [
        (format!("http://{free}"), format!("cannot reach http://{free}: connection refused by {free}")),
        (
            "http://nobody.invalid".into(),
            "cannot reach http://nobody.invalid: the name nobody.invalid cannot be".into(),
        ),
        (reset.origin.clone(), format!("no answer from {}: connection reset by the server", reset.origin)),
        (closed.origin.clone(), format!("no answer from {}: connection closed before", closed.origin)),
        (babble.origin.clone(), format!("no answer from {}: invalid HTTP version parsed", babble.origin)),
    ] {
        let exchange_of = Exchange::Http(request(&origin));
        let got = exchange(PATIENT, &prepared(Lines::default(), Some(&origin), None, exchange_of)).await;
        assert_eq!(got.failure().code, FailureCode::Transport, "{origin}");
        assert!(got.failure().message.contains(&says), "{says:?} in {:?}", got.failure().message);
        assert_eq!(got.failure().message.matches("refused").count(), says.matches("refused").count());
    }
}

#[tokio::test]
async fn a_plain_server_behind_https_is_a_transport_failure_with_its_cause() {
    let server = Server::start(vec![]).await;
    let origin = server.origin.replace("http:", "https:");
    let exchange_of = Exchange::Http(request(&origin));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    drop(listener);
    let client = Client::new(Transport { connect_timeout_ms: 300, ..PATIENT }).unwrap();
    let got = read(&mut client.open(&prepared(Lines::default(), Some(&origin), None, exchange_of))).await;
    // The server waits for a request that never comes in the clear: the handshake counts as connecting.
    assert_eq!(got.failure().code, FailureCode::Timeout);
    assert!(got.failure().message.contains("no connection within 0.3 s"), "{}", got.failure().message);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_shown_without_its_query() {
    let other = Server::start(vec![vec![ok(), send(".\n")]]).await;
    let location = format!("location: {}/v2?key=hidden\r\n", other.origin.replace("://", "://user:hidden@"));
    let server = Server::start(vec![vec![head("307 Temporary Redirect", &location)]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![credential(SET_VARIABLE)];
    let prepared = prepared(Lines::default(), Some(&server.origin), Some(SET_VARIABLE), Exchange::Http(request));
    let got = exchange(PATIENT, &prepared).await;
    let failure = got.failure();
    assert_eq!((failure.code.name(), failure.status), ("INVALID_REQUEST", Some(307)));
    assert!(failure.message.contains(&format!("{}/v2 ", other.origin)), "{}", failure.message);
    assert!(!failure.message.contains("hidden"), "{}", failure.message);
    assert!(other.requests().is_empty(), "the redirect was followed");
}

#[tokio::test]
async fn an_endless_error_body_is_cut_and_a_broken_one_does_not_hide_the_status() {
    let flood = vec![head("500 Oops", ""), send("#".repeat(64 << 20)), Step::Hold];
    let (got, saw, server) = against(PATIENT, flood, Lines::default()).await;
    assert_eq!((got.failure().code.name(), got.failure().status), ("SERVER", Some(500)));
    assert_eq!(saw.lock().unwrap().body.len(), 1 << 20);
    server.until_gone(1).await;

    let cut = vec![send("HTTP/1.1 401 No\r\ncontent-length: 99\r\n\r\n#")];
    let stalled = vec![head("401 No", ""), Step::Hold];
    for script in [cut, stalled] {
        let (got, saw, _server) =
            against(Transport { idle_timeout_ms: 100, ..PATIENT }, script, Lines::default()).await;
        assert_eq!((got.failure().code.name(), got.failure().status), ("AUTH", Some(401)));
        assert_eq!(saw.lock().unwrap().ends, [StreamEnd::Complete]);
    }
}

#[tokio::test]
async fn a_refusal_carries_its_status_and_the_wait_it_asks_for() {
    for (status, body, code, wait) in [
        ("429 Slow Down\r\nretry-after: 2", "!RATE_LIMIT slow\n", "RATE_LIMIT", Some(2_000)),
        ("529 Overloaded\r\nretry-after-ms: 70", "", "SERVER", Some(70)),
        ("408 Timeout", "", "TIMEOUT", None),
        ("404 Not Found", "", "INVALID_REQUEST", None),
    ] {
        let (got, ..) = against(PATIENT, vec![head(status, ""), send(body)], Lines::default()).await;
        let failure = got.failure();
        assert_eq!((failure.code.name(), failure.provider_retry_after_ms), (code, wait), "{status}");
        assert_eq!(failure.status.unwrap().to_string(), status[..3]);
    }
}

#[tokio::test]
async fn a_secret_that_a_provider_quotes_is_not_passed_on() {
    let refusal = format!("!AUTH Incorrect key {ITS_VALUE} given\n");
    let server = Server::start(vec![vec![head("401 No", ""), send(refusal)]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![credential(SET_VARIABLE)];
    let prepared = prepared(Lines::default(), Some(&server.origin), Some(SET_VARIABLE), Exchange::Http(request));
    let got = exchange(PATIENT, &prepared).await;
    assert_eq!(got.failure().message, format!("Incorrect key <credential {SET_VARIABLE}> given"));
}

#[tokio::test]
async fn a_request_that_its_route_may_not_make_is_not_sent() {
    let server = Server::start(vec![]).await;
    let own = server.origin.as_str();
    let port = own.rsplit(':').next().unwrap();
    let with = |headers| HttpRequest { headers, ..request(own) };
    let elsewhere = |url: String| HttpRequest { url, ..with(vec![credential(SET_VARIABLE)]) };
    let unset = "DSH_TEST_NEVER_SET";
    let cases = [
        (elsewhere("http://127.0.0.1:1/".into()), Some(own), Some(SET_VARIABLE), "UNSUPPORTED", "may only go to"),
        (elsewhere(format!("http://localhost:{port}/")), Some(own), Some(SET_VARIABLE), "UNSUPPORTED", "may only go"),
        (elsewhere("file:///etc/passwd".into()), Some(own), Some(SET_VARIABLE), "UNSUPPORTED", "not an absolute"),
        (elsewhere("/v1/x".into()), Some(own), Some(SET_VARIABLE), "UNSUPPORTED", "not an absolute"),
        (
            with(vec![credential("PATH")]),
            Some(own),
            Some(SET_VARIABLE),
            "INVALID_CREDENTIAL",
            "gives it the credential",
        ),
        (with(vec![credential("PATH")]), Some(own), None, "INVALID_CREDENTIAL", "the manifest gives it none"),
        (with(vec![credential(SET_VARIABLE)]), None, Some(SET_VARIABLE), "INVALID_CREDENTIAL", "no origin"),
        (
            with(vec![credential(unset)]),
            Some(own),
            Some(unset),
            "MISSING_CREDENTIAL",
            "`export DSH_TEST_NEVER_SET=...`",
        ),
        (with(vec![header("content-length", "3")]), Some(own), None, "INVALID_REQUEST", "belongs to the host"),
        (with(vec![header("x y", "3")]), Some(own), None, "INVALID_REQUEST", "is no header name"),
        (with(vec![header("x", "a\nb: c")]), Some(own), None, "INVALID_REQUEST", "is not printable"),
        (HttpRequest { method: "GET IT".into(), ..request(own) }, Some(own), None, "INVALID_REQUEST", "is no method"),
    ];
    for (request, origin, credential, code, says) in cases {
        let got = exchange(PATIENT, &prepared(Lines::default(), origin, credential, Exchange::Http(request))).await;
        assert_eq!(got.failure().code.name(), code, "{}", got.failure().message);
        assert!(got.failure().message.contains(says), "{says:?} in {:?}", got.failure().message);
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn nothing_comes_after_the_first_finish_whatever_the_adapter_does() {
    for (body, text, code) in
        [("+a\n*", "a", None), ("+a\n.\n+b\n.\n", "a", None), ("+a\n?a broken record\n+b\n.\n", "a", Some("PROTOCOL"))]
    {
        let (got, ..) = against(PATIENT, vec![ok(), send(body), send("\n"), Step::Hold], Lines::default()).await;
        assert_eq!((got.text.as_str(), got.reason.failure().map(|f| f.code.name())), (text, code), "{body:?}");
    }
}

#[tokio::test]
async fn a_decoder_that_cannot_be_opened_is_the_failure() {
    let refuses = Some(Failure::new(FailureCode::PluginPanic, "boom"));
    let (got, ..) = against(PATIENT, vec![ok(), Step::Hold], Lines { refuses, ..Lines::default() }).await;
    assert_eq!(got.failure().code, FailureCode::PluginPanic);
}

#[tokio::test]
async fn a_cancel_ends_as_aborted_and_closes_the_connection_at_once() {
    let aborted = FinishReason::Aborted { failure: Failure::new(FailureCode::Aborted, "own") };
    for (name, at_cancel, text, says) in [
        ("the adapter says nothing", vec![], "", "stopped by the host"),
        ("the adapter finishes", vec![delta("b"), finish(aborted), delta("late")], "b", "own"),
        ("the adapter fails", vec![finish(error("PLUGIN_PANIC", "boom"))], "", "boom"),
        ("the adapter breaks its interface", vec![Item::Malformed("x".into())], "", "broke its interface"),
    ] {
        let server = Server::start(vec![vec![ok(), send("+a\n"), Step::Hold]]).await;
        let adapter = Lines { at_cancel, ..Lines::default() };
        let saw = Arc::clone(&adapter.saw);
        let mut stream = Client::new(PATIENT).unwrap().open(&to(&server, adapter));
        assert!(matches!(stream.next().await, Some(Chunk::TextDelta { .. })));
        let rest = got(stream.cancel());
        assert_eq!((rest.text.as_str(), rest.reason.kind()), (text, "aborted"), "{name}");
        assert!(rest.failure().message.contains(says), "{name}: {}", rest.failure().message);
        assert!(stream.next().await.is_none() && stream.cancel().is_empty(), "{name}");
        {
            let saw = saw.lock().unwrap();
            assert_eq!((saw.cancels, saw.closed), (1, 1), "{name}");
        }
        server.until_gone(1).await;
    }
}

#[tokio::test]
async fn a_cancel_before_the_head_needs_no_decoder() {
    let server = Server::start(vec![vec![Step::Hold]]).await;
    let adapter = Lines::default();
    let saw = Arc::clone(&adapter.saw);
    let mut stream = Client::new(PATIENT).unwrap().open(&to(&server, adapter));
    tokio::select! {
        chunk = stream.next() => panic!("unexpected {chunk:?}"),
        () = server.until_requests(1) => {}
    }
    assert_eq!(got(stream.cancel()).reason.kind(), "aborted");
    assert!(saw.lock().unwrap().heads.is_empty());
    server.until_gone(1).await;
}

#[tokio::test]
async fn a_cancel_with_the_finish_in_hand_gives_out_what_is_due() {
    let state = || ReplayEnvelope { response: raw(&1), blocks: None };
    for (reason, keeps_state) in [
        (FinishReason::Stop, true),
        (error("TRANSPORT", "cut"), true),
        (FinishReason::ToolCalls, false),
        (FinishReason::MaxTokens, false),
    ] {
        let last = Item::Chunk(Chunk::Finish { reason: reason.clone(), replay_state: Some(state()) });
        let adapter = Lines { polls: vec![vec![delta("a"), delta("b"), last]], ..Lines::default() };
        let prepared = prepared(adapter, None, None, Exchange::Polled(raw(&())));
        let mut stream = Client::new(PATIENT).unwrap().open(&prepared);
        assert!(stream.next().await.is_some());
        let rest = stream.cancel();
        let Some(Chunk::Finish { replay_state, .. }) = rest.last() else { panic!("no finish in {rest:?}") };
        assert_eq!(replay_state.is_some(), keeps_state, "{reason:?}");
        let rest = got(rest);
        assert_eq!((rest.text.as_str(), rest.reason.kind()), ("b", "aborted"));
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let server = Server::start(vec![vec![ok(), send("+a\n"), Step::Hold]]).await;
    let mut stream = Client::new(PATIENT).unwrap().open(&to(&server, Lines::default()));
    assert!(stream.next().await.is_some());
    drop(stream);
    server.until_gone(1).await;
}

#[tokio::test]
async fn a_polled_exchange_gives_chunks_and_waits_as_long_as_it_says() {
    let polls = vec![
        vec![delta("a"), Item::Wait(300)],
        vec![],
        vec![Item::Wait(300)],
        vec![delta("b"), delta("c")],
        vec![finish(FinishReason::Stop), delta("late")],
    ];
    let adapter = Lines { polls, ..Lines::default() };
    let saw = Arc::clone(&adapter.saw);
    let prepared = prepared(adapter, None, None, Exchange::Polled(raw(&["script"])));
    let begun = Instant::now();
    let got = exchange(Transport { progress_timeout_ms: 200, ..PATIENT }, &prepared).await;
    assert_eq!((got.text.as_str(), got.reason), ("abc", FinishReason::Stop));
    assert!(begun.elapsed() >= Duration::from_millis(600), "the waits were not kept");
    let saw = saw.lock().unwrap();
    assert!(matches!(saw.heads.as_slice(), [OpenHead::Polled(value)] if value.get() == r#"["script"]"#));
}

#[tokio::test]
async fn a_polled_exchange_that_has_nothing_and_names_no_wait_runs_out_of_time() {
    let adapter = Lines { polls: vec![vec![delta("a")]], ..Lines::default() };
    let prepared = prepared(adapter, None, None, Exchange::Polled(raw(&())));
    let got = exchange(Transport { progress_timeout_ms: 150, ..PATIENT }, &prepared).await;
    assert_eq!((got.text.as_str(), got.failure().code.name()), ("a", "TIMEOUT"));
    assert!(got.failure().message.contains("`lines` has had nothing new for 0.15 s"), "{}", got.failure().message);
}

/// Runs a test of this file again in a process of its own, with other environment variables. True in that process.
fn in_child(test: &str, variables: &[(&str, &str)]) -> bool {
    const MARK: &str = "DSH_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = format!("llm::exchange::tests::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--test-threads=1"]).env(MARK, "1").envs(variables.iter().copied());
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[tokio::test]
async fn without_ca_certificates_plain_http_works_and_https_says_what_is_missing() {
    let nowhere = [("SSL_CERT_FILE", "/nonexistent/bundle.pem"), ("SSL_CERT_DIR", "/nonexistent")];
    if !in_child("without_ca_certificates_plain_http_works_and_https_says_what_is_missing", &nowhere) {
        return;
    }
    let (got, ..) = against(PATIENT, vec![ok(), send(".\n")], Lines::default()).await;
    assert_eq!(got.reason, FinishReason::Stop);
    for origin in ["https://127.0.0.1:1", "https://api.example.com"] {
        let got =
            exchange(PATIENT, &prepared(Lines::default(), Some(origin), None, Exchange::Http(request(origin)))).await;
        assert_eq!(got.failure().code, FailureCode::Unsupported, "{}", got.failure().message);
        assert!(got.failure().message.contains("`ca-certificates`"), "{}", got.failure().message);
    }
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used_for_other_hosts_only() {
    let proxy = Server::start(vec![vec![ok(), send("+via proxy\n.\n")]]).await;
    // Only the child's proxy is asked; this one makes the port known to be free of any other server.
    let variables = [("HTTP_PROXY", "http://user:hidden@127.0.0.1:1"), ("NO_PROXY", ""), ("no_proxy", "")];
    if !in_child("a_proxy_of_the_environment_is_used_for_other_hosts_only", &variables) {
        return;
    }
    let got = exchange(PATIENT, &to(&proxy, Lines::default())).await;
    assert_eq!(got.text, "via proxy", "this host is asked without the proxy");
    let origin = "http://api.example.com";
    let got = exchange(PATIENT, &prepared(Lines::default(), Some(origin), None, Exchange::Http(request(origin)))).await;
    let message = &got.failure().message;
    assert!(message.contains("connection refused (the environment names a proxy in HTTP_PROXY)"), "{message}");
    assert!(!message.contains("hidden"), "{message}");
}
