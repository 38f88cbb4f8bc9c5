//! Where requests go: every wire, several dialects, two adapters.

use std::path::Path;

use dsh_host::llm::registry::Registry;
use dsh_host::loader::Loader;
use dsh_host::manifest::Manifest;

use crate::answers::Wire;

/// A destination.
#[derive(Debug)]
pub struct Destination {
    /// Route and model.
    pub model: &'static str,
    /// How its server answers.
    pub answers: Wire,
    /// The wire of its bodies.
    pub wire: &'static str,
    /// What the judge has to know, as JSON.
    pub rules: &'static str,
}

const fn to(model: &'static str, answers: Wire, wire: &'static str, rules: &'static str) -> Destination {
    Destination { model, answers, wire, rules }
}

/// All of them.
pub const DESTINATIONS: [Destination; 10] = [
    to(
        "local/plain",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        r#"{"reasoning_field":["reasoning_content","reasoning","reasoning_details"]}"#,
    ),
    to(
        "strict/template",
        Wire::Completions("reasoning"),
        "openai-completions",
        r#"{"reasoning_field":["reasoning_content","reasoning","reasoning_details"],"alternation":true}"#,
    ),
    to(
        "demanding/thinker",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        r#"{"reasoning_field":"reasoning_content","needs_reasoning":true}"#,
    ),
    to(
        "router/any",
        Wire::Router,
        "openai-completions",
        r#"{"reasoning_field":["reasoning_content","reasoning","reasoning_details"]}"#,
    ),
    to(
        "own/deepseek-flash",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        r#"{"reasoning_field":"reasoning_content","needs_reasoning":true,"images":false}"#,
    ),
    to("responses/gpt", Wire::Responses, "openai-responses", r#"{}"#),
    to("anthropic/claude", Wire::Anthropic, "anthropic-messages", r#"{}"#),
    to("google/gemini-3-pro", Wire::Google, "google-generative-ai", r#"{}"#),
    to("google/gemini-2.5-flash", Wire::Google, "google-generative-ai", r#"{}"#),
    to(
        "mistral/magistral",
        Wire::Mistral,
        "mistral-conversations",
        r#"{"reasoning_field":[],"max_id":9,"id_re":"[A-Za-z0-9]{9}"}"#,
    ),
];

const MANIFEST: &str = r#"
version = 1

[[adapter]]
id = "pi-ai"
library = "dsh-llm-pi-ai"
required = true

[adapter.config.providers.local]
api = "openai-completions"
base_url = "http://127.0.0.1:9/v1"
models = [{ id = "plain", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"] }]

[adapter.config.providers.strict]
api = "openai-completions"
base_url = "http://127.0.0.1:9/v1"
models = [{ id = "template", context_window = 200000, max_tokens = 8192, input = ["text", "image"], compat = { strict_alternation = true } }]

[adapter.config.providers.demanding]
api = "openai-completions"
base_url = "http://127.0.0.1:9/v1"
models = [{ id = "thinker", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"], compat = { thinking_format = "deepseek", requires_reasoning_content_on_assistant_messages = true } }]

[adapter.config.providers.router]
api = "openai-completions"
base_url = "https://openrouter.ai/api/v1"
models = [{ id = "any", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"] }]

[adapter.config.providers.responses]
api = "openai-responses"
base_url = "http://127.0.0.1:9/v1"
models = [{ id = "gpt", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"] }]

[adapter.config.providers.anthropic]
api = "anthropic-messages"
base_url = "http://127.0.0.1:9"
models = [{ id = "claude", context_window = 200000, max_tokens = 32000, reasoning = true, input = ["text", "image"] }]

[adapter.config.providers.google]
api = "google-generative-ai"
base_url = "http://127.0.0.1:9/v1beta"
models = [
    { id = "gemini-3-pro", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"] },
    { id = "gemini-2.5-flash", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text"] },
]

[adapter.config.providers.mistral]
api = "mistral-conversations"
base_url = "http://127.0.0.1:9"
models = [{ id = "magistral", context_window = 200000, max_tokens = 8192, reasoning = true, input = ["text", "image"] }]

[[adapter]]
id = "deepseek"
library = "dsh-llm-deepseek"
required = true

[adapter.config.providers.own]
base_url = "http://127.0.0.1:9"
models = [{ id = "deepseek-flash", context_window = 200000, max_tokens = 8192 }]
"#;

/// The registry over the adapters that lie beside this program's folder.
pub fn registry(home: &Path) -> Result<Registry, Box<dyn std::error::Error>> {
    let built = std::env::current_exe()?;
    let built = built.parent().and_then(Path::parent).ok_or("the program lies in no build folder")?;
    let library = |name: &str| {
        let file =
            format!("{}{}{}", std::env::consts::DLL_PREFIX, name.replace('-', "_"), std::env::consts::DLL_SUFFIX);
        built.join(file)
    };
    let mut text = MANIFEST.to_owned();
    for name in ["dsh-llm-pi-ai", "dsh-llm-deepseek"] {
        text = text.replace(&format!("library = {name:?}"), &format!("library = {:?}", library(name)));
    }
    let manifest = Manifest::from_text("conversations", &text, home).map_err(|e| format!("{e:?}"))?;
    Registry::load(&manifest, &Loader::new(home)).map_err(|e| format!("{e:?}").into())
}
