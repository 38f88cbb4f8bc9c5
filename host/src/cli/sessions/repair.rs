//! `dsh sessions repair`

use std::io::Write;
use std::process::ExitCode;

use super::{Done, print_problems, write_json};
use crate::store::{Repair, Store};

/// Repairs a session. With `json` the answer is `{"repaired","path","kept"?,"events","problems":[…]}`.
pub(super) fn run(store: &Store, session: &str, json: bool, out: &mut impl Write) -> Done {
    let repair = store.repair(session)?;
    if json {
        write_json(&repair, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Repair { path, kept, events, problems, .. } = &repair;
    match kept {
        None => writeln!(out, "{}: nothing to repair", path.display())?,
        Some(kept) => {
            print_problems(path, problems, out)?;
            let events = if *events == 1 { "1 event".to_owned() } else { format!("{events} events") };
            writeln!(out, "{}: repaired, {events}; the damaged bytes are in {}", path.display(), kept.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
