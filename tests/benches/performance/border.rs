//! What the ABI costs: a feed call through the loaded library against the same decoder called as a trait.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::{Adapter, Chunks, Decoder};

use super::adapter;
use super::harness::{Comparison, Effort, Measured, Side, Unit};
use super::streams::STREAMS;

/// Calls of one turn: the decoder keeps the text of its answer, so it is opened anew.
const CALLS: usize = 2_000;

/// One delta in a call, and 64.
pub fn run(effort: Effort) -> Vec<Measured> {
    let (handle, _home) = adapter::loaded();
    let linked = adapter::linked();
    let form = &STREAMS[0];
    let mut out = Vec::new();
    for (name, deltas, unit) in [
        ("ABI: a call with one delta", 1, Unit::NanosecondsPer(CALLS as u64, "call")),
        ("ABI: a call with 64 deltas", 64, Unit::NanosecondsPer(CALLS as u64 / 64, "call")),
    ] {
        let calls = CALLS / deltas;
        let stream = form.stream(deltas);
        let bytes: String = stream.data[..deltas].iter().map(|data| format!("data: {data}\n\n")).collect();
        let bytes = bytes.as_bytes();
        // Each call gives its deltas; the first one begins the block as well.
        let expected = (calls * deltas) as u64 + 1;
        let through_library = || {
            let mut stream = handle.open(&adapter::open(form.api)).unwrap();
            (0..calls).map(|_| stream.feed(bytes).len() as u64).sum()
        };
        let read_in_process = || {
            let mut decoder = linked.decoder(&adapter::head(), &adapter::target(form.api)).unwrap();
            let (mut chunks, mut reader) = (Chunks::new(), BatchReader::new());
            let call = |_| {
                decoder.feed(bytes, &mut chunks);
                let batch = chunks.take_batch();
                let mut items: Vec<Item> = Vec::with_capacity(batch.recs.len());
                reader.read(&batch, |item| items.push(item));
                items.len() as u64
            };
            (0..calls).map(call).sum()
        };
        let trait_alone = || {
            let mut decoder = linked.decoder(&adapter::head(), &adapter::target(form.api)).unwrap();
            let mut chunks = Chunks::new();
            let call = |_| {
                decoder.feed(bytes, &mut chunks);
                chunks.take_batch().recs.len() as u64
            };
            (0..calls).map(call).sum()
        };
        let comparison = Comparison {
            name: name.to_owned(),
            sides: vec![
                Side::new("loaded library, to items", expected, through_library),
                Side::new("trait, to items", expected, read_in_process),
                Side::new("trait, to a batch", expected, trait_alone),
            ],
            unit,
            aim: "",
        };
        out.extend(comparison.measure(effort));
    }
    out
}
