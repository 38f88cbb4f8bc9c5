//! `dsh sessions delete`

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::super::CommandError;
use super::super::output::{clip, plain};
use super::{Done, write_json};
use crate::store::{Deleted, SessionFiles, Store};

/// What became of one session.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    /// What was removed.
    removed: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Deletes sessions, after a question where there is somebody to ask. With `json` the answer is
/// `[{"id","removed":[path],"error"?}]`, one per session; none is deleted unless all of them were found.
pub(super) fn run(store: &Store, sessions: &[String], yes: bool, json: bool, out: &mut impl Write) -> Done {
    let mut doomed: Vec<SessionFiles> = Vec::new();
    for session in sessions {
        let files = store.files_of(session)?;
        if !doomed.contains(&files) {
            doomed.push(files);
        }
    }
    if !yes && !agreed(store, &doomed)? {
        eprintln!("nothing was deleted");
        return Ok(ExitCode::FAILURE);
    }
    let mut rows = Vec::new();
    for files in &doomed {
        let Deleted { removed, error } = files.delete();
        rows.push(Row { id: &files.id, removed, error: error.map(|error| error.to_string()) });
    }
    if json {
        write_json(&rows, out)?;
    } else {
        for path in rows.iter().flat_map(|row| &row.removed) {
            writeln!(out, "removed {}", path.display())?;
        }
        out.flush()?;
        for Row { id, removed, error } in &rows {
            let Some(error) = error else { continue };
            let how = if removed.is_empty() { "not deleted" } else { "not deleted as a whole" };
            eprintln!("session {} was {how}: {error}", plain(id));
        }
    }
    Ok(if rows.iter().any(|row| row.error.is_some()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Asks the person at the terminal.
fn agreed(store: &Store, doomed: &[SessionFiles]) -> Result<bool, super::Failed> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(CommandError::usage_text(
            "there is no terminal to ask at before sessions are deleted",
            "pass --yes to delete them without a question",
        )
        .into());
    }
    for files in doomed {
        let paths = files.paths()?;
        // Whatever is wrong with it, it can be deleted.
        let log = paths.first().and_then(|path| store.read_without_streams(path.to_str()?).ok());
        let title = log.and_then(|log| log.title()).map(|title| format!(": {}", clip(&title, 80)));
        eprintln!("{}{}", plain(&files.id), title.unwrap_or_default());
        for path in paths {
            eprintln!("  {}", plain(&path.to_string_lossy()));
        }
    }
    let what = if doomed.len() == 1 { "this session".to_owned() } else { format!("these {} sessions", doomed.len()) };
    eprint!("Delete {what} for good? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_one() {
        for (answer, yes) in
            [("y\n", true), ("YES\r\n", true), ("", false), ("\n", false), ("n\n", false), ("yy\n", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
