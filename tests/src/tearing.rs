//! Tears the end off a log, at every byte, and judges what is made of the rest.
//!
//! What must be there is told by code that is not the host's: the lines that are whole, of a compressed file those that
//! any decoder gets. The sessions are opened in this process, on a file system in memory where there is one.

use std::path::Path;

use dsh_host::scenario::{SessionLog, decompressed};
use dsh_host::session::event::NewEvent;
use dsh_host::store::{Log, Store};
use dsh_plugin_api::json;
use dsh_plugin_api::vocab::Message;
use tempfile::TempDir;

/// How much of the end is torn, in bytes.
pub const END: usize = 4096;

/// Cuts the log at every `step`th byte of its last [`END`] bytes, and back to its header where it is shorter; reads each,
/// opens it to write, and adds a turn. Returns how many there were.
///
/// # Panics
///
/// When an event that was whole is not in its place, or the session does not go on.
pub fn judge(path: &Path, step: usize, context: &str) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let compressed = is_compressed(path);
    let decoded =
        |length: usize| if compressed { decompressed(&bytes[..length]).unwrap() } else { bytes[..length].to_vec() };
    // How many events stand in front of each line end.
    let text = decoded(bytes.len());
    let mut ends = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        ends.push((at, events_on(line)));
    }
    let judged = SessionLog::read(path).unwrap().unwrap();
    let whole = Log::from_bytes(path, &bytes).unwrap();
    let whole: Vec<String> = whole.events.iter().map(|event| json::raw(&*event).get().to_owned()).collect();
    for (event, expected) in whole.iter().zip(&judged.events) {
        let event: serde_json::Value = serde_json::from_str(event).unwrap();
        assert_eq!(event, *expected, "{context}: the reader says otherwise");
    }

    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let store = Store::new(folder.path());
    let store = if compressed { store.compressed() } else { store };
    let file = folder.path().join(if compressed { "s.jsonl.zst" } else { "s.jsonl" });
    let mut count = 0;
    for length in (bytes.len().saturating_sub(END)..=bytes.len()).rev().step_by(step) {
        let rest = decoded(length).len();
        // The header, and the events on the lines that are whole; the last may lack its newline.
        let Some(lines) = ends.iter().filter(|(end, _)| *end <= rest).count().checked_sub(1) else { break };
        let least: usize = ends[1..=lines].iter().map(|(_, events)| events).sum();
        let context = format!("{context}, torn to {length} bytes");
        one(&store, &file, &bytes[..length], &whole, least, &context);
        count += 1;
    }
    count
}

/// Length in bytes of what a log begins with: its header, without which it is no session.
///
/// # Panics
///
/// When that is not whole.
#[must_use]
pub fn header_length(path: &Path, bytes: &[u8]) -> usize {
    if is_compressed(path) {
        return zstd::zstd_safe::find_frame_compressed_size(bytes).unwrap();
    }
    bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "zst")
}

/// How many events stand on a line.
fn events_on(line: &[u8]) -> usize {
    let line: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let pieces = ["texts", "args"].iter().find_map(|pieces| line["data"][pieces].as_array());
    match line["type"].as_str() {
        Some(kind) if kind.ends_with("-chunks") => pieces.map_or(0, Vec::len),
        _ => 1,
    }
}

fn one(store: &Store, file: &Path, bytes: &[u8], whole: &[String], least: usize, context: &str) {
    std::fs::write(file, bytes).unwrap();
    let forms =
        |log: &Log| -> Vec<String> { log.events.iter().map(|event| json::raw(&*event).get().to_owned()).collect() };
    let read = store.read("s").unwrap_or_else(|error| panic!("{context}: {error}"));
    let before = forms(&read);
    let kept = before.len() - usize::try_from(read.recovered).unwrap();
    assert!(kept >= least, "{context}: {kept} of {least} events");
    assert_eq!(before[..kept], whole[..kept], "{context}: an event is not as it was");

    let (opened, writer) = store.open("s", Box::new(|_| {})).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(opened.events.len(), read.events.len(), "{context}");
    writer.append([
        NewEvent::turn_start(99),
        NewEvent::user_message(&Message::user("next", "go on")),
        NewEvent::turn_end(99, &serde_json::json!({ "kind": "completed" })),
    ]);
    drop(writer);
    let after = store.read("s").unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!((after.problems.len(), after.recovered), (0, 0), "{context}: {:?}", after.problems);
    let all = forms(&after);
    assert_eq!(all[..before.len()], before, "{context}: what was read is what went on");
    assert_eq!(all.len(), before.len() + 3, "{context}");
    assert_eq!(after.messages().last().map(|message| message.id.as_str()), Some("next"), "{context}");
    for beside in std::fs::read_dir(file.parent().unwrap()).unwrap() {
        std::fs::remove_file(beside.unwrap().path()).unwrap();
    }
}
