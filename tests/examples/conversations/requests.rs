//! What both kinds of histories are sent with.

use dsh_host::llm::prepare::{Prepared, Replay, prepare};
use dsh_host::llm::registry::Registry;
use dsh_host::llm::view::{HistoryMessage, RequestInput};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, Exchange, Image, Tool};
use serde_json::{Value, json};

use crate::dice::Dice;

/// A request over a history, with random options.
pub fn input(dice: &mut Dice, history: &[HistoryMessage]) -> RequestInput {
    let tools = if dice.chance(90) { tools() } else { Vec::new() };
    let effort = dice.pick(&[None, Some("low"), Some("high")]).map(str::to_owned);
    RequestInput {
        system: dice.chance(60).then(|| "Be brief.".to_owned()),
        history: history.to_vec(),
        tools,
        max_tokens: dice.chance(30).then_some(4096),
        temperature: dice.chance(20).then_some(0.5),
        reasoning_effort: effort,
        images_from: 0,
    }
}

/// The request as it would go out.
pub fn prepared(registry: &Registry, model: &str, input: &RequestInput) -> Result<Prepared, String> {
    let (route, target) = registry.resolve(model).map_err(|e| e.message)?;
    prepare(&route, &target, input, Replay::Routed).map_err(|failure| format!("{model}: {failure}"))
}

/// The body of a request.
pub fn body(model: &str, prepared: &Prepared) -> Result<String, String> {
    match &prepared.exchange {
        Exchange::Http(http) => Ok(http.body.get().to_owned()),
        Exchange::Polled(_) => Err(format!("{model} is polled")),
    }
}

/// A small image.
pub fn image() -> Block {
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
