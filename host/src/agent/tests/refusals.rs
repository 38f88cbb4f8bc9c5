//! Replay metadata that a provider refuses, or that cannot be used.

use dsh_plugin_api::vocab::FailureCode;

use super::world::{World, failing, says, signed};
use crate::agent::{TurnReason, Update, refused_routes};

fn refused() -> Vec<dsh_plugin_api::vocab::Chunk> {
    failing(FailureCode::InvalidRequest, Some(400))
}

#[tokio::test]
async fn a_refused_request_goes_out_once_more_without_metadata_and_the_route_is_remembered() {
    let world = World::new(vec![signed("one"), refused(), signed("two"), signed("three"), says("four")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "a").await;
    let turn = world.prompt(&mut session, "b").await;
    assert_eq!((turn.reason, turn.text.as_str()), (TurnReason::Completed, "two"));
    assert_eq!(world.last_request(), ["user: a", "assistant: one", "user: b"]);
    assert!(world.log(&session).contains(&"retry 1/3 foreign after INVALID_REQUEST".to_owned()));
    assert_eq!(world.notices().len(), 1);

    world.prompt(&mut session, "c").await;
    assert_eq!(world.last_request()[3], "assistant: two", "nothing native goes there any more");
    assert_eq!(world.notices().len(), 1, "told once");

    let mut session = world.reopen(session).await;
    world.prompt(&mut session, "d").await;
    assert!(world.last_request().iter().all(|message| !message.starts_with('*')), "{:?}", world.last_request());
    assert!(world.notices()[0].contains("refused this session's replay metadata before"), "{:?}", world.notices());
    let log = world.composition.store.read(session.id()).unwrap();
    assert!(refused_routes(&log.events).contains("p"));
}

#[tokio::test]
async fn a_second_refusal_ends_the_turn() {
    let world = World::new(vec![signed("one"), refused(), refused(), says("never")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "a").await;
    let turn = world.prompt(&mut session, "b").await;
    assert!(matches!(&turn.reason, TurnReason::Error { failure } if failure.status == Some(400)));
    assert_eq!((world.left(), world.count(&session, "assistant/message")), (1, 1));
}

#[tokio::test]
async fn a_refusal_of_a_request_without_metadata_is_final() {
    let world = World::new(vec![says("one"), refused(), says("never")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "a").await;
    world.prompt(&mut session, "b").await;
    assert_eq!((world.left(), world.count(&session, "llm/retry")), (1, 0));
}

#[tokio::test]
async fn the_last_rung_is_beside_the_retries() {
    let busy = || failing(FailureCode::Server, Some(503));
    let world = World::new(vec![signed("one"), busy(), refused(), busy(), says("two")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "a").await;
    let turn = world.prompt(&mut session, "b").await;
    assert_eq!(turn.text, "two");
    let log = world.log(&session);
    let retries: Vec<_> = log.iter().filter(|line| line.starts_with("retry")).collect();
    assert_eq!(
        retries,
        ["retry 1/2 after SERVER", "retry 2/3 foreign after INVALID_REQUEST", "retry 3/3 after SERVER"]
    );
}

#[tokio::test]
async fn a_degrade_is_reported_once_and_listed_in_every_turn() {
    let world = World::new(vec![signed("one"), signed("two"), says("three"), says("four")]);
    let mut session = world.create().await;
    world.prompt(&mut session, "a").await;
    *world.model.rejects.lock().unwrap() = Some("one");
    for prompt in ["b", "c"] {
        let turn = world.prompt(&mut session, prompt).await;
        assert_eq!(turn.degraded.iter().map(|degraded| degraded.message).collect::<Vec<_>>(), [1]);
    }
    assert_eq!(world.shown(|update| matches!(update, Update::Degraded(_))), 1);
    assert_eq!(world.last_request(), ["user: a", "assistant: one", "user: b", "*assistant: two", "user: c"]);

    let mut session = world.reopen(session).await;
    let turn = world.prompt(&mut session, "d").await;
    assert_eq!(turn.degraded.len(), 1);
    assert_eq!(world.shown(|update| matches!(update, Update::Degraded(_))), 0);
    assert_eq!(world.count(&session, "llm/degrade"), 1);
}
