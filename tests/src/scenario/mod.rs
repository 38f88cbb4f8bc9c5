//! Scenarios: folders that pin what a client sees, what the log holds and what the provider gets.
//!
//! A scenario is played against the real `dsh acp` in the default composition, with a mock provider over real HTTP.
//! `tests/scenarios/README.md` describes the folder. What differs between two runs of the same thing (ids, times,
//! folders, ports, the sizes of streamed pieces) is replaced or joined before anything is compared.

mod normal;
mod play;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::difference::difference;
use normal::Names;

/// The files of a scenario; each must be there, and no other.
const FILES: [&str; 6] = [
    "input.json",
    "provider.toml",
    "overlay.toml",
    "stdout.expected.jsonl",
    "session.expected.jsonl",
    "requests.expected.json",
];

/// What becomes of expectations that do not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are reported.
    Compare,
    /// They are reported, and rewritten for a person to review.
    Update,
}

/// The scenarios of a folder, sorted by name.
///
/// # Panics
///
/// When the folder cannot be read, or holds anything but scenarios and a `README.md`.
#[must_use]
pub fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap_or_else(|e| panic!("{}: {e}", root.display()));
    let entries = entries.map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| !path.ends_with("README.md")).collect();
    folders.sort();
    if let Some(stray) = folders.iter().find(|path| !path.is_dir()) {
        panic!("{} is no scenario", stray.display());
    }
    folders
}

/// Plays a scenario.
///
/// # Errors
///
/// What is wrong with the folder, what could not be played, or a unified difference for each expectation that does
/// not hold.
pub fn run(folder: &Path, mode: Mode) -> Result<(), String> {
    check_files(folder, mode)?;
    let played =
        play::play(&read(folder, "input.json")?, &read(folder, "provider.toml")?, &read(folder, "overlay.toml")?)?;
    let names = &mut Names::new(&played);
    let found = [
        ("stdout.expected.jsonl", names.stdout(played.stdout)),
        ("session.expected.jsonl", names.session(played.log)),
        ("requests.expected.json", names.requests(&played.requests)),
    ];
    let mut report = String::new();
    for (name, found) in found {
        let expected = match read(folder, name) {
            Ok(text) => parse(&text).map_err(|e| format!("{name}: {e}"))?,
            // Only a new scenario that is being updated gets here.
            Err(_) => Vec::new(),
        };
        if expected == found {
            continue;
        }
        let difference = difference(&pretty(&expected), &pretty(&found));
        // Writing to a string cannot fail.
        let _ = writeln!(report, "--- {name}\n+++ what happened\n{difference}");
        if mode == Mode::Update {
            let text = if name.ends_with(".jsonl") { lines(&found) } else { pretty_array(&found) };
            fs::write(folder.join(name), text).map_err(|e| format!("cannot rewrite {name}: {e}"))?;
            let _ = writeln!(report, "{name} was rewritten: review it");
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report) }
}

fn check_files(folder: &Path, mode: Mode) -> Result<(), String> {
    let missing = FILES.iter().filter(|name| !folder.join(name).is_file());
    let missing = missing.filter(|name| mode == Mode::Compare || !name.contains(".expected."));
    let mut problems: Vec<String> = missing.map(|name| format!("{name} is missing")).collect();
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot be read: {e}"))?;
    for entry in entries {
        let name = entry.map_err(|e| format!("cannot be read: {e}"))?.file_name();
        if !FILES.iter().any(|known| name == *known) {
            problems.push(format!("{} is not used", name.to_string_lossy()));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

fn read(folder: &Path, name: &str) -> Result<String, String> {
    fs::read_to_string(folder.join(name)).map_err(|e| format!("{name}: {e}"))
}

/// A JSON array, or one value a line.
fn parse(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text);
    }
    text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect()
}

/// Indented, so that a difference shows the member and not the line of a kilobyte that it stands in.
fn pretty(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value:#}\n")).collect()
}

fn pretty_array(values: &[Value]) -> String {
    format!("{:#}\n", Value::Array(values.to_vec()))
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}
