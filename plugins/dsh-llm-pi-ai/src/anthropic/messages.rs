//! The history as messages of this wire: user and assistant in turns, results first in what the user says.

use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::ids::{CallIds, IdRule};
use dsh_plugin_api::kit::names::legal_name;
use dsh_plugin_api::kit::notes::{
    CONVERSATION_GOES_ON, IMAGE_FORMAT, IMAGE_OMITTED, NO_OUTPUT, SEE_IMAGE, TOOL_IMAGE_OMITTED, TOOL_IMAGES,
};
use dsh_plugin_api::kit::repairs::{Picture, Repairs};
use dsh_plugin_api::vocab::{Image, Repair, Role};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::dialect::Dialect;
use super::replay::{Call, Carrier, Part, Turn};
use crate::cache::CacheControl;
use crate::request::{IMAGE_SIZE, size};

/// The images that the provider takes.
const MEDIA_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Who speaks on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Speaker {
    /// The user, and tools.
    User,
    /// The model.
    Assistant,
}

/// One message of the wire.
#[derive(Debug)]
pub(super) struct WireMessage {
    pub speaker: Speaker,
    pub blocks: Vec<WireBlock>,
    /// Position of the first message of the history that is in it.
    pub position: usize,
    /// It holds more than results and what belongs to them.
    said: bool,
    cache: Option<CacheControl>,
}

/// One block of the wire.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WireBlock {
    /// Text.
    Text(String),
    /// An image.
    Image { media_type: String, data: String },
    /// Thinking with its signature.
    Thinking { text: String, signature: String },
    /// Thinking that is hidden.
    Redacted(String),
    /// A tool call.
    Call { id: String, name: String, input: String },
    /// The result of a tool call.
    Result { id: String, content: Vec<Self>, is_error: bool },
}

impl WireMessage {
    const fn new(speaker: Speaker, position: usize, blocks: Vec<WireBlock>, said: bool) -> Self {
        Self { speaker, blocks, position, said, cache: None }
    }

    /// Size for the estimate of tokens, in UTF-16 units.
    pub fn size(&self) -> usize {
        self.blocks.iter().map(WireBlock::size).sum()
    }

    /// Marks the last block for the prompt cache, where the user speaks.
    pub fn mark(&mut self, cache: CacheControl) {
        if self.speaker == Speaker::User {
            self.cache = Some(cache);
        }
    }

    /// The message as JSON.
    pub fn json(&self) -> Raw {
        let last = self.blocks.len().saturating_sub(1);
        let block = |(at, block): (usize, &WireBlock)| block.json(self.cache.filter(|_| at == last));
        let mut out = Object::new();
        out.set("role", raw(&self.speaker));
        out.set("content", raw(&self.blocks.iter().enumerate().map(block).collect::<Vec<_>>()));
        raw(&out)
    }

    /// Adds what is said next by the same speaker. Results stand first.
    fn extend(&mut self, next: Self) {
        let (results, others): (Vec<_>, Vec<_>) = next.blocks.into_iter().partition(WireBlock::is_result);
        let place = self.blocks.iter().take_while(|block| block.is_result()).count();
        self.blocks.splice(place..place, results);
        self.blocks.extend(others);
        self.said |= next.said;
    }
}

impl WireBlock {
    const fn is_result(&self) -> bool {
        matches!(self, Self::Result { .. })
    }

    const fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::Redacted(_))
    }

    fn size(&self) -> usize {
        match self {
            Self::Text(text) => size(text),
            Self::Image { .. } => IMAGE_SIZE,
            Self::Thinking { text, signature } => size(text) + signature.len(),
            Self::Redacted(data) => data.len(),
            Self::Call { name, input, .. } => name.len() + size(input),
            Self::Result { content, .. } => content.iter().map(Self::size).sum(),
        }
    }

    fn json(&self, cache: Option<CacheControl>) -> Raw {
        let mut out = Object::new();
        let mut kind = |name: &str| out.set("type", raw(name));
        match self {
            Self::Text(text) => {
                kind("text");
                out.set("text", raw(text));
            }
            Self::Image { media_type, data } => {
                kind("image");
                out.set("source", raw(&json!({"type": "base64", "media_type": media_type, "data": data})));
            }
            Self::Thinking { text, signature } => {
                kind("thinking");
                out.set("thinking", raw(text));
                out.set("signature", raw(signature));
            }
            Self::Redacted(data) => {
                kind("redacted_thinking");
                out.set("data", raw(data));
            }
            Self::Call { id, name, input } => {
                kind("tool_use");
                out.set("id", raw(id));
                out.set("name", raw(name));
                // Goes out as it was written: big integers, the order of keys and keys that repeat stay.
                let input =
                    serde_json::from_str::<&RawValue>(input).map_or_else(|_| raw(&json!({})), ToOwned::to_owned);
                out.set("input", input);
            }
            Self::Result { id, content, is_error } => {
                kind("tool_result");
                out.set("tool_use_id", raw(id));
                if !content.is_empty() {
                    out.set("content", raw(&content.iter().map(|block| block.json(None)).collect::<Vec<_>>()));
                }
                if *is_error {
                    out.set("is_error", raw(&true));
                }
            }
        }
        if let Some(cache) = cache {
            out.set("cache_control", raw(&cache.json()));
        }
        raw(&out)
    }
}

/// Puts the messages of one request together.
pub(super) struct History<'a> {
    dialect: &'a Dialect,
    takes_images: bool,
    ids: CallIds,
    system: Vec<String>,
    out: Vec<WireMessage>,
    repairs: Repairs,
}

impl<'a> History<'a> {
    /// `takes_images` is true for a model that sees.
    pub fn new(dialect: &'a Dialect, takes_images: bool) -> Self {
        Self {
            dialect,
            takes_images,
            ids: CallIds::new(IdRule::Common),
            system: Vec::new(),
            out: Vec::new(),
            repairs: Repairs::new(),
        }
    }

    /// Adds the system prompt.
    pub fn system_prompt(&mut self, text: &str) {
        if !text.trim().is_empty() {
            self.system.push(text.to_owned());
        }
    }

    /// Adds the message at `position`.
    pub fn push(&mut self, position: usize, turn: Turn) {
        match turn.role {
            Role::System => self.system(position, turn.parts),
            Role::User => self.user(position, turn.parts),
            Role::Assistant => self.assistant(position, turn.parts),
        }
    }

    /// The system prompt, the messages, and what had to be changed.
    pub fn finish(self) -> (Option<String>, Vec<WireMessage>, Vec<Repair>) {
        let mut out: Vec<WireMessage> = Vec::with_capacity(self.out.len() + 1);
        for mut message in self.out {
            // The provider refuses an answer that ends with thinking; one that is nothing else has no answer in it.
            while message.blocks.last().is_some_and(WireBlock::is_thinking) {
                message.blocks.pop();
            }
            if !message.blocks.is_empty() {
                append(&mut out, message);
            }
        }
        if out.first().is_none_or(|first| first.speaker != Speaker::User) {
            let blocks = vec![WireBlock::Text(CONVERSATION_GOES_ON.to_owned())];
            out.insert(0, WireMessage::new(Speaker::User, 0, blocks, true));
        }
        let system = (!self.system.is_empty()).then(|| self.system.join("\n\n"));
        (system, out, self.repairs.into_vec())
    }

    /// Instructions inside the conversation are said by the user.
    fn system(&mut self, position: usize, parts: Vec<Part>) {
        let texts =
            parts.into_iter().filter_map(|part| if let Part::Text { text, .. } = part { Some(text) } else { None });
        if self.out.is_empty() {
            self.system.extend(texts);
            return;
        }
        let blocks: Vec<_> = texts.map(WireBlock::Text).collect();
        append(&mut self.out, WireMessage::new(Speaker::User, position, blocks, true));
    }

    fn user(&mut self, position: usize, parts: Vec<Part>) {
        let mut blocks = Vec::new();
        let mut images = Vec::new();
        let mut said = Vec::new();
        for part in parts {
            match part {
                Part::Result { call_id, content, is_error } => {
                    blocks.push(self.result(position, &call_id, content, is_error, &mut images));
                }
                other => said.push(other),
            }
        }
        if !images.is_empty() {
            blocks.push(WireBlock::Text(TOOL_IMAGES.to_owned()));
            blocks.append(&mut images);
        }
        let said = self.content(position, said, IMAGE_OMITTED);
        let speaks = !said.is_empty();
        blocks.extend(said);
        append(&mut self.out, WireMessage::new(Speaker::User, position, blocks, speaks));
    }

    fn content(&mut self, position: usize, parts: Vec<Part>, omitted: &'static str) -> Vec<WireBlock> {
        let mut content: Vec<WireBlock> = Vec::new();
        for part in parts {
            let (next, is_note) = match part {
                Part::Text { text, .. } => (WireBlock::Text(text), false),
                Part::Image(image) => {
                    let block = self.image(position, &image, omitted);
                    let is_note = matches!(block, WireBlock::Text(_));
                    (block, is_note)
                }
                Part::Reasoning { .. } | Part::Call(_) | Part::Result { .. } => continue,
            };
            // A run of images that are left out is one note.
            if !(is_note && content.last() == Some(&next)) {
                content.push(next);
            }
        }
        content
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> WireBlock {
        let note = match self.repairs.image(position, image, self.takes_images, omitted) {
            Ok(Picture { mime_type, data }) => match media_type(mime_type) {
                Some(media_type) => {
                    return WireBlock::Image { media_type: media_type.to_owned(), data: data.to_owned() };
                }
                None => self.repairs.image_omitted(position, IMAGE_FORMAT),
            },
            Err(note) => note,
        };
        WireBlock::Text(note.to_owned())
    }

    /// The images of an error go to `images`: the provider takes nothing but text in it.
    fn result(
        &mut self,
        position: usize,
        call_id: &str,
        content: Vec<Part>,
        is_error: bool,
        images: &mut Vec<WireBlock>,
    ) -> WireBlock {
        let mut content = self.content(position, content, TOOL_IMAGE_OMITTED);
        let has_image = content.iter().any(|block| matches!(block, WireBlock::Image { .. }));
        if is_error || !has_image {
            let mut texts = Vec::new();
            for block in content {
                match block {
                    WireBlock::Text(text) => texts.push(text),
                    other => images.push(other),
                }
            }
            let text = match (texts.is_empty(), has_image) {
                (false, _) => Some(texts.join("\n")),
                (true, true) => Some(SEE_IMAGE.to_owned()),
                // An error has to say something; any other result may be empty.
                (true, false) => is_error.then(|| NO_OUTPUT.to_owned()),
            };
            content = text.map(WireBlock::Text).into_iter().collect();
        }
        let id = self.ids.answered(call_id).map_or_else(|| self.ids.stray(call_id), |call| call.id);
        WireBlock::Result { id, content, is_error }
    }

    fn assistant(&mut self, position: usize, parts: Vec<Part>) {
        self.ids.begin_message();
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Text { text, .. } => blocks.push(WireBlock::Text(text)),
                Part::Reasoning { text, carrier } => blocks.extend(self.thinking(text, carrier)),
                Part::Call(call) => {
                    let call = self.call(position, call);
                    blocks.push(call);
                }
                Part::Image(_) | Part::Result { .. } => {}
            }
        }
        append(&mut self.out, WireMessage::new(Speaker::Assistant, position, blocks, true));
    }

    /// Thinking that the provider cannot know again is left out.
    fn thinking(&self, text: String, carrier: Carrier) -> Option<WireBlock> {
        match carrier {
            Carrier::Signature(signature) => Some(WireBlock::Thinking { text, signature }),
            Carrier::Redacted(data) => Some(WireBlock::Redacted(data)),
            Carrier::Unsigned => (self.dialect.empty_signature && !text.trim().is_empty())
                .then(|| WireBlock::Thinking { text, signature: String::new() }),
        }
    }

    fn call(&mut self, position: usize, call: Call) -> WireBlock {
        let name = legal_name(&call.name);
        self.repairs.tool_name(position, &call.name, &name);
        // The provider checks the ids of its own calls like any other.
        let id = self.ids.call(&call.id, &name, false);
        self.repairs.call_id(position, &call.id, &id);
        let input = self.repairs.arguments(position, &call.arguments);
        WireBlock::Call { id, name, input }
    }
}

/// Adds a message, or joins it to the one before it of the same speaker. One without blocks is left out.
fn append(out: &mut Vec<WireMessage>, message: WireMessage) {
    if message.blocks.is_empty() {
        return;
    }
    match out.last_mut() {
        Some(last) if last.speaker == message.speaker => last.extend(message),
        _ => out.push(message),
    }
}

/// The media type in the provider's spelling; `None` for one that it refuses.
fn media_type(mime_type: &str) -> Option<&'static str> {
    let name = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let name = if name == "image/jpg" { "image/jpeg" } else { &name };
    MEDIA_TYPES.into_iter().find(|known| *known == name)
}

/// Position of the answer whose results come last, where it does not begin with thinking: with a budget of thinking the
/// provider refuses such a history, unless the user has said something since.
pub(super) fn loop_without_thinking(messages: &[WireMessage]) -> Option<usize> {
    let [.., answer, results] = messages else { return None };
    let open = results.blocks.first().is_some_and(WireBlock::is_result) && !results.said;
    let thought = answer.blocks.first().is_some_and(WireBlock::is_thinking);
    (open && !thought).then_some(answer.position)
}
