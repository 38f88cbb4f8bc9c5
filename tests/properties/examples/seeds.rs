//! Writes the seeds of a fuzz target: `cargo run -p dsh-properties --example seeds -- TARGET FOLDER`.

use std::path::Path;

use dsh_properties::anthropic::Anthropic;
use dsh_properties::bodies::{self, Body};
use dsh_properties::completions::Completions;
use dsh_properties::decoding::{self, Wire};
use dsh_properties::deepseek::OwnApi;
use dsh_properties::google::Google;
use dsh_properties::mistral::Mistral;
use dsh_properties::responses::Responses;
use dsh_properties::{framing, restoring, session_log};
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
        "completions_decode" => answers::<Completions>(bodies::COMPLETIONS)?,
        "responses_decode" => answers::<Responses>(bodies::RESPONSES)?,
        "anthropic_decode" => answers::<Anthropic>(bodies::ANTHROPIC)?,
        "google_decode" => answers::<Google>(bodies::GOOGLE)?,
        "mistral_decode" => answers::<Mistral>(bodies::MISTRAL)?,
        "deepseek_decode" => answers::<OwnApi>(bodies::DEEPSEEK)?,
        "envelope_restore" => restoring::seeds(),
        "session_log" => session_log::seeds(),
        other => return Err(format!("there is no target {other}").into()),
    };
    for (at, seed) in seeds.iter().enumerate() {
        std::fs::write(Path::new(folder).join(format!("seed-{at:03}")), seed)?;
    }
    Ok(())
}

/// The bodies of a wire, and generated answers.
fn answers<W: Wire>(bodies: &[Body]) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    let answers = generated(W::answers())?.into_iter().map(|answer| answer.body);
    let bodies = bodies.iter().map(|(_, body)| body.to_vec());
    Ok(bodies.chain(answers).map(|body| decoding::seed(&body, &[7, 1])).collect())
}

/// The same values in every run.
fn generated<S: Strategy>(strategy: S) -> Result<Vec<S::Value>, Box<dyn std::error::Error>> {
    let mut runner = TestRunner::deterministic();
    (0..GENERATED).map(|_| Ok(strategy.new_tree(&mut runner).map_err(|reason| reason.to_string())?.current())).collect()
}
