//! Behaviour through the same entries that a host calls.

use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, CreatedInfo, Open, OpenHead};
use dsh_plugin_api::abi::export::Instances;
use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::{self, Raw, raw};
use dsh_plugin_api::vocab::{Block, Role, Routing, Source};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

struct Host {
    instances: Instances<Replay>,
    handle: u64,
    routes: Vec<RouteInfo>,
}

impl Host {
    fn new(config: &Value) -> Self {
        let instances = Instances::new();
        let created = instances.create(config.to_string().as_bytes());
        assert_eq!(created.status, 0, "{}", String::from_utf8_lossy(&created.body));
        let CreatedInfo { routes } = json::from_slice(&created.body).unwrap();
        Self { instances, handle: created.handle, routes }
    }

    fn refused(config: &Value) -> String {
        let created = Instances::<Replay>::new().create(config.to_string().as_bytes());
        assert_ne!(created.status, 0, "{config} was accepted");
        String::from_utf8_lossy(&created.body).into_owned()
    }

    fn exchange(&self, history: &[Message]) -> Raw {
        let request = Request { messages: history.to_vec(), ..Request::default() };
        let routing = vec![Routing::Foreign; history.len()];
        let reply =
            self.instances.convert(self.handle, raw(&Convert { target: target(), request, routing }).get().as_bytes());
        match json::from_slice::<Converted>(&reply.body).unwrap().exchange {
            Exchange::Polled(value) => value,
            Exchange::Http(_) => panic!("a replay makes no HTTP request"),
        }
    }

    fn open(&self, exchange: &Raw) -> u64 {
        let open = Open { target: target(), head: OpenHead::Polled(exchange.clone()) };
        let opened = self.instances.open(self.handle, raw(&open).get().as_bytes());
        assert_eq!(opened.status, 0, "{}", String::from_utf8_lossy(&opened.body));
        opened.stream
    }

    /// Polls at most `polls` times: the chunks as JSON, and the waits in milliseconds.
    fn poll(&self, stream: u64, polls: usize) -> (Vec<Value>, Vec<u32>) {
        let (mut reader, mut chunks, mut waits) = (BatchReader::new(), Vec::new(), Vec::new());
        for _ in 0..polls {
            reader.read(&self.instances.poll(stream), |item| match item {
                Item::Chunk(chunk) => chunks.push(serde_json::to_value(chunk).unwrap()),
                Item::Wait(ms) => waits.push(ms),
                Item::Malformed(text) => panic!("{text}"),
            });
            if chunks.last().is_some_and(|chunk| chunk["type"] == "finish") {
                break;
            }
        }
        (chunks, waits)
    }

    fn attempt(&self, exchange: &Raw) -> Vec<Value> {
        self.poll(self.open(exchange), 10_000).0
    }

    fn ask(&self, history: &[Message]) -> Vec<Value> {
        self.attempt(&self.exchange(history))
    }
}

fn target() -> Target {
    Target { provider: "r".to_owned(), model: "any/thing".to_owned() }
}

fn route(route: Value) -> Value {
    json!({ "providers": { "r": route } })
}

/// `u` prompt, `a` answer, `t` tool result, `n` note of the host; each message has an id of its own.
fn history(form: &str) -> Vec<Message> {
    let message = |(position, letter): (usize, char)| {
        let (role, source) = match letter {
            'u' => (Role::User, Source::User),
            'a' => (Role::Assistant, Source::model("r", "m", None)),
            't' => (Role::User, Source::Tool { call_id: "c".to_owned() }),
            _ => (Role::User, Source::host()),
        };
        Message::new(format!("{form}-{position}"), role, vec![Block::Text("x".to_owned())], source)
    };
    form.chars().enumerate().map(message).collect()
}

fn text_of(chunks: &[Value]) -> String {
    chunks.iter().filter(|chunk| chunk["type"] == "text-delta").filter_map(|chunk| chunk["text"].as_str()).collect()
}

fn finish(chunks: &[Value]) -> &Value {
    let last = chunks.last().unwrap();
    assert_eq!(last["type"], "finish", "{chunks:?}");
    last
}

fn say(text: &str) -> Value {
    json!([{ "type": "text-delta", "index": 0, "text": text }, { "type": "finish", "reason": { "kind": "stop" } }])
}

fn fail(code: &str) -> Value {
    json!([{ "type": "finish", "reason": { "kind": "error", "failure": { "message": "scripted", "code": code } } }])
}

#[test]
fn a_reply_answers_every_request_of_every_model() {
    let models = json!([{ "id": "hello", "context_window": 1000, "reasoning": true }]);
    let host = Host::new(&route(json!({ "reply": "hi there", "models": models })));
    assert!(host.routes[0].any_model && host.routes[0].origin.is_none());
    assert_eq!((host.routes[0].models[0].id.as_str(), host.routes[0].models[0].context_window), ("hello", Some(1000)));
    for form in ["u", "uau", "uauau"] {
        let chunks = host.ask(&history(form));
        let kinds: Vec<_> = chunks.iter().map(|chunk| chunk["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["block-start", "text-delta", "block-end", "finish"]);
        assert_eq!(text_of(&chunks), "hi there");
        assert_eq!(finish(&chunks)["reason"], json!({ "kind": "stop" }));
    }
}

#[test]
fn the_envelope_is_our_own_with_one_entry_per_block() {
    let host = Host::new(&route(json!({ "reply": "hi" })));
    let chunks = host.ask(&history("uau"));
    let expected = json!({
        "response": { "kind": "replay", "version": 1, "provider": "r", "model": "any/thing", "response": 1 },
        "blocks": [{ "type": "text" }],
    });
    assert_eq!(finish(&chunks)["replayState"], expected);
}

#[test]
fn a_response_is_chosen_by_the_history_alone() {
    let host = Host::new(&route(json!({ "responses": [say("0"), say("1"), say("2")] })));
    for (form, expected) in [
        ("u", "0"),
        ("nu", "0"),
        ("uau", "1"),
        ("uat", "1"),
        ("uatt", "1"),
        ("uatau", "2"),
        // A prompt whose request failed without an answer has used one.
        ("uu", "1"),
        ("uauu", "2"),
        // A tool that was interrupted before its request went out has used none.
        ("uatu", "1"),
    ] {
        for _ in 0..2 {
            assert_eq!(text_of(&host.ask(&history(form))), expected, "{form}");
        }
    }
}

#[test]
fn a_request_beyond_the_script_fails_and_says_so() {
    let host = Host::new(&route(json!({ "responses": [say("0")] })));
    let chunks = host.ask(&history("uau"));
    let failure = &finish(&chunks)["reason"]["failure"];
    assert_eq!(failure["code"], "UNSUPPORTED");
    assert!(failure["message"].as_str().unwrap().contains("answers for 1 requests and this is request 2"), "{failure}");
    assert!(finish(&chunks).get("replayState").is_none());
}

#[test]
fn retried_failures_are_attempts_of_one_request_and_others_are_answers_of_their_own() {
    let cut = json!([{ "type": "text-delta", "index": 0, "text": "par" }]);
    let script = json!([fail("SERVER"), cut, say("ok"), fail("AUTH"), say("next")]);
    let host = Host::new(&route(json!({ "responses": script })));
    let exchange = host.exchange(&history("u"));
    let codes: Vec<_> = (0..4)
        .map(|_| {
            let chunks = host.attempt(&exchange);
            (text_of(&chunks), finish(&chunks)["reason"]["failure"]["code"].clone())
        })
        .collect();
    let expected = [("", json!("SERVER")), ("par", json!("TRANSPORT")), ("ok", Value::Null), ("ok", Value::Null)];
    assert_eq!(codes, expected.map(|(text, code)| (text.to_owned(), code)));
    assert_eq!(finish(&host.ask(&history("uau")))["reason"]["failure"]["code"], "AUTH");
    assert_eq!(text_of(&host.ask(&history("uauu"))), "next");
    // Another conversation starts with the first attempt again.
    assert_eq!(finish(&host.ask(&history("nu")))["reason"]["failure"]["code"], "SERVER");
}

#[test]
fn a_cut_stream_keeps_its_content_and_says_that_it_was_cut() {
    let host = Host::new(&route(json!({ "responses": [[{ "type": "reasoning-delta", "index": 0, "text": "hm" }]] })));
    let chunks = host.ask(&history("u"));
    assert_eq!(chunks[1], json!({ "type": "reasoning-delta", "index": 0, "text": "hm" }));
    assert_eq!(finish(&chunks)["reason"]["failure"]["code"], "TRANSPORT");
    assert_eq!(finish(&chunks)["replayState"]["blocks"], json!([{ "type": "reasoning" }]));
}

/// A log with a retry, a tool step, a cancelled stream, packed rows with a split surrogate pair, and metadata.
const LOG: &str = r#"{"type":"session","version":0,"id":"s","createdAt":1000}
{"type":"turn/start","seq":0,"time":1000,"data":{"turn":1}}
{"type":"user/message","seq":1,"time":1010,"data":{"id":"a","role":"user","content":[],"source":{"kind":"user"}},"surfaceOp":"append"}
{"type":"user/message","seq":2,"time":1010,"data":{"id":"b","role":"user","content":[],"source":{"kind":"plugin","plugin":"p"}},"surfaceOp":"append"}
{"type":"assistant/chunk","seq":3,"time":1015,"data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"error","failure":{"message":"busy","code":"SERVER","status":503}}}}}
{"type":"llm/retry","seq":4,"time":1016,"data":{"turn":1,"step":1,"delayMs":500}}
{"type":"assistant/chunk","seq":5,"time":1520,"data":{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"reasoning"}}}
{"type":"reasoning-chunks","seq0":6,"time0":1521,"data":{"turn":1,"step":1,"index":0,"dt":[7,0],"texts":["th","in\ud83d","\ude00"]}}
{"type":"assistant/chunk","seq":9,"time":1530,"data":{"turn":1,"step":1,"chunk":{"type":"block-start","index":1,"blockType":"tool-call"}}}
{"type":"tool-call-chunks","seq0":10,"time0":1530,"data":{"turn":1,"step":1,"index":1,"dt":[0,0],"id":"c1","name":"bash","args":["","{\"a\":","1}"]}}
{"type":"assistant/chunk","seq":13,"time":1530,"data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"reasoning","text":"thin😀"}}}}
{"type":"assistant/chunk","seq":14,"time":1530,"data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":1,"block":{"type":"tool-call","id":"c1","name":"bash","arguments":"{\"a\":1}"}}}}
{"type":"assistant/chunk","seq":15,"time":1530,"data":{"turn":1,"step":1,"chunk":{"type":"usage","usage":{"inputTokens":5,"outputTokens":6}}}}
{"type":"assistant/chunk","seq":16,"time":1530,"data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"tool-calls"},"replayState":{"response":{"kind":"pi-ai","version":2},"blocks":[{"type":"reasoning","thinkingSignature":"reasoning_content"},{"type":"tool-call"}]}}}}
{"type":"assistant/message","seq":17,"time":1530,"data":{"turn":1,"step":1,"message":{"id":"c","role":"assistant","content":[{"type":"text","text":"x"}],"source":{"kind":"model"}}},"surfaceOp":"append"}
{"type":"tool/result","seq":18,"time":1600,"data":{"turn":1,"step":1,"message":{}},"surfaceOp":"append"}
{"type":"assistant/chunk","seq":19,"time":1610,"data":{"turn":1,"step":2,"chunk":{"type":"block-start","index":0,"blockType":"text"}}}
{"type":"assistant/chunk","seq":20,"time":1610,"data":{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"half"}}}
{"type":"assistant/message","seq":21,"time":1610,"data":{"turn":1,"step":2,"message":{"id":"d","role":"assistant","content":[{"type":"text","text":"half"}],"source":{"kind":"model"}},"interrupted":true},"surfaceOp":"append"}
{"type":"turn/end","seq":22,"time":1700,"data":{"turn":1,"reason":{"kind":"aborted"}}}
{"type":"mystery/event","seq":23,"time":1701,"data":7}
{"type":"turn/start","seq":24,"time":1800,"data":{"turn":2}}
{"type":"user/message","seq":25,"time":1800,"data":{"id":"e","role":"user","content":[],"source":{"kind":"user","via":"editor"}},"surfaceOp":"append"}
{"type":"assistant/chunk","seq":26,"time":1801,"data":{"turn":2,"step":1,"chunk":{"type":"text-delta","index":0,"text":"done"}}}
{"type":"assistant/chunk","seq":27,"time":1802,"data":{"turn":2,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}
{"type":"assistant/chu"#;

fn recorded() -> Host {
    Host::new(&route(json!({ "session": LOG })))
}

#[test]
fn a_recorded_retry_is_served_attempt_by_attempt() {
    let host = recorded();
    let exchange = host.exchange(&history("un"));
    let first = host.attempt(&exchange);
    assert_eq!(first.len(), 1);
    assert_eq!(finish(&first)["reason"]["failure"], json!({ "message": "busy", "code": "SERVER", "status": 503 }));
    let second = host.attempt(&exchange);
    assert_eq!(finish(&second)["reason"], json!({ "kind": "tool-calls" }));
}

#[test]
fn recorded_deltas_come_as_they_were_with_split_surrogates_joined() {
    let host = recorded();
    let exchange = host.exchange(&history("un"));
    host.attempt(&exchange);
    let chunks = host.attempt(&exchange);
    let deltas = |kind: &str, member: &str| -> Vec<String> {
        let of_kind = chunks.iter().filter(|chunk| chunk["type"] == kind);
        of_kind.map(|chunk| chunk[member].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(deltas("reasoning-delta", "text"), ["th", "in", "😀"]);
    assert_eq!(deltas("tool-call-delta", "argumentsDelta"), ["", "{\"a\":", "1}"]);
    let ends: Vec<_> = chunks.iter().filter(|chunk| chunk["type"] == "block-end").map(|c| c["block"].clone()).collect();
    assert_eq!(ends[0], json!({ "type": "reasoning", "text": "thin😀" }));
    assert_eq!(ends[1], json!({ "type": "tool-call", "id": "c1", "name": "bash", "arguments": "{\"a\":1}" }));
    assert_eq!(chunks[chunks.len() - 2]["usage"], json!({ "inputTokens": 5, "outputTokens": 6 }));
}

#[test]
fn recorded_metadata_of_another_adapter_is_kept_aside_and_not_passed_on_as_ours() {
    let host = recorded();
    let exchange = host.exchange(&history("un"));
    host.attempt(&exchange);
    let chunks = host.attempt(&exchange);
    let expected = json!({
        "response": {
            "kind": "replay", "version": 1, "provider": "r", "model": "any/thing", "response": 1,
            "recorded": { "kind": "pi-ai", "version": 2 },
        },
        "blocks": [
            { "type": "reasoning", "recorded": { "type": "reasoning", "thinkingSignature": "reasoning_content" } },
            { "type": "tool-call" },
        ],
    });
    assert_eq!(finish(&chunks)["replayState"], expected);

    let finish_of = |state: &Value| json!({ "type": "finish", "reason": { "kind": "stop" }, "replayState": state });
    let again = json!([[
        { "type": "reasoning-delta", "index": 0, "text": "a" },
        { "type": "block-end", "index": 0, "block": { "type": "reasoning", "text": "a" } },
        { "type": "tool-call-delta", "index": 1, "id": "c1", "name": "bash", "argumentsDelta": "{}" },
        finish_of(&expected),
    ]]);
    let chunks = Host::new(&route(json!({ "responses": again }))).ask(&history("u"));
    let state = &finish(&chunks)["replayState"];
    assert_eq!(state["response"]["recorded"], json!({ "kind": "pi-ai", "version": 2 }), "no nesting");
    assert_eq!(state["blocks"], expected["blocks"]);
}

#[test]
fn a_position_in_the_recorded_session_is_found_from_the_history() {
    let host = recorded();
    assert_eq!(text_of(&host.ask(&history("unatau"))), "done");
    assert_eq!(text_of(&host.ask(&history("unu"))), "done", "a first prompt that failed is a prompt all the same");
    let beyond = host.ask(&history("uauau"));
    let failure = &finish(&beyond)["reason"]["failure"];
    assert_eq!(failure["code"], "UNSUPPORTED");
    assert!(failure["message"].as_str().unwrap().contains("request 1 after prompt 3"), "{failure}");
}

#[test]
fn a_stream_that_was_stopped_from_outside_is_silent_until_it_is_stopped_again() {
    // The user cancelled; the host was killed.
    for reason in ["aborted", "interrupted"] {
        let log = LOG.replace(r#""reason":{"kind":"aborted"}"#, &format!(r#""reason":{{"kind":"{reason}"}}"#));
        assert!(log.contains(reason));
        let host = Host::new(&route(json!({ "session": log })));
        let stream = host.open(&host.exchange(&history("unat")));
        let (chunks, waits) = host.poll(stream, 5);
        assert_eq!(text_of(&chunks), "half", "{reason}");
        assert!(!waits.is_empty() && chunks.iter().all(|chunk| chunk["type"] != "finish"), "{chunks:?} {waits:?}");
        let mut ends = Vec::new();
        BatchReader::new().read(&host.instances.cancel(stream), |item| {
            if let Item::Chunk(chunk) = item {
                ends.push(serde_json::to_value(chunk).unwrap());
            }
        });
        assert_eq!(finish(&ends)["reason"]["kind"], "aborted");
        assert_eq!(finish(&ends)["replayState"]["response"]["kind"], "replay");
    }
}

#[test]
fn recorded_times_become_waits_and_the_wait_before_a_retry_is_not_counted_twice() {
    let host = Host::new(&route(json!({ "session": LOG, "timing": "recorded" })));
    let exchange = host.exchange(&history("un"));
    assert_eq!(host.poll(host.open(&exchange), 100).1, [5]);
    // The retry was announced at 1016 with 500 ms; then 1520, 1521, +7, +0, 1530.
    assert_eq!(host.poll(host.open(&exchange), 100).1, [4, 1, 7, 2]);
    let untimed = recorded();
    let exchange = untimed.exchange(&history("un"));
    untimed.attempt(&exchange);
    let (chunks, waits) = untimed.poll(untimed.open(&exchange), 100);
    assert_eq!((chunks.is_empty(), waits.as_slice()), (false, [0; 0].as_slice()));
}

#[test]
fn a_fixture_without_times_is_read() {
    let log = r#"{"type":"user/message","data":{"source":{"kind":"user"}}}
{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[3,4],"texts":["a","b","c"]}}
{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}"#;
    let host = Host::new(&route(json!({ "session": log, "timing": "recorded" })));
    let (chunks, waits) = host.poll(host.open(&host.exchange(&history("u"))), 100);
    assert_eq!((text_of(&chunks).as_str(), waits.as_slice()), ("abc", [3, 4].as_slice()));
}

#[test]
fn a_configuration_that_cannot_be_served_is_refused_with_its_place() {
    for (config, expected) in [
        (json!({ "providers": { "r": {} } }), "exactly one of"),
        (route(json!({ "reply": "a", "session": "b" })), "exactly one of"),
        (route(json!({ "reply": " " })), "providers.r.reply"),
        (route(json!({ "replly": "a" })), "the key `replly` is not known here"),
        (route(json!({ "reply": "a", "timing": "recorded" })), "providers.r.timing"),
        (route(json!({ "responses": [] })), "providers.r.responses"),
        (route(json!({ "responses": [say("a"), []] })), "providers.r.responses[1]"),
        (route(json!({ "responses": [[{ "type": "text-delta", "index": 0 }]] })), "`text` is missing"),
        (route(json!({ "responses": [[{ "type": "smell" }]] })), "unknown chunk type \\\"smell\\\""),
        (
            route(
                json!({ "responses": [[{ "type": "finish", "reason": { "kind": "stop" } }, { "type": "usage", "usage": {} }]] }),
            ),
            "finish comes last",
        ),
        (route(json!({ "session": "" })), "no response of a model"),
        (route(json!({ "session": "{\"type\":\"a\"}\nnonsense\n{\"type\":\"b\"}" })), "line 2 is not a JSON object"),
        (route(json!({ "session": "{\"type\":\"session\",\"version\":1}" })), "log version 1 is not known"),
    ] {
        let refusal = Host::refused(&config);
        assert!(refusal.contains(expected), "{config}: {refusal}");
    }
}

#[test]
fn only_envelopes_of_its_own_form_are_restored() {
    let host = Host::new(&route(json!({ "reply": "hi" })));
    let own = &finish(&host.ask(&history("u")))["replayState"].clone();
    let damaged = json!({ "response": { "kind": "replay", "version": 1, "response": "one" } });
    let missing = json!({ "response": { "kind": "replay", "version": 1 } });
    let messages = [own, &damaged, &missing].map(|state| {
        Message::new("m", Role::Assistant, vec![Block::Text("hi".into())], Source::model("r", "m", Some(raw(state))))
    });
    let check = CheckHistory { target: target(), messages: messages.to_vec() };
    let reply = host.instances.check_history(host.handle, raw(&check).get().as_bytes());
    let verdicts: Vec<Option<InvalidReplay>> = json::from_slice(&reply.body).unwrap();
    assert_eq!(verdicts[0], None);
    assert!(matches!(&verdicts[1], Some(InvalidReplay::Invalid(reason)) if reason.contains("response.response")));
    assert!(matches!(&verdicts[2], Some(InvalidReplay::Invalid(reason)) if reason.contains("missing")));
}

fn any_chunk() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![Just("text"), Just("reasoning"), Just("tool-call")];
    (0u32..4, kind, "[a-z]{0,3}", 0..5u8).prop_map(|(index, kind, text, form)| match form {
        0 => json!({ "type": "block-start", "index": index, "blockType": kind }),
        1 => json!({ "type": "text-delta", "index": index, "text": text }),
        2 => json!({ "type": "reasoning-delta", "index": index, "text": text }),
        3 => json!({ "type": "tool-call-delta", "index": index, "id": "c", "name": "n", "argumentsDelta": text }),
        _ => json!({ "type": "block-end", "index": index, "block": { "type": "text", "text": text } }),
    })
}

proptest! {
    #[test]
    fn whatever_is_scripted_the_stream_is_well_formed_and_its_entries_match_its_blocks(
        mut chunks in proptest::collection::vec(any_chunk(), 1..40),
        finished in any::<bool>(),
    ) {
        if finished {
            chunks.push(json!({ "type": "finish", "reason": { "kind": "stop" } }));
        }
        let host = Host::new(&route(json!({ "responses": [chunks] })));
        let served = host.ask(&history("u"));
        let starts: Vec<_> = served.iter().filter(|chunk| chunk["type"] == "block-start").collect();
        for (expected, start) in starts.iter().enumerate() {
            prop_assert_eq!(&start["index"], expected);
        }
        let finishes = served.iter().filter(|chunk| chunk["type"] == "finish").count();
        prop_assert_eq!(finishes, 1);
        let entries = finish(&served)["replayState"]["blocks"].as_array().unwrap();
        prop_assert_eq!(entries.len(), starts.len());
        for (entry, start) in entries.iter().zip(&starts) {
            prop_assert_eq!(&entry["type"], &start["blockType"]);
        }
    }

    #[test]
    fn no_text_given_as_a_session_makes_the_adapter_panic(text in "(\\PC|\n|\\{\"type\":\"text-chunks\",\"data\":)*") {
        let created = Instances::<Replay>::new().create(route(json!({ "session": text })).to_string().as_bytes());
        prop_assert!(created.status == 0 || !String::from_utf8_lossy(&created.body).contains("panicked"));
    }
}
