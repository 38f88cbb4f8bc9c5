//! The adapter's part of the manifest: `[adapter.config.providers.<route>]`.
//!
//! Names and meanings are those of the pi-ai library, in `snake_case`. Every key of every wire is known here, so that
//! a typing error is reported with its place, and a flag that another wire reads does no harm.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use dsh_plugin_api::ConfigError;
use dsh_plugin_api::schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

pub use crate::presets::PresetName;

/// `[adapter.config]`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Config {
    /// Provider routes by name.
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderEntry>,
}

/// One provider route, complete: what the manifest says of it, over what its preset says.
#[derive(Debug, Clone)]
pub struct Provider {
    /// The wire that the provider speaks.
    pub api: ApiName,
    /// Absolute `http` or `https` URL; the path of the request is appended.
    pub base_url: String,
    /// Name of the credential, resolved by the host when a request goes out.
    pub credential: Option<String>,
    /// How long the provider should keep its prompt cache.
    pub cache_retention: CacheRetention,
    /// Models with known capacities; their flags stand over those of the route.
    pub models: Vec<Model>,
    /// The flags of a model that is not listed.
    pub compat: Compat,
    /// The preset that the route names.
    pub preset: Option<PresetName>,
}

/// One provider route as it stands in the manifest.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct ProviderEntry {
    /// A preset, which fills in whatever this route does not say. Without one, `api` and `base_url` are needed.
    #[serde(default)]
    pub provider: Option<PresetName>,
    /// The wire that the provider speaks.
    #[serde(default)]
    pub api: Option<ApiName>,
    /// Absolute `http` or `https` URL; the path of the request is appended.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Name of the credential, resolved by the host when a request goes out.
    #[serde(default)]
    pub credential: Option<String>,
    /// How long the provider should keep its prompt cache.
    #[serde(default)]
    pub cache_retention: CacheRetention,
    /// What the server does differently for every model. A flag of a model wins over it.
    #[serde(default)]
    pub compat: Compat,
    /// Models with known capacities. Other model ids are passed on with cautious defaults.
    #[serde(default)]
    pub models: Vec<Model>,
}

/// The wires that have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum ApiName {
    /// OpenAI Chat Completions and compatible servers.
    OpenaiCompletions,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Google Generative Language.
    GoogleGenerativeAi,
    /// Mistral.
    MistralConversations,
}

impl ApiName {
    /// The name in the manifest and in envelopes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenaiCompletions => "openai-completions",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::GoogleGenerativeAi => "google-generative-ai",
            Self::MistralConversations => "mistral-conversations",
        }
    }
}

/// How long the provider should keep its prompt cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum CacheRetention {
    /// No caching is asked for.
    None,
    /// The provider's default.
    #[default]
    Short,
    /// The provider's longest, where it is supported.
    Long,
}

/// A model of a route.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Model {
    /// Model id on the wire.
    pub id: String,
    /// Prompt and answer together, in tokens.
    #[serde(default)]
    pub context_window: Option<u64>,
    /// Output limit in tokens, sent when the request names none.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// A thinking model; only then are thinking fields sent.
    #[serde(default)]
    pub reasoning: bool,
    /// What the model takes; text alone when the list is empty.
    #[serde(default)]
    pub input: Vec<Input>,
    /// Wire spelling of a thinking level, or `false` for a level that the model does not support.
    #[serde(default)]
    pub thinking_level_map: BTreeMap<Level, LevelSpelling>,
    /// What the server does differently. A flag set here wins over what is detected.
    #[serde(default)]
    pub compat: Compat,
}

/// What a model takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum Input {
    /// Text.
    Text,
    /// Images.
    Image,
}

impl Input {
    /// The name in the manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
        }
    }
}

/// Thinking levels, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum Level {
    /// No thinking.
    Off,
    /// The least.
    Minimal,
    /// Little.
    Low,
    /// The usual.
    Medium,
    /// Much.
    High,
    /// More; supported only where it is mapped.
    Xhigh,
    /// The most; supported only where it is mapped.
    Max,
}

impl Level {
    /// Every level, in rising order.
    pub const ALL: [Self; 7] = [Self::Off, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The name in requests and in the manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// Value of a thinking level in `thinking_level_map`.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(crate = "dsh_plugin_api::schemars", untagged)]
pub enum LevelSpelling {
    /// How the wire spells it.
    Name(String),
    /// `false`: the model does not support it.
    Switch(bool),
}

impl<'de> Deserialize<'de> for LevelSpelling {
    /// Not derived, since an untagged enum does not say what it expects.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Spelling)
    }
}

struct Spelling;

impl Visitor<'_> for Spelling {
    type Value = LevelSpelling;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or `false`")
    }

    fn visit_bool<E: serde::de::Error>(self, switch: bool) -> Result<LevelSpelling, E> {
        Ok(LevelSpelling::Switch(switch))
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<LevelSpelling, E> {
        Ok(LevelSpelling::Name(name.to_owned()))
    }
}

/// What a server does differently from the provider that its wire is named after.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub struct Compat {
    /// Completions: `store` may be sent.
    pub supports_store: Option<bool>,
    /// Completions, Responses: the system prompt of a thinking model has the role `developer`.
    pub supports_developer_role: Option<bool>,
    /// Completions: `reasoning_effort` may be sent.
    pub supports_reasoning_effort: Option<bool>,
    /// Completions: `stream_options` may be sent.
    pub supports_usage_in_streaming: Option<bool>,
    /// Completions: name of the output limit.
    pub max_tokens_field: Option<MaxTokensField>,
    /// Completions: tool results carry the name of their tool.
    pub requires_tool_result_name: Option<bool>,
    /// Completions: an assistant sentence goes between a tool result and a user message.
    pub requires_assistant_after_tool_result: Option<bool>,
    /// Completions: thinking of the same model goes back as leading text of the answer.
    pub requires_thinking_as_text: Option<bool>,
    /// Completions: assistant messages without thinking carry an empty `reasoning_content`.
    pub requires_reasoning_content_on_assistant_messages: Option<bool>,
    /// Completions: the field in which reasoning goes back; without it, the field that it came in.
    pub reasoning_field: Option<ReasoningField>,
    /// Completions: user and assistant messages must alternate.
    pub strict_alternation: Option<bool>,
    /// Completions: longest id of a tool call, in characters; 64 unless the provider is known to take less.
    pub max_tool_call_id_length: Option<usize>,
    /// Completions: how thinking is switched.
    pub thinking_format: Option<ThinkingFormat>,
    /// Completions, format `chat-template`: constants, or tables `{ var, omit_when_off }`.
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// Completions: `tool_stream` is sent along with tools.
    pub zai_tool_stream: Option<bool>,
    /// Completions: sent verbatim as `provider`.
    pub open_router_routing: Option<Map<String, Value>>,
    /// Completions: marks for the prompt cache.
    pub cache_control_format: Option<CacheControlFormat>,
    /// Completions, Responses: tools carry `strict: false`.
    pub supports_strict_mode: Option<bool>,
    /// Completions, Responses, Anthropic: false makes `long` retention fall back to `short`.
    pub supports_long_cache_retention: Option<bool>,
    /// Responses: `prompt_cache_options` may be sent.
    pub supports_explicit_prompt_cache_mode: Option<bool>,
    /// Anthropic: adaptive thinking in place of a budget.
    pub force_adaptive_thinking: Option<bool>,
    /// Anthropic: `temperature` may be sent.
    pub supports_temperature: Option<bool>,
    /// Anthropic: unsigned thinking goes back with an empty signature.
    pub allow_empty_signature: Option<bool>,
    /// Anthropic: `eager_input_streaming` may be sent.
    pub supports_eager_tool_input_streaming: Option<bool>,
    /// Anthropic: tools may carry `cache_control`.
    pub supports_cache_control_on_tools: Option<bool>,
}

impl Compat {
    /// These flags, and those of `under` where there are none.
    pub(crate) fn over(self, under: &Self) -> Self {
        Self {
            supports_store: self.supports_store.or(under.supports_store),
            supports_developer_role: self.supports_developer_role.or(under.supports_developer_role),
            supports_reasoning_effort: self.supports_reasoning_effort.or(under.supports_reasoning_effort),
            supports_usage_in_streaming: self.supports_usage_in_streaming.or(under.supports_usage_in_streaming),
            max_tokens_field: self.max_tokens_field.or(under.max_tokens_field),
            requires_tool_result_name: self.requires_tool_result_name.or(under.requires_tool_result_name),
            requires_assistant_after_tool_result: self
                .requires_assistant_after_tool_result
                .or(under.requires_assistant_after_tool_result),
            requires_thinking_as_text: self.requires_thinking_as_text.or(under.requires_thinking_as_text),
            requires_reasoning_content_on_assistant_messages: self
                .requires_reasoning_content_on_assistant_messages
                .or(under.requires_reasoning_content_on_assistant_messages),
            reasoning_field: self.reasoning_field.or(under.reasoning_field),
            strict_alternation: self.strict_alternation.or(under.strict_alternation),
            max_tool_call_id_length: self.max_tool_call_id_length.or(under.max_tool_call_id_length),
            thinking_format: self.thinking_format.or(under.thinking_format),
            chat_template_kwargs: self.chat_template_kwargs.or_else(|| under.chat_template_kwargs.clone()),
            zai_tool_stream: self.zai_tool_stream.or(under.zai_tool_stream),
            open_router_routing: self.open_router_routing.or_else(|| under.open_router_routing.clone()),
            cache_control_format: self.cache_control_format.or(under.cache_control_format),
            supports_strict_mode: self.supports_strict_mode.or(under.supports_strict_mode),
            supports_long_cache_retention: self.supports_long_cache_retention.or(under.supports_long_cache_retention),
            supports_explicit_prompt_cache_mode: self
                .supports_explicit_prompt_cache_mode
                .or(under.supports_explicit_prompt_cache_mode),
            force_adaptive_thinking: self.force_adaptive_thinking.or(under.force_adaptive_thinking),
            supports_temperature: self.supports_temperature.or(under.supports_temperature),
            allow_empty_signature: self.allow_empty_signature.or(under.allow_empty_signature),
            supports_eager_tool_input_streaming: self
                .supports_eager_tool_input_streaming
                .or(under.supports_eager_tool_input_streaming),
            supports_cache_control_on_tools: self
                .supports_cache_control_on_tools
                .or(under.supports_cache_control_on_tools),
        }
    }
}

/// Name of the output limit on the completions wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum MaxTokensField {
    /// `max_tokens`
    MaxTokens,
    /// `max_completion_tokens`
    MaxCompletionTokens,
}

/// The field in which a completions dialect takes reasoning back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum ReasoningField {
    /// In none: reasoning is never sent back.
    None,
    /// `reasoning_content`
    ReasoningContent,
    /// `reasoning`
    Reasoning,
}

/// How thinking is switched on the completions wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum ThinkingFormat {
    /// `reasoning_effort`
    Openai,
    /// `thinking: {type}` and `reasoning_effort`
    Deepseek,
    /// `thinking: {type, clear_thinking}`
    Zai,
    /// `enable_thinking`
    Qwen,
    /// `chat_template_kwargs: {enable_thinking, preserve_thinking}`
    QwenChatTemplate,
    /// `chat_template_kwargs` as declared
    ChatTemplate,
    /// `reasoning: {effort}`
    Openrouter,
    /// `reasoning: {enabled}`
    Together,
    /// `thinking` with the level's name
    StringThinking,
    /// `reasoning: {effort}` for mapped levels
    AntLing,
}

/// Marks for the prompt cache on the completions wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "dsh_plugin_api::schemars")]
pub enum CacheControlFormat {
    /// `cache_control: {type: ephemeral}` on the system text, the last tool and the last message with text.
    Anthropic,
}

impl Provider {
    /// A listed model, or one with cautious defaults: no limits, no thinking, text alone.
    pub(crate) fn model(&self, id: &str) -> Cow<'_, Model> {
        match self.models.iter().find(|model| model.id == id) {
            Some(model) => Cow::Borrowed(model),
            None => Cow::Owned(Model { id: id.to_owned(), compat: self.compat.clone(), ..Model::default() }),
        }
    }

    /// Checks what the types cannot say. `route` is the route's name.
    ///
    /// # Errors
    ///
    /// Names the key.
    pub(crate) fn check(&self, route: &str) -> Result<(), ConfigError> {
        let at = |key: &str, message: String| Err(ConfigError::new(format!("providers.{route}{key}"), message));
        if route.is_empty() || route.contains('/') || route.contains(char::is_whitespace) {
            return at(
                "",
                format!("{route:?} cannot name a route: the name stands before the slash of provider/model"),
            );
        }
        if self.credential.as_deref().is_some_and(|name| name.trim().is_empty()) {
            return at(
                ".credential",
                "the reference is blank; leave the key out for a route without credential".into(),
            );
        }
        let short_ids = |compat: &Compat| compat.max_tool_call_id_length.is_some_and(|length| length < 8);
        if short_ids(&self.compat) {
            return at(".compat.max_tool_call_id_length", "ids need at least 8 characters".into());
        }
        for (position, model) in self.models.iter().enumerate() {
            let key = |name: &str| format!(".models[{position}].{name}");
            if model.id.trim().is_empty() {
                return at(&key("id"), "a model needs its id on the wire".into());
            }
            if self.models.iter().take(position).any(|other| other.id == model.id) {
                return at(&key("id"), format!("model {:?} is listed twice", model.id));
            }
            if model.thinking_level_map.values().any(|value| *value == LevelSpelling::Switch(true)) {
                return at(&key("thinking_level_map"), "a level is a string or false".into());
            }
            if short_ids(&model.compat) {
                return at(&key("compat.max_tool_call_id_length"), "ids need at least 8 characters".into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::{Adapter, schemars};
    use serde_json::json;

    use super::*;
    use crate::PiAi;

    fn provider(more: Value) -> Value {
        let mut provider =
            json!({"api": "openai-completions", "base_url": "https://api.x.test/v1", "credential": "KEY"});
        if let (Some(provider), Value::Object(more)) = (provider.as_object_mut(), more) {
            provider.extend(more);
        }
        provider
    }

    fn made(route: &str, more: Value) -> Result<PiAi, ConfigError> {
        PiAi::new(serde_json::from_value(json!({"providers": {route: provider(more)}})).unwrap())
    }

    #[test]
    fn a_configuration_becomes_routes() {
        let models = json!([{"id": "a/b", "context_window": 9, "max_tokens": 0, "reasoning": true}]);
        let routes = made("x", json!({"base_url": "https://API.x.test:8443/v1", "models": models})).unwrap().routes();
        let route = &routes[0];
        assert_eq!(route.origin.as_deref(), Some("https://api.x.test:8443"));
        assert_eq!((route.api.as_deref(), route.credential.as_deref()), (Some("openai-completions"), Some("KEY")));
        assert!(route.any_model);
        let model = &route.models[0];
        assert_eq!((model.id.as_str(), model.context_window, model.max_tokens), ("a/b", Some(9), None));
        assert_eq!(model.input, ["text"]);
    }

    #[test]
    fn every_refusal_names_the_key() {
        let model = |more: Value| json!({"models": [{"id": "a"}, more]});
        for (route, more, path, message) in [
            ("x", json!({"base_url": "api.x.test"}), "providers.x.base_url", "absolute http or https URL"),
            ("x", json!({"credential": " "}), "providers.x.credential", "blank"),
            ("a/b", json!({}), "providers.a/b", "cannot name a route"),
            ("x", model(json!({"id": ""})), "providers.x.models[1].id", "needs its id"),
            ("x", model(json!({"id": "a"})), "providers.x.models[1].id", "listed twice"),
            (
                "x",
                model(json!({"id": "b", "thinking_level_map": {"low": true}})),
                "providers.x.models[1].thinking_level_map",
                "a string or false",
            ),
            (
                "x",
                model(json!({"id": "b", "compat": {"max_tool_call_id_length": 7}})),
                "providers.x.models[1].compat.max_tool_call_id_length",
                "at least 8",
            ),
            (
                "x",
                json!({"compat": {"max_tool_call_id_length": 7}}),
                "providers.x.compat.max_tool_call_id_length",
                "at least 8",
            ),
            (
                "x",
                json!({"compat": {"chat_template_kwargs": {"k": {"var": "effort"}}}}),
                "providers.x.compat.chat_template_kwargs",
                "k.var is",
            ),
            (
                "x",
                model(json!({"id": "b", "compat": {"chat_template_kwargs": {"k": {"var": "effort"}}}})),
                "providers.x.models[1].compat.chat_template_kwargs",
                "k.var is",
            ),
        ] {
            let error = made(route, more).unwrap_err();
            assert_eq!(error.path, path);
            assert!(error.message.contains(message), "{error}");
        }
    }

    #[test]
    fn what_is_unknown_or_of_another_type_does_not_parse() {
        for (more, message) in [
            (json!({"api": "openai"}), "unknown variant `openai`, expected one of `openai-completions`"),
            (json!({"base_uri": "x"}), "unknown field `base_uri`"),
            (json!({"models": [{"id": "a", "thinking_level_map": {"huge": "x"}}]}), "unknown variant `huge`"),
            (json!({"models": [{"id": "a", "compat": {"supports_stores": true}}]}), "unknown field `supports_stores`"),
            (json!({"models": [{"context_window": 1}]}), "missing field `id`"),
            (json!({"cache_retention": "forever"}), "unknown variant `forever`"),
        ] {
            let config = json!({"providers": {"x": provider(more)}});
            let error = serde_json::from_value::<Config>(config).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn the_schema_lists_the_keys() {
        let schema = schemars::schema_for!(Config);
        let text = serde_json::to_string(&schema).unwrap();
        for key in ["base_url", "thinking_level_map", "reasoning_field", "max_tool_call_id_length", "ant-ling"] {
            assert!(text.contains(&format!("\"{key}\"")), "{key}");
        }
    }
}
