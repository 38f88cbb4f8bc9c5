//! The decoder of `openai-completions` on any body, whatever the split.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dsh_properties::decoding::check::<dsh_properties::completions::Completions>(
    data
));
