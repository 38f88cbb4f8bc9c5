//! The decoder of `openai-completions` on any body, whatever the split.
#![no_main]

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_properties::completions::Completions;
use dsh_properties::decoding::{check, pi_ai};

static ADAPTER: LazyLock<PiAi> = LazyLock::new(pi_ai);

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::<Completions>(&*ADAPTER, data));
