//! Prepares a request: degrade routing, request view, conversion by the adapter. Nothing is sent, and no secret is
//! read.
//!
//! Every request goes through [`prepare`], whatever it is for. What it returns is all that the transport needs, and
//! all that a person may want to know about the request. Positions in it are always those of the input history.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use dsh_plugin_api::abi::calls::{Convert, Converted};
use dsh_plugin_api::vocab::{Exchange, Failure, FailureCode, HeaderValue, HttpRequest, Repair, Target};
use serde::Serialize;

use super::degrade::{self, Fate};
use super::ladder::Carried;
use super::registry::Route;
use super::view::{View, request_view};
use crate::manifest::places::origin;

pub use super::view::{HistoryMessage, RequestInput};

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
    /// What became of each message of the input.
    pub fates: Vec<Fate>,
    /// How many messages went out native.
    pub native: usize,
    /// Position of the message of each image, ascending.
    pub images: Vec<usize>,
}

/// Degrade routing (with the adapter's hook), request view, conversion.
///
/// When the adapter cannot convert messages natively that it had accepted, they go out foreign, reported as degraded.
///
/// # Errors
///
/// The adapter's failure; `INVALID_REQUEST` when nothing is left to send or the request would leave the route's
/// origin; `INVALID_CREDENTIAL` when it uses a credential that the manifest does not name in that route.
pub fn prepare(route: &Arc<Route>, target: &Target, input: &RequestInput, replay: Replay) -> Result<Prepared, Failure> {
    let mut routed = degrade::route(route, target, &input.history, replay);
    let mut view = request_view(input, &routed.fates);
    if view.request.messages.is_empty() {
        return Err(Failure::new(FailureCode::InvalidRequest, "no message of the history has anything to send"));
    }
    let converted = match convert(route, target, &view) {
        Ok(converted) => converted,
        Err(refused) if view.native() > 0 => {
            let reason = format!("the adapter could not convert it with its metadata: {}", refused.message);
            routed.give_up_native(&input.history, &reason);
            view = request_view(input, &routed.fates);
            // A request that fails either way fails with what the adapter said first.
            convert(route, target, &view).map_err(|_| refused)?
        }
        Err(failure) => return Err(failure),
    };
    if let Exchange::Http(request) = &converted.exchange {
        check_destination(route, request)?;
    }
    degrade::announce(route, target, &routed.degraded);
    let (native, images) = (view.native(), view.images());
    let mut repairs = view.repairs;
    for Repair { message, kind } in converted.repairs {
        match view.positions.get(message) {
            Some(position) => repairs.push(Repair { message: *position, kind }),
            None => tracing::warn!(
                adapter = route.adapter,
                "the adapter reports the repair {kind:?} of message {message}, but it was given {} messages",
                view.positions.len()
            ),
        }
    }
    repairs.sort_by_key(|repair| repair.message);
    Ok(Prepared {
        route: Arc::clone(route),
        target: target.clone(),
        exchange: converted.exchange,
        degraded: routed.degraded,
        neutral: routed.neutral,
        repairs,
        fates: routed.fates,
        native,
        images,
    })
}

fn convert(route: &Route, target: &Target, view: &View) -> Result<Converted, Failure> {
    route.handle.convert(&Convert {
        target: target.clone(),
        request: view.request.clone(),
        routing: view.routing.clone(),
    })
}

/// An adapter can name any URL and any credential; only what the manifest says of the route goes out.
fn check_destination(route: &Route, request: &HttpRequest) -> Result<(), Failure> {
    let name = &route.info.name;
    let destination = origin(&request.url).ok_or_else(|| {
        let text =
            format!("the adapter {:?} gave {:?} as URL, which is no http or https URL", route.adapter, request.url);
        Failure::new(FailureCode::InvalidRequest, text)
    })?;
    let allowed = route.origin.as_deref().and_then(origin);
    if allowed.as_ref() != Some(&destination) {
        let allowed = route.origin.as_deref().unwrap_or("nowhere: its manifest entry and its adapter name no origin");
        let text = format!("the request would go to {destination}, but route {name:?} may only go to {allowed}");
        return Err(Failure::new(FailureCode::InvalidRequest, text));
    }
    for header in &request.headers {
        if let HeaderValue::Credential { reference, .. } = &header.value
            && route.credential.as_ref() != Some(reference)
        {
            let allowed = route.credential.as_deref().map_or_else(|| "none".to_owned(), |known| format!("{known:?}"));
            let text = format!(
                "header {:?} of the request uses credential {reference:?}, but the manifest names {allowed} in route {name:?}",
                header.name
            );
            return Err(Failure::new(FailureCode::InvalidCredential, text));
        }
    }
    Ok(())
}

impl Prepared {
    /// What a further attempt could go without.
    #[must_use]
    pub fn carried(&self) -> Carried<'_> {
        Carried { native: self.native, images: &self.images }
    }

    /// True when the provider would get the same request from both.
    #[must_use]
    pub fn sends_the_same_as(&self, other: &Self) -> bool {
        match (&self.exchange, &other.exchange) {
            (Exchange::Http(one), Exchange::Http(two)) => {
                (&one.method, &one.url, &one.headers, one.body.get())
                    == (&two.method, &two.url, &two.headers, two.body.get())
            }
            // Nothing is sent; what the adapter makes of it is its own affair.
            (Exchange::Http(_) | Exchange::Polled(_), Exchange::Http(_) | Exchange::Polled(_)) => false,
        }
    }
}

impl Degraded {
    /// What a person is told.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("message {} goes out without its replay metadata ({}): {}", self.message, self.code, self.reason)
    }
}
