//! The wire `openai-completions`: OpenAI's Chat Completions and the many servers that speak it.
//!
//! `encode` makes the request, `decode` reads the response (`event` one event of it, `blocks` its blocks), `replay` is one message with and without its metadata,
//! `errors` classes what failed; `dialect` is what a server does in its own way.

mod blocks;
mod decode;
mod details;
mod dialect;
mod encode;
mod errors;
mod event;
mod ids;
mod messages;
mod names;
mod replay;
#[cfg(test)]
mod tests;
mod thinking;

use std::borrow::Cow;

use dsh_plugin_api::vocab::{AssistantMessage, Failure, InvalidReplay, Message, ReplayEnvelope, Request, Target};
use dsh_plugin_api::{ConfigError, Encoded, ResponseHead};

pub(crate) use decode::Decoder;
pub(crate) use replay::Turn;

use crate::config::{Model, Provider};
use crate::endpoint::Endpoint;
use crate::refusal::HeadFacts;
use dialect::Dialect;
use encode::Destination;

/// A route that speaks this wire.
#[derive(Debug)]
pub(crate) struct Route {
    name: String,
    provider: Provider,
    endpoint: Endpoint,
}

impl Route {
    /// A route of this wire.
    ///
    /// # Errors
    ///
    /// Names the key of a model that cannot be used.
    pub fn new(name: &str, provider: Provider, endpoint: Endpoint) -> Result<Self, ConfigError> {
        for (position, model) in provider.models.iter().enumerate() {
            if let Some(kwargs) = &model.compat.chat_template_kwargs {
                thinking::check_kwargs(kwargs).map_err(|message| {
                    let path = format!("providers.{name}.models[{position}].compat.chat_template_kwargs");
                    ConfigError::new(path, message)
                })?;
            }
        }
        Ok(Self { name: name.to_owned(), provider, endpoint })
    }

    /// See `Adapter::restore`.
    pub fn restore(message: &AssistantMessage, envelope: &ReplayEnvelope) -> Result<Turn, InvalidReplay> {
        replay::restore(message, envelope)
    }

    /// See `Adapter::foreign`.
    pub fn foreign(message: &Message) -> Turn {
        replay::foreign(message)
    }

    /// See `Adapter::encode`.
    pub fn encode(&self, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
        let model = self.model(&to.model);
        let destination = Destination {
            endpoint: &self.endpoint,
            credential: self.provider.credential.as_deref(),
            model: &model,
            dialect: &self.dialect(&model),
            target: to,
        };
        encode::encode(request, history, &destination)
    }

    /// See `Adapter::decoder`.
    pub fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
        let dialect = self.dialect(&self.model(&to.model));
        Ok(Decoder::new(HeadFacts::read(head)?, to, dialect.usage_in_streaming))
    }

    /// A listed model, or one with cautious defaults: no limits, no thinking, text alone.
    fn model(&self, id: &str) -> Cow<'_, Model> {
        match self.provider.models.iter().find(|model| model.id == id) {
            Some(model) => Cow::Borrowed(model),
            None => Cow::Owned(Model { id: id.to_owned(), ..Model::default() }),
        }
    }

    fn dialect(&self, model: &Model) -> Dialect {
        Dialect::of(&self.name, &self.provider, &self.endpoint, model)
    }
}
