//! One binary for what needs no adapter or the adapter of the common wires, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics fails")]

mod corpus;
mod decoding;
mod framing;
mod oracle;
#[path = "../wire.rs"]
mod wire;

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;

/// The adapter with one route per wire.
fn adapter() -> &'static PiAi {
    static ADAPTER: LazyLock<PiAi> = LazyLock::new(dsh_properties::decoding::pi_ai);
    &ADAPTER
}

restoring!(restoring, &dsh_properties::decoding::COMMON_APIS[..]);
