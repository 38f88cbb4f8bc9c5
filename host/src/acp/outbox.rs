//! What waits to be sent to the client for one session, in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{SessionId, SessionNotification, SessionUpdate};
use agent_client_protocol::{Client, Error};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use super::updates::{append, weight};

/// Answers a request.
pub(super) type Answer = Box<dyn FnOnce() -> Result<(), Error> + Send>;

enum Item {
    /// Part of the running turn.
    Live(SessionUpdate),
    /// Part of a replay: sent as it is, never joined with another.
    Replayed(SessionUpdate),
    Answer(Answer),
}

/// How much of a turn may wait for its client, in bytes. Beyond it the turn waits too, and with it the provider.
const BACKLOG: usize = 4 << 20;

/// Updates and answers of one session. An answer is sent after every update that was queued before it.
pub(super) struct Outbox {
    session: SessionId,
    connection: ConnectionTo<Client>,
    window: PollSemaphore,
    queue: VecDeque<Item>,
    /// Weight of the updates of the running turn that wait.
    waiting: usize,
}

impl Outbox {
    pub(super) fn new(session: &str, connection: ConnectionTo<Client>, window: Arc<Semaphore>) -> Self {
        let session = SessionId::new(session);
        Self { session, connection, window: PollSemaphore::new(window), queue: VecDeque::new(), waiting: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// True when the client is so far behind that the running turn has to wait for it.
    pub(super) const fn is_full(&self) -> bool {
        self.waiting > BACKLOG
    }

    /// Queues an update of the running turn; text joins text of the same kind that still waits.
    pub(super) fn push(&mut self, update: SessionUpdate) {
        self.waiting += weight(&update);
        let last = match self.queue.back_mut() {
            Some(Item::Live(last)) => Some(last),
            _ => None,
        };
        if let Some(update) = append(last, update) {
            self.queue.push_back(Item::Live(update));
        }
    }

    /// Queues a replay in place of the updates of the running turn that still wait: it shows all of them. Updates that
    /// an answer waits behind stay, so that no answer comes before what belongs to it.
    pub(super) fn replay(&mut self, updates: impl IntoIterator<Item = SessionUpdate>) {
        while let Some(Item::Live(update)) = self.queue.back() {
            self.waiting = self.waiting.saturating_sub(weight(update));
            self.queue.pop_back();
        }
        self.queue.extend(updates.into_iter().map(Item::Replayed));
    }

    /// Queues an answer.
    pub(super) fn answer(&mut self, answer: Answer) {
        self.queue.push_back(Item::Answer(answer));
    }

    /// Waits until the next item may go out, and sends it. Cancel safe: nothing is sent by a call that is dropped.
    pub(super) async fn send_next(&mut self) {
        if matches!(self.queue.front(), Some(Item::Live(_) | Item::Replayed(_))) {
            match poll_fn(|cx| self.window.poll_acquire(cx)).await {
                Some(permit) => permit.forget(),
                // Nothing can be written any more: the updates are void, the answers fail by themselves.
                None => return self.drop_updates(),
            }
        }
        let sent = match self.queue.pop_front() {
            None => return,
            Some(Item::Answer(answer)) => answer(),
            Some(Item::Live(update)) => {
                self.waiting = self.waiting.saturating_sub(weight(&update));
                self.send(update)
            }
            Some(Item::Replayed(update)) => self.send(update),
        };
        if let Err(error) = sent {
            tracing::debug!("the connection took no more for session {}: {error:?}", self.session);
        }
    }

    fn send(&self, update: SessionUpdate) -> Result<(), Error> {
        self.connection.send_notification(SessionNotification::new(self.session.clone(), update))
    }

    /// Nobody waits for updates any more.
    pub(super) fn drop_updates(&mut self) {
        self.waiting = 0;
        self.queue.retain(|item| matches!(item, Item::Answer(_)));
    }
}
