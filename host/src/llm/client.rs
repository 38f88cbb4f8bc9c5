//! Opens the response of a prepared request.

use std::sync::Arc;

use dsh_plugin_api::vocab::{Failure, ModelInfo};

use super::discovery;
use super::registry::Route;
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

    /// The models that the server of a route lists, in its order.
    ///
    /// # Errors
    ///
    /// `UNSUPPORTED` where the adapter cannot ask; the failures of any request; what the server refused, with its
    /// status; `PROTOCOL` for an answer that is no list of models.
    pub async fn models(&self, route: &Arc<Route>) -> Result<Vec<ModelInfo>, Failure> {
        discovery::models(&self.http, &self.config, route).await
    }
}
