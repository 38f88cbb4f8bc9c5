//! What the protocol needs of the agent.
//!
//! The seam exists for the tests of this module, which drive the protocol with a session that does exactly what a test
//! says. The host has one implementation: its composition.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use dsh_plugin_api::vocab::{Block, Message};
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, Composition, Session, SessionOptions, TurnEnd, UpdateSink};
use crate::store::StoreError;

/// Opens sessions.
pub(super) trait Backend: Send + Sync + 'static {
    /// An open session.
    type Session: Conversation;

    /// As [`Session::create`].
    fn create(
        &self,
        cwd: PathBuf,
        updates: UpdateSink,
    ) -> impl Future<Output = Result<Self::Session, AgentError>> + Send;

    /// As [`Session::resume`].
    fn resume(
        &self,
        id: &str,
        cwd: PathBuf,
        updates: UpdateSink,
    ) -> impl Future<Output = Result<Self::Session, OpenError>> + Send;
}

/// A session that takes prompts.
pub(super) trait Conversation: Send + 'static {
    /// As [`Session::id`].
    fn id(&self) -> &str;

    /// As [`Session::messages`].
    fn messages(&self) -> Vec<Message>;

    /// As [`Session::prompt`].
    fn prompt(
        &mut self,
        content: Vec<Block>,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<TurnEnd, AgentError>> + Send;
}

/// A session that cannot be opened again.
#[derive(Debug)]
pub(super) enum OpenError {
    /// There is none of that id.
    Unknown,
    /// It is there.
    Agent(AgentError),
}

impl Backend for Arc<Composition> {
    type Session = Session;

    async fn create(&self, cwd: PathBuf, updates: UpdateSink) -> Result<Session, AgentError> {
        Session::create(self.clone(), SessionOptions { model: None, cwd }, updates).await
    }

    async fn resume(&self, id: &str, cwd: PathBuf, updates: UpdateSink) -> Result<Session, OpenError> {
        Session::resume(self.clone(), id, SessionOptions { model: None, cwd }, updates).await.map_err(|error| {
            match error {
                AgentError::Store(StoreError::NotFound { .. } | StoreError::InvalidId(_)) => OpenError::Unknown,
                error => OpenError::Agent(error),
            }
        })
    }
}

impl Conversation for Session {
    fn id(&self) -> &str {
        self.id()
    }

    fn messages(&self) -> Vec<Message> {
        self.messages()
    }

    fn prompt(
        &mut self,
        content: Vec<Block>,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<TurnEnd, AgentError>> + Send {
        self.prompt(content, cancel)
    }
}
