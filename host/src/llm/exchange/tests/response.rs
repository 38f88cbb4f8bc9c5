//! What comes of a body, however it arrives and ends.

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::calls::OpenHead;
use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason};

use super::adapter::{Lines, delta, finish};
use super::server::{Server, Step, head, ok, send};
use super::{PATIENT, against, read, to};
use crate::llm::client::Client;
use crate::manifest::Transport;

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
async fn what_arrives_together_is_decoded_together() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let burst = format!("{head}{}", "3\r\n+a\n\r\n".repeat(200));
    let script = vec![send(burst), Step::Pause(50), send("2\r\n.\n\r\n0\r\n\r\n")];
    let (got, saw, _server) = against(PATIENT, script, Lines::default()).await;
    assert_eq!((got.text, got.reason), ("a".repeat(200), FinishReason::Stop));
    let feeds = saw.lock().unwrap().feeds;
    assert!((2..20).contains(&feeds), "{feeds} feeds for 201 pieces in two bursts");
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
            against(Transport { idle_timeout_ms: 500, ..PATIENT }, script, Lines::default()).await;
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
async fn an_answer_without_end_is_cut_at_the_limit_with_its_content_kept() {
    let flood = Step::Repeat(0, "+0123456789012345678901234567890123456789\n");
    let server = Server::start(vec![vec![ok(), flood]]).await;
    let adapter = Lines { at_end: vec![finish(super::adapter::error("TRANSPORT", "cut"))], ..Lines::default() };
    let saw = std::sync::Arc::clone(&adapter.saw);
    let mut stream = Client::new(PATIENT).open(&to(&server, adapter));
    stream.answer_limit = 100_000;
    let got = read(&mut stream).await;
    let failure = got.failure();
    assert_eq!(failure.code, FailureCode::Protocol, "asking again would bring the same: {failure}");
    assert!(failure.message.contains("more than 100000 bytes"), "{failure}");
    assert!(got.text.len() > 90_000 && got.text.len() < 100_000, "{}", got.text.len());
    assert_eq!(saw.lock().unwrap().body.len(), 100_000);
    server.until_gone(1).await;
}
