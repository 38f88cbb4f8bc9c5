//! The history as contents of this wire: where each block goes, and the order that the wire wants.
//!
//! A content of calls stands right after one of the user and is followed by one that holds exactly their responses, in
//! the order of the calls. Contents of the user may follow one another; those of the model are joined.

use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::ids::{CallIds, IdRule};
use dsh_plugin_api::kit::names::legal_word;
use dsh_plugin_api::kit::notes::{
    CONVERSATION_GOES_ON, IMAGE_OMITTED, IMAGE_UNAVAILABLE, SEE_IMAGE, TOOL_IMAGE_OMITTED,
};
use dsh_plugin_api::kit::repairs::{Picture, Repairs};
use dsh_plugin_api::vocab::{Image, Repair, Role};
use serde_json::json;
use serde_json::value::RawValue;

use super::family::Family;
use super::replay::{Call, Part, Turn, is_signature};
use crate::request::{IMAGE_SIZE, size};

/// Stands in place of the signature of a call that another model made. Google documents it for histories that were not
/// made by the model itself.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// Introduces the images of a tool result where they cannot stand in it.
const TOOL_IMAGE: &str = "Tool result image:";

/// Who speaks on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    /// The user, and the tools.
    User,
    /// The model.
    Model,
}

/// One content of the wire.
#[derive(Debug)]
pub(super) struct Content {
    speaker: Speaker,
    parts: Vec<WirePart>,
}

/// One part of a content.
#[derive(Debug)]
struct WirePart {
    data: Data,
    signature: Option<String>,
}

#[derive(Debug)]
enum Data {
    Text(String),
    Thought(String),
    Image(WireImage),
    Call {
        id: String,
        name: String,
        /// JSON text of an object.
        arguments: String,
    },
    Response {
        id: String,
        name: String,
        text: String,
        is_error: bool,
        images: Vec<WireImage>,
        /// Place of the call in its content.
        place: usize,
    },
}

#[derive(Debug)]
struct WireImage {
    mime_type: String,
    data: String,
}

impl Content {
    /// Size for the estimate of tokens, in UTF-16 units; an image counts like a page of text.
    pub fn size(&self) -> usize {
        self.parts
            .iter()
            .map(|part| match &part.data {
                Data::Text(text) | Data::Thought(text) => size(text),
                Data::Image(_) => IMAGE_SIZE,
                Data::Call { name, arguments, .. } => name.len() + size(arguments),
                Data::Response { text, images, .. } => size(text) + images.len() * IMAGE_SIZE,
            })
            .sum()
    }

    /// The content as JSON.
    pub fn json(&self) -> Raw {
        let mut out = Object::new();
        out.set("role", raw(if self.speaker == Speaker::Model { "model" } else { "user" }));
        out.set("parts", raw(&self.parts.iter().map(WirePart::json).collect::<Vec<_>>()));
        raw(&out)
    }

    fn calls(&mut self) -> impl Iterator<Item = &mut WirePart> {
        self.parts.iter_mut().filter(|part| matches!(part.data, Data::Call { .. }))
    }
}

impl WirePart {
    const fn new(data: Data) -> Self {
        Self { data, signature: None }
    }

    fn text(text: impl Into<String>) -> Self {
        Self::new(Data::Text(text.into()))
    }

    fn json(&self) -> Raw {
        let mut out = Object::new();
        match &self.data {
            Data::Text(text) => out.set("text", raw(text)),
            Data::Thought(text) => {
                out.set("text", raw(text));
                out.set("thought", raw(&true));
            }
            Data::Image(image) => out.set("inlineData", image.json()),
            Data::Call { id, name, arguments } => {
                let mut call = Object::new();
                if !id.is_empty() {
                    call.set("id", raw(id));
                }
                call.set("name", raw(name));
                if let Ok(arguments) = RawValue::from_string(arguments.trim().to_owned()) {
                    call.set("args", arguments);
                }
                out.set("functionCall", raw(&call));
            }
            Data::Response { id, name, text, is_error, images, .. } => {
                let mut response = Object::new();
                if !id.is_empty() {
                    response.set("id", raw(id));
                }
                response.set("name", raw(name));
                response.set("response", raw(&json!({if *is_error { "error" } else { "output" }: text})));
                if !images.is_empty() {
                    let images: Vec<_> = images.iter().map(|image| json!({"inlineData": image.json()})).collect();
                    response.set("parts", raw(&images));
                }
                out.set("functionResponse", raw(&response));
            }
        }
        if let Some(signature) = &self.signature {
            out.set("thoughtSignature", raw(signature));
        }
        raw(&out)
    }
}

impl WireImage {
    fn json(&self) -> Raw {
        raw(&json!({"mimeType": self.mime_type, "data": self.data}))
    }
}

/// Puts the contents of one request together.
pub(super) struct History {
    family: Family,
    takes_images: bool,
    ids: CallIds,
    /// Wire ids of the calls of the last content of the model, in order.
    calls: Vec<String>,
    out: Vec<Content>,
    /// Responses that were just read.
    responses: Vec<WirePart>,
    /// Images of those responses, each run with what introduces it.
    response_images: Vec<WirePart>,
    repairs: Repairs,
}

impl History {
    /// An empty history.
    pub const fn new(family: Family, takes_images: bool) -> Self {
        Self {
            family,
            takes_images,
            ids: CallIds::new(IdRule::Common),
            calls: Vec::new(),
            out: Vec::new(),
            responses: Vec::new(),
            response_images: Vec::new(),
            repairs: Repairs::new(),
        }
    }

    /// Adds the message at `position`.
    pub fn push(&mut self, position: usize, turn: Turn) {
        match turn.role {
            // The wire has no place for instructions inside the conversation.
            Role::System | Role::User => self.user(position, turn.parts),
            Role::Assistant => self.assistant(position, turn.parts),
        }
    }

    /// The contents and what had to be changed.
    pub fn finish(mut self) -> (Vec<Content>, Vec<Repair>) {
        self.flush_responses();
        if self.out.first().is_none_or(|first| first.speaker == Speaker::Model) {
            let parts = vec![WirePart::text(CONVERSATION_GOES_ON)];
            self.out.insert(0, Content { speaker: Speaker::User, parts });
        }
        if self.family.wants_signed_calls() {
            sign_current_turn(&mut self.out);
        }
        (self.out, self.repairs.into_vec())
    }

    /// Writes the responses in the order of their calls, and their images behind them.
    fn flush_responses(&mut self) {
        let mut responses = std::mem::take(&mut self.responses);
        responses.sort_by_key(|part| if let Data::Response { place, .. } = part.data { place } else { usize::MAX });
        for parts in [responses, std::mem::take(&mut self.response_images)] {
            if !parts.is_empty() {
                self.out.push(Content { speaker: Speaker::User, parts });
            }
        }
    }

    /// Results come first, whatever stands before them in the message.
    fn user(&mut self, position: usize, parts: Vec<Part>) {
        let mut said = Vec::new();
        for part in parts {
            match part {
                Part::Result { call_id, content, is_error } => {
                    said.extend(self.result(position, &call_id, content, is_error));
                }
                other => said.push(other),
            }
        }
        let parts = self.plain_parts(position, said, IMAGE_OMITTED);
        if !parts.is_empty() {
            self.flush_responses();
            self.out.push(Content { speaker: Speaker::User, parts });
        }
    }

    /// Texts and images; a run of images that are left out is one note.
    fn plain_parts(&mut self, position: usize, parts: Vec<Part>, omitted: &'static str) -> Vec<WirePart> {
        let mut out: Vec<WirePart> = Vec::new();
        for part in parts {
            let next = match part {
                Part::Text { text, .. } => Data::Text(text),
                Part::Image(image) => self.image(position, &image, omitted),
                Part::Reasoning { .. } | Part::Call(_) | Part::Result { .. } => continue,
            };
            let is_note = |data: &Data| matches!(data, Data::Text(text) if text == omitted);
            if !(is_note(&next) && out.last().is_some_and(|last| is_note(&last.data))) {
                out.push(WirePart::new(next));
            }
        }
        out
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> Data {
        let note = match self.repairs.image(position, image, self.takes_images, omitted) {
            Ok(Picture { data: "", .. }) => self.repairs.image_omitted(position, IMAGE_UNAVAILABLE),
            Ok(Picture { mime_type, data }) => {
                return Data::Image(WireImage { mime_type: mime_type.to_owned(), data: data.to_owned() });
            }
            Err(note) => note,
        };
        Data::Text(note.to_owned())
    }

    /// Takes a result. One that answers no open call is returned as what the user says.
    fn result(&mut self, position: usize, call_id: &str, content: Vec<Part>, is_error: bool) -> Vec<Part> {
        let Some(call) = self.ids.answered(call_id) else { return content };
        let mut texts = Vec::new();
        let mut images = Vec::new();
        for part in self.plain_parts(position, content, TOOL_IMAGE_OMITTED) {
            match part.data {
                Data::Image(image) => images.push(image),
                Data::Text(text) => texts.push(text),
                Data::Thought(_) | Data::Call { .. } | Data::Response { .. } => {}
            }
        }
        let text = match texts.is_empty() && !images.is_empty() {
            true => SEE_IMAGE.to_owned(),
            false => texts.join("\n"),
        };
        if !self.family.takes_images_in_results() && !images.is_empty() {
            self.response_images.push(WirePart::text(TOOL_IMAGE));
            self.response_images.extend(images.drain(..).map(|image| WirePart::new(Data::Image(image))));
        }
        let place = self.calls.iter().position(|id| *id == call.id).unwrap_or(usize::MAX);
        let id = if self.family.takes_call_ids() { call.id } else { String::new() };
        self.responses.push(WirePart::new(Data::Response { id, name: call.name, text, is_error, images, place }));
        Vec::new()
    }

    fn assistant(&mut self, position: usize, parts: Vec<Part>) {
        // Unsigned thoughts alone are no content for the model to go on from.
        let says = |part: &Part| match part {
            Part::Text { .. } | Part::Call(_) => true,
            Part::Reasoning { carrier, .. } => carrier.as_deref().is_some_and(is_signature),
            Part::Image(_) | Part::Result { .. } => false,
        };
        if !parts.iter().any(says) {
            return;
        }
        self.flush_responses();
        self.ids.begin_message();
        self.calls.clear();
        let mut out = Vec::new();
        for part in parts {
            let (data, carrier) = match part {
                Part::Text { text, carrier } => (Data::Text(text), carrier),
                Part::Reasoning { text, carrier } => (Data::Thought(text), carrier),
                Part::Call(call) => self.call(position, call),
                Part::Image(_) | Part::Result { .. } => continue,
            };
            let signature = self.signature(position, carrier);
            if signature.is_some() || !matches!(&data, Data::Thought(text) if text.trim().is_empty()) {
                out.push(WirePart { data, signature });
            }
        }
        match self.out.last_mut().filter(|last| last.speaker == Speaker::Model) {
            Some(last) => last.parts.append(&mut out),
            None => self.out.push(Content { speaker: Speaker::Model, parts: out }),
        }
    }

    /// What the provider takes as a signature.
    fn signature(&mut self, position: usize, stored: Option<String>) -> Option<String> {
        let (signature, unusable) = match stored {
            Some(stored) if is_signature(&stored) => (Some(stored), false),
            other => (None, other.is_some()),
        };
        if unusable {
            self.repairs.add(position, "signature-left-out");
        }
        signature
    }

    fn call(&mut self, position: usize, call: Call) -> (Data, Option<String>) {
        let name = legal_word(&call.name);
        self.repairs.tool_name(position, &call.name, &name);
        let wire_id = self.ids.call(&call.id, &name, call.native);
        self.calls.push(wire_id.clone());
        let takes_ids = self.family.takes_call_ids();
        if takes_ids {
            self.repairs.call_id(position, &call.id, &wire_id);
        }
        let arguments = self.repairs.arguments(position, &call.arguments);
        let id = if takes_ids { wire_id } else { String::new() };
        (Data::Call { id, name, arguments }, call.carrier)
    }
}

/// Signs the first call of each step of the current turn where it has no signature. The turn begins with the last
/// content of the user that holds more than responses; the steps before it are not looked at.
fn sign_current_turn(contents: &mut [Content]) {
    let is_response = |part: &WirePart| matches!(part.data, Data::Response { .. });
    let begins = |content: &Content| content.speaker == Speaker::User && !content.parts.iter().all(is_response);
    let start = contents.iter().rposition(begins).unwrap_or(0);
    for content in contents.iter_mut().skip(start) {
        if let Some(first) = content.calls().next() {
            first.signature.get_or_insert_with(|| UNSIGNED.to_owned());
        }
    }
}
