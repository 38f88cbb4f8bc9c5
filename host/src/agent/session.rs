//! The state of an open session.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::vocab::{Failure, FailureCode, Message, Target};

use super::turn::Turn;
use super::{AgentError, Composition, SessionOptions, Update, UpdateSink};
use crate::llm::client::Degraded;
use crate::llm::ladder::{Rung, Spared};
use crate::llm::registry::Route;
use crate::llm::view::HistoryMessage;
use crate::manifest::Agent;
use crate::session::derive::{DerivedMessage, SurfaceOp};
use crate::session::event::{Event, Header, LlmDegrade, LlmRetry, NewEvent, kind};
use crate::store::{OnDurable, Writer, now};
use crate::tools::{BuiltIns, RunTool};

/// A session that is open for prompts. It holds the log's lock.
pub struct Session {
    pub(super) composition: Arc<Composition>,
    pub(super) updates: UpdateSink,
    pub(super) writer: Writer,
    pub(super) cwd: PathBuf,
    pub(super) tools: Arc<dyn RunTool>,
    id: String,
    pub(super) model: Option<String>,
    pub(super) history: Vec<HistoryMessage>,
    /// Number of the last turn; 0 before the first.
    pub(super) turn: u64,
    pub(super) titled: bool,
    /// The last `request/header`, to log it only when it changes.
    header: Option<Raw>,
    /// Degrades that were reported.
    reported: HashSet<DegradeKey>,
    /// What routes are spared, since they refused it.
    pub(super) spared: HashMap<String, Spared>,
    /// Those of them that refused it before this process, as long as nobody was told.
    pub(super) remembered_refusals: HashSet<String>,
}

/// What makes two degrades one for the user: message, reason, route.
type DegradeKey = (String, String, String);

impl Session {
    /// Creates a session. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`AgentError::Store`]
    pub async fn create(
        composition: Arc<Composition>,
        options: SessionOptions,
        updates: UpdateSink,
    ) -> Result<Self, AgentError> {
        let id = uuid::Uuid::new_v4().to_string();
        let header = Header::new(id.clone(), now(), Some(options.cwd.to_string_lossy().into_owned()));
        let writer = composition.store.create(header, durable(&updates))?;
        writer.checkpoint().await?;
        Ok(Self {
            composition,
            updates,
            writer,
            cwd: options.cwd,
            tools: Arc::new(BuiltIns),
            id,
            model: options.model,
            history: Vec::new(),
            turn: 0,
            titled: false,
            header: None,
            reported: HashSet::new(),
            spared: HashMap::new(),
            remembered_refusals: HashSet::new(),
        })
    }

    /// Opens a session again, with recovery; `reference` is an id or a path.
    ///
    /// Without a model in the options, the session goes on with the one it used last, where that route still exists.
    ///
    /// # Errors
    ///
    /// [`AgentError::Store`]
    pub async fn resume(
        composition: Arc<Composition>,
        reference: &str,
        options: SessionOptions,
        updates: UpdateSink,
    ) -> Result<Self, AgentError> {
        let (log, writer) = composition.store.open(reference, durable(&updates))?;
        writer.checkpoint().await?;
        let past = Past::of(log.events.singles());
        let last_model = past.last_model.filter(|model| composition.registry.resolve(model).is_ok());
        Ok(Self {
            id: log.header.id.clone(),
            model: options.model.or(last_model),
            history: log.history().into_iter().map(HistoryMessage::from).collect(),
            turn: past.turn,
            titled: past.titled,
            header: past.header,
            reported: past.reported,
            remembered_refusals: past.spared.keys().cloned().collect(),
            spared: past.spared,
            composition,
            updates,
            writer,
            cwd: options.cwd,
            tools: Arc::new(BuiltIns),
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The model of the next request, as `provider/model`: the one of the options, else the session's last, else the
    /// agent's.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        self.model.clone().or_else(|| self.agent().model)
    }

    /// The history so far.
    #[must_use]
    pub fn messages(&self) -> Vec<Message> {
        self.history.iter().map(|entry| entry.message.clone()).collect()
    }

    pub(super) fn agent(&self) -> Agent {
        self.composition.manifest.default_agent()
    }

    /// The route that the next request goes to.
    pub(super) fn target(&self) -> Result<(Arc<Route>, Target), Failure> {
        match self.model() {
            Some(model) => self.composition.registry.resolve(&model),
            None => Err(Failure::new(
                FailureCode::UnknownModel,
                "no model is named: give one with -m PROVIDER/MODEL, or set model in [agent] of the manifest",
            )),
        }
    }

    pub(super) fn update(&self, update: Update) {
        (self.updates)(update);
    }

    /// Logs events; returns the seq of the first.
    pub(super) fn log(&self, events: Vec<NewEvent>) -> u64 {
        self.writer.append(events)
    }

    /// Logs the request header when it is not the one of the last request.
    pub(super) fn log_header(&mut self, turn: &Turn<'_>) {
        let Turn { target, route, .. } = turn;
        let header = turn.preamble.header(target, &turn.agent);
        let text = raw(&header);
        if self.header.as_ref().is_some_and(|last| last.get() == text.get()) {
            return;
        }
        let reason = if self.header.is_some() { "changed" } else { "initial" };
        let model = route.info.models.iter().find(|model| model.id == target.model);
        let window = model.and_then(|model| model.context_window);
        self.log(vec![
            NewEvent::request_header(&header, reason),
            NewEvent::request_context(&target.provider, &target.model, window),
        ]);
        self.header = Some(text);
    }

    /// Logs and shows degrades that were not reported before for this message, reason and route.
    pub(super) fn report_degraded(&mut self, turn: u64, step: u64, target: &Target, degraded: &[Degraded]) {
        for degrade in degraded {
            let key = degrade_key(&degrade.message_id, degrade.message, &degrade.reason, &target.provider);
            if self.reported.insert(key) {
                self.log(vec![NewEvent::llm_degrade(&LlmDegrade {
                    turn,
                    step,
                    message: degrade.message,
                    message_id: &degrade.message_id,
                    code: degrade.code,
                    reason: &degrade.reason,
                    provider: &target.provider,
                    model: &target.model,
                })]);
                self.update(Update::Degraded(degrade.clone()));
            }
        }
    }
}

impl From<DerivedMessage> for HistoryMessage {
    fn from(derived: DerivedMessage) -> Self {
        Self { message: derived.message, interrupted: derived.interrupted }
    }
}

/// A message of a foreign log may have no id; then its position stands for it.
fn degrade_key(message_id: &str, position: usize, reason: &str, provider: &str) -> DegradeKey {
    let message = if message_id.is_empty() { format!("#{position}") } else { message_id.to_owned() };
    (message, reason.to_owned(), provider.to_owned())
}

/// What the routes of a session are spared, since they refused it. Routes that refused nothing are left out.
#[must_use]
pub fn spared_routes<'a>(events: impl IntoIterator<Item = &'a Event>) -> HashMap<String, Spared> {
    Past::of(events).spared
}

/// The model that a session used last, as `provider/model`.
#[must_use]
pub fn last_model<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<String> {
    Past::of(events).last_model
}

/// A turn number from here on is damage: nobody counts that far, and JavaScript could not read what follows it.
const GREATEST_TURN: u64 = 1 << 52;

/// What a log says beyond its messages.
#[derive(Default)]
struct Past {
    turn: u64,
    titled: bool,
    header: Option<Raw>,
    last_model: Option<String>,
    reported: HashSet<DegradeKey>,
    spared: HashMap<String, Spared>,
}

impl Past {
    fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut past = Self::default();
        for event in events {
            past.take(event);
        }
        past
    }

    fn take(&mut self, event: &Event) {
        // An event of another writer may hold anything; what cannot be read says nothing.
        let data = || json::from_str::<Object>(event.data.get()).unwrap_or_default();
        match &*event.kind {
            kind::TURN_START => {
                let turn = data().take_as("turn").filter(|turn| *turn < GREATEST_TURN);
                self.turn = self.turn.max(turn.unwrap_or(0));
            }
            kind::SESSION_TITLE => self.titled = true,
            kind::REQUEST_HEADER => {
                self.header = data().take("header");
                let header = self.header.as_ref().and_then(|header| json::from_str::<Object>(header.get()).ok());
                let config = header.and_then(|mut header| header.take_as::<Object>("config"));
                self.last_model = config
                    .and_then(|config| Some(format!("{}/{}", config.get_str("provider")?, config.get_str("model")?)));
            }
            kind::LLM_DEGRADE => {
                let mut data = data();
                let position = data.take_as("message").unwrap_or(0);
                let text = |key: &str| data.get_str(key).unwrap_or_default();
                let key = degrade_key(&text("messageId"), position, &text("reason"), &text("provider"));
                self.reported.insert(key);
            }
            kind::LLM_RETRY => {
                let mut data = data();
                let metadata = (data.get_str("replay").as_deref() == Some(LlmRetry::FOREIGN)).then_some(Rung::Metadata);
                let images = data.take_as("imagesFrom").map(|from| Rung::Images { from });
                if let Some(provider) = data.get_str("provider") {
                    for rung in metadata.into_iter().chain(images) {
                        self.spared.entry(provider.clone()).or_default().add(rung);
                    }
                }
            }
            // What stands in place of others moves those behind it, and the refused images may be gone: they are sent,
            // and if they are refused again, that is remembered again.
            _ if matches!(SurfaceOp::of(event), SurfaceOp::Replace { .. }) => {
                self.spared.values_mut().for_each(|spared| spared.images_from = 0);
                self.spared.retain(|_, spared| !spared.is_nothing());
            }
            // The set of kinds is open, and most of them are the history's concern.
            _ => {}
        }
    }
}

/// Hands durable events on as updates.
fn durable(updates: &UpdateSink) -> OnDurable {
    let updates = Arc::clone(updates);
    Box::new(move |events| updates(Update::Durable(events.clone())))
}

/// A new message id.
pub(super) fn message_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
