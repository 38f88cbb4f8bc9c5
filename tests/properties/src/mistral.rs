//! The wire `mistral-conversations`: its answers are those of the completions wire, with thoughts as parts of the
//! content and ids of nine characters.

use proptest::prelude::*;

use crate::completions::generate::{self, Dialect, Meaning, Part, indexed_calls, noise};
use crate::completions::{self, Completions};
use crate::decoding::{Answer, Wire};
use crate::material::{said, sent};
use crate::repeating::Events;

/// See the module.
#[derive(Debug)]
pub struct Mistral;

impl Wire for Mistral {
    const API: &'static str = "mistral-conversations";

    const WORDS: &'static [&'static str] = <Completions as Wire>::WORDS;

    const EVENTS: Events = <Completions as Wire>::EVENTS;

    fn answers() -> BoxedStrategy<Answer> {
        generate::answers(&DIALECT)
    }

    fn may_succeed(body: &[u8]) -> bool {
        completions::may_succeed(body)
    }
}

const DIALECT: Dialect = Dialect {
    parts,
    reasons: &[
        ("stop", Meaning::Done),
        ("stop", Meaning::Done),
        ("tool_calls", Meaning::Done),
        ("length", Meaning::Limit),
        ("model_length", Meaning::Limit),
        ("error", Meaning::Failed),
        ("odd", Meaning::Unknown),
    ],
    errors: &[
        ("", "{\"object\":\"error\",\"message\":\"gone\",\"type\":\"service_unavailable\",\"code\":\"3505\"}"),
        ("", "{\"error\":{\"message\":\"gone\"}}"),
        ("error", "{\"message\":\"gone\"}"),
    ],
    id: |number| format!("Call{number:05}"),
    any_document_is_whole: true,
    reasoning: |runs| {
        let thought = |text: String| format!(r#""thinking":[{{"type":"text","text":{}}}]"#, sent(&text));
        runs.blocks(false).map(thought).collect()
    },
};

fn parts() -> BoxedStrategy<Part> {
    prop_oneof![
        6 => said().prop_map(Part::Text),
        2 => said().prop_map(Part::TextParts),
        4 => said().prop_map(Part::ThinkingParts),
        3 => indexed_calls(),
        3 => noise(),
    ]
    .boxed()
}
