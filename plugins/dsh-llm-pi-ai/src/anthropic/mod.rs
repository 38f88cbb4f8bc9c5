//! The wire `anthropic-messages`.

mod decode;
mod encode;
mod replay;

use dsh_plugin_api::vocab::{Failure, Request, Target};
use dsh_plugin_api::{Encoded, ResponseHead};

pub(crate) use decode::Decoder;
pub(crate) use replay::Turn;

use crate::route::Route;
use dsh_plugin_api::kit::head::HeadFacts;

/// See `Adapter::encode`.
pub(crate) fn encode(route: &Route, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
    encode::encode(route, request, history, to)
}

/// See `Adapter::decoder`.
pub(crate) fn decoder(_: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    Ok(decode::decoder(HeadFacts::read(head)?, to))
}
