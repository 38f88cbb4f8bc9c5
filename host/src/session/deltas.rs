//! Deltas of one block that came together, as values.
//!
//! A stream consists of little else, and of each of them hardly anybody wants more than its text. So they share what
//! they have in common and one text, and become events of their own, with JSON, only for whoever asks.

use dsh_plugin_api::vocab::Chunk;

/// The kinds of deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeltaKind {
    Text,
    Reasoning,
    ToolCall,
}

/// Neighbouring deltas of one block: each stands for one `assistant/chunk` event. There is at least one.
#[derive(Debug, Clone)]
pub struct Deltas {
    pub(super) turn: u64,
    pub(super) step: u64,
    pub(super) kind: DeltaKind,
    pub(super) index: u32,
    /// Id and name of a tool call; empty for the other kinds.
    pub(super) id: String,
    pub(super) name: Option<String>,
    text: String,
    /// Where in `text` each delta ends.
    ends: Vec<usize>,
}

/// What a chunk has to say as a delta.
struct Delta<'a> {
    kind: DeltaKind,
    index: u32,
    id: &'a str,
    name: Option<&'a str>,
    text: &'a str,
}

impl<'a> Delta<'a> {
    fn of(chunk: &'a Chunk) -> Option<Self> {
        match chunk {
            Chunk::TextDelta { index, text } => {
                Some(Self { kind: DeltaKind::Text, index: *index, id: "", name: None, text })
            }
            Chunk::ReasoningDelta { index, text } => {
                Some(Self { kind: DeltaKind::Reasoning, index: *index, id: "", name: None, text })
            }
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => Some(Self {
                kind: DeltaKind::ToolCall,
                index: *index,
                id,
                name: name.as_deref(),
                text: arguments_delta,
            }),
            Chunk::BlockStart { .. } | Chunk::BlockEnd { .. } | Chunk::Usage { .. } | Chunk::Finish { .. } => None,
        }
    }
}

impl Deltas {
    /// The chunk as the first of them; `None` for one that is no delta.
    pub(super) fn begin(turn: u64, step: u64, chunk: &Chunk) -> Option<Self> {
        let Delta { kind, index, id, name, text } = Delta::of(chunk)?;
        let (id, name) = (id.to_owned(), name.map(str::to_owned));
        Some(Self { turn, step, kind, index, id, name, text: text.to_owned(), ends: vec![text.len()] })
    }

    /// Takes the chunk, if it is a further delta of this block; says whether it did.
    pub(super) fn extend(&mut self, chunk: &Chunk) -> bool {
        let Some(Delta { kind, index, id, name, text }) = Delta::of(chunk) else { return false };
        let is_next = kind == self.kind && index == self.index && id == self.id && name == self.name.as_deref();
        if is_next {
            self.text.push_str(text);
            self.ends.push(self.text.len());
        }
        is_next
    }

    /// How many they are.
    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// The text of all of them.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The text of each, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let text = &self.text[start..*end];
            start = *end;
            text
        })
    }

    /// About how much memory they take, in bytes.
    pub(super) const fn cost(&self) -> usize {
        size_of::<Self>() + self.id.len() + self.text.len() + self.ends.len() * size_of::<usize>()
    }
}
