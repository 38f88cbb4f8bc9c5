//! What the requests of every wire share: the output limit, the tools that can be offered, the headers.

use std::collections::BTreeSet;

use super::lenient::is_object_text;
use super::names;
use crate::adapter::header;
use crate::json::{Raw, raw, replace_lone_surrogates};
use crate::vocab::{HeaderValue, HttpHeader, Tool};

/// Room that is left between the estimated prompt and the end of the window, in tokens.
const SAFETY_TOKENS: u64 = 4096;
/// What an image counts in the estimate, in UTF-16 units: as much as a page of text.
pub const IMAGE_SIZE: usize = 4800;

/// A limit in tokens cut to what fits a context window beside the prompt, at least 1.
///
/// `window` is in tokens; without one nothing is cut. `sizes` are those of the messages, the system prompt among them,
/// in UTF-16 units, of which four make a token.
#[must_use]
pub fn within_window(wanted: u64, window: Option<u64>, sizes: impl Iterator<Item = usize>, tools: &[&Tool]) -> u64 {
    let Some(window) = window.filter(|window| *window > 0) else { return wanted };
    let tokens = |characters: usize| characters.div_ceil(4) as u64;
    let prompt: u64 = sizes.map(tokens).sum();
    let tools = if tools.is_empty() { 0 } else { tokens(size(&compact(&raw(tools)))) };
    let room = window.saturating_sub(prompt).saturating_sub(tools).saturating_sub(SAFETY_TOKENS);
    wanted.min(room.max(1))
}

/// Size of a text for the estimate, in UTF-16 units.
pub fn size(text: &str) -> usize {
    // Every character is one unit, and two where it takes four bytes in UTF-8.
    let units = |byte: u8| usize::from(byte & 0xC0 != 0x80) + usize::from(byte >= 0xF0);
    text.bytes().map(units).sum()
}

/// JSON without the white space between its tokens, so that the estimate does not depend on who wrote a schema.
fn compact(json: &Raw) -> String {
    serde_json::from_str::<serde_json::Value>(json.get()).map_or_else(|_| json.get().to_owned(), |v| v.to_string())
}

/// Tools with a legal name; of several with the same name the first, since servers refuse a list in which one repeats.
pub fn offered(tools: &[Tool]) -> Vec<&Tool> {
    let mut names = BTreeSet::new();
    tools.iter().filter(|tool| names::is_legal(&tool.name) && names.insert(tool.name.as_str())).collect()
}

/// Headers of a request for a stream, with the credential as a bearer token where the route names one.
pub fn bearer(credential: Option<&str>) -> Vec<HttpHeader> {
    headers("authorization", "Bearer ", credential)
}

/// Headers of a request for a stream, with the credential after `prefix` under a name of the provider's own.
pub fn headers(name: &str, prefix: &str, credential: Option<&str>) -> Vec<HttpHeader> {
    let mut headers = vec![header("accept", "text/event-stream, application/json")];
    if let Some(reference) = credential {
        let value = HeaderValue::Credential { reference: reference.to_owned(), prefix: prefix.to_owned() };
        headers.push(HttpHeader { name: name.to_owned(), value });
    }
    headers
}

/// The arguments of a call in the history as the JSON text of an object, lone surrogates replaced; blank stands for
/// `{}`. `None` for what is no object: it is never sent.
pub fn arguments(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some("{}".to_owned());
    }
    is_object_text(text).then(|| replace_lone_surrogates(text).into_owned())
}
