//! Bodies of responses as servers spell them, checked in as bytes: seeds for the fuzzers, and inputs of their own.

/// Name and bytes of a body.
pub type Body = (&'static str, &'static [u8]);

macro_rules! body {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../bodies/", $name)))
    };
}

/// The wire `openai-completions`.
pub const COMPLETIONS: &[Body] = &[
    body!("completions/cut-mid-event.sse"),
    body!("completions/deepseek-reasoning.sse"),
    body!("completions/gateway-crlf.sse"),
    body!("completions/gateway-page.html"),
    body!("completions/groq-error-event.sse"),
    body!("completions/legacy-function-call.sse"),
    body!("completions/llama-cpp-text.sse"),
    body!("completions/mistral-thinking-parts.sse"),
    body!("completions/multi-line-data.sse"),
    body!("completions/no-blank-line-at-end.sse"),
    body!("completions/ollama-call.sse"),
    body!("completions/openai-parallel-calls.sse"),
    body!("completions/openai-text.sse"),
    body!("completions/openrouter-details.sse"),
    body!("completions/openrouter-error-in-stream.sse"),
    body!("completions/refusal.json"),
    body!("completions/split-surrogates-cr.sse"),
    body!("completions/whole-answer.json"),
];

/// The wire `anthropic-messages`.
pub const ANTHROPIC: &[Body] = &[
    body!("anthropic/claude-overloaded.sse"),
    body!("anthropic/claude-redacted-interleaved.sse"),
    body!("anthropic/claude-text.sse"),
    body!("anthropic/claude-thinking-calls.sse"),
    body!("anthropic/gateway-bare-deltas-cr.sse"),
    body!("anthropic/gateway-no-stop-reason.sse"),
    body!("anthropic/refusal.json"),
    body!("anthropic/server-tool-cut.sse"),
    body!("anthropic/whole-answer.json"),
];

/// The wire `openai-responses`.
pub const RESPONSES: &[Body] = &[
    body!("responses/gateway-done-only-crlf.sse"),
    body!("responses/gateway-error-event.sse"),
    body!("responses/open-model-raw-reasoning-cut.sse"),
    body!("responses/openai-failed.sse"),
    body!("responses/openai-incomplete.sse"),
    body!("responses/openai-reasoning-calls.sse"),
    body!("responses/openai-text.sse"),
    body!("responses/refusal.json"),
    body!("responses/whole-answer.json"),
];

/// The wire `google-generative-ai`.
pub const GOOGLE: &[Body] = &[
    body!("google/gemini-blocked.sse"),
    body!("google/gemini-cut.sse"),
    body!("google/gemini-error-in-stream.sse"),
    body!("google/gemini-text.sse"),
    body!("google/gemini-thoughts-calls.sse"),
    body!("google/list-of-events.json"),
    body!("google/refusal.json"),
    body!("google/whole-answer.json"),
];

/// The wire `mistral-conversations`.
pub const MISTRAL: &[Body] = &[
    body!("mistral/magistral-thinking.sse"),
    body!("mistral/mistral-calls.sse"),
    body!("mistral/mistral-error.sse"),
    body!("mistral/refusal.json"),
    body!("mistral/whole-answer.json"),
];

/// DeepSeek's own API.
pub const DEEPSEEK: &[Body] = &[
    body!("deepseek/chat-text-keep-alive.sse"),
    body!("deepseek/cut-in-call.sse"),
    body!("deepseek/out-of-resources.sse"),
    body!("deepseek/reasoner-calls.sse"),
    body!("deepseek/refusal.json"),
    body!("deepseek/whole-answer.json"),
];
