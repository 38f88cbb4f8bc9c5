//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::lenient::is_object;
use dsh_plugin_api::vocab::{Exchange, Failure, HttpRequest, Repair, Request, Target, Tool};
use serde_json::json;

use super::messages::{History, WireMessage};
use super::replay::Turn;
use crate::config::{Input, Model};
use crate::effort::{self, Off, Thinking};
use crate::request::{bearer, offered, output_limit};

/// Models that think by a mode of the prompt.
const PROMPT_MODE: &str = "magistral";

/// Where a request goes.
pub(super) struct Destination<'a> {
    pub endpoint: &'a Endpoint,
    pub credential: Option<&'a str>,
    pub model: &'a Model,
    pub target: &'a Target,
}

/// Puts the request together.
///
/// # Errors
///
/// `UNSUPPORTED` for a reasoning effort that the model does not have.
pub(super) fn encode(request: &Request, history: Vec<Turn>, to: &Destination<'_>) -> Result<Encoded, Failure> {
    let thinking = effort::of(request.reasoning_effort.as_deref(), to.model, to.target)?;
    let (messages, repairs) = messages(request, history, to);
    let offered = offered(&request.tools);
    let limit = output_limit(request, to.model, messages.iter().map(WireMessage::size), &offered);

    let mut body = Object::new();
    body.set("model", raw(&to.target.model));
    body.set("messages", raw(&messages.iter().map(WireMessage::json).collect::<Vec<_>>()));
    body.set("stream", raw(&true));
    if let Some(limit) = limit {
        body.set("max_tokens", raw(&limit));
    }
    if let Some(temperature) = request.temperature {
        body.set("temperature", raw(&temperature));
    }
    // An empty list is refused, also where the history holds calls.
    if !offered.is_empty() {
        body.set("tools", tools(&offered));
    }
    think(&mut body, &thinking, &to.target.model);
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: super::url(to.endpoint, "/chat/completions"),
        headers: bearer(to.credential),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs })
}

/// Magistral thinks by a mode of the prompt; other models by an effort, which knows `high` and `none` unless the
/// manifest spells a level.
fn think(body: &mut Object, thinking: &Thinking, model: &str) {
    let by_mode = model.to_ascii_lowercase().starts_with(PROMPT_MODE);
    match thinking {
        Thinking::On { .. } if by_mode => body.set("prompt_mode", raw("reasoning")),
        Thinking::On { effort, mapped: true, .. } => body.set("reasoning_effort", raw(effort)),
        Thinking::On { .. } => body.set("reasoning_effort", raw("high")),
        Thinking::Off(Off::Named(name)) if !by_mode => body.set("reasoning_effort", raw(name)),
        Thinking::Off(_) | Thinking::Unavailable => {}
    }
}

fn messages(request: &Request, turns: Vec<Turn>, to: &Destination<'_>) -> (Vec<WireMessage>, Vec<Repair>) {
    let mut history = History::new(to.model.input.contains(&Input::Image));
    if let Some(system) = &request.system {
        history.system_prompt(system);
    }
    for (position, turn) in turns.into_iter().enumerate() {
        history.push(position, turn);
    }
    history.finish()
}

fn tools(offered: &[&Tool]) -> Raw {
    let tool = |tool: &&Tool| {
        let mut function = Object::new();
        function.set("name", raw(&tool.name));
        function.set("description", raw(&tool.description));
        // The wire wants a schema also of a tool that takes nothing.
        let parameters = if is_object(&tool.parameters) { tool.parameters.clone() } else { raw(&json!({})) };
        function.set("parameters", parameters);
        let mut out = Object::new();
        out.set("type", raw("function"));
        out.set("function", raw(&function));
        raw(&out)
    };
    raw(&offered.iter().map(tool).collect::<Vec<_>>())
}
