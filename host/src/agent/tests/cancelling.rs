//! A turn that is cancelled ends as aborted at every moment, its log closed and what was shown kept.

use dsh_plugin_api::vocab::{Block, Chunk, Failure, FailureCode, FinishReason};

use super::world::{Moment, World, bash, end, failing, says, text};
use crate::agent::{TurnReason, Update};

const ABORTED: &str = "turn/end aborted: user";

/// Cancels at the first such update; gives the log after the user's message, and the rest of the world.
async fn cancelled(at: Moment, attempts: Vec<Vec<Chunk>>) -> (Vec<String>, World) {
    let world = World::new(attempts);
    *world.cancel_at.lock().unwrap() = Some(at);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!(turn.reason, TurnReason::Aborted);
    let log = world.log(&session).split_off(3);
    assert_eq!(log[log.len() - 2..], ["step/end", ABORTED]);
    (log[..log.len() - 2].to_vec(), world)
}

#[tokio::test]
async fn before_the_request() {
    let world = World::new(vec![says("never")]);
    world.cancel.cancel();
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!((turn.reason, turn.text.as_str()), (TurnReason::Aborted, ""));
    assert_eq!(world.log(&session)[3..], ["step/end", ABORTED]);
}

#[tokio::test]
async fn while_the_answer_streams() {
    // The stream stays open: only the cancel ends it.
    let (log, _) = cancelled(|update| matches!(update, Update::Text(_)), vec![text(0, "half")]).await;
    assert_eq!(log, ["interrupted: half"]);
    let with_call = [text(0, "half"), bash(1, "c", "touch ran")].concat();
    let (log, world) = cancelled(|update| matches!(update, Update::Text(_)), vec![with_call]).await;
    assert_eq!(log, ["interrupted: half"]);
    assert!(!world.folder.path().join("ran").exists());
}

#[tokio::test]
async fn while_a_retry_is_awaited() {
    let failure = match failing(FailureCode::RateLimit, Some(429)).pop() {
        Some(Chunk::Finish { reason: FinishReason::Error { failure }, .. }) => failure,
        other => panic!("{other:?}"),
    };
    let failure = Failure { provider_retry_after_ms: Some(50_000), ..failure };
    let attempts = vec![end(FinishReason::Error { failure }), says("never")];
    let (log, world) = cancelled(|update| matches!(update, Update::Retry { .. }), attempts).await;
    assert_eq!(log, [""; 0], "no further attempt began");
    assert_eq!(world.left(), 1);
}

#[tokio::test]
async fn what_was_shown_of_a_failed_attempt_stays_when_the_next_one_never_begins() {
    let failure = Failure { provider_retry_after_ms: Some(50_000), ..Failure::new(FailureCode::Transport, "gone") };
    let finish = end(FinishReason::Error { failure });
    let broken = [text(0, "half"), bash(1, "c", "touch ran"), finish].concat();
    let (log, world) = cancelled(|update| matches!(update, Update::Retry { .. }), vec![broken, says("never")]).await;
    assert_eq!(log, ["interrupted: half"]);
    assert_eq!(world.shown(|update| matches!(update, Update::AttemptDiscarded)), 0);
}

#[tokio::test]
async fn while_the_model_has_only_thought() {
    let thought = [
        vec![Chunk::BlockEnd { index: 0, block: Block::Reasoning("hm".to_owned()) }],
        vec![Chunk::TextDelta { index: 1, text: "\n".to_owned() }],
    ];
    let (log, _) = cancelled(|update| matches!(update, Update::Text(_)), vec![thought.concat()]).await;
    assert_eq!(log, [""; 0]);
}

#[tokio::test]
async fn while_a_tool_runs() {
    let calling =
        [bash(0, "c1", "touch begun; sleep 60"), bash(1, "c2", "touch ran"), end(FinishReason::Stop)].concat();
    let world = World::new(vec![calling, says("never")]);
    let (begun, cancel) = (world.folder.path().join("begun"), world.cancel.clone());
    tokio::spawn(async move {
        while !begun.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        cancel.cancel();
    });
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!(turn.reason, TurnReason::Aborted);
    assert_eq!(
        world.log(&session)[4..],
        [
            "call c1",
            "result c1 AbortError:ABORTED: [[killed: the user cancelled]]",
            "call c2",
            "result c2 AbortError:ABORTED_BEFORE_DISPATCH: [The call was not run: the user cancelled.]",
            "step/end",
            ABORTED,
        ]
    );
    assert!(!world.folder.path().join("ran").exists());
    assert_eq!(world.left(), 1, "no request follows");
}

#[tokio::test]
async fn between_two_tools() {
    let calling = [bash(0, "c1", "echo one"), bash(1, "c2", "touch ran"), end(FinishReason::Stop)].concat();
    let (log, world) =
        cancelled(|update| matches!(update, Update::ToolResult { .. }), vec![calling, says("never")]).await;
    assert_eq!(log[1..3], ["call c1", "result c1: [one]"]);
    assert!(log[4].starts_with("result c2 AbortError:ABORTED_BEFORE_DISPATCH"), "{}", log[4]);
    assert!(!world.folder.path().join("ran").exists());
}

#[tokio::test]
async fn the_session_goes_on_after_a_cancel() {
    let (_, world) = cancelled(|update| matches!(update, Update::Text(_)), vec![text(0, "half")]).await;
    let id = world.composition.store.list().unwrap()[0].id.clone();
    world.script(vec![says("on")]);
    *world.cancel_at.lock().unwrap() = None;
    let options = crate::agent::SessionOptions { model: None, cwd: world.folder.path().to_owned() };
    let composition = std::sync::Arc::clone(&world.composition);
    let mut session =
        crate::agent::Session::resume(composition, &id, options, std::sync::Arc::new(|_| {})).await.unwrap();
    let go = tokio_util::sync::CancellationToken::new();
    let turn = session.prompt(vec![Block::Text("go on".to_owned())], &go).await.unwrap();
    assert_eq!(turn.text, "on");
    assert!(world.last_request()[1].contains("half"), "{:?}", world.last_request());
}
