#!/usr/bin/env bash
# Fuzzes one target on one core, on stable Rust, then keeps what is worth replaying.
#
#     fuzz/run.sh TARGET SECONDS        # TARGET is a name in targets/
#     fuzz/run.sh TARGET FILE           # runs one input, for example a crash
#
# Seeds come from the bodies of tests/properties and from fuzz/corpus/TARGET; everything found is gathered under
# fuzz/target/found/TARGET, crashes beside it. At the end fuzz/corpus/TARGET is the smallest set of inputs that reaches
# every edge that is known; `cargo test` replays it. Needs a C++ compiler for libFuzzer, and nothing else.
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?which target?}
what=${2:?how many seconds, or which file?}
triple=$(rustc -vV | sed -n 's/^host: //p')
found=target/found/$target

# The flags that `cargo fuzz` uses, without the sanitizers, which need a nightly compiler.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks" \
    cargo build --release --target "$triple" --target-dir target --bin "$target"
binary=target/$triple/release/$target

if [ -f "$what" ]; then exec "$binary" "$what"; fi

mkdir -p "$found" "target/crashes/$target" "corpus/$target"
(cd .. && cargo run --quiet -p dsh-properties --example seeds -- "$target" "fuzz/$found")
"$binary" "$found" "corpus/$target" -max_total_time="$what" -max_len=4096 -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="target/crashes/$target/" -print_final_stats=1

rm -rf target/smallest && mkdir target/smallest
"$binary" -set_cover_merge=1 -use_counters=0 target/smallest "corpus/$target" "$found"
rm -rf "corpus/$target" && mv target/smallest "corpus/$target"
echo "corpus/$target: $(find "corpus/$target" -type f | wc -l) files, $(cat "corpus/$target"/* | wc -c) bytes"
