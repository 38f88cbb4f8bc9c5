//! Asks the server of a route for its models.
//!
//! The adapter describes the request and reads the answer; this sends it, under the same rules for credentials,
//! origins and timeouts as any other request of the route. Nothing is tried twice: a person waits, and can ask again.

use std::sync::Arc;

use dsh_plugin_api::abi::calls::{MODELS_REQUEST, MODELS_RESPONSE, ModelsRequest, ModelsResponse};
use dsh_plugin_api::json::{self, raw};
use dsh_plugin_api::vocab::{Failure, FailureCode, HttpRequest, ModelInfo, ModelsPage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::registry::Route;
use super::transport::{Http, Outgoing, chain, duration, headers_of, redirect_refused, seconds};
use crate::manifest::Transport;

/// What is read of one answer, in bytes after decompression. The longest lists of today have one or two megabytes.
const ANSWER_LIMIT: usize = 32 << 20;
/// How many pages are asked for. An adapter that never ends must not keep a person waiting for ever.
const PAGES: usize = 100;

/// The models that the server of a route lists, in its order.
///
/// # Errors
///
/// `UNSUPPORTED` where the adapter cannot ask; the failures of any request; what the server refused, with its status;
/// `PROTOCOL` for an answer that is no list of models. None quotes a secret.
pub(super) async fn models(http: &Http, config: &Transport, route: &Arc<Route>) -> Result<Vec<ModelInfo>, Failure> {
    let name = &route.info.name;
    let mut request: HttpRequest = call(route, MODELS_REQUEST, &ModelsRequest { route: name.clone() })?;
    let mut models: Vec<ModelInfo> = Vec::new();
    for _ in 0..PAGES {
        let page = page(http, config, route, &request).await?;
        models.extend(page.models);
        match page.next {
            None => return Ok(models),
            Some(next) => request = next,
        }
    }
    let message = format!("the list of models of route `{name}` has no end: {PAGES} pages were read; check base_url");
    Err(Failure::new(FailureCode::Protocol, message))
}

async fn page(
    http: &Http,
    config: &Transport,
    route: &Arc<Route>,
    request: &HttpRequest,
) -> Result<ModelsPage, Failure> {
    let Outgoing { peer, answer, secrets } = http.send(route, request)?;
    let limit = duration(config.idle_timeout_ms);
    let late = |what: &str| {
        Failure::new(
            FailureCode::Timeout,
            format!("{peer} sent {what} within {}; check base_url, or raise idle_timeout_ms", seconds(limit)),
        )
    };
    let mut response = timeout_at(Instant::now() + limit, answer).await.map_err(|_| late("no answer"))??;
    if let Some(failure) = redirect_refused(&response, &peer) {
        return Err(failure);
    }
    let (status, headers) = (response.status().as_u16(), headers_of(&response));
    let mut body = Vec::new();
    // The whole body, not each piece: a list is short, and a server that drips it byte by byte is broken.
    let deadline = Instant::now() + limit;
    loop {
        let piece = timeout_at(deadline, response.chunk()).await.map_err(|_| late("no whole list of models"))?;
        let piece = piece.map_err(|error| {
            Failure::new(FailureCode::Transport, format!("the connection to {peer} broke: {}", chain(&error)))
        })?;
        let Some(piece) = piece else { break };
        if body.len() + piece.len() > ANSWER_LIMIT {
            let message =
                format!("{peer} sent more than {} MiB as a list of models; check base_url", ANSWER_LIMIT >> 20);
            return Err(Failure::new(FailureCode::Protocol, message));
        }
        body.extend_from_slice(&piece);
    }
    let response = ModelsResponse {
        route: route.info.name.clone(),
        status,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    call(route, MODELS_RESPONSE, &response).map_err(|mut failure: Failure| {
        for (reference, secret) in &secrets {
            failure.message = secret.redact(&failure.message, reference);
        }
        failure
    })
}

fn call<T: DeserializeOwned>(route: &Route, operation: &str, argument: &impl Serialize) -> Result<T, Failure> {
    let answer = route.handle.call(operation, &raw(argument))?;
    json::from_str(answer.get()).map_err(|error| {
        let adapter = &route.adapter;
        let message = format!("the adapter `{adapter}` answered `{operation}` with what is no answer: {error}");
        Failure::new(FailureCode::Protocol, message)
    })
}
