//! The wire `mistral-conversations`: Mistral's Chat Completions.
//!
//! It answers like the completions wire, thinking parts in the content among them, and is decoded by the same code.
//! `encode` makes the request from `messages`; `replay` is what a message carries: nothing but its parts.

mod encode;
mod messages;
mod replay;
#[cfg(test)]
mod tests;

use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::vocab::{Failure, Request, Target};
use dsh_plugin_api::{Encoded, ResponseHead};

pub(crate) use crate::completions::Decoder;
pub(crate) use replay::Turn;

use crate::completions;
use crate::config::ApiName;
use crate::route::Route;
use encode::Destination;

/// The URL of a path of the API, given without its version, which the base may name as it does on other wires.
pub(crate) fn url(endpoint: &Endpoint, path: &str) -> String {
    let version = if endpoint.path_ends_with("/v1") { "" } else { "/v1" };
    endpoint.url(&format!("{version}{path}"))
}

/// See `Adapter::encode`.
pub(crate) fn encode(route: &Route, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
    let model = route.model(&to.model);
    let destination =
        Destination { endpoint: &route.endpoint, credential: route.credential(), model: &model, target: to };
    encode::encode(request, history, &destination)
}

/// See `Adapter::decoder`. The last event of a stream tells the usage without being asked.
pub(crate) fn decoder(_: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    Ok(completions::decoder_of(ApiName::MistralConversations, HeadFacts::read(head)?, to, true))
}
