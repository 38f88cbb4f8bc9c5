//! A scripted provider on loopback: exact bytes at exact times, for work without a key.
//!
//! It speaks HTTP/1.1 of its own, so that a pause, a cut or a reset falls between the very chunks that the script
//! names. Answers are given as raw bytes or described (text, reasoning, tool calls, finish), in which case the wire
//! that the request uses spells them. Every request is recorded, credentials redacted. `docs/mock-provider.md` is the
//! reference of the script.
//!
//! It listens on 127.0.0.1 only and promises nothing about hostile clients.

mod http;
mod plan;
mod record;
mod script;
mod server;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use record::RequestRecord;
pub use script::{
    Body, Close, Described, Entry, ErrorKind, Finish, Framing, Match, RawChunk, Script, ScriptError, ScriptedError,
    ToolCall, UsageCounts,
};

/// A mock provider that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum MockError {
    /// The port.
    #[error("cannot listen on 127.0.0.1:{port}: {source}")]
    Listen {
        /// The port that was asked for; 0 stands for a free one.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
    /// The request log.
    #[error("cannot write the request log {}: {source}", path.display())]
    Log {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A running provider. Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct MockProvider {
    url: String,
    shared: Arc<server::Shared>,
    task: JoinHandle<()>,
}

impl MockProvider {
    /// Starts serving `script` on a port of 127.0.0.1; 0 takes a free one. Requests go to `log` as JSON lines, which
    /// replaces what the file held; the script's own `log` is used when there is none. It runs on the current tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// The port is taken, or the log cannot be written.
    pub async fn start(script: Script, log: Option<&Path>, port: u16) -> Result<Self, MockError> {
        let log = log.map(Path::to_owned).or_else(|| script.log.clone());
        let listen = |source| MockError::Listen { port, source };
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let log = match log {
            None => None,
            Some(path) => Some(std::fs::File::create(&path).map_err(|source| MockError::Log { path, source })?),
        };
        let shared = Arc::new(server::Shared::new(script, log));
        let task = tokio::spawn(server::run(listener, Arc::clone(&shared)));
        Ok(Self { url: format!("http://{address}"), shared, task })
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end. A path in front of a wire's own is accepted.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.shared.requests()
    }
}

impl Drop for MockProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
