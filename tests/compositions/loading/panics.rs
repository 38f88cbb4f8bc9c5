//! Adapters that panic: the call fails, the host and the other instances do not.

use dsh_host::loader::{AdapterHandle, CreateError};
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Open, OpenHead};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{
    Chunk, Exchange, Failure, FailureCode, FinishReason, Message, ReplayDegrade, Request, Role, Routing, Source, Target,
};
use serde_json::json;

use super::Bench;

fn target() -> Target {
    Target { provider: "echo".into(), model: "m".into() }
}

/// A history of a question and its answer, which this adapter made.
fn history() -> Vec<Message> {
    let state = json!({
        "response": { "kind": "fixture", "version": 1, "provider": "echo", "model": "m", "stopReason": "stop" },
        "blocks": [],
    });
    let answer = Message::new("2", Role::Assistant, Vec::new(), Source::model("echo", "m", Some(raw(&state))));
    vec![Message::user("1", "hi"), answer]
}

fn convert(handle: &dyn AdapterHandle, text: &str, routing: Routing) -> Result<Exchange, Failure> {
    let mut messages = history();
    messages.push(Message::user("3", text));
    let request = Request { messages, ..Request::default() };
    let routing = vec![Routing::Foreign, routing, Routing::Foreign];
    Ok(handle.convert(&Convert { target: target(), request, routing })?.exchange)
}

/// One polled exchange: the text that comes back.
pub(super) fn echo(handle: &dyn AdapterHandle, text: &str) -> Result<String, Failure> {
    let Exchange::Polled(value) = convert(handle, text, Routing::Native)? else { panic!("the route is polled") };
    let mut stream = handle.open(&Open { target: target(), head: OpenHead::Polled(value) })?;
    let mut out = String::new();
    for item in stream.poll() {
        match item {
            Item::Chunk(Chunk::TextDelta { text, .. }) => out.push_str(&text),
            Item::Chunk(Chunk::Finish { reason: FinishReason::Error { failure }, .. }) => return Err(failure),
            Item::Chunk(_) => {}
            Item::Wait(_) | Item::Malformed(_) => panic!("{item:?}"),
        }
    }
    Ok(out)
}

fn finish(items: &[Item]) -> Result<(), Failure> {
    let Some(Item::Chunk(Chunk::Finish { reason, .. })) = items.last() else { return Ok(()) };
    reason.failure().filter(|failure| failure.code != FailureCode::Aborted).map_or(Ok(()), |f| Err(f.clone()))
}

/// Makes every call of an instance once; the first failure.
fn every_call(handle: &dyn AdapterHandle) -> Result<(), Failure> {
    handle.check_history(&CheckHistory { target: target(), messages: history()[1..].to_vec() })?;
    handle.on_replay_degrade(&ReplayDegrade {
        message: 0,
        message_id: "1".into(),
        code: ReplayDegrade::CODE.into(),
        reason: "test".into(),
        target: target(),
    })?;
    echo(handle, "text")?;
    let open = || {
        let head = OpenHead::Http { status: 200, headers: Vec::new() };
        handle.open(&Open { target: target(), head })
    };
    let mut stream = open()?;
    finish(&stream.feed(b"{\"text\": \"a\"}\n"))?;
    finish(&stream.feed(b"{\"done\": \"stop\"}\n"))?;
    let mut stream = open()?;
    finish(&stream.cancel())?;
    let mut stream = open()?;
    match finish(&stream.finish(&StreamEnd::Complete)) {
        Err(failure) if failure.code == FailureCode::Transport => Ok(()),
        other => other,
    }
}

#[test]
fn a_well_behaved_instance_passes_every_call() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    let (handle, _) = library.create(&json!({ "routes": ["echo"] })).unwrap();
    every_call(&*handle).unwrap();
    assert_eq!(handle.check_history(&CheckHistory { target: target(), messages: Vec::new() }).unwrap(), []);
}

#[test]
fn a_panic_in_any_call_fails_that_call_and_names_adapter_call_and_place() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    let (good, _) = library.create(&json!({ "routes": ["echo"] })).unwrap();
    for (place, call) in [
        ("restore", "check_history"),
        ("foreign", "convert"),
        ("encode", "convert"),
        ("decoder", "open"),
        ("feed", "feed"),
        ("finish", "finish"),
        ("poll", "poll"),
        ("cancel", "cancel"),
        ("on_replay_degrade", "on_replay_degrade"),
    ] {
        let (bad, _) = library.create(&json!({ "routes": ["echo"], "panic_in": place })).unwrap();
        let failure = every_call(&*bad).expect_err(place);
        assert_eq!(failure.code, FailureCode::PluginPanic, "{place}: {failure}");
        for part in [dsh_tests::FIXTURE, &format!("in `{call}`"), "as it was told", "lib.rs:"] {
            assert!(failure.message.contains(part), "{place}: {part}: {failure}");
        }
        assert_eq!(echo(&*good, place).unwrap(), place);
    }
}

#[test]
fn a_panic_in_the_constructor_makes_no_instance() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    for place in ["new", "routes"] {
        let error = library.create(&json!({ "panic_in": place })).err().unwrap();
        assert!(matches!(&error, CreateError::Panicked(text) if text.contains("as it was told")), "{error}");
    }
    bench.assert_alive();
}

#[test]
fn a_panic_while_an_instance_is_dropped_ends_nothing() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    drop(library.create(&json!({ "panic_in": "drop" })).unwrap());
    bench.assert_alive();
}

#[test]
fn a_refused_configuration_says_where_and_why() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    for (config, path, message) in [
        (json!({ "refuse": "not today" }), "refuse", "not today"),
        (json!({ "providers": { "x": { "base_urk": 1 } } }), "providers.x.base_urk", "base_url"),
        (json!({ "routes": [1] }), "routes[0]", "string"),
    ] {
        let error = library.create(&config).err().unwrap();
        let CreateError::Config(refusal) = &error else { panic!("{error}") };
        assert_eq!(refusal.path, path);
        assert!(refusal.message.contains(message), "{error}");
    }
}

#[test]
fn a_stream_outlives_its_instance() {
    let bench = Bench::new();
    let library = bench.load(&dsh_tests::built().library(dsh_tests::FIXTURE)).unwrap();
    let (handle, _) = library.create(&json!({ "routes": ["echo"] })).unwrap();
    let head = OpenHead::Http { status: 200, headers: Vec::new() };
    let mut stream = handle.open(&Open { target: target(), head }).unwrap();
    drop(handle);
    let items = stream.feed(b"{\"text\": \"a\", \"done\": \"stop\"}\n");
    assert!(matches!(items.last(), Some(Item::Chunk(Chunk::Finish { reason: FinishReason::Stop, .. }))), "{items:?}");
}
