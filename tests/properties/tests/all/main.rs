//! One binary for what needs no adapter or the adapter of the common wires, so that it is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics fails")]

mod corpus;
mod decoding;
mod framing;
mod oracle;
#[path = "../wire.rs"]
mod wire;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_llm_pi_ai::config::ApiName;
use dsh_plugin_api::schemars::schema_for;
use dsh_properties::decoding::COMMON_APIS;

/// The adapter with one route per wire.
fn adapter() -> &'static PiAi {
    static ADAPTER: LazyLock<PiAi> = LazyLock::new(dsh_properties::decoding::pi_ai);
    &ADAPTER
}

restoring!(restoring, &dsh_properties::decoding::COMMON_APIS[..]);

#[test]
fn every_wire_of_the_adapter_is_among_those_that_are_tested() {
    let schema = schema_for!(ApiName);
    let variants = schema.get("oneOf").and_then(|list| list.as_array()).unwrap();
    let names: BTreeSet<&str> = variants.iter().map(|variant| variant["const"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(COMMON_APIS));
}
