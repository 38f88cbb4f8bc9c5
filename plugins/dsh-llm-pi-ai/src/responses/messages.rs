//! The history as input items of this wire.
//!
//! A server that keeps nothing still checks how the items of one of its answers belong together: a reasoning item goes
//! back only with the item that followed it, and a message or call that followed reasoning goes back under its own id
//! only with that reasoning. Where reasoning cannot go back, what followed it goes as if it were new.

use std::collections::BTreeSet;

use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::kit::ids::{CallIds, IdRule};
use dsh_plugin_api::kit::names::legal_name;
use dsh_plugin_api::kit::notes::{IMAGE_OMITTED, NO_OUTPUT, TOOL_IMAGE_OMITTED};
use dsh_plugin_api::kit::repairs::Repairs;
use dsh_plugin_api::vocab::{Image, Repair, Role};
use serde::Serialize;
use serde_json::{Value, json};

use super::item::{halves, is_legal_id, sendable_reasoning};
use super::replay::{Call, MessageMark, Part, Turn};
use crate::request::{IMAGE_SIZE, size};

/// Who speaks in a message that is not the model's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speaker {
    /// Instructions.
    System,
    /// Instructions for a thinking model.
    Developer,
    /// The user.
    User,
}

/// One input item.
#[derive(Debug)]
pub(super) enum WireItem {
    /// Instructions, or what the user says.
    Said {
        /// Who says it.
        speaker: Speaker,
        /// What.
        content: Content,
    },
    /// A message of the model.
    Answer {
        /// Id of the item.
        id: String,
        /// The model's own mark of what kind of message it is.
        phase: Option<String>,
        /// Its text.
        text: String,
    },
    /// A reasoning item, as it came.
    Reasoning(Raw),
    /// A tool call.
    Call {
        /// Id of the item, where it has one of its own.
        id: Option<String>,
        /// Id that the output names.
        call_id: String,
        /// Name of the tool.
        name: String,
        /// JSON text of an object.
        arguments: String,
    },
    /// The output of a tool call.
    Output {
        /// Id of the call.
        call_id: String,
        /// What the tool said.
        content: Content,
    },
}

/// The content of a message or an output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A string.
    Text(String),
    /// Parts.
    Parts(Vec<ContentPart>),
}

/// One part of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentPart {
    /// Text.
    Text(String),
    /// An image as a data URI.
    Image(String),
}

impl WireItem {
    /// Size for the estimate of tokens, in UTF-16 units; an image counts like a page of text.
    pub fn size(&self) -> usize {
        match self {
            Self::Said { content, .. } | Self::Output { content, .. } => content.size(),
            Self::Answer { text, .. } => size(text),
            Self::Reasoning(item) => item.get().len(),
            Self::Call { name, arguments, .. } => name.len() + size(arguments),
        }
    }

    /// The item as JSON.
    pub fn json(&self) -> Raw {
        raw(&match self {
            Self::Said { speaker, content } => json!({"role": speaker, "content": content.json()}),
            Self::Answer { id, phase, text } => {
                let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                let mut message = json!({"type": "message", "role": "assistant", "status": "completed", "id": id,
                    "content": content});
                if let Some(phase) = phase {
                    message["phase"] = json!(phase);
                }
                message
            }
            Self::Reasoning(item) => return item.clone(),
            Self::Call { id, call_id, name, arguments } => {
                let mut call =
                    json!({"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments});
                if let Some(id) = id {
                    call["id"] = json!(id);
                }
                call
            }
            Self::Output { call_id, content } => {
                json!({"type": "function_call_output", "call_id": call_id, "output": content.json()})
            }
        })
    }
}

impl Content {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => size(text),
            Self::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    ContentPart::Text(text) => size(text),
                    ContentPart::Image(_) => IMAGE_SIZE,
                })
                .sum(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Parts(parts) => parts.iter().map(ContentPart::json).collect(),
        }
    }
}

impl ContentPart {
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({"type": "input_text", "text": text}),
            Self::Image(url) => json!({"type": "input_image", "detail": "auto", "image_url": url}),
        }
    }
}

/// Puts the items of one request together.
pub(super) struct History {
    takes_images: bool,
    instructions: Speaker,
    ids: CallIds,
    /// Ids of items, of every kind.
    item_ids: BTreeSet<String>,
    made_up_ids: u32,
    out: Vec<WireItem>,
    repairs: Repairs,
}

impl History {
    /// `instructions` is the role of system messages.
    pub const fn new(instructions: Speaker, takes_images: bool) -> Self {
        Self {
            takes_images,
            instructions,
            ids: CallIds::new(IdRule::Common),
            item_ids: BTreeSet::new(),
            made_up_ids: 0,
            out: Vec::new(),
            repairs: Repairs::new(),
        }
    }

    /// Adds the system prompt.
    pub fn system_prompt(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.out.push(WireItem::Said { speaker: self.instructions, content: Content::Text(text.to_owned()) });
        }
    }

    /// Adds the message at `position`.
    pub fn push(&mut self, position: usize, turn: Turn) {
        match turn.role {
            Role::System => self.system(turn.parts),
            Role::User => self.user(position, turn.parts),
            Role::Assistant => self.assistant(position, turn.parts),
        }
    }

    /// The items and what had to be changed.
    pub fn finish(self) -> (Vec<WireItem>, Vec<Repair>) {
        (self.out, self.repairs.into_vec())
    }

    fn system(&mut self, parts: Vec<Part>) {
        let texts =
            parts.into_iter().filter_map(|part| if let Part::Text { text, .. } = part { Some(text) } else { None });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        self.system_prompt(&text);
    }

    /// Outputs come first, whatever stands before them in the message.
    fn user(&mut self, position: usize, parts: Vec<Part>) {
        let mut said = Vec::new();
        for part in parts {
            match part {
                Part::Result { call_id, content, .. } => self.result(position, &call_id, content),
                other => said.push(other),
            }
        }
        let parts = self.user_content(position, said, IMAGE_OMITTED);
        if !parts.is_empty() {
            self.out.push(WireItem::Said { speaker: Speaker::User, content: Content::Parts(parts) });
        }
    }

    fn user_content(&mut self, position: usize, parts: Vec<Part>, omitted: &'static str) -> Vec<ContentPart> {
        let mut content: Vec<ContentPart> = Vec::new();
        for part in parts {
            let next = match part {
                Part::Text { text, .. } => ContentPart::Text(text),
                Part::Image(image) => self.image(position, &image, omitted),
                Part::Reasoning { .. } | Part::Call(_) | Part::Result { .. } => continue,
            };
            // A run of images that are left out is one note.
            let is_note = matches!(&next, ContentPart::Text(text) if text == omitted);
            if !(is_note && content.last() == Some(&next)) {
                content.push(next);
            }
        }
        content
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> ContentPart {
        match self.repairs.image(position, image, self.takes_images, omitted) {
            Ok(picture) => ContentPart::Image(picture.data_uri()),
            Err(note) => ContentPart::Text(note.to_owned()),
        }
    }

    /// An output is a string where it can be one; images follow the text.
    fn result(&mut self, position: usize, call_id: &str, content: Vec<Part>) {
        let mut texts = Vec::new();
        let mut images = Vec::new();
        for part in self.user_content(position, content, TOOL_IMAGE_OMITTED) {
            match part {
                ContentPart::Text(text) => texts.push(text),
                ContentPart::Image(_) => images.push(part),
            }
        }
        let content = match (texts.is_empty(), images.is_empty()) {
            (true, true) => Content::Text(NO_OUTPUT.to_owned()),
            (false, true) => Content::Text(texts.join("\n")),
            (true, false) => Content::Parts(images),
            (false, false) => {
                let mut parts = vec![ContentPart::Text(texts.join("\n"))];
                parts.append(&mut images);
                Content::Parts(parts)
            }
        };
        let call_id = match self.ids.answered(call_id) {
            Some(call) => call.id,
            None => self.ids.stray(halves(call_id).0),
        };
        self.out.push(WireItem::Output { call_id, content });
    }

    fn assistant(&mut self, position: usize, parts: Vec<Part>) {
        self.ids.begin_message();
        // Reasoning of this answer was left out, and none has come since.
        let mut lost_reasoning = false;
        let mut parts =
            parts.into_iter().filter(|part| !matches!(part, Part::Image(_) | Part::Result { .. })).peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Reasoning { carrier, .. } => {
                    let has_follower = matches!(parts.peek(), Some(Part::Text { .. } | Part::Call(_)));
                    let item = carrier.as_ref().filter(|_| has_follower).and_then(sendable_reasoning);
                    let item = item.filter(|(id, _)| self.item_ids.insert(id.clone()));
                    lost_reasoning = item.is_none();
                    match item {
                        Some((_, item)) => self.out.push(WireItem::Reasoning(item)),
                        None => self.repairs.add(position, "reasoning-left-out"),
                    }
                }
                Part::Text { text, carrier } => {
                    let (id, phase) = self.message_id(carrier, lost_reasoning);
                    self.out.push(WireItem::Answer { id, phase, text });
                }
                Part::Call(call) => {
                    let item = self.call(position, call, lost_reasoning);
                    self.out.push(item);
                }
                Part::Image(_) | Part::Result { .. } => {}
            }
        }
    }

    /// The message's own id where the wire takes it, else one that is made up: every message needs one on some
    /// servers.
    fn message_id(&mut self, carrier: MessageMark, lost_reasoning: bool) -> (String, Option<String>) {
        let own = carrier.id.filter(|id| !lost_reasoning && id.starts_with("msg") && is_legal_id(id));
        let id = own.filter(|id| !self.item_ids.contains(id)).unwrap_or_else(|| self.made_up_id());
        self.item_ids.insert(id.clone());
        (id, carrier.phase)
    }

    fn made_up_id(&mut self) -> String {
        loop {
            let id = format!("msg_dsh_{}", self.made_up_ids);
            self.made_up_ids += 1;
            if !self.item_ids.contains(&id) {
                return id;
            }
        }
    }

    fn call(&mut self, position: usize, call: Call, lost_reasoning: bool) -> WireItem {
        let name = legal_name(&call.name);
        self.repairs.tool_name(position, &call.name, &name);
        let (wanted, item_id) = halves(&call.id);
        let call_id = self.ids.call_as(&call.id, wanted, &name, false);
        self.repairs.call_id(position, wanted, &call_id);
        let own = call.native && !lost_reasoning && item_id.starts_with("fc") && is_legal_id(item_id);
        let id = Some(item_id.to_owned()).filter(|id| own && self.item_ids.insert(id.clone()));
        let arguments = self.repairs.arguments(position, &call.arguments);
        WireItem::Call { id, call_id, name, arguments }
    }
}
