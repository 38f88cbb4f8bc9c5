//! One task per open session. It owns the session, so there is one writer and one prompt at a time by construction.
//!
//! Everything that concerns the session arrives as a [`Command`], in the order in which the client sent it; everything
//! that the client gets to see leaves through one [`Outbox`], so an answer never overtakes an update. The task keeps
//! listening while a turn runs: that is how a cancel reaches the turn, and how a client that loads the session again is
//! shown the turn so far and then the rest of it.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{LoadSessionResponse, PromptResponse, SessionUpdate, StopReason};
use agent_client_protocol::{Error, RequestCancellation};
use dsh_plugin_api::vocab::{Block, Message};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backend::Conversation;
use super::convert;
use super::outbox::Outbox;
use super::updates::{Translator, append, replay, user_message};
use crate::agent::{AgentError, TurnEnd, Update, UpdateSink};

/// How long a cancelled turn may take to end before its prompt is answered without it. The protocol's clients expect
/// `cancelled` within 5 seconds.
const CANCEL_GRACE: Duration = Duration::from_secs(4);

/// Updates that are taken over at once.
const BATCH: usize = 256;

/// What a client asks of one session.
pub(super) enum Command {
    /// `session/load`: replay, then answer.
    Load(Responder<LoadSessionResponse>),
    /// `session/prompt`
    Prompt {
        /// What the user says.
        content: Vec<Block>,
        /// Gets the stop reason.
        responder: Responder<PromptResponse>,
    },
    /// `session/cancel`
    Cancel,
}

impl Command {
    /// Answers a command that no session will ever take.
    pub(super) fn refuse(self, error: Error) {
        let sent = match self {
            Self::Load(responder) => responder.respond_with_error(error),
            Self::Prompt { responder, .. } => responder.respond_with_error(error),
            Self::Cancel => Ok(()),
        };
        if let Err(error) = sent {
            tracing::debug!("the connection took no more: {error:?}");
        }
    }
}

/// A sink for the agent and the end from which the session's task reads. Durable events are not kept: no client is
/// shown them. A channel has room for 32 of its values from the start, for as long as the session is open: that is why
/// they are boxed.
pub(super) fn update_channel() -> (UpdateSink, UnboundedReceiver<Box<Update>>) {
    let (sender, receiver) = unbounded_channel();
    let sink: UpdateSink = Arc::new(move |update| {
        if !matches!(update, Update::Durable(_)) {
            // A closed channel means that the session is being closed: nobody is left to be shown anything.
            let _ = sender.send(Box::new(update));
        }
    });
    (sink, receiver)
}

/// A session and its clients' commands.
pub(super) struct Actor<S> {
    /// `None` while a turn has it.
    session: Option<S>,
    turn: Option<Turn<S>>,
    commands: UnboundedReceiver<Command>,
    updates: UnboundedReceiver<Box<Update>>,
    outbox: Outbox,
    translator: Translator,
    /// The session's log could not be written: the session is closed, and has to be loaded again.
    lost: bool,
}

/// Gives the session back with the result of its prompt.
type Work<S> = Pin<Box<dyn Future<Output = Box<Ended<S>>> + Send>>;

type Ended<S> = (S, Result<TurnEnd, AgentError>);

/// A turn on its way.
struct Turn<S> {
    work: Work<S>,
    cancel: CancellationToken,
    /// `$/cancel_request` for the prompt.
    request: RequestCancellation,
    /// `None` once the prompt is answered.
    responder: Option<Responder<PromptResponse>>,
    /// When a cancelled prompt is answered at the latest.
    deadline: Option<Instant>,
    /// The conversation before the turn.
    history: Vec<Message>,
    /// What the turn has shown, its prompt first.
    shown: Vec<SessionUpdate>,
}

enum TurnEvent<S> {
    Ended(Box<Ended<S>>),
    CancelRequested,
    Overdue,
}

impl<S: Conversation> Actor<S> {
    pub(super) fn new(
        session: S,
        commands: UnboundedReceiver<Command>,
        updates: UnboundedReceiver<Box<Update>>,
        outbox: Outbox,
    ) -> Self {
        // A session that was opened again goes on with the call ids of its past.
        let (_, translator) = replay(&session.messages());
        Self { session: Some(session), turn: None, commands, updates, outbox, translator, lost: false }
    }

    /// Serves the session until `shutdown`; then the running turn is cancelled, and the task ends with it, its work
    /// durable and the log's lock released. It also ends, once its answers are out, when the log cannot be written: a
    /// client that loads the session again gets what is durable, as soon as the log can be opened.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        let mut batch = Vec::new();
        let mut closing = false;
        while !((closing || self.lost) && self.turn.is_none() && self.outbox.is_empty()) {
            let held = self.outbox.is_full();
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !closing => {
                    closing = true;
                    self.cancel();
                    self.outbox.drop_updates();
                }
                Some(command) = self.commands.recv() => self.command(command, closing),
                1.. = self.updates.recv_many(&mut batch, BATCH) => {
                    for update in batch.drain(..) {
                        self.show(*update, closing);
                    }
                }
                () = self.outbox.send_next(), if !self.outbox.is_empty() => {}
                event = next(&mut self.turn, held) => match event {
                    TurnEvent::Ended(ended) => self.end(*ended, closing),
                    TurnEvent::CancelRequested => self.cancel(),
                    TurnEvent::Overdue => self.give_up(),
                },
            }
        }
    }

    fn command(&mut self, command: Command, closing: bool) {
        match command {
            command if closing => command.refuse(convert::not_now("the agent is shutting down")),
            command if self.lost => command.refuse(convert::not_now("the session was closed; load it again")),
            Command::Load(responder) => self.load(responder),
            Command::Prompt { content, responder } => self.prompt(content, responder),
            Command::Cancel => self.cancel(),
        }
    }

    /// Shows the client everything so far; what a running turn does from now on follows the answer.
    fn load(&mut self, responder: Responder<LoadSessionResponse>) {
        let updates = match (&self.session, &mut self.turn) {
            (_, Some(turn)) => {
                let (mut updates, _) = replay(&turn.history);
                updates.extend(turn.shown.iter().cloned());
                updates
            }
            (Some(session), None) => replay(&session.messages()).0,
            (None, None) => Vec::new(),
        };
        self.outbox.replay(updates);
        self.outbox.answer(Box::new(move || responder.respond(LoadSessionResponse::new())));
    }

    fn prompt(&mut self, content: Vec<Block>, responder: Responder<PromptResponse>) {
        let Some(mut session) = self.session.take() else {
            let stopping = self.turn.as_ref().is_some_and(|turn| turn.cancel.is_cancelled());
            let message = if stopping {
                "the session is still stopping its last turn; send the prompt again when it has ended"
            } else {
                "the session is busy with another prompt; wait for its end or cancel it"
            };
            let error = convert::not_now(message);
            return self.outbox.answer(Box::new(move || responder.respond_with_error(error)));
        };
        let cancel = CancellationToken::new();
        let history = session.messages();
        let shown = user_message(&content).collect();
        self.translator.turn_boundary();
        self.turn = Some(Turn {
            request: responder.cancellation(),
            responder: Some(responder),
            deadline: None,
            history,
            shown,
            cancel: cancel.clone(),
            work: Box::pin(async move {
                let result = session.prompt(content, &cancel).await;
                Box::new((session, result))
            }),
        });
    }

    /// Asks the running turn to stop. Without one there is nothing to stop, and nothing is remembered.
    fn cancel(&mut self) {
        if let Some(turn) = &mut self.turn
            && !turn.cancel.is_cancelled()
        {
            turn.cancel.cancel();
            turn.deadline = Some(Instant::now() + CANCEL_GRACE);
        }
    }

    /// Answers the prompt of a turn that was cancelled and does not end. The turn keeps the session until it does.
    fn give_up(&mut self) {
        if let Some(responder) = self.turn.as_mut().and_then(|turn| turn.responder.take()) {
            tracing::warn!("a cancelled turn has not ended in {} s; its prompt is answered", CANCEL_GRACE.as_secs());
            self.outbox.answer(Box::new(move || responder.respond(PromptResponse::new(StopReason::Cancelled))));
        }
    }

    fn show(&mut self, update: Update, closing: bool) {
        let Some(update) = self.translator.translate(update) else { return };
        if let Some(turn) = &mut self.turn
            && let Some(update) = append(turn.shown.last_mut(), update.clone())
        {
            turn.shown.push(update);
        }
        if !closing {
            self.outbox.push(update);
        }
    }

    fn end(&mut self, (session, result): Ended<S>, closing: bool) {
        while let Ok(update) = self.updates.try_recv() {
            self.show(*update, closing);
        }
        if matches!(result, Err(AgentError::Store(_))) {
            // Before the answer is out: whoever loads the session then finds it free.
            drop(session);
            self.commands.close();
            self.lost = true;
        } else {
            self.session = Some(session);
        }
        if let Some(responder) = self.turn.take().and_then(|turn| turn.responder) {
            let answer = convert::turn_end(result);
            self.outbox.answer(Box::new(move || responder.respond_with_result(answer)));
        }
    }
}

/// The next thing that happens to the turn; never, when there is none. Cancel safe.
///
/// A turn that is `held` does not go on unless it is to stop: a client that does not read slows down what it is sent.
async fn next<S>(turn: &mut Option<Turn<S>>, held: bool) -> TurnEvent<S> {
    let Some(turn) = turn else { return pending().await };
    let deadline = turn.deadline.filter(|_| turn.responder.is_some());
    tokio::select! {
        biased;
        ended = &mut turn.work, if !held || turn.cancel.is_cancelled() => TurnEvent::Ended(ended),
        () = turn.request.cancelled(), if !turn.cancel.is_cancelled() => TurnEvent::CancelRequested,
        () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => TurnEvent::Overdue,
    }
}
