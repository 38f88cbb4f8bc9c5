//! Events.

use dsh_plugin_api::json::{Object, Raw};
use serde::Serialize;

/// One event of a log, expanded: `{type, seq, time, data, …}`.
#[derive(Debug, Clone)]
pub struct Event {
    /// `type`
    pub kind: String,
    /// Position in the session, from 0.
    pub seq: u64,
    /// Unix time in milliseconds.
    pub time: u64,
    /// `data`, as it was written.
    pub data: Raw,
    /// Every other member (`surfaceOp`, `ignorable`, `sourceEventSeqs`, …), as it was written.
    pub extra: Object,
}

/// An event that has no place in a log yet.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// `type`
    pub kind: &'static str,
    /// `data`
    pub data: Raw,
    /// True for the message events that stand on the surface: `"surfaceOp":"append"`.
    pub append: bool,
    /// True for the host's own events that another reader may skip: `"ignorable":true`.
    pub ignorable: bool,
}

/// The first line.
#[derive(Debug, Clone)]
pub struct Header {
    /// Session id.
    pub id: String,
    /// Unix time in milliseconds.
    pub created_at: u64,
    /// Working folder.
    pub cwd: Option<String>,
    /// Every other member, as it was written.
    pub extra: Object,
}

impl NewEvent {
    /// An event of this kind with this data.
    #[must_use]
    pub fn new<T: Serialize + ?Sized>(kind: &'static str, data: &T) -> Self {
        Self { kind, data: dsh_plugin_api::json::raw(data), append: false, ignorable: false }
    }
}
