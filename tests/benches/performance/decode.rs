//! Decoding of each wire against `serde_json` alone.
//!
//! Ours takes the body in pieces as the network gives them, and makes batches of chunks: framing, reading, blocks,
//! records. The others are given the events' data, ready framed, and only parse each: into a struct of the members that
//! are needed with borrowed strings, as anybody would write it, or into `serde_json::Value`. DeepSeek's own API is decoded
//! through its loaded library, since a program holds one adapter alone; that adds what the border costs.

use dsh_plugin_api::abi::Item;
use dsh_plugin_api::vocab::Chunk;
use dsh_plugin_api::{Adapter, Chunks, Decoder, StreamEnd};
use serde_json::Value;

use super::adapter;
use super::harness::{Comparison, Effort, Measured, Side, Unit};
use super::streams::{DEEPSEEK, DELTAS, PIECE, STREAMS};

/// Every form of [`STREAMS`].
pub fn run(effort: Effort) -> Vec<Measured> {
    let linked = adapter::linked();
    let (deepseek, _home) = adapter::loaded_deepseek();
    let mut out = Vec::new();
    for form in &STREAMS {
        let stream = form.stream(DELTAS);
        let expected: u64 = stream.data.iter().map(|data| (form.typed)(data) as u64).sum();
        // Behind the deltas there is one more, of one byte.
        assert_eq!(expected, stream.text_length + 1, "{}: the typed reading missed something", form.name);
        let through_library = || {
            let mut decoder = deepseek.open(&adapter::open(form.api)).unwrap();
            let length: u64 = stream.body.chunks(PIECE).map(|piece| item_bytes(decoder.feed(piece))).sum();
            length + item_bytes(decoder.finish(&StreamEnd::Complete))
        };
        let decode = || {
            let mut decoder = linked.decoder(&adapter::head(), &adapter::target(form.api)).unwrap();
            let mut chunks = Chunks::new();
            let mut length = 0;
            for piece in stream.body.chunks(PIECE) {
                decoder.feed(piece, &mut chunks);
                length += delta_bytes(&mut chunks);
            }
            decoder.finish(&StreamEnd::Complete, &mut chunks);
            length + delta_bytes(&mut chunks)
        };
        let typed = || stream.data.iter().map(|data| (form.typed)(data) as u64).sum();
        let values = || {
            let parse = |data: &String| serde_json::from_str::<Value>(data).is_ok_and(|value| value.is_object());
            stream.data.iter().filter(|data| parse(data)).count() as u64
        };
        let comparison = Comparison {
            name: form.name.to_owned(),
            sides: vec![
                if form.api == DEEPSEEK {
                    Side::new("decode, loaded library", expected, through_library)
                } else {
                    Side::new("decode", expected, decode)
                },
                Side::new("serde_json, typed", expected, typed),
                Side::new("serde_json, Value", stream.data.len() as u64, values),
            ],
            unit: Unit::NanosecondsPer(stream.deltas, "delta"),
            aim: "≤ 2 × typed",
        };
        out.extend(comparison.measure(effort));
    }
    out
}

/// Length of the deltas that came through the border.
fn item_bytes(items: Vec<Item>) -> u64 {
    let length = |item| match item {
        Item::Chunk(Chunk::TextDelta { text, .. } | Chunk::ReasoningDelta { text, .. }) => text.len() as u64,
        Item::Chunk(Chunk::ToolCallDelta { arguments_delta, .. }) => arguments_delta.len() as u64,
        _ => 0,
    };
    items.into_iter().map(length).sum()
}

/// Length of the deltas' records since the last call.
fn delta_bytes(chunks: &mut Chunks) -> u64 {
    use dsh_plugin_api::abi::RecKind::{ReasoningDelta, TextDelta, ToolCallDelta};
    let deltas = [TextDelta, ReasoningDelta, ToolCallDelta].map(|kind| kind as u32);
    let batch = chunks.take_batch();
    batch.recs.iter().filter(|rec| deltas.contains(&rec.kind)).map(|rec| u64::from(rec.len)).sum()
}
