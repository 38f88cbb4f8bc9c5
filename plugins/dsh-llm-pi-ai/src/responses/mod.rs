//! The wire `openai-responses`: OpenAI's Responses and the servers that speak it.
//!
//! `encode` makes the request from `messages`, `decode` reads the response into `blocks`, `replay` is the metadata that
//! a message carries; `dialect` is what a server does in its own way.
//!
//! Nothing is stored at the server: every request holds the whole history, and reasoning goes back as the encrypted
//! item that it came as.

mod blocks;
mod decode;
mod dialect;
mod encode;
mod item;
mod messages;
mod replay;
#[cfg(test)]
mod tests;
mod thinking;

use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::vocab::{Failure, Request, Target};
use dsh_plugin_api::{Encoded, ResponseHead};

pub(crate) use decode::Decoder;
pub(crate) use replay::Turn;

use crate::route::Route;
use dialect::Dialect;
use encode::Destination;

/// See `Adapter::encode`.
pub(crate) fn encode(route: &Route, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
    let model = route.model(&to.model);
    let destination = Destination {
        endpoint: &route.endpoint,
        credential: route.credential(),
        model: &model,
        dialect: &Dialect::of(route.known_as(), &route.provider, &route.endpoint, &model),
        target: to,
    };
    encode::encode(request, history, &destination)
}

/// See `Adapter::decoder`.
pub(crate) fn decoder(_: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    Ok(decode::decoder(HeadFacts::read(head)?, to))
}
