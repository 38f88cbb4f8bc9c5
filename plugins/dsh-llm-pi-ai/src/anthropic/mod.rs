//! The wire `anthropic-messages`: Anthropic's Messages API and the servers that speak it.
//!
//! `encode` makes the request from `messages` and `tools`, `decode` reads the response into `blocks`, `replay` is the
//! metadata that a message carries; `thinking` is how thinking is switched, `dialect` what a server does in its own way.

mod blocks;
mod decode;
mod dialect;
mod encode;
mod messages;
mod replay;
#[cfg(test)]
mod tests;
mod thinking;
mod tools;

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
        dialect: &Dialect::of(&route.provider, &model),
        target: to,
    };
    encode::encode(request, history, &destination)
}

/// See `Adapter::decoder`.
pub(crate) fn decoder(_: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    Ok(decode::decoder(HeadFacts::read(head)?, to))
}
