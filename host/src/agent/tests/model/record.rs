//! The log file, read independently of the store: lines, packed rows, what a crash left, and the rules of the format.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::said::{INTERRUPTED, Said, result, words};

/// One event, or a packed row of them.
pub struct Line {
    kind: String,
    seq: u64,
    count: u64,
    time: u64,
    data: Value,
}

/// The lines of a log without its header; a last line that is no JSON was cut off.
pub fn lines(bytes: &[u8]) -> Vec<Line> {
    let read = |line: &[u8]| {
        let value: Value = serde_json::from_slice(line).ok()?;
        let number = |plain: &str, packed: &str| value[plain].as_u64().or(value[packed].as_u64());
        let data = value["data"].clone();
        let packed = data["texts"].as_array().or(data["args"].as_array());
        Some(Line {
            kind: value["type"].as_str()?.to_owned(),
            seq: number("seq", "seq0")?,
            count: packed.map_or(1, |pieces| pieces.len() as u64),
            time: number("time", "time0")?,
            data,
        })
    };
    bytes.split(|byte| *byte == b'\n').skip(1).filter_map(read).collect()
}

/// A block that streams: its type, what came of it, whether it was closed.
type Streaming = BTreeMap<u64, (String, String, bool)>;

/// What the history is when a log ends here: what its messages say, then what the user had seen of an answer that no
/// message holds, then an error for each call that was still to be answered.
pub fn survivors(lines: &[Line]) -> Vec<Said> {
    let (mut said, mut open) = (Vec::new(), false);
    let mut streaming = Streaming::new();
    let mut unanswered: Vec<String> = Vec::new();
    for Line { kind, data, .. } in lines {
        match kind.as_str() {
            "turn/start" => open = true,
            "turn/end" => open = false,
            "user/message" => said.push(Said::User(words(&texts(&data["content"], "text")))),
            "step/start" | "step/end" | "llm/retry" => streaming.clear(),
            "assistant/message" => {
                streaming.clear();
                let content = &data["message"]["content"];
                let calls: Vec<(String, String)> = blocks(content, "tool-call")
                    .map(|call| {
                        (call["id"].as_str().unwrap().to_owned(), call["arguments"].as_str().unwrap().to_owned())
                    })
                    .collect();
                unanswered.extend(calls.iter().map(|(id, _)| id.clone()));
                said.push(Said::Answer {
                    text: words(&texts(content, "text")),
                    thought: words(&texts(content, "reasoning")),
                    calls,
                    interrupted: data["interrupted"] == true,
                });
            }
            "tool/result" => {
                let block = &data["message"]["content"][0];
                let answered = unanswered.iter().position(|id| Some(id.as_str()) == block["toolCallId"].as_str());
                unanswered.remove(answered.unwrap());
                said.push(result(&texts(&block["content"], "text")));
            }
            "assistant/chunk" => stream(&mut streaming, &data["chunk"]),
            "text-chunks" => {
                let pieces: String = data["texts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                let block = streaming.entry(data["index"].as_u64().unwrap()).or_default();
                "text".clone_into(&mut block.0);
                block.1.push_str(&pieces);
            }
            _ => {}
        }
    }
    if open {
        let kept = |wanted: &str, open_too: bool| {
            let kept = streaming.values().filter(|(kind, _, closed)| kind == wanted && (*closed || open_too));
            words(&kept.map(|(_, text, _)| text.as_str()).collect::<String>())
        };
        let text = kept("text", true);
        if !text.is_empty() {
            said.push(Said::Answer { text, thought: kept("reasoning", false), calls: Vec::new(), interrupted: true });
        }
        said.extend(unanswered.iter().map(|_| Said::Result(INTERRUPTED.to_owned())));
    }
    said
}

fn stream(streaming: &mut Streaming, chunk: &Value) {
    let Some(index) = chunk["index"].as_u64() else { return };
    let block = streaming.entry(index).or_default();
    match chunk["type"].as_str().unwrap() {
        "block-start" => chunk["blockType"].as_str().unwrap().clone_into(&mut block.0),
        "text-delta" | "reasoning-delta" => block.1.push_str(chunk["text"].as_str().unwrap()),
        "block-end" => block.2 = true,
        _ => {}
    }
}

fn blocks<'a>(content: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    content.as_array().unwrap().iter().filter(move |block| block["type"] == kind)
}

fn texts(content: &Value, kind: &str) -> String {
    blocks(content, kind).filter_map(|block| block["text"].as_str()).collect()
}

/// Where a log is.
#[derive(Default)]
struct Place {
    turn: u64,
    in_turn: bool,
    step: u64,
    in_step: bool,
    /// Ids of the step's calls that no `tool/call` and no `tool/result` names yet.
    uncalled: Vec<String>,
    unanswered: Vec<String>,
}

/// What holds for every log whose turns are closed.
pub fn check(bytes: &[u8], executed: &[String]) -> Result<(), TestCaseError> {
    let lines = lines(bytes);
    prop_assert!(bytes.ends_with(b"\n"), "the last line is torn");
    let written = bytes.iter().filter(|byte| **byte == b'\n').count();
    prop_assert_eq!(lines.len() + 1, written, "a line that is no event");
    let mut place = Place::default();
    let (mut next, mut time) = (0, 0);
    for line in &lines {
        prop_assert!(line.seq == next, "seq {} where {next} was due", line.seq);
        prop_assert!(line.time >= time, "time runs backwards at seq {next}");
        next += line.count;
        time = line.time;
        place.take(line)?;
    }
    prop_assert!(!place.in_turn && !place.in_step, "turn {} is open", place.turn);
    // A tool that was run is in the log, and in no answer that was cut.
    let mut called: Vec<&str> = lines
        .iter()
        .filter(|line| line.kind == "tool/call")
        .map(|line| line.data["arguments"].as_str().unwrap())
        .collect();
    for arguments in executed {
        let Some(known) = called.iter().position(|called| called == arguments) else {
            return Err(TestCaseError::fail(format!("{arguments} ran, and no tool/call says so, or it ran twice")));
        };
        called.swap_remove(known);
    }
    Ok(())
}

impl Place {
    fn take(&mut self, line: &Line) -> Result<(), TestCaseError> {
        let Line { kind, data, seq, .. } = line;
        let number = |name: &str| data[name].as_u64().unwrap_or_default();
        match kind.as_str() {
            "turn/start" => {
                prop_assert!(!self.in_turn && number("turn") > self.turn, "turn/start at seq {seq}");
                *self = Self { turn: number("turn"), in_turn: true, ..Self::default() };
            }
            "turn/end" => {
                prop_assert!(self.in_turn && !self.in_step && number("turn") == self.turn, "turn/end at seq {seq}");
                self.in_turn = false;
            }
            "step/start" => {
                prop_assert!(self.in_turn && !self.in_step && number("step") == self.step + 1, "step/start at {seq}");
                self.step += 1;
                self.in_step = true;
            }
            "step/end" => {
                prop_assert!(self.in_step && number("step") == self.step, "step/end at seq {seq}");
                prop_assert!(self.unanswered.is_empty(), "step {} ends without {:?}", self.step, self.unanswered);
                self.in_step = false;
                self.uncalled.clear();
            }
            "user/message" => prop_assert!(self.in_step, "a prompt outside a step at seq {seq}"),
            "session/title" | "request/header" | "request/context" => prop_assert!(self.in_turn, "{kind} at seq {seq}"),
            _ => {
                let here = self.in_step && number("turn") == self.turn && number("step") == self.step;
                prop_assert!(here, "{kind} outside its step at seq {seq}");
                self.take_step_event(line)?;
            }
        }
        Ok(())
    }

    fn take_step_event(&mut self, Line { kind, data, seq, .. }: &Line) -> Result<(), TestCaseError> {
        let take =
            |from: &mut Vec<String>, id: &Value| match from.iter().position(|known| Some(&**known) == id.as_str()) {
                Some(at) => {
                    from.swap_remove(at);
                    Ok(())
                }
                None => {
                    Err(TestCaseError::fail(format!("{kind} of {id} at seq {seq}, which is no call that waits for it")))
                }
            };
        match kind.as_str() {
            "assistant/message" => {
                let calls: Vec<String> = blocks(&data["message"]["content"], "tool-call")
                    .map(|call| call["id"].as_str().unwrap().to_owned())
                    .collect();
                prop_assert!(calls.is_empty() || data["interrupted"] != true, "a cut answer has calls at seq {seq}");
                self.uncalled.extend(calls.clone());
                self.unanswered.extend(calls);
            }
            "tool/call" => take(&mut self.uncalled, &data["callId"])?,
            "tool/result" => take(&mut self.unanswered, &data["message"]["content"][0]["toolCallId"])?,
            _ => {}
        }
        Ok(())
    }
}
