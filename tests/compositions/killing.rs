//! `kill -9` at any moment of a turn loses nothing that was acknowledged, and the session goes on. The long version of
//! this is `cargo run -p dsh-tests --example kill -- 300`.

use dsh_tests::killing::{Bench, Figures};

const KILLS: usize = 25;

#[test]
fn a_turn_that_is_killed_at_any_moment_goes_on_in_another_process() {
    let mut bench = Bench::new(9);
    let mut figures = Figures::default();
    for _ in 0..KILLS {
        figures.add(&bench.trial());
    }
    // Otherwise the moments were not spread, and the trials have shown nothing.
    assert!(figures.partial >= 3 && figures.acknowledged > 100, "{figures}");
}
