//! From batches of events to the bytes of a log: packed rows, then the form of the file.

use std::time::Duration;

use super::bytes::{BatchEnd, Form, Packer};
use crate::session::batch::PlacedEvents;
use crate::session::event::kind;
use crate::session::line;

/// Longest time that an event waits for others before it is written, when it comes this long after the last batch was
/// begun to be written. In the middle of a stream it may be longer: fewer rows and syncs, and nobody watches one event.
#[must_use]
pub const fn window(quiet: Duration) -> Duration {
    const FIRST: Duration = Duration::from_millis(50);
    const STREAM: Duration = Duration::from_millis(100);
    if quiet.as_millis() < STREAM.as_millis() { STREAM } else { FIRST }
}

/// Makes what a writer appends to one file. Knows neither file nor clock.
pub struct Encoder {
    packer: Packer,
    /// What a seq in the file has above that of its event.
    offset: i64,
}

impl Encoder {
    /// For a log of plain lines.
    #[must_use]
    pub fn plain() -> Self {
        Self::new(Form::Plain, 0)
    }

    /// For a log of Zstandard frames.
    #[must_use]
    pub fn compressed() -> Self {
        Self::new(Form::Zstd, 0)
    }

    pub(super) fn new(form: Form, offset: i64) -> Self {
        Self { packer: Packer::new(form), offset }
    }

    /// The bytes of a batch. All of its events can be read from them and from those before them.
    ///
    /// # Errors
    ///
    /// The compressor has no memory.
    pub fn batch(&mut self, events: &[PlacedEvents]) -> std::io::Result<Vec<u8>> {
        let mut lines = String::new();
        line::encode(events, self.offset, &mut lines);
        let turn_ends =
            |placed: &PlacedEvents| matches!(placed, PlacedEvents::One(event) if event.kind == kind::TURN_END);
        let end = if events.iter().any(turn_ends) { BatchEnd::Frame } else { BatchEnd::Flush };
        self.packer.pack(lines.into_bytes(), end)
    }

    /// What ends the file: nothing, or the end of the frame that is being written.
    pub fn close(&mut self) -> &'static [u8] {
        self.packer.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_pause_waits_less_than_what_is_in_a_stream() {
        let [first, stream] = [1_000, 60].map(|quiet| window(Duration::from_millis(quiet)));
        assert!(first < stream && stream <= Duration::from_millis(100));
        assert_eq!(window(Duration::MAX), first, "the first of all");
        assert_eq!(window(stream), first, "one that comes when the window of a stream is over");
    }
}
