//! Turns that run to their end, with tools, retries and failures.

use dsh_plugin_api::vocab::{Failure, FailureCode, FinishReason};

use super::world::{World, bash, call, end, failing, says, text};
use crate::agent::{AgentError, TurnReason, Update};
use crate::store::{StoreError, Writer};

const COMPLETED: &str = "turn/end completed";

#[tokio::test]
async fn a_turn_runs_its_tools_and_answers() {
    // `stop` with complete calls counts as `tool-calls`.
    for finish in [FinishReason::ToolCalls, FinishReason::Stop] {
        let calling = [text(0, "I look."), bash(1, "c1", "echo one"), bash(2, "c2", "exit 3"), end(finish)].concat();
        let world = World::new(vec![calling, says("Done.")]);
        let mut session = world.create().await;
        let turn = world.prompt(&mut session, "look").await;
        assert_eq!((turn.reason, turn.text.as_str()), (TurnReason::Completed, "Done."));
        assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (2, 4));
        assert_eq!(
            world.log(&session),
            [
                "turn/start",
                "step/start",
                "user: look",
                r#"assistant: I look. bash({"command":"echo one"}) bash({"command":"exit 3"})"#,
                "call c1",
                "result c1: [one]",
                "call c2",
                "result c2: [[exit code: 3]]",
                "step/end",
                "step/start",
                "assistant: Done.",
                "step/end",
                COMPLETED,
            ]
        );
        assert_eq!(
            world.last_request(),
            [
                "user: look",
                r#"assistant: I look. bash({"command":"echo one"}) bash({"command":"exit 3"})"#,
                "user: [one]",
                "user: [[exit code: 3]]",
            ]
        );
    }
}

#[tokio::test]
async fn no_call_of_an_answer_that_hit_the_output_limit_is_kept_or_run() {
    for (before, kept) in [(text(0, "I write."), Some("assistant: I write.")), (Vec::new(), None)] {
        let cut = [before, bash(1, "c", "touch ran"), end(FinishReason::MaxTokens)].concat();
        let world = World::new(vec![cut, says("Again.")]);
        let mut session = world.create().await;
        let turn = world.prompt(&mut session, "write").await;
        assert_eq!(turn.reason, TurnReason::MaxTokens);
        assert!(!world.folder.path().join("ran").exists());
        let expected = ["turn/start", "step/start", "user: write"].into_iter().chain(kept);
        let expected = expected.chain(["step/end", "turn/end max-tokens"]);
        assert_eq!(world.log(&session), expected.collect::<Vec<_>>());

        world.prompt(&mut session, "go on").await;
        let expected = ["user: write"].into_iter().chain(kept).chain(["user: go on"]);
        assert_eq!(world.last_request(), expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn calls_that_cannot_run_are_answered_with_the_reason() {
    let bad = [call(0, "c1", r#"{"command":"#), call(1, "c2", r#"{"cmd":1}"#), end(FinishReason::ToolCalls)].concat();
    let world = World::new(vec![bad, says("Sorry.")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "go").await;
    let request = world.last_request();
    assert!(request[2].contains("not run") && request[2].contains("cut off"), "{}", request[2]);
    assert!(request[3].contains("not run") && request[3].contains("schema"), "{}", request[3]);
}

#[tokio::test]
async fn a_tool_that_the_agent_does_not_have_is_not_run() {
    let world = World::with_agent("", vec![[bash(0, "c", "touch ran"), end(FinishReason::Stop)].concat(), says("ok")]);
    let mut manifest = world.composition.manifest.clone();
    manifest.agents.get_mut("default").unwrap().tools.clear();
    let mut session = world.create().await;
    session.composition = std::sync::Arc::new(crate::agent::Composition {
        manifest,
        registry: crate::llm::registry::Registry {
            adapters: Vec::new(),
            routes: world.composition.registry.routes.clone(),
        },
        client: crate::llm::client::Client::new(world.composition.manifest.transport),
        store: crate::store::Store::new(world.folder.path()),
    });
    world.prompt(&mut session, "go").await;
    assert!(world.last_request()[2].contains("there is no tool"), "{:?}", world.last_request());
    assert!(!world.folder.path().join("ran").exists());
}

#[tokio::test]
async fn the_step_limit_ends_a_turn_after_its_tools() {
    let calling = || [bash(0, "c", "true"), end(FinishReason::ToolCalls)].concat();
    let world = World::with_agent("max_steps = 2", vec![calling(), calling(), says("never")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!((turn.reason, world.left()), (TurnReason::MaxSteps, 1));
    let log = world.log(&session);
    assert_eq!(log[log.len() - 3..], ["result c: [(no output)]", "step/end", "turn/end max-steps"]);
}

#[tokio::test]
async fn an_attempt_that_broke_off_is_void_once_another_follows() {
    let broken = || [text(0, "half"), failing(FailureCode::Transport, None)].concat();
    let world = World::new(vec![broken(), says("whole")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!((turn.reason, turn.text.as_str()), (TurnReason::Completed, "whole"));
    assert_eq!(turn.usage.output_tokens, 4, "failed attempts cost tokens as well");
    assert_eq!(world.shown(|update| matches!(update, Update::AttemptDiscarded)), 1);
    let log = world.log(&session);
    assert_eq!(log[3..], ["retry 1/2 after TRANSPORT", "assistant: whole", "step/end", COMPLETED]);
}

#[tokio::test]
async fn what_the_last_attempt_had_said_is_kept_and_marked() {
    let broken = |words| [text(0, words), bash(1, "c", "true"), failing(FailureCode::Transport, None)].concat();
    let world = World::new(vec![broken("one"), broken("two"), broken("three"), says("on")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert!(matches!(&turn.reason, TurnReason::Error { failure } if failure.code == FailureCode::Transport));
    assert_eq!(turn.text, "three");
    assert_eq!(world.notices(), ["no further attempt: 2 further attempts failed as well"]);
    let log = world.log(&session);
    assert_eq!(
        log[3..],
        [
            "retry 1/2 after TRANSPORT",
            "retry 2/2 after TRANSPORT",
            "interrupted: three",
            "step/end",
            "turn/end error: TRANSPORT",
        ]
    );
    world.prompt(&mut session, "and?").await;
    assert!(world.last_request()[1].contains("three"), "{:?}", world.last_request());
}

#[tokio::test]
async fn a_failure_that_lasts_is_not_tried_again_and_leaves_no_message() {
    let calling = [text(0, "First."), bash(1, "c", "true"), end(FinishReason::ToolCalls)].concat();
    let world = World::new(vec![calling, failing(FailureCode::Auth, Some(401)), says("never")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert!(matches!(&turn.reason, TurnReason::Error { failure } if failure.status == Some(401)));
    assert_eq!((turn.text.as_str(), world.left()), ("First.", 1), "the text is that of the last message there is");
    assert_eq!(world.count(&session, "assistant/message"), 1);
    assert_eq!(world.notices(), [""; 0]);
}

#[tokio::test]
async fn an_answer_that_says_nothing_is_asked_for_again_and_then_reported() {
    let empty = || end(FinishReason::Stop);
    let blank = || [text(0, " \n"), end(FinishReason::Stop)].concat();
    let world = World::new(vec![empty(), blank(), empty(), says("never")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert!(matches!(&turn.reason, TurnReason::Error { failure } if failure.code == FailureCode::EmptyResponse));
    assert_eq!((world.count(&session, "assistant/message"), world.left()), (0, 1));
}

#[tokio::test]
async fn a_wait_above_the_cap_ends_the_turn_at_once_and_says_so() {
    let failure = Failure { provider_retry_after_ms: Some(3_600_000), ..Failure::new(FailureCode::RateLimit, "slow") };
    let world = World::new(vec![end(FinishReason::Error { failure }), says("never")]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert!(
        matches!(&turn.reason, TurnReason::Error { failure } if failure.provider_retry_after_ms == Some(3_600_000))
    );
    assert_eq!((world.left(), world.count(&session, "llm/retry")), (1, 0));
    let notices = world.notices();
    assert!(notices[0].contains("3600000 ms") && notices[0].contains("retry_max_ms = 60000"), "{notices:?}");
}

#[tokio::test]
async fn an_end_called_aborted_that_nobody_asked_for_is_a_failure() {
    let failure = Failure::new(FailureCode::Aborted, "the recording was stopped here");
    let world = World::new(vec![[text(0, "half"), end(FinishReason::Aborted { failure: failure.clone() })].concat()]);
    let mut session = world.create().await;
    let turn = world.prompt(&mut session, "go").await;
    assert_eq!(turn.reason, TurnReason::Error { failure });
    assert_eq!(world.log(&session)[3], "interrupted: half");
}

#[tokio::test]
async fn the_header_is_logged_when_it_changes_and_the_title_once() {
    let world = World::new(vec![says("a"), says("b"), says("c"), says("d")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "one").await;
    world.prompt(&mut session, "two").await;
    let mut session = world.reopen(session).await;
    world.prompt(&mut session, "three").await;
    assert_eq!(["request/header", "request/context", "session/title"].map(|kind| world.count(&session, kind)), [1; 3]);
    session.model = Some("p/other".to_owned());
    world.prompt(&mut session, "four").await;
    assert_eq!(
        ["request/header", "request/context", "session/title"].map(|kind| world.count(&session, kind)),
        [2, 2, 1]
    );

    let session = world.reopen(session).await;
    assert_eq!(session.target().unwrap().1.to_string(), "p/other", "a session goes on with its last model");
    assert_eq!((session.turn, session.messages().len()), (4, 8));
}

#[tokio::test]
async fn nothing_is_sent_or_run_that_cannot_be_logged() {
    let world = World::new(vec![says("never")]);
    let mut session = world.create().await;
    session.writer = Writer::on_a_full_disk(&world.folder.path().join("full.jsonl"));
    let prompt = vec![dsh_plugin_api::vocab::Block::Text("go".to_owned())];
    let error = session.prompt(prompt, &world.cancel).await.unwrap_err();
    assert!(matches!(&error, AgentError::Store(StoreError::Io { .. })), "{error}");
    assert_eq!(world.left(), 1, "the request was not sent");
    assert!(error.to_string().contains("full.jsonl"), "{error}");
}
