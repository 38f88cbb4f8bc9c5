//! Replay metadata and images that a provider refuses, and metadata that cannot be used.

use dsh_plugin_api::vocab::{Block, Chunk, Failure, FailureCode, FinishReason, Image};

use super::world::{World, end, failing, says, signed};
use crate::agent::{Session, TurnEnd, TurnReason, Update, spared_routes};
use crate::llm::ladder::Spared;

fn refused() -> Vec<Chunk> {
    failing(FailureCode::InvalidRequest, Some(400))
}

fn refused_with(status: u16, message: &str) -> Vec<Chunk> {
    let failure = Failure { status: Some(status), ..Failure::new(FailureCode::InvalidRequest, message) };
    end(FinishReason::Error { failure })
}

fn too_large() -> Vec<Chunk> {
    refused_with(400, "image exceeds 5 MB maximum")
}

/// A prompt of words and an image.
async fn show(world: &World, session: &mut Session, words: &str) -> TurnEnd {
    let image = Image::Data { mime_type: "image/png".to_owned(), data: "iVBORw0KGgo=".to_owned() };
    session.prompt(vec![Block::Text(words.to_owned()), Block::Image(image)], &world.cancel).await.unwrap()
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
    assert_eq!(world.notices().len(), 1, "told of what was refused, and of nothing else");
    let log = world.composition.store.read(session.id()).unwrap();
    assert!(spared_routes(log.events.singles())["p"].metadata);
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

const NOTE: &str = "[image left out: the provider refused a request with it]";

#[tokio::test]
async fn older_images_become_notes_after_a_refusal_and_the_route_is_remembered() {
    let world = World::new(vec![says("one"), says("two"), too_large(), says("three"), says("four"), says("five")]);
    let mut session = world.create().await;
    show(&world, &mut session, "a").await;
    show(&world, &mut session, "b").await;
    let turn = show(&world, &mut session, "c").await;
    assert_eq!((turn.reason, turn.text.as_str()), (TurnReason::Completed, "three"));
    let (a, b) = (format!("user: a {NOTE}"), format!("user: b {NOTE}"));
    let after = [a.as_str(), "assistant: one", b.as_str(), "assistant: two", "user: c <image>", "assistant: three"];
    assert_eq!(world.last_request(), after[..5]);
    assert!(world.log(&session).contains(&"retry 1/3 images from 4 after INVALID_REQUEST".to_owned()));
    let notices = world.notices();
    assert_eq!(notices.len(), 1);
    assert!(notices[0].contains("image exceeds 5 MB maximum"), "{notices:?}");
    assert!(notices[0].contains("without 2 older images"), "{notices:?}");

    // A new image is sent, and the newest of then still is.
    show(&world, &mut session, "d").await;
    assert_eq!(world.last_request()[..6], after);
    assert_eq!(world.last_request()[6], "user: d <image>");
    assert_eq!(world.notices().len(), 1, "told once");

    let mut session = world.reopen(session).await;
    world.prompt(&mut session, "e").await;
    assert_eq!(world.last_request()[..6], after);
    assert!(world.notices()[0].contains("refused images of this session before"), "{:?}", world.notices());
    assert_eq!(world.notices().len(), 1, "told of what was refused, and of nothing else");
    assert_eq!((world.left(), world.count(&session, "llm/retry")), (0, 1));
    let log = world.composition.store.read(session.id()).unwrap();
    assert_eq!(spared_routes(log.events.singles())["p"], Spared { metadata: false, images_from: 4 });
}

#[tokio::test]
async fn the_newest_image_goes_when_it_is_refused_itself() {
    let world = World::new(vec![says("one"), too_large(), too_large(), says("two"), says("three")]);
    let mut session = world.create().await;
    show(&world, &mut session, "a").await;
    let turn = show(&world, &mut session, "b").await;
    assert_eq!(turn.text, "two");
    assert_eq!(world.last_request()[2], format!("user: b {NOTE}"));
    assert_eq!(world.shown(|update| matches!(update, Update::Retry { .. })), 0, "beside the retries, without a wait");
    let notices = world.notices();
    assert!(notices[0].contains("without 1 older image;") && notices[1].contains("without 1 image;"), "{notices:?}");

    world.prompt(&mut session, "c").await;
    assert_eq!(
        world.last_request()[..3],
        [format!("user: a {NOTE}"), "assistant: one".into(), format!("user: b {NOTE}")]
    );
    assert_eq!(world.left(), 0);
}

#[tokio::test]
async fn a_refusal_that_names_a_size_costs_images_first_then_metadata_and_then_ends_the_turn() {
    let size = || refused_with(400, "Request payload size exceeds the limit: 20971520 bytes.");
    let world = World::new(vec![signed("one"), size(), size(), size(), says("never")]);
    let mut session = world.create().await;
    show(&world, &mut session, "a").await;
    let turn = world.prompt(&mut session, "b").await;
    assert!(matches!(&turn.reason, TurnReason::Error { failure } if failure.message.contains("payload size")));
    let retries: Vec<_> = world.log(&session).into_iter().filter(|line| line.starts_with("retry")).collect();
    assert_eq!(retries, ["retry 1/3 images from 1 after INVALID_REQUEST", "retry 2/4 foreign after INVALID_REQUEST"]);
    assert_eq!(world.left(), 1, "no third further attempt");
    assert_eq!(world.count(&session, "assistant/message"), 1, "a refused request leaves no message");
}

#[tokio::test]
async fn a_size_that_no_image_makes_is_final() {
    for refusal in [refused_with(413, "the provider answered HTTP 413 without a body"), too_large()] {
        let world = World::new(vec![says("one"), refusal, says("never")]);
        let mut session = world.create().await;
        world.prompt(&mut session, "a").await;
        let turn = world.prompt(&mut session, "b").await;
        assert!(matches!(turn.reason, TurnReason::Error { .. }));
        assert_eq!((world.left(), world.count(&session, "llm/retry")), (1, 0));
    }
}
