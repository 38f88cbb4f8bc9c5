//! The flat batch: what a stream call returns.

#![allow(non_local_definitions, clippy::all, unsafe_code)]

use std::collections::BTreeMap;

use abi_stable::StableAbi;
use abi_stable::std_types::RVec;

use crate::json;
use crate::vocab::{BlockType, Chunk};

/// What a record is. The number is open: a reader skips kinds that it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RecKind {
    /// Bytes: the block type's name.
    BlockStart = 1,
    /// Bytes: UTF-8 text.
    TextDelta = 2,
    /// Bytes: UTF-8 text.
    ReasoningDelta = 3,
    /// Bytes: JSON `[id, name]`; holds for the call's deltas from here on.
    ToolCallHead = 4,
    /// Bytes: a piece of the arguments.
    ToolCallDelta = 5,
    /// Bytes: JSON of the block.
    BlockEnd = 6,
    /// Bytes: JSON of the usage.
    Usage = 7,
    /// Bytes: JSON of the finish chunk.
    Finish = 8,
    /// Polled exchanges: come back after `index` milliseconds. HTTP exchanges: the body is over, unless the decoder
    /// finishes, `index` milliseconds from now; the first such record counts.
    Wait = 9,
}

impl RecKind {
    const ALL: [Self; 9] = [
        Self::BlockStart,
        Self::TextDelta,
        Self::ReasoningDelta,
        Self::ToolCallHead,
        Self::ToolCallDelta,
        Self::BlockEnd,
        Self::Usage,
        Self::Finish,
        Self::Wait,
    ];

    /// The kind of a number: they are numbered from 1 in the order of the list.
    fn of(number: u32) -> Option<Self> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// One record: where its bytes stand in the batch's buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, StableAbi)]
pub struct Rec {
    /// A [`RecKind`] number.
    pub kind: u32,
    /// Block index, or milliseconds for `Wait`.
    pub index: u32,
    /// Offset in bytes.
    pub off: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Records and the bytes they refer to.
#[repr(C)]
#[derive(Debug, Default, Clone, StableAbi)]
pub struct Batch {
    /// In order.
    pub recs: RVec<Rec>,
    /// What they refer to.
    pub bytes: RVec<u8>,
}

impl Batch {
    /// Adds a record. One that would take the buffer beyond 4 GiB is left out.
    pub fn push(&mut self, kind: RecKind, index: u32, bytes: &[u8]) {
        let Some(rec) = Rec::behind(self.bytes.len(), kind, index, bytes) else { return };
        self.bytes.extend_from_copy_slice(bytes);
        self.recs.push(rec);
    }
}

impl Rec {
    /// A record whose bytes will stand behind `length` others.
    fn behind(length: usize, kind: RecKind, index: u32, bytes: &[u8]) -> Option<Self> {
        let (off, len) = (u32::try_from(length).ok()?, u32::try_from(bytes.len()).ok()?);
        Some(Self { kind: kind as u32, index, off, len })
    }
}

/// A batch that is being filled. The vectors of `std` grow without a call through the table that the border's vectors
/// carry, and become those without a copy.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    recs: Vec<Rec>,
    bytes: Vec<u8>,
}

impl Filling {
    /// As [`Batch::push`].
    pub fn push(&mut self, kind: RecKind, index: u32, bytes: &[u8]) {
        let Some(rec) = Rec::behind(self.bytes.len(), kind, index, bytes) else { return };
        self.bytes.extend_from_slice(bytes);
        self.recs.push(rec);
    }

    /// The batch so far; what follows begins the next one.
    pub fn take(&mut self) -> Batch {
        let Self { recs, bytes } = std::mem::take(self);
        Batch { recs: recs.into(), bytes: bytes.into() }
    }
}

/// Greatest length of a tool call's id and of its name, in bytes. Each delta of the call repeats both, so that a few
/// megabytes of them would become gigabytes; the longest real ones, with a provider's opaque item id inside, have some
/// hundred bytes.
pub const LONGEST_CALL_HEAD: usize = 16 * 1024;

/// What is wrong with a tool call's id or name that is longer than [`LONGEST_CALL_HEAD`].
pub(crate) fn over_long(id: &str, name: &str) -> Option<String> {
    let (what, length) = [("id", id.len()), ("name", name.len())].into_iter().find(|(_, n)| *n > LONGEST_CALL_HEAD)?;
    Some(format!("the {what} of a tool call has {length} bytes, more than {LONGEST_CALL_HEAD}"))
}

/// One element that a reader gets from a batch.
#[derive(Debug, Clone)]
pub enum Item {
    /// A chunk of the response.
    Chunk(Chunk),
    /// Poll again, or end the body, after this many milliseconds; see [`RecKind::Wait`].
    Wait(u32),
    /// A record that does not hold what its kind says; the text names it.
    Malformed(String),
}

/// Reads the batches of one stream. It trusts nothing: ranges, UTF-8 and JSON are checked.
#[derive(Debug, Default)]
pub struct BatchReader {
    /// Id and name of each tool call, by its block index.
    calls: BTreeMap<u32, (String, Option<String>)>,
}

impl BatchReader {
    /// A reader at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Calls `on_item` for each element of the batch. Records of unknown kind are skipped.
    pub fn read(&mut self, batch: &Batch, mut on_item: impl FnMut(Item)) {
        for rec in batch.recs.iter() {
            let Some(kind) = RecKind::of(rec.kind) else { continue };
            let end = rec.off as usize + rec.len as usize;
            let item = match batch.bytes.as_slice().get(rec.off as usize..end) {
                Some(bytes) => self.item(kind, rec.index, bytes),
                None => Some(Item::Malformed(format!("{kind:?} record points outside its batch"))),
            };
            if let Some(item) = item {
                on_item(item);
            }
        }
    }

    fn item(&mut self, kind: RecKind, index: u32, bytes: &[u8]) -> Option<Item> {
        let text = || json::lossy(bytes).into_owned();
        let malformed = |e: serde_json::Error| Item::Malformed(format!("{kind:?} record holds no such JSON: {e}"));
        Some(match kind {
            RecKind::BlockStart => match json::from_str::<BlockType>(&format!("{:?}", text())) {
                Ok(block_type) => Item::Chunk(Chunk::BlockStart { index, block_type }),
                Err(e) => malformed(e),
            },
            RecKind::TextDelta => Item::Chunk(Chunk::TextDelta { index, text: text() }),
            RecKind::ReasoningDelta => Item::Chunk(Chunk::ReasoningDelta { index, text: text() }),
            RecKind::ToolCallHead => match json::from_slice::<(String, String)>(bytes) {
                Ok((id, name)) => {
                    if let Some(what) = over_long(&id, &name) {
                        return Some(Item::Malformed(format!("{kind:?} record: {what}")));
                    }
                    self.calls.insert(index, (id, Some(name).filter(|name| !name.is_empty())));
                    return None;
                }
                Err(e) => malformed(e),
            },
            RecKind::ToolCallDelta => {
                let (id, name) = self.calls.get(&index).cloned().unwrap_or_default();
                Item::Chunk(Chunk::ToolCallDelta { index, id, name, arguments_delta: text() })
            }
            RecKind::BlockEnd => match json::from_slice(bytes) {
                Ok(block) => Item::Chunk(Chunk::BlockEnd { index, block }),
                Err(e) => malformed(e),
            },
            RecKind::Usage => match json::from_slice(bytes) {
                Ok(usage) => Item::Chunk(Chunk::Usage { usage }),
                Err(e) => malformed(e),
            },
            RecKind::Finish => match json::from_slice::<Chunk>(bytes) {
                Ok(finish @ Chunk::Finish { .. }) => Item::Chunk(finish),
                Ok(_) => Item::Malformed("Finish record holds another chunk".to_owned()),
                Err(e) => malformed(e),
            },
            RecKind::Wait => Item::Wait(index),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_from_one_in_order() {
        for (place, kind) in RecKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place + 1);
            assert_eq!(RecKind::of(kind as u32), Some(kind));
        }
        assert_eq!((RecKind::of(0), RecKind::of(RecKind::ALL.len() as u32 + 1)), (None, None));
    }
    use proptest::prelude::*;

    #[test]
    fn a_call_head_beyond_the_limit_is_malformed() {
        let long = "n".repeat(LONGEST_CALL_HEAD + 1);
        for (head, expected) in
            [((&*long, "bash"), "the id of a tool call has"), (("c", &*long), "the name of a tool call")]
        {
            let mut batch = Batch::default();
            batch.push(RecKind::ToolCallHead, 0, json::raw(&head).get().as_bytes());
            let mut items = Vec::new();
            BatchReader::new().read(&batch, |item| items.push(item));
            assert!(matches!(&items[..], [Item::Malformed(text)] if text.contains(expected)), "{}", items.len());
        }
    }

    proptest! {
        #[test]
        fn no_batch_can_make_the_reader_panic(
            recs in proptest::collection::vec((0u32..12, any::<u32>(), 0u32..40, any::<u32>()), 0..8),
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let recs = recs.into_iter().map(|(kind, index, off, len)| Rec { kind, index, off, len: len % 50 });
            let batch = Batch { recs: recs.collect(), bytes: bytes.into() };
            BatchReader::new().read(&batch, |_| {});
        }
    }
}
