//! The Agent Client Protocol, version 1, on a pair of byte streams: `dsh acp`.
//!
//! Served: `initialize`, `session/new`, `session/load`, `session/prompt`, `session/cancel`, `$/cancel_request` for a
//! prompt. Every other request is answered with `-32601`, every other notification is ignored.
//!
//! Promised:
//! - A session is durable before its id is told, and that id is the id of the log.
//! - `session/load` replays the whole conversation before its answer. A session that is open in this process is attached
//!   to: its running turn goes on, is shown so far, and can still be cancelled.
//! - Updates come in the order of the conversation and before the answer to their prompt. A client that reads slowly
//!   gets the same text in fewer pieces.
//! - `session/cancel` answers the prompt with `cancelled` within five seconds, and never touches a later prompt.
//! - At the end of the input running turns are cancelled and made durable, and [`serve`] returns.
//!
//! Refused: a second prompt while one runs (`-32600`), audio (`-32602`), a session that another process writes (the
//! error names its process id). MCP servers of the client are accepted and reported as not served.
//!
//! `agent` holds the handlers, `session` the task of one session, `outbox` and `transport` the way out with its
//! back-pressure, `updates` and `convert` the translation.

mod agent;
mod backend;
mod convert;
mod outbox;
mod session;
mod transport;
mod updates;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    CancelNotification, InitializeRequest, LoadSessionRequest, NewSessionRequest, PromptRequest,
};
use agent_client_protocol::{Agent, Channel, on_receive_notification, on_receive_request};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::agent::Composition;
use backend::Backend;

/// How long sessions may take to close. Their turns were cancelled; one that ignores that is left behind, and its log
/// recovers when it is opened again.
const CLOSE_GRACE: Duration = Duration::from_secs(8);

/// How long the last lines may take to be read by the client.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// The connection failed in a way that is no end of input.
#[derive(Debug, thiserror::Error)]
#[error("the ACP connection failed: {0}")]
pub struct ServeError(String);

/// Serves one client until the input ends, nothing can be written any more, or `stop` is done.
///
/// `output` gets nothing but protocol lines.
///
/// # Errors
///
/// [`ServeError`] when the protocol library gives up; sessions are closed as at the end of the input.
pub async fn serve(
    composition: Arc<Composition>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_backend(composition, input, output, stop).await
}

async fn serve_backend<B: Backend>(
    backend: B,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (ours, theirs) = Channel::duplex();
    let window = transport::window();
    let sessions = agent::Sessions::new(backend, Arc::clone(&window));
    let [new, load, prompt, cancel] = std::array::from_fn(|_| Arc::clone(&sessions));
    let connection = Agent
        .v1()
        .name("dsh")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _| {
                responder.respond(agent::initialize(request.protocol_version))
            },
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: NewSessionRequest, responder, connection| new.create(request, responder, connection),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: LoadSessionRequest, responder, connection| load.load(request, responder, connection),
            on_receive_request!(),
        )
        .on_receive_request(
            async move |request: PromptRequest, responder, _| prompt.prompt(request, responder),
            on_receive_request!(),
        )
        .on_receive_notification(
            async move |notification: CancelNotification, _| {
                cancel.cancel(&notification);
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_with(theirs, async |connection| {
            tokio::select! {
                () = connection.incoming_closed() => {}
                () = stop => {}
            }
            close(&sessions).await;
            Ok(())
        });
    let pump = transport::pump(ours, input, output, window);
    tokio::pin!(connection, pump);
    // The connection ends the pump by dropping its channel; the pump ends the connection by closing its input.
    let result = tokio::select! {
        result = &mut connection => {
            if tokio::time::timeout(DRAIN_GRACE, pump).await.is_err() {
                tracing::warn!("the client did not read the last lines");
            }
            result
        }
        () = &mut pump => connection.await,
    };
    let Err(error) = result else { return Ok(()) };
    // The connection never came to close its sessions; nothing may go on running, and nothing may be lost.
    close(&sessions).await;
    Err(ServeError(error.to_string()))
}

async fn close<B: Backend>(sessions: &agent::Sessions<B>) {
    if tokio::time::timeout(CLOSE_GRACE, sessions.close()).await.is_err() {
        tracing::warn!("some sessions did not close in {} s and are left as they are", CLOSE_GRACE.as_secs());
    }
}
