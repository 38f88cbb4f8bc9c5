//! The history as messages of this wire: where each block goes, and the order that the wire wants.
//!
//! The server refuses a user right after a tool, and an assistant that neither speaks nor calls: an assistant sentence
//! stands between results and the user, neighbours of the assistant are one, and the user speaks first. Ids are nine
//! letters or digits.

use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::ids::{CallIds, IdRule};
use dsh_plugin_api::kit::names::legal_name;
use dsh_plugin_api::kit::notes::{
    CONVERSATION_GOES_ON, IMAGE_OMITTED, NO_OUTPUT, RESULTS_SEEN, SEE_IMAGE, TOOL_IMAGE_OMITTED,
};
use dsh_plugin_api::kit::repairs::Repairs;
use dsh_plugin_api::vocab::{Image, Repair, Role};
use serde_json::{Value, json};

use super::replay::{Call, Part, Turn};
use crate::request::{IMAGE_SIZE, size};

/// Stands before the text of a result that says that the tool failed: the wire has no mark for it.
const FAILED: &str = "[tool error] ";

/// One message of the wire.
#[derive(Debug)]
pub(super) struct WireMessage {
    speaker: Speaker,
    content: Vec<Chunk>,
    calls: Vec<WireCall>,
}

/// Who speaks on the wire.
#[derive(Debug, PartialEq, Eq)]
enum Speaker {
    System,
    User,
    Assistant,
    /// A tool, with the id of the call and its name.
    Tool {
        id: String,
        name: Option<String>,
    },
}

/// One chunk of a content.
#[derive(Debug, PartialEq, Eq)]
enum Chunk {
    Text(String),
    Thinking(String),
    /// A data URI.
    Image(String),
}

#[derive(Debug)]
struct WireCall {
    id: String,
    name: String,
    /// JSON text of an object.
    arguments: String,
}

impl WireMessage {
    const fn new(speaker: Speaker, content: Vec<Chunk>) -> Self {
        Self { speaker, content, calls: Vec::new() }
    }

    fn text(speaker: Speaker, text: impl Into<String>) -> Self {
        Self::new(speaker, vec![Chunk::Text(text.into())])
    }

    /// Size for the estimate of tokens, in UTF-16 units; an image counts like a page of text.
    pub fn size(&self) -> usize {
        let content = self.content.iter().map(|chunk| match chunk {
            Chunk::Text(text) | Chunk::Thinking(text) => size(text),
            Chunk::Image(_) => IMAGE_SIZE,
        });
        let calls = self.calls.iter().map(|call| call.name.len() + size(&call.arguments));
        content.chain(calls).sum()
    }

    /// The message as JSON.
    pub fn json(&self) -> Raw {
        let mut out = Object::new();
        let role = match self.speaker {
            Speaker::System => "system",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
            Speaker::Tool { .. } => "tool",
        };
        out.set("role", raw(role));
        match &self.content[..] {
            [] => {}
            [Chunk::Text(text)] => out.set("content", raw(text)),
            chunks => out.set("content", raw(&chunks.iter().map(Chunk::json).collect::<Vec<_>>())),
        }
        if !self.calls.is_empty() {
            let call = |call: &WireCall| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            };
            out.set("tool_calls", raw(&self.calls.iter().map(call).collect::<Vec<_>>()));
        }
        if let Speaker::Tool { id, name } = &self.speaker {
            out.set("tool_call_id", raw(id));
            if let Some(name) = name {
                out.set("name", raw(name));
            }
        }
        raw(&out)
    }
}

impl Chunk {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "text", "text": text}),
            Self::Thinking(text) => json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]}),
            Self::Image(url) => json!({"type": "image_url", "image_url": url}),
        }
    }
}

/// Puts the messages of one request together.
pub(super) struct History {
    takes_images: bool,
    ids: CallIds,
    out: Vec<WireMessage>,
    repairs: Repairs,
}

impl History {
    /// An empty history.
    pub const fn new(takes_images: bool) -> Self {
        Self { takes_images, ids: CallIds::new(IdRule::Mistral), out: Vec::new(), repairs: Repairs::new() }
    }

    /// Adds the system prompt.
    pub fn system_prompt(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.out.push(WireMessage::text(Speaker::System, text));
        }
    }

    /// Adds the message at `position`.
    pub fn push(&mut self, position: usize, turn: Turn) {
        match turn.role {
            // Inside the conversation the wire takes instructions in few places, and the user everywhere.
            Role::System | Role::User => self.user(position, turn.parts),
            Role::Assistant => self.assistant(position, turn.parts),
        }
    }

    /// The messages and what had to be changed.
    pub fn finish(mut self) -> (Vec<WireMessage>, Vec<Repair>) {
        if self.out.iter().all(|message| message.speaker == Speaker::System) {
            self.out.push(WireMessage::text(Speaker::User, CONVERSATION_GOES_ON));
        }
        (self.out, self.repairs.into_vec())
    }

    /// Results come first, whatever stands before them in the message.
    fn user(&mut self, position: usize, parts: Vec<Part>) {
        let mut said = Vec::new();
        for part in parts {
            match part {
                Part::Result { call_id, content, is_error } => {
                    self.result(position, &call_id, content, is_error);
                }
                other => said.push(other),
            }
        }
        let content = self.chunks(position, said, IMAGE_OMITTED);
        if content.is_empty() {
            return;
        }
        if matches!(self.out.last(), Some(WireMessage { speaker: Speaker::Tool { .. }, .. })) {
            self.out.push(WireMessage::text(Speaker::Assistant, RESULTS_SEEN));
        }
        self.out.push(WireMessage::new(Speaker::User, content));
    }

    /// Texts and images; a run of images that are left out is one note.
    fn chunks(&mut self, position: usize, parts: Vec<Part>, omitted: &'static str) -> Vec<Chunk> {
        let mut out: Vec<Chunk> = Vec::new();
        for part in parts {
            let next = match part {
                Part::Text { text, .. } => Chunk::Text(text),
                Part::Image(image) => self.image(position, &image, omitted),
                Part::Reasoning { .. } | Part::Call(_) | Part::Result { .. } => continue,
            };
            let is_note = matches!(&next, Chunk::Text(text) if text == omitted);
            if !(is_note && out.last() == Some(&next)) {
                out.push(next);
            }
        }
        out
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> Chunk {
        match self.repairs.image(position, image, self.takes_images, omitted) {
            Ok(picture) => Chunk::Image(picture.data_uri()),
            Err(note) => Chunk::Text(note.to_owned()),
        }
    }

    fn result(&mut self, position: usize, call_id: &str, content: Vec<Part>, is_error: bool) {
        let mut texts = Vec::new();
        let mut images = Vec::new();
        for chunk in self.chunks(position, content, TOOL_IMAGE_OMITTED) {
            match chunk {
                Chunk::Text(text) => texts.push(text),
                other => images.push(other),
            }
        }
        let text = match (texts.is_empty(), images.is_empty()) {
            (false, _) => texts.join("\n"),
            (true, false) => SEE_IMAGE.to_owned(),
            (true, true) => NO_OUTPUT.to_owned(),
        };
        let mut content = vec![Chunk::Text(if is_error { format!("{FAILED}{text}") } else { text })];
        content.append(&mut images);
        let speaker = match self.ids.answered(call_id) {
            Some(call) => Speaker::Tool { id: call.id, name: Some(call.name) },
            None => Speaker::Tool { id: self.ids.stray(call_id), name: None },
        };
        self.out.push(WireMessage::new(speaker, content));
    }

    fn assistant(&mut self, position: usize, parts: Vec<Part>) {
        if !parts.iter().any(|part| matches!(part, Part::Text { .. } | Part::Call(_))) {
            return;
        }
        self.ids.begin_message();
        let mut message = WireMessage::new(Speaker::Assistant, Vec::new());
        for part in parts {
            match part {
                Part::Text { text, .. } => message.content.push(Chunk::Text(text)),
                Part::Reasoning { text, .. } if !text.trim().is_empty() => message.content.push(Chunk::Thinking(text)),
                Part::Call(call) => {
                    let call = self.call(position, call);
                    message.calls.push(call);
                }
                Part::Reasoning { .. } | Part::Image(_) | Part::Result { .. } => {}
            }
        }
        match self.out.last_mut() {
            Some(last) if last.speaker == Speaker::Assistant && last.calls.is_empty() => {
                last.content.append(&mut message.content);
                last.calls = message.calls;
            }
            None | Some(WireMessage { speaker: Speaker::System, .. }) => {
                self.out.push(WireMessage::text(Speaker::User, CONVERSATION_GOES_ON));
                self.out.push(message);
            }
            Some(_) => self.out.push(message),
        }
    }

    fn call(&mut self, position: usize, call: Call) -> WireCall {
        let name = legal_name(&call.name);
        self.repairs.tool_name(position, &call.name, &name);
        let id = self.ids.call(&call.id, &name, call.native);
        self.repairs.call_id(position, &call.id, &id);
        let arguments = self.repairs.arguments(position, &call.arguments);
        WireCall { id, name, arguments }
    }
}
