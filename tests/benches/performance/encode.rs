//! Encoding of a long history.
//!
//! 1,000 messages: turns of a question, an answer with reasoning, text and a call, and the call's result. The figures
//! are bytes of the body, which `serde_json` alone serialises from a `Value` of the same body.

use dsh_llm_pi_ai::PiAi;
use dsh_plugin_api::Adapter;
use dsh_plugin_api::abi::calls::Convert;
use dsh_plugin_api::vocab::{Block, Exchange, Message, Request, Role, Routing, Source, Target};
use serde_json::Value;

use super::adapter;
use super::harness::{Comparison, Effort, Measured, Side, Unit};

/// Every wire, and the member of its body that holds the history.
const WIRES: [(&str, &str); 5] = [
    ("openai-completions", "messages"),
    ("openai-responses", "input"),
    ("anthropic-messages", "messages"),
    ("google-generative-ai", "contents"),
    ("mistral-conversations", "messages"),
];
const MESSAGES: usize = 1_000;

/// Each wire linked in, and the first one through the loaded library, where the history crosses the border as JSON.
pub fn run(effort: Effort) -> Vec<Measured> {
    let (handle, _home) = adapter::loaded();
    let linked = adapter::linked();
    let mut out = Vec::new();
    for (api, list) in WIRES {
        let target = adapter::target(api);
        let request = Request { messages: history(), ..Request::default() };
        let body = encode(&linked, &request, &target);
        let value: Value = serde_json::from_str(&body).unwrap();
        let length = body.len() as u64;
        assert!(value[list].as_array().unwrap().len() >= MESSAGES / 2);
        let call = Convert { target: target.clone(), routing: vec![Routing::Foreign; request.messages.len()], request };
        let sides = |ours| {
            let serialise = || serde_json::to_string(&value).unwrap().len() as u64;
            vec![ours, Side::new("serde_json, from Value", length, serialise)]
        };
        let unit = Unit::MegabytesPerSecond(length);
        let of = |name: String, ours| Comparison { name, sides: sides(ours), unit, aim: "" };
        let encoded = Side::new("encode", length, || encode(&linked, &call.request, &target).len() as u64);
        out.extend(of(format!("encode 1,000 messages, {api}, linked"), encoded).measure(effort));
        if api == WIRES[0].0 {
            let converted =
                Side::new("convert", length, || body_of(handle.convert(&call).unwrap().exchange).len() as u64);
            out.extend(of(format!("encode 1,000 messages, {api}, loaded library"), converted).measure(effort));
        }
    }
    out
}

fn encode(adapter: &PiAi, request: &Request, target: &Target) -> String {
    let history = request.messages.iter().map(|message| adapter.foreign(message, target).unwrap()).collect();
    body_of(adapter.encode(request, history, target).unwrap().exchange)
}

fn body_of(exchange: Exchange) -> String {
    match exchange {
        Exchange::Http(request) => Box::<str>::from(request.body).into_string(),
        Exchange::Polled(_) => panic!("this wire is HTTP"),
    }
}

fn history() -> Vec<Message> {
    let text = "A paragraph of ordinary prose, with a \"quotation\", a line break\nand some UTF-8: naïve, 日本語. ";
    let turn = |number: usize| {
        let (id, model) = (format!("call_{number}"), Source::model("other", "m", None));
        let call = Block::ToolCall {
            id: id.clone(),
            name: "bash".to_owned(),
            arguments: format!(r#"{{"command":"grep -rn \"word {number}\" src"}}"#),
        };
        let answer = vec![Block::Reasoning(text.repeat(2)), Block::Text(text.repeat(5)), call];
        let result = Block::ToolResult {
            tool_call_id: id.clone(),
            content: vec![Block::Text(text.repeat(10))],
            is_error: Some(false),
        };
        [
            Message::user(format!("u{number}"), text.repeat(3)),
            Message::new(format!("a{number}"), Role::Assistant, answer, model),
            Message::new(format!("t{number}"), Role::User, vec![result], Source::Tool { call_id: id }),
            Message::new(
                format!("b{number}"),
                Role::Assistant,
                vec![Block::Text(text.repeat(4))],
                Source::model("other", "m", None),
            ),
        ]
    };
    (0..MESSAGES / 4).flat_map(turn).collect()
}
