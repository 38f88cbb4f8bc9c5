//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::vocab::{Exchange, Failure, HttpRequest, Repair, Request, Target, Tool};
use serde_json::json;

use super::dialect::Dialect;
use super::messages::{History, Speaker, WireItem};
use super::replay::Turn;
use super::thinking;
use crate::config::{Input, Model};
use crate::effort;
use crate::request::{bearer, offered, output_limit};

/// OpenAI refuses a smaller output limit, in tokens.
const LEAST_OUTPUT: u64 = 16;

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
    let (items, repairs) = items(request, history, to, instructions);
    let offered = offered(&request.tools);
    let limit = output_limit(request, model, items.iter().map(WireItem::size), &offered);

    let mut body = Object::new();
    body.set("model", raw(&to.target.model));
    body.set("input", raw(&items.iter().map(WireItem::json).collect::<Vec<_>>()));
    body.set("stream", raw(&true));
    body.set("store", raw(&false));
    if let Some(limit) = limit {
        body.set("max_output_tokens", raw(&limit.max(LEAST_OUTPUT)));
    }
    if let Some(temperature) = request.temperature {
        body.set("temperature", raw(&temperature));
    }
    // An empty list is refused by strict servers, also where the history holds calls.
    if !offered.is_empty() {
        body.set("tools", tools(&offered, dialect));
    }
    if dialect.long_retention {
        body.set("prompt_cache_retention", raw("24h"));
    }
    if dialect.explicit_cache {
        body.set("prompt_cache_options", raw(&json!({"mode": "explicit"})));
    }
    thinking::apply(&mut body, &thinking, dialect);
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: to.endpoint.url("/responses"),
        headers: bearer(to.credential),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs })
}

fn items(
    request: &Request,
    turns: Vec<Turn>,
    to: &Destination<'_>,
    instructions: Speaker,
) -> (Vec<WireItem>, Vec<Repair>) {
    let takes_images = to.model.input.contains(&Input::Image);
    let mut history = History::new(instructions, takes_images);
    if let Some(system) = &request.system {
        history.system_prompt(system);
    }
    for (position, turn) in turns.into_iter().enumerate() {
        history.push(position, turn);
    }
    history.finish()
}

fn tools(offered: &[&Tool], dialect: &Dialect) -> Raw {
    let tool = |tool: &&Tool| {
        let mut out = Object::new();
        out.set("type", raw("function"));
        out.set("name", raw(&tool.name));
        out.set("description", raw(&tool.description));
        out.set("parameters", parameters(&tool.parameters));
        if dialect.strict_mode {
            // The schema goes out as it is, not in the narrower form that strict mode asks for.
            out.set("strict", raw(&false));
        }
        raw(&out)
    };
    raw(&offered.iter().map(tool).collect::<Vec<_>>())
}

/// The schema of a tool's arguments. The wire takes none but that of an object, and wants it to say so.
fn parameters(schema: &Raw) -> Raw {
    let Ok(mut object) = serde_json::from_str::<Object>(schema.get()) else {
        return raw(&json!({"type": "object", "properties": {}}));
    };
    let is_there = |name: &str| object.get(name).is_some_and(|value| value.get() != "null");
    if is_there("type") && is_there("properties") {
        return schema.clone();
    }
    for (name, value) in [("type", json!("object")), ("properties", json!({}))] {
        if object.get(name).is_none_or(|value| value.get() == "null") {
            object.set(name, raw(&value));
        }
    }
    raw(&object)
}
