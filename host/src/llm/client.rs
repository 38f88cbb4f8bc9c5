//! Prepares a request and opens its response.

use std::sync::Arc;

use dsh_plugin_api::vocab::{Exchange, Failure, Repair, Request, Target};
use serde::Serialize;

use super::registry::Route;
use super::transport::Http;
use crate::manifest::Transport;

pub use super::exchange::ResponseStream;

/// How replay metadata is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// Native where it can be.
    Routed,
    /// Every message foreign: the last rung, after a refusal.
    AllForeign,
}

/// A message that went out without its metadata because the metadata cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Degraded {
    /// 0-based position in the input messages.
    pub message: usize,
    /// Id of the message.
    #[serde(skip)]
    pub message_id: String,
    /// `INVALID_REPLAY_STATE`
    pub code: &'static str,
    /// Why.
    pub reason: String,
}

/// A message that went out foreign for a normal reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neutral {
    /// 0-based position in the input messages.
    pub message: usize,
    /// Why.
    pub reason: String,
}

/// A request that is ready to go out.
pub struct Prepared {
    /// The route it goes to.
    pub route: Arc<Route>,
    /// The target.
    pub target: Target,
    /// What the adapter made of it.
    pub exchange: Exchange,
    /// Messages whose metadata could not be used.
    pub degraded: Vec<Degraded>,
    /// Messages that were sent foreign for a normal reason.
    pub neutral: Vec<Neutral>,
    /// Changes of the request view and of the adapter, in order of message.
    pub repairs: Vec<Repair>,
    /// How many messages went out native.
    pub native: usize,
}

/// Request view, degrade routing (with the adapter's hook), conversion. Nothing is sent and no secret is read.
///
/// # Errors
///
/// The adapter's failure.
pub fn prepare(route: &Arc<Route>, target: &Target, request: &Request, replay: Replay) -> Result<Prepared, Failure> {
    let _ = (route, target, request, replay);
    Err(Failure::new(dsh_plugin_api::vocab::FailureCode::Unsupported, "stub"))
}

/// Sends requests.
pub struct Client {
    config: Transport,
    http: Http,
}

impl Client {
    /// A client with the manifest's `[transport]`.
    ///
    /// # Errors
    ///
    /// When TLS cannot be set up at all. A system without CA certificates is fine for plain `http`.
    pub fn new(config: Transport) -> Result<Self, Failure> {
        Ok(Self { http: Http::new(&config)?, config })
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
