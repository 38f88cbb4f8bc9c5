//! Presets: what `provider = "NAME"` fills in of a route.
//!
//! The data stand in `presets.toml`, which is compiled in and read once. Whatever the route says itself wins, and the
//! name of the preset stands for the name of the route where a dialect is detected, so a route may have any name and
//! may go through a proxy.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use dsh_plugin_api::ConfigError;
use dsh_plugin_api::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::config::{ApiName, Compat, Provider, ProviderEntry};

/// The presets by name. A test reads them, so that no build ships with a text that cannot be read.
static PRESETS: LazyLock<Result<BTreeMap<String, Preset>, String>> =
    LazyLock::new(|| toml::from_str(include_str!("../presets.toml")).map_err(|error| error.to_string()));

/// What is known of a provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preset {
    api: ApiName,
    base_url: BTreeMap<ApiName, String>,
    credential: Option<String>,
    #[serde(default)]
    compat: Compat,
}

/// The names of the presets.
static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| PRESETS.iter().flatten().map(|(name, _)| name.as_str()).collect());

/// Names in backquotes.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The name of a preset that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetName(String);

impl PresetName {
    /// The name in the manifest.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PresetName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        match PRESETS.as_ref() {
            Ok(presets) if presets.contains_key(&name) => Ok(Self(name)),
            Ok(_) => Err(D::Error::unknown_variant(&name, &NAMES)),
            Err(error) => Err(D::Error::custom(format!("the presets of this build cannot be read: {error}"))),
        }
    }
}

impl JsonSchema for PresetName {
    fn schema_name() -> Cow<'static, str> {
        "PresetName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A provider whose endpoint, wire, credential and dialect are known.",
            "enum": *NAMES,
        })
    }
}

impl ProviderEntry {
    /// The route of that name, with its preset's words where it has none itself.
    ///
    /// # Errors
    ///
    /// A key that neither the route nor a preset says.
    pub(crate) fn complete(self, route: &str) -> Result<Provider, ConfigError> {
        let Self { provider, api, base_url, credential, cache_retention, compat, models } = self;
        let missing = |key: &str, remedy: String| ConfigError::missing(format!("providers.{route}"), key, remedy);
        let unsaid = |key| {
            let names = listed(NAMES.iter().copied());
            missing(key, format!("set `api` and `base_url`, or `provider` to one of {names}"))
        };
        let preset = provider.as_ref().and_then(|name| PRESETS.as_ref().ok()?.get(name.as_str()));
        let Some(api) = api.or_else(|| preset.map(|preset| preset.api)) else {
            return Err(unsaid("api"));
        };
        // A key is for the place that its preset names; whoever sends it elsewhere says so.
        let credential = credential.or_else(|| preset.filter(|_| base_url.is_none())?.credential.clone());
        let known = || preset.and_then(|preset| preset.base_url.get(&api)).cloned();
        let base_url = base_url.or_else(known).ok_or_else(|| match (&provider, preset) {
            (Some(name), Some(preset)) => {
                let known = listed(preset.base_url.keys().map(|api| api.name()));
                missing(
                    "base_url",
                    format!("of the preset `{}` only the endpoints for {known} are known", name.as_str()),
                )
            }
            _ => unsaid("base_url"),
        })?;
        let compat = preset.map_or_else(|| compat.clone(), |preset| compat.clone().over(&preset.compat));
        let models = models.into_iter().map(|mut model| {
            model.compat = model.compat.over(&compat);
            model
        });
        let models = models.collect();
        Ok(Provider { api, base_url, credential, cache_retention, models, compat, preset: provider })
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::{Exchange, HeaderValue, Request, Target};
    use dsh_plugin_api::{Adapter, schemars};
    use serde_json::{Value, json};

    use super::*;
    use crate::PiAi;

    fn provider(entry: Value) -> Result<Provider, String> {
        let entry: ProviderEntry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
        entry.complete("x").map_err(|error| error.to_string())
    }

    /// What a route sends: URL, credential and body of a request for an unlisted model.
    fn sent(route: &str, entry: Value) -> (String, Option<String>, Value) {
        let config = json!({ "providers": { route: entry } });
        let adapter = PiAi::new(serde_json::from_value(config).unwrap()).unwrap();
        let request = Request { system: Some("s".into()), max_tokens: Some(9), ..Request::default() };
        let to = Target { provider: route.into(), model: "m".into() };
        let encoded = adapter.encode(&request, Vec::new(), &to).unwrap();
        let Exchange::Http(request) = encoded.exchange else { panic!("{route} is not asked over HTTP") };
        let credential = request.headers.iter().find_map(|header| match &header.value {
            HeaderValue::Credential { reference, .. } => Some(reference.clone()),
            HeaderValue::Text(_) => None,
        });
        (request.url, credential, serde_json::from_str(request.body.get()).unwrap())
    }

    #[test]
    fn every_preset_that_speaks_completions_sends_to_its_endpoint_in_its_dialect() {
        let limit = "max_tokens";
        let long_limit = "max_completion_tokens";
        // Name, URL without `/chat/completions`, the name of the output limit, whether `store` is sent.
        let table = [
            ("openai", "https://api.openai.com/v1", long_limit, true),
            ("deepseek", "https://api.deepseek.com", limit, false),
            ("openrouter", "https://openrouter.ai/api/v1", long_limit, true),
            ("groq", "https://api.groq.com/openai/v1", long_limit, false),
            ("together", "https://api.together.xyz/v1", limit, false),
            ("xai", "https://api.x.ai/v1", long_limit, false),
            ("zai", "https://api.z.ai/api/paas/v4", limit, false),
            ("moonshot", "https://api.moonshot.ai/v1", limit, false),
            ("mistral", "https://api.mistral.ai/v1", limit, false),
            ("fireworks", "https://api.fireworks.ai/inference/v1", limit, false),
            ("cerebras", "https://api.cerebras.ai/v1", long_limit, false),
            ("anthropic", "https://api.anthropic.com/v1", long_limit, false),
            ("google", "https://generativelanguage.googleapis.com/v1beta/openai", long_limit, false),
            ("ollama", "http://127.0.0.1:11434/v1", limit, false),
            ("llama-cpp", "http://127.0.0.1:8080/v1", limit, false),
            ("vllm", "http://127.0.0.1:8000/v1", limit, false),
            ("lm-studio", "http://127.0.0.1:1234/v1", limit, false),
        ];
        for (name, base_url, limit, store) in table {
            // A name that says nothing; and the wire, since some presets speak another one by themselves.
            let (url, credential, body) = sent("x", json!({ "provider": name, "api": "openai-completions" }));
            assert_eq!(url, format!("{base_url}/chat/completions"), "{name}");
            let is_local = base_url.starts_with("http:");
            let expected = (!is_local).then(|| format!("{}_API_KEY", name.to_uppercase()));
            assert_eq!(credential, expected, "{name}");
            assert_eq!((&body[limit], body.get("store").is_some()), (&json!(9), store), "{name}: {body}");
            assert_eq!(body["stream_options"], json!({ "include_usage": true }), "{name}");
            assert_eq!(body["messages"][0]["role"], "system", "{name}");
        }
        assert_eq!(table.len(), NAMES.len(), "a preset is not in the table");
    }

    #[test]
    fn every_preset_keeps_what_the_head_of_their_file_promises() {
        for (name, preset) in PRESETS.as_ref().unwrap() {
            assert!(preset.base_url.contains_key(&preset.api), "{name}");
            // The rule by which the host lets a preset name a credential.
            let reference = format!("{}_API_KEY", name.to_uppercase().replace('-', "_"));
            assert!(preset.credential.as_ref().is_none_or(|credential| *credential == reference), "{name}");
            for api in preset.base_url.keys() {
                let config = json!({ "providers": { "x": { "provider": name, "api": api.name() } } });
                let routes = PiAi::new(serde_json::from_value(config).unwrap()).unwrap().routes();
                assert_eq!(routes[0].api.as_deref(), Some(api.name()), "{name}");
                assert_eq!(routes[0].credential, preset.credential, "{name}");
            }
        }
    }

    /// The `strict` of a tool that a route offers.
    fn strict(route: &str, entry: Value) -> Value {
        let adapter = PiAi::new(serde_json::from_value(json!({ "providers": { route: entry } })).unwrap()).unwrap();
        let tool = json!({ "name": "t", "parameters": { "type": "object", "properties": {} } });
        let request = json!({ "messages": [], "tools": [tool] }).to_string();
        let request: Request = dsh_plugin_api::json::from_str(&request).unwrap();
        let to = Target { provider: route.to_owned(), model: "m".to_owned() };
        let Exchange::Http(http) = adapter.encode(&request, Vec::new(), &to).unwrap().exchange else { panic!() };
        serde_json::from_str::<Value>(http.body.get()).unwrap()["tools"][0]["strict"].clone()
    }

    #[test]
    fn a_dialect_that_goes_by_the_name_of_the_route_goes_by_the_name_of_the_preset() {
        let proxied = |name: &str| json!({ "provider": name, "base_url": "https://proxy.test/v1" });
        let (url, _, body) = sent("x", proxied("deepseek"));
        assert_eq!((url.as_str(), &body["max_tokens"]), ("https://proxy.test/v1/chat/completions", &json!(9)));
        let reasoning = json!([{ "id": "m", "reasoning": true }]);
        let mut entry = proxied("openai");
        entry["models"] = reasoning;
        assert_eq!(sent("x", entry).2["messages"][0]["role"], "developer");
        let mut entry = proxied("openai");
        entry["api"] = json!("openai-responses");
        assert_eq!(strict("x", entry), json!(false));
        assert_eq!(strict("x", json!({ "api": "openai-responses", "base_url": "https://proxy.test/v1" })), json!(null));
    }

    #[test]
    fn what_the_route_says_itself_wins() {
        let own = json!({
            "provider": "ollama", "base_url": "http://10.0.0.7:1/v1", "credential": "OWN",
            "compat": { "max_tokens_field": "max_completion_tokens", "supports_store": true },
            "models": [{ "id": "n", "compat": { "supports_store": false } }],
        });
        let (url, credential, body) = sent("x", own.clone());
        assert_eq!((url.as_str(), credential.as_deref()), ("http://10.0.0.7:1/v1/chat/completions", Some("OWN")));
        assert_eq!((&body["max_completion_tokens"], &body["store"]), (&json!(9), &json!(false)));
        // The model's own flag, then the route's, then the preset's.
        let model = &provider(own).unwrap().models[0];
        assert_eq!(model.compat.supports_store, Some(false));
        assert!(model.compat.max_tokens_field.is_some());
        assert_eq!(model.compat.supports_developer_role, Some(false));
    }

    #[test]
    fn the_key_of_a_preset_goes_nowhere_else() {
        let elsewhere = json!({ "provider": "groq", "base_url": "https://elsewhere.test/v1" });
        assert_eq!(provider(elsewhere.clone()).unwrap().credential, None);
        let mut said = elsewhere;
        said["credential"] = json!("GROQ_API_KEY");
        assert_eq!(provider(said).unwrap().credential.as_deref(), Some("GROQ_API_KEY"));
    }

    #[test]
    fn a_route_that_lacks_something_is_told_both_ways_to_say_it() {
        for (entry, parts) in [
            (json!({}), ["providers.x: `api` is missing; set `api` and `base_url`, or `provider`", "`ollama`"]),
            (json!({ "api": "openai-completions" }), ["`base_url` is missing; set", "`lm-studio`"]),
            (
                json!({ "provider": "groq", "api": "anthropic-messages" }),
                ["`base_url` is missing; of the preset `groq`", "`openai-completions`, `openai-responses`"],
            ),
            (json!({ "provider": "deepseak" }), ["unknown variant `deepseak`, expected one of", "`deepseek`"]),
            (json!({ "provider": 5 }), ["invalid type: integer `5`", "expected a string"]),
        ] {
            let error = provider(entry.clone()).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{entry}: {error}");
        }
    }

    #[test]
    fn the_schema_knows_the_presets() {
        let schema = schemars::schema_for!(crate::config::Config);
        let presets = &schema.as_value()["$defs"]["PresetName"]["enum"];
        assert_eq!(presets.as_array().unwrap().len(), NAMES.len());
        let route = &schema.as_value()["$defs"]["ProviderEntry"];
        assert!(route["properties"]["provider"].is_object() && route.get("required").is_none(), "{route}");
    }

    #[test]
    fn the_documentation_lists_every_preset_as_it_is() {
        let page = include_str!("../../../docs/manifest.md");
        for (name, preset) in PRESETS.as_ref().unwrap() {
            let credential = preset.credential.as_ref().map_or_else(|| "none".to_owned(), |name| format!("`{name}`"));
            let (api, base_url) = (preset.api.name(), &preset.base_url[&preset.api]);
            let row = format!("\n| `{name}` | `{api}` | `{base_url}` | {credential} |\n");
            assert!(page.contains(&row), "docs/manifest.md has no row {row}");
        }
    }
}
