//! The wire `google-generative-ai`: Google's Generative Language API, as Gemini and Gemma speak it.
//!
//! `encode` makes the request from `messages`, `decode` reads the response into `blocks`, `replay` is the metadata that
//! a message carries; `family` is what generations of models do differently, `thinking` how thinking is
//! switched, `tools` how tools are described.

mod blocks;
mod decode;
mod encode;
mod family;
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
use encode::Destination;
use family::Family;

/// See `Adapter::encode`.
pub(crate) fn encode(route: &Route, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
    let model = route.model(&to.model);
    let destination = Destination {
        endpoint: &route.endpoint,
        credential: route.credential(),
        model: &model,
        family: &Family::of(&to.model),
        target: to,
    };
    encode::encode(request, history, &destination)
}

/// See `Adapter::decoder`.
pub(crate) fn decoder(_: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    Ok(decode::decoder(HeadFacts::read(head)?, to))
}
