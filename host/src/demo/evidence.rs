//! What the files say. Each check gives back what it found when the claim does not hold.

use std::path::Path;

use dsh_plugin_api::json::raw;
use serde::Serialize;
use serde_json::Value;

use super::{DemoError, read_lines};

/// What must have been kept of the answer that was cut off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    pub reasoning: &'a str,
    pub text: &'a str,
    /// Member that the provider streams reasoning in, and takes it back in.
    pub reasoning_field: &'a str,
}

pub(super) fn is<T: PartialEq + Serialize>(found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("it is {}, not {}", raw(found), raw(expected))) }
}

pub(super) fn differ(first: u32, second: u32) -> Result<(), String> {
    if first == second { Err(format!("both have process id {first}")) } else { Ok(()) }
}

/// The session's log, as its lines.
#[derive(Debug)]
pub(super) struct SessionLog(Vec<Value>);

impl SessionLog {
    pub fn read(path: &Path) -> Result<Self, DemoError> {
        read_lines(path).map(Self)
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |event| event["type"] == kind)
    }

    /// The message of the turn that was cut off.
    fn message(&self) -> Result<&Value, String> {
        let event = self.of_kind("assistant/message").next().ok_or("the log has no assistant/message")?;
        Ok(&event["data"]["message"])
    }

    /// A part of that message for people.
    pub fn message_part(&self, pointer: &str) -> String {
        match self.message() {
            Ok(message) => pretty(message.pointer(pointer).unwrap_or(&Value::Null)),
            Err(reason) => reason,
        }
    }

    pub fn streamed_half_call(&self) -> Result<(), String> {
        let is_delta =
            |event: &Value| event["type"] == "tool-call-chunks" || event["data"]["chunk"]["type"] == "tool-call-delta";
        if self.0.iter().any(is_delta) { Ok(()) } else { Err("no piece of a tool call is in the log".to_owned()) }
    }

    pub fn first_turn_ended_at_the_limit(&self) -> Result<(), String> {
        let end = self.of_kind("turn/end").next().ok_or("the log has no turn/end")?;
        is(&end["data"]["reason"]["kind"], &"max-tokens".into())
    }

    pub fn kept_blocks(&self, kept: &Kept<'_>) -> Result<(), String> {
        let expected = serde_json::json!([
            { "type": "reasoning", "text": kept.reasoning },
            { "type": "text", "text": kept.text },
        ]);
        is(&self.message()?["content"], &expected)
    }

    pub fn entries_match_blocks(&self, kept: &Kept<'_>) -> Result<(), String> {
        let message = self.message()?;
        let state = &message["source"]["replayState"];
        is(&state["response"]["kind"], &"pi-ai".into())?;
        let types = |list: &Value| -> Vec<Value> {
            list.as_array().into_iter().flatten().map(|item| item["type"].clone()).collect()
        };
        is(&types(&state["blocks"]), &types(&message["content"]))?;
        is(&state["blocks"][0]["thinkingSignature"], &kept.reasoning_field.into())
    }

    pub fn no_tool_ran(&self) -> Result<(), String> {
        let ran = self.of_kind("tool/call").chain(self.of_kind("tool/result")).count();
        if ran == 0 { Ok(()) } else { Err(format!("the log has {ran} tool events")) }
    }
}

/// What the provider received.
#[derive(Debug)]
pub(super) struct RequestLog(Vec<Value>);

impl RequestLog {
    pub fn read(path: &Path) -> Result<Self, DemoError> {
        read_lines(path).map(Self)
    }

    fn messages(&self, number: usize) -> Result<&Vec<Value>, String> {
        let request = number.checked_sub(1).and_then(|at| self.0.get(at));
        let request = request.ok_or_else(|| format!("there is no request {number}"))?;
        request["body"]["messages"].as_array().ok_or_else(|| format!("request {number} has no messages"))
    }

    fn assistant(&self, number: usize) -> Result<&Value, String> {
        let message = self.messages(number)?.iter().find(|message| message["role"] == "assistant");
        message.ok_or_else(|| format!("request {number} has no assistant message"))
    }

    /// The assistant message of a request for people.
    pub fn assistant_message(&self, number: usize) -> String {
        self.assistant(number).map_or_else(|reason| reason, pretty)
    }

    pub fn count(&self, expected: usize) -> Result<(), String> {
        is(&self.0.len(), &expected)
    }

    pub fn native(&self, number: usize, kept: &Kept<'_>) -> Result<(), String> {
        let message = self.assistant(number)?;
        is(&message[kept.reasoning_field], &kept.reasoning.into())?;
        let content = &message["content"];
        let text = match content.as_array() {
            Some(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<String>().into(),
            None => content.clone(),
        };
        is(&text, &kept.text.into())
    }

    pub fn no_tool_calls(&self, number: usize) -> Result<(), String> {
        let with_calls = self.messages(number)?.iter().find(|message| message.get("tool_calls").is_some());
        with_calls.map_or(Ok(()), |message| Err(format!("a message has them: {message}")))
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEPT: Kept<'_> = Kept { reasoning: "hm", text: "so", reasoning_field: "reasoning_content" };

    fn good_log() -> Value {
        json!([
            { "type": "session", "version": 0 },
            { "type": "tool-call-chunks", "data": {} },
            { "type": "assistant/message", "data": { "message": {
                "content": [{ "type": "reasoning", "text": "hm" }, { "type": "text", "text": "so" }],
                "source": { "replayState": {
                    "response": { "kind": "pi-ai" },
                    "blocks": [{ "type": "reasoning", "thinkingSignature": "reasoning_content" }, { "type": "text" }],
                } },
            } } },
            { "type": "turn/end", "data": { "reason": { "kind": "max-tokens" } } },
        ])
    }

    fn judge_log(log: &Value) -> Vec<&'static str> {
        let log = SessionLog(log.as_array().unwrap().clone());
        let checks = [
            ("half call", log.streamed_half_call()),
            ("limit", log.first_turn_ended_at_the_limit()),
            ("blocks", log.kept_blocks(&KEPT)),
            ("entries", log.entries_match_blocks(&KEPT)),
            ("no tool", log.no_tool_ran()),
        ];
        checks.into_iter().filter(|(_, verdict)| verdict.is_err()).map(|(name, _)| name).collect()
    }

    #[test]
    fn each_way_in_which_a_log_can_be_wrong_is_noticed() {
        assert!(judge_log(&good_log()).is_empty());
        type Damage = fn(&mut Value);
        let damages: [(Damage, &[&str]); 7] = [
            (|log| log[1]["type"] = json!("text-chunks"), &["half call"]),
            (|log| log[3]["data"]["reason"]["kind"] = json!("completed"), &["limit"]),
            (|log| log[2]["data"]["message"]["content"][1]["text"] = json!("no"), &["blocks"]),
            (
                |log| {
                    let blocks = &mut log[2]["data"]["message"]["source"]["replayState"]["blocks"];
                    blocks.as_array_mut().unwrap().push(json!({ "type": "tool-call" }));
                },
                &["entries"],
            ),
            (|log| log[2]["data"]["message"]["source"] = json!({}), &["entries"]),
            (|log| log[1] = json!({ "type": "tool/call" }), &["half call", "no tool"]),
            (|log| *log = json!([]), &["half call", "limit", "blocks", "entries"]),
        ];
        for (position, (damage, expected)) in damages.into_iter().enumerate() {
            let mut log = good_log();
            damage(&mut log);
            assert_eq!(judge_log(&log), expected, "damage {position}");
        }
    }

    #[test]
    fn each_way_in_which_the_second_request_can_be_wrong_is_noticed() {
        let judge = |second: Value| {
            let requests = RequestLog(vec![json!({}), json!({ "body": { "messages": [second] } })]);
            (requests.native(2, &KEPT).is_ok(), requests.no_tool_calls(2).is_ok())
        };
        let message = |content: Value| json!({ "role": "assistant", "reasoning_content": "hm", "content": content });
        assert_eq!(judge(message(json!("so"))), (true, true));
        assert_eq!(judge(message(json!([{ "type": "text", "text": "so" }]))), (true, true));
        assert_eq!(judge(message(json!("hmso"))), (false, true));
        assert_eq!(judge(json!({ "role": "assistant", "content": "so" })), (false, true));
        let mut with_calls = message(json!("so"));
        with_calls["tool_calls"] = json!([]);
        assert_eq!(judge(with_calls), (true, false));
        assert_eq!(judge(json!({ "role": "user" })), (false, true));
        let requests = RequestLog(vec![json!({})]);
        assert!(requests.count(2).is_err() && requests.native(2, &KEPT).is_err() && requests.no_tool_calls(2).is_err());
    }
}
