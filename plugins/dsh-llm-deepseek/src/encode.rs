//! From a request and its converted history to the HTTP request.

use dsh_plugin_api::Encoded;
use dsh_plugin_api::json::{Object, Raw, raw};
use dsh_plugin_api::kit::ids::{CallIds, IdRule};
use dsh_plugin_api::kit::names::legal_name;
use dsh_plugin_api::kit::notes::{IMAGE_OMITTED, NO_OUTPUT, SEE_IMAGE, TOOL_IMAGE_OMITTED, TOOL_IMAGES};
use dsh_plugin_api::kit::repairs::Repairs;
use dsh_plugin_api::kit::request::{IMAGE_SIZE, bearer, offered, size, within_window};
use dsh_plugin_api::vocab::{
    Block, Exchange, Failure, FailureCode, HttpRequest, Image, Message, Request, Role, Target, Tool,
};
use serde_json::{Value, json};

use crate::config::Model;
use crate::{Route, Turn};

/// How a request thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thinking {
    /// The model has no such mode.
    Unavailable,
    Off,
    /// With the effort that the API names.
    On(&'static str),
}

impl Thinking {
    /// Reads the requested effort. The API has three; it maps the names of others as this does (Thinking Mode,
    /// "Thinking Mode Toggle and Effort Control").
    fn of(request: &Request, model: &Model, to: &Target) -> Result<Self, Failure> {
        let effort = request.reasoning_effort.as_deref().map_or("off", str::trim);
        let thinking = match effort {
            "" | "off" => Self::Off,
            "minimal" | "low" => Self::On("low"),
            "medium" | "high" | "xhigh" => Self::On("high"),
            "max" => Self::On("max"),
            other => {
                let levels = "off, minimal, low, medium, high, xhigh, max";
                let message = format!("{to} has no reasoning effort {other:?}; it takes {levels}");
                return Err(Failure::new(FailureCode::Unsupported, message));
            }
        };
        Ok(if model.thinking { thinking } else { Self::Unavailable })
    }
}

/// Puts the request together.
pub(crate) fn encode(
    request: &Request,
    history: &[Turn],
    to: &Target,
    route: &Route,
    model: &Model,
) -> Result<Encoded, Failure> {
    let thinking = Thinking::of(request, model, to)?;
    let mut messages = Messages::new(model.images, matches!(thinking, Thinking::On(_)));
    if let Some(system) = request.system.as_deref().filter(|text| !text.trim().is_empty()) {
        messages.push_text("system", system);
    }
    for (position, turn) in history.iter().enumerate() {
        messages.turn(position, turn);
    }
    let Messages { out, sizes, repairs, .. } = messages.finished();
    let tools = offered(&request.tools);
    let wanted = request.max_tokens.or(model.max_tokens).filter(|limit| *limit > 0);

    let mut body = Object::new();
    body.set("model", raw(&to.model));
    body.set("messages", raw(&out));
    body.set("stream", raw(&true));
    body.set("stream_options", raw(&json!({"include_usage": true})));
    if let Some(wanted) = wanted {
        body.set("max_tokens", raw(&within_window(wanted, model.context_window, sizes.into_iter(), &tools)));
    }
    // In thinking mode the API takes no temperature and ignores it.
    if let Some(temperature) = request.temperature.filter(|_| !matches!(thinking, Thinking::On(_))) {
        body.set("temperature", raw(&temperature));
    }
    if !tools.is_empty() {
        body.set("tools", raw(&tools.iter().map(|tool| function(tool)).collect::<Vec<_>>()));
    }
    match thinking {
        Thinking::Unavailable => {}
        Thinking::Off => body.set("thinking", raw(&json!({"type": "disabled"}))),
        Thinking::On(effort) => {
            body.set("thinking", raw(&json!({"type": "enabled"})));
            body.set("reasoning_effort", raw(effort));
        }
    }
    let http = HttpRequest {
        method: "POST".to_owned(),
        url: route.endpoint.url("/chat/completions"),
        headers: bearer(route.provider.credential.as_deref()),
        body: raw(&body),
    };
    Ok(Encoded { exchange: Exchange::Http(http), repairs: repairs.into_vec() })
}

fn function(tool: &Tool) -> Raw {
    let mut function = Object::new();
    function.set("name", raw(&tool.name));
    function.set("description", raw(&tool.description));
    function.set("parameters", tool.parameters.clone());
    let mut out = Object::new();
    out.set("type", raw("function"));
    out.set("function", raw(&function));
    raw(&out)
}

/// The messages of one request.
struct Messages {
    images: bool,
    thinking: bool,
    ids: CallIds,
    out: Vec<Raw>,
    sizes: Vec<usize>,
    repairs: Repairs,
    /// Images of the tool results that were just written.
    pending: Vec<Value>,
}

impl Messages {
    fn new(images: bool, thinking: bool) -> Self {
        Self {
            images,
            thinking,
            ids: CallIds::new(IdRule::Common),
            out: Vec::new(),
            sizes: Vec::new(),
            repairs: Repairs::new(),
            pending: Vec::new(),
        }
    }

    fn finished(mut self) -> Self {
        self.flush_images();
        self
    }

    fn push(&mut self, message: &Object, size: usize) {
        self.out.push(raw(message));
        self.sizes.push(size);
    }

    fn push_text(&mut self, role: &str, text: &str) {
        self.push(&message(role, raw(text)), size(text));
    }

    fn turn(&mut self, position: usize, turn: &Turn) {
        match turn.message.role {
            Role::System => {
                let texts: Vec<&str> = texts(&turn.message.content).collect();
                if !texts.is_empty() {
                    self.flush_images();
                    self.push_text("system", &texts.join("\n\n"));
                }
            }
            Role::User => self.user(position, &turn.message),
            Role::Assistant => self.assistant(position, &turn.message, turn.native),
        }
    }

    /// Results come first, whatever stands before them in the message.
    fn user(&mut self, position: usize, message: &Message) {
        for block in &message.content {
            if let Block::ToolResult { tool_call_id, content, .. } = block {
                self.result(position, tool_call_id, content);
            }
        }
        let parts = self.parts(position, &message.content, IMAGE_OMITTED);
        if !parts.is_empty() {
            self.flush_images();
            self.push_parts(&parts);
        }
    }

    fn push_parts(&mut self, parts: &[Value]) {
        let only_text = match parts {
            [part] => part["text"].as_str(),
            _ => None,
        };
        match only_text {
            Some(text) => self.push_text("user", text),
            None => {
                let of = |part: &Value| part["text"].as_str().map_or(IMAGE_SIZE, size);
                self.push(&message("user", raw(parts)), parts.iter().map(of).sum());
            }
        }
    }

    fn flush_images(&mut self) {
        if !self.pending.is_empty() {
            let mut parts = vec![text_part(TOOL_IMAGES)];
            parts.append(&mut self.pending);
            self.push_parts(&parts);
        }
    }

    /// Texts and images as parts; a run of images that are left out is one note.
    fn parts(&mut self, position: usize, content: &[Block], omitted: &'static str) -> Vec<Value> {
        let mut parts: Vec<Value> = Vec::new();
        for block in content {
            let part = match block {
                Block::Text(text) if !text.trim().is_empty() => text_part(text),
                Block::Image(image) => {
                    let part = self.image(position, image, omitted);
                    if parts.last() == Some(&part) && part == text_part(omitted) {
                        continue;
                    }
                    part
                }
                _ => continue,
            };
            parts.push(part);
        }
        parts
    }

    fn image(&mut self, position: usize, image: &Image, omitted: &'static str) -> Value {
        match self.repairs.image(position, image, self.images, omitted) {
            Ok(picture) => json!({"type": "image_url", "image_url": {"url": picture.data_uri()}}),
            Err(note) => text_part(note),
        }
    }

    fn result(&mut self, position: usize, call_id: &str, content: &[Block]) {
        let parts = self.parts(position, content, TOOL_IMAGE_OMITTED);
        let (texts, images): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| part["text"].is_string());
        let texts: Vec<&str> = texts.iter().filter_map(|part| part["text"].as_str()).collect();
        let text = match (texts.is_empty(), images.is_empty()) {
            (false, _) => texts.join("\n"),
            (true, false) => SEE_IMAGE.to_owned(),
            (true, true) => NO_OUTPUT.to_owned(),
        };
        let id = self.ids.answered(call_id).map_or_else(|| self.ids.stray(call_id), |call| call.id);
        let mut out = message("tool", raw(&text));
        out.set("tool_call_id", raw(&id));
        self.push(&out, size(&text));
        self.pending.extend(images);
    }

    fn assistant(&mut self, position: usize, turn: &Message, native: bool) {
        let text: String = texts(&turn.content).collect();
        let has_calls = turn.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        if text.is_empty() && !has_calls {
            return;
        }
        self.flush_images();
        self.ids.begin_message();
        let mut size = size(&text);
        let mut calls = Vec::new();
        for block in &turn.content {
            if let Block::ToolCall { id, name, arguments } = block {
                calls.push(self.call(position, native, id, name, arguments, &mut size));
            }
        }
        let content = if text.is_empty() { raw(&()) } else { raw(&text) };
        let mut out = message("assistant", content);
        if let Some(reasoning) = self.reasoning(&turn.content, native, has_calls) {
            size += dsh_plugin_api::kit::request::size(&reasoning);
            out.set("reasoning_content", raw(&reasoning));
        }
        if !calls.is_empty() {
            out.set("tool_calls", raw(&calls));
        }
        self.push(&out, size);
    }

    /// In thinking mode the reasoning of an answer of this model goes back with it; an answer with tool calls that has
    /// none carries the empty text, since the field itself is demanded there.
    fn reasoning(&self, content: &[Block], native: bool, has_calls: bool) -> Option<String> {
        let own: Vec<&str> = content
            .iter()
            .filter_map(|block| match block {
                Block::Reasoning(text) if native && !text.trim().is_empty() => Some(text.as_str()),
                _ => None,
            })
            .collect();
        (self.thinking && (has_calls || !own.is_empty())).then(|| own.join("\n"))
    }

    fn call(
        &mut self,
        position: usize,
        native: bool,
        original: &str,
        tool: &str,
        text: &str,
        sum: &mut usize,
    ) -> Value {
        let name = legal_name(tool);
        self.repairs.tool_name(position, tool, &name);
        let id = self.ids.call(original, &name, native);
        self.repairs.call_id(position, original, &id);
        let arguments = self.repairs.arguments(position, text);
        *sum += name.len() + size(&arguments);
        json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
    }
}

fn message(role: &str, content: Raw) -> Object {
    let mut out = Object::new();
    out.set("role", raw(role));
    out.set("content", content);
    out
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn texts(content: &[Block]) -> impl Iterator<Item = &str> {
    content.iter().filter_map(|block| match block {
        Block::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    })
}
