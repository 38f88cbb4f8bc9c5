//! Bodies of responses as servers spell them, checked in as bytes: seeds for the fuzzers, and inputs of their own.

macro_rules! body {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../bodies/completions/", $name)))
    };
}

/// Name and bytes of each body of the wire `openai-completions`.
pub const COMPLETIONS: &[(&str, &[u8])] = &[
    body!("cut-mid-event.sse"),
    body!("deepseek-reasoning.sse"),
    body!("gateway-crlf.sse"),
    body!("gateway-page.html"),
    body!("groq-error-event.sse"),
    body!("legacy-function-call.sse"),
    body!("llama-cpp-text.sse"),
    body!("mistral-thinking-parts.sse"),
    body!("multi-line-data.sse"),
    body!("no-blank-line-at-end.sse"),
    body!("ollama-call.sse"),
    body!("openai-parallel-calls.sse"),
    body!("openai-text.sse"),
    body!("openrouter-details.sse"),
    body!("openrouter-error-in-stream.sse"),
    body!("refusal.json"),
    body!("split-surrogates-cr.sse"),
    body!("whole-answer.json"),
];
