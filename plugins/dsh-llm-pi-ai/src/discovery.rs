//! The models that a server serves: the request that asks for them in the words of each wire, and which wires have pages.
//! The list itself is read by [`dsh_plugin_api::kit::models`].

use dsh_plugin_api::ResponseHead;
use dsh_plugin_api::adapter::header;
use dsh_plugin_api::kit::endpoint::Endpoint;
use dsh_plugin_api::kit::models::{self, Listed, escaped, listed};
use dsh_plugin_api::vocab::{Failure, HttpRequest, ModelInfo, ModelsPage};
use serde_json::{Map, Value};

use crate::config::{ApiName, Provider};
use crate::mistral;

/// Whom to ask.
#[derive(Debug)]
pub(crate) struct Server {
    api: ApiName,
    endpoint: Endpoint,
    credential: Option<String>,
}

/// How a wire asks for the models.
struct Listing {
    url: String,
    /// `None` for a wire whose list comes whole.
    pages: Option<Pages>,
    /// The header that names the version of the API.
    version: Option<(&'static str, &'static str)>,
    /// Name of the header of the credential, and what stands before its value.
    credential: &'static str,
    prefix: &'static str,
}

/// How a wire asks for a page.
struct Pages {
    /// The parameter with the most models that a page may have.
    size: &'static str,
    /// Name of the parameter with the cursor.
    after: &'static str,
}

impl Server {
    /// The server of a route.
    pub fn new(provider: &Provider, endpoint: &Endpoint) -> Self {
        Self { api: provider.api, endpoint: endpoint.clone(), credential: provider.credential.clone() }
    }

    /// See `Adapter::models_request`.
    pub fn request(&self) -> HttpRequest {
        self.request_after(None)
    }

    /// How the wire asks. Sources: `GET /models` of OpenAI
    /// (<https://platform.openai.com/docs/api-reference/models/list>) and Mistral (<https://docs.mistral.ai/api>) has no
    /// pages; Anthropic (<https://docs.anthropic.com/en/api/models-list>) and Google
    /// (<https://ai.google.dev/api/models>) have, of at most 1000 models.
    fn listing(&self) -> Listing {
        let bearer = |url| Listing { url, pages: None, version: None, credential: "authorization", prefix: "Bearer " };
        match self.api {
            ApiName::OpenaiCompletions | ApiName::OpenaiResponses => bearer(self.endpoint.url("/models")),
            ApiName::MistralConversations => bearer(mistral::url(&self.endpoint, "/models")),
            ApiName::AnthropicMessages => Listing {
                url: self.endpoint.url("/v1/models"),
                pages: Some(Pages { size: "limit=1000", after: "after_id" }),
                version: Some(("anthropic-version", "2023-06-01")),
                credential: "x-api-key",
                prefix: "",
            },
            ApiName::GoogleGenerativeAi => Listing {
                url: self.endpoint.url("/models"),
                pages: Some(Pages { size: "pageSize=1000", after: "pageToken" }),
                version: None,
                credential: "x-goog-api-key",
                prefix: "",
            },
        }
    }

    /// The request for the page behind `cursor`.
    fn request_after(&self, cursor: Option<&str>) -> HttpRequest {
        let Listing { mut url, pages, version, credential, prefix } = self.listing();
        if let Some(Pages { size, after }) = pages {
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(size);
            if let Some(cursor) = cursor {
                url.push_str(&format!("&{after}={}", escaped(cursor)));
            }
        }
        let mut request = models::request(url, credential, prefix, self.credential.as_deref());
        request.headers.extend(version.map(|(name, value)| header(name, value)));
        request
    }

    /// See `Adapter::models_response`.
    ///
    /// # Errors
    ///
    /// What the server refused, classed as for other requests; `PROTOCOL` for what is no list of models.
    pub fn response(&self, head: &ResponseHead, body: &str) -> Result<ModelsPage, Failure> {
        let Listed { models, cursor } = listed(head, body)?;
        // A cursor of a wire without pages would ask for the same page again.
        let has_pages = self.listing().pages.is_some();
        let next = cursor.filter(|_| has_pages).map(|cursor| self.request_after(Some(&cursor)));
        Ok(ModelsPage { models: models.into_iter().map(written).collect(), next })
    }
}

/// A model with how it is written as an element of `models`.
fn written(model: ModelInfo) -> ModelInfo {
    let mut entry = Map::from_iter([("id".to_owned(), Value::from(model.id.as_str()))]);
    let mut set = |key: &str, value: Option<Value>| entry.extend(value.map(|value| (key.to_owned(), value)));
    set("context_window", model.context_window.map(Value::from));
    set("max_tokens", model.max_tokens.map(Value::from));
    set("reasoning", model.reasoning.then(|| Value::from(true)));
    set("input", model.input.iter().any(|input| input != "text").then(|| Value::from(model.input.clone())));
    model.with_entry(&entry)
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::{HeaderValue, HttpHeader};
    use serde_json::json;

    use super::*;

    fn server(api: &str, base_url: &str) -> Server {
        let provider = json!({ "api": api, "base_url": base_url, "credential": "KEY" });
        let entry: crate::config::ProviderEntry = serde_json::from_value(provider).unwrap();
        Server::new(&entry.complete("x").unwrap(), &Endpoint::parse(base_url).unwrap())
    }

    fn answered(api: &str, status: u16, body: &str) -> Result<ModelsPage, Failure> {
        server(api, "https://x.test").response(&ResponseHead::Http { status, headers: Vec::new() }, body)
    }

    fn shown(request: &HttpRequest) -> String {
        let header = |header: &HttpHeader| match &header.value {
            HeaderValue::Text(text) => format!("{}: {text}", header.name),
            HeaderValue::Credential { reference, prefix } => format!("{}: {prefix}<{reference}>", header.name),
        };
        let headers: Vec<String> = request.headers.iter().map(header).collect();
        format!("{} {} [{}] {}", request.method, request.url, headers.join("; "), request.body.get())
    }

    #[test]
    fn each_wire_asks_in_its_own_way() {
        let bearer = "[accept: application/json; authorization: Bearer <KEY>] null";
        for (api, base_url, expected) in [
            ("openai-completions", "https://x.test/v1", format!("GET https://x.test/v1/models {bearer}")),
            ("openai-responses", "https://x.test/v1?v=2", format!("GET https://x.test/v1/models?v=2 {bearer}")),
            ("mistral-conversations", "https://x.test", format!("GET https://x.test/v1/models {bearer}")),
            ("mistral-conversations", "https://x.test/v1", format!("GET https://x.test/v1/models {bearer}")),
            (
                "anthropic-messages",
                "https://x.test/?v=2",
                "GET https://x.test/v1/models?v=2&limit=1000 \
                 [accept: application/json; x-api-key: <KEY>; anthropic-version: 2023-06-01] null"
                    .into(),
            ),
            (
                "google-generative-ai",
                "https://x.test/v1beta",
                "GET https://x.test/v1beta/models?pageSize=1000 [accept: application/json; x-goog-api-key: <KEY>] null"
                    .into(),
            ),
        ] {
            assert_eq!(shown(&server(api, base_url).request()), expected);
        }
    }

    #[test]
    fn the_next_page_is_asked_for_where_there_is_one() {
        for (api, body, expected) in [
            (
                "anthropic-messages",
                r#"{"data":[{"id":"a"}],"has_more":true,"last_id":"a/ä"}"#,
                Some("https://x.test/v1/models?limit=1000&after_id=a%2F%C3%A4"),
            ),
            (
                "google-generative-ai",
                r#"{"models":[],"nextPageToken":"t=1"}"#,
                Some("https://x.test/models?pageSize=1000&pageToken=t%3D1"),
            ),
            ("openai-completions", r#"{"data":[],"has_more":true,"last_id":"a"}"#, None),
        ] {
            let next = answered(api, 200, body).unwrap().next;
            assert_eq!(next.map(|request| request.url).as_deref(), expected, "{api}");
        }
    }

    #[test]
    fn what_a_server_says_of_a_model_is_written_in_the_words_of_the_configuration() {
        let body = r#"{"data":[{"id":"a","context_length":9,"max_output_tokens":3,"thinking":true,"supports_image_in":true},{"id":"b"}]}"#;
        let page = answered("openai-completions", 200, body).unwrap();
        let entries: Vec<Value> = page.models.iter().filter_map(ModelInfo::entry).map(Value::Object).collect();
        let full =
            json!({ "id": "a", "context_window": 9, "max_tokens": 3, "reasoning": true, "input": ["text", "image"] });
        assert_eq!(entries, [full, json!({ "id": "b" })]);
        let config = json!({ "providers": { "x": { "provider": "groq", "models": entries } } });
        assert!(serde_json::from_value::<crate::config::Config>(config).is_ok());
    }
}
