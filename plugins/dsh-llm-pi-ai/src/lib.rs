//! `dsh-llm-pi-ai`: the common provider wires behind one adapter, with the replay envelope of the pi-ai library.
//!
//! Each wire is one folder with the same parts: `encode`, `decode`, `replay`, `errors`. What they share stands beside
//! them: the configuration, the envelope, the endpoint, and the reading of refusals and of lenient JSON.
//!
//! It does no I/O, reads no clock and sees no credential; see [`dsh_plugin_api::Adapter`].

pub mod config;

mod completions;
mod endpoint;
mod envelope;
mod hash;
mod lenient;
mod refusal;
mod repeat;

use std::collections::BTreeMap;

use dsh_plugin_api::json::Object;
use dsh_plugin_api::vocab::{
    AssistantMessage, Failure, FailureCode, InvalidReplay, Message, ModelInfo, ReplayEnvelope, Request, RouteInfo,
    Target,
};
use dsh_plugin_api::{Adapter, Chunks, ConfigError, Encoded, ResponseHead, StreamEnd};

use config::{ApiName, Config, Input, Model, Provider};
use endpoint::Endpoint;

dsh_plugin_api::export_adapter!(PiAi);

/// The adapter: its routes by name.
#[derive(Debug)]
pub struct PiAi {
    routes: BTreeMap<String, Route>,
}

#[derive(Debug)]
struct Route {
    info: RouteInfo,
    api: ApiName,
    /// Absent for a wire that this version does not serve: such a route is listed, and its requests are refused, so
    /// that one route of a manifest does not take the others with it.
    wire: Option<Wire>,
}

/// A route's wire. A further wire is a further variant here, in [`Native`] and in [`Decoder`].
#[derive(Debug)]
enum Wire {
    Completions(completions::Route),
}

/// The wires that this version serves, for messages.
const SERVED: &str = "openai-completions";

/// One message in the words of its route's wire.
#[derive(Debug)]
pub struct Native(NativeTurn);

#[derive(Debug)]
enum NativeTurn {
    Completions(completions::Turn),
}

/// Decoder of one response of any wire.
#[derive(Debug)]
pub struct Decoder(WireDecoder);

#[derive(Debug)]
enum WireDecoder {
    Completions(completions::Decoder),
}

impl Route {
    fn new(name: &str, provider: Provider) -> Result<Self, ConfigError> {
        provider.check(name)?;
        let endpoint = Endpoint::parse(&provider.base_url)
            .map_err(|message| ConfigError::new(format!("providers.{name}.base_url"), message))?;
        let info = RouteInfo {
            name: name.to_owned(),
            api: Some(provider.api.name().to_owned()),
            origin: Some(endpoint.origin.clone()),
            credential: provider.credential.clone(),
            models: provider.models.iter().map(model_info).collect(),
            any_model: true,
        };
        let api = provider.api;
        let wire = match api {
            ApiName::OpenaiCompletions => Some(Wire::Completions(completions::Route::new(name, provider, endpoint)?)),
            ApiName::OpenaiResponses
            | ApiName::AnthropicMessages
            | ApiName::GoogleGenerativeAi
            | ApiName::MistralConversations => None,
        };
        Ok(Self { info, api, wire })
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

impl PiAi {
    fn wire(&self, to: &Target) -> Result<&Wire, Failure> {
        let route = self.routes.get(&to.provider).ok_or_else(|| {
            let message = format!("the adapter has no provider route {:?}", to.provider);
            Failure::new(FailureCode::UnknownModel, message)
        })?;
        route.wire.as_ref().ok_or_else(|| {
            let (name, api) = (&to.provider, route.api.name());
            let message = format!(
                "route {name} speaks {api}, which this version of the adapter does not serve; it serves {SERVED}"
            );
            Failure::new(FailureCode::Unsupported, message)
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
        self.routes.values().map(|route| route.info.clone()).collect()
    }

    fn restore(
        &self,
        message: &AssistantMessage,
        envelope: &ReplayEnvelope,
        to: &Target,
    ) -> Result<Native, InvalidReplay> {
        let wire = self.wire(to).map_err(|failure| InvalidReplay::OtherOrigin(failure.message))?;
        Ok(Native(match wire {
            Wire::Completions(_) => NativeTurn::Completions(completions::Route::restore(message, envelope)?),
        }))
    }

    fn foreign(&self, message: &Message, to: &Target) -> Result<Native, Failure> {
        Ok(Native(match self.wire(to)? {
            Wire::Completions(_) => NativeTurn::Completions(completions::Route::foreign(message)),
        }))
    }

    fn encode(&self, request: &Request, history: Vec<Native>, to: &Target) -> Result<Encoded, Failure> {
        match self.wire(to)? {
            Wire::Completions(route) => {
                let turns = history.into_iter().map(|Native(NativeTurn::Completions(turn))| turn).collect();
                route.encode(request, turns, to)
            }
        }
    }

    fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Decoder, Failure> {
        Ok(Decoder(match self.wire(to)? {
            Wire::Completions(route) => WireDecoder::Completions(route.decoder(head, to)?),
        }))
    }
}

impl dsh_plugin_api::Decoder for Decoder {
    fn feed(&mut self, bytes: &[u8], out: &mut Chunks) {
        match &mut self.0 {
            WireDecoder::Completions(decoder) => decoder.feed(bytes, out),
        }
    }

    fn finish(&mut self, end: &StreamEnd, out: &mut Chunks) {
        match &mut self.0 {
            WireDecoder::Completions(decoder) => decoder.finish(end, out),
        }
    }

    fn cancel(&mut self, out: &mut Chunks) {
        match &self.0 {
            WireDecoder::Completions(decoder) => decoder.cancel(out),
        }
    }
}
