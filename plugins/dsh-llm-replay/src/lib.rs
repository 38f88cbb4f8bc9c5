//! Serves answers without a provider: a fixed reply, a script of chunks, or the model side of a session log.
//!
//! It is for compositions that work without a key, and for tests: what was recorded once is an answer for ever. It
//! uses the polled exchange, reads no files and no clock, and remembers nothing but how often a request was tried.
//!
//! ```toml
//! [adapter.config.providers.keyless]
//! reply = "This route answers without a provider."
//!
//! [adapter.config.providers.recorded]
//! session = { file = "session.jsonl" }    # the host puts the file's text in place of the table
//! timing = "recorded"                     # default "none": as fast as it is taken
//!
//! [adapter.config.providers.scripted]
//! responses = [
//!   [{ type = "text-delta", index = 0, text = "one" }, { type = "finish", reason = { kind = "stop" } }],
//!   [{ type = "finish", reason = { kind = "error", failure = { code = "AUTH", message = "no" } } }],
//! ]
//! ```
//!
//! # Which answer a request gets
//!
//! It is decided by the request's history alone, so that resuming in another process changes nothing.
//!
//! - `responses`: one for each assistant message, and one for each prompt that was followed by another prompt without
//!   an answer. A response that fails in a way that hosts retry (`TRANSPORT`, `RATE_LIMIT`, `SERVER`, `TIMEOUT`,
//!   `EMPTY_RESPONSE`, or without a finish) and the next one are attempts of the same request.
//! - `session`: by the number of prompts and the number of assistant messages since the last one. Recorded attempts of
//!   a request are served one after the other; a stream that was cut is cut again; one that its user had stopped, or
//!   whose host was killed, stays silent until it is stopped again.
//! - After the last attempt of a request it is repeated. A request beyond the script fails with `UNSUPPORTED`.

mod config;
mod decode;
mod replay;
mod script;
mod session;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use dsh_plugin_api::json::{Object, raw};
use dsh_plugin_api::vocab::{
    AssistantMessage, Chunk, Exchange, Failure, FailureCode, FinishReason, InvalidReplay, Message, ModelInfo,
    ReplayEnvelope, Request, RouteInfo, Target,
};
use dsh_plugin_api::{Adapter, ConfigError, Encoded, ResponseHead};
use serde::{Deserialize, Serialize};

pub use config::{Config, ModelConfig, RouteConfig, Timing};
pub use decode::Server;

use script::{Attempt, Script, Tail, Timed};

/// How many requests' attempts are remembered.
const REMEMBERED: usize = 256;

/// The adapter.
#[derive(Debug)]
pub struct Replay {
    routes: BTreeMap<String, Route>,
    attempts: Mutex<VecDeque<(String, usize)>>,
}

#[derive(Debug)]
struct Route {
    script: Script,
    models: Vec<ModelConfig>,
}

/// The polled exchange: everything that may be served for one request.
#[derive(Debug, Serialize, Deserialize)]
struct Served {
    /// Tells the attempts of one request from those of another.
    request: String,
    attempts: Vec<Attempt>,
}

impl Route {
    fn new(name: &str, config: RouteConfig) -> Result<Self, ConfigError> {
        let path = format!("providers.{name}");
        let RouteConfig { reply, responses, session, timing, models } = config;
        if timing.is_some() && session.is_none() {
            return Err(ConfigError::new(
                format!("{path}.timing"),
                "timing is that of a session; there is no `session`",
            ));
        }
        let script = match (reply, responses, session) {
            (Some(reply), None, None) if reply.trim().is_empty() => {
                return Err(ConfigError::new(
                    format!("{path}.reply"),
                    "the reply is blank, which hosts take for a failure",
                ));
            }
            (Some(reply), None, None) => Script::Reply(reply),
            (None, Some(responses), None) => {
                if responses.is_empty() {
                    return Err(ConfigError::new(format!("{path}.responses"), "there is no response in it"));
                }
                Script::of_responses(responses).map_err(|(number, reason)| {
                    ConfigError::new(format!("{path}.responses[{number}]"), format!("the response {reason}"))
                })?
            }
            (None, None, Some(text)) => {
                let timed = timing == Some(Timing::Recorded);
                let positions = session::read(&text, timed)
                    .map_err(|reason| ConfigError::new(format!("{path}.session"), reason))?;
                Script::Session(positions)
            }
            _ => return Err(ConfigError::new(path, "give exactly one of `reply`, `responses` and `session`")),
        };
        Ok(Self { script, models })
    }
}

impl Replay {
    /// Which attempt this is, counting from 0.
    fn attempt(&self, request: &str) -> usize {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, next)) = attempts.iter_mut().find(|(known, _)| known == request) {
            *next += 1;
            return *next - 1;
        }
        if attempts.len() == REMEMBERED {
            attempts.pop_front();
        }
        attempts.push_back((request.to_owned(), 1));
        0
    }

    fn route(&self, target: &Target) -> Result<&Route, Failure> {
        self.routes.get(&target.provider).ok_or_else(|| {
            Failure::new(FailureCode::UnknownModel, format!("dsh-llm-replay has no route {:?}", target.provider))
        })
    }
}

impl Adapter for Replay {
    type Config = Config;
    /// Nothing: what is served does not depend on what the history says.
    type Native = ();
    type Decoder = Server;

    const NAME: &'static str = "dsh-llm-replay";
    const ENVELOPE_KIND: &'static str = replay::KIND;
    const ENVELOPE_VERSION: u32 = replay::VERSION;

    fn new(config: Config) -> Result<Self, ConfigError> {
        let routes = config.providers.into_iter().map(|(name, route)| {
            let route = Route::new(&name, route)?;
            Ok((name, route))
        });
        Ok(Self { routes: routes.collect::<Result<_, _>>()?, attempts: Mutex::new(VecDeque::new()) })
    }

    fn routes(&self) -> Vec<RouteInfo> {
        let model = |model: &ModelConfig| ModelInfo {
            id: model.id.clone(),
            context_window: model.context_window,
            max_tokens: model.max_tokens,
            reasoning: model.reasoning,
            input: vec!["text".to_owned(), "image".to_owned()],
            extra: Object::new(),
        };
        let route = |(name, route): (&String, &Route)| RouteInfo {
            name: name.clone(),
            api: Some(replay::KIND.to_owned()),
            origin: None,
            credential: None,
            models: route.models.iter().map(model).collect(),
            any_model: true,
        };
        self.routes.iter().map(route).collect()
    }

    fn restore(&self, _: &AssistantMessage, envelope: &ReplayEnvelope, _: &Target) -> Result<(), InvalidReplay> {
        replay::check(envelope)
    }

    fn foreign(&self, _: &Message, _: &Target) -> Result<(), Failure> {
        Ok(())
    }

    fn encode(&self, request: &Request, _: Vec<()>, to: &Target) -> Result<Encoded, Failure> {
        let attempts = self.route(to)?.script.answer(&request.messages).unwrap_or_else(|reason| {
            let failure = Failure::new(FailureCode::Unsupported, reason);
            let chunk = Chunk::Finish { reason: FinishReason::Error { failure }, replay_state: None };
            vec![Attempt { response: 0, chunks: vec![Timed { after_ms: 0, chunk }], tail: Tail::Finish }]
        });
        let last = request.messages.last().map_or("", |message| message.id.as_str());
        let request = format!("{to} {} {last}", request.messages.len());
        Ok(Encoded::new(Exchange::Polled(raw(&Served { request, attempts }))))
    }

    fn decoder(&self, head: &ResponseHead, to: &Target) -> Result<Server, Failure> {
        let ResponseHead::Polled(value) = head else {
            let text = "dsh-llm-replay decodes no HTTP responses";
            return Err(Failure::new(FailureCode::Unsupported, text));
        };
        let Served { request, mut attempts } = decode::served(value)?;
        let Some(last) = attempts.len().checked_sub(1) else {
            return Err(Failure::new(FailureCode::InvalidRequest, "the exchange holds no attempt"));
        };
        let number = if last == 0 { 0 } else { self.attempt(&request).min(last) };
        Ok(Server::new(to.clone(), attempts.swap_remove(number)))
    }
}

dsh_plugin_api::export_adapter!(Replay);

#[cfg(test)]
mod tests;
