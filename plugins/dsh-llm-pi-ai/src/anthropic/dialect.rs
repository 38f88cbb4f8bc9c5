//! What a server of this wire does in its own way: the manifest's flags. Where a flag is not set, a server is taken
//! for Anthropic itself.

use crate::cache::CacheControl;
use crate::config::{CacheRetention, Model, Provider};

/// The dialect of one model of one route.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    /// The value of `cache_control`, where marks are wanted.
    pub cache_control: Option<CacheControl>,
    /// Tools may be marked too.
    pub cache_control_on_tools: bool,
    /// Tools may carry `eager_input_streaming`; else a beta header asks for the same.
    pub eager_input_streaming: bool,
    /// Thinking is adaptive, with an effort in place of a budget.
    pub adaptive_thinking: bool,
    /// `temperature` may be sent.
    pub temperature: bool,
    /// Unsigned thinking goes back with an empty signature.
    pub empty_signature: bool,
}

impl Dialect {
    /// The dialect of a model by its flags.
    pub fn of(provider: &Provider, model: &Model) -> Self {
        let compat = &model.compat;
        let long = compat.supports_long_cache_retention.unwrap_or(true);
        Self {
            cache_control: match provider.cache_retention {
                CacheRetention::None => None,
                CacheRetention::Long if long => Some(CacheControl::Long),
                CacheRetention::Short | CacheRetention::Long => Some(CacheControl::Short),
            },
            cache_control_on_tools: compat.supports_cache_control_on_tools.unwrap_or(true),
            eager_input_streaming: compat.supports_eager_tool_input_streaming.unwrap_or(true),
            adaptive_thinking: compat.force_adaptive_thinking.unwrap_or(false),
            temperature: compat.supports_temperature.unwrap_or(true),
            empty_signature: compat.allow_empty_signature.unwrap_or(false),
        }
    }
}
