//! Stopping an attempt from this side.

use std::sync::Arc;

use dsh_plugin_api::abi::Item;
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Chunk, Exchange, Failure, FailureCode, FinishReason, ReplayEnvelope};

use super::adapter::{Lines, delta, error, finish};
use super::server::{Server, Step, ok, send};
use super::{PATIENT, got, prepared, to};
use crate::llm::client::Client;

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
        let mut stream = Client::new(PATIENT).open(&to(&server, adapter));
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
    let mut stream = Client::new(PATIENT).open(&to(&server, adapter));
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
        let mut stream = Client::new(PATIENT).open(&prepared);
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
    let mut stream = Client::new(PATIENT).open(&to(&server, Lines::default()));
    assert!(stream.next().await.is_some());
    drop(stream);
    server.until_gone(1).await;
}

#[tokio::test]
async fn a_stream_can_be_read_from_any_thread() {
    let adapter = Lines { polls: vec![vec![finish(FinishReason::Stop)]], ..Lines::default() };
    let prepared = prepared(adapter, None, None, Exchange::Polled(raw(&())));
    let mut stream = Client::new(PATIENT).open(&prepared);
    let last = tokio::spawn(async move { stream.next().await }).await.unwrap();
    assert!(matches!(last, Some(Chunk::Finish { reason: FinishReason::Stop, .. })));
}
