//! The protocol end to end, over byte streams, with a session that does what its prompt says.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dsh_plugin_api::vocab::{Block, Failure, FailureCode, Message, Role, Source, Usage};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ServeError;
use super::backend::{Backend, Conversation, OpenError};
use crate::agent::{AgentError, TurnEnd, TurnReason, Update, UpdateSink};
use crate::store::StoreError;

/// Sessions that were closed or lie in the store, with their messages.
#[derive(Clone, Default)]
struct Fake {
    stored: Arc<Mutex<HashMap<String, Vec<Message>>>>,
    /// Lets a turn end that ignores its cancellation.
    release: Arc<Notify>,
    /// How many pieces floods have sent.
    flooded: Arc<AtomicUsize>,
}

struct FakeSession {
    id: String,
    messages: Vec<Message>,
    updates: UpdateSink,
    fake: Fake,
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.fake.stored.lock().unwrap().insert(self.id.clone(), std::mem::take(&mut self.messages));
    }
}

impl Backend for Fake {
    type Session = FakeSession;

    async fn create(&self, cwd: PathBuf, updates: UpdateSink) -> Result<FakeSession, AgentError> {
        let id = cwd.file_name().unwrap().to_string_lossy().into_owned();
        Ok(FakeSession { id, messages: Vec::new(), updates, fake: self.clone() })
    }

    async fn resume(&self, id: &str, _cwd: PathBuf, updates: UpdateSink) -> Result<FakeSession, OpenError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if id == "locked" {
            let failure = Failure::new(FailureCode::Unsupported, "the session is in use by process 4711");
            return Err(OpenError::Agent(AgentError::Failure(failure)));
        }
        let messages = self.stored.lock().unwrap().remove(id).ok_or(OpenError::Unknown)?;
        Ok(FakeSession { id: id.to_owned(), messages, updates, fake: self.clone() })
    }
}

impl FakeSession {
    fn say(&mut self, text: &str) {
        for piece in text.split_inclusive(' ') {
            (self.updates)(Update::Text(piece.to_owned()));
        }
        let source = Source::model("p", "m", None);
        self.messages.push(Message::new("a", Role::Assistant, vec![Block::Text(text.to_owned())], source));
    }

    async fn flood(&self, count: &str) {
        for _ in 0..count.parse().unwrap() {
            (self.updates)(Update::Text("x".repeat(100)));
            self.fake.flooded.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    }

    fn call(&self) {
        (self.updates)(Update::ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments: r#"{"command":"sleep 30"}"#.into(),
        });
    }

    fn result(&self) {
        let content = vec![Block::Text("stopped".into())];
        (self.updates)(Update::ToolResult { id: "c".into(), content, is_error: true });
    }
}

impl Conversation for FakeSession {
    fn id(&self) -> &str {
        &self.id
    }

    fn messages(&self) -> Vec<Message> {
        self.messages.clone()
    }

    async fn prompt(&mut self, content: Vec<Block>, cancel: &CancellationToken) -> Result<TurnEnd, AgentError> {
        let message = Message::new("u", Role::User, content, Source::User);
        let text = message.text();
        self.messages.push(message);
        let reason = match text.split_once(' ').unwrap_or((&text, "")) {
            ("say", text) => {
                self.say(text);
                TurnReason::Completed
            }
            ("wait", _) => {
                (self.updates)(Update::Text("so far".into()));
                self.call();
                cancel.cancelled().await;
                self.result();
                TurnReason::Aborted
            }
            ("full", _) => return Err(AgentError::Store(StoreError::WriterStopped("s.jsonl".into()))),
            ("stuck", _) => {
                self.fake.release.notified().await;
                TurnReason::Completed
            }
            (flood @ ("flood" | "hold"), count) => {
                self.flood(count).await;
                if flood == "hold" {
                    self.fake.release.notified().await;
                    self.flood(count).await;
                }
                self.call();
                self.result();
                (self.updates)(Update::Text("end".into()));
                TurnReason::Completed
            }
            (other, _) => TurnReason::Error {
                failure: Failure { status: Some(500), ..Failure::new(FailureCode::Server, format!("no {other}")) },
            },
        };
        Ok(TurnEnd { reason, text: String::new(), degraded: Vec::new(), usage: Usage::default() })
    }
}

/// The client's side.
struct Peer {
    input: Option<WriteHalf<DuplexStream>>,
    output: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<Result<(), ServeError>>,
    fake: Fake,
    next: u64,
    /// Everything that arrived, in order.
    seen: Vec<Value>,
}

impl Peer {
    /// A connection that was not initialized.
    fn bare() -> Self {
        let fake = Fake::default();
        let (client, agent) = tokio::io::duplex(4096);
        let (input, output) = tokio::io::split(agent);
        let serving = tokio::spawn(super::serve_backend(fake.clone(), input, output, std::future::pending()));
        let (output, input) = tokio::io::split(client);
        let output = BufReader::new(output).lines();
        Self { input: Some(input), output, serving, fake, next: 0, seen: Vec::new() }
    }

    async fn start() -> Self {
        let mut peer = Self::bare();
        peer.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {} })).await;
        peer
    }

    /// A connection with the open session `s`.
    async fn with_session() -> Self {
        let mut peer = Self::start().await;
        let made = peer.call("session/new", json!({ "cwd": "/s", "mcpServers": [] })).await;
        assert_eq!(made["result"]["sessionId"], "s");
        peer
    }

    async fn line(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }

    async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()).await;
        id
    }

    async fn notify(&mut self, method: &str, params: Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()).await;
    }

    async fn prompt(&mut self, text: &str) -> u64 {
        self.send("session/prompt", json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": text }] })).await
    }

    async fn cancel(&mut self) {
        self.notify("session/cancel", json!({ "sessionId": "s" })).await;
    }

    /// Reads until something that arrived, now or before, fits.
    async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(seen) = self.seen.iter().find(|message| fits(message)) {
            return seen.clone();
        }
        loop {
            let line = tokio::time::timeout(Duration::from_secs(6), self.output.next_line())
                .await
                .unwrap_or_else(|_| panic!("nothing more arrived after {:#?}", self.seen))
                .unwrap()
                .unwrap_or_else(|| panic!("the connection ended after {:#?}", self.seen));
            let message: Value = serde_json::from_str(&line).unwrap();
            self.seen.push(message.clone());
            if fits(&message) {
                return message;
            }
        }
    }

    async fn answer(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    async fn tool_runs(&mut self) {
        self.until(|message| message["params"]["update"]["sessionUpdate"] == "tool_call").await;
    }

    /// Kind and text or status of the updates that arrived before the answer to this request, since the last look.
    fn updates_before(&mut self, id: u64) -> Vec<(String, String)> {
        let end = self.seen.iter().position(|message| message["id"] == id).unwrap();
        let seen = self.seen.drain(..=end);
        seen.filter(|message| message["method"] == "session/update")
            .map(|message| {
                let update = &message["params"]["update"];
                let text = [&update["content"]["text"], &update["status"]].into_iter().find_map(Value::as_str);
                (update["sessionUpdate"].as_str().unwrap().to_owned(), text.unwrap_or_default().to_owned())
            })
            .collect()
    }

    /// A split stream closes its write side only when told so.
    async fn close_input(&mut self) {
        self.input.take().unwrap().shutdown().await.unwrap();
    }

    /// Closes the input; everything that is still sent, and how serving ended.
    async fn hang_up(mut self) -> (Vec<Value>, Fake) {
        self.close_input().await;
        let mut rest = Vec::new();
        while let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_secs(6), self.output.next_line()).await {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        tokio::time::timeout(Duration::from_secs(6), self.serving).await.expect("serving ends").unwrap().unwrap();
        (rest, self.fake)
    }
}

fn pairs(updates: &[(&str, &str)]) -> Vec<(String, String)> {
    updates.iter().map(|(kind, text)| ((*kind).to_owned(), (*text).to_owned())).collect()
}

fn stop_reason(answer: &Value) -> &str {
    answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("no stop reason in {answer}"))
}

#[tokio::test]
async fn initialize_says_what_the_agent_can_do() {
    let mut peer = Peer::bare();
    let answer = peer.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": {}, "new": 1 })).await;
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], 1);
    assert_eq!(result["agentInfo"]["name"], "dsh");
    assert_eq!(result["agentCapabilities"]["loadSession"], true);
    assert_eq!(result["agentCapabilities"]["promptCapabilities"]["image"], true);
    assert_eq!(result["agentCapabilities"]["promptCapabilities"]["embeddedContext"], true);
    assert_eq!(result["authMethods"], json!([]));
}

#[tokio::test]
async fn a_prompt_is_answered_after_everything_it_showed() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("say one two three").await;
    assert_eq!(stop_reason(&peer.answer(id).await), "end_turn");
    let updates = peer.updates_before(id);
    assert!(updates.iter().all(|(kind, _)| kind == "agent_message_chunk"), "{updates:?}");
    assert_eq!(updates.into_iter().map(|(_, text)| text).collect::<String>(), "one two three");
}

#[tokio::test]
async fn each_mistake_of_a_client_has_its_code_and_the_connection_goes_on() {
    let mut peer = Peer::with_session().await;
    let mcp = json!([{ "name": "m", "command": "/m", "args": [], "env": [] }]);
    let text = json!([{ "type": "text", "text": "say x" }]);
    for (method, params, code) in [
        ("no/such/method", json!({}), -32601),
        ("session/new", json!({ "cwd": "relative", "mcpServers": [] }), -32602),
        ("session/new", json!({ "mcpServers": [] }), -32602),
        ("session/load", json!({ "sessionId": "gone", "cwd": "/s", "mcpServers": [] }), -32002),
        ("session/load", json!({ "sessionId": "../s", "cwd": "/s", "mcpServers": [] }), -32002),
        ("session/load", json!({ "sessionId": "s", "cwd": "relative", "mcpServers": [] }), -32602),
        ("session/load", json!({ "sessionId": "locked", "cwd": "/s", "mcpServers": [] }), -32603),
        ("session/prompt", json!({ "sessionId": "gone", "prompt": text }), -32002),
        ("session/prompt", json!({ "sessionId": "s", "prompt": [] }), -32602),
        ("session/prompt", json!({ "sessionId": "s", "prompt": "text" }), -32602),
        ("session/prompt", json!({ "sessionId": "s", "prompt": [{ "type": "text", "text": "burn" }] }), -32603),
    ] {
        let answer = peer.call(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    peer.line("{\"jsonrpc\": \"2.0\", oops").await;
    assert_eq!(
        peer.until(|message| message["id"].is_null() && message.get("error").is_some()).await["error"]["code"],
        -32700
    );
    peer.notify("brand_new/notification", json!({ "sessionId": "s" })).await;
    let made = peer.call("session/new", json!({ "cwd": "/t", "mcpServers": mcp, "unknown": {} })).await;
    assert_eq!(made["result"]["sessionId"], "t");
    let id = peer.prompt("say on").await;
    assert_eq!(stop_reason(&peer.answer(id).await), "end_turn");
}

#[tokio::test]
async fn a_failed_request_says_why_and_a_lock_names_its_holder() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("burn").await;
    let error = peer.answer(id).await["error"].clone();
    assert_eq!(error["message"], "no burn");
    assert_eq!(error["data"], json!({ "message": "no burn", "code": "SERVER", "status": 500 }));
    let locked = peer.call("session/load", json!({ "sessionId": "locked", "cwd": "/s", "mcpServers": [] })).await;
    assert!(locked["error"]["message"].as_str().unwrap().contains("4711"), "{locked}");
}

#[tokio::test]
async fn a_cancel_ends_the_running_prompt_and_no_other() {
    let mut peer = Peer::with_session().await;
    peer.cancel().await;
    let id = peer.prompt("wait").await;
    peer.tool_runs().await;
    peer.cancel().await;
    peer.cancel().await;
    assert_eq!(stop_reason(&peer.answer(id).await), "cancelled");
    let shown = [("agent_message_chunk", "so far"), ("tool_call", "in_progress"), ("tool_call_update", "failed")];
    assert_eq!(peer.updates_before(id), pairs(&shown));
    peer.cancel().await;
    let id = peer.prompt("say fine").await;
    assert_eq!(stop_reason(&peer.answer(id).await), "end_turn");
}

#[tokio::test]
async fn a_cancelled_request_is_a_cancelled_prompt() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("wait").await;
    peer.tool_runs().await;
    peer.notify("$/cancel_request", json!({ "requestId": id })).await;
    assert_eq!(stop_reason(&peer.answer(id).await), "cancelled");
}

#[tokio::test]
async fn a_second_prompt_is_refused_while_one_runs() {
    let mut peer = Peer::with_session().await;
    let first = peer.prompt("wait").await;
    peer.tool_runs().await;
    let second = peer.prompt("say x").await;
    let error = peer.answer(second).await["error"].clone();
    assert_eq!(error["code"], -32600);
    assert!(error["message"].as_str().unwrap().contains("busy"), "{error}");
    peer.cancel().await;
    assert_eq!(stop_reason(&peer.answer(first).await), "cancelled");
}

#[tokio::test]
async fn a_turn_that_ignores_its_cancellation_is_answered_all_the_same() {
    let mut peer = Peer::with_session().await;
    let first = peer.prompt("stuck").await;
    peer.cancel().await;
    assert_eq!(stop_reason(&peer.answer(first).await), "cancelled");
    let second = peer.prompt("say x").await;
    let error = peer.answer(second).await["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("still stopping"), "{error}");
    peer.fake.release.notify_one();
    loop {
        let id = peer.prompt("say x").await;
        let answer = peer.answer(id).await;
        if answer.get("error").is_none() {
            assert_eq!(stop_reason(&answer), "end_turn");
            break;
        }
    }
}

fn load() -> Value {
    json!({ "sessionId": "s", "cwd": "/elsewhere", "mcpServers": [] })
}

#[tokio::test]
async fn a_session_is_replayed_before_its_load_is_answered() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("say hello you").await;
    peer.answer(id).await;
    let (_, fake) = peer.hang_up().await;

    let mut peer = Peer::start().await;
    *peer.fake.stored.lock().unwrap() = std::mem::take(&mut *fake.stored.lock().unwrap());
    // The prompt does not wait for the answer to the load.
    let loaded = peer.send("session/load", load()).await;
    let prompted = peer.prompt("say more").await;
    peer.answer(prompted).await;
    assert!(peer.answer(loaded).await.get("result").is_some());
    let replayed = [("user_message_chunk", "say hello you"), ("agent_message_chunk", "hello you")];
    assert_eq!(peer.updates_before(loaded), pairs(&replayed));
    assert_eq!(peer.updates_before(prompted), pairs(&[("agent_message_chunk", "more")]));
}

#[tokio::test]
async fn loading_a_running_session_shows_the_turn_so_far_and_then_the_rest() {
    let mut peer = Peer::with_session().await;
    let first = peer.prompt("say hello").await;
    peer.answer(first).await;
    let prompted = peer.prompt("wait here").await;
    peer.tool_runs().await;
    peer.seen.clear();
    let loaded = peer.send("session/load", load()).await;
    assert!(peer.answer(loaded).await.get("result").is_some());
    let replayed = [
        ("user_message_chunk", "say hello"),
        ("agent_message_chunk", "hello"),
        ("user_message_chunk", "wait here"),
        ("agent_message_chunk", "so far"),
        ("tool_call", "in_progress"),
    ];
    assert_eq!(peer.updates_before(loaded), pairs(&replayed));
    peer.cancel().await;
    assert_eq!(stop_reason(&peer.answer(prompted).await), "cancelled");
    assert_eq!(peer.updates_before(prompted), pairs(&[("tool_call_update", "failed")]));
}

#[tokio::test]
async fn loading_in_the_middle_of_a_stream_loses_and_repeats_nothing() {
    const DELTAS: usize = 1000;
    let mut peer = Peer::with_session().await;
    let prompted = peer.prompt(&format!("hold {DELTAS}")).await;
    peer.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    let loaded = peer.send("session/load", load()).await;
    peer.answer(loaded).await;
    peer.fake.release.notify_one();
    assert_eq!(stop_reason(&peer.answer(prompted).await), "end_turn");
    let mut updates = peer.updates_before(loaded);
    let replay = updates.iter().rposition(|(kind, _)| kind == "user_message_chunk").unwrap();
    updates.drain(..=replay);
    updates.extend(peer.updates_before(prompted));
    let text = updates.iter().filter(|(kind, _)| kind == "agent_message_chunk").map(|(_, text)| text.len());
    assert_eq!(text.sum::<usize>(), 2 * DELTAS * 100 + "end".len());
    assert_eq!(updates.iter().filter(|(kind, _)| kind == "tool_call").count(), 1);
}

#[tokio::test]
async fn what_waits_for_a_session_that_cannot_be_opened_is_answered() {
    let mut peer = Peer::start().await;
    let loaded = peer.send("session/load", load()).await;
    let prompted = peer.prompt("say x").await;
    for id in [loaded, prompted] {
        assert_eq!(peer.answer(id).await["error"]["code"], -32002);
    }
}

#[tokio::test]
async fn a_slow_client_gets_the_same_text_in_fewer_pieces() {
    const DELTAS: usize = 5000;
    let mut peer = Peer::with_session().await;
    let id = peer.prompt(&format!("flood {DELTAS}")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    peer.answer(id).await;
    let updates = peer.updates_before(id);
    let (text, rest) = updates.split_at(updates.len() - 3);
    assert!(text.len() < DELTAS / 10, "{} pieces", text.len());
    assert!(text.iter().all(|(kind, _)| kind == "agent_message_chunk"));
    assert_eq!(text.iter().map(|(_, text)| text.len()).sum::<usize>(), DELTAS * 100);
    let last = [("tool_call", "in_progress"), ("tool_call_update", "failed"), ("agent_message_chunk", "end")];
    assert_eq!(rest, pairs(&last));
}

#[tokio::test]
async fn a_session_whose_log_cannot_be_written_is_closed_and_can_be_loaded_again() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("full").await;
    assert_eq!(peer.answer(id).await["error"]["code"], -32603);
    let id = peer.prompt("say lost").await;
    assert_eq!(peer.answer(id).await["error"]["code"], -32002);
    let loaded = peer.call("session/load", json!({ "sessionId": "s", "cwd": "/s", "mcpServers": [] })).await;
    assert!(loaded["error"].is_null(), "{loaded}");
    let id = peer.prompt("say on").await;
    assert_eq!(stop_reason(&peer.answer(id).await), "end_turn");
}

#[tokio::test]
async fn a_turn_waits_for_a_client_that_does_not_read_and_can_be_cancelled_meanwhile() {
    const DELTAS: usize = 100_000;
    let mut peer = Peer::with_session().await;
    let id = peer.prompt(&format!("flood {DELTAS}")).await;
    let flooded = Arc::clone(&peer.fake.flooded);
    let (mut before, mut still) = (0, 0);
    while still < 4 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = flooded.load(Ordering::Relaxed);
        still = if now == before && now > 0 { still + 1 } else { 0 };
        before = now;
    }
    assert!(before < 70_000, "{before} of {DELTAS} pieces wait");
    peer.cancel().await;
    let begun = std::time::Instant::now();
    while flooded.load(Ordering::Relaxed) < DELTAS {
        assert!(begun.elapsed() < Duration::from_secs(20), "the turn does not go on to its end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    peer.answer(id).await;
    let text = peer.updates_before(id);
    let longest = text.iter().map(|(_, text)| text.len()).max();
    assert!(longest.is_some_and(|longest| longest < 64 * 1024), "{longest:?} bytes in one line");
    let sum: usize = text.iter().filter(|(kind, _)| kind == "agent_message_chunk").map(|(_, text)| text.len()).sum();
    assert_eq!(sum, DELTAS * 100 + "end".len());
}

#[tokio::test]
async fn the_end_of_input_cancels_what_runs_and_closes_every_session() {
    let mut peer = Peer::with_session().await;
    let id = peer.prompt("wait").await;
    peer.tool_runs().await;
    let (rest, fake) = peer.hang_up().await;
    let answer = rest.iter().find(|message| message["id"] == id).unwrap();
    assert_eq!(stop_reason(answer), "cancelled");
    assert!(fake.stored.lock().unwrap().contains_key("s"), "the session was closed");
}

#[tokio::test]
async fn a_client_that_stops_reading_cannot_keep_the_process() {
    let mut peer = Peer::with_session().await;
    peer.prompt("flood 2000").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    peer.close_input().await;
    let Peer { output, serving, .. } = peer;
    let mut client = output.into_inner().into_inner();
    // Only the write side of a duplex stream is closed; nothing is read.
    let closing = tokio::time::timeout(Duration::from_secs(5), serving);
    closing.await.expect("serving ends").unwrap().unwrap();
    let mut byte = [0];
    assert_eq!(tokio::io::AsyncReadExt::read(&mut client, &mut byte).await.unwrap(), 1);
}
