//! When an attempt runs out of time, and when it does not; polled exchanges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::OpenHead;
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Chunk, Exchange, FinishReason};

use super::adapter::{Lines, delta, error, finish};
use super::server::{Server, Step, ok, send};
use super::{PATIENT, against, exchange, got, prepared, read, to};
use crate::llm::client::Client;
use crate::manifest::Transport;

#[tokio::test]
async fn silence_ends_the_attempt_by_the_idle_clock() {
    let config = Transport { idle_timeout_ms: 600, ..PATIENT };
    for (name, script, text, says) in [
        ("before the head", vec![Step::Hold], "", "no answer from http://"),
        ("inside the head", vec![send("HTTP/1.1 200 OK\r\n"), Step::Hold], "", "within 0.6 s"),
        ("before the body", vec![ok(), Step::Hold], "", "sent nothing for 0.6 s"),
        ("inside the body", vec![ok(), send("+a\n+b"), Step::Hold], "a", "sent nothing for 0.6 s"),
    ] {
        let (got, _, server) = against(config, script, Lines::default()).await;
        assert_eq!((got.text.as_str(), got.failure().code.name()), (text, "TIMEOUT"), "{name}");
        assert!(got.failure().message.contains(says), "{name}: {}", got.failure().message);
        server.until_gone(1).await;
    }
}

#[tokio::test]
async fn bytes_without_progress_do_not_hide_a_stall() {
    let config = Transport { progress_timeout_ms: 800, ..PATIENT };
    for (name, every_ms) in [("keep-alives", 20), ("a flood", 0)] {
        let (got, saw, _server) =
            against(config, vec![ok(), send("+a\n"), Step::Repeat(every_ms, "#\n")], Lines::default()).await;
        assert_eq!((got.text.as_str(), got.failure().code.name()), ("a", "TIMEOUT"), "{name}");
        assert!(got.failure().message.contains("nothing new for 0.8 s"), "{name}: {}", got.failure().message);
        assert!(matches!(saw.lock().unwrap().ends.as_slice(), [StreamEnd::TimedOut(_)]), "{name}");
    }
}

#[tokio::test]
async fn the_end_that_a_decoder_announces_ends_the_body_as_complete() {
    let lines = || Lines { at_end: vec![finish(FinishReason::Stop)], ..Lines::default() };
    for (name, then) in
        [("silence", Step::Hold), ("keep-alives", Step::Repeat(20, "#\n")), ("a flood", Step::Repeat(0, "#\n"))]
    {
        let (got, saw, _server) = against(PATIENT, vec![ok(), send("+a\n~300\n~900000\n"), then], lines()).await;
        assert_eq!((got.text.as_str(), got.reason), ("a", FinishReason::Stop), "{name}");
        assert_eq!(saw.lock().unwrap().ends, [StreamEnd::Complete], "{name}");
    }
}

#[tokio::test]
async fn progress_restarts_both_clocks() {
    let config = Transport { idle_timeout_ms: 1_200, progress_timeout_ms: 1_200, ..PATIENT };
    let mut script = vec![ok()];
    for _ in 0..8 {
        script.extend([send("+a\n"), Step::Pause(250)]);
    }
    script.push(send(".\n"));
    let (got, ..) = against(config, script, Lines::default()).await;
    assert_eq!((got.text.as_str(), got.reason), ("aaaaaaaa", FinishReason::Stop));
}

#[tokio::test]
async fn a_slow_reader_is_no_stalled_provider() {
    let config = Transport { idle_timeout_ms: 1_000, progress_timeout_ms: 1_000, ..PATIENT };
    let server = Server::start(vec![vec![ok(), send("+a\n"), Step::Pause(1_500), send(".\n")]]).await;
    let mut stream = Client::new(config).open(&to(&server, Lines::default()));
    assert!(matches!(stream.next().await, Some(Chunk::TextDelta { .. })));
    tokio::time::sleep(Duration::from_millis(1_400)).await;
    assert_eq!(read(&mut stream).await.reason, FinishReason::Stop);
}

#[tokio::test]
async fn a_transport_failure_of_the_decoder_after_a_stall_reads_as_a_timeout() {
    let config = Transport { idle_timeout_ms: 500, ..PATIENT };
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
    let mut stream = Client::new(config).open(&to(&server, Lines::default()));
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
async fn a_polled_exchange_gives_chunks_and_waits_as_long_as_it_says() {
    let polls = vec![
        vec![delta("a"), Item::Wait(1_200)],
        vec![],
        vec![Item::Wait(1_200)],
        vec![delta("b"), delta("c")],
        vec![finish(FinishReason::Stop), delta("late")],
    ];
    let adapter = Lines { polls, ..Lines::default() };
    let saw = Arc::clone(&adapter.saw);
    let prepared = prepared(adapter, None, None, Exchange::Polled(raw(&["script"])));
    let begun = Instant::now();
    let got = exchange(Transport { progress_timeout_ms: 1_000, ..PATIENT }, &prepared).await;
    assert_eq!((got.text.as_str(), got.reason), ("abc", FinishReason::Stop));
    assert!(begun.elapsed() >= Duration::from_millis(2_400), "the waits were not kept");
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
