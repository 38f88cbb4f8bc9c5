//! What the fuzzers found worth keeping runs again with every test run.

use std::path::Path;

use dsh_properties::completions::Completions;
use dsh_properties::{decoding, framing, restoring};

/// Runs every file of a target's corpus; an empty or missing corpus is an error, so that the replay cannot go silent.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut count = 0;
    for entry in entries {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        let outcome = std::panic::catch_unwind(|| check(&data));
        assert!(outcome.is_ok(), "{} fails; its panic stands above", path.display());
        count += 1;
    }
    assert!(count > 0, "{} holds no file", folder.display());
}

#[test]
fn sse_framing() {
    replay("sse_framing", framing::check);
}

#[test]
fn completions_decode() {
    replay("completions_decode", decoding::check::<Completions>);
}

#[test]
fn envelope_restore() {
    replay("envelope_restore", restoring::check);
}
