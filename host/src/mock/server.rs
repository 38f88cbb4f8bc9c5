//! Accepts connections, chooses answers, sends them.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::http::{Client, Connection, ReadError, Request};
use super::plan::Plan;
use super::record::RequestRecord;
use super::script::{Close, Entry, Script};
use super::wire::Wire;

/// What the connections share.
#[derive(Debug)]
pub(super) struct Shared {
    script: Script,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used: Vec<bool>,
    records: Vec<RequestRecord>,
    log: Option<File>,
}

impl Shared {
    pub fn new(script: Script, log: Option<File>) -> Self {
        let used = vec![false; script.responses.len()];
        Self { script, state: Mutex::new(State { used, records: Vec::new(), log }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn requests(&self) -> Vec<RequestRecord> {
        self.state().records.clone()
    }

    /// Records a request and decides how it is answered. Both happen under one lock, so that the order of the log is
    /// the order in which answers are used up.
    fn answer(&self, request: &Request) -> Plan {
        let mut state = self.state();
        let chosen = self.choose(&state.used, request);
        if let Some(position) = chosen {
            state.used[position] = true;
        }
        let number = state.records.len() + 1;
        let record = RequestRecord::new(number, request, chosen);
        let written = state.log.as_mut().map_or(Ok(()), |log| {
            let mut line = dsh_plugin_api::json::raw(&record).get().to_owned();
            line.push('\n');
            log.write_all(line.as_bytes())
        });
        state.records.push(record);
        drop(state);
        if let Err(e) = written {
            return Plan::json(500, error_body(&format!("the request log cannot be written: {e}")), request.client());
        }
        let refused = |message: String| Plan::json(400, error_body(&message), request.client());
        match chosen {
            Some(position) => Plan::new(&self.script.responses[position], request, number).unwrap_or_else(refused),
            None if is_models(request) => Plan::json(200, Wire::models(&self.script.models), request.client()),
            None => refused(format!(
                "the script has no answer for request {number}, {} {}: it has {}, and those that match are used up",
                request.method,
                request.path,
                plural(self.script.responses.len())
            )),
        }
    }

    /// The first answer that is left and is for this request.
    fn choose(&self, used: &[bool], request: &Request) -> Option<usize> {
        let body = String::from_utf8_lossy(&request.body);
        let is_for = |entry: &Entry| match &entry.matches {
            None => request.method == "POST",
            Some(rule) => rule.holds(&request.path, &body, |name| request.header(name).map(str::to_owned)),
        };
        let mut entries = self.script.responses.iter().zip(used);
        entries.position(|(entry, used)| (entry.repeat || !used) && is_for(entry))
    }
}

fn plural(count: usize) -> String {
    if count == 1 { "1 response".to_owned() } else { format!("{count} responses") }
}

fn is_models(request: &Request) -> bool {
    let path = request.path.split('?').next().unwrap_or_default();
    request.method == "GET" && path.ends_with("/models")
}

/// The error object that most providers send.
pub(super) fn error_body(message: &str) -> String {
    serde_json::json!({ "error": { "message": message, "type": "mock_provider", "code": null } }).to_string()
}

/// Serves until it is aborted; the connections end with it.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(connections.spawn(serve(stream, Arc::clone(&shared)))),
            Err(error) => {
                tracing::warn!(%error, "the mock provider cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Pieces must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::warn!(%error, "pieces of answers may be sent together");
    }
    let mut connection = Connection::new(stream);
    loop {
        let plan = match connection.request().await {
            Ok(request) => shared.answer(&request),
            Err(ReadError::Bad(reason)) => Plan::json(400, error_body(&reason), Client::UNKNOWN),
            Err(ReadError::Closed | ReadError::Io(_)) => return,
        };
        match send(&mut connection, &plan).await {
            Ok(After::Next) => {}
            Ok(After::Close) => return connection.close().await,
            Ok(After::Reset) => {
                if let Err(error) = connection.reset() {
                    tracing::warn!(%error, "the connection was closed, not reset");
                }
                return;
            }
            // The client has gone.
            Ok(After::Drop) | Err(_) => return,
        }
    }
}

/// What becomes of the connection.
enum After {
    Next,
    Close,
    Reset,
    Drop,
}

async fn send(connection: &mut Connection, plan: &Plan) -> std::io::Result<After> {
    tokio::time::sleep(plan.head_delay).await;
    if let Some(head) = &plan.head {
        connection.write(head).await?;
    }
    for (position, piece) in plan.pieces.iter().enumerate() {
        if !stall(connection, plan, position).await {
            return Ok(After::Drop);
        }
        if !piece.delay.is_zero() {
            tokio::time::sleep(piece.delay).await;
        }
        connection.write(&piece.bytes).await?;
    }
    if !stall(connection, plan, plan.pieces.len()).await {
        return Ok(After::Drop);
    }
    match plan.close {
        Close::End => {
            connection.write(plan.end).await?;
            Ok(if plan.keep_alive { After::Next } else { After::Close })
        }
        Close::Cut => Ok(After::Close),
        Close::Reset => Ok(After::Reset),
        Close::Hold => {
            connection.gone().await;
            Ok(After::Drop)
        }
    }
}

/// Pauses when this is the place to; false when the client left meanwhile.
async fn stall(connection: &mut Connection, plan: &Plan, sent: usize) -> bool {
    match plan.stall {
        Some((after, length)) if after == sent => match length {
            Some(length) => tokio::time::timeout(length, connection.gone()).await.is_err(),
            None => {
                connection.gone().await;
                false
            }
        },
        _ => true,
    }
}
