//! Writes the request bodies of histories that move through all wires, for a judge of bodies.
//!
//! `cargo run -p dsh-tests --example conversations -- talk COUNT SEED` writes conversations as they happen (`talk`);
//! `… -- hostile COUNT SEED` writes whatever a log can express, sound or not, COUNT histories to each wire (`hostile`).
//! Both print one JSON line per request: `{"conversation", "step", "wire", "model", "rules", "body"}`. The real parts
//! make the bodies: the adapters' libraries, the assembler, degrade routing and the request view.

mod answers;
mod dice;
mod hostile;
mod requests;
mod talk;
mod targets;

use std::io::{BufWriter, StdoutLock, Write};

use serde_json::json;

use targets::Destination;

/// Where the lines go.
pub struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    /// Writes a request. The body stays the text that it is: it is not read and written anew on its way to the judge.
    fn line(&mut self, number: u64, step: u64, to: &Destination, body: &str) -> std::io::Result<()> {
        let (wire, model, rules) = (json!(to.wire), json!(to.model), to.rules);
        writeln!(
            self.0,
            r#"{{"conversation":{number},"step":{step},"wire":{wire},"model":{model},"rules":{rules},"body":{body}}}"#
        )
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let home = tempfile::tempdir()?;
    let registry = targets::registry(home.path())?;
    let mut out = Out(BufWriter::new(std::io::stdout().lock()));
    match arguments.first().map(String::as_str) {
        Some("talk") => talk::write(&registry, number(1, 2000)?, number(2, 1)?, &mut out)?,
        Some("hostile") => hostile::write(&registry, number(1, 5000)?, number(2, 1)?, &mut out)?,
        _ => return Err("usage: conversations talk|hostile [COUNT [SEED]]".into()),
    }
    out.0.flush()?;
    Ok(())
}
