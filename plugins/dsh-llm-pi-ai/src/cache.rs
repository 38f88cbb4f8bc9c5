//! Marks for the prompt cache, in the form that Anthropic takes and some servers of other wires pass on to it.

use serde_json::{Value, json};

/// How a mark for the prompt cache looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheControl {
    /// `{type: ephemeral}`
    Short,
    /// `{type: ephemeral, ttl: "1h"}`
    Long,
}

impl CacheControl {
    /// The value of `cache_control`.
    pub fn json(self) -> Value {
        match self {
            Self::Short => json!({"type": "ephemeral"}),
            Self::Long => json!({"type": "ephemeral", "ttl": "1h"}),
        }
    }
}
