//! The wire `openai-completions`.

mod generate;
mod layout;

use proptest::prelude::*;

use crate::decoding::{Answer, Wire};
use crate::reference;

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
        prop_oneof![9 => generate::streams(), 1 => generate::documents()].boxed()
    }

    /// A `finish_reason` that is a filled string, in an event or a document; or a document that parses, which needs none.
    fn may_succeed(body: &[u8]) -> bool {
        let text = String::from_utf8_lossy(body);
        let document = text.trim_matches(|c: char| c == '\u{feff}' || c.is_ascii_whitespace());
        if document.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(document).is_ok() {
            return document.contains("choices") || document.contains("\\u");
        }
        let (events, open) = reference::events(body);
        events.iter().chain(&open).any(|(_, data)| names_a_reason(&unescaped(data)))
    }
}

/// True for `"finish_reason": "x`, with any white space.
fn names_a_reason(json: &str) -> bool {
    json.split("\"finish_reason\"").skip(1).any(|rest| {
        let value = rest.trim_start().strip_prefix(':').map(str::trim_start);
        value.and_then(|value| value.strip_prefix('"')).is_some_and(|value| !value.starts_with('"'))
    })
}

/// JSON text with the `\u` escapes of ASCII characters resolved, since a key may be written with them.
fn unescaped(json: &str) -> String {
    let mut parts = json.split("\\u");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let unit = part.get(..4).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match (unit.and_then(char::from_u32).filter(char::is_ascii), part.get(4..)) {
            (Some(c), Some(rest)) => {
                out.push(c);
                out.push_str(rest);
            }
            _ => {
                out.push_str("\\u");
                out.push_str(part);
            }
        }
    }
    out
}
