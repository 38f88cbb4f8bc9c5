//! Writes the seeds of a fuzz target: `cargo run -p dsh-properties --example seeds -- TARGET FOLDER`.

use std::path::Path;

use dsh_properties::completions::Completions;
use dsh_properties::decoding::{self, Wire};
use dsh_properties::{bodies, framing, restoring};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// How many generated inputs there are beside the bodies.
const GENERATED: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, folder] = &arguments[..] else { return Err("usage: seeds TARGET FOLDER".into()) };
    let seeds: Vec<Vec<u8>> = match target.as_str() {
        "sse_framing" => {
            let generated = generated(framing::bodies())?;
            bodies::COMPLETIONS.iter().map(|(_, body)| framing::seed(body, &[3])).chain(generated).collect()
        }
        "completions_decode" => {
            let answers = generated(<Completions as Wire>::answers())?;
            let bodies = bodies::COMPLETIONS.iter().map(|(_, body)| body.to_vec());
            bodies
                .chain(answers.into_iter().map(|answer| answer.body))
                .map(|body| decoding::seed(&body, &[7, 1]))
                .collect()
        }
        "envelope_restore" => restoring::seeds(),
        other => return Err(format!("there is no target {other}").into()),
    };
    for (at, seed) in seeds.iter().enumerate() {
        std::fs::write(Path::new(folder).join(format!("seed-{at:03}")), seed)?;
    }
    Ok(())
}

/// The same values in every run.
fn generated<S: Strategy>(strategy: S) -> Result<Vec<S::Value>, Box<dyn std::error::Error>> {
    let mut runner = TestRunner::deterministic();
    (0..GENERATED).map(|_| Ok(strategy.new_tree(&mut runner).map_err(|reason| reason.to_string())?.current())).collect()
}
