//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::adapter::header;
use dsh_plugin_api::json::{Object, raw};
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::vocab::{Exchange, Failure, HttpHeader, HttpRequest, Repair, Request, Target};
use serde_json::json;

use super::dialect::Dialect;
use super::messages::{History, WireMessage, loop_without_thinking};
use super::replay::Turn;
use super::thinking::Mode;
use super::tools::tools;
use crate::config::{Input, Model};
use crate::effort;
use crate::request::{headers, offered, size, within_window};

/// The version of the wire.
const VERSION: &str = "2023-06-01";
/// Lets the model think between tool calls.
const INTERLEAVED_THINKING: &str = "interleaved-thinking-2025-05-14";
/// Lets arguments stream piece by piece, for servers that do not know the tools' own flag.
const FINE_GRAINED_STREAMING: &str = "fine-grained-tool-streaming-2025-05-14";
/// The output limit where neither request nor manifest names one, in tokens: the wire asks for one, and every model
/// takes this.
const DEFAULT_LIMIT: u64 = 4096;

/// Where a request goes.
pub(super) struct Destination<'a> {
    pub endpoint: &'a Endpoint,
    pub credential: Option<&'a str>,
    pub model: &'a Model,
    pub dialect: &'a Dialect,
    pub target: &'a Target,
}

/// Puts the request together.
///
/// # Errors
///
/// `UNSUPPORTED` for a reasoning effort that the model does not have.
pub(super) fn encode(request: &Request, history: Vec<Turn>, to: &Destination<'_>) -> Result<Encoded, Failure> {
    let Destination { model, dialect, .. } = to;
    let asked = Mode::of(&effort::of(request.reasoning_effort.as_deref(), model, to.target)?, dialect);
    let (system, mut messages, mut repairs) = messages(request, history, to);
    let offered = offered(&request.tools);
    let sizes = || messages.iter().map(WireMessage::size).chain(system.as_deref().map(size));
    let limit = |mode: &Mode| {
        within_window(wanted_limit(request, model, mode.budget()), model.context_window, sizes(), &offered)
    };

    let paused = match asked {
        Mode::Budget(_) => loop_without_thinking(&messages),
        Mode::Silent | Mode::Disabled | Mode::Adaptive(_) => None,
    };
    let asked_limit = limit(&asked);
    let fitting = if paused.is_some() { None } else { asked.within(asked_limit) };
    let (mode, limit) = match fitting {
        Some(mode) => (mode, asked_limit),
        None => {
            let message = paused.unwrap_or_else(|| request.messages.len().saturating_sub(1));
            repairs.push(Repair { message, kind: "thinking-paused".to_owned() });
            let off = Mode::off(model);
            let limit = limit(&off);
            (off, limit)
        }
    };
    if let Some((cache, last)) = dialect.cache_control.zip(messages.last_mut()) {
        last.mark(cache);
    }

    let mut body = Object::new();
    body.set("model", raw(&to.target.model));
    if let Some(system) = &system {
        let mut block = json!({"type": "text", "text": system});
        if let Some(cache) = dialect.cache_control {
            block["cache_control"] = cache.json();
        }
        body.set("system", raw(&[block]));
    }
    body.set("messages", raw(&messages.iter().map(WireMessage::json).collect::<Vec<_>>()));
    body.set("max_tokens", raw(&limit));
    body.set("stream", raw(&true));
    if let Some(temperature) = request.temperature.filter(|_| dialect.temperature && !mode.is_on()) {
        body.set("temperature", raw(&temperature));
    }
    if !offered.is_empty() {
        body.set("tools", tools(&offered, dialect));
    }
    mode.apply(&mut body);
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: to.endpoint.url("/v1/messages"),
        headers: wire_headers(to, &mode, !offered.is_empty()),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs })
}

/// The output limit without regard to the window: a budget is added to what the request asks for the answer, as far as
/// the model goes.
fn wanted_limit(request: &Request, model: &Model, budget: u64) -> u64 {
    let ceiling = model.max_tokens.filter(|limit| *limit > 0);
    let answer = request.max_tokens.filter(|limit| *limit > 0).or(ceiling).unwrap_or(DEFAULT_LIMIT);
    match budget {
        0 => answer,
        budget => answer.saturating_add(budget).min(ceiling.unwrap_or(u64::MAX)),
    }
}

fn messages(
    request: &Request,
    turns: Vec<Turn>,
    to: &Destination<'_>,
) -> (Option<String>, Vec<WireMessage>, Vec<Repair>) {
    let takes_images = to.model.input.contains(&Input::Image);
    let mut history = History::new(to.dialect, takes_images);
    if let Some(system) = &request.system {
        history.system_prompt(system);
    }
    for (position, turn) in turns.into_iter().enumerate() {
        history.push(position, turn);
    }
    history.finish()
}

fn wire_headers(to: &Destination<'_>, mode: &Mode, has_tools: bool) -> Vec<HttpHeader> {
    let mut headers = headers("x-api-key", "", to.credential);
    headers.push(header("anthropic-version", VERSION));
    let mut betas = Vec::new();
    if matches!(mode, Mode::Budget(_)) {
        betas.push(INTERLEAVED_THINKING);
    }
    if has_tools && !to.dialect.eager_input_streaming {
        betas.push(FINE_GRAINED_STREAMING);
    }
    if !betas.is_empty() {
        headers.push(header("anthropic-beta", betas.join(",")));
    }
    headers
}
