//! Speed of the inner path: from bytes to chunks to log, and from history to request.
//!
//! `cargo bench -p dsh-tests` measures; `-- --only TEXT` takes the benches whose name holds the text, `-- --json` prints
//! figures for a program. Without `--bench`, as under `cargo test`, or with `--quick`, each bench runs once and its
//! result is checked. `docs/performance.md` has figures and says what they mean.

#![allow(clippy::unwrap_used, reason = "what fails here fails the measurement")]

mod adapter;
mod border;
mod decode;
mod encode;
mod harness;
mod log;
mod open;
mod streams;

use clap::Parser;
use comfy_table::{Table, presets};
use harness::{Effort, Measured};

/// A bench gives its comparisons.
type Bench = fn(Effort) -> Vec<Measured>;

/// Every bench by name.
const BENCHES: [(&str, Bench); 5] =
    [("abi", border::run), ("decode", decode::run), ("log", log::run), ("open", open::run), ("encode", encode::run)];

#[derive(Parser)]
struct Options {
    /// Only benches whose name holds this text.
    #[arg(long)]
    only: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Run each bench once and check its result; no figures.
    #[arg(long)]
    quick: bool,
    /// Turns of each side.
    #[arg(long, default_value_t = 25)]
    rounds: usize,
    /// What `cargo bench` passes, in contrast to `cargo test`.
    #[arg(long, hide = true)]
    bench: bool,
    /// What `cargo test` passes on to test harnesses; nothing of it matters here.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    ignored: Vec<String>,
}

fn main() {
    let options = Options::parse();
    let only = options.only.unwrap_or_default();
    let effort = match options.bench && !options.quick {
        true => Effort::Rounds(options.rounds),
        false => Effort::Check,
    };
    let chosen: Vec<_> = BENCHES.into_iter().filter(|(name, _)| name.contains(&only)).collect();
    let measured: Vec<Measured> = chosen.iter().flat_map(|(_, run)| run(effort)).collect();
    match effort {
        Effort::Check => println!("\ntest result: ok. {} passed; 0 failed (benches, run once)\n", chosen.len()),
        Effort::Rounds(_) if options.json => println!("{}", serde_json::to_string_pretty(&measured).unwrap()),
        Effort::Rounds(_) => println!("{}", table(&measured)),
    }
}

fn table(measured: &[Measured]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["bench", "side", "absolute", "unit", "ours takes", "quartiles", "aim"]);
    for Measured { name, unit, aim, sides } in measured {
        for (place, side) in sides.iter().enumerate() {
            let (name, aim) = if place == 0 { (name.as_str(), *aim) } else { ("", "") };
            let ratio = side.ratio.map(|ratio| format!("{:.2} ×", ratio.median)).unwrap_or_default();
            let range = side.ratio.map(|ratio| format!("{:.2} to {:.2}", ratio.lower, ratio.upper)).unwrap_or_default();
            table.add_row([name, side.name, &number(side.absolute), unit, &ratio, &range, aim]);
        }
    }
    table
}

/// Three digits are all that such a machine can vouch for.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
