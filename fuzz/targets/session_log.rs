//! Session logs, plain and compressed, however damaged; and the memory that reading them takes.
#![no_main]

use dsh_properties::session_log::check;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What a check may take, in bytes: a compressor and a decompressor with their tables, and the output of the largest
/// bomb that fits an input of 4 KiB, a few times.
const LIMIT: usize = 512 << 20;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    check(data);
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken < LIMIT, "{taken} bytes for {} of input", data.len());
});
