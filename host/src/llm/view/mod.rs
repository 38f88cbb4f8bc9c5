//! The request view: the history as a provider can take it.
//!
//! Logs hold what happened, also what no provider accepts: calls that were never answered, results without a call,
//! notes between the two, ids that repeat, blank text, arguments that are no JSON. The view is made of a copy for each
//! request and is the same for every wire; the log is never edited for it. Each change is a [`Repair`] with a name
//! ([`RepairKind`]) and the position of the message it concerns.
//!
//! Promises: the order of repairs is fixed; the view of a view is the same and needs no repair; a history that needs
//! none comes out as it went in; nothing that a user, a tool or a model said disappears without a repair that names it.
//!
//! Metadata stays aligned: where a block leaves a message that goes out native, its entry leaves the request's copy of
//! the envelope with it. Messages that go out foreign lose the copy altogether.
//!
//! In order: `clean` looks at the blocks of each message, `pair` joins calls and results and gives ids, `emit`
//! writes the messages down.

mod clean;
mod emit;
mod image;
mod pair;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use dsh_plugin_api::vocab::{Block, Message, Repair, Request, Role, Routing, Tool};

use super::degrade::Fate;

/// One message of a history, with what only the log knows of it.
#[derive(Debug, Clone)]
pub struct HistoryMessage {
    /// The message.
    pub message: Message,
    /// True for an answer that was interrupted and kept. The model is told from this mark alone.
    pub interrupted: bool,
}

impl From<Message> for HistoryMessage {
    fn from(message: Message) -> Self {
        Self { message, interrupted: false }
    }
}

/// A request as the host means it, before any repair.
#[derive(Debug, Clone, Default)]
pub struct RequestInput {
    /// System prompt.
    pub system: Option<String>,
    /// History, oldest first.
    pub history: Vec<HistoryMessage>,
    /// Tools that the model may call.
    pub tools: Vec<Tool>,
    /// Output limit in tokens.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; absent means off.
    pub reasoning_effort: Option<String>,
    /// Position of the first message whose images are sent; those of earlier messages are replaced by a note. 0 unless
    /// the provider refused them ([`super::ladder`]).
    pub images_from: usize,
}

impl From<Request> for RequestInput {
    fn from(request: Request) -> Self {
        let Request { system, messages, tools, max_tokens, temperature, reasoning_effort } = request;
        let history = messages.into_iter().map(HistoryMessage::from).collect();
        Self { system, history, tools, max_tokens, temperature, reasoning_effort, images_from: 0 }
    }
}

/// What goes to the adapter.
#[derive(Debug, Clone)]
pub struct View {
    /// The request.
    pub request: Request,
    /// One per message of the request.
    pub routing: Vec<Routing>,
    /// Position in the input history that each message of the request stems from. A message that the view adds has the
    /// position of the one that made it necessary.
    pub positions: Vec<usize>,
    /// What was changed, in order of message.
    pub repairs: Vec<Repair>,
}

impl View {
    /// How many messages go out native.
    #[must_use]
    pub fn native(&self) -> usize {
        self.routing.iter().filter(|routing| **routing == Routing::Native).count()
    }

    /// Position in the input history of the message of each image of users and tools, ascending.
    #[must_use]
    pub fn images(&self) -> Vec<usize> {
        let said = self.request.messages.iter().zip(&self.positions).filter(|(message, _)| message.role == Role::User);
        let mut images: Vec<usize> =
            said.flat_map(|(message, position)| std::iter::repeat_n(*position, images_of(&message.content))).collect();
        images.sort_unstable();
        images
    }
}

macro_rules! repair_kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        /// What the view may change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum RepairKind {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl RepairKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The `kind` of the repair.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What was done, for a person.
            #[must_use]
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_start(),)*
                }
            }
        }
    };
}

repair_kinds! {
    /// The partial answer of an attempt that failed was left out.
    FailedAttempt = "failed-attempt",
    /// A system message inside the history was joined to the system prompt, or sent as a note of the user's role.
    SystemMessage = "system-message",
    /// A blank text block was left out.
    BlankText = "blank-text",
    /// A block of unknown type, or one that lacks what its type needs, was left out.
    UnknownBlock = "unknown-block",
    /// A block that its role cannot say was left out.
    MisplacedBlock = "misplaced-block",
    /// A tool call without a name was left out.
    NamelessCall = "nameless-call",
    /// An image that cannot be sent was replaced by a note.
    UnusableImage = "unusable-image",
    /// An image was sent with the type that its bytes show, and as plain base64.
    MendedImage = "mended-image",
    /// An image that the provider refused, or that made the request too large, was replaced by a note.
    RefusedImage = "refused-image",
    /// Tool arguments that are no JSON object were replaced by an empty object.
    UnparseableArguments = "unparseable-arguments",
    /// An error result without content was given a text.
    EmptyError = "empty-error",
    /// A result that had lost its call id was given to the call that was waiting for it.
    AdoptedResult = "adopted-result",
    /// A result without a call was turned into text.
    OrphanResult = "orphan-result",
    /// A further result of a call that had one was turned into text.
    DuplicateResult = "duplicate-result",
    /// A tool call was given an id.
    MissingId = "missing-id",
    /// An id that an earlier call uses was replaced, in the call and in its result.
    RepeatedId = "repeated-id",
    /// A call without a result was given an error result.
    UnansweredCall = "unanswered-call",
    /// A note between a call and its result was moved behind the result.
    NoteMoved = "note-moved",
    /// A result that stood behind a later answer of the model was moved to its call.
    ResultMoved = "result-moved",
    /// Results of one message were put in the order of its calls.
    ResultOrder = "result-order",
    /// A message of results and other content was sent as two.
    SplitMessage = "split-message",
    /// A message that has nothing to say was left out.
    EmptyMessage = "empty-message",
}

/// Collects repairs.
#[derive(Debug, Default)]
struct Repairs {
    list: Vec<(usize, RepairKind)>,
    /// Those of `list` that were added once.
    once: HashSet<(usize, RepairKind)>,
}

impl Repairs {
    fn add(&mut self, position: usize, kind: RepairKind) {
        self.list.push((position, kind));
    }

    /// For a change that can have several causes but is one change. Such a kind is never added in another way.
    fn add_once(&mut self, position: usize, kind: RepairKind) {
        if self.once.insert((position, kind)) {
            self.add(position, kind);
        }
    }

    fn into_list(mut self) -> Vec<Repair> {
        self.list.sort_by_key(|(position, _)| *position);
        self.list.into_iter().map(|(message, kind)| Repair { message, kind: kind.name().to_owned() }).collect()
    }
}

/// How many images these blocks and the results among them have.
fn images_of(blocks: &[Block]) -> usize {
    let count = |block: &Block| match block {
        Block::Image(_) => 1,
        Block::ToolResult { content, .. } => images_of(content),
        Block::Text(_) | Block::Reasoning(_) | Block::ToolCall { .. } | Block::Other(_) => 0,
    };
    blocks.iter().map(count).sum()
}

/// Builds the view. `fates` has one element per message of the history.
///
/// A message without a fate counts as foreign.
#[must_use]
pub fn request_view(input: &RequestInput, fates: &[Fate]) -> View {
    let mut repairs = Repairs::default();
    let (mut items, system) = clean::history(input, fates, &mut repairs);
    pair::join(&mut items, &mut repairs);
    pair::give_ids(&mut items, &mut repairs);
    let sent = emit::messages(items, &mut repairs);
    let request = Request {
        system,
        messages: sent.messages,
        tools: input.tools.clone(),
        max_tokens: input.max_tokens,
        temperature: input.temperature,
        reasoning_effort: input.reasoning_effort.clone(),
    };
    View { request, routing: sent.routing, positions: sent.positions, repairs: repairs.into_list() }
}

/// True for text that providers refuse as blank: nothing but white space and the separators U+001C to U+001F.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}
