//! The frozen root module. It never grows: `abi_stable` lets an old host load a newer library but refuses every older
//! library once the host's root has one more field, and that is the direction that matters here. New operations go
//! through `call`.

// The derives of abi_stable expand to items that these lints do not like; nothing else in this file raises them.
#![allow(non_local_definitions, missing_docs, clippy::all, unsafe_code)]

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RSlice, RVec};

use super::Batch;

/// Outcome of a cold call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The body is the answer.
    Ok,
    /// The body is a `Failure`, or a `ConfigRefusal` where the call is `create`.
    Failed,
    /// The operation or the handle is not known; the body is a text.
    Unsupported,
    /// The adapter panicked; the body is the panic message with its place.
    Panicked,
    /// A number that this version does not know.
    Unknown(u32),
}

impl Status {
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Unsupported => 2,
            Self::Panicked => 3,
            Self::Unknown(number) => number,
        }
    }
}

impl From<u32> for Status {
    fn from(number: u32) -> Self {
        match number {
            0 => Self::Ok,
            1 => Self::Failed,
            2 => Self::Unsupported,
            3 => Self::Panicked,
            number => Self::Unknown(number),
        }
    }
}

/// Answer of a cold call: a [`Status`] number and JSON or text.
#[repr(C)]
#[derive(Debug, StableAbi)]
pub struct Reply {
    pub status: u32,
    pub body: RVec<u8>,
}

/// Answer of `create`: a handle when the status is 0; the body is a `calls::CreatedInfo`.
#[repr(C)]
#[derive(Debug, StableAbi)]
pub struct Created {
    pub status: u32,
    pub handle: u64,
    pub body: RVec<u8>,
}

/// Answer of `open`: a stream when the status is 0.
#[repr(C)]
#[derive(Debug, StableAbi)]
pub struct Opened {
    pub status: u32,
    pub stream: u64,
    pub body: RVec<u8>,
}

/// `finish`: the body was complete.
pub const END_COMPLETE: u32 = 0;
/// `finish`: the connection broke.
pub const END_CUT: u32 = 1;
/// `finish`: the host gave up waiting.
pub const END_TIMED_OUT: u32 = 2;

/// What a library exports. Handles and streams are numbers of the library's own tables: a stale or invented one is
/// answered with `Unsupported`, never followed.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = RootRef)))]
#[sabi(missing_field(panic))]
pub struct Root {
    /// `() -> Descriptor`
    pub describe: extern "C" fn() -> Reply,
    /// `(config) -> handle, CreatedInfo`
    pub create: extern "C" fn(RSlice<'_, u8>) -> Created,
    /// Ends a handle; its open streams go on.
    pub destroy: extern "C" fn(u64),
    /// `(CheckHistory) -> [Option<InvalidReplay>]`
    pub check_history: extern "C" fn(u64, RSlice<'_, u8>) -> Reply,
    /// `(Convert) -> Converted`
    pub convert: extern "C" fn(u64, RSlice<'_, u8>) -> Reply,
    /// `(ReplayDegrade) -> ()`
    pub on_replay_degrade: extern "C" fn(u64, RSlice<'_, u8>) -> Reply,
    /// `(Open) -> stream`
    pub open: extern "C" fn(u64, RSlice<'_, u8>) -> Opened,
    /// Bytes of the response body.
    pub feed: extern "C" fn(u64, RSlice<'_, u8>) -> Batch,
    /// The body is over; the second argument is one of the `END_` constants, the third says how.
    pub finish: extern "C" fn(u64, u32, RSlice<'_, u8>) -> Batch,
    /// Next chunks of a polled exchange.
    pub poll: extern "C" fn(u64) -> Batch,
    /// The host stops the response.
    pub cancel: extern "C" fn(u64) -> Batch,
    /// Ends a stream and frees what it held.
    pub close: extern "C" fn(u64),
    /// Everything that comes later: `(handle, operation, bytes) -> bytes`.
    #[sabi(last_prefix_field)]
    pub call: extern "C" fn(u64, RSlice<'_, u8>, RSlice<'_, u8>) -> Reply,
}

impl RootModule for RootRef {
    abi_stable::declare_root_module_statics! {RootRef}

    const BASE_NAME: &'static str = "dsh_adapter";
    const NAME: &'static str = "dsh_adapter";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}
