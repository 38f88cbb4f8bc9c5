//! Answers as providers write them, byte for byte, for every wire.

use serde_json::{Value, json};

use crate::dice::Dice;

/// What a model says in one answer, before it is put into the words of a wire.
#[derive(Debug, Default)]
pub struct Answer {
    /// Reasoning.
    pub reasoning: Option<String>,
    /// Visible text.
    pub text: Option<String>,
    /// Name and arguments of calls.
    pub calls: Vec<(String, String)>,
    /// The output limit was reached.
    pub limit: bool,
    /// Makes ids and signatures of this answer differ from those of others.
    pub number: u64,
}

/// A wire, as far as answering goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Chat Completions, reasoning in this field.
    Completions(&'static str),
    /// Chat Completions of a router that sends reasoning details.
    Router,
    /// Responses.
    Responses,
    /// Anthropic Messages.
    Anthropic,
    /// Google Generative Language.
    Google,
    /// Mistral.
    Mistral,
}

impl Answer {
    /// An answer of random parts; at least one of text and calls.
    pub fn roll(dice: &mut Dice, number: u64) -> Self {
        let words = ["Reading the file.", "Done \u{1f980}.", "Let me\nlook.", " ", "É", "a \"quoted\" \\ word"];
        let arguments = [
            r#"{"command":"ls -la"}"#,
            "{}",
            r#"{"n":12345678901234567890,"n":1,"z":0.10,"a":null}"#,
            r#"{"t":"\u00e9 \ud83e\udd80"}"#,
        ];
        let names = ["bash", "read", "mcp__files__list"];
        let text = dice.chance(70).then(|| (*dice.pick(&words)).to_owned());
        let calls = if text.as_deref().is_none_or(|text| text.trim().is_empty()) || dice.chance(50) {
            (0..1 + dice.below(3))
                .map(|_| ((*dice.pick(&names)).to_owned(), (*dice.pick(&arguments)).to_owned()))
                .collect()
        } else {
            Vec::new()
        };
        Self {
            reasoning: dice.chance(60).then(|| format!("thinking about step {number}")),
            text,
            calls,
            limit: dice.chance(10),
            number,
        }
    }

    /// The body of the response.
    pub fn body(&self, wire: Wire, dice: &mut Dice) -> String {
        match wire {
            Wire::Completions(field) => self.completions(field, dice),
            Wire::Router => self.router(),
            Wire::Responses => self.responses(dice),
            Wire::Anthropic => self.anthropic(dice),
            Wire::Google => self.google(dice),
            Wire::Mistral => self.mistral(),
        }
    }

    /// Arguments in two pieces; the last call of a limited answer loses its second one.
    fn pieces(&self, at: usize) -> (String, String) {
        let arguments = &self.calls[at].1;
        let middle = arguments.char_indices().nth(arguments.chars().count() / 2).map_or(0, |(at, _)| at);
        let (first, second) = arguments.split_at(middle);
        let lost = self.limit && at + 1 == self.calls.len();
        (first.to_owned(), if lost { String::new() } else { second.to_owned() })
    }

    fn chat_reason(&self) -> &'static str {
        match (self.limit, self.calls.is_empty()) {
            (true, _) => "length",
            (false, true) => "stop",
            (false, false) => "tool_calls",
        }
    }

    fn chat(&self, deltas: Vec<Value>) -> String {
        let id = format!("chatcmpl-{}", self.number);
        let mut out = String::new();
        for delta in deltas {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
            out += &data(&json!({"id": id, "model": "served", "choices": [choice]}));
        }
        let choice = json!({"index": 0, "delta": {}, "finish_reason": self.chat_reason()});
        out += &data(&json!({"id": id, "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}));
        out + "data: [DONE]\n\n"
    }

    fn chat_calls(&self, id: impl Fn(usize) -> String) -> Vec<Value> {
        let mut deltas = Vec::new();
        for (at, (name, _)) in self.calls.iter().enumerate() {
            let (first, second) = self.pieces(at);
            deltas.push(json!({"tool_calls": [{"index": at, "id": id(at), "type": "function",
                "function": {"name": name, "arguments": first}}]}));
            deltas.push(json!({"tool_calls": [{"index": at, "function": {"arguments": second}}]}));
        }
        deltas
    }

    fn completions(&self, field: &str, dice: &mut Dice) -> String {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        deltas.extend(self.reasoning.iter().map(|text| json!({field: text})));
        deltas.extend(self.text.iter().map(|text| json!({"content": text})));
        // Some servers count their calls from 0 in every answer.
        let repeated = dice.chance(30);
        let number = if repeated { 0 } else { self.number };
        deltas.extend(self.chat_calls(|at| format!("functions.call:{number}_{at}")));
        self.chat(deltas)
    }

    fn router(&self) -> String {
        let mut deltas = Vec::new();
        if let Some(text) = &self.reasoning {
            deltas.push(json!({"reasoning": text,
                "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0, "signature": signature(self.number)}]}));
        }
        deltas.extend(self.text.iter().map(|text| json!({"content": text})));
        let id = |at: usize| format!("tool_{}_{at}", self.number);
        deltas.extend(self.chat_calls(id));
        if !self.calls.is_empty() {
            deltas.push(json!({"reasoning_details": [{"type": "reasoning.encrypted", "id": id(0), "data": signature(self.number), "index": 1}]}));
        }
        self.chat(deltas)
    }

    fn mistral(&self) -> String {
        let mut deltas = Vec::new();
        deltas.extend(
            self.reasoning
                .iter()
                .map(|text| json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]})),
        );
        deltas.extend(self.text.iter().map(|text| json!({"content": text})));
        deltas.extend(self.chat_calls(|at| format!("{:08}{at}", self.number % 100_000_000)));
        self.chat(deltas)
    }

    fn anthropic(&self, dice: &mut Dice) -> String {
        let mut out = named(
            "message_start",
            &json!({"message": {"id": format!("msg_{}", self.number), "model": "served",
            "role": "assistant", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        );
        let mut index = 0;
        let mut block = |start: Value, deltas: Vec<Value>| {
            out += &named("content_block_start", &json!({"index": index, "content_block": start}));
            for delta in deltas {
                out += &named("content_block_delta", &json!({"index": index, "delta": delta}));
            }
            out += &named("content_block_stop", &json!({"index": index}));
            index += 1;
        };
        if let Some(text) = &self.reasoning {
            if dice.chance(20) {
                block(json!({"type": "redacted_thinking", "data": signature(self.number)}), Vec::new());
            } else {
                let deltas = vec![
                    json!({"type": "thinking_delta", "thinking": text}),
                    json!({"type": "signature_delta", "signature": signature(self.number)}),
                ];
                block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
            }
        }
        if let Some(text) = &self.text {
            block(json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": text})]);
        }
        for (at, (name, _)) in self.calls.iter().enumerate() {
            let (first, second) = self.pieces(at);
            let pieces = [first, second].map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            let id = format!("toolu_{}_{at}", self.number);
            block(json!({"type": "tool_use", "id": id, "name": name, "input": {}}), pieces.to_vec());
        }
        let reason = match self.chat_reason() {
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            _ => "end_turn",
        };
        out += &named("message_delta", &json!({"delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}));
        out + &named("message_stop", &json!({}))
    }

    fn responses(&self, dice: &mut Dice) -> String {
        let n = self.number;
        let response = format!("resp_{n}");
        let mut out = named("response.created", &json!({"response": {"id": response, "status": "in_progress"}}));
        let mut items = Vec::new();
        if self.reasoning.is_some() {
            let summary = match &self.reasoning {
                Some(text) if dice.chance(70) => json!([{"type": "summary_text", "text": text}]),
                _ => json!([]),
            };
            items.push(json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": summary, "encrypted_content": signature(n)}));
        }
        if let Some(text) = &self.text {
            items.push(json!({"type": "message", "id": format!("msg_{n}"), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}]}));
        }
        for (at, (name, arguments)) in self.calls.iter().enumerate() {
            if self.limit && at + 1 == self.calls.len() {
                continue;
            }
            items.push(
                json!({"type": "function_call", "id": format!("fc_{n}_{at}"), "call_id": format!("call_{n}_{at}"),
                "name": name, "arguments": arguments, "status": "completed"}),
            );
        }
        for (index, item) in items.iter().enumerate() {
            let mut added = item.clone();
            match item["type"].as_str() {
                Some("message") => added["content"] = json!([]),
                Some("function_call") => added["arguments"] = json!(""),
                _ => added["summary"] = json!([]),
            }
            out += &named("response.output_item.added", &json!({"output_index": index, "item": added}));
            if let Some(text) = item["content"][0]["text"].as_str() {
                out += &named(
                    "response.output_text.delta",
                    &json!({"output_index": index, "content_index": 0, "delta": text}),
                );
            }
            if let Some(text) = item["arguments"].as_str() {
                out += &named("response.function_call_arguments.delta", &json!({"output_index": index, "delta": text}));
            }
            if let Some(text) = item["summary"][0]["text"].as_str() {
                out += &named(
                    "response.reasoning_summary_text.delta",
                    &json!({"output_index": index, "summary_index": 0, "delta": text}),
                );
            }
            out += &named("response.output_item.done", &json!({"output_index": index, "item": item}));
        }
        let (kind, status) =
            if self.limit { ("response.incomplete", "incomplete") } else { ("response.completed", "completed") };
        let details = if self.limit { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        out + &named(
            kind,
            &json!({"response": {"id": response, "model": "served", "status": status, "output": items,
            "incomplete_details": details, "usage": {"input_tokens": 9, "output_tokens": 5}}}),
        )
    }

    fn google(&self, dice: &mut Dice) -> String {
        let mut parts = Vec::new();
        if let Some(text) = &self.reasoning {
            parts.push(json!({"text": text, "thought": true}));
        }
        if let Some(text) = &self.text {
            let mut part = json!({"text": text});
            if dice.chance(40) {
                part["thoughtSignature"] = json!(signature(self.number));
            }
            parts.push(part);
        }
        for (at, (name, arguments)) in self.calls.iter().enumerate() {
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            let mut part = json!({"functionCall": {"name": name, "args": arguments}});
            if at == 0 {
                part["thoughtSignature"] = json!(signature(self.number));
            }
            if dice.chance(50) {
                part["functionCall"]["id"] = json!(format!("g{}_{at}", self.number));
            }
            parts.push(part);
        }
        let mut out = String::new();
        let last = parts.len().saturating_sub(1);
        for (at, part) in parts.into_iter().enumerate() {
            let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
            if at == last {
                candidate["finishReason"] = json!(if self.limit { "MAX_TOKENS" } else { "STOP" });
            }
            out += &data(&json!({"candidates": [candidate], "responseId": format!("g-{}", self.number),
                "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "totalTokenCount": 14}}));
        }
        out
    }
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn named(name: &str, members: &Value) -> String {
    let mut value = members.clone();
    value["type"] = json!(name);
    format!("event: {name}\ndata: {value}\n\n")
}

/// Base64 without meaning.
fn signature(number: u64) -> String {
    format!("{:0>24}", format!("c2ln{number}")).replace(|c: char| !c.is_ascii_alphanumeric(), "A")
}
