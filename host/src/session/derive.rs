//! The derived history: the messages that a log's events put on the surface.
//!
//! A pure function of the events. `user/message`, `assistant/message` and `tool/result` put a message on the surface,
//! at its end or in place of others; no other event does, whatever its data looks like. Nothing a log can hold makes
//! derivation fail: a body that is no message is read as leniently as its words allow, and one without words derives
//! to nothing.

use dsh_plugin_api::json::{self, Object, Raw};
use dsh_plugin_api::vocab::{Block, Message, Role, Source};
use serde::Deserialize;

use super::event::{Event, kind};

/// One message of the derived history.
#[derive(Debug, Clone)]
pub struct DerivedMessage {
    /// The message, with every member it was written with.
    pub message: Message,
    /// True for a partial answer: the model that reads it is told that it was interrupted.
    pub interrupted: bool,
    /// Position of its event in the session.
    pub seq: u64,
}

/// The history that these events derive to.
#[must_use]
pub fn history<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<DerivedMessage> {
    let mut surface = Surface::default();
    events.into_iter().for_each(|event| surface.take(event));
    surface.0
}

/// The messages that the events so far put on the surface.
#[derive(Debug, Default)]
pub struct Surface(Vec<DerivedMessage>);

impl Surface {
    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let Some(body) = Body::of(event) else { return };
        let place = match SurfaceOp::of(event) {
            SurfaceOp::Append => self.0.len(),
            SurfaceOp::Replace { start, end } => replace(&mut self.0, start, end),
        };
        if let Some(message) = body.message {
            self.0.insert(place, DerivedMessage { message, interrupted: body.interrupted, seq: event.seq });
        }
    }

    /// True when there is no message.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes the messages of these seqs off the surface; returns where the first of them stood, or the end.
fn replace(surface: &mut Vec<DerivedMessage>, start: u64, end: u64) -> usize {
    let replaced = |message: &DerivedMessage| (start..=end).contains(&message.seq);
    let place = surface.iter().position(replaced).unwrap_or(surface.len());
    surface.retain(|message| !replaced(message));
    place
}

/// What a message event does to the surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurfaceOp {
    /// Its message stands at the end. Also the reading of an absent or unknown operation: nothing that was said is
    /// left out.
    Append,
    /// Its message stands in place of the messages whose event seqs lie from `start` to `end`, both included.
    Replace {
        /// First replaced seq.
        start: u64,
        /// Last replaced seq.
        end: u64,
    },
}

impl SurfaceOp {
    /// The operation of an event.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        #[derive(Deserialize)]
        struct Written {
            op: String,
            start: u64,
            end: u64,
        }
        let written = event.extra.get("surfaceOp").and_then(|op| json::from_str::<Written>(op.get()).ok());
        match written {
            Some(Written { op, start, end }) if op == "replace" => Self::Replace { start, end },
            _ => Self::Append,
        }
    }
}

/// The body of a message event.
struct Body {
    /// `None` where there is nothing to show: an assistant message without content, a body that is no message.
    message: Option<Message>,
    interrupted: bool,
}

impl Body {
    /// `None` for an event of another kind.
    fn of(event: &Event) -> Option<Self> {
        #[derive(Deserialize)]
        struct Data {
            message: Option<Raw>,
            #[serde(default)]
            interrupted: Option<Raw>,
        }
        let role = match &*event.kind {
            kind::USER_MESSAGE => {
                return Some(Self { message: read_message(event.data.get(), Role::User), interrupted: false });
            }
            kind::ASSISTANT_MESSAGE => Role::Assistant,
            kind::TOOL_RESULT => Role::User,
            _ => return None,
        };
        let Ok(data) = event.parse::<Data>() else { return Some(Self { message: None, interrupted: false }) };
        let mut message = data.message.and_then(|message| read_message(message.get(), role));
        if role == Role::Assistant {
            message = message.filter(|message| !message.content.is_empty());
        }
        Some(Self { message, interrupted: data.interrupted.is_some_and(|mark| mark.get() == "true") })
    }
}

/// Reads a message; `role` is that of its event, for a body that names none.
fn read_message(text: &str, role: Role) -> Option<Message> {
    if let Ok(message) = json::from_str(text) {
        return Some(message);
    }
    let mut body: Object = json::from_str(text).ok()?;
    let id = body.take_as("id").unwrap_or_default();
    let role = body.take_as("role").unwrap_or(role);
    let source: Source = body.take_as("source").unwrap_or_else(|| Source::Other(json::raw(&Object::new())));
    let content = body.take("content").map(|content| read_content(content, &source)).unwrap_or_default();
    Some(Message { id, role, content, source, extra: body })
}

/// Content in a form that is no array of blocks: words, or one block alone.
fn read_content(content: Raw, source: &Source) -> Vec<Block> {
    if let Ok(blocks) = json::from_str(content.get()) {
        return blocks;
    }
    let block = match json::from_str::<String>(content.get()) {
        Ok(words) => Block::Text(words),
        Err(_) if content.get() == "null" => return Vec::new(),
        Err(_) => match json::from_str(content.get()) {
            Ok(block) => block,
            Err(_) => Block::Other(content),
        },
    };
    match source {
        Source::Tool { call_id } if matches!(block, Block::Text(_)) => {
            vec![Block::ToolResult { tool_call_id: call_id.clone(), content: vec![block], is_error: None }]
        }
        _ => vec![block],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::line::{Place, scan};

    /// Events of these lines, numbered in order.
    fn events(lines: &[&str]) -> Vec<Event> {
        let mut events = Vec::new();
        for line in lines {
            for record in scan(line.as_bytes()).records {
                let read = record.into_entry(Place { seq: events.len() as u64, time: 0 }).unwrap();
                events.extend(read.entry.events().map(std::borrow::Cow::into_owned));
            }
        }
        events
    }

    fn said(lines: &[&str]) -> Vec<String> {
        history(&events(lines)).iter().map(|entry| entry.message.text()).collect()
    }

    fn user(text: &str, op: &str) -> String {
        format!(
            r#"{{"type":"user/message","data":{{"id":"u","role":"user","content":[{{"type":"text","text":"{text}"}}],"source":{{"kind":"user"}}}},"surfaceOp":{op}}}"#
        )
    }

    #[test]
    fn a_replacement_stands_where_the_first_replaced_message_stood() {
        let (a, b, c, d) =
            (user("a", r#""append""#), user("b", r#""append""#), user("c", r#""append""#), user("d", "7"));
        for (op, expected) in [
            (r#"{"op":"replace","start":1,"end":2}"#, &["a", "x", "d"][..]),
            (r#"{"op":"replace","start":0,"end":3}"#, &["x"]),
            (r#"{"op":"replace","start":9,"end":12}"#, &["a", "b", "c", "d", "x"]),
            (r#"{"op":"replace","start":2,"end":1}"#, &["a", "b", "c", "d", "x"]),
            (r#"{"op":"rewind","start":0,"end":3}"#, &["a", "b", "c", "d", "x"]),
        ] {
            assert_eq!(said(&[&a, &b, &c, &d, &user("x", op)]), expected, "{op}");
        }
    }

    #[test]
    fn a_replacement_can_be_replaced_by_its_own_seq() {
        let lines = [
            user("a", r#""append""#),
            user("b", r#""append""#),
            user("ab", r#"{"op":"replace","start":0,"end":1}"#),
            user("c", r#""append""#),
            user("abc", r#"{"op":"replace","start":2,"end":3}"#),
        ];
        assert_eq!(said(&lines.each_ref().map(String::as_str)), ["abc"]);
    }

    #[test]
    fn only_message_events_with_content_reach_the_surface() {
        let lines = [
            r#"{"type":"assistant/message","data":{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[],"source":{"kind":"user"}}},"surfaceOp":"append"}"#,
            r#"{"type":"assistant/message","data":{"turn":1,"step":1,"message":null},"surfaceOp":"append"}"#,
            r#"{"type":"future/thing","data":{"message":{"role":"user","content":[{"type":"text","text":"no"}]}},"surfaceOp":"append"}"#,
            r#"{"type":"assistant/message","data":{"turn":1,"step":1,"interrupted":true,"message":{"id":"b","role":"assistant","content":[{"type":"text","text":"par"}],"source":{"kind":"model","provider":"p","model":"m"},"x":[1]}},"surfaceOp":"append"}"#,
        ];
        let history = history(&events(&lines));
        assert_eq!(history.len(), 1);
        assert!(history[0].interrupted);
        assert_eq!(history[0].seq, 3);
        assert_eq!(history[0].message.extra.get("x").unwrap().get(), "[1]");
    }

    #[test]
    fn words_in_place_of_blocks_are_kept() {
        for (line, expected) in [
            (
                r#"{"type":"tool/result","data":{"message":{"source":{"kind":"tool","callId":"c"},"content":"words","role":"user","id":"t"}}}"#,
                r#"[{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"words"}]}]"#,
            ),
            (
                r#"{"type":"user/message","data":{"content":"words","source":{"kind":"user"}}}"#,
                r#"[{"type":"text","text":"words"}]"#,
            ),
            (
                r#"{"type":"user/message","data":{"content":{"type":"text","text":"words"}}}"#,
                r#"[{"type":"text","text":"words"}]"#,
            ),
            (
                r#"{"type":"tool/result","data":{"message":{"source":{"kind":"tool","callId":"c"},"content":{"type":"tool-result","toolCallId":"d","content":[]}}}}"#,
                r#"[{"type":"tool-result","toolCallId":"d","content":[]}]"#,
            ),
            (r#"{"type":"user/message","data":{"role":"user","content":5}}"#, "[5]"),
            (r#"{"type":"user/message","data":{"role":"narrator","content":null}}"#, "[]"),
        ] {
            let history = history(&events(&[line]));
            assert_eq!(json::raw(&history[0].message.content).get(), expected, "{line}");
        }
    }

    #[test]
    fn lone_surrogates_are_shown_as_the_replacement_character_and_stay_in_the_event() {
        let line = user(r"x\ud83d", r#""append""#);
        assert_eq!(said(&[&line]), ["x\u{fffd}"]);
        assert!(events(&[&line])[0].data.get().contains(r"x\ud83d"));
    }
}
