//! Events that travel together: from a stream to the log, and from the log to whoever waits until they are durable.

use std::borrow::Cow;
use std::sync::Arc;

use dsh_plugin_api::vocab::Chunk;

use super::deltas::Deltas;
use super::event::{Event, NewEvent};
use super::row::Segment;

/// One event or several that have no place in a log yet.
#[derive(Debug, Clone)]
pub enum NewEvents {
    /// One of any kind.
    One(NewEvent),
    /// An `assistant/chunk` each.
    Deltas(Deltas),
}

impl NewEvents {
    /// The `assistant/chunk` events of chunks that came together.
    #[must_use]
    pub fn of_chunks(turn: u64, step: u64, chunks: &[Chunk]) -> Vec<Self> {
        let mut all = Vec::new();
        for chunk in chunks {
            if let Some(Self::Deltas(deltas)) = all.last_mut()
                && deltas.extend(chunk)
            {
                continue;
            }
            all.push(match Deltas::begin(turn, step, chunk) {
                Some(deltas) => Self::Deltas(deltas),
                None => Self::One(NewEvent::assistant_chunk(turn, step, chunk)),
            });
        }
        all
    }

    /// How many events they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::Deltas(deltas) => deltas.len() as u64,
        }
    }

    /// About how much memory they take, in bytes.
    #[must_use]
    pub fn cost(&self) -> usize {
        match self {
            Self::One(event) => size_of::<Event>() + event.data.get().len(),
            Self::Deltas(deltas) => deltas.cost(),
        }
    }

    /// Gives them their places, from `first` on, and one time.
    #[must_use]
    pub fn at(self, first: u64, time: u64) -> PlacedEvents {
        match self {
            Self::One(event) => PlacedEvents::One(event.at(first, time)),
            Self::Deltas(deltas) => PlacedEvents::Deltas { deltas, first, time },
        }
    }
}

impl From<NewEvent> for NewEvents {
    fn from(event: NewEvent) -> Self {
        Self::One(event)
    }
}

/// One event or several in their places.
#[derive(Debug, Clone)]
pub enum PlacedEvents {
    /// One of any kind.
    One(Event),
    /// An `assistant/chunk` each.
    Deltas {
        /// What they say.
        deltas: Deltas,
        /// `seq` of the first; the others follow.
        first: u64,
        /// Unix time of all of them, in milliseconds.
        time: u64,
    },
}

impl PlacedEvents {
    /// Each as an event of its own.
    pub fn events(&self) -> impl Iterator<Item = Cow<'_, Event>> {
        let (one, deltas) = match self {
            Self::One(event) => (Some(Cow::Borrowed(event)), None),
            Self::Deltas { deltas, first, time } => (None, Some(Segment::of_deltas(deltas, *first, *time))),
        };
        one.into_iter().chain(deltas.into_iter().flat_map(Segment::into_events).map(Cow::Owned))
    }
}

/// Events that became durable together. A clone is the same events.
#[derive(Debug, Clone)]
pub struct Durable(Arc<[PlacedEvents]>);

impl Durable {
    /// The events, in order; those of a run of deltas are made now.
    pub fn events(&self) -> impl Iterator<Item = Cow<'_, Event>> {
        self.0.iter().flat_map(PlacedEvents::events)
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> u64 {
        let count = |placed: &PlacedEvents| match placed {
            PlacedEvents::One(_) => 1,
            PlacedEvents::Deltas { deltas, .. } => deltas.len() as u64,
        };
        self.0.iter().map(count).sum()
    }
}

impl From<Vec<PlacedEvents>> for Durable {
    fn from(events: Vec<PlacedEvents>) -> Self {
        Self(events.into())
    }
}
