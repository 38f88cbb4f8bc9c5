//! The handlers: what is answered at once, and what goes to a session's task.
//!
//! Handlers run in the connection's dispatch loop, one after the other, and must not wait for anything. What takes time
//! runs in a task of its own, and each session's commands keep the client's order.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, CancelNotification, Implementation, InitializeResponse, LoadSessionRequest, LoadSessionResponse,
    McpServer, NewSessionRequest, NewSessionResponse, PromptCapabilities, PromptRequest, PromptResponse,
};
use agent_client_protocol::v1::{ConnectionTo, Responder};
use agent_client_protocol::{Client, Error, Result};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backend::{Backend, Conversation, OpenError};
use super::convert;
use super::outbox::Outbox;
use super::session::{Actor, Command, update_channel};

/// The open sessions of one connection.
pub(super) struct Sessions<B> {
    backend: B,
    window: Arc<Semaphore>,
    live: Mutex<HashMap<String, UnboundedSender<Command>>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// What this agent is and can do.
pub(super) fn initialize(version: ProtocolVersion) -> InitializeResponse {
    InitializeResponse::new(version)
        .agent_info(Implementation::new("dsh", env!("CARGO_PKG_VERSION")))
        .agent_capabilities(
            AgentCapabilities::new()
                .load_session(true)
                .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true)),
        )
}

impl<B: Backend> Sessions<B> {
    pub(super) fn new(backend: B, window: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self {
            backend,
            window,
            live: Mutex::default(),
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        })
    }

    /// `session/new`: answered when the session is durable.
    pub(super) fn create(
        self: &Arc<Self>,
        request: NewSessionRequest,
        responder: Responder<NewSessionResponse>,
        connection: ConnectionTo<Client>,
    ) -> Result<()> {
        convert::check_cwd(&request.cwd)?;
        report_mcp_servers(&request.mcp_servers);
        let sessions = Arc::clone(self);
        self.tasks.spawn(async move {
            let (sink, updates) = update_channel();
            let session = match sessions.backend.create(request.cwd, sink).await {
                Ok(session) => session,
                Err(error) => return answered(responder.respond_with_error(convert::agent_error(&error))),
            };
            let id = session.id().to_owned();
            let (sender, commands) = unbounded_channel();
            sessions.live().insert(id.clone(), sender);
            let outbox = Outbox::new(&id, connection, Arc::clone(&sessions.window));
            answered(responder.respond(NewSessionResponse::new(id)));
            Actor::new(session, commands, updates, outbox).run(sessions.shutdown.clone()).await;
        });
        Ok(())
    }

    /// `session/load`: a session that is open here is attached to, any other is opened. Commands that arrive before it
    /// is open wait for it.
    pub(super) fn load(
        self: &Arc<Self>,
        request: LoadSessionRequest,
        responder: Responder<LoadSessionResponse>,
        connection: ConnectionTo<Client>,
    ) -> Result<()> {
        convert::check_cwd(&request.cwd)?;
        report_mcp_servers(&request.mcp_servers);
        let id = request.session_id.0.to_string();
        // The store also opens paths; a client names sessions, not files.
        if id.is_empty() || id.contains(['/', '\\', '\0']) {
            return Err(convert::unknown_session(&id, ""));
        }
        let mut live = self.live();
        let command = match live.get(&id) {
            None => Command::Load(responder),
            Some(sender) => match sender.send(Command::Load(responder)) {
                Ok(()) => return Ok(()),
                // Its task is gone, and with it the lock.
                Err(unsent) => unsent.0,
            },
        };
        let (sender, commands) = unbounded_channel();
        if sender.send(command).is_ok() {
            live.insert(id.clone(), sender.clone());
            self.tasks.spawn(Arc::clone(self).open(id, request.cwd, sender, commands, connection));
        }
        Ok(())
    }

    /// The task of a session that is opened again.
    async fn open(
        self: Arc<Self>,
        id: String,
        cwd: PathBuf,
        sender: UnboundedSender<Command>,
        mut commands: UnboundedReceiver<Command>,
        connection: ConnectionTo<Client>,
    ) {
        let (sink, updates) = update_channel();
        match self.backend.resume(&id, cwd, sink).await {
            Ok(session) => {
                drop(sender);
                let outbox = Outbox::new(&id, connection, Arc::clone(&self.window));
                Actor::new(session, commands, updates, outbox).run(self.shutdown.clone()).await;
            }
            Err(error) => {
                let mut live = self.live();
                if live.get(&id).is_some_and(|registered| registered.same_channel(&sender)) {
                    live.remove(&id);
                }
                drop(live);
                let error = match error {
                    OpenError::Unknown => convert::unknown_session(&id, ""),
                    OpenError::Agent(error) => convert::agent_error(&error),
                };
                commands.close();
                while let Ok(command) = commands.try_recv() {
                    command.refuse(error.clone());
                }
            }
        }
    }

    /// `session/prompt`: answered when the turn has ended.
    pub(super) fn prompt(&self, request: PromptRequest, responder: Responder<PromptResponse>) -> Result<()> {
        let content = convert::prompt(request.prompt)?;
        let id = &*request.session_id.0;
        let command = Command::Prompt { content, responder };
        let unsent = match self.live().get(id) {
            None => Some(command),
            Some(sender) => sender.send(command).err().map(|unsent| unsent.0),
        };
        if let Some(command) = unsent {
            command.refuse(convert::unknown_session(id, " open here; create or load it first"));
        }
        Ok(())
    }

    /// `session/cancel`
    pub(super) fn cancel(&self, notification: &CancelNotification) {
        let sent = self.live().get(&*notification.session_id.0).is_some_and(|it| it.send(Command::Cancel).is_ok());
        if !sent {
            tracing::debug!("session/cancel for {}, which is not open here", notification.session_id);
        }
    }

    /// Cancels what runs and waits until every session is closed, its work durable.
    pub(super) async fn close(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, UnboundedSender<Command>>> {
        // Every change of the map is a single call: a panic elsewhere cannot leave it half done.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report_mcp_servers(servers: &[McpServer]) {
    if !servers.is_empty() {
        tracing::warn!(
            "the client offers {} MCP server(s); this version does not connect to them, their tools are missing",
            servers.len()
        );
    }
}

fn answered(sent: std::result::Result<(), Error>) {
    if let Err(error) = sent {
        tracing::debug!("the connection took no more: {error:?}");
    }
}
