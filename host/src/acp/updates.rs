//! From what happens in a session to what a client is shown.
//!
//! [`Translator`] turns the updates of a running turn into session updates, [`replay`] does the same for stored
//! messages, and [`append`] joins text that follows text of the same kind. All three keep the order of the
//! conversation; nothing is ever moved across an update of another kind.
//!
//! What concerns the user but is no part of the answer (a message that goes out without its metadata, a retry, a void
//! attempt) is a thought that starts with `dsh: `: the protocol has no other place that every client shows, and as
//! visible text it would pollute the answer.

use std::collections::{HashMap, HashSet, VecDeque};

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, SessionUpdate, ToolCall, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use dsh_plugin_api::json::{self, Object};
use dsh_plugin_api::vocab::{Block, Message, Role, Source};

use super::convert;
use crate::agent::Update;

/// Gives calls ids that are unique within the session: a provider may use an id again in a later message, and a client
/// would take the second call for the first.
#[derive(Debug, Default)]
struct CallIds {
    /// Every id that was handed out.
    used: HashSet<String>,
    /// The calls without a result, by the provider's id, oldest first.
    open: HashMap<String, VecDeque<String>>,
}

impl CallIds {
    fn call(&mut self, id: &str) -> String {
        let mut unique = id.to_owned();
        let mut number = 1;
        while !self.used.insert(unique.clone()) {
            number += 1;
            unique = format!("{id}#{number}");
        }
        self.open.entry(id.to_owned()).or_default().push_back(unique.clone());
        unique
    }

    /// The oldest call of that id that has no result yet.
    fn result(&mut self, id: &str) -> Option<String> {
        self.open.get_mut(id)?.pop_front()
    }

    /// Every call without a result, in no particular order.
    fn close(&mut self) -> impl Iterator<Item = String> + use<> {
        std::mem::take(&mut self.open).into_values().flatten()
    }
}

/// Turns what happens into session updates.
#[derive(Debug, Default)]
pub(super) struct Translator {
    calls: CallIds,
    /// Something of the running attempt is on the screen.
    visible: bool,
    /// The last update was a thought that did not end its line.
    open_thought: bool,
}

impl Translator {
    /// What the client is shown; `None` for what is not its concern.
    pub(super) fn translate(&mut self, update: Update) -> Option<SessionUpdate> {
        let update = match update {
            Update::Text(text) => {
                self.visible = true;
                self.open_thought = false;
                return Some(message(&text));
            }
            Update::Reasoning(text) => {
                self.visible = true;
                self.open_thought = !text.ends_with('\n');
                return Some(thought(&text));
            }
            Update::Degraded(degraded) => self.note(&degraded.describe()),
            Update::Retry { retry, max_retries, delay_ms, failure } => self.note(&format!(
                "the request failed ({}: {}); retry {retry} of {max_retries} in {}.{:03} s",
                failure.code,
                failure.message,
                delay_ms / 1000,
                delay_ms % 1000
            )),
            Update::AttemptDiscarded => {
                if !std::mem::take(&mut self.visible) {
                    return None;
                }
                self.note("the attempt failed; what it had written is void and no part of the conversation")
            }
            Update::Notice(text) => self.note(&text),
            Update::ToolCall { id, name, arguments } => {
                SessionUpdate::ToolCall(convert::tool_call(self.calls.call(&id), &name, &arguments))
            }
            Update::ToolResult { id, content, is_error } => result(&mut self.calls, &id, &content, is_error),
            Update::Durable(_) => return None,
        };
        self.visible &= matches!(update, SessionUpdate::AgentThoughtChunk(_));
        self.open_thought = false;
        Some(update)
    }

    /// A turn begins or ends: what was shown before belongs to no attempt of this turn.
    pub(super) fn turn_boundary(&mut self) {
        self.visible = false;
    }

    /// A line for the user, on a line of its own.
    fn note(&self, text: &str) -> SessionUpdate {
        let start = if self.open_thought { "\n" } else { "" };
        thought(&format!("{start}dsh: {text}\n"))
    }
}

/// The session so far, as a client that has not seen it is shown it; afterwards the translator goes on from there.
///
/// User messages are those that a person wrote: notes and snapshots of the host or of plugins are not shown, tool
/// results complete their calls. A call that never got a result is failed: nothing runs any more that could answer it.
pub(super) fn replay(messages: &[Message]) -> (Vec<SessionUpdate>, Translator) {
    let mut translator = Translator::default();
    let mut shown = Vec::new();
    for message in messages {
        match message.role {
            Role::System => {}
            Role::Assistant => shown.extend(message.content.iter().filter_map(|block| translator.stored(block))),
            Role::User if is_user(&message.source) => shown.extend(user_message(&message.content)),
            Role::User => shown.extend(translator.results(message)),
        }
    }
    let mut unanswered: Vec<String> = translator.calls.close().collect();
    unanswered.sort_unstable();
    shown.extend(unanswered.into_iter().map(|id| {
        SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
            id,
            ToolCallUpdateFields::new().status(ToolCallStatus::Failed),
        ))
    }));
    translator.turn_boundary();
    (shown, translator)
}

impl Translator {
    /// A block of an assistant message.
    fn stored(&mut self, block: &Block) -> Option<SessionUpdate> {
        match block {
            Block::Text(text) if text.is_empty() => None,
            Block::Reasoning(text) if text.is_empty() => None,
            Block::Text(text) => self.translate(Update::Text(text.clone())),
            Block::Reasoning(text) => self.translate(Update::Reasoning(text.clone())),
            Block::ToolCall { id, name, arguments } => {
                self.translate(Update::ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() })
            }
            block => {
                convert::content(block).map(|content| SessionUpdate::AgentMessageChunk(ContentChunk::new(content)))
            }
        }
    }

    /// The tool results in a message that no person wrote. A message that claims to be the result of a call but has no
    /// result block is taken at its word.
    fn results(&mut self, message: &Message) -> Vec<SessionUpdate> {
        let blocks: Vec<_> = message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::ToolResult { tool_call_id, content, is_error } => {
                    Some(result(&mut self.calls, tool_call_id, content, is_error.unwrap_or(false)))
                }
                _ => None,
            })
            .collect();
        match &message.source {
            Source::Tool { call_id } if blocks.is_empty() => {
                vec![result(&mut self.calls, call_id, &message.content, false)]
            }
            _ => blocks,
        }
    }
}

/// The chunks of a message that a person wrote.
pub(super) fn user_message(content: &[Block]) -> impl Iterator<Item = SessionUpdate> {
    content
        .iter()
        .filter_map(convert::content)
        .map(|content| SessionUpdate::UserMessageChunk(ContentChunk::new(content)))
}

/// The end of a call. A result without its call stands for both, so that nothing of the log is missing.
fn result(calls: &mut CallIds, id: &str, content: &[Block], is_error: bool) -> SessionUpdate {
    match calls.result(id) {
        Some(unique) => SessionUpdate::ToolCallUpdate(convert::tool_result(unique, content, is_error)),
        None => {
            let unique = calls.call(id);
            calls.result(id);
            let status = if is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
            SessionUpdate::ToolCall(
                ToolCall::new(unique, "result without its call").status(status).content(convert::tool_content(content)),
            )
        }
    }
}

fn is_user(source: &Source) -> bool {
    match source {
        Source::User => true,
        Source::Other(raw) => {
            json::from_str::<Object>(raw.get()).is_ok_and(|source| source.get_str("kind").as_deref() == Some("user"))
        }
        Source::Tool { .. } | Source::Model { .. } => false,
    }
}

fn message(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(ContentChunk::new(convert::text(text)))
}

fn thought(text: &str) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(ContentChunk::new(convert::text(text)))
}

/// Longest text that a further one joins, in bytes. A client that falls behind gets its backlog in lines that can be
/// read and written one at a time.
const LONGEST_JOINED: usize = 32 * 1024;

/// About how many bytes an update takes.
pub(super) fn weight(update: &SessionUpdate) -> usize {
    const BARE: usize = 256;
    match update {
        SessionUpdate::AgentMessageChunk(chunk) | SessionUpdate::AgentThoughtChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => text.text.len(),
            _ => BARE,
        },
        _ => BARE,
    }
}

/// Adds `update` to what `last` shows when both are text of the same kind; gives it back otherwise.
pub(super) fn append(last: Option<&mut SessionUpdate>, update: SessionUpdate) -> Option<SessionUpdate> {
    let (into, from) = match (last, &update) {
        (Some(SessionUpdate::AgentMessageChunk(into)), SessionUpdate::AgentMessageChunk(from))
        | (Some(SessionUpdate::AgentThoughtChunk(into)), SessionUpdate::AgentThoughtChunk(from)) => (into, from),
        _ => return Some(update),
    };
    match (&mut into.content, &from.content) {
        (ContentBlock::Text(into), ContentBlock::Text(from)) if into.text.len() < LONGEST_JOINED => {
            into.text.push_str(&from.text);
            None
        }
        _ => Some(update),
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::{Failure, FailureCode};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::client::Degraded;

    fn messages(value: Value) -> Vec<Message> {
        serde_json::from_value(value).unwrap()
    }

    /// Kind and what matters of each update.
    fn outline(updates: &[SessionUpdate]) -> Vec<Value> {
        let outline = |update: &SessionUpdate| {
            let update = json!(update);
            let text = |value: &Value| value["text"].as_str().map_or_else(|| value["mimeType"].clone(), |t| json!(t));
            match update["sessionUpdate"].as_str().unwrap() {
                kind @ ("tool_call" | "tool_call_update") => {
                    json!([kind, update["toolCallId"], update["status"], text(&update["content"][0]["content"])])
                }
                kind => json!([kind, text(&update["content"])]),
            }
        };
        updates.iter().map(outline).collect()
    }

    #[test]
    fn a_replay_shows_the_conversation_in_order_and_nothing_of_the_host() {
        let history = messages(json!([
            { "role": "system", "content": [{ "type": "text", "text": "be brief" }] },
            { "role": "user", "content": [{ "type": "text", "text": "[note]" }], "source": { "kind": "plugin", "plugin": "p" } },
            { "role": "user", "content": [{ "type": "text", "text": "run it" },
                { "type": "image", "mimeType": "image/png", "data": "AA==" }], "source": { "kind": "user", "via": "editor" } },
            { "role": "assistant", "content": [{ "type": "reasoning", "text": "think" }, { "type": "text", "text": "" },
                { "type": "text", "text": "I run." }, { "type": "tool-call", "id": "c1", "name": "bash", "arguments": "{}" },
                { "type": "tool-call", "id": "c2", "name": "bash", "arguments": "{}" }, { "type": "hologram" }],
                "source": { "kind": "model", "provider": "p", "model": "m" } },
            { "role": "user", "content": [{ "type": "tool-result", "toolCallId": "c2", "isError": true,
                "content": [{ "type": "text", "text": "no" }] }], "source": { "kind": "tool", "callId": "c2" } },
            { "role": "user", "content": [{ "type": "text", "text": "plain" }], "source": { "kind": "tool", "callId": "c1" } },
            { "role": "user", "content": [{ "type": "text", "text": "thanks" }], "source": { "kind": "user" } },
        ]));
        assert_eq!(
            outline(&replay(&history).0),
            [
                json!(["user_message_chunk", "run it"]),
                json!(["user_message_chunk", "image/png"]),
                json!(["agent_thought_chunk", "think"]),
                json!(["agent_message_chunk", "I run."]),
                json!(["tool_call", "c1", "in_progress", null]),
                json!(["tool_call", "c2", "in_progress", null]),
                json!(["tool_call_update", "c2", "failed", "no"]),
                json!(["tool_call_update", "c1", "completed", "plain"]),
                json!(["user_message_chunk", "thanks"]),
            ]
        );
    }

    #[test]
    fn calls_with_the_same_id_stay_apart_and_none_stays_open() {
        let call = json!({ "role": "assistant", "content": [{ "type": "tool-call", "id": "c", "name": "t", "arguments": "" }],
            "source": { "kind": "model", "provider": "p", "model": "m" } });
        let result = json!({ "role": "user", "content": [{ "type": "tool-result", "toolCallId": "c", "content": [] }],
            "source": { "kind": "tool", "callId": "c" } });
        let history = messages(json!([call, result, call, result, result, call]));
        let (updates, mut translator) = replay(&history);
        assert_eq!(
            outline(&updates),
            [
                json!(["tool_call", "c", "in_progress", null]),
                json!(["tool_call_update", "c", "completed", null]),
                json!(["tool_call", "c#2", "in_progress", null]),
                json!(["tool_call_update", "c#2", "completed", null]),
                json!(["tool_call", "c#3", "completed", null]),
                json!(["tool_call", "c#4", "in_progress", null]),
                json!(["tool_call_update", "c#4", "failed", null]),
            ]
        );
        let call = Update::ToolCall { id: "c".into(), name: "t".into(), arguments: String::new() };
        let live = translator.translate(call);
        assert_eq!(outline(live.as_slice()), [json!(["tool_call", "c#5", "in_progress", null])]);
    }

    fn translate(updates: Vec<Update>) -> Vec<Value> {
        let mut translator = Translator::default();
        outline(&updates.into_iter().filter_map(|update| translator.translate(update)).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_no_answer_is_a_thought_on_a_line_of_its_own() {
        let failure = Failure::new(FailureCode::Server, "overloaded");
        let degraded = Degraded {
            message: 2,
            message_id: "m".into(),
            code: "INVALID_REPLAY_STATE",
            reason: "3 blocks, 2 entries".into(),
        };
        assert_eq!(
            translate(vec![
                Update::Degraded(degraded),
                Update::Reasoning("hm".into()),
                Update::Notice("hello".into()),
                Update::Retry { retry: 1, max_retries: 3, delay_ms: 1050, failure },
            ]),
            [
                json!([
                    "agent_thought_chunk",
                    "dsh: message 2 goes out without its replay metadata (INVALID_REPLAY_STATE): 3 blocks, 2 entries\n"
                ]),
                json!(["agent_thought_chunk", "hm"]),
                json!(["agent_thought_chunk", "\ndsh: hello\n"]),
                json!([
                    "agent_thought_chunk",
                    "dsh: the request failed (SERVER: overloaded); retry 1 of 3 in 1.050 s\n"
                ]),
            ]
        );
    }

    #[test]
    fn a_void_attempt_is_reported_only_when_something_of_it_was_shown() {
        let call = || Update::ToolCall { id: "c".into(), name: "t".into(), arguments: String::new() };
        for (before, reported) in [
            (vec![], false),
            (vec![Update::Text("a".into())], true),
            (vec![Update::Reasoning("a".into()), Update::Notice("n".into())], true),
            (vec![Update::Text("a".into()), call()], false),
            (vec![Update::Text("a".into()), Update::AttemptDiscarded], false),
        ] {
            let shown = translate(before.clone()).len();
            let with_discard = translate(before.into_iter().chain([Update::AttemptDiscarded]).collect()).len();
            assert_eq!(with_discard - shown, usize::from(reported));
        }
    }

    fn any_update() -> impl Strategy<Value = SessionUpdate> {
        prop_oneof![
            "[a-z]{0,3}".prop_map(|text| message(&text)),
            "[a-z]{0,3}".prop_map(|text| thought(&text)),
            "[a-z]{1,2}".prop_map(|id| SessionUpdate::ToolCall(convert::tool_call(id, "bash", ""))),
            Just(SessionUpdate::AgentMessageChunk(ContentChunk::new(
                convert::content(&Block::Image(dsh_plugin_api::vocab::Image::Data {
                    mime_type: "image/png".into(),
                    data: String::new(),
                }))
                .unwrap()
            ))),
        ]
    }

    /// The text of each run of one kind, and everything else as it is.
    fn runs(updates: &[SessionUpdate]) -> Vec<Value> {
        let mut runs: Vec<Value> = Vec::new();
        for update in outline(updates) {
            match runs.last_mut() {
                Some(last)
                    if last[0] == update[0]
                        && update.get(2).is_none()
                        && update[1] != "image/png"
                        && last[1] != "image/png" =>
                {
                    let joined = format!("{}{}", last[1].as_str().unwrap(), update[1].as_str().unwrap());
                    last[1] = json!(joined);
                }
                _ => runs.push(update),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn joining_keeps_every_text_and_the_order(updates in proptest::collection::vec(any_update(), 0..30)) {
            let mut joined: Vec<SessionUpdate> = Vec::new();
            for update in updates.clone() {
                if let Some(update) = append(joined.last_mut(), update) {
                    joined.push(update);
                }
            }
            prop_assert_eq!(outline(&joined), runs(&updates));
        }
    }
}
