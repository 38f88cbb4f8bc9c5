//! The decoder of `anthropic-messages` on any body, whatever the split.
#![no_main]

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_properties::anthropic::Anthropic;
use dsh_properties::decoding::{check, pi_ai};

static ADAPTER: LazyLock<PiAi> = LazyLock::new(pi_ai);

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::<Anthropic>(&*ADAPTER, data));
