//! A bar on stderr for work that takes its time.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner has no bar.
const DELAY: Duration = Duration::from_millis(500);

/// How far work has come. Draws nothing unless stderr is a terminal and the work takes longer than half a second, and
/// leaves nothing behind.
pub(super) struct Progress {
    to_terminal: bool,
    begun: Instant,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress {
    /// Of work that begins now.
    pub fn new() -> Self {
        Self { to_terminal: std::io::stderr().is_terminal(), begun: Instant::now(), bar: Mutex::new(None) }
    }

    /// So many bytes are done, of so many, or of 0 where their number is not known. When all are, the bar goes.
    pub fn advance(&self, done: u64, of: u64) {
        if self.to_terminal {
            self.draw(done, of, self.begun.elapsed());
        }
    }

    fn draw(&self, done: u64, of: u64, elapsed: Duration) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        if done >= of {
            if let Some(bar) = bar.take() {
                bar.finish_and_clear();
            }
        } else if elapsed >= DELAY {
            let bar = bar.get_or_insert_with(|| {
                // The template is sound; any style would do.
                let style = ProgressStyle::with_template("reading {bar:30} {bytes} of {total_bytes}, {eta} left")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr())
                    .with_style(style)
                    .with_position(done)
            });
            bar.set_position(done);
            if bar.length() != Some(of) {
                bar.set_length(of);
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_there_only_while_long_work_lasts() {
        let progress = Progress::new();
        let drawn = || progress.bar.lock().unwrap().as_ref().map(|bar| (bar.position(), bar.length()));
        progress.draw(10, 100, DELAY / 2);
        assert_eq!(drawn(), None);
        progress.draw(40, 100, DELAY);
        assert_eq!(drawn(), Some((40, Some(100))));
        progress.draw(60, 200, DELAY);
        assert_eq!(drawn(), Some((60, Some(200))));
        progress.draw(200, 200, DELAY);
        assert_eq!(drawn(), None, "all is done");
        progress.draw(70, 0, DELAY);
        assert_eq!(drawn(), None, "of an unknown number");
    }
}
