//! DeepSeek's own API: answers like those of the completions wire, in the few forms that this one provider writes.

use proptest::prelude::*;

use crate::completions::generate::{self, Dialect, Meaning, Part, indexed_calls, noise};
use crate::completions::{self, Completions};
use crate::decoding::{Answer, Wire};
use crate::material::{said, sent};
use crate::repeating::Events;

/// See the module.
#[derive(Debug)]
pub struct OwnApi;

impl Wire for OwnApi {
    const API: &'static str = "deepseek";

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
        ("\\u0073top", Meaning::Done),
        ("length", Meaning::Limit),
        ("content_filter", Meaning::Filtered),
        ("insufficient_system_resource", Meaning::Failed),
        ("eos_token_found", Meaning::Unknown),
    ],
    errors: &[
        ("", "{\"error\":{\"message\":\"gone\",\"type\":\"server_error\",\"code\":null}}"),
        ("", "{\"error\":\"gone\"}"),
        ("error", "{\"message\":\"gone\"}"),
    ],
    id: |number| format!("call_{number}_ds"),
    any_document_is_whole: false,
    reasoning: |runs| {
        let blocks: Vec<_> = runs.blocks(false).collect();
        let whole = (!blocks.is_empty()).then(|| format!(r#""reasoning_content":{}"#, sent(&blocks.join("\n"))));
        whole.into_iter().collect()
    },
};

fn parts() -> BoxedStrategy<Part> {
    prop_oneof![
        6 => said().prop_map(Part::Text),
        5 => said().prop_map(|said| Part::Reasoning("reasoning_content", said)),
        3 => indexed_calls(),
        3 => noise(),
    ]
    .boxed()
}
