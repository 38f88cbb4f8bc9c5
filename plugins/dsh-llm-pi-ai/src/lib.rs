//! `dsh-llm-pi-ai`: the common provider wires behind one adapter, with the replay envelope of the pi-ai library.
//!
//! Each wire is one folder with the same parts: `encode`, `messages`, `decode`, `replay`. What they share stands beside
//! them: the configuration with its presets, the routes and their lists of models, the envelope, one turn of a history.
//! What any adapter needs is in [`dsh_plugin_api::kit`].
//!
//! It does no I/O, reads no clock and sees no credential; see [`dsh_plugin_api::Adapter`].

pub mod config;

mod anthropic;
mod cache;
mod completions;
mod discovery;
mod effort;
mod envelope;
mod google;
mod mistral;
mod presets;
mod request;
mod responses;
mod route;
#[cfg(test)]
mod testing;
mod turn;

use std::collections::BTreeMap;

use dsh_plugin_api::json::Object;
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::vocab::{
    AssistantMessage, Failure, FailureCode, HttpRequest, InvalidReplay, Message, ModelInfo, ModelsPage, ReplayEnvelope,
    Request, RouteInfo, Target,
};
use dsh_plugin_api::{Adapter, Chunks, ConfigError, Encoded, ResponseHead, StreamEnd};

use config::{ApiName, Config, Input, Model, ProviderEntry};
use route::Route;

dsh_plugin_api::export_adapter!(PiAi);

/// The adapter: its routes by name.
#[derive(Debug)]
pub struct PiAi {
    routes: BTreeMap<String, Route>,
}

/// One message in the words of its route's wire.
#[derive(Debug)]
pub struct Native(NativeTurn);

#[derive(Debug)]
enum NativeTurn {
    Completions(completions::Turn),
    Responses(responses::Turn),
    Anthropic(anthropic::Turn),
    Google(google::Turn),
    Mistral(mistral::Turn),
}

/// Decoder of one response of any wire.
#[derive(Debug)]
pub struct Decoder(WireDecoder);

#[derive(Debug)]
enum WireDecoder {
    Completions(completions::Decoder),
    Responses(responses::Decoder),
    Anthropic(anthropic::Decoder),
    Google(google::Decoder),
    Mistral(mistral::Decoder),
}

impl Route {
    fn new(name: &str, entry: ProviderEntry) -> Result<Self, ConfigError> {
        let provider = entry.complete(name)?;
        provider.check(name)?;
        let endpoint = Endpoint::parse(&provider.base_url)
            .map_err(|message| ConfigError::new(format!("providers.{name}.base_url"), message))?;
        let route = Self { name: name.to_owned(), provider, endpoint };
        completions::check(&route)?;
        Ok(route)
    }

    /// Who is asked for the models.
    fn server(&self) -> discovery::Server {
        discovery::Server::new(&self.provider, &self.endpoint)
    }

    fn info(&self) -> RouteInfo {
        RouteInfo {
            name: self.name.clone(),
            api: Some(self.provider.api.name().to_owned()),
            origin: Some(self.endpoint.origin.clone()),
            credential: self.provider.credential.clone(),
            models: self.provider.models.iter().map(model_info).collect(),
            any_model: true,
        }
    }
}

fn model_info(model: &Model) -> ModelInfo {
    let input = if model.input.is_empty() { &[Input::Text][..] } else { &model.input };
    ModelInfo {
        id: model.id.clone(),
        context_window: model.context_window.filter(|window| *window > 0),
        max_tokens: model.max_tokens.filter(|limit| *limit > 0),
        reasoning: model.reasoning,
        input: input.iter().map(|input| input.name().to_owned()).collect(),
        extra: Object::new(),
    }
}

fn converted_for_another(to: &Target) -> Failure {
    Failure::new(
        FailureCode::InvalidRequest,
        format!("a message of the request to {to} was converted for another wire"),
    )
}

impl PiAi {
    fn route(&self, name: &str) -> Result<&Route, Failure> {
        self.routes.get(name).ok_or_else(|| {
            let message = format!("the adapter has no provider route {name:?}");
            Failure::new(FailureCode::UnknownModel, message)
        })
    }
}

impl Adapter for PiAi {
    type Config = Config;
    type Native = Native;
    type Decoder = Decoder;

    const NAME: &'static str = "dsh-llm-pi-ai";
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
        self.routes.values().map(Route::info).collect()
    }

    fn restore(
        &self,
        message: &AssistantMessage,
        envelope: &ReplayEnvelope,
        to: &Target,
    ) -> Result<Native, InvalidReplay> {
        let route = self.route(&to.provider).map_err(|failure| InvalidReplay::OtherOrigin(failure.message))?;
        Ok(Native(match route.provider.api {
            ApiName::OpenaiCompletions => NativeTurn::Completions(completions::Turn::restore(message, envelope)?),
            ApiName::OpenaiResponses => NativeTurn::Responses(responses::Turn::restore(message, envelope)?),
            ApiName::AnthropicMessages => NativeTurn::Anthropic(anthropic::Turn::restore(message, envelope)?),
            ApiName::GoogleGenerativeAi => NativeTurn::Google(google::Turn::restore(message, envelope)?),
            ApiName::MistralConversations => NativeTurn::Mistral(mistral::Turn::restore(message, envelope)?),
        }))
    }

    fn foreign(&self, message: &Message, to: &Target) -> Result<Native, Failure> {
        Ok(Native(match self.route(&to.provider)?.provider.api {
            ApiName::OpenaiCompletions => NativeTurn::Completions(completions::Turn::foreign(message)),
            ApiName::OpenaiResponses => NativeTurn::Responses(responses::Turn::foreign(message)),
            ApiName::AnthropicMessages => NativeTurn::Anthropic(anthropic::Turn::foreign(message)),
            ApiName::GoogleGenerativeAi => NativeTurn::Google(google::Turn::foreign(message)),
            ApiName::MistralConversations => NativeTurn::Mistral(mistral::Turn::foreign(message)),
        }))
    }

    fn encode(&self, request: &Request, history: Vec<Native>, to: &Target) -> Result<Encoded, Failure> {
        let route = self.route(&to.provider)?;
        // Every message was converted for this target, so that every one is of the wire that its route speaks.
        macro_rules! turns {
            ($wire:ident) => {{
                let turn = |Native(turn)| match turn {
                    NativeTurn::$wire(turn) => Ok(turn),
                    _ => Err(converted_for_another(to)),
                };
                history.into_iter().map(turn).collect::<Result<Vec<_>, _>>()?
            }};
        }
        match route.provider.api {
            ApiName::OpenaiCompletions => completions::encode(route, request, turns!(Completions), to),
            ApiName::OpenaiResponses => responses::encode(route, request, turns!(Responses), to),
            ApiName::AnthropicMessages => anthropic::encode(route, request, turns!(Anthropic), to),
            ApiName::GoogleGenerativeAi => google::encode(route, request, turns!(Google), to),
            ApiName::MistralConversations => mistral::encode(route, request, turns!(Mistral), to),
        }
    }

    fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
        let route = self.route(&to.provider)?;
        Ok(Decoder(match route.provider.api {
            ApiName::OpenaiCompletions => WireDecoder::Completions(completions::decoder(route, head, to)?),
            ApiName::OpenaiResponses => WireDecoder::Responses(responses::decoder(route, head, to)?),
            ApiName::AnthropicMessages => WireDecoder::Anthropic(anthropic::decoder(route, head, to)?),
            ApiName::GoogleGenerativeAi => WireDecoder::Google(google::decoder(route, head, to)?),
            ApiName::MistralConversations => WireDecoder::Mistral(mistral::decoder(route, head, to)?),
        }))
    }

    fn models_request(&self, route: &str) -> Result<HttpRequest, Failure> {
        Ok(self.route(route)?.server().request())
    }

    fn models_response(&self, route: &str, head: &ResponseHead, body: &str) -> Result<ModelsPage, Failure> {
        self.route(route)?.server().response(head, body)
    }
}

impl dsh_plugin_api::Decoder for Decoder {
    fn feed(&mut self, bytes: &[u8], out: &mut Chunks) {
        match &mut self.0 {
            WireDecoder::Completions(decoder) => decoder.feed(bytes, out),
            WireDecoder::Responses(decoder) => decoder.feed(bytes, out),
            WireDecoder::Anthropic(decoder) => decoder.feed(bytes, out),
            WireDecoder::Google(decoder) => decoder.feed(bytes, out),
            WireDecoder::Mistral(decoder) => decoder.feed(bytes, out),
        }
    }

    fn finish(&mut self, end: &StreamEnd, out: &mut Chunks) {
        match &mut self.0 {
            WireDecoder::Completions(decoder) => decoder.finish(end, out),
            WireDecoder::Responses(decoder) => decoder.finish(end, out),
            WireDecoder::Anthropic(decoder) => decoder.finish(end, out),
            WireDecoder::Google(decoder) => decoder.finish(end, out),
            WireDecoder::Mistral(decoder) => decoder.finish(end, out),
        }
    }

    fn cancel(&mut self, out: &mut Chunks) {
        match &mut self.0 {
            WireDecoder::Completions(decoder) => decoder.cancel(out),
            WireDecoder::Responses(decoder) => decoder.cancel(out),
            WireDecoder::Anthropic(decoder) => decoder.cancel(out),
            WireDecoder::Google(decoder) => decoder.cancel(out),
            WireDecoder::Mistral(decoder) => decoder.cancel(out),
        }
    }
}
