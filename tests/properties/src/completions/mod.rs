//! The wire `openai-completions`.

pub mod generate;

use proptest::prelude::*;

use crate::decoding::{Answer, Wire};
use crate::reference::{document, events, unescaped};

/// See the module.
#[derive(Debug)]
pub struct Completions;

impl Wire for Completions {
    const API: &'static str = "openai-completions";

    const WORDS: &'static [&'static str] = &[
        "data: [DONE]\n\n",
        "[DONE]",
        "\"finish_reason\":\"stop\"",
        "\"finish_reason\":null",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}",
        "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        "data: {\"error\":{\"message\":\"m\"}}\n\n",
        "event: error\n",
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}",
        "{\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}",
        "data: ",
        "\n\n",
        "\n",
        "\r",
        "\u{feff}",
        "\\ud83d",
        "\\ude00",
        "\"",
        "{",
        "}",
        "null",
    ];

    fn answers() -> BoxedStrategy<Answer> {
        generate::answers(&generate::DIALECT)
    }

    fn may_succeed(body: &[u8]) -> bool {
        may_succeed(body)
    }
}

/// A `finish_reason` that is a filled string, in an event or a document; or a document that parses, which needs none.
#[must_use]
pub fn may_succeed(body: &[u8]) -> bool {
    if let Some(document) = document(body) {
        return unescaped(&document).contains("choices");
    }
    let (events, open) = events(body);
    events.iter().chain(&open).any(|(_, data)| names_a_reason(&unescaped(data)))
}

/// True for `"finish_reason": "x`, with any white space.
fn names_a_reason(json: &str) -> bool {
    json.split("\"finish_reason\"").skip(1).any(|rest| {
        let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
        value.and_then(|value| value.strip_prefix('"')).is_some_and(|value| !value.starts_with('"'))
    })
}
