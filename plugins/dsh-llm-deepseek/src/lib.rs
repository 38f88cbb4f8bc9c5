//! `dsh-llm-deepseek`: DeepSeek's own API, with an envelope kind of its own.
//!
//! The API is DeepSeek's Chat Completions as its documentation describes them (Create Chat Completion, Thinking Mode,
//! Tool Calls, Context Caching, Error Codes). Its rule about history is what this adapter is about: in thinking mode
//! the reasoning of every answer that called tools has to come back with it, or the request is refused.
//!
//! # Envelope
//!
//! Kind `deepseek`, version 1. Response half: `{kind, version, provider, model, responseModel?, responseId?,
//! stopReason}` with `stopReason` one of `stop`, `length`, `toolUse`; block entries: `{type}`. The reasoning itself is
//! durable content, so that nothing opaque has to be kept; the envelope says that it is this provider's own.
//!
//! It does no I/O, reads no clock and sees no credential; see [`dsh_plugin_api::Adapter`].

pub mod config;

mod decode;
mod encode;
mod envelope;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use dsh_plugin_api::json::Object;
use dsh_plugin_api::kit::body::BodyDecoder;
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::kit::models;
use dsh_plugin_api::vocab::{
    AssistantMessage, Failure, FailureCode, HttpRequest, InvalidReplay, Message, ModelInfo, ModelsPage, ReplayEnvelope,
    Request, RouteInfo, Target,
};
use dsh_plugin_api::{Adapter, ConfigError, Encoded, ResponseHead};
use serde_json::{Map, Value};

use config::{Config, Model, Provider};

dsh_plugin_api::export_adapter!(DeepSeek);

/// The adapter: its routes by name.
#[derive(Debug)]
pub struct DeepSeek {
    routes: BTreeMap<String, Route>,
}

#[derive(Debug)]
struct Route {
    provider: Provider,
    endpoint: Endpoint,
}

/// One message of the history, with or without the right to its reasoning.
#[derive(Debug)]
pub struct Turn {
    message: Message,
    native: bool,
}

impl Route {
    fn new(name: &str, provider: Provider) -> Result<Self, ConfigError> {
        provider.check(name)?;
        let endpoint = Endpoint::parse(&provider.base_url)
            .map_err(|message| ConfigError::new(format!("providers.{name}.base_url"), message))?;
        Ok(Self { provider, endpoint })
    }

    fn info(&self, name: &str) -> RouteInfo {
        RouteInfo {
            name: name.to_owned(),
            api: Some("deepseek".to_owned()),
            origin: Some(self.endpoint.origin.clone()),
            credential: self.provider.credential.clone(),
            models: self.provider.models.iter().map(model_info).collect(),
            any_model: true,
        }
    }

    fn model(&self, id: &str) -> Cow<'_, Model> {
        match self.provider.models.iter().find(|model| model.id == id) {
            Some(model) => Cow::Borrowed(model),
            None => Cow::Owned(Model::unlisted(id)),
        }
    }
}

fn model_info(model: &Model) -> ModelInfo {
    let input = if model.images { &["text", "image"][..] } else { &["text"] };
    ModelInfo {
        id: model.id.clone(),
        context_window: model.context_window.filter(|window| *window > 0),
        max_tokens: model.max_tokens.filter(|limit| *limit > 0),
        reasoning: model.thinking,
        input: input.iter().map(|input| (*input).to_owned()).collect(),
        extra: Object::new(),
    }
}

impl DeepSeek {
    fn route(&self, to: &Target) -> Result<&Route, Failure> {
        self.named(&to.provider)
    }

    fn named(&self, route: &str) -> Result<&Route, Failure> {
        self.routes.get(route).ok_or_else(|| {
            let message = format!("the adapter has no provider route {route:?}");
            Failure::new(FailureCode::UnknownModel, message)
        })
    }
}

impl Adapter for DeepSeek {
    type Config = Config;
    type Native = Turn;
    type Decoder = BodyDecoder<decode::Answer>;

    const NAME: &'static str = "dsh-llm-deepseek";
    const ENVELOPE_KIND: &'static str = envelope::KIND;
    const ENVELOPE_VERSION: u32 = envelope::VERSION;

    fn new(config: Config) -> Result<Self, ConfigError> {
        let routes = config.providers.into_iter().map(|(name, provider)| {
            let route = Route::new(&name, provider)?;
            Ok((name, route))
        });
        Ok(Self { routes: routes.collect::<Result<_, _>>()? })
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.routes.iter().map(|(name, route)| route.info(name)).collect()
    }

    fn restore(
        &self,
        message: &AssistantMessage,
        envelope: &ReplayEnvelope,
        _: &Target,
    ) -> Result<Turn, InvalidReplay> {
        envelope::check(message, envelope)?;
        Ok(Turn { message: message.clone(), native: true })
    }

    fn foreign(&self, message: &Message, _: &Target) -> Result<Turn, Failure> {
        Ok(Turn { message: message.clone(), native: false })
    }

    fn encode(&self, request: &Request, history: Vec<Turn>, to: &Target) -> Result<Encoded, Failure> {
        let route = self.route(to)?;
        encode::encode(request, &history, to, route, &route.model(&to.model))
    }

    fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Self::Decoder, Failure> {
        self.route(to)?;
        Ok(BodyDecoder::new(decode::Answer::new(HeadFacts::read(head)?, to)))
    }

    /// Source: Lists Models, <https://api-docs.deepseek.com/api/list-models>. The list has one page.
    fn models_request(&self, route: &str) -> Result<HttpRequest, Failure> {
        let Route { provider, endpoint } = self.named(route)?;
        let url = endpoint.url("/models");
        Ok(models::request(url, "authorization", "Bearer ", provider.credential.as_deref()))
    }

    fn models_response(&self, route: &str, head: &ResponseHead, body: &str) -> Result<ModelsPage, Failure> {
        self.named(route)?;
        let models = models::listed(head, body)?.models.into_iter().map(written);
        Ok(ModelsPage { models: models.collect(), next: None })
    }
}

/// A model with how it is written as an element of `models`. Whether it thinks the list does not say.
fn written(model: ModelInfo) -> ModelInfo {
    let mut entry = Map::from_iter([("id".to_owned(), Value::from(model.id.as_str()))]);
    let mut set = |key: &str, value: Option<Value>| entry.extend(value.map(|value| (key.to_owned(), value)));
    set("context_window", model.context_window.map(Value::from));
    set("max_tokens", model.max_tokens.map(Value::from));
    set("images", model.input.iter().any(|input| input == "image").then(|| Value::from(true)));
    model.with_entry(&entry)
}
