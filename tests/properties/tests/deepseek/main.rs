//! The same for DeepSeek's own API: its adapter needs a binary of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics fails")]

#[path = "../wire.rs"]
mod wire;

use std::sync::LazyLock;

use dsh_llm_deepseek::DeepSeek;
use dsh_properties::bodies::DEEPSEEK;
use dsh_properties::decoding::check;
use dsh_properties::deepseek::OwnApi;

/// The adapter with one route.
fn adapter() -> &'static DeepSeek {
    static ADAPTER: LazyLock<DeepSeek> = LazyLock::new(dsh_properties::decoding::deepseek);
    &ADAPTER
}

properties!(own_api, OwnApi, DEEPSEEK);
restoring!(restoring, &["deepseek"][..]);

#[test]
fn the_corpus_of_deepseek_decode_runs_again() {
    wire::replay("deepseek_decode", |data| check::<OwnApi>(adapter(), data));
}
