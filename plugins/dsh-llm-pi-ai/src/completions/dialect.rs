//! What a server of this wire does in its own way: the manifest's flags, else what is known of the provider by the
//! name of its route or its host. An unknown server is taken for the provider that invented the wire, short of what
//! only that provider has.

use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::ids::IdRule;

use crate::cache::CacheControl;
use crate::config::{
    CacheControlFormat, CacheRetention, MaxTokensField, Model, Provider, ReasoningField, ThinkingFormat,
};

/// Providers that are known to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    OpenAi,
    DeepSeek,
    OpenRouter,
    Xai,
    Zai,
    Moonshot,
    Together,
    Chutes,
    Nvidia,
    Cerebras,
    AntLing,
    CloudflareGateway,
    CloudflareWorkers,
    OpenCode,
    OpenCodeGo,
    Mistral,
    Other,
}

/// Route names and domains by provider.
const KNOWN: [(Known, &[&str], &[&str]); 16] = [
    (Known::OpenAi, &["openai"], &["api.openai.com"]),
    (Known::DeepSeek, &["deepseek"], &["deepseek.com"]),
    (Known::OpenRouter, &["openrouter"], &["openrouter.ai"]),
    (Known::Xai, &["xai"], &["x.ai"]),
    (Known::Zai, &["zai", "z-ai", "zai-coding-cn", "bigmodel"], &["z.ai", "bigmodel.cn"]),
    (Known::Moonshot, &["moonshot", "moonshotai", "moonshotai-cn"], &["moonshot.ai", "moonshot.cn"]),
    (Known::Together, &["together"], &["together.ai", "together.xyz"]),
    (Known::Chutes, &["chutes"], &["chutes.ai"]),
    (Known::Nvidia, &["nvidia"], &["nvidia.com"]),
    (Known::Cerebras, &["cerebras"], &["cerebras.ai"]),
    (Known::AntLing, &["ant-ling"], &["ant-ling.com"]),
    (Known::CloudflareGateway, &["cloudflare-ai-gateway"], &["gateway.ai.cloudflare.com"]),
    (Known::CloudflareWorkers, &["cloudflare-workers-ai"], &["api.cloudflare.com"]),
    (Known::OpenCode, &["opencode"], &["opencode.ai"]),
    // At the same host.
    (Known::OpenCodeGo, &["opencode-go"], &[]),
    (Known::Mistral, &["mistral"], &["mistral.ai"]),
];

impl Known {
    /// The host decides before the name: a route may have any name.
    fn of(route: &str, endpoint: &Endpoint) -> Self {
        let by_host = KNOWN.iter().find(|(_, _, domains)| domains.iter().any(|domain| endpoint.is_at(domain)));
        by_host.map_or_else(|| Self::named(route), |(known, ..)| *known)
    }

    /// By the name alone, for what holds only where somebody has named the provider.
    fn named(route: &str) -> Self {
        let by_name = KNOWN.iter().find(|(_, names, _)| names.contains(&route));
        by_name.map_or(Self::Other, |(known, ..)| *known)
    }
}

/// What one model of one route takes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own in the manifest")]
pub(super) struct Dialect {
    pub store: bool,
    pub developer_role: bool,
    pub reasoning_effort: bool,
    pub usage_in_streaming: bool,
    pub max_tokens_field: &'static str,
    pub tool_result_name: bool,
    pub assistant_after_tool_result: bool,
    pub thinking_as_text: bool,
    pub empty_reasoning_content: bool,
    pub reasoning_field: Option<ReasoningField>,
    pub strict_alternation: bool,
    pub ids: IdRule,
    pub thinking_format: ThinkingFormat,
    pub tool_stream: bool,
    pub strict_mode: bool,
    /// The value of `cache_control`, where marks are wanted.
    pub cache_control: Option<CacheControl>,
    /// `prompt_cache_retention: "24h"` is sent.
    pub long_retention: bool,
}

impl Dialect {
    /// The dialect of a model: its flags, else what is known of the provider.
    pub fn of(route: &str, provider: &Provider, endpoint: &Endpoint, model: &Model) -> Self {
        let known = Known::of(route, endpoint);
        let named = Known::named(route);
        let compat = &model.compat;
        let is = |list: &[Known]| list.contains(&known);
        let long = provider.cache_retention == CacheRetention::Long
            && compat.supports_long_cache_retention.unwrap_or(!is(&[
                Known::Together,
                Known::CloudflareGateway,
                Known::CloudflareWorkers,
                Known::Nvidia,
                Known::AntLing,
            ]));
        let wants_marks = compat.cache_control_format == Some(CacheControlFormat::Anthropic)
            || (known == Known::OpenRouter && named == known && model.id.starts_with("anthropic/"));
        let marks = wants_marks && provider.cache_retention != CacheRetention::None;
        let max_tokens = is(&[
            Known::DeepSeek,
            Known::Zai,
            Known::Moonshot,
            Known::Together,
            Known::Chutes,
            Known::Nvidia,
            Known::AntLing,
            Known::CloudflareGateway,
        ]);
        let empty_reasoning_content =
            compat.requires_reasoning_content_on_assistant_messages.unwrap_or(known == Known::DeepSeek);
        Self {
            // Gateways before other providers refuse it (LiteLLM), and nobody else keeps answers.
            store: compat.supports_store.unwrap_or(is(&[Known::OpenAi, Known::OpenRouter])),
            developer_role: compat.supports_developer_role.unwrap_or(known == Known::OpenAi),
            reasoning_effort: compat.supports_reasoning_effort.unwrap_or(!is(&[
                Known::Xai,
                Known::Zai,
                Known::Moonshot,
                Known::Together,
                Known::Nvidia,
                Known::AntLing,
                Known::CloudflareGateway,
            ])),
            usage_in_streaming: compat.supports_usage_in_streaming.unwrap_or(true),
            max_tokens_field: match compat.max_tokens_field {
                Some(MaxTokensField::MaxTokens) => "max_tokens",
                Some(MaxTokensField::MaxCompletionTokens) => "max_completion_tokens",
                None if max_tokens => "max_tokens",
                None => "max_completion_tokens",
            },
            tool_result_name: compat.requires_tool_result_name.unwrap_or(false),
            assistant_after_tool_result: compat.requires_assistant_after_tool_result.unwrap_or(false),
            thinking_as_text: compat.requires_thinking_as_text.unwrap_or(false),
            empty_reasoning_content,
            // A server that insists on the field takes reasoning in it, whatever field it came in.
            // OpenCode Go sends it in another field than it takes it back in.
            reasoning_field:
                compat
                    .reasoning_field
                    .or((empty_reasoning_content || named == Known::OpenCodeGo)
                        .then_some(ReasoningField::ReasoningContent)),
            strict_alternation: compat.strict_alternation.unwrap_or(false),
            ids: match (known, compat.max_tool_call_id_length) {
                (Known::Mistral, _) => IdRule::Mistral,
                (_, Some(max)) => IdRule::Limit(max),
                (Known::OpenAi, None) => IdRule::OpenAiCompletions,
                (_, None) => IdRule::Common,
            },
            thinking_format: compat.thinking_format.unwrap_or(match known {
                Known::DeepSeek => ThinkingFormat::Deepseek,
                Known::Zai => ThinkingFormat::Zai,
                Known::Together => ThinkingFormat::Together,
                Known::AntLing => ThinkingFormat::AntLing,
                Known::OpenRouter => ThinkingFormat::Openrouter,
                _ => ThinkingFormat::Openai,
            }),
            tool_stream: compat.zai_tool_stream.unwrap_or(false),
            strict_mode: compat.supports_strict_mode.unwrap_or(false),
            cache_control: marks.then_some(if long { CacheControl::Long } else { CacheControl::Short }),
            long_retention: long,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dialect(route: &str, base_url: &str, model: &str, compat: serde_json::Value) -> Dialect {
        let entry: crate::config::ProviderEntry = serde_json::from_value(json!({
            "api": "openai-completions", "base_url": base_url, "cache_retention": "long",
            "models": [{"id": model, "compat": compat}],
        }))
        .unwrap();
        let provider = entry.complete(route).unwrap();
        Dialect::of(route, &provider, &Endpoint::parse(base_url).unwrap(), &provider.models[0])
    }

    #[test]
    fn what_is_known_of_a_provider_is_found_by_route_or_host() {
        let test = "https://gateway.test/v1";
        for (route, base_url, limit, format, effort, developer) in [
            ("openai", test, "max_completion_tokens", ThinkingFormat::Openai, true, true),
            ("x", "https://api.openai.com/v1", "max_completion_tokens", ThinkingFormat::Openai, true, true),
            ("openai-eu", test, "max_completion_tokens", ThinkingFormat::Openai, true, false),
            ("local", test, "max_completion_tokens", ThinkingFormat::Openai, true, false),
            ("deepseek", test, "max_tokens", ThinkingFormat::Deepseek, true, false),
            ("x", "https://api.deepseek.com", "max_tokens", ThinkingFormat::Deepseek, true, false),
            ("openrouter", test, "max_completion_tokens", ThinkingFormat::Openrouter, true, false),
            ("zai", test, "max_tokens", ThinkingFormat::Zai, false, false),
            ("x", "https://open.bigmodel.cn/api", "max_tokens", ThinkingFormat::Zai, false, false),
            ("together", test, "max_tokens", ThinkingFormat::Together, false, false),
            ("ant-ling", test, "max_tokens", ThinkingFormat::AntLing, false, false),
            ("moonshotai", test, "max_tokens", ThinkingFormat::Openai, false, false),
            ("nvidia", test, "max_tokens", ThinkingFormat::Openai, false, false),
            ("chutes", test, "max_tokens", ThinkingFormat::Openai, true, false),
            ("cloudflare-ai-gateway", test, "max_tokens", ThinkingFormat::Openai, false, false),
            ("xai", test, "max_completion_tokens", ThinkingFormat::Openai, false, false),
        ] {
            let found = dialect(route, base_url, "m", json!({}));
            assert_eq!(
                (found.max_tokens_field, found.thinking_format, found.reasoning_effort, found.developer_role),
                (limit, format, effort, developer),
                "{route} {base_url}"
            );
        }
    }

    #[test]
    fn an_unknown_server_is_not_told_what_to_keep() {
        let unknown = "http://127.0.0.1:4000/v1";
        for (route, base_url, compat, store) in [
            ("openai", unknown, json!({}), true),
            ("x", "https://api.openai.com/v1", json!({}), true),
            ("openrouter", unknown, json!({}), true),
            ("litellm", unknown, json!({}), false),
            ("litellm", unknown, json!({"supports_store": true}), true),
            ("openai", unknown, json!({"supports_store": false}), false),
        ] {
            assert_eq!(dialect(route, base_url, "m", compat).store, store, "{route} {base_url}");
        }
    }

    #[test]
    fn reasoning_goes_back_in_the_field_that_a_provider_is_known_to_take() {
        let test = "https://gateway.test/v1";
        for (route, compat, field) in [
            ("local", json!({}), None),
            ("deepseek", json!({}), Some(ReasoningField::ReasoningContent)),
            ("opencode-go", json!({}), Some(ReasoningField::ReasoningContent)),
            ("opencode-go", json!({"reasoning_field": "none"}), Some(ReasoningField::None)),
        ] {
            assert_eq!(dialect(route, test, "m", compat.clone()).reasoning_field, field, "{route} {compat}");
        }
    }

    #[test]
    fn a_flag_of_the_manifest_wins() {
        let compat = json!({"max_tokens_field": "max_completion_tokens", "supports_developer_role": true,
            "thinking_format": "qwen", "requires_reasoning_content_on_assistant_messages": false});
        let found = dialect("deepseek", "https://api.deepseek.com", "m", compat);
        assert_eq!(found.max_tokens_field, "max_completion_tokens");
        assert!(found.developer_role && !found.empty_reasoning_content);
        assert_eq!(found.thinking_format, ThinkingFormat::Qwen);
    }

    #[test]
    fn cache_marks_are_for_anthropic_models_of_openrouter() {
        let test = "https://gateway.test/v1";
        assert_eq!(dialect("openrouter", test, "anthropic/x", json!({})).cache_control, Some(CacheControl::Long));
        assert_eq!(dialect("openrouter", test, "google/x", json!({})).cache_control, None);
        let short = json!({"cache_control_format": "anthropic", "supports_long_cache_retention": false});
        assert_eq!(dialect("local", test, "m", short).cache_control, Some(CacheControl::Short));
    }
}
