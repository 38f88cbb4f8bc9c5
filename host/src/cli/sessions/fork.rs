//! `dsh sessions fork`

use std::io::Write;
use std::process::ExitCode;

use super::super::CommandError;
use super::{Done, Failed, warn_of_damage, write_json};
use crate::store::{Store, StoreError};

/// Forks a session and prints the new id; with `json`, `{"id","path","parentSession","seedLength","problems"?}`.
pub(super) fn run(store: &Store, session: &str, at: Option<u64>, json: bool, out: &mut impl Write) -> Done {
    let fork = store.fork(session, at).map_err(|error| match error {
        StoreError::NoEvent { .. } => Failed::Command(CommandError::usage_text(
            error.to_string(),
            format!("`dsh sessions show --events {session}` lists the events"),
        )),
        error => Failed::Store(error),
    })?;
    warn_of_damage(&fork.parent_path, &fork.problems, session);
    if json {
        write_json(&fork, out)?;
    } else {
        writeln!(out, "{}", fork.id)?;
    }
    Ok(ExitCode::SUCCESS)
}
