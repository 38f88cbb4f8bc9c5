//! What the requests of every wire share: the output limit, the tools that can be offered, the headers.

use std::collections::BTreeSet;

use dsh_plugin_api::adapter::header;
use dsh_plugin_api::json::{Raw, raw, replace_lone_surrogates};
use dsh_plugin_api::vocab::{HeaderValue, HttpHeader, Request, Tool};

use crate::config::Model;
use dsh_plugin_api::kit::lenient::is_object_text;
use dsh_plugin_api::kit::names;

/// Room that is left between the estimated prompt and the end of the window, in tokens.
const SAFETY_TOKENS: u64 = 4096;
/// What an image counts in the estimate, in UTF-16 units: as much as a page of text.
pub(crate) const IMAGE_SIZE: usize = 4800;

/// The output limit in tokens: what the request or the model says, cut to what fits the window beside the prompt.
/// `sizes` are those of the messages, the system prompt among them, in UTF-16 units; four make a token.
pub(crate) fn output_limit(
    request: &Request,
    model: &Model,
    sizes: impl Iterator<Item = usize>,
    tools: &[&Tool],
) -> Option<u64> {
    let wanted = request.max_tokens.or(model.max_tokens).filter(|limit| *limit > 0)?;
    Some(within_window(wanted, model, sizes, tools))
}

/// A limit cut to what fits the model's window beside the prompt; see [`output_limit`].
pub(crate) fn within_window(wanted: u64, model: &Model, sizes: impl Iterator<Item = usize>, tools: &[&Tool]) -> u64 {
    let Some(window) = model.context_window.filter(|window| *window > 0) else { return wanted };
    let tokens = |characters: usize| characters.div_ceil(4) as u64;
    let prompt: u64 = sizes.map(tokens).sum();
    let tools = if tools.is_empty() { 0 } else { tokens(size(&compact(&raw(tools)))) };
    let room = window.saturating_sub(prompt).saturating_sub(tools).saturating_sub(SAFETY_TOKENS);
    wanted.min(room.max(1))
}

/// Size of a text for the estimate, in UTF-16 units.
pub(crate) fn size(text: &str) -> usize {
    text.encode_utf16().count()
}

/// JSON without the white space between its tokens, so that the estimate does not depend on who wrote a schema.
fn compact(json: &Raw) -> String {
    serde_json::from_str::<serde_json::Value>(json.get()).map_or_else(|_| json.get().to_owned(), |v| v.to_string())
}

/// Tools with a legal name; of several with the same name the first, since servers refuse a list in which one repeats.
pub(crate) fn offered(tools: &[Tool]) -> Vec<&Tool> {
    let mut names = BTreeSet::new();
    tools.iter().filter(|tool| names::is_legal(&tool.name) && names.insert(tool.name.as_str())).collect()
}

/// Headers of a request for a stream, with the credential as a bearer token where the route names one.
pub(crate) fn bearer(credential: Option<&str>) -> Vec<HttpHeader> {
    headers("authorization", "Bearer ", credential)
}

/// Headers of a request for a stream, with the credential after `prefix` under a name of the provider's own.
pub(crate) fn headers(name: &str, prefix: &str, credential: Option<&str>) -> Vec<HttpHeader> {
    let mut headers = vec![header("accept", "text/event-stream, application/json")];
    if let Some(reference) = credential {
        let value = HeaderValue::Credential { reference: reference.to_owned(), prefix: prefix.to_owned() };
        headers.push(HttpHeader { name: name.to_owned(), value });
    }
    headers
}

/// The arguments of a call in the history as the JSON text of an object, lone surrogates replaced; blank stands for
/// `{}`. `None` for what is no object: it is never sent.
pub(crate) fn arguments(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some("{}".to_owned());
    }
    is_object_text(text).then(|| replace_lone_surrogates(text).into_owned())
}
