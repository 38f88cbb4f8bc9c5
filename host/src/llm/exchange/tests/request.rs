//! What goes out, where it may go, and what is said when nobody answers.

use std::time::Duration;

use dsh_plugin_api::adapter::header;
use dsh_plugin_api::vocab::{Exchange, FailureCode, FinishReason, HeaderValue, HttpHeader, HttpRequest};
use tokio::io::AsyncWriteExt;

use super::adapter::Lines;
use super::server::{Server, Step, head, ok, send};
use super::{PATIENT, against, exchange, in_child, prepared, read, request, to};
use crate::llm::client::Client;
use crate::manifest::Transport;

/// A credential of tests that run [`in_child`].
const KEY: &str = "DSH_TEST_KEY";
const KEY_VALUE: &str = "sk-test-0123456789";

fn credential(reference: &str) -> HttpHeader {
    let value = HeaderValue::Credential { reference: reference.into(), prefix: "Bearer ".into() };
    HttpHeader { name: "authorization".into(), value }
}

#[tokio::test]
async fn the_request_is_what_the_adapter_said_and_what_it_left_to_the_host() {
    if !in_child("the_request_is_what_the_adapter_said_and_what_it_left_to_the_host", &[(KEY, KEY_VALUE)]) {
        return;
    }
    let server = Server::start(vec![vec![ok(), send(".\n")]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![header("x-one", "1"), header("x-one", "2"), credential(KEY)];
    let prepared = prepared(Lines::default(), Some(&server.origin), Some(KEY), Exchange::Http(request.clone()));
    assert_eq!(exchange(PATIENT, &prepared).await.reason, FinishReason::Stop);
    let seen = server.requests().remove(0);
    assert!(seen.head.starts_with("POST /v1/x HTTP/1.1\r\n"), "{}", seen.head);
    assert_eq!(seen.body, request.body.get(), "the body is sent byte for byte");
    for (name, values) in [
        ("x-one", vec!["1", "2"]),
        ("authorization", vec![&*format!("Bearer {KEY_VALUE}")]),
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
async fn connections_are_used_again() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n.\n";
    let server = Server::start(vec![vec![send(answer), Step::KeepAlive], vec![send(answer), Step::KeepAlive]]).await;
    let client = Client::new(PATIENT);
    for _ in 0..2 {
        assert_eq!(read(&mut client.open(&to(&server, Lines::default()))).await.reason, FinishReason::Stop);
        // The pool takes a connection back in a task of its own.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(server.requests().iter().map(|request| request.connection).collect::<Vec<_>>(), [0, 0]);
}

#[tokio::test]
async fn nobody_at_the_other_end_is_said_in_plain_words() {
    if !in_child("nobody_at_the_other_end_is_said_in_plain_words", &[("NO_PROXY", "*"), ("no_proxy", "*")]) {
        return;
    }
    let reset = Server::start(vec![vec![Step::Reset]]).await;
    let closed = Server::start(vec![vec![]]).await;
    let babble = Server::start(vec![vec![send("220 mail.example.com ESMTP\r\n")]]).await;
    for (origin, says) in [
        ("http://127.0.0.1:1".into(), "cannot reach http://127.0.0.1:1: connection refused by 127.0.0.1:1".into()),
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
async fn a_peer_that_speaks_no_tls_fails_the_connection() {
    // Waits for the end of a request head, which a handshake never contains.
    let silent = Server::start(vec![]).await.origin.replace("http:", "https:");
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answering = format!("https://{}", plain.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    let config = Transport { connect_timeout_ms: 600, ..PATIENT };
    for (origin, code, says) in [
        (silent, FailureCode::Timeout, ": no connection within 0.6 s"),
        (answering, FailureCode::Transport, ": received corrupt message"),
    ] {
        let to = prepared(Lines::default(), Some(&origin), None, Exchange::Http(request(&origin)));
        let got = exchange(config, &to).await;
        assert_eq!(got.failure().code, code, "{}", got.failure().message);
        let says = format!("cannot reach {origin}{says}");
        assert!(got.failure().message.starts_with(&says), "{says:?} in {:?}", got.failure().message);
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_shown_without_its_query() {
    if !in_child("a_redirect_is_not_followed_and_shown_without_its_query", &[(KEY, KEY_VALUE)]) {
        return;
    }
    let other = Server::start(vec![vec![ok(), send(".\n")]]).await;
    let location = format!("location: {}/v2?key=hidden\r\n", other.origin.replace("://", "://user:hidden@"));
    let server = Server::start(vec![vec![head("307 Temporary Redirect", &location)]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![credential(KEY)];
    let prepared = prepared(Lines::default(), Some(&server.origin), Some(KEY), Exchange::Http(request));
    let got = exchange(PATIENT, &prepared).await;
    let failure = got.failure();
    assert_eq!((failure.code.name(), failure.status), ("INVALID_REQUEST", Some(307)));
    assert!(failure.message.contains(&format!("{}/v2 ", other.origin)), "{}", failure.message);
    assert!(!failure.message.contains("hidden"), "{}", failure.message);
    assert!(other.requests().is_empty(), "the redirect was followed");
}

#[tokio::test]
async fn a_secret_that_a_provider_quotes_is_not_passed_on() {
    if !in_child("a_secret_that_a_provider_quotes_is_not_passed_on", &[(KEY, KEY_VALUE)]) {
        return;
    }
    let refusal = format!("!AUTH Incorrect key {KEY_VALUE} given\n");
    let server = Server::start(vec![vec![head("401 No", ""), send(refusal)]]).await;
    let mut request = request(&server.origin);
    request.headers = vec![credential(KEY)];
    let prepared = prepared(Lines::default(), Some(&server.origin), Some(KEY), Exchange::Http(request));
    let got = exchange(PATIENT, &prepared).await;
    assert_eq!(got.failure().message, format!("Incorrect key <credential {KEY}> given"));
}

#[tokio::test]
async fn a_request_that_its_route_may_not_make_is_not_sent() {
    let server = Server::start(vec![]).await;
    let own = server.origin.as_str();
    let port = own.rsplit(':').next().unwrap();
    let with = |headers| HttpRequest { headers, ..request(own) };
    let elsewhere = |url: String| HttpRequest { url, ..with(vec![credential(KEY)]) };
    let unset = "DSH_TEST_NEVER_SET";
    let cases = [
        (elsewhere("http://127.0.0.1:1/".into()), Some(own), Some(KEY), "UNSUPPORTED", "may only go to"),
        (elsewhere(format!("http://localhost:{port}/")), Some(own), Some(KEY), "UNSUPPORTED", "may only go"),
        (elsewhere(own.replace("//", "//me:pw@")), Some(own), Some(KEY), "UNSUPPORTED", "user name or password"),
        (elsewhere("file:///etc/passwd".into()), Some(own), Some(KEY), "UNSUPPORTED", "not an absolute"),
        (elsewhere("/v1/x".into()), Some(own), Some(KEY), "UNSUPPORTED", "not an absolute"),
        (with(vec![credential("PATH")]), Some(own), Some(KEY), "INVALID_CREDENTIAL", "gives it the credential"),
        (with(vec![credential("PATH")]), Some(own), None, "INVALID_CREDENTIAL", "the manifest gives it none"),
        (with(vec![credential(KEY)]), None, Some(KEY), "INVALID_CREDENTIAL", "no origin"),
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
