//! The wire `openai-completions`: OpenAI's Chat Completions and the many servers that speak it.
//!
//! `encode` makes the request from `messages`; `decode` reads the response (`event` one event of it) into `blocks`;
//! `replay` is the metadata that a message carries; `dialect` is what a server does in its own way.

mod arguments;
mod blocks;
mod decode;
mod details;
mod dialect;
mod encode;
mod event;
mod messages;
mod replay;
#[cfg(test)]
mod tests;
mod thinking;

use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::vocab::{Failure, Request, Target};
use dsh_plugin_api::{ConfigError, Encoded, ResponseHead};

pub(crate) use decode::{Decoder, decoder as decoder_of};
pub(crate) use replay::Turn;

use crate::config::ApiName;
use crate::route::Route;
use dialect::Dialect;
use encode::Destination;

/// Checks what only this wire reads.
///
/// # Errors
///
/// Names the key of a model that cannot be used.
pub(crate) fn check(route: &Route) -> Result<(), ConfigError> {
    let provider = &route.provider;
    let of_models = provider.models.iter().enumerate().map(|(at, model)| (format!("models[{at}]."), &model.compat));
    for (place, compat) in std::iter::once((String::new(), &provider.compat)).chain(of_models) {
        if let Some(kwargs) = &compat.chat_template_kwargs {
            thinking::check_kwargs(kwargs).map_err(|message| {
                ConfigError::new(format!("providers.{}.{place}compat.chat_template_kwargs", route.name), message)
            })?;
        }
    }
    Ok(())
}

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
pub(crate) fn decoder(route: &Route, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
    let dialect = Dialect::of(route.known_as(), &route.provider, &route.endpoint, &route.model(&to.model));
    Ok(decode::decoder(ApiName::OpenaiCompletions, HeadFacts::read(head)?, to, dialect.usage_in_streaming))
}
