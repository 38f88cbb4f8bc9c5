//! Stored replay metadata, however damaged.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| dsh_properties::restoring::check(data));
