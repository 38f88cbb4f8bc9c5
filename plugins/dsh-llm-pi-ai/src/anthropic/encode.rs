//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::vocab::{Failure, FailureCode, Request, Target};

use super::replay::Turn;
use crate::route::Route;

/// Puts the request together.
pub(super) fn encode(_: &Route, _: &Request, _: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
    Err(Failure::new(FailureCode::Unsupported, format!("{to}: this version does not serve anthropic-messages yet")))
}
