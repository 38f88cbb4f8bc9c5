//! Servers that nobody here wrote understand `dsh`, and `dsh` understands them: a mock of providers, spoken to directly
//! and through a proxy that rewrites every request and every answer. Both are skipped, with a line that says so, where
//! they are not installed.
//!
//! `dsh` runs with the shipped `loader.toml`; an overlay says where the servers are.

mod servers;

use std::path::Path;

use dsh_tests::{Composition, Run, for_each, run, text_of};
use serde_json::{Value, json};

use servers::{AIMOCK, AIMOCK_KEY, Aimock, LITELLM, LITELLM_KEY, Litellm};

const HELLO: &str = "Hello — grüße, 你好 😀, in more than one piece.";

/// What the mock answers, by the last thing that the user said.
fn fixtures() -> Value {
    let bash = |command: &str| json!({ "name": "bash", "arguments": { "command": command } });
    let first = |prompt: &str| json!({ "userMessage": prompt, "hasToolResult": false });
    let told = |prompt: &str, result: &str| json!({ "userMessage": prompt, "toolResultContains": result });
    let rate = json!({ "message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded" });
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109 });
    json!([
        { "match": { "userMessage": "say hello" }, "response": { "content": HELLO } },
        { "match": { "userMessage": "count" }, "response": { "content": "counted", "usage": usage } },
        {
            "match": { "userMessage": "think" },
            "response": { "reasoning": "First I ponder, then I conclude.", "content": "It is 42." },
        },
        { "match": { "userMessage": "and then?" }, "response": { "content": "It stays 42." } },
        {
            "match": first("run one"),
            "response": { "content": "Let me look.", "toolCalls": [bash("echo $((6 * 7))-ran")] },
        },
        { "match": told("run one", "42-ran"), "response": { "content": "The tool said 42-ran." } },
        { "match": first("run two"), "response": { "toolCalls": [bash("echo $((1 + 1))-a"), bash("echo $((1 + 2))-b")] } },
        { "match": told("run two", "3-b"), "response": { "content": "Both ran." } },
        {
            "match": first("act, then speak"),
            "response": { "blocks": [
                { "type": "toolCall", "name": "bash", "arguments": { "command": "echo $((2 * 2))-acted" } },
                { "type": "text", "text": "I acted." },
            ] },
        },
        { "match": told("act, then speak", "4-acted"), "response": { "content": "And now I spoke." } },
        { "match": { "userMessage": "be long" }, "response": { "content": "This is half", "finishReason": "length" } },
        { "match": { "userMessage": "be bad" }, "response": { "content": "This is", "finishReason": "content_filter" } },
        { "match": { "userMessage": "be busy" }, "response": { "error": rate, "status": 429 } },
        {
            "match": { "userMessage": "break off" },
            "response": { "content": "This is a long answer, but its connection breaks in the middle of it." },
            "latency": 60,
            "truncateAfterChunks": 3,
        },
    ])
}

/// Why a turn failed.
fn failure(run: &Run) -> Value {
    run.result["reason"]["failure"].clone()
}

/// A composition with the shipped manifest, and where its servers are.
struct Setting {
    composition: Composition,
    aimock: Aimock,
    /// Models that lead to the mock.
    models: &'static [&'static str],
    /// A model whose key is refused behind a proxy.
    locked: Option<&'static str>,
}

impl Setting {
    fn direct() -> Option<Self> {
        let aimock = Aimock::start(&AIMOCK.find()?, &fixtures());
        Some(Self::new(aimock, "", &["openai/gpt-5-mini"], None))
    }

    fn new(aimock: Aimock, more: &str, models: &'static [&'static str], locked: Option<&'static str>) -> Self {
        let composition = Composition::new("version = 1\n");
        let url = aimock.url();
        let overlay = format!(
            r#"version = 1

[[adapter]]
id = "pi-ai"

[adapter.config.providers.openai]
base_url = "{url}/v1"
{more}
[transport]
max_retries = 1
retry_base_ms = 10
retry_max_ms = 500
"#
        );
        composition.file("overlay.toml", &overlay);
        Self { composition, aimock, models, locked }
    }

    /// One turn of `dsh run --json`.
    fn prompt(&self, model: &str, args: &[&str], prompt: &str) -> Run {
        self.prompt_with(AIMOCK_KEY, model, args, prompt)
    }

    fn prompt_with(&self, key: &str, model: &str, args: &[&str], prompt: &str) -> Run {
        let mut command = self.composition.bare_command(&["--manifest"]);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../loader.toml"));
        command.args(["--overlay", "overlay.toml", "run", "--json", "-m", model]).args(args).arg(prompt);
        command.env("OPENAI_API_KEY", key).env("LITELLM_API_KEY", LITELLM_KEY);
        Run::read(run(command))
    }

    /// Everything that is expected of every way to the mock.
    fn check(&self) {
        for_each(self.models, |model| {
            self.check_answers(model);
            self.check_tools(model);
            self.check_failures(model);
        });
        // Once: LiteLLM lets a model whose key was refused rest for a while.
        let locked = match self.locked {
            Some(locked) => self.prompt(locked, &[], "say hello"),
            None => self.prompt_with("another-key", "openai/gpt-5-mini", &[], "say hello"),
        };
        let locked = failure(&locked);
        assert_eq!((&locked["code"], &locked["status"]), (&json!("AUTH"), &json!(401)), "{locked}");
    }

    fn check_answers(&self, model: &str) {
        let hello = self.prompt(model, &[], "say hello").completed();
        assert_eq!(hello.result["text"], HELLO, "{model}: {}", hello.outcome);
        let counted = self.prompt(model, &[], "count").completed();
        let usage = &counted.result["usage"];
        assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(100), &json!(9)), "{model}: {usage}");

        let thought = self.prompt(model, &[], "think").completed();
        let content = &thought.of_kind("assistant/message")[0]["message"]["content"];
        let expected = json!([
            { "type": "reasoning", "text": "First I ponder, then I conclude." },
            { "type": "text", "text": "It is 42." },
        ]);
        assert_eq!(content, &expected, "{model}: {}", thought.outcome);
        let next = self.prompt(model, &["--session", thought.session()], "and then?").completed();
        assert_eq!((&next.result["text"], &next.result["degraded"]), (&json!("It stays 42."), &json!([])), "{model}");

        let cut = self.prompt(model, &[], "be long");
        let (reason, text) = (&cut.result["reason"]["kind"], &cut.result["text"]);
        assert_eq!((reason, text), (&json!("max-tokens"), &json!("This is half")), "{model}: {}", cut.outcome);
    }

    fn check_tools(&self, model: &str) {
        for (prompt, answer, printed) in [
            ("run one", "The tool said 42-ran.", vec!["42-ran\n"]),
            ("run two", "Both ran.", vec!["2-a\n", "3-b\n"]),
            ("act, then speak", "And now I spoke.", vec!["4-acted\n"]),
        ] {
            // Other models are asked the same at the same time.
            let prompt = &format!("{prompt}, by way of {model}");
            let turn = self.prompt(model, &[], prompt).completed();
            assert_eq!(turn.result["text"], answer, "{model}: {}", turn.outcome);
            let results = turn.of_kind("tool/result");
            let results: Vec<_> = results.iter().map(|result| text_of(&result["message"]["content"][0])).collect();
            assert_eq!(results, printed, "{model}: {}", turn.outcome);
            // The mock has matched the last result alone.
            let got = self.aimock.conversations(prompt).pop().unwrap();
            for text in printed {
                let has = |message: &Value| message["role"] == "tool" && text_of(message).contains(text.trim());
                assert!(got.iter().any(has), "{model}: {text:?} did not arrive: {got:#?}");
            }
        }
    }

    fn check_failures(&self, model: &str) {
        let filtered = self.prompt(model, &[], "be bad");
        assert_eq!(failure(&filtered)["code"], "REFUSED", "{model}: {}", filtered.outcome);
        assert_eq!(filtered.result["text"], "This is", "{model}");

        let busy = failure(&self.prompt(model, &[], "be busy"));
        assert_eq!((&busy["code"], &busy["status"]), (&json!("RATE_LIMIT"), &json!(429)), "{model}: {busy}");
        assert_eq!(busy["providerRetryAfterMs"], 1000, "{model}: {busy}");
        assert!(busy["requestId"].as_str().is_some_and(|id| !id.is_empty()), "{model}: {busy}");

        // A proxy says of a broken connection behind it that it failed itself.
        let broken = self.prompt(model, &[], "break off");
        let code = if model.starts_with("openai/") { "TRANSPORT" } else { "SERVER" };
        assert_eq!(failure(&broken)["code"], code, "{model}: {}", broken.outcome);
        assert_eq!(broken.of_kind("llm/retry").len(), 1, "{model}: {}", broken.outcome);
    }
}

#[test]
fn a_mock_of_others_is_understood() {
    let Some(setting) = Setting::direct() else { return };
    setting.check();
    let filtered = setting.prompt("openai/gpt-5-mini", &[], "break off");
    assert_eq!(filtered.result["text"], "This is a long answe", "what arrived is kept: {}", filtered.outcome);
}

#[test]
fn a_proxy_that_rewrites_requests_and_answers_is_understood() {
    let (Some(litellm), Some(aimock)) = (LITELLM.find(), AIMOCK.find()) else { return };
    let aimock = Aimock::start(&aimock, &fixtures());
    let litellm = Litellm::start(&litellm, &aimock);
    let url = litellm.url();
    let route = format!(
        r#"
[adapter.config.providers.litellm]
api = "openai-completions"
base_url = "{url}/v1"
credential = "LITELLM_API_KEY"
models = [{{ id = "gpt", reasoning = true }}, {{ id = "claude", reasoning = true }}, {{ id = "locked" }}]
"#
    );
    let models = &["litellm/gpt", "litellm/claude"];
    Setting::new(aimock, &route, models, Some("litellm/locked")).check();
}
