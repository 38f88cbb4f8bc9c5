//! Opens the response of a prepared request.

use super::transport::Http;
use crate::manifest::Transport;

pub use super::exchange::ResponseStream;
pub use super::prepare::{Degraded, HistoryMessage, Neutral, Prepared, Replay, RequestInput, prepare};

/// Sends requests.
pub struct Client {
    config: Transport,
    http: Http,
}

impl Client {
    /// A client with the manifest's `[transport]`. A system without CA certificates is fine for plain `http`.
    #[must_use]
    pub fn new(config: Transport) -> Self {
        Self { http: Http::new(&config), config }
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Transport {
        &self.config
    }

    /// Starts an attempt. Everything that can fail shows up as the stream's finish chunk.
    #[must_use]
    pub fn open(&self, prepared: &Prepared) -> ResponseStream {
        ResponseStream::open(&self.http, &self.config, prepared)
    }
}
