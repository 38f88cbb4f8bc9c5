//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::vocab::{Exchange, Failure, HttpRequest, Repair, Request, Target, Tool};
use serde_json::json;

use super::dialect::Dialect;
use super::messages::{History, Speaker, WireMessage};
use super::replay::Turn;
use super::thinking;
use crate::cache::CacheControl;
use crate::config::{Input, Model};
use crate::effort;
use crate::request::{bearer, offered, output_limit};

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
    let thinking = effort::of(request.reasoning_effort.as_deref(), model, to.target)?;
    let instructions = if model.reasoning && dialect.developer_role { Speaker::Developer } else { Speaker::System };
    let (mut messages, repairs) = messages(request, history, to, instructions);
    let offered = offered(&request.tools);
    let limit = output_limit(request, model, messages.iter().map(WireMessage::size), &offered);
    if let Some(cache) = dialect.cache_control {
        mark_for_cache(&mut messages, cache);
    }

    let mut body = Object::new();
    body.set("model", raw(&to.target.model));
    body.set("messages", raw(&messages.iter().map(WireMessage::json).collect::<Vec<_>>()));
    body.set("stream", raw(&true));
    if dialect.usage_in_streaming {
        body.set("stream_options", raw(&json!({"include_usage": true})));
    }
    if dialect.store {
        body.set("store", raw(&false));
    }
    if let Some(limit) = limit {
        body.set(dialect.max_tokens_field, raw(&limit));
    }
    if let Some(temperature) = request.temperature {
        body.set("temperature", raw(&temperature));
    }
    // An empty list is refused by strict servers, also where the history holds calls.
    if !offered.is_empty() {
        body.set("tools", tools(&offered, dialect));
        if dialect.tool_stream {
            body.set("tool_stream", raw(&true));
        }
    }
    if dialect.long_retention {
        body.set("prompt_cache_retention", raw("24h"));
    }
    thinking::apply(&mut body, &thinking, dialect, model.compat.chat_template_kwargs.as_ref());
    if let Some(routing) = &model.compat.open_router_routing {
        body.set("provider", raw(routing));
    }
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: to.endpoint.url("/chat/completions"),
        headers: bearer(to.credential),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs })
}

fn messages(
    request: &Request,
    turns: Vec<Turn>,
    to: &Destination<'_>,
    instructions: Speaker,
) -> (Vec<WireMessage>, Vec<Repair>) {
    let takes_images = to.model.input.contains(&Input::Image);
    let mut history = History::new(to.dialect, instructions, to.model.reasoning, takes_images);
    if let Some(system) = &request.system {
        history.system_prompt(system);
    }
    for (position, turn) in turns.into_iter().enumerate() {
        history.push(position, turn);
    }
    history.finish()
}

fn tools(offered: &[&Tool], dialect: &Dialect) -> Raw {
    let last = offered.len().saturating_sub(1);
    let tool = |(position, tool): (usize, &&Tool)| {
        let mut function = Object::new();
        function.set("name", raw(&tool.name));
        function.set("description", raw(&tool.description));
        function.set("parameters", tool.parameters.clone());
        if dialect.strict_mode {
            // The schema goes out as it is, not in the narrower form that strict mode asks for.
            function.set("strict", raw(&false));
        }
        let mut out = Object::new();
        out.set("type", raw("function"));
        out.set("function", raw(&function));
        if let Some(cache) = dialect.cache_control.filter(|_| position == last) {
            out.set("cache_control", raw(&cache.json()));
        }
        raw(&out)
    };
    raw(&offered.iter().enumerate().map(tool).collect::<Vec<_>>())
}

/// Marks the instructions and the last message of the conversation that has text.
fn mark_for_cache(messages: &mut [WireMessage], cache: CacheControl) {
    let is_instruction = |message: &WireMessage| matches!(message.speaker, Speaker::System | Speaker::Developer);
    if let Some(first) = messages.first_mut().filter(|message| is_instruction(message)) {
        first.mark(cache);
    }
    for message in messages.iter_mut().rev().filter(|message| !is_instruction(message)) {
        if message.mark(cache) {
            return;
        }
    }
}
