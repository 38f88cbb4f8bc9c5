//! The decoder of DeepSeek's own API on any body, whatever the split.
#![no_main]

use std::sync::LazyLock;

use dsh_llm_deepseek::DeepSeek;
use dsh_properties::decoding::{check, deepseek};
use dsh_properties::deepseek::OwnApi;

static ADAPTER: LazyLock<DeepSeek> = LazyLock::new(deepseek);

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::<OwnApi>(&*ADAPTER, data));
