//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::json::{Object, raw};
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::names::is_legal_word;
use dsh_plugin_api::vocab::{Exchange, Failure, HttpRequest, Repair, Request, Target};
use serde_json::json;

use super::family::Family;
use super::messages::{Content, History};
use super::replay::Turn;
use super::thinking;
use super::tools::tools;
use crate::config::{Input, Model};
use crate::effort;
use crate::request::{headers, offered, output_limit, size};

/// Where a request goes.
pub(super) struct Destination<'a> {
    pub endpoint: &'a Endpoint,
    pub credential: Option<&'a str>,
    pub model: &'a Model,
    pub family: &'a Family,
    pub target: &'a Target,
}

/// Puts the request together.
///
/// # Errors
///
/// `UNSUPPORTED` for a reasoning effort that the model does not have.
pub(super) fn encode(request: &Request, history: Vec<Turn>, to: &Destination<'_>) -> Result<Encoded, Failure> {
    let Destination { model, family, .. } = to;
    let thinking = effort::of(request.reasoning_effort.as_deref(), model, to.target)?;
    let (contents, repairs) = contents(history, to);
    let mut offered = offered(&request.tools);
    offered.retain(|tool| is_legal_word(&tool.name));
    let instructions = request.system.as_deref().filter(|text| !text.trim().is_empty());
    let sizes = contents.iter().map(Content::size).chain(instructions.map(size));
    let limit = output_limit(request, model, sizes, &offered);

    let mut config = Object::new();
    if let Some(temperature) = request.temperature {
        config.set("temperature", raw(&temperature));
    }
    if let Some(limit) = limit {
        config.set("maxOutputTokens", raw(&limit));
    }
    if let Some(thinking) = thinking::config(&thinking, model, **family) {
        config.set("thinkingConfig", thinking);
    }
    let mut body = Object::new();
    if let Some(text) = instructions {
        body.set("systemInstruction", raw(&json!({"parts": [{"text": text}]})));
    }
    body.set("contents", raw(&contents.iter().map(Content::json).collect::<Vec<_>>()));
    if !offered.is_empty() {
        body.set("tools", tools(&offered));
    }
    if !config.is_empty() {
        body.set("generationConfig", raw(&config));
    }
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: to.endpoint.url_with(&path(&to.target.model), "alt=sse"),
        headers: headers("x-goog-api-key", "", to.credential),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs })
}

fn contents(turns: Vec<Turn>, to: &Destination<'_>) -> (Vec<Content>, Vec<Repair>) {
    let mut history = History::new(*to.family, to.model.input.contains(&Input::Image));
    for (position, turn) in turns.into_iter().enumerate() {
        history.push(position, turn);
    }
    history.finish()
}

/// The path of a model; an id may name its collection itself, as tuned models do.
fn path(id: &str) -> String {
    let mut out =
        String::from(if id.starts_with("models/") || id.starts_with("tunedModels/") { "/" } else { "/models/" });
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out.push_str(":streamGenerateContent");
    out
}
