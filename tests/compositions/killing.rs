//! `kill -9` at any moment of a turn loses nothing that was acknowledged, and the session goes on. The long version of
//! this is `cargo run -p dsh-tests --example kill -- 300`.

use std::thread;

use dsh_tests::killing::{Bench, Figures, Form};

/// Each bench kills with moments of its own; they mostly wait, so that three take no longer than one.
const BENCHES: [(u64, Form); 3] = [(9, Form::Plain), (10, Form::Plain), (11, Form::Compressed)];
const KILLS: usize = 13;
/// The long version tears a log at every byte. A compressed one is some five times as short.
const STEPS: (usize, usize) = (61, 13);

#[test]
fn a_turn_that_is_killed_at_any_moment_goes_on_in_another_process() {
    thread::scope(|scope| {
        for (seed, form) in BENCHES {
            scope.spawn(move || {
                let mut bench = Bench::new(seed, form);
                let mut figures = Figures::default();
                for _ in 0..KILLS {
                    figures.add(&bench.trial(if form == Form::Plain { STEPS.0 } else { STEPS.1 }));
                }
                // Otherwise the moments were not spread, and the trials have shown nothing.
                assert!(
                    figures.partial >= 2 && figures.acknowledged > 100 && figures.tears > 200,
                    "seed {seed}, {form:?}: {figures}"
                );
            });
        }
    });
}
