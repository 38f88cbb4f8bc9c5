//! Writes the request bodies of conversations that move through all wires in random order.
//!
//! `cargo run -p dsh-tests --example conversations -- COUNT SEED` prints one JSON line per request:
//! `{"conversation", "step", "wire", "model", "rules", "body"}`. Each conversation has tools, answers that hit the
//! output limit, connections that break, results that never came, images, and the states of every wire and of two
//! adapters. The answers are bytes as providers write them, decoded, assembled and routed by the real parts: the
//! adapters' libraries, the assembler, degrade routing and the request view.

mod answers;
mod dice;

use std::io::{BufWriter, Write};
use std::path::Path;

use dsh_host::llm::assembler::BlockAssembler;
use dsh_host::llm::prepare::{Replay, prepare};
use dsh_host::llm::registry::Registry;
use dsh_host::llm::view::{HistoryMessage, RequestInput};
use dsh_host::loader::Loader;
use dsh_host::manifest::Manifest;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{Open, OpenHead};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, Chunk, Exchange, FinishReason, Image, Message, Role, Source, Tool};
use serde_json::{Value, json};

use answers::{Answer, Wire};
use dice::Dice;

/// Where conversations go: model, wire of its answers, wire of its bodies, and what the judge has to know.
const TARGETS: [(&str, Wire, &str, &str); 10] = [
    (
        "local/plain",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        "{\"reasoning_field\":[\"reasoning_content\",\"reasoning\",\"reasoning_details\"]}",
    ),
    (
        "strict/template",
        Wire::Completions("reasoning"),
        "openai-completions",
        "{\"reasoning_field\":[\"reasoning\"],\"alternation\":true}",
    ),
    (
        "demanding/thinker",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        "{\"reasoning_field\":\"reasoning_content\",\"needs_reasoning\":true}",
    ),
    ("router/any", Wire::Router, "openai-completions", "{\"reasoning_field\":[\"reasoning\",\"reasoning_details\"]}"),
    (
        "own/deepseek-flash",
        Wire::Completions("reasoning_content"),
        "openai-completions",
        "{\"reasoning_field\":\"reasoning_content\",\"needs_reasoning\":true,\"images\":false}",
    ),
    ("responses/gpt", Wire::Responses, "openai-responses", "{}"),
    ("anthropic/claude", Wire::Anthropic, "anthropic-messages", "{}"),
    ("google/gemini-3-pro", Wire::Google, "google-generative-ai", "{}"),
    ("google/gemini-2.5-flash", Wire::Google, "google-generative-ai", "{}"),
    (
        "mistral/magistral",
        Wire::Mistral,
        "mistral-conversations",
        "{\"reasoning_field\":[],\"max_id\":9,\"id_re\":\"[A-Za-z0-9]{9}\"}",
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

/// One conversation.
struct Conversation<'a> {
    registry: &'a Registry,
    dice: Dice,
    history: Vec<HistoryMessage>,
    /// Counts messages and answers, for ids.
    count: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (count, seed) = (number(2000)?, number(1)?);
    let home = tempfile::tempdir()?;
    let registry = registry(home.path())?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for conversation in 0..count {
        let mut talk = Conversation {
            registry: &registry,
            dice: Dice::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(conversation)),
            history: Vec::new(),
            count: conversation << 16,
        };
        let mut step = 0;
        for _ in 0..2 + talk.dice.below(5) {
            talk.prompt();
            loop {
                let target = TARGETS[talk.dice.below(TARGETS.len())];
                let body = talk.request(target.0)?;
                let (model, wire, rules) = (target.0, target.2, serde_json::from_str::<Value>(target.3)?);
                // The body as text: nothing of it is read and written anew on the way to the judge.
                writeln!(
                    out,
                    r#"{{"conversation":{conversation},"step":{step},"wire":{},"model":{},"rules":{rules},"body":{body}}}"#,
                    json!(wire),
                    json!(model),
                )?;
                step += 1;
                let goes_on = talk.answer(target.0, target.1)?;
                if !goes_on || step > 24 {
                    break;
                }
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// The registry over the adapters that lie beside this program's folder.
fn registry(home: &Path) -> Result<Registry, Box<dyn std::error::Error>> {
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

impl Conversation<'_> {
    fn id(&mut self) -> String {
        self.count += 1;
        format!("m{}", self.count)
    }

    fn push(&mut self, role: Role, content: Vec<Block>, source: Source, interrupted: bool) {
        let id = self.id();
        self.history.push(HistoryMessage { message: Message::new(id, role, content, source), interrupted });
    }

    fn prompt(&mut self) {
        let mut content = vec![Block::Text(format!("question {}", self.count))];
        if self.dice.chance(15) {
            content.push(image());
        }
        self.push(Role::User, content, Source::User, false);
    }

    /// The body that goes out.
    fn request(&mut self, model: &str) -> Result<String, String> {
        let (route, target) = self.registry.resolve(model).map_err(|e| e.message)?;
        let tools = if self.dice.chance(90) { tools() } else { Vec::new() };
        let effort = self.dice.pick(&[None, Some("low"), Some("high")]).map(str::to_owned);
        let input = RequestInput {
            system: self.dice.chance(60).then(|| "Be brief.".to_owned()),
            history: self.history.clone(),
            tools,
            max_tokens: self.dice.chance(30).then_some(4096),
            temperature: self.dice.chance(20).then_some(0.5),
            reasoning_effort: effort,
        };
        let prepared =
            prepare(&route, &target, &input, Replay::Routed).map_err(|failure| format!("{model}: {failure}"))?;
        match prepared.exchange {
            Exchange::Http(http) => Ok(http.body.get().to_owned()),
            Exchange::Polled(_) => Err(format!("{model} is polled")),
        }
    }

    /// Lets the provider answer; true when the model waits for the results that were given.
    fn answer(&mut self, model: &str, wire: Wire) -> Result<bool, String> {
        let (route, target) = self.registry.resolve(model).map_err(|e| e.message)?;
        self.count += 1;
        let body = Answer::roll(&mut self.dice, self.count).body(wire, &mut self.dice);
        let cut = self.dice.chance(12);
        let length = if cut { self.dice.below(body.len()) } else { body.len() };
        let end = if cut { StreamEnd::Cut("reset".to_owned()) } else { StreamEnd::Complete };
        let head = OpenHead::Http { status: 200, headers: vec![("content-type".into(), "text/event-stream".into())] };
        let mut stream = route.handle.open(&Open { target: target.clone(), head }).map_err(|e| e.message)?;
        let size = 1 + self.dice.below(400);
        let mut items = Vec::new();
        for piece in body.as_bytes()[..length].chunks(size) {
            items.extend(stream.feed(piece));
        }
        items.extend(stream.finish(&end));
        let mut assembler = BlockAssembler::new();
        for item in &items {
            if let Item::Chunk(chunk) = item {
                assembler.push(chunk);
            }
        }
        let finished = items.iter().any(|item| matches!(item, Item::Chunk(Chunk::Finish { .. })));
        if !finished {
            return Err(format!("{model} did not finish: {body}"));
        }
        let answer = assembler.assemble();
        let interrupted = match &answer.finish {
            FinishReason::Error { .. } | FinishReason::Aborted { .. } => true,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MaxTokens => false,
        };
        if let FinishReason::Error { failure } = &answer.finish
            && !cut
        {
            return Err(format!("{model} failed on a sound answer: {failure}\n{body}"));
        }
        let calls: Vec<String> = answer
            .content
            .iter()
            .filter_map(|block| if let Block::ToolCall { id, .. } = block { Some(id.clone()) } else { None })
            .collect();
        let source = Source::model(&target.provider, &target.model, answer.replay_state);
        if !answer.content.is_empty() {
            self.push(Role::Assistant, answer.content, source, interrupted);
        }
        let died = self.dice.chance(8);
        for call in &calls {
            // A process that died leaves calls without results.
            if died && self.dice.chance(60) {
                continue;
            }
            let content = match self.dice.below(5) {
                0 => Vec::new(),
                1 => vec![Block::Text("lines\nof output".into()), image()],
                2 => vec![image()],
                _ => vec![Block::Text(format!("output of {call}"))],
            };
            let is_error = Some(self.dice.chance(20));
            let result = Block::ToolResult { tool_call_id: call.clone(), content, is_error };
            self.push(Role::User, vec![result], Source::Tool { call_id: call.clone() }, false);
        }
        Ok(!calls.is_empty() && !died)
    }
}

fn image() -> Block {
    Block::Image(Image::Data { mime_type: "image/png".into(), data: "iVBORw0KGgo=".into() })
}

fn tools() -> Vec<Tool> {
    let tool = |name: &str, parameters: Value| Tool {
        name: name.into(),
        description: format!("Tool {name}"),
        parameters: raw(&parameters),
    };
    vec![
        tool("bash", json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]})),
        tool(
            "read",
            json!({"type": "object", "properties": {"path": {"$ref": "#/$defs/p"}}, "$defs": {"p": {"type": "string"}}}),
        ),
        tool("mcp__files__list", json!({})),
    ]
}
