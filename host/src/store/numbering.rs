//! The seqs that stand in a file, against the positions that events have in memory.
//!
//! In a sound file they are the same. Where lines were lost the file jumps ahead, where two writers continued from one
//! place it falls back; in memory events count from 0 without gaps either way.

/// Events whose stored seqs run on without a jump.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Position of its first event.
    position: u64,
    /// Stored seq of its first event.
    stored: u64,
    len: u64,
}

/// What a file's seqs were so far.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    runs: Vec<Run>,
    next: u64,
    /// One above the greatest seq so far.
    above: u64,
    restart: bool,
}

/// A seq that is not the one after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    expected: u64,
    found: u64,
}

impl Jump {
    /// True with words for a gap, false with words for a fork.
    pub fn message(self) -> (bool, String) {
        let Self { expected, found } = self;
        if found > expected {
            let missing = match found - 1 {
                last if last == expected => format!("event {expected} is"),
                last => format!("events {expected} to {last} are"),
            };
            (true, format!("{missing} missing; the events behind were renumbered"))
        } else {
            let text = format!(
                "seq {found} stands here again although {expected} was due: another writer continued from an earlier \
                 place; both branches are kept in the order of the file, renumbered"
            );
            (false, text)
        }
    }
}

impl Numbering {
    /// Takes `count` events at this position, stored from `stored` on (absent: from where the last ones ended).
    pub fn take(&mut self, position: u64, stored: Option<u64>, count: u64) -> Option<Jump> {
        let restart = std::mem::take(&mut self.restart);
        let expected = self.next;
        let stored = stored.unwrap_or(expected);
        let runs_on = stored == expected || stored == self.above;
        match self.runs.last_mut() {
            Some(run) if run.stored + run.len == stored => run.len += count,
            _ => self.runs.push(Run { position, stored, len: count }),
        }
        self.next = stored + count;
        self.above = self.above.max(self.next);
        (!runs_on && !restart).then_some(Jump { expected, found: stored })
    }

    /// The next seq may be anything: the reason is known.
    pub fn expect_restart(&mut self) {
        self.restart = true;
    }

    /// The seq for the next event in the file.
    pub fn next_stored(&self) -> u64 {
        self.above
    }

    /// Positions for the stored seqs `start..=end` as the event at `position` meant them; `None` when they are the
    /// same. A seq that stands several times is the latest before the event; one that was lost is its neighbour inside
    /// the range.
    pub fn renumber(&self, position: u64, start: u64, end: u64) -> Option<(u64, u64)> {
        if self.runs.iter().all(|run| run.position == run.stored) {
            return None;
        }
        let before: Vec<Run> = self
            .runs
            .iter()
            .filter(|run| run.position < position)
            .map(|run| Run { len: run.len.min(position - run.position), ..*run })
            .collect();
        let exact = |seq: u64, below: u64| {
            before.iter().rev().find_map(|run| {
                let at = run.position + seq.checked_sub(run.stored)?;
                (at < run.position + run.len && at < below).then_some(at)
            })
        };
        let new_end = exact(end, position).or_else(|| {
            let run = before.iter().rev().find(|run| run.stored <= end)?;
            Some(run.position + (end - run.stored).min(run.len - 1))
        })?;
        let new_start = exact(start, new_end + 1).or_else(|| {
            let inside = before.iter().rev().filter(|run| run.position <= new_end);
            inside.take_while(|run| run.stored >= start).last().map(|run| run.position)
        })?;
        Some((new_start, new_end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbering(runs: &[(u64, u64)]) -> (Numbering, Vec<bool>) {
        let mut numbering = Numbering::default();
        let mut position = 0;
        let mut jumps = Vec::new();
        for (stored, len) in runs {
            let jump = numbering.take(position, Some(*stored), *len);
            jumps.extend(jump.map(|jump| jump.message().0));
            position += len;
        }
        (numbering, jumps)
    }

    #[test]
    fn a_jump_ahead_is_a_gap_and_a_fall_back_is_a_fork() {
        for (runs, jumps, next) in [
            (&[(0, 5), (5, 2)][..], &[][..], 7),
            (&[(0, 5), (7, 2)], &[true], 9),
            (&[(2, 5)], &[true], 7),
            (&[(0, 7), (4, 2)], &[false], 7),
            // A writer that opened the forked file goes on above all seqs; that is no further damage.
            (&[(0, 7), (4, 2), (7, 1)], &[false], 8),
        ] {
            let (numbering, found) = numbering(runs);
            assert_eq!((found.as_slice(), numbering.next_stored()), (jumps, next), "{runs:?}");
        }
    }

    #[test]
    fn ranges_follow_renumbered_events() {
        // Stored 0..5, then 7..10 (5 and 6 lost): positions 5..8.
        let (gap, _) = numbering(&[(0, 5), (7, 3)]);
        assert_eq!(gap.renumber(8, 7, 8), Some((5, 6)));
        assert_eq!(gap.renumber(8, 2, 6), Some((2, 4)));
        assert_eq!(gap.renumber(8, 6, 8), Some((5, 6)));
        // Stored 0..7, then a branch 4..8 at positions 7..11.
        let (fork, _) = numbering(&[(0, 7), (4, 4)]);
        assert_eq!(fork.renumber(10, 4, 5), Some((7, 8)));
        assert_eq!(fork.renumber(6, 4, 5), Some((4, 5)));
        let (sound, _) = numbering(&[(0, 7)]);
        assert_eq!(sound.renumber(6, 4, 5), None);
    }
}
