//! One message of the history in a wire's words, with and without its replay metadata.
//!
//! What the blocks of a message become is the same on every wire. What differs is what a wire carries along with
//! them: that is what it says in [`Carriers`].

use std::fmt::Debug;

use dsh_plugin_api::vocab::{AssistantMessage, Block, Image, InvalidReplay, Message, ReplayEnvelope, Role};

use crate::config::ApiName;
use crate::envelope::{self, StoredEntry};

/// What a wire carries along with the blocks of its own answers, read from their envelope entries.
///
/// The functions are given the place of the block, for messages. Each fails with the name of the member that this
/// adapter would not have written; an entry without the member is never wrong.
pub(crate) trait Carriers {
    /// The wire.
    const API: ApiName;
    /// Goes along with a text block.
    type Text: Debug + Clone + Default;
    /// Goes along with a reasoning block.
    type Reasoning: Debug + Clone;
    /// Goes along with a tool call.
    type Call: Debug + Clone + Default;

    /// Reads the entry of a text block.
    fn text(at: usize, entry: &StoredEntry) -> Result<Self::Text, InvalidReplay>;

    /// Reads the entry of a reasoning block.
    fn reasoning(at: usize, entry: &StoredEntry) -> Result<Self::Reasoning, InvalidReplay>;

    /// Reads the entry of a tool call.
    fn call(at: usize, entry: &StoredEntry) -> Result<Self::Call, InvalidReplay>;

    /// True when a text goes back even if it is blank, for the sake of what it carries.
    fn keeps_blank(text: &Self::Text) -> bool {
        let _ = text;
        false
    }
}

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Turn<C: Carriers> {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part<C>>,
}

/// One block.
#[derive(Debug, Clone)]
pub(crate) enum Part<C: Carriers> {
    /// Text; blank only where its carrier asks for that.
    Text {
        /// The text.
        text: String,
        /// What goes along with it; the default in foreign turns.
        carrier: C::Text,
    },
    /// An image.
    Image(Image),
    /// Reasoning; only in native turns.
    Reasoning {
        /// Its text.
        text: String,
        /// What goes along with it.
        carrier: C::Reasoning,
    },
    /// A tool call.
    Call(Call<C>),
    /// The result of a tool call.
    Result {
        /// Id of the call, as in the history.
        call_id: String,
        /// Text and images.
        content: Vec<Part<C>>,
        /// The tool failed.
        is_error: bool,
    },
}

/// A tool call.
#[derive(Debug, Clone)]
pub(crate) struct Call<C: Carriers> {
    /// Id as in the history.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON text; blank stands for `{}`.
    pub arguments: String,
    /// What goes along with it; the default in foreign turns.
    pub carrier: C::Call,
    /// True in native turns: this model of this provider made the id.
    pub native: bool,
}

impl<C: Carriers> Turn<C> {
    /// Converts a message of any origin. Reasoning and metadata are left out.
    pub fn foreign(message: &Message) -> Self {
        let parts = message.content.iter().filter_map(|block| plain(block, message.role)).collect();
        Self { role: message.role, parts }
    }

    /// Converts a message with its metadata.
    ///
    /// # Errors
    ///
    /// [`InvalidReplay::OtherOrigin`] when another wire made it, else the member that this adapter would not have
    /// written.
    pub fn restore(message: &AssistantMessage, envelope: &ReplayEnvelope) -> Result<Self, InvalidReplay> {
        let entries = envelope::entries(message, envelope, C::API)?;
        let mut parts = Vec::with_capacity(entries.len());
        for (at, (block, entry)) in message.content.iter().zip(entries).enumerate() {
            parts.extend(match block {
                Block::Text(text) => {
                    let carrier = C::text(at, &entry)?;
                    let kept = !text.trim().is_empty() || C::keeps_blank(&carrier);
                    kept.then(|| Part::Text { text: text.clone(), carrier })
                }
                Block::Reasoning(text) => {
                    Some(Part::Reasoning { text: text.clone(), carrier: C::reasoning(at, &entry)? })
                }
                Block::ToolCall { id, name, arguments } => Some(Part::Call(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: arguments.clone(),
                    carrier: C::call(at, &entry)?,
                    native: true,
                })),
                other => plain(other, message.role),
            });
        }
        Ok(Self { role: message.role, parts })
    }
}

/// A block without metadata; `None` for what no wire can say in that role.
fn plain<C: Carriers>(block: &Block, role: Role) -> Option<Part<C>> {
    match block {
        Block::Text(text) => {
            (!text.trim().is_empty()).then(|| Part::Text { text: text.clone(), carrier: C::Text::default() })
        }
        Block::Image(image) => (role != Role::Assistant).then(|| Part::Image(image.clone())),
        Block::ToolCall { id, name, arguments } if role == Role::Assistant => Some(Part::Call(Call {
            id: id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            carrier: C::Call::default(),
            native: false,
        })),
        Block::ToolResult { tool_call_id, content, is_error } if role == Role::User => Some(Part::Result {
            call_id: tool_call_id.clone(),
            content: content.iter().filter_map(|block| plain(block, role)).collect(),
            is_error: is_error.unwrap_or(false),
        }),
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Reasoning(_) | Block::Other(_) => None,
    }
}
