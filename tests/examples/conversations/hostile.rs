//! Whatever a log can express: orphans, duplicates, wrong order, blank, huge and foreign content, hostile states.
//!
//! Beside writing the bodies it checks what no judge of a body can see: that building a request twice gives the same
//! bytes, and that no text of the user and nothing of a tool disappears without a repair that names its message.

use std::collections::BTreeSet;

use dsh_host::llm::prepare::Prepared;
use dsh_host::llm::registry::Registry;
use dsh_host::llm::view::HistoryMessage;
use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::vocab::{Block, Image, Message, Role, Source};
use serde_json::{Value, json};

use crate::Out;
use crate::dice::Dice;
use crate::requests::{body, image, input, prepared};
use crate::targets::{DESTINATIONS, Destination};

/// Writes the requests of `count` histories to every wire.
pub fn write(registry: &Registry, count: u64, seed: u64, out: &mut Out) -> Result<(), Box<dyn std::error::Error>> {
    let wires: BTreeSet<_> = DESTINATIONS.iter().map(|to| to.wire).collect();
    let mut number = 0;
    for wire in wires {
        let there: Vec<&Destination> = DESTINATIONS.iter().filter(|to| to.wire == wire).collect();
        for _ in 0..count {
            let mut dice = Dice::new(seed.wrapping_mul(0x1_0000_0003).wrapping_add(number));
            let to = *dice.pick(&there);
            let mut past = Past { dice, history: Vec::new(), told: Vec::new(), count: number << 16 };
            for _ in 0..1 + past.dice.below(9) {
                past.anything(to);
            }
            // A request answers somebody.
            past.user(false);
            let request = input(&mut past.dice, &past.history);
            let sent = prepared(registry, to.model, &request)?;
            let text = body(to.model, &sent)?;
            let again = body(to.model, &prepared(registry, to.model, &request)?)?;
            let describe = || serde_json::to_string(&past.history.iter().map(|m| &m.message).collect::<Vec<_>>());
            if text != again {
                return Err(format!("{} is built in two ways for {}", to.model, describe()?).into());
            }
            if let Some((position, word)) = past.lost(&sent, &text) {
                let what = format!("{word:?} of message {position} disappeared on the way to {}", to.model);
                return Err(format!("{what} without a repair: {}\n{text}", describe()?).into());
            }
            out.line(number, 0, to, &text)?;
            number += 1;
        }
    }
    Ok(())
}

/// A history, and what must not disappear from it.
struct Past {
    dice: Dice,
    history: Vec<HistoryMessage>,
    /// Positions of messages, and a word that each brought.
    told: Vec<(usize, String)>,
    count: u64,
}

impl Past {
    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn push(&mut self, role: Role, content: Vec<Block>, source: Source, interrupted: bool) {
        let id = if self.dice.chance(5) { "m".to_owned() } else { format!("m{}", self.number()) };
        self.history.push(HistoryMessage { message: Message::new(id, role, content, source), interrupted });
    }

    /// A word that occurs once, in a text of some kind.
    fn text(&mut self) -> (String, String) {
        let word = format!("w{}w", self.number());
        let text = match self.dice.below(12) {
            0 => format!("{word}\u{0}nul \u{7}bell"),
            1 => format!("\u{feff}{word}\u{2028}\u{fffd}"),
            2 => format!("{word} \u{1f980}\u{200d}\u{e9}"),
            3 => format!("{word} {}", "x".repeat(3000)),
            4 => format!("\"{word}\" \\ </s> <|im_end|>"),
            _ => word.clone(),
        };
        (text, word)
    }

    fn blank(&mut self) -> String {
        (*self.dice.pick(&["", " ", "\n\t", "\u{a0}", "\u{2003}\u{3000}"])).to_owned()
    }

    fn call_id(&mut self) -> String {
        let ids = ["c1", "c2", "call_1", "", "call|fc_1", "functions.bash:0", "a b", "\u{e9}", "toolu_01", "abcdefghi"];
        let id = *self.dice.pick(&ids);
        if self.dice.chance(5) { "x".repeat(300) } else { id.to_owned() }
    }

    fn user(&mut self, odd: bool) {
        let at = self.history.len();
        let mut content = Vec::new();
        for _ in 0..1 + self.dice.below(3) {
            content.push(match self.dice.below(if odd { 9 } else { 1 }) {
                1 => Block::Text(self.blank()),
                2 => image(),
                3 => Block::Image(Image::Data { mime_type: "image/tiff".into(), data: "AAAA".into() }),
                4 => Block::Image(Image::Data { mime_type: "image/png".into(), data: "not base64!".into() }),
                5 => Block::Image(Image::Attachment(raw(&json!({"id": "att"})))),
                6 => Block::Other(raw(&json!({"type": "chart", "data": [1, 2]}))),
                7 => Block::ToolCall { id: "u".into(), name: "bash".into(), arguments: "{}".into() },
                _ => {
                    let (text, word) = self.text();
                    self.told.push((at, word));
                    Block::Text(text)
                }
            });
        }
        let source = if self.dice.chance(80) { Source::User } else { Source::host() };
        self.push(Role::User, content, source, false);
    }

    fn system(&mut self) {
        let (text, _) = self.text();
        self.push(Role::System, vec![Block::Text(text)], Source::host(), false);
    }

    fn results(&mut self) {
        let at = self.history.len();
        let mut content = Vec::new();
        let call_id = self.call_id();
        for _ in 0..1 + self.dice.below(3) {
            let id = if self.dice.chance(60) { call_id.clone() } else { self.call_id() };
            let mut inner = Vec::new();
            for _ in 0..self.dice.below(3) {
                inner.push(match self.dice.below(8) {
                    0 => Block::Text(self.blank()),
                    1 => image(),
                    2 => Block::Other(raw(&json!({"type": "x"}))),
                    3 => Block::Reasoning("hm".into()),
                    _ => {
                        let (text, word) = self.text();
                        self.told.push((at, word));
                        Block::Text(text)
                    }
                });
            }
            let is_error = *self.dice.pick(&[None, Some(true), Some(false)]);
            content.push(Block::ToolResult { tool_call_id: id, content: inner, is_error });
            if self.dice.chance(15) {
                let (text, word) = self.text();
                self.told.push((at, word));
                content.push(Block::Text(text));
            }
        }
        self.push(Role::User, content, Source::Tool { call_id }, false);
    }

    fn assistant(&mut self, to: &Destination) {
        let mut content = Vec::new();
        for _ in 0..self.dice.below(5) {
            content.push(match self.dice.below(9) {
                0 => Block::Text(self.blank()),
                1 | 2 => Block::Reasoning(self.text().0),
                3 => Block::Other(raw(&json!({"type": "citation"}))),
                4 => image(),
                5 => Block::ToolResult { tool_call_id: "c1".into(), content: Vec::new(), is_error: None },
                6 | 7 => {
                    let names = ["bash", "bash", "", "mcp__a.b", "n\u{e4}me", "3d"];
                    let arguments = [
                        "{}",
                        "",
                        " ",
                        "{\"a\":1}",
                        "{\"cut",
                        "[1]",
                        "\"x\"",
                        "null",
                        "{\"a\":\"\\ud83d\"}",
                        "{\"n\":1e400}",
                    ];
                    let name = *self.dice.pick(&names);
                    let name = if self.dice.chance(5) { "n".repeat(200) } else { name.to_owned() };
                    let arguments = (*self.dice.pick(&arguments)).to_owned();
                    Block::ToolCall { id: self.call_id(), name, arguments }
                }
                _ => Block::Text(self.text().0),
            });
        }
        let (provider, model) = to.model.split_once('/').unwrap_or_default();
        let (provider, model) = match self.dice.below(6) {
            0 => ("elsewhere", "other"),
            1 => (provider, "other"),
            _ => (provider, model),
        };
        let state = self.dice.chance(80).then(|| self.state(to, provider, model, &content));
        let interrupted = self.dice.chance(15);
        self.push(Role::Assistant, content, Source::model(provider, model, state), interrupted);
    }

    /// A replay state, sound or hostile.
    fn state(&mut self, to: &Destination, provider: &str, model: &str, content: &[Block]) -> Raw {
        let number = self.number();
        let signatures = [
            json!("c2lnbmF0dXJl"),
            json!(""),
            json!(7),
            json!("not base64 \u{e9}"),
            json!("reasoning_content"),
            json!(format!(
                "{{\"type\":\"reasoning\",\"id\":\"rs_{number}\",\"summary\":[],\"encrypted_content\":\"e\"}}"
            )),
            json!("{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[]}"),
            json!("{\"v\":1,\"id\":\"msg_1\"}"),
            json!("[{\"type\":\"reasoning.text\",\"text\":\"t\"}]"),
            json!("{\"type\":\"function_call\"}"),
            json!("[]"),
        ];
        let mut entries = Vec::new();
        for block in content {
            let mut entry = json!({"type": block.kind()});
            let member = match block {
                Block::Reasoning(_) => "thinkingSignature",
                Block::ToolCall { .. } => "thoughtSignature",
                _ => "textSignature",
            };
            if self.dice.chance(60) {
                entry[member] = self.dice.pick(&signatures).clone();
            }
            if self.dice.chance(10) {
                entry["redacted"] = json!(*self.dice.pick(&[true, false]));
            }
            entries.push(entry);
        }
        if self.dice.chance(5) {
            entries.pop();
        }
        let (kind, version) = if to.model.starts_with("own/") { ("deepseek", 1) } else { ("pi-ai", 2) };
        let stop = *self.dice.pick(&["stop", "stop", "toolUse", "length", "error", "aborted"]);
        let mut response = json!({"kind": kind, "version": version, "api": to.wire, "provider": provider,
            "model": model, "stopReason": stop, "responseId": format!("r{number}")});
        match self.dice.below(16) {
            0 => response["kind"] = json!("another"),
            1 => response["version"] = json!(99),
            2 => response["api"] = json!("openai-responses"),
            3 => response["provider"] = json!([]),
            4 => response["stopReason"] = Value::Null,
            5 => return raw(&json!("x")),
            6 => return raw(&json!({"blocks": entries})),
            7 => return raw(&json!({"response": response, "blocks": {}})),
            8 => return raw(&json!({"response": response})),
            _ => {}
        }
        raw(&json!({"response": response, "blocks": entries}))
    }

    fn anything(&mut self, to: &Destination) {
        match self.dice.below(10) {
            0 | 1 => self.user(true),
            2 => self.user(false),
            3 => self.system(),
            4..=6 => self.results(),
            _ => self.assistant(to),
        }
    }

    /// A word that is neither in the body nor in a message that a repair names.
    fn lost(&self, sent: &Prepared, body: &str) -> Option<(usize, &str)> {
        let repaired: BTreeSet<usize> = sent.repairs.iter().map(|repair| repair.message).collect();
        let lost = self.told.iter().find(|(at, word)| !body.contains(word) && !repaired.contains(at));
        lost.map(|(at, word)| (*at, word.as_str()))
    }
}
