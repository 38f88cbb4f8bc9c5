//! One session goes from wire to wire and from adapter to adapter: every request goes out, shows no thoughts but the
//! target's own, and what a model once said comes back to it byte for byte.
//!
//! All routes lead to one scripted provider, which speaks the wire of each request.

use dsh_tests::wires::{ROUTES, Route, hand_overs, ids, named, shows};
use dsh_tests::{Composition, Provider, Run, Running, for_each, of_kind};
use serde_json::{Value, json};

/// A session that is handed over.
struct Session {
    composition: Composition,
    provider: Provider,
    id: String,
}

impl Session {
    /// Has the first turn, which need not complete.
    fn begin(answers: &[Value], on: Route) -> (Self, Run) {
        let provider = Provider::start(answers);
        let composition = Composition::on_every_wire(&provider);
        let run = composition.prompt(&["-m", &on.model()], "begin");
        let id = run.session().to_owned();
        (Self { composition, provider, id }, run)
    }

    /// Has a turn. What is stored stays as it is: the log only grows.
    fn turn(&self, on: Route) -> Run {
        let before = self.log();
        let run = self.composition.prompt(&["--session", &self.id, "-m", &on.model()], "go on");
        assert!(self.log().starts_with(&before), "the log was rewritten by a turn of {}", on.name);
        run
    }

    fn log(&self) -> Vec<u8> {
        std::fs::read(self.composition.log(&self.id)).unwrap()
    }

    fn messages(&self) -> Vec<Value> {
        let shown = self.composition.dsh(&["sessions", "show", "--messages", "--json", &self.id]);
        shown.json().as_array().unwrap().clone()
    }

    /// What `dsh request` says; asked twice, it says the same, and the log stays as it is.
    fn request(&self, to: Route) -> Value {
        let before = self.log();
        let [first, second] = [(), ()]
            .map(|()| self.composition.dsh(&["request", "-m", &to.model(), "--json", "--session", &self.id]).json());
        assert_eq!(first.to_string(), second.to_string(), "{}", to.name);
        assert_eq!(self.log(), before, "asking for a request changed the log");
        first
    }

    /// The bodies that were sent so far.
    fn sent(&self) -> Vec<Value> {
        self.provider.requests().iter().map(|request| request["body"].clone()).collect()
    }
}

/// Positions of the messages that are listed.
fn positions(list: &Value) -> Vec<usize> {
    list.as_array().unwrap().iter().map(|entry| usize::try_from(entry["message"].as_u64().unwrap()).unwrap()).collect()
}

/// Positions of the assistant's messages, each with the route that made it.
fn made_by(messages: &[Value]) -> Vec<(usize, Route)> {
    let assistants = messages.iter().enumerate().filter(|(_, message)| message["role"] == "assistant");
    assistants.map(|(at, message)| (at, named(message["source"]["provider"].as_str().unwrap()))).collect()
}

/// Positions of the messages that another adapter than this route's made.
fn made_elsewhere(messages: &[Value], route: Route) -> Vec<usize> {
    made_by(messages).into_iter().filter(|(_, by)| by.adapter != route.adapter).map(|(at, _)| at).collect()
}

#[test]
fn a_session_goes_through_every_wire_and_back_and_each_model_finds_its_own_thoughts_again() {
    let there_and_back: Vec<Route> = ROUTES.into_iter().chain(ROUTES).collect();
    let answers: Vec<Value> = there_and_back.iter().flat_map(|route| route.turn()).collect();
    let (session, first) = Session::begin(&answers, ROUTES[0]);
    first.completed();
    for (turn, route) in there_and_back.iter().enumerate().skip(1) {
        let run = session.turn(*route).completed();
        let sent = session.sent();
        assert_eq!(sent.len(), 2 * (turn + 1), "{}: {}", route.name, run.outcome);
        let [opening, closing] = [&sent[2 * turn], &sent[2 * turn + 1]];

        for other in ROUTES {
            let times = |turns: &[Route]| turns.iter().filter(|route| **route == other).count();
            for (body, turns) in [(opening, turn), (closing, turn + 1)] {
                let times = times(&there_and_back[..turns]);
                let native = other.native_traces(if other == *route { times } else { 0 });
                assert_eq!(other.traces(body), native, "{} in {}: {body:#}", other.name, route.name);
                // Whatever was said and found is there for everybody.
                let [first, second] = other.found();
                for text in [other.said(), first, second] {
                    assert_eq!(shows(body, &text), times > 0, "{text} in {}: {body:#}", route.name);
                }
            }
            assert_eq!(shows(opening, &other.done()), times(&there_and_back[..turn]) > 0, "{}", route.name);
        }
        // Ids of a response or of its reasoning are metadata too.
        for id in ["resp_mock_", "rs_mock_"].into_iter().filter(|_| route.name != "responses") {
            assert!(!shows(closing, id), "{id} in {}: {closing:#}", route.name);
        }
        route.check_ids(opening, 2 * turn);
        route.check_ids(closing, 2 * (turn + 1));
        // Within a turn, what was sent is sent again with the same ids.
        assert!(ids(closing).0.starts_with(&ids(opening).0), "{}", route.name);
    }
    let (messages, sent) = (session.messages(), session.sent());
    for_each(&ROUTES, |route| {
        let request = session.request(*route);
        let body = &request["body"];
        route.check_ids(body, 2 * there_and_back.len());
        assert_eq!(route.traces(body), route.native_traces(2), "{}: {body:#}", route.name);
        assert_eq!(positions(&request["degraded"]), made_elsewhere(&messages, *route), "{}", route.name);
        let neutral = made_by(&messages).into_iter().filter(|(_, by)| by != route && by.adapter == route.adapter);
        // What was sent in the route's own last turn would be sent again with the same ids.
        let place = there_and_back.iter().rposition(|made| made == route).unwrap();
        assert!(ids(body).0.starts_with(&ids(&sent[2 * place + 1]).0), "{}", route.name);
        assert_eq!(positions(&request["neutral"]), neutral.map(|(at, _)| at).collect::<Vec<_>>(), "{}", route.name);
    });
}

#[test]
fn reasoning_that_nobody_was_shown_returns_to_its_model_and_to_nobody_else() {
    let mut pairs = hand_overs();
    pairs.retain(|(from, _)| !from.signature.is_empty());
    for_each(&pairs, |(from, to)| {
        let [mut answers, more] =
            [from, to].map(|route| vec![route.calls_with_hidden_reasoning(), json!({ "text": route.done() })]);
        answers.extend(more);
        answers.push(json!({ "text": from.done() }));
        let (session, first) = Session::begin(&answers, *from);
        first.completed();
        for (route, place, native) in [(*from, 1, 1), (*to, 2, 0), (*from, 4, 1)] {
            if place > 1 {
                session.turn(route).completed();
            }
            let sent = &session.sent()[place];
            assert_eq!(from.traces(sent), (0, native), "{} to {}, {}: {sent:#}", from.name, to.name, route.name);
            assert_eq!(to.traces(sent), (0, 0), "{} to {}, {}: {sent:#}", from.name, to.name, route.name);
        }
    });
}

#[test]
fn what_another_adapter_made_is_degraded_once_and_reported_everywhere() {
    let chain = ["completions", "deepseek", "deepseek", "anthropic", "completions"].map(named);
    let answers: Vec<Value> = chain.iter().flat_map(|route| route.turn()).collect();
    let (session, first) = Session::begin(&answers, chain[0]);
    assert_eq!(first.completed().result["degraded"], json!([]));
    let mut known: Vec<(Route, String)> = Vec::new();
    for route in &chain[1..] {
        let before = session.messages();
        let expected = made_elsewhere(&before, *route);
        let other = if route.adapter == "pi-ai" { "deepseek" } else { "pi-ai" };
        let run = session.turn(*route).completed();

        let degraded = &run.result["degraded"];
        assert_eq!(positions(degraded), expected, "{}: {degraded:#}", route.name);
        // The log and stderr name a message once for each route.
        let id_of = |at: &usize| (*route, before[*at]["id"].as_str().unwrap().to_owned());
        let new: Vec<_> = expected.iter().map(id_of).filter(|named| !known.contains(named)).collect();
        let events = run.of_kind("llm/degrade");
        let logged: Vec<_> =
            events.iter().map(|event| (*route, event["messageId"].as_str().unwrap().to_owned())).collect();
        assert_eq!(logged, new, "{}: {events:#?}", route.name);
        assert_eq!(run.outcome.stderr.matches("INVALID_REPLAY_STATE").count(), new.len(), "{}", run.outcome);
        for entry in degraded.as_array().unwrap().iter().chain(events) {
            let reason = entry["reason"].as_str().unwrap();
            assert_eq!(entry["code"], "INVALID_REPLAY_STATE");
            assert!(reason.contains(other) && reason.contains(route.adapter), "{reason}");
            assert!(new.is_empty() || run.outcome.says(reason), "{reason}: {}", run.outcome);
        }
        known.extend(new);
    }
    // The first model is native again, and what other wires of its adapter said is no fault.
    let last = session.sent().pop().unwrap();
    assert_eq!(chain[0].traces(&last), chain[0].native_traces(2), "{last:#}");
}

/// The source of a message with this thought and a text that this route made, with the state that its adapter stores.
/// `id` is that of the reasoning, on wires that have one.
fn source(route: Route, id: &str, thought: &str) -> Value {
    let mut response =
        json!({ "version": 1, "kind": route.adapter, "provider": route.name, "model": "m", "stopReason": "stop" });
    if let Some(api) = route.api {
        response["api"] = json!(api);
        response["version"] = json!(2);
    }
    let mut reasoning = json!({ "type": "reasoning" });
    match route.name {
        "completions" => reasoning["thinkingSignature"] = json!("reasoning_content"),
        "responses" => {
            let summary = json!([{ "type": "summary_text", "text": thought }]);
            let item =
                json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": route.signature });
            reasoning["thinkingSignature"] = json!(item.to_string());
        }
        _ if !route.signature.is_empty() => reasoning["thinkingSignature"] = json!(route.signature),
        _ => {}
    }
    let state = json!({ "response": response, "blocks": [reasoning, { "type": "text" }] });
    json!({ "kind": "model", "provider": route.name, "model": "m", "replayState": state })
}

/// What is done to the source of a message, and how the message goes out then.
type Row = (&'static str, fn(&mut Value), &'static str);

/// The table of `docs/never-stuck.md`.
const TABLE: [Row; 17] = [
    ("own", |_| {}, "native"),
    ("no-state", |source| drop(source.as_object_mut().unwrap().remove("replayState")), "neutral"),
    ("other-provider", |source| set(source, "provider", &json!("elsewhere")), "neutral"),
    ("other-model", |source| set(source, "model", &json!("other")), "neutral"),
    ("kind", |source| source["replayState"]["response"]["kind"] = json!("somebody"), "degraded"),
    ("version", |source| source["replayState"]["response"]["version"] = json!(99), "degraded"),
    ("no-version", |source| source["replayState"]["response"]["version"] = Value::Null, "degraded"),
    ("flat", |source| source["replayState"] = flat(&source["replayState"]), "degraded"),
    ("no-response", |source| source["replayState"] = json!({ "blocks": [] }), "degraded"),
    ("malformed", |source| source["replayState"] = json!("x"), "degraded"),
    ("state-provider", |source| source["replayState"]["response"]["provider"] = json!("elsewhere"), "degraded"),
    ("state-model", |source| source["replayState"]["response"]["model"] = json!("other"), "degraded"),
    ("no-entries", |source| drop(source["replayState"].as_object_mut().unwrap().remove("blocks")), "degraded"),
    ("more-entries", |source| entries(source, &["reasoning", "text", "text"]), "degraded"),
    ("fewer-entries", |source| entries(source, &["text"]), "degraded"),
    ("types", |source| entries(source, &["text", "reasoning"]), "degraded"),
    ("own-again", |_| {}, "native"),
];

/// The member in both places that name it.
fn set(source: &mut Value, member: &str, value: &Value) {
    source[member] = value.clone();
    source["replayState"]["response"][member] = value.clone();
}

fn entries(source: &mut Value, kinds: &[&str]) {
    source["replayState"]["blocks"] = kinds.iter().map(|kind| json!({ "type": kind })).collect();
}

/// The state in the form of version 1, in which everything stood side by side.
fn flat(state: &Value) -> Value {
    let mut flat = state["response"].clone();
    flat["version"] = json!(1);
    flat["blocks"] = state["blocks"].clone();
    flat
}

#[test]
fn a_state_goes_out_as_the_table_says_on_every_wire() {
    let provider = Provider::start(&[]);
    for_each(&ROUTES, |route| {
        let composition = Composition::on_every_wire(&provider);
        let answer = |(name, change, _): &Row| {
            let thought = format!("<thought {name}>");
            let mut source = source(*route, &format!("rs_{name}"), &thought);
            change(&mut source);
            let said = json!({ "type": "text", "text": format!("<said {name}>") });
            (json!([{ "type": "reasoning", "text": thought }, said]), source)
        };
        composition.write_session("table", &TABLE.each_ref().map(answer));
        let request = composition.dsh(&["request", "-m", &route.model(), "--json", "--session", "table"]).json();
        let [neutral, degraded] = ["neutral", "degraded"].map(|list| positions(&request[list]));
        for (row, (name, _, expected)) in TABLE.iter().enumerate() {
            let at = 2 * row + 1;
            let got = match (neutral.contains(&at), degraded.contains(&at)) {
                (false, false) => "native",
                (true, false) => "neutral",
                (false, true) => "degraded",
                (true, true) => "both",
            };
            assert_eq!(got, *expected, "{name} on {}: {request:#}", route.name);
            let body = &request["body"];
            assert!(shows(body, &format!("<said {name}>")), "{name} on {}: {body:#}", route.name);
            let is_native = *expected == "native";
            assert_eq!(shows(body, &format!("<thought {name}>")), is_native, "{name} on {}: {body:#}", route.name);
        }
        for entry in request["degraded"].as_array().unwrap() {
            assert!(entry["code"] == "INVALID_REPLAY_STATE" && entry["reason"] != "", "{}: {entry}", route.name);
        }
    });
}

#[test]
fn a_tool_loop_that_one_wire_began_goes_on_over_another() {
    for_each(&hand_overs(), |(from, to)| {
        // The tools have run and their results are on the way when the process is killed, or the provider fails.
        let is_killed = from.name == "completions";
        let broken = if is_killed {
            json!({ "text": "never", "stall_after": 0 })
        } else {
            json!({ "error": { "kind": "overloaded" } })
        };
        let answers = [from.calls(), broken, json!({ "text": to.done() }), json!({ "text": from.done() })];
        let session = if is_killed {
            let provider = Provider::start(&answers);
            let composition = Composition::on_every_wire(&provider);
            let running = Running::start(composition.command(&["run", "--json", "-m", &from.model(), "begin"]));
            dsh_tests::wait_until("the results are sent", || provider.requests().len() == 2);
            running.signal("KILL");
            assert_eq!(running.finish().code, None);
            let id = composition.sessions().pop().unwrap();
            Session { composition, provider, id }
        } else {
            let (session, first) = Session::begin(&answers, *from);
            assert_eq!(first.result["reason"]["failure"]["code"], "SERVER", "{}: {}", from.name, first.outcome);
            session
        };
        for (route, native) in [(*to, 0), (*from, 1)] {
            session.turn(route).completed();
            let sent = session.sent().pop().unwrap();
            let place = format!("{} to {}, sent to {}: {sent:#}", from.name, to.name, route.name);
            route.check_ids(&sent, 2);
            assert!(from.found().iter().all(|found| shows(&sent, found)), "{place}");
            assert_eq!(from.traces(&sent), from.native_traces(native), "{place}");
        }
    });
}

#[test]
fn answers_that_were_cut_off_go_over_without_what_was_lost_and_come_back_natively() {
    for_each(&hand_overs(), |(from, to)| {
        // The output limit cuts off the calls. A wire that has its calls whole loses them just as well.
        let mut truncated = from.calls();
        truncated["finish"] = json!("length");
        if from.name != "google" {
            truncated["tool_calls"][1]["arguments"] = json!("{\"command\":\"touch ran");
        }
        // The connection breaks inside the text: behind the thought, which is one piece, and before the end.
        let half = format!("{} and then it brea", from.said());
        let begun = json!({ "reasoning": from.thought(), "text": half, "chunk_chars": 6 });
        let mut broken = from.signed(begun.clone());
        broken["stop_after"] = json!(pieces_before_the_end(*from, &broken));
        broken["close"] = json!("cut");
        // The provider gives up in the middle.
        let mut failed = from.signed(begun);
        failed["error"] = json!({ "kind": "overloaded", "in_stream": true });
        let answers = [truncated, broken, failed, json!({ "text": to.done() }), json!({ "text": from.done() })];

        let (session, first) = Session::begin(&answers, *from);
        assert_eq!(first.result["reason"]["kind"], "max-tokens", "{}: {}", from.name, first.outcome);
        let mut kept = Vec::new();
        for code in ["TRANSPORT", "SERVER"] {
            let run = session.turn(*from);
            assert_eq!(run.result["reason"]["failure"]["code"], code, "{}: {}", from.name, run.outcome);
            assert_eq!(run.of_kind("assistant/message")[0]["interrupted"], true, "{}", from.name);
            kept.push(run.result["text"].as_str().unwrap().to_owned());
        }
        assert!(kept[0].starts_with(&from.said()) && kept[0].len() < half.len(), "{}: {kept:?}", from.name);
        assert_eq!(kept[1], half, "{}", from.name);

        for (route, native) in [(*to, 0), (*from, 3)] {
            session.turn(route).completed();
            let sent = session.sent().pop().unwrap();
            let place = format!("{} to {}, sent to {}: {sent:#}", from.name, to.name, route.name);
            route.check_ids(&sent, 0);
            assert!(!shows(&sent, "touch ran") && !session.composition.home().join("ran").exists(), "{place}");
            assert!(kept.iter().all(|kept| shows(&sent, kept)) && shows(&sent, "interrupted"), "{place}");
            // Google signs the end of an answer, which none of these reached.
            let signed = if from.name == "google" { 0 } else { from.native_traces(native).1 };
            assert_eq!(from.traces(&sent), (native, signed), "{place}");
        }
        // What was dropped from the request is in the log.
        let streamed = session.composition.events(&session.id);
        let calls = streamed.iter().filter(|event| event["data"]["chunk"]["type"] == "tool-call-delta");
        assert!(calls.count() > 0, "{}", from.name);
        assert!(of_kind(&streamed, "tool/call").is_empty(), "{}", from.name);
    });
}

/// The number of pieces of an answer up to its last but one piece of text, on the wire of a route.
fn pieces_before_the_end(route: Route, answer: &Value) -> usize {
    let pieces = |member: &str| answer[member].as_str().unwrap().chars().count().div_ceil(6);
    let (reasoning, text) = (pieces("reasoning"), pieces("text") - 1);
    let around = match route.name {
        // message_start; the thought starts, is signed and stops; the text starts.
        "anthropic" => 5,
        // created and in_progress; the thought is added with its part, and both are done; the text is added with its part.
        "responses" => 9,
        "google" => 0,
        // The role.
        "completions" | "mistral" | "deepseek" => 1,
        other => panic!("say here how an answer on the route {other} begins"),
    };
    around + reasoning + text
}
