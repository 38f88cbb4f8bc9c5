//! The framing of event streams against the standard, whatever the split.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dsh_properties::framing::check(data));
