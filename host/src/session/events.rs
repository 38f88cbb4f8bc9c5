//! The events of a log in memory: runs of deltas stay packed, as they stand in the file.
//!
//! A stream has some hundred deltas for each message, and hardly anybody wants them. Unpacked, each would take some
//! twenty times the memory that it takes in its row.

use std::borrow::Cow;

use super::event::{Event, kind};
pub use super::row::Row;

/// What a record of a log stands for.
#[derive(Debug, Clone)]
pub enum Entry {
    /// One event.
    Single(Event),
    /// An `assistant/chunk` event for each delta of a packed row.
    Row(Row),
}

impl Entry {
    /// How many events it is.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Single(_) => 1,
            Self::Row(row) => row.count(),
        }
    }

    /// `seq` of its first event.
    #[must_use]
    pub const fn first_seq(&self) -> u64 {
        match self {
            Self::Single(event) => event.seq,
            Self::Row(row) => row.first_seq(),
        }
    }

    /// Unix time of its first event in milliseconds.
    #[must_use]
    pub const fn first_time(&self) -> u64 {
        match self {
            Self::Single(event) => event.time,
            Self::Row(row) => row.first_time(),
        }
    }

    /// Unix time of its last event in milliseconds.
    #[must_use]
    pub const fn last_time(&self) -> u64 {
        match self {
            Self::Single(event) => event.time,
            Self::Row(row) => row.last_time(),
        }
    }

    /// True for elements of a response stream.
    #[must_use]
    pub fn is_chunk(&self) -> bool {
        self.single().is_none_or(|event| event.kind == kind::ASSISTANT_CHUNK)
    }

    /// The event, where it is no row.
    #[must_use]
    pub const fn single(&self) -> Option<&Event> {
        match self {
            Self::Single(event) => Some(event),
            Self::Row(_) => None,
        }
    }

    /// Its events; those of a row are made now.
    pub fn events(&self) -> impl Iterator<Item = Cow<'_, Event>> {
        let (single, row) = match self {
            Self::Single(event) => (Some(Cow::Borrowed(event)), None),
            Self::Row(row) => (None, Some(row)),
        };
        single.into_iter().chain(row.into_iter().flat_map(Row::events).map(Cow::Owned))
    }

    /// About how much memory it takes, in bytes.
    #[must_use]
    pub fn cost(&self) -> usize {
        match self {
            Self::Single(event) => size_of::<Self>() + event.data.get().len(),
            Self::Row(row) => size_of::<Self>() + row.data().len(),
        }
    }
}

/// The events of a log, with `seq` from 0.
#[derive(Debug, Clone, Default)]
pub struct Events {
    entries: Vec<Entry>,
    len: u64,
}

impl Events {
    /// How many events the log has. Those that were left out are counted.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// True for a log without events.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every event that was not left out, in order; those of rows are made on the way.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, Event>> {
        self.entries.iter().flat_map(Entry::events)
    }

    /// Those that stand on a line of their own, in order: all but deltas in rows.
    pub fn singles(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.entries.iter().filter_map(Entry::single)
    }

    /// The records, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an entry, whose events have their place behind all others.
    pub fn push(&mut self, entry: Entry) {
        self.len = entry.first_seq() + entry.count();
        self.entries.push(entry);
    }

    /// Counts an entry that is left out.
    pub(crate) fn skip(&mut self, entry: &Entry) {
        self.len = entry.first_seq() + entry.count();
    }

    /// Keeps the first `len` events.
    pub fn truncate(&mut self, len: u64) {
        while let Some(last) = self.entries.pop_if(|last| last.first_seq() + last.count() > len) {
            let cut = last.events().take_while(|event| event.seq < len);
            let cut: Vec<Entry> = cut.map(|event| Entry::Single(event.into_owned())).collect();
            if !cut.is_empty() {
                self.entries.extend(cut);
                break;
            }
        }
        self.len = self.len.min(len);
    }
}

impl FromIterator<Event> for Events {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut all = Self::default();
        events.into_iter().for_each(|event| all.push(Entry::Single(event)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::line::{self, Place};
    use dsh_plugin_api::json;

    /// An event, a row of four, an event.
    fn events() -> Events {
        let mut events = Events::default();
        for line in [
            r#"{"type":"turn/start","data":{"turn":1}}"#,
            r#"{"type":"text-chunks","time0":3,"data":{"turn":1,"step":1,"index":0,"dt":[0,2,0],"texts":["a","b","c","d"]}}"#,
            r#"{"type":"x","data":null}"#,
        ] {
            let record = line::scan(line.as_bytes()).records.remove(0);
            events.push(record.into_entry(Place { seq: events.len(), time: 0 }).unwrap().entry);
        }
        events
    }

    fn forms(events: &Events) -> Vec<String> {
        events.iter().map(|event| json::raw(&*event).get().to_owned()).collect()
    }

    #[test]
    fn a_log_can_be_cut_at_every_event() {
        let all = events();
        assert_eq!((all.len(), all.entries().len(), all.singles().count()), (6, 3, 2));
        let forms_of_all = forms(&all);
        for len in 0..=8_u64 {
            let mut cut = all.clone();
            cut.truncate(len);
            let expected = usize::try_from(len.min(6)).unwrap();
            assert_eq!(cut.len(), len.min(6));
            assert_eq!(forms(&cut), forms_of_all[..expected], "{len}");
        }
    }
}
