//! The decoder of `mistral-conversations` on any body, whatever the split.
#![no_main]

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_properties::decoding::{check, pi_ai};
use dsh_properties::mistral::Mistral;

static ADAPTER: LazyLock<PiAi> = LazyLock::new(pi_ai);

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::<Mistral>(&*ADAPTER, data));
