//! The stable ABI. Authors use none of this directly; hosts do.
//!
//! Cold calls take and return JSON bytes ([`calls`]), so the vocabulary grows without touching the layout. The stream
//! path returns a flat [`Batch`]. Nothing crosses the border but integers and owned byte buffers (arguments may
//! borrow for the time of the call), so the same library can serve a host over a pipe.

mod batch;
pub mod calls;
mod config;
pub mod export;
mod meta;
mod root;

pub use batch::{Batch, BatchReader, Item, LONGEST_CALL_HEAD, Rec, RecKind};
pub(crate) use batch::{Filling, over_long};
pub use meta::{META_CAPACITY, META_MAGIC, META_SECTION, Metadata};
pub use root::{Created, END_COMPLETE, END_CUT, END_TIMED_OUT, Opened, Reply, Root, RootRef, Status};
