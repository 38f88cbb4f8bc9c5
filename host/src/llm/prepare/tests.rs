use dsh_plugin_api::json;
use dsh_plugin_api::vocab::{Block, Message, Request, Routing};
use serde_json::{Value, json};

use super::*;
use crate::llm::testing::{FakeAdapter, http, panicked, route, target};

fn input(messages: Value) -> RequestInput {
    json::from_str::<Request>(&json!({ "messages": messages }).to_string()).unwrap().into()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}], "source": {"kind": "user"}})
}

fn answer(state: Value) -> Value {
    json!({
        "id": "a", "role": "assistant", "content": [{"type": "text", "text": "t"}],
        "source": {"kind": "model", "provider": "p", "model": "m", "replayState": state}
    })
}

fn sound() -> Value {
    json!({"response": {"kind": "fake", "version": 2}, "blocks": [{"type": "text", "s": 1}]})
}

/// The failure of a request whose adapter makes this exchange.
fn refusal(exchange: impl Fn() -> Exchange + Send + Sync + 'static) -> Failure {
    let convert = move |_: &Convert| Ok(Converted { exchange: exchange(), repairs: Vec::new() });
    let adapter = FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() };
    prepare(&route(Arc::new(adapter)), &target(), &input(json!([user("q")])), Replay::Routed).err().unwrap()
}

#[test]
fn a_sound_history_goes_out_native_and_unchanged() {
    let adapter = Arc::<FakeAdapter>::default();
    let messages = json!([user("q"), answer(sound()), user("r")]);
    let prepared = prepare(&route(Arc::clone(&adapter)), &target(), &input(messages), Replay::Routed).unwrap();
    assert_eq!(prepared.native, 1);
    assert!(prepared.degraded.is_empty() && prepared.neutral.is_empty() && prepared.repairs.is_empty());
    let converted = adapter.converted.lock().unwrap();
    assert_eq!(converted[0].routing, [Routing::Foreign, Routing::Native, Routing::Foreign]);
    assert!(adapter.told.lock().unwrap().is_empty());
}

#[test]
fn positions_are_those_of_the_input_and_repairs_of_the_adapter_are_mapped_back() {
    let convert = |call: &Convert| {
        let repairs = vec![
            Repair { message: call.request.messages.len() - 1, kind: "by-adapter".to_owned() },
            // No message of the request: it says nothing about any message of the input.
            Repair { message: call.request.messages.len(), kind: "odd".to_owned() },
        ];
        Ok(Converted { exchange: http("https://api.example.test/x"), repairs })
    };
    let adapter = Arc::new(FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() });
    let messages = json!([user(" "), user("q"), answer(Value::Null), user("r")]);
    let prepared = prepare(&route(Arc::clone(&adapter)), &target(), &input(messages), Replay::Routed).unwrap();
    assert_eq!(prepared.degraded.iter().map(|d| d.message).collect::<Vec<_>>(), [2]);
    assert_eq!(
        prepared.degraded[0].describe(),
        "message 2 goes out without its replay metadata (INVALID_REPLAY_STATE): the replay state is not an object"
    );
    let repairs: Vec<_> = prepared.repairs.iter().map(|r| (r.message, r.kind.as_str())).collect();
    assert_eq!(repairs, [(0, "blank-text"), (0, "empty-message"), (3, "by-adapter")]);
    assert_eq!(adapter.told.lock().unwrap().len(), 1);
}

#[test]
fn an_adapter_that_cannot_convert_what_it_accepted_gets_the_history_foreign() {
    let convert = |call: &Convert| {
        if call.routing.contains(&Routing::Native) {
            return Err(panicked());
        }
        Ok(Converted { exchange: http("https://api.example.test/x"), repairs: Vec::new() })
    };
    let adapter = Arc::new(FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() });
    let messages = json!([user("q"), answer(sound()), answer(json!(7))]);
    let prepared = prepare(&route(Arc::clone(&adapter)), &target(), &input(messages), Replay::Routed).unwrap();
    assert_eq!(prepared.native, 0);
    assert_eq!(prepared.degraded.iter().map(|d| d.message).collect::<Vec<_>>(), [1, 2]);
    assert!(prepared.degraded[0].reason.contains("could not convert it with its metadata: panicked"));
    assert_eq!(adapter.told.lock().unwrap().len(), 2, "once per degraded message");
    assert_eq!(adapter.converted.lock().unwrap().len(), 2);
}

#[test]
fn a_request_that_fails_either_way_fails_with_the_first_failure() {
    let convert = |call: &Convert| {
        let native = call.routing.contains(&Routing::Native);
        Err(Failure::new(FailureCode::Unsupported, if native { "first" } else { "second" }))
    };
    for (messages, said, calls) in
        [(json!([user("q"), answer(sound())]), "first", 2), (json!([user("q"), answer(json!(1))]), "second", 1)]
    {
        let adapter = Arc::new(FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() });
        let failure = prepare(&route(Arc::clone(&adapter)), &target(), &input(messages), Replay::Routed).err().unwrap();
        assert_eq!(failure.message, said);
        assert_eq!(adapter.converted.lock().unwrap().len(), calls);
        assert!(adapter.told.lock().unwrap().is_empty(), "nothing goes out");
    }
}

#[test]
fn a_history_with_nothing_to_send_is_no_request() {
    for messages in [json!([]), json!([user("\n")])] {
        let failure = prepare(&route(Arc::default()), &target(), &input(messages), Replay::Routed).err().unwrap();
        assert_eq!(failure.code, FailureCode::InvalidRequest);
    }
}

#[test]
fn a_request_stays_at_the_origin_of_its_route() {
    for url in [
        "https://evil.example.test/v1",
        "http://api.example.test/v1",
        "https://api.example.test:8443/v1",
        "https://api.example.test.evil.test/",
        "https://api.example.test@evil.test/",
    ] {
        let failure = refusal(move || http(url));
        assert_eq!(failure.code, FailureCode::InvalidRequest, "{url}");
        assert!(failure.message.contains("may only go to https://api.example.test"), "{}", failure.message);
    }
    let odd = refusal(|| http("file:///etc/passwd"));
    assert!(odd.message.contains("no http or https URL"), "{}", odd.message);
    for url in ["https://api.example.test:443/v1", "https://API.example.test"] {
        let convert = move |_: &Convert| Ok(Converted { exchange: http(url), repairs: Vec::new() });
        let adapter = FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() };
        assert!(prepare(&route(Arc::new(adapter)), &target(), &input(json!([user("q")])), Replay::Routed).is_ok());
    }
}

#[test]
fn a_request_uses_no_credential_but_its_routes() {
    let failure = refusal(|| {
        let Exchange::Http(mut request) = http("https://api.example.test/x") else { unreachable!() };
        request.headers[0].value = HeaderValue::Credential { reference: "OTHER".to_owned(), prefix: String::new() };
        Exchange::Http(request)
    });
    assert_eq!(failure.code, FailureCode::InvalidCredential);
    assert!(failure.message.contains("\"OTHER\"") && failure.message.contains("\"KEY\""), "{}", failure.message);
}

#[test]
fn an_interrupted_mark_reaches_the_model() {
    let adapter = Arc::<FakeAdapter>::default();
    let mut input = input(json!([user("q"), answer(sound()), user("r")]));
    input.history[1].interrupted = true;
    prepare(&route(Arc::clone(&adapter)), &target(), &input, Replay::Routed).unwrap();
    let converted = adapter.converted.lock().unwrap();
    let messages: &[Message] = &converted[0].request.messages;
    assert_eq!(messages.len(), 4);
    assert!(matches!(&messages[2].content[..], [Block::Text(text)] if text.contains("interrupted")));
}

#[test]
fn two_requests_send_the_same_only_when_every_byte_is_the_same() {
    let foreign = |convert: fn(&Convert) -> Exchange, replay| {
        let convert = move |call: &Convert| Ok(Converted { exchange: convert(call), repairs: Vec::new() });
        let adapter = FakeAdapter { convert: Box::new(convert), ..FakeAdapter::default() };
        prepare(&route(Arc::new(adapter)), &target(), &input(json!([user("q"), answer(sound())])), replay).unwrap()
    };
    let body = |call: &Convert| {
        let Exchange::Http(mut request) = http("https://api.example.test/x") else { unreachable!() };
        request.body = json::raw(&call.request);
        Exchange::Http(request)
    };
    let fixed = |_: &Convert| http("https://api.example.test/x");
    let polled = |_: &Convert| Exchange::Polled(json::raw(&1));
    for (convert, same) in [(body as fn(&Convert) -> Exchange, false), (fixed, true), (polled, false)] {
        let (native, stripped) = (foreign(convert, Replay::Routed), foreign(convert, Replay::AllForeign));
        assert_eq!((native.native, stripped.native), (1, 0));
        assert_eq!(native.sends_the_same_as(&stripped), same);
    }
}
