//! What a server of this wire does in its own way: the manifest's flags, else what is known of the provider by the
//! name of its route or its host.

use dsh_plugin_api::kit::endpoint::Endpoint;

use crate::config::{CacheRetention, Model, Provider};

/// Providers that are known to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    OpenAi,
    Xai,
    Copilot,
    Other,
}

/// Route names and domains by provider.
const KNOWN: [(Known, &[&str], &[&str]); 3] = [
    (Known::OpenAi, &["openai"], &["api.openai.com"]),
    (Known::Xai, &["xai"], &["x.ai"]),
    (Known::Copilot, &["github-copilot"], &["githubcopilot.com"]),
];

impl Known {
    /// The host decides before the name: a route may have any name.
    fn of(route: &str, endpoint: &Endpoint) -> Self {
        let by_host = KNOWN.iter().find(|(_, _, domains)| domains.iter().any(|domain| endpoint.is_at(domain)));
        let by_name = || KNOWN.iter().find(|(_, names, _)| names.contains(&route));
        by_host.or_else(by_name).map_or(Self::Other, |(known, ..)| *known)
    }
}

/// What one model of one route takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a property of its own of a server")]
pub(super) struct Dialect {
    /// The system prompt of a thinking model has the role `developer`.
    pub developer_role: bool,
    /// Tools carry `strict: false`. Without it OpenAI makes every parameter required, as strict mode wants.
    pub strict_mode: bool,
    /// `reasoning` may say that thinking is off.
    pub off_by_effort: bool,
    /// Encrypted reasoning is asked for also when thinking is off, since the model thinks all the same.
    pub always_encrypted: bool,
    /// `prompt_cache_retention: "24h"` is sent.
    pub long_retention: bool,
    /// `prompt_cache_options: {mode: explicit}` is sent, so that nothing is cached unasked.
    pub explicit_cache: bool,
}

impl Dialect {
    /// The dialect of a model: its flags, else what is known of the provider.
    pub fn of(route: &str, provider: &Provider, endpoint: &Endpoint, model: &Model) -> Self {
        let known = Known::of(route, endpoint);
        let compat = &model.compat;
        Self {
            developer_role: compat.supports_developer_role.unwrap_or(true),
            strict_mode: compat.supports_strict_mode.unwrap_or(known == Known::OpenAi),
            off_by_effort: known != Known::Copilot,
            always_encrypted: known == Known::Xai,
            long_retention: provider.cache_retention == CacheRetention::Long
                && compat.supports_long_cache_retention.unwrap_or(true),
            explicit_cache: provider.cache_retention == CacheRetention::None
                && compat.supports_explicit_prompt_cache_mode.unwrap_or(false),
        }
    }
}
