//! From a request and its converted history to the HTTP request.

use std::collections::BTreeSet;

use dsh_plugin_api::Encoded;
use dsh_plugin_api::adapter::header;
use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::vocab::{Exchange, Failure, HeaderValue, HttpHeader, HttpRequest, Repair, Request, Target, Tool};
use serde_json::json;

use super::dialect::{CacheControl, Dialect};
use super::messages::{History, Speaker, WireMessage};
use super::names;
use super::replay::Turn;
use super::thinking;
use crate::config::{Input, Model};
use crate::endpoint::Endpoint;

/// Room that is left between the estimated prompt and the end of the window, in tokens.
const SAFETY_TOKENS: u64 = 4096;

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
    let thinking = thinking::of(request.reasoning_effort.as_deref(), model, to.target)?;
    let instructions = if model.reasoning && dialect.developer_role { Speaker::Developer } else { Speaker::System };
    let (mut messages, repairs) = messages(request, history, to, instructions);
    let offered = offered(&request.tools);
    let limit = output_limit(request, model, &messages, &offered);
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
        headers: headers(to.credential),
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

fn headers(credential: Option<&str>) -> Vec<HttpHeader> {
    let mut headers = vec![header("accept", "text/event-stream, application/json")];
    if let Some(reference) = credential {
        let value = HeaderValue::Credential { reference: reference.to_owned(), prefix: "Bearer ".to_owned() };
        headers.push(HttpHeader { name: "authorization".to_owned(), value });
    }
    headers
}

/// The output limit: what the request or the model says, cut to what fits the window beside the prompt.
fn output_limit(request: &Request, model: &Model, messages: &[WireMessage], tools: &[&Tool]) -> Option<u64> {
    let wanted = request.max_tokens.or(model.max_tokens).filter(|limit| *limit > 0)?;
    let Some(window) = model.context_window.filter(|window| *window > 0) else { return Some(wanted) };
    let tokens = |characters: usize| characters.div_ceil(4) as u64;
    let prompt: u64 = messages.iter().map(|message| tokens(message.size())).sum();
    let tools = if tools.is_empty() { 0 } else { tokens(compact(&raw(tools)).encode_utf16().count()) };
    let room = window.saturating_sub(prompt).saturating_sub(tools).saturating_sub(SAFETY_TOKENS);
    Some(wanted.min(room.max(1)))
}

/// Tools with a legal name; of several with the same name the first, since servers refuse a list in which one repeats.
fn offered(tools: &[Tool]) -> Vec<&Tool> {
    let mut names = BTreeSet::new();
    tools.iter().filter(|tool| names::is_legal(&tool.name) && names.insert(tool.name.as_str())).collect()
}

/// JSON without the white space between its tokens, so that the estimate does not depend on who wrote a schema.
fn compact(json: &Raw) -> String {
    serde_json::from_str::<serde_json::Value>(json.get()).map_or_else(|_| json.get().to_owned(), |v| v.to_string())
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
