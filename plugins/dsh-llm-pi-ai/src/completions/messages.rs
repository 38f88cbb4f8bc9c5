//! The history as messages of this wire: where each block goes, and what the dialect wants between them.

use dsh_plugin_api::json::{Object, Raw, raw, replace_lone_surrogates};
use dsh_plugin_api::kit::ids::CallIds;
use dsh_plugin_api::kit::names::legal_name;
use dsh_plugin_api::kit::notes::{
    CONVERSATION_GOES_ON, IMAGE_OMITTED, NO_OUTPUT, RESULTS_SEEN, SEE_IMAGE, TOOL_IMAGE_OMITTED, TOOL_IMAGES,
};
use dsh_plugin_api::kit::repairs::Repairs;
use dsh_plugin_api::vocab::{Image, Repair, Role};
use serde::Serialize;
use serde_json::json;

use super::dialect::Dialect;
use super::replay::{Call, Carrier, Part, Turn};
use crate::cache::CacheControl;
use crate::config::ReasoningField;
use crate::request::{IMAGE_SIZE, size};

/// Who speaks on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speaker {
    /// Instructions.
    System,
    /// Instructions for a thinking model of OpenAI.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
}

/// One message of the wire.
#[derive(Debug)]
pub(super) struct WireMessage {
    pub speaker: Speaker,
    pub content: Content,
    pub calls: Vec<WireCall>,
    /// Field and text of the reasoning.
    pub reasoning: Option<(&'static str, String)>,
    pub details: Vec<Raw>,
    /// Of a tool message: id of the call, and the tool's name where the dialect wants it.
    pub answers: Option<(String, Option<String>)>,
}

/// The content of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// `null`
    None,
    /// A string.
    Text(String),
    /// Parts.
    Parts(Vec<ContentPart>),
}

/// One part of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Mark for the prompt cache.
        cache: Option<CacheControl>,
    },
    /// An image as a data URI.
    Image(String),
}

/// A tool call of the wire.
#[derive(Debug)]
pub(super) struct WireCall {
    pub id: String,
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
}

impl WireMessage {
    /// A message with text.
    pub fn text(speaker: Speaker, text: impl Into<String>) -> Self {
        Self::new(speaker, Content::Text(text.into()))
    }

    const fn new(speaker: Speaker, content: Content) -> Self {
        Self { speaker, content, calls: Vec::new(), reasoning: None, details: Vec::new(), answers: None }
    }

    /// Size for the estimate of tokens, in UTF-16 units; an image counts like a page of text.
    pub fn size(&self) -> usize {
        let content = match &self.content {
            Content::None => 0,
            Content::Text(text) => size(text),
            Content::Parts(parts) => parts
                .iter()
                .map(|part| match part {
                    ContentPart::Text { text, .. } => size(text),
                    ContentPart::Image(_) => IMAGE_SIZE,
                })
                .sum(),
        };
        let calls: usize = self.calls.iter().map(|call| call.name.len() + size(&call.arguments)).sum();
        let reasoning = self.reasoning.as_ref().map_or(0, |(_, text)| size(text));
        let details: usize = self.details.iter().map(|detail| detail.get().len()).sum();
        content + calls + reasoning + details
    }

    /// Marks the last text for the prompt cache; false when there is none.
    pub fn mark(&mut self, cache: CacheControl) -> bool {
        if let Content::Text(text) = &mut self.content {
            if text.is_empty() {
                return false;
            }
            let text = std::mem::take(text);
            self.content = Content::Parts(vec![ContentPart::Text { text, cache: None }]);
        }
        let Content::Parts(parts) = &mut self.content else { return false };
        let last = parts.iter_mut().rev().find_map(|part| match part {
            ContentPart::Text { cache, .. } => Some(cache),
            ContentPart::Image(_) => None,
        });
        last.is_some_and(|mark| {
            *mark = Some(cache);
            true
        })
    }

    /// The message as JSON.
    pub fn json(&self) -> Raw {
        let mut out = Object::new();
        out.set("role", raw(&self.speaker));
        out.set("content", self.content.json());
        if let Some((field, text)) = &self.reasoning {
            out.set(field, raw(text));
        }
        if !self.details.is_empty() {
            out.set("reasoning_details", raw(&self.details));
        }
        if !self.calls.is_empty() {
            let call = |call: &WireCall| {
                json!({"id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments}})
            };
            out.set("tool_calls", raw(&self.calls.iter().map(call).collect::<Vec<_>>()));
        }
        if let Some((id, name)) = &self.answers {
            out.set("tool_call_id", raw(id));
            if let Some(name) = name {
                out.set("name", raw(name));
            }
        }
        raw(&out)
    }
}

impl Content {
    fn json(&self) -> Raw {
        match self {
            Self::None => raw(&()),
            Self::Text(text) => raw(text),
            Self::Parts(parts) => raw(&parts.iter().map(ContentPart::json).collect::<Vec<_>>()),
        }
    }

    /// A single text as a string, more as parts.
    fn of(mut parts: Vec<ContentPart>) -> Self {
        match parts.as_mut_slice() {
            [] => Self::None,
            [ContentPart::Text { text, cache: None }] => Self::Text(std::mem::take(text)),
            _ => Self::Parts(parts),
        }
    }

    fn into_parts(self) -> Vec<ContentPart> {
        match self {
            Self::None => Vec::new(),
            Self::Text(text) if text.is_empty() => Vec::new(),
            Self::Text(text) => vec![ContentPart::Text { text, cache: None }],
            Self::Parts(parts) => parts,
        }
    }

    /// Two contents as one: texts with a blank line between them.
    fn joined(self, next: Self) -> Self {
        match (self, next) {
            (Self::Text(first), Self::Text(second)) if !first.is_empty() && !second.is_empty() => {
                Self::Text(format!("{first}\n\n{second}"))
            }
            (first, second) => {
                let mut parts = first.into_parts();
                parts.extend(second.into_parts());
                Self::of(parts)
            }
        }
    }
}

impl ContentPart {
    fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), cache: None }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::Text { text, cache: None } => json!({"type": "text", "text": text}),
            Self::Text { text, cache: Some(cache) } => {
                json!({"type": "text", "text": text, "cache_control": cache.json()})
            }
            Self::Image(url) => json!({"type": "image_url", "image_url": {"url": url}}),
        }
    }
}

/// Puts the messages of one request together.
pub(super) struct History<'a> {
    dialect: &'a Dialect,
    takes_images: bool,
    /// An assistant message without reasoning carries the empty field.
    empty_reasoning: bool,
    instructions: Speaker,
    ids: CallIds,
    out: Vec<WireMessage>,
    /// Images of the tool results that were just written.
    pending_images: Vec<ContentPart>,
    repairs: Repairs,
}

impl<'a> History<'a> {
    /// `instructions` is the role of system messages; `thinks` is true for a thinking model.
    pub fn new(dialect: &'a Dialect, instructions: Speaker, thinks: bool, takes_images: bool) -> Self {
        Self {
            dialect,
            takes_images,
            empty_reasoning: dialect.empty_reasoning_content && thinks,
            instructions,
            ids: CallIds::new(dialect.ids),
            out: Vec::new(),
            pending_images: Vec::new(),
            repairs: Repairs::new(),
        }
    }

    /// Adds the system prompt.
    pub fn system_prompt(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.out.push(WireMessage::text(self.instructions, text));
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

    /// The messages and what had to be changed.
    pub fn finish(mut self) -> (Vec<WireMessage>, Vec<Repair>) {
        self.flush_images();
        if self.dialect.strict_alternation {
            self.out = alternating(self.out);
        } else if self.dialect.assistant_after_tool_result {
            self.out = bridged(self.out);
        }
        (self.out, self.repairs.into_vec())
    }

    fn flush_images(&mut self) {
        if !self.pending_images.is_empty() {
            let mut parts = vec![ContentPart::text(TOOL_IMAGES)];
            parts.append(&mut self.pending_images);
            self.out.push(WireMessage::new(Speaker::User, Content::Parts(parts)));
        }
    }

    fn system(&mut self, parts: Vec<Part>) {
        let texts =
            parts.into_iter().filter_map(|part| if let Part::Text { text, .. } = part { Some(text) } else { None });
        let text = texts.collect::<Vec<_>>().join("\n\n");
        if !text.is_empty() {
            self.flush_images();
            self.out.push(WireMessage::text(self.instructions, text));
        }
    }

    /// Results come first, whatever stands before them in the message.
    fn user(&mut self, position: usize, parts: Vec<Part>) {
        let mut said = Vec::new();
        for part in parts {
            match part {
                Part::Result { call_id, content, .. } => self.result(position, &call_id, content),
                other => said.push(other),
            }
        }
        let content = self.user_content(position, said, IMAGE_OMITTED);
        if content != Content::None {
            self.flush_images();
            self.out.push(WireMessage::new(Speaker::User, content));
        }
    }

    fn user_content(&mut self, position: usize, parts: Vec<Part>, omitted: &'static str) -> Content {
        let mut content: Vec<ContentPart> = Vec::new();
        for part in parts {
            let next = match part {
                Part::Text { text, .. } => ContentPart::text(text),
                Part::Image(image) => self.image(position, &image, omitted),
                Part::Reasoning { .. } | Part::Call(_) | Part::Result { .. } => continue,
            };
            // A run of images that are left out is one note.
            let is_note = matches!(&next, ContentPart::Text { text, .. } if text == omitted);
            if !(is_note && content.last() == Some(&next)) {
                content.push(next);
            }
        }
        Content::of(content)
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> ContentPart {
        match self.repairs.image(position, image, self.takes_images, omitted) {
            Ok(picture) => ContentPart::Image(picture.data_uri()),
            Err(note) => ContentPart::text(note),
        }
    }

    fn result(&mut self, position: usize, call_id: &str, content: Vec<Part>) {
        let parts = self.user_content(position, content, TOOL_IMAGE_OMITTED).into_parts();
        let mut texts = Vec::new();
        let mut images = Vec::new();
        for part in parts {
            match part {
                ContentPart::Text { text, .. } => texts.push(text),
                ContentPart::Image(_) => images.push(part),
            }
        }
        let text = match (texts.is_empty(), images.is_empty()) {
            (false, _) => texts.join("\n"),
            (true, false) => SEE_IMAGE.to_owned(),
            (true, true) => NO_OUTPUT.to_owned(),
        };
        let answered = self.ids.answered(call_id);
        let (id, name) = match answered {
            Some(call) => (call.id, Some(call.name)),
            None => (self.ids.stray(call_id), None),
        };
        let mut message = WireMessage::text(Speaker::Tool, text);
        message.answers = Some((id, name.filter(|_| self.dialect.tool_result_name)));
        self.out.push(message);
        self.pending_images.append(&mut images);
    }

    fn assistant(&mut self, position: usize, parts: Vec<Part>) {
        let mut text = String::new();
        let mut thoughts = Vec::new();
        let mut calls = Vec::new();
        let mut details = Vec::new();
        for part in parts {
            match part {
                Part::Text { text: piece, .. } => text.push_str(&piece),
                Part::Reasoning { text, carrier } => thoughts.push((text, carrier)),
                Part::Call(call) => calls.push(call),
                Part::Image(_) | Part::Result { .. } => {}
            }
        }
        let mut message = WireMessage::new(Speaker::Assistant, Content::None);
        let said = self.reasoning(thoughts, &mut message, &mut details);
        if text.is_empty() && said.is_none() && calls.is_empty() {
            return;
        }
        self.flush_images();
        self.ids.begin_message();
        for call in calls {
            let wire = self.call(position, call, &mut details);
            message.calls.push(wire);
        }
        if self.dialect.reasoning_field.is_none() {
            if !details.is_empty() {
                // The structured form of the same reasoning; a server takes one of the two.
                message.reasoning = None;
            }
            message.details = details;
        }
        let text = match said {
            Some(thoughts) if text.is_empty() => thoughts,
            Some(thoughts) => format!("{thoughts}\n\n{text}"),
            None => text,
        };
        if !text.is_empty() || self.dialect.assistant_after_tool_result {
            message.content = Content::Text(text);
        }
        if self.empty_reasoning && message.reasoning.as_ref().is_none_or(|(field, _)| *field != "reasoning_content") {
            message.reasoning.get_or_insert(("reasoning_content", String::new()));
        }
        self.out.push(message);
    }

    /// Puts reasoning where the dialect takes it. Returns it where that is the visible text.
    fn reasoning(
        &self,
        thoughts: Vec<(String, Carrier)>,
        message: &mut WireMessage,
        details: &mut Vec<Raw>,
    ) -> Option<String> {
        let texts = |separator: &str, of: &dyn Fn(&Carrier) -> bool| {
            let texts: Vec<_> = thoughts
                .iter()
                .filter(|(text, carrier)| !text.trim().is_empty() && of(carrier))
                .map(|(text, _)| text.as_str())
                .collect();
            (!texts.is_empty()).then(|| texts.join(separator))
        };
        if self.dialect.thinking_as_text {
            return texts("\n\n", &|_| true);
        }
        let field = match self.dialect.reasoning_field {
            Some(ReasoningField::None) => None,
            Some(ReasoningField::ReasoningContent) => Some("reasoning_content"),
            Some(ReasoningField::Reasoning) => Some("reasoning"),
            None => {
                // Details hold their text themselves; what came in a field goes back in the first such field.
                let first = thoughts.iter().find_map(|(text, carrier)| match carrier {
                    Carrier::Field(field) if !text.trim().is_empty() => Some(*field),
                    _ => None,
                });
                message.reasoning = first.zip(texts("\n", &|carrier| !matches!(carrier, Carrier::Details(_))));
                for (_, carrier) in thoughts {
                    if let Carrier::Details(list) = carrier {
                        details.extend(list);
                    }
                }
                return None;
            }
        };
        message.reasoning = field.zip(texts("\n", &|_| true));
        None
    }

    fn call(&mut self, position: usize, call: Call, details: &mut Vec<Raw>) -> WireCall {
        let name = legal_name(&call.name);
        self.repairs.tool_name(position, &call.name, &name);
        let id = self.ids.call(&call.id, &name, call.native);
        self.repairs.call_id(position, &call.id, &id);
        let arguments = self.repairs.arguments(position, &call.arguments);
        let clean = |detail: Raw| match replace_lone_surrogates(detail.get()) {
            std::borrow::Cow::Borrowed(_) => Some(detail),
            std::borrow::Cow::Owned(text) => serde_json::value::RawValue::from_string(text).ok(),
        };
        details.extend(call.carrier.into_iter().filter_map(clean));
        WireCall { id, name, arguments }
    }
}

/// Puts an assistant sentence between tool results and the user.
fn bridged(messages: Vec<WireMessage>) -> Vec<WireMessage> {
    let mut out: Vec<WireMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        if message.speaker == Speaker::User && out.last().is_some_and(|last| last.speaker == Speaker::Tool) {
            out.push(WireMessage::text(Speaker::Assistant, RESULTS_SEEN));
        }
        out.push(message);
    }
    out
}

/// User and assistant alternate after the leading instructions: neighbours are merged, instructions inside the
/// conversation are said by the user, and an assistant sentence follows tool results.
fn alternating(messages: Vec<WireMessage>) -> Vec<WireMessage> {
    let is_instruction = |message: &WireMessage| matches!(message.speaker, Speaker::System | Speaker::Developer);
    let leading = messages.iter().take_while(|message| is_instruction(message)).count();
    let mut out: Vec<WireMessage> = Vec::with_capacity(messages.len());
    for (position, mut message) in messages.into_iter().enumerate() {
        if position >= leading && is_instruction(&message) {
            message.speaker = Speaker::User;
        }
        let before = out.last().map(|last| last.speaker);
        match (before, message.speaker) {
            (Some(Speaker::User), Speaker::User)
            | (Some(Speaker::System), Speaker::System)
            | (Some(Speaker::Developer), Speaker::Developer) => merge(&mut out, message),
            (Some(Speaker::Assistant), Speaker::Assistant) if out.last().is_some_and(|last| last.calls.is_empty()) => {
                merge(&mut out, message);
            }
            (Some(Speaker::Tool), Speaker::User) => {
                out.push(WireMessage::text(Speaker::Assistant, RESULTS_SEEN));
                out.push(message);
            }
            (None | Some(Speaker::System | Speaker::Developer), Speaker::Assistant) => {
                out.push(WireMessage::text(Speaker::User, CONVERSATION_GOES_ON));
                out.push(message);
            }
            _ => out.push(message),
        }
    }
    out
}

fn merge(out: &mut [WireMessage], next: WireMessage) {
    let Some(last) = out.last_mut() else { return };
    let content = std::mem::replace(&mut last.content, Content::None);
    last.content = content.joined(next.content);
    last.calls.extend(next.calls);
    last.details.extend(next.details);
    last.reasoning = match (last.reasoning.take(), next.reasoning) {
        (Some((field, first)), Some((_, second))) if !first.is_empty() && !second.is_empty() => {
            Some((field, format!("{first}\n{second}")))
        }
        (Some((_, first)), second @ Some(_)) if first.is_empty() => second,
        (first, second) => first.or(second),
    };
}
