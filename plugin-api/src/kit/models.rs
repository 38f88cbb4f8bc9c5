//! The models that a server serves: reading its list, and the pieces of the request that asks for it.
//!
//! The lists are of two forms, `data` with an `id` each and Google's `models` with a `name` each; what servers say of a
//! model beside its id has many names, and those of all are understood everywhere, since gateways mix them. What a
//! server does not say stays unsaid. Models that by their server's own words do not chat are left out.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::errors::refused;
use super::head::{HeadFacts, excerpt};
use super::lenient::{count, elements, filled, is_object, members, members_of};
use crate::adapter::{ResponseHead, header};
use crate::json::{Object, raw};
use crate::vocab::{Failure, FailureCode, HeaderValue, HttpHeader, HttpRequest, ModelInfo};

/// Longest excerpt of an answer that is no list, in characters.
const EXCERPT_LIMIT: usize = 300;

/// Kinds of models that do not chat, as Together, LM Studio and gateways name them in `type`.
const OTHER_KINDS: [&str; 8] =
    ["audio", "embedding", "embeddings", "image", "moderation", "rerank", "transcribe", "video"];

/// The request that asks a URL for a list, with the credential after `prefix` in the header `name`.
#[must_use]
pub fn request(url: String, name: &str, prefix: &str, credential: Option<&str>) -> HttpRequest {
    let mut headers = vec![header("accept", "application/json")];
    headers.extend(credential.map(|reference| HttpHeader {
        name: name.to_owned(),
        value: HeaderValue::Credential { reference: reference.to_owned(), prefix: prefix.to_owned() },
    }));
    HttpRequest { method: "GET".to_owned(), url, headers, body: raw(&()) }
}

/// A text inside a query (RFC 3986, section 2.3: what is not unreserved is escaped).
#[must_use]
pub fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// What a server lists.
#[derive(Debug)]
pub struct Listed {
    /// The models in the server's order, each once.
    pub models: Vec<ModelInfo>,
    /// The mark of the next page, where the answer has one. On a wire without pages it means nothing.
    pub cursor: Option<String>,
}

/// Reads the answer to a request for the list.
///
/// # Errors
///
/// What the server refused, classed as for other requests; `PROTOCOL` for what is no list of models.
pub fn listed(head: &ResponseHead, body: &str) -> Result<Listed, Failure> {
    let facts = HeadFacts::read(head)?;
    if !(200..300).contains(&facts.status) {
        return Err(refused(&facts, body.as_bytes()));
    }
    let text = body.trim_start_matches('\u{feff}').trim();
    let (listed, cursor) = page(text).ok_or_else(|| {
        let line = excerpt(text, EXCERPT_LIMIT);
        facts.failure(FailureCode::Protocol, format!("the answer is no list of models: {line}; check base_url"))
    })?;
    let mut known = HashSet::new();
    let models = listed.into_iter().filter_map(model).filter(|model| known.insert(model.id.clone())).collect();
    Ok(Listed { models, cursor })
}

/// The elements of a list and the cursor of its next page; `None` for what is no list. Together sends the bare array.
fn page(text: &str) -> Option<(Vec<&RawValue>, Option<String>)> {
    if text.starts_with('[') {
        return Some((elements(Some(serde_json::from_str(text).ok()?)), None));
    }
    let [data, models, has_more, last_id, next_page] =
        members(text, ["data", "models", "has_more", "last_id", "nextPageToken"]).ok()??;
    let listed = data.or(models).filter(|value| value.get().starts_with('['))?;
    let has_more = has_more.is_some_and(|value| value.get() == "true");
    Some((elements(Some(listed)), filled(next_page).or_else(|| filled(last_id).filter(|_| has_more))))
}

/// Longest id of a model, in bytes. A longer one is no id, and would widen every line of a table.
const LONGEST_ID: usize = 512;

/// What a server says of a model; `None` for one without a usable id, and for one that does not chat.
fn model(listed: &RawValue) -> Option<ModelInfo> {
    let [id, name] = members_of(listed, ["id", "name"])?;
    let id = filled(id).or_else(|| filled(name).map(|name| name.trim_start_matches("models/").to_owned()))?;
    if id.len() > LONGEST_ID {
        return None;
    }
    let facts = Facts(listed);
    (!facts.is_other_kind()).then(|| ModelInfo {
        id,
        context_window: facts.number(&CONTEXT_WINDOW),
        max_tokens: facts.number(&MAX_TOKENS),
        reasoning: facts.reasons(),
        input: facts.input(),
        extra: Object::new(),
    })
}

/// What is no count of tokens any more. TOML, which takes these numbers down, has none beyond 2^63.
const MOST_TOKENS: u64 = 1 << 53;

/// Where servers give the context window, the most telling first: what llama.cpp was started with comes before what
/// its model was trained with.
const CONTEXT_WINDOW: [&[&str]; 10] = [
    &["context_window"],        // Groq
    &["context_length"],        // OpenRouter, Together, Moonshot, Fireworks
    &["max_model_len"],         // vLLM
    &["loaded_context_length"], // LM Studio
    &["max_context_length"],    // Mistral, LM Studio
    &["max_input_tokens"],      // Anthropic
    &["inputTokenLimit"],       // Google
    &["meta", "n_ctx"],         // llama.cpp
    &["meta", "n_ctx_train"],
    &["top_provider", "context_length"],
];

/// Where servers give the longest answer.
const MAX_TOKENS: [&[&str]; 6] = [
    &["max_completion_tokens"],                 // Groq
    &["top_provider", "max_completion_tokens"], // OpenRouter
    &["max_output_tokens"],
    &["max_output_length"],
    &["outputTokenLimit"], // Google
    &["max_tokens"],       // Anthropic
];

/// The members of one listed model.
struct Facts<'a>(&'a RawValue);

impl<'a> Facts<'a> {
    /// The value at a path of members.
    fn at(&self, path: &[&str]) -> Option<&'a RawValue> {
        path.iter().try_fold(self.0, |value, name| members_of(value, [name]).and_then(|[found]| found))
    }

    fn number(&self, paths: &[&[&str]]) -> Option<u64> {
        paths.iter().find_map(|path| count(self.at(path)).filter(|number| (1..=MOST_TOKENS).contains(number)))
    }

    /// `true`, or `{supported: true}` as Anthropic has it.
    fn is(&self, path: &[&str], expected: bool) -> bool {
        self.at(path).is_some_and(|value| {
            let supported = || members_of(value, ["supported"]).and_then(|[supported]| supported);
            let value = if is_object(value) { supported() } else { Some(value) };
            value.is_some_and(|value| value.get() == if expected { "true" } else { "false" })
        })
    }

    /// The texts of a list, in lower case; `None` when there is no such list.
    fn list(&self, path: &[&str]) -> Option<Vec<String>> {
        let list = self.at(path).filter(|value| value.get().starts_with('['))?;
        let texts = elements(Some(list)).into_iter().filter_map(|text| filled(Some(text)));
        Some(texts.map(|text| text.to_lowercase()).collect())
    }

    fn is_other_kind(&self) -> bool {
        let kind = filled(self.at(&["type"])).map(|kind| kind.to_lowercase());
        let lacks = |path: &[&str], word: &str| self.list(path).is_some_and(|list| list.iter().all(|has| has != word));
        kind.is_some_and(|kind| OTHER_KINDS.contains(&kind.as_str()))
            || self.is(&["supports_chat"], false)
            || self.is(&["capabilities", "completion_chat"], false)
            || lacks(&["supportedGenerationMethods"], "generatecontent")
            || lacks(&["architecture", "output_modalities"], "text")
    }

    fn reasons(&self) -> bool {
        let parameters = self.list(&["supported_parameters"]).unwrap_or_default();
        parameters.iter().any(|parameter| parameter == "reasoning")
            || [
                &["thinking"][..],
                &["supports_reasoning"],
                &["capabilities", "reasoning"],
                &["capabilities", "thinking"],
            ]
            .iter()
            .any(|path| self.is(path, true))
    }

    /// `text`, `image`; nothing where the server says nothing of it.
    fn input(&self) -> Vec<String> {
        let modalities = self.list(&["architecture", "input_modalities"]).or_else(|| self.list(&["input_modalities"]));
        let switches = [
            &["supports_image_in"][..],
            &["supports_image_input"],
            &["capabilities", "vision"],
            &["capabilities", "image_input"],
        ];
        let is = |expected| switches.iter().any(|path| self.is(path, expected));
        let images = match modalities {
            Some(modalities) => modalities.iter().any(|modality| modality == "image"),
            None if is(true) || filled(self.at(&["type"])).as_deref() == Some("vlm") => true,
            None if is(false) => false,
            None => return Vec::new(),
        };
        let all = ["text", "image"].map(str::to_owned);
        all.into_iter().take(if images { 2 } else { 1 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> Result<Listed, Failure> {
        listed(&ResponseHead::Http { status, headers: Vec::new() }, body)
    }

    /// A model as the table below shows it.
    fn line(model: &ModelInfo) -> String {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let reasoning = if model.reasoning { "reasoning" } else { "-" };
        let input = model.input.join("+");
        format!("{} {} {} {reasoning} {input}", model.id, number(model.context_window), number(model.max_tokens))
    }

    #[test]
    fn the_list_of_every_server_is_understood() {
        #[rustfmt::skip]
        let table = [
            ("OpenAI", r#"{"object":"list","data":[{"id":"gpt-x","object":"model","created":1,"owned_by":"o"},{"id":"gpt-x"}]}"#, vec!["gpt-x - - - "]),
            ("Groq", r#"{"object":"list","data":[{"id":"g","active":true,"context_window":131072,"max_completion_tokens":32768}]}"#, vec!["g 131072 32768 - "]),
            ("OpenRouter", r#"{"data":[
                {"id":"a/b","context_length":200000,"architecture":{"input_modalities":["text","image"],"output_modalities":["text"]},
                 "top_provider":{"context_length":200000,"max_completion_tokens":64000},"supported_parameters":["tools","reasoning"]},
                {"id":"a/c","context_length":null,"architecture":{"input_modalities":["text"]},"top_provider":{"context_length":8192,"max_completion_tokens":null}},
                {"id":"a/d","architecture":{"input_modalities":["text"],"output_modalities":["image"]}}]}"#,
                vec!["a/b 200000 64000 reasoning text+image", "a/c 8192 - - text"]),
            ("Together", r#"[{"id":"t","type":"chat","context_length":4096},{"id":"e","type":"embedding"},{"id":"i","type":"image"}]"#, vec!["t 4096 - - "]),
            ("Moonshot", r#"{"data":[{"id":"k","context_length":262144,"supports_image_in":true,"supports_reasoning":true},{"id":"l","supports_image_in":false}]}"#,
                vec!["k 262144 - reasoning text+image", "l - - - text"]),
            ("Mistral", r#"{"data":[{"id":"m","type":"base","max_context_length":131072,"capabilities":{"completion_chat":true,"vision":true,"reasoning":true}},
                {"id":"embed","capabilities":{"completion_chat":false}}]}"#, vec!["m 131072 - reasoning text+image"]),
            ("Fireworks", r#"{"data":[{"id":"accounts/f/models/x","context_length":131072,"supports_chat":true,"supports_image_input":false},{"id":"y","supports_chat":false}]}"#,
                vec!["accounts/f/models/x 131072 - - text"]),
            ("Ollama", r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1,"owned_by":"library"}]}"#, vec!["qwen3:8b - - - "]),
            ("llama.cpp", r#"{"models":[{"name":"x"}],"object":"list","data":[{"id":"x.gguf","meta":{"n_vocab":1,"n_ctx_train":131072}},{"id":"y","meta":{"n_ctx":8192,"n_ctx_train":131072}},{"id":"z","meta":null}]}"#,
                vec!["x.gguf 131072 - - ", "y 8192 - - ", "z - - - "]),
            ("vLLM", r#"{"data":[{"id":"v","root":"v","max_model_len":40960}]}"#, vec!["v 40960 - - "]),
            ("LM Studio", r#"{"data":[{"id":"q","type":"vlm","max_context_length":32768,"loaded_context_length":4096},{"id":"n","type":"embeddings"}]}"#,
                vec!["q 4096 - - text+image"]),
            ("Anthropic", r#"{"data":[{"type":"model","id":"c","max_input_tokens":200000,"max_tokens":64000,
                "capabilities":{"image_input":{"supported":true},"thinking":{"supported":true,"types":{}}}}],"has_more":false,"first_id":"c","last_id":"c"}"#,
                vec!["c 200000 64000 reasoning text+image"]),
            ("Google", r#"{"models":[{"name":"models/gemini-x","inputTokenLimit":1048576,"outputTokenLimit":65536,"supportedGenerationMethods":["generateContent","countTokens"],"thinking":true},
                {"name":"models/embed","supportedGenerationMethods":["embedContent"]}]}"#, vec!["gemini-x 1048576 65536 reasoning "]),
            ("odd", r#"{"data":[{"id":"a","context_window":"4096","max_tokens":-1},{"id":""},{"id":5},{},7,"x",{"id":"b","capabilities":["completion"]}]}"#, vec!["a 4096 - - ", "b - - - "]),
            ("absurd", r#"{"data":[{"id":"a","context_window":1e300,"max_tokens":18446744073709551615}]}"#, vec!["a - - - "]),
            ("nothing", r#"{"data":[]}"#, vec![]),
        ];
        for (name, body, expected) in table {
            let page = answered(200, body).unwrap();
            assert_eq!(page.models.iter().map(line).collect::<Vec<_>>(), expected, "{name}");
            assert!(page.cursor.is_none(), "{name}");
        }
    }

    #[test]
    fn a_model_is_listed_once_and_an_id_has_a_limit() {
        let ids: Vec<String> = (0..500).map(|n| format!(r#"{{"id":"m{n}"}},{{"id":"m{n}"}}"#)).collect();
        let body = format!(r#"{{"data":[{{"id":"{}"}},{}]}}"#, "x".repeat(513), ids.join(","));
        assert_eq!(answered(200, &body).unwrap().models.len(), 500);
    }

    #[test]
    fn what_is_no_list_fails_with_what_the_server_said() {
        for (status, body, code, message) in [
            (401, r#"{"error":{"message":"wrong key"}}"#, "AUTH", "wrong key"),
            (404, "404 page not found", "INVALID_REQUEST", "404 page not found"),
            (500, "", "SERVER", "HTTP 500"),
            (200, "<html><h1>Hi</h1></html>", "PROTOCOL", "no list of models: Hi; check base_url"),
            (200, r#"{"data":{"id":"a"}}"#, "PROTOCOL", "no list of models"),
            (200, r#"{"data":[{"id":"a"}"#, "PROTOCOL", "no list of models"),
            (200, "[", "PROTOCOL", "no list of models"),
            (200, "", "PROTOCOL", "no list of models"),
        ] {
            let failure = answered(status, body).unwrap_err();
            assert_eq!(failure.code.name(), code, "{body}");
            assert!(failure.message.contains(message), "{failure}");
            assert_eq!(failure.status, (status != 200).then_some(status), "{body}");
        }
    }
}
