//! A composition of one route `p`, whose model says what a test scripts.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, Open};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{
    Block, BlockType, Chunk, EnvelopeId, Exchange, Failure, FailureCode, FinishReason, InvalidReplay, ReplayDegrade,
    ReplayEnvelope, RouteInfo, Routing, Usage,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::agent::{Composition, Session, SessionOptions, TurnEnd, Update, UpdateSink};
use crate::llm::client::Client;
use crate::llm::registry::{Registry, Route};
use crate::loader::{AdapterHandle, StreamHandle};
use crate::manifest::Manifest;
use crate::store::Store;

/// A model that gives one scripted stream per attempt, one chunk per poll. A stream without a finish stays open.
#[derive(Default)]
pub(super) struct Model {
    attempts: Mutex<VecDeque<Vec<Chunk>>>,
    /// What it was asked, in order.
    pub requests: Mutex<Vec<Convert>>,
    /// Messages whose replay state it rejects, by their text.
    pub rejects: Mutex<Option<&'static str>>,
}

impl AdapterHandle for Model {
    fn check_history(&self, call: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> {
        let rejects = *self.rejects.lock().unwrap();
        let verdict = |text: String| rejects.filter(|it| *it == text).map(|_| InvalidReplay::Invalid("no".to_owned()));
        Ok(call.messages.iter().map(|message| verdict(message.text())).collect())
    }

    fn convert(&self, call: &Convert) -> Result<Converted, Failure> {
        self.requests.lock().unwrap().push(call.clone());
        Ok(Converted { exchange: Exchange::Polled(raw(&json!({}))), repairs: Vec::new() })
    }

    fn on_replay_degrade(&self, _: &ReplayDegrade) -> Result<(), Failure> {
        Ok(())
    }

    fn open(&self, _: &Open) -> Result<Box<dyn StreamHandle>, Failure> {
        let chunks = self.attempts.lock().unwrap().pop_front().expect("an attempt that the test did not script");
        Ok(Box::new(Script(chunks.into())))
    }
}

struct Script(VecDeque<Chunk>);

impl StreamHandle for Script {
    fn feed(&mut self, _: &[u8]) -> Vec<Item> {
        unreachable!("the exchange is polled")
    }

    fn finish(&mut self, _: &StreamEnd) -> Vec<Item> {
        Vec::new()
    }

    fn poll(&mut self) -> Vec<Item> {
        self.0.pop_front().map(Item::Chunk).into_iter().collect()
    }

    fn cancel(&mut self) -> Vec<Item> {
        Vec::new()
    }
}

/// A composition whose route `p` is served by this adapter; its envelopes are of kind `k`, version 1. `agent` and
/// `transport` are more of these parts of the manifest.
pub(super) fn composition(folder: &Path, agent: &str, transport: &str, handle: Arc<dyn AdapterHandle>) -> Composition {
    let text = format!(
        "version = 1\n[agent]\nmodel = \"p/m\"\ntools = [\"bash\"]\n{agent}\n\
         [transport]\nmax_retries = 2\nretry_max_ms = 60000\n{transport}\n"
    );
    let manifest = Manifest::from_text("test", &text, folder).unwrap();
    let route = Route {
        info: RouteInfo {
            name: "p".to_owned(),
            api: None,
            origin: None,
            credential: None,
            models: Vec::new(),
            any_model: true,
        },
        adapter: "model".to_owned(),
        envelope: EnvelopeId { kind: "k".to_owned(), version: 1 },
        handle,
        credential: None,
        origin: None,
    };
    Composition {
        client: Client::new(manifest.transport),
        store: Store::new(folder),
        registry: Registry { adapters: Vec::new(), routes: BTreeMap::from([("p".to_owned(), Arc::new(route))]) },
        manifest,
    }
}

/// A moment of a turn: true for the update that marks it.
pub(super) type Moment = fn(&Update) -> bool;

/// The composition, and what was shown.
pub(super) struct World {
    pub folder: TempDir,
    pub model: Arc<Model>,
    pub composition: Arc<Composition>,
    pub updates: Arc<Mutex<Vec<Update>>>,
    pub cancel: CancellationToken,
    /// Cancels at the first update that it is true for.
    pub cancel_at: Arc<Mutex<Option<Moment>>>,
}

impl World {
    pub fn new(attempts: Vec<Vec<Chunk>>) -> Self {
        Self::with_agent("", attempts)
    }

    /// `agent` is more of the manifest's `[agent]`.
    pub fn with_agent(agent: &str, attempts: Vec<Vec<Chunk>>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = Arc::new(Model { attempts: Mutex::new(attempts.into()), ..Model::default() });
        let composition =
            composition(folder.path(), agent, "retry_base_ms = 1", Arc::clone(&model) as Arc<dyn AdapterHandle>);
        Self {
            folder,
            model,
            composition: Arc::new(composition),
            updates: Arc::default(),
            cancel: CancellationToken::new(),
            cancel_at: Arc::default(),
        }
    }

    fn sink(&self) -> UpdateSink {
        let (updates, cancel, at) = (Arc::clone(&self.updates), self.cancel.clone(), Arc::clone(&self.cancel_at));
        Arc::new(move |update| {
            if at.lock().unwrap().is_some_and(|at| at(&update)) {
                cancel.cancel();
            }
            updates.lock().unwrap().push(update);
        })
    }

    fn options(&self) -> SessionOptions {
        SessionOptions { model: None, cwd: self.folder.path().to_owned() }
    }

    pub async fn create(&self) -> Session {
        Session::create(Arc::clone(&self.composition), self.options(), self.sink()).await.unwrap()
    }

    /// Opens a session again, as another process would: with nothing but its log.
    pub async fn reopen(&self, session: Session) -> Session {
        let id = session.id().to_owned();
        drop(session);
        self.updates.lock().unwrap().clear();
        Session::resume(Arc::clone(&self.composition), &id, self.options(), self.sink()).await.unwrap()
    }

    pub async fn prompt(&self, session: &mut Session, text: &str) -> TurnEnd {
        session.prompt(vec![Block::Text(text.to_owned())], &self.cancel).await.unwrap()
    }

    /// Lets the model say more.
    pub fn script(&self, attempts: Vec<Vec<Chunk>>) {
        self.model.attempts.lock().unwrap().extend(attempts);
    }

    /// Attempts that were scripted and not asked for.
    pub fn left(&self) -> usize {
        self.model.attempts.lock().unwrap().len()
    }

    /// The conversation part of the log, an event a line. Chunks and headers are left out, and a log that could not be
    /// read again as it stands fails the test.
    pub fn log(&self, session: &Session) -> Vec<String> {
        let log = self.composition.store.read(session.id()).unwrap();
        assert_eq!(log.recovered, 0, "the turn is closed");
        assert!(log.problems.is_empty(), "{:?}", log.problems);
        log.events.iter().filter_map(|event| outline(&event.kind, &event.parse().unwrap())).collect()
    }

    /// How many events of that kind are logged.
    pub fn count(&self, session: &Session, kind: &str) -> usize {
        let log = self.composition.store.read(session.id()).unwrap();
        log.events.iter().filter(|event| event.kind == kind).count()
    }

    /// Role and text of each message of the last request; calls by name, results by their text, `*` for native ones.
    pub fn last_request(&self) -> Vec<String> {
        let requests = self.model.requests.lock().unwrap();
        let Convert { request, routing, .. } = requests.last().unwrap();
        let line = |(message, routing): (&dsh_plugin_api::vocab::Message, &Routing)| {
            let native = if *routing == Routing::Native { "*" } else { "" };
            format!("{native}{}: {}", json!(message.role).as_str().unwrap(), words(&json!(message.content)))
        };
        request.messages.iter().zip(routing).map(line).collect()
    }

    /// The notices so far.
    pub fn notices(&self) -> Vec<String> {
        let updates = self.updates.lock().unwrap();
        let notice = |update: &Update| if let Update::Notice(text) = update { Some(text.clone()) } else { None };
        updates.iter().filter_map(notice).collect()
    }

    /// How many updates there are for which `is` holds.
    pub fn shown(&self, is: fn(&Update) -> bool) -> usize {
        self.updates.lock().unwrap().iter().filter(|update| is(update)).count()
    }
}

fn words(content: &Value) -> String {
    let word = |block: &Value| match block["type"].as_str().unwrap() {
        "tool-call" => format!("{}({})", block["name"].as_str().unwrap(), block["arguments"].as_str().unwrap()),
        "tool-result" => format!("[{}]", words(&block["content"])),
        "image" => "<image>".to_owned(),
        _ => block["text"].as_str().unwrap().trim_end().to_owned(),
    };
    content.as_array().unwrap().iter().map(word).collect::<Vec<_>>().join(" ")
}

fn outline(kind: &str, data: &Value) -> Option<String> {
    let message = || words(&data["message"]["content"]);
    Some(match kind {
        "turn/start" | "step/start" | "step/end" => kind.to_owned(),
        "turn/end" => {
            let reason = &data["reason"];
            let why = reason["reason"]["kind"].as_str().or(reason["error"]["code"].as_str());
            format!(
                "{kind} {}{}",
                reason["kind"].as_str().unwrap(),
                why.map(|why| format!(": {why}")).unwrap_or_default()
            )
        }
        "user/message" => format!("user: {}", words(&data["content"])),
        "assistant/message" if data["interrupted"] == true => format!("interrupted: {}", message()),
        "assistant/message" => format!("assistant: {}", message()),
        "tool/call" => format!("call {}", data["callId"].as_str().unwrap()),
        "tool/result" => {
            let call = data["message"]["source"]["callId"].as_str().unwrap();
            let error = data["error"]["code"]
                .as_str()
                .map(|code| format!(" {}:{code}", data["error"]["name"].as_str().unwrap()));
            format!("result {call}{}: {}", error.unwrap_or_default(), message())
        }
        "llm/retry" => {
            let replay = data["replay"].as_str().map(|replay| format!(" {replay}")).unwrap_or_default();
            let images = data["imagesFrom"].as_u64().map(|from| format!(" images from {from}")).unwrap_or_default();
            format!(
                "retry {}/{}{replay}{images} after {}",
                data["retry"],
                data["maxRetries"],
                data["failure"]["code"].as_str().unwrap()
            )
        }
        "llm/degrade" => format!("degrade {}: {}", data["message"], data["reason"].as_str().unwrap()),
        _ => return None,
    })
}

pub(super) fn text(index: u32, text: &str) -> Vec<Chunk> {
    vec![
        Chunk::BlockStart { index, block_type: BlockType::Text },
        Chunk::TextDelta { index, text: text.to_owned() },
        Chunk::BlockEnd { index, block: Block::Text(text.to_owned()) },
    ]
}

pub(super) fn call(index: u32, id: &str, arguments: &str) -> Vec<Chunk> {
    let block = Block::ToolCall { id: id.to_owned(), name: "bash".to_owned(), arguments: arguments.to_owned() };
    vec![Chunk::BlockStart { index, block_type: BlockType::ToolCall }, Chunk::BlockEnd { index, block }]
}

/// A call of bash with this command.
pub(super) fn bash(index: u32, id: &str, command: &str) -> Vec<Chunk> {
    call(index, id, &json!({ "command": command }).to_string())
}

/// One input and two output tokens, and the finish.
pub(super) fn end(reason: FinishReason) -> Vec<Chunk> {
    let usage = Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() };
    vec![Chunk::Usage { usage }, Chunk::Finish { reason, replay_state: None }]
}

pub(super) fn failing(code: FailureCode, status: Option<u16>) -> Vec<Chunk> {
    end(FinishReason::Error { failure: Failure { status, ..Failure::new(code, "it failed") } })
}

/// A text that the model's own replay state goes with.
pub(super) fn signed(words: &str) -> Vec<Chunk> {
    let response = raw(&json!({ "kind": "k", "version": 1, "provider": "p", "model": "m", "stopReason": "stop" }));
    let replay_state = Some(ReplayEnvelope { response, blocks: Some(vec![raw(&json!({ "type": "text" }))]) });
    [text(0, words), vec![Chunk::Finish { reason: FinishReason::Stop, replay_state }]].concat()
}

/// A whole answer of one text.
pub(super) fn says(words: &str) -> Vec<Chunk> {
    [text(0, words), end(FinishReason::Stop)].concat()
}
