//! What a conversation says, in the form in which the real one and the expected one are compared.

use dsh_plugin_api::abi::calls::Convert;
use dsh_plugin_api::vocab::{Block, Message, Role};
use proptest::prelude::*;

use crate::llm::view::HistoryMessage;

/// One thing that was said. Texts are words, with single spaces between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    User(String),
    Answer {
        text: String,
        thought: String,
        /// Id and arguments of each call.
        calls: Vec<(String, String)>,
        interrupted: bool,
    },
    /// The result of a call.
    Result(String),
    /// A note that the answer above was interrupted.
    Note,
}

/// The result of a call that was not run, and of one that a crash interrupted.
pub const NOT_RUN: &str = "not run";
pub const INTERRUPTED: &str = "interrupted";

/// The words of a text.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of a result, shortened where the host speaks.
pub fn result(text: &str) -> Said {
    Said::Result(match text {
        text if text.starts_with("The call was not run") => NOT_RUN.to_owned(),
        text if text.starts_with("Error: the session was interrupted") => INTERRUPTED.to_owned(),
        text => words(text),
    })
}

/// A message as stored or sent; several results in one message are several things.
fn message(message: &Message, interrupted: bool) -> Vec<Said> {
    let (mut text, mut thought, mut calls, mut said) = (String::new(), String::new(), Vec::new(), Vec::new());
    for block in &message.content {
        match block {
            Block::Text(piece) => text.push_str(piece),
            Block::Reasoning(piece) => thought.push_str(piece),
            Block::ToolCall { id, arguments, .. } => calls.push((id.clone(), arguments.clone())),
            Block::ToolResult { content, .. } => {
                let piece = |block: &Block| if let Block::Text(text) = block { text.clone() } else { String::new() };
                said.push(result(&content.iter().map(piece).collect::<String>()));
            }
            Block::Image(_) | Block::Other(_) => {}
        }
    }
    if message.role == Role::Assistant {
        said.push(Said::Answer { text: words(&text), thought: words(&thought), calls, interrupted });
    } else if text.starts_with("[The answer above was interrupted") {
        said.push(Said::Note);
    } else if !text.is_empty() {
        said.push(Said::User(words(&text)));
    }
    said
}

/// What a history says.
pub fn history(history: &[HistoryMessage]) -> Vec<Said> {
    history.iter().flat_map(|entry| message(&entry.message, entry.interrupted)).collect()
}

/// What a request says.
pub fn request(request: &Convert) -> Vec<Said> {
    request.request.messages.iter().flat_map(|sent| message(sent, false)).collect()
}

/// What the request of a history must say: what was interrupted is marked by a note, arguments that are no JSON object
/// are replaced by an empty one.
pub fn expected_request(history: &[Said]) -> Vec<Said> {
    let mut expected = Vec::new();
    for said in history {
        match said {
            Said::Answer { text, thought, calls, interrupted } => {
                let sent = |arguments: &String| match arguments.starts_with('{') && arguments.ends_with('}') {
                    true => arguments.clone(),
                    false if arguments.is_empty() => String::new(),
                    false => "{}".to_owned(),
                };
                let calls = calls.iter().map(|(id, arguments)| (id.clone(), sent(arguments))).collect();
                let (text, thought) = (text.clone(), thought.clone());
                expected.push(Said::Answer { text, thought, calls, interrupted: false });
                expected.extend(interrupted.then_some(Said::Note));
            }
            other => expected.push(other.clone()),
        }
    }
    comparable(expected)
}

/// A request without what depends on its routing: reasoning goes out natively or not at all, and ids that repeat are
/// replaced.
pub fn comparable(said: Vec<Said>) -> Vec<Said> {
    let plain = said.into_iter().filter_map(|said| match said {
        Said::Answer { text, calls, .. } if text.is_empty() && calls.is_empty() => None,
        Said::Answer { text, calls, .. } => {
            let calls = calls.into_iter().map(|(_, arguments)| (String::new(), arguments)).collect();
            Some(Said::Answer { text, thought: String::new(), calls, interrupted: false })
        }
        other => Some(other),
    });
    plain.collect()
}

/// What every wire needs of a request: it ends with the user, no answer follows another, each call has an id of its
/// own and its one result right behind it, and no message is empty.
pub fn check_request(request: &Convert) -> Result<(), TestCaseError> {
    let mut waiting: Vec<&str> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    let mut last = None;
    for message in &request.request.messages {
        prop_assert!(!message.content.is_empty(), "an empty message in {request:?}");
        if message.role == Role::Assistant {
            prop_assert!(last == Some(Role::User), "an answer to nobody in {request:?}");
        }
        for block in &message.content {
            match block {
                Block::ToolCall { id, .. } => {
                    prop_assert!(message.role == Role::Assistant);
                    prop_assert!(!id.is_empty() && !seen.contains(&id.as_str()), "the id {id:?} twice");
                    seen.push(id);
                    waiting.push(id);
                }
                Block::ToolResult { tool_call_id, .. } => {
                    prop_assert!(message.role == Role::User);
                    prop_assert!(waiting.first() == Some(&tool_call_id.as_str()), "{tool_call_id} of {waiting:?}");
                    waiting.remove(0);
                }
                _ => {
                    let before_results = !waiting.is_empty() && message.role == Role::User;
                    prop_assert!(!before_results, "something stands before the results of {waiting:?}");
                }
            }
        }
        last = Some(message.role);
    }
    prop_assert!(waiting.is_empty(), "{waiting:?} have no result");
    prop_assert!(last == Some(Role::User), "the request ends with an answer");
    Ok(())
}
