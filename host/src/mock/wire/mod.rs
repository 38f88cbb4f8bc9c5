//! Wires that a described answer can be spelled in. A wire is one file: `spell` turns the description into the
//! pieces of a body as that provider would send them.

mod completions;

use dsh_plugin_api::json::{self, Object};

use super::script::Described;

/// A wire, told by the path of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// OpenAI-compatible chat completions.
    Completions,
}

/// What an answer takes from its request.
#[derive(Debug)]
pub(super) struct Ask {
    /// The request's body.
    pub body: Object,
    /// Number of the request, from 1.
    pub number: usize,
    /// Length of the body in bytes.
    pub length: usize,
}

/// A body in pieces.
#[derive(Debug)]
pub(super) struct Reply {
    pub content_type: &'static str,
    pub pieces: Vec<String>,
}

impl Ask {
    /// Reads the request's body, which every wire has as a JSON object.
    pub fn new(body: &[u8], number: usize) -> Result<Self, String> {
        let object = json::from_slice(body).map_err(|e| format!("the request's body is not a JSON object: {e}"))?;
        Ok(Self { body: object, number, length: body.len() })
    }
}

impl Wire {
    const ALL: [Self; 1] = [Self::Completions];

    /// The end of the path that requests of this wire go to.
    const fn path(self) -> &'static str {
        match self {
            Self::Completions => "/chat/completions",
        }
    }

    /// The wire of a request path.
    pub fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        Self::ALL.into_iter().find(|wire| path.ends_with(wire.path()))
    }

    /// The paths of all wires, for messages.
    pub fn paths() -> String {
        Self::ALL.map(|wire| format!("…{}", wire.path())).join(", ")
    }

    /// An answer in this wire.
    pub fn spell(self, answer: &Described, ask: &Ask) -> Reply {
        match self {
            Self::Completions => completions::spell(answer, ask),
        }
    }

    /// Body of `GET …/models`.
    pub fn models(ids: &[String]) -> String {
        let model = |id: &String| serde_json::json!({ "id": id, "object": "model", "created": 0, "owned_by": "mock" });
        serde_json::json!({ "object": "list", "data": ids.iter().map(model).collect::<Vec<_>>() }).to_string()
    }
}

/// Text in pieces of so many characters.
fn split_chars(text: &str, chars: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chars).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// A rough count of tokens for text of that many bytes, for answers whose script gives none.
const fn estimate(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}
