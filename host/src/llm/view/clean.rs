//! The blocks of one message: what can be sent, what is turned into something that can, what is left out.

use dsh_plugin_api::json::{self, Object, Raw, raw};
use dsh_plugin_api::kit::notes::NO_OUTPUT;
use dsh_plugin_api::vocab::{Block, Message, ReplayEnvelope, Role, Source};

use super::super::assembler::has_metadata;
use super::image::{self, REFUSED_IMAGE};
use super::pair::{Answer, Call};
use super::{Fate, HistoryMessage, RepairKind, Repairs, RequestInput, is_blank};

/// One message on its way into the request.
#[derive(Debug)]
pub(super) struct Item {
    /// Position in the input history.
    pub position: usize,
    /// What becomes of it.
    pub fate: Fate,
    /// Whether its images are sent.
    images: bool,
    /// The message without its results.
    pub message: Message,
    /// The mark of the log.
    pub interrupted: bool,
    /// Its calls, in the order of its `tool-call` blocks.
    pub calls: Vec<Call>,
    /// Its results, until they find their calls.
    pub results: Vec<Answer>,
    /// True when it had results.
    pub had_results: bool,
    /// Results that found no call, as text.
    pub strays: Vec<Block>,
}

impl Item {
    pub const fn is_assistant(&self) -> bool {
        matches!(self.message.role, Role::Assistant)
    }

    /// True when the message itself, apart from results, is part of the request.
    pub fn speaks(&self) -> bool {
        // A failed attempt has no block left.
        match (self.message.role, self.fate) {
            // Reasoning does not go out without its metadata.
            (Role::Assistant, Fate::Foreign) => {
                self.message.content.iter().any(|block| !matches!(block, Block::Reasoning(_)))
            }
            _ => !self.message.content.is_empty(),
        }
    }
}

/// Cleans every message of a history. Also gives the system prompt, with the system messages that lead the history;
/// none where all of it is blank.
pub(super) fn history(input: &RequestInput, fates: &[Fate], repairs: &mut Repairs) -> (Vec<Item>, Option<String>) {
    let mut system: Vec<String> = input.system.iter().cloned().collect();
    let mut leading = true;
    let mut items = Vec::with_capacity(input.history.len());
    for (position, entry) in input.history.iter().enumerate() {
        let fate = fates.get(position).copied().unwrap_or(Fate::Foreign);
        if entry.message.role != Role::System {
            leading = false;
        } else {
            repairs.add(position, RepairKind::SystemMessage);
            if leading {
                system.push(entry.message.text());
                continue;
            }
        }
        items.push(item(position, entry, fate, position >= input.images_from, repairs));
    }
    system.retain(|part| !is_blank(part));
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    (items, system)
}

fn item(position: usize, entry: &HistoryMessage, fate: Fate, images: bool, repairs: &mut Repairs) -> Item {
    let mut message = entry.message.clone();
    if message.role == Role::System {
        message.role = Role::User;
    }
    let blocks = std::mem::take(&mut message.content);
    let mut item = Item {
        position,
        fate,
        images,
        message,
        interrupted: entry.interrupted,
        calls: Vec::new(),
        results: Vec::new(),
        had_results: false,
        strays: Vec::new(),
    };
    if fate == Fate::FailedAttempt {
        // Only its calls count: a result of one of them is no result of another message's call.
        repairs.add(position, RepairKind::FailedAttempt);
        item.calls = blocks.iter().filter_map(Call::of).collect();
        item.message.content = Vec::new();
        return item;
    }
    let envelope = match (&item.message.source, fate) {
        (Source::Model { replay_state: Some(state), .. }, Fate::Native) => ReplayEnvelope::parse(state).ok(),
        _ => None,
    };
    let entries = envelope.and_then(|envelope| envelope.blocks);
    let mut kept = Vec::with_capacity(blocks.len());
    for (at, block) in blocks.into_iter().enumerate() {
        let signed = entries.as_ref().and_then(|entries| entries.get(at)).is_some_and(has_metadata);
        let block = if item.is_assistant() {
            assistant_block(&mut item, block, signed, repairs)
        } else {
            user_block(&mut item, block, repairs)
        };
        kept.push(block.is_some());
        item.message.content.extend(block);
    }
    item.had_results = !item.results.is_empty();
    if let [only] = item.results.as_mut_slice()
        && is_blank(&only.id)
        && let Source::Tool { call_id } = &item.message.source
    {
        only.id.clone_from(call_id);
    }
    item.calls = item.message.content.iter().filter_map(Call::of).collect();
    trim_state(&mut item.message.source, fate, &kept);
    item
}

/// What is sent of a block of the assistant. A result is set aside.
fn assistant_block(item: &mut Item, block: Block, signed: bool, repairs: &mut Repairs) -> Option<Block> {
    let native = item.fate == Fate::Native;
    let kind = match salvage(block) {
        Block::Text(text) if !is_blank(&text) || signed => return Some(Block::Text(text)),
        Block::Text(_) => RepairKind::BlankText,
        block @ Block::Reasoning(_) => return Some(block),
        Block::ToolCall { name, .. } if is_blank(&name) => RepairKind::NamelessCall,
        Block::ToolCall { id, name, arguments } => {
            let arguments = sendable_arguments(item.position, arguments, repairs);
            return Some(Block::ToolCall { id, name, arguments });
        }
        Block::ToolResult { tool_call_id, content, is_error } => {
            set_aside(item, tool_call_id, content, is_error, repairs);
            return None;
        }
        block @ Block::Image(_) if native => return Some(block),
        Block::Image(_) => RepairKind::MisplacedBlock,
        Block::Other(_) => RepairKind::UnknownBlock,
    };
    repairs.add(item.position, kind);
    None
}

/// What is sent of a block of the user or a tool. A result is set aside.
fn user_block(item: &mut Item, block: Block, repairs: &mut Repairs) -> Option<Block> {
    match salvage(block) {
        Block::ToolResult { tool_call_id, content, is_error } => {
            set_aside(item, tool_call_id, content, is_error, repairs);
            None
        }
        block => plain_block(item, block, repairs),
    }
}

/// Text and images; everything else is left out.
fn plain_block(item: &Item, block: Block, repairs: &mut Repairs) -> Option<Block> {
    let kind = match block {
        Block::Text(text) if !is_blank(&text) => return Some(Block::Text(text)),
        Block::Text(_) => RepairKind::BlankText,
        Block::Image(image) => {
            let (kind, note) = match image::sendable(image) {
                Ok((image, changed)) if item.images => {
                    if changed {
                        repairs.add(item.position, RepairKind::MendedImage);
                    }
                    return Some(Block::Image(image));
                }
                Ok(_) => (RepairKind::RefusedImage, REFUSED_IMAGE.to_owned()),
                Err(note) => (RepairKind::UnusableImage, note),
            };
            repairs.add(item.position, kind);
            return Some(Block::Text(note));
        }
        Block::Reasoning(_) | Block::ToolCall { .. } | Block::ToolResult { .. } => RepairKind::MisplacedBlock,
        Block::Other(_) => RepairKind::UnknownBlock,
    };
    repairs.add(item.position, kind);
    None
}

fn set_aside(item: &mut Item, id: String, content: Vec<Block>, is_error: Option<bool>, repairs: &mut Repairs) {
    let mut clean = Vec::with_capacity(content.len());
    flatten(item, content, DEEPEST_RESULT, &mut clean, repairs);
    if clean.is_empty() && is_error == Some(true) {
        repairs.add(item.position, RepairKind::EmptyError);
        clean.push(Block::Text(NO_OUTPUT.to_owned()));
    }
    let (position, order) = (item.position, item.results.len());
    item.results.push(Answer { position, order, id, content: clean, is_error });
}

/// How deep results inside a result are looked into. No harness nests them; each level reads the rest of the text once
/// more and takes a piece of the stack, so hostile nesting must end somewhere.
const DEEPEST_RESULT: usize = 8;

/// The plain blocks of a result; a result inside a result gives its content, down to `depth` levels.
fn flatten(item: &Item, content: Vec<Block>, depth: usize, clean: &mut Vec<Block>, repairs: &mut Repairs) {
    for block in content {
        match salvage(block) {
            Block::ToolResult { content, .. } => {
                repairs.add(item.position, RepairKind::MisplacedBlock);
                if let Some(depth) = depth.checked_sub(1) {
                    flatten(item, content, depth, clean, repairs);
                }
            }
            block => clean.extend(plain_block(item, block, repairs)),
        }
    }
}

/// A call or result that lacks its id, or whose content is bare text, is still one.
fn salvage(block: Block) -> Block {
    let Block::Other(value) = &block else { return block };
    let Ok(mut members) = json::from_str::<Object>(value.get()) else { return block };
    match members.get_str("type").as_deref() {
        Some("tool-result") => {
            let content = members.take("content").map_or_else(Vec::new, |content| blocks_of(&content));
            let tool_call_id = members.get("toolCallId").map(id_text).unwrap_or_default();
            Block::ToolResult { tool_call_id, content, is_error: members.take_as("isError") }
        }
        Some("tool-call") => {
            let Some(name) = members.get_str("name") else { return block };
            let id = members.get("id").map(id_text).unwrap_or_default();
            let arguments = members
                .take("arguments")
                .map_or_else(String::new, |text| json::from_str(text.get()).unwrap_or_else(|_| text.get().to_owned()));
            Block::ToolCall { id, name, arguments }
        }
        _ => block,
    }
}

/// The content of a result that is no array of blocks.
fn blocks_of(content: &Raw) -> Vec<Block> {
    if let Ok(blocks) = json::from_str(content.get()) {
        return blocks;
    }
    match json::from_str::<String>(content.get()) {
        Ok(text) => vec![Block::Text(text)],
        Err(_) if content.get() == "null" => Vec::new(),
        Err(_) => vec![Block::Text(content.get().to_owned())],
    }
}

fn id_text(id: &serde_json::value::RawValue) -> String {
    match json::from_str::<String>(id.get()) {
        Ok(text) => text,
        Err(_) if id.get() == "null" => String::new(),
        Err(_) => id.get().to_owned(),
    }
}

/// The JSON text of an object, or nothing for a call without arguments.
fn sendable_arguments(position: usize, arguments: String, repairs: &mut Repairs) -> String {
    if is_blank(&arguments) {
        return String::new();
    }
    let text = json::replace_lone_surrogates(&arguments);
    if serde_json::from_str::<Object>(&text).is_ok() {
        return text.into_owned();
    }
    repairs.add(position, RepairKind::UnparseableArguments);
    "{}".to_owned()
}

/// Takes the entries of dropped blocks out of the request's copy of the envelope, or the copy out of a message that
/// goes out foreign.
fn trim_state(source: &mut Source, fate: Fate, kept: &[bool]) {
    let Source::Model { replay_state, .. } = source else { return };
    if fate != Fate::Native {
        *replay_state = None;
        return;
    }
    if kept.iter().all(|kept| *kept) {
        return;
    }
    let Some(Ok(mut state)) = replay_state.as_ref().map(|state| json::from_str::<Object>(state.get())) else { return };
    let Some(entries) = state.get("blocks").and_then(|blocks| json::from_str::<Vec<Raw>>(blocks.get()).ok()) else {
        return;
    };
    let entries: Vec<Raw> = entries.into_iter().zip(kept).filter_map(|(entry, kept)| kept.then_some(entry)).collect();
    state.set("blocks", raw(&entries));
    *replay_state = Some(raw(&state));
}
