//! Kills turns with SIGKILL at random moments, tears what is left at every byte of its end, and prints where the kills
//! fell. The first that leaves anything but what is promised ends it with a message.
//!
//! ```text
//! cargo run -p dsh-tests --example kill -- [COUNT [SEED [zstd]]]
//! ```

use std::error::Error;

use dsh_tests::killing::{Bench, Figures, Form};

fn main() -> Result<(), Box<dyn Error>> {
    let compressed = std::env::args().nth(3).is_some_and(|form| form == "zstd");
    let form = if compressed { Form::Compressed } else { Form::Plain };
    let numbers: Vec<u64> =
        std::env::args().skip(1).take(2).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let (count, seed) = (numbers.first().copied().unwrap_or(300), numbers.get(1).copied().unwrap_or(1));
    let mut bench = Bench::new(seed, form);
    let mut figures = Figures::default();
    for done in 1..=count {
        figures.add(&bench.trial(1));
        if done % 25 == 0 {
            eprintln!("{done} of {count}");
        }
    }
    println!("{figures}");
    Ok(())
}
