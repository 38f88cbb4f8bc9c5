//! Stored replay metadata of the common wires, however damaged.
#![no_main]

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_properties::decoding::{COMMON_APIS, pi_ai};
use dsh_properties::restoring::check;

static ADAPTER: LazyLock<PiAi> = LazyLock::new(pi_ai);

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(&*ADAPTER, &COMMON_APIS, data));
