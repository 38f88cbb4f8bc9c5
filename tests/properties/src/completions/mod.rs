//! The wire `openai-completions`.

pub mod generate;

use proptest::prelude::*;

use crate::decoding::{Answer, Wire};
use crate::reference::{document, events, unescaped};
use crate::repeating::Events;

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

    const EVENTS: Events = Events {
        starts: &[
            r#"{"id":"r","model":"other","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"x","reasoning_details":[{"type":"reasoning.text","text":@,"index":0}]}}]}"#,
        ],
        pieces: &[
            r#"{"choices":[{"delta":{"content":@}}]}"#,
            r#"{"choices":[{"delta":{"content":@}}],"obfuscation":@}"#,
            r#"{"id":"r","model":@,"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"delta":{"content":@}}],"usage":{"prompt_tokens":#,"total_tokens":#,"completion_tokens":#}}"#,
            r#"{"choices":[{"delta":{"content":@},"usage":{"prompt_tokens":#}}],"usage":{"prompt_tokens":0,"num_cached_tokens":#}}"#,
            r#"{"choices":[{"delta":{"content":@}}],"usage":{"prompt_tokens":9,"cached_tokens":#,"prompt_tokens_details":{"cached_tokens":#,"cache_write_tokens":#},"completion_tokens_details":{"reasoning_tokens":#}}}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":@}]}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":@}]}]}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"thinking":@},{"text":@}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"x","refusal":@}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":@}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":@,"content":null}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":@,"content":"","reasoning_details":[{"type":"reasoning.text","text":@,"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"x","reasoning_details":[{"type":"reasoning.text","text":@,"total_tokens":#,"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":@,"reasoning_details":[{"type":"reasoning.text","text":"x","signature":@,"index":#}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.text","text":@,"signature":null}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.summary","summary":@,"text":"","id":@}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"x","reasoning_details":[{"type":"reasoning.encrypted","data":@,"index":0}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":@,"id":"c"}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":@}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":#,"function":{"arguments":@}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"id":@,"function":{"name":"g","arguments":@}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":@}}]}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":@}},{"index":1,"function":{"arguments":@}}]}}]}"#,
            r#"{"choices":[{"delta":{"function_call":{"name":"g","arguments":@}}}]}"#,
        ],
        ends: &[
            r#"{"choices":[{"message":{"content":@}}]}"#,
            r#"{"choices":[{"delta":{"content":"x"},"finish_reason":@}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":#,"completion_tokens":#}}"#,
            r#"{"error":@,"choices":[{"delta":{"content":"x"}}]}"#,
            "[DONE]",
        ],
        names: &["error", "message"],
    };

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
