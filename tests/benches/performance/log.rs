//! From the bytes of a response to an answer and its log: decode through the loaded library, assemble, write.
//!
//! The file is a real one with the store's own writer, so the bytes are synced; waiting for the disk is not counted,
//! the work of the writer's thread is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dsh_host::llm::assembler::BlockAssembler;
use dsh_host::session::batch::{Durable, NewEvents};
use dsh_host::session::event::Header;
use dsh_host::store::Store;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::vocab::{Block, Chunk};
use tempfile::TempDir;

use super::adapter;
use super::harness::{Comparison, Effort, Measured, Side, Unit};
use super::streams::{PIECE, STREAMS};

/// Deltas of the answer.
const DELTAS: usize = 100_000;

/// The whole of it, and the two halves alone.
pub fn run(effort: Effort) -> Vec<Measured> {
    let (handle, _home) = adapter::loaded();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let folder = TempDir::new().unwrap();
    let store = Store::new(folder.path());
    let form = &STREAMS[0];
    let stream = form.stream(match effort {
        Effort::Check => 100,
        Effort::Rounds(_) => DELTAS,
    });
    let decode = |take: &mut dyn FnMut(Vec<Item>)| {
        let mut decoder = handle.open(&adapter::open(form.api)).unwrap();
        for piece in stream.body.chunks(PIECE) {
            take(decoder.feed(piece));
        }
        take(decoder.finish(&StreamEnd::Complete));
    };
    let text_length = stream.text_length + 1;
    let mut sessions = 0;
    let all = || {
        sessions += 1;
        let header = Header::new(format!("s{sessions}"), 0, None);
        let durable = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&durable);
        let on_durable = move |events: &Durable| {
            count.fetch_add(events.count(), Ordering::Relaxed);
        };
        let writer = store.create(header, Box::new(on_durable)).unwrap();
        let mut assembler = BlockAssembler::new();
        let mut logged = 0;
        decode(&mut |items| {
            let chunk = |item| if let Item::Chunk(chunk) = item { Some(chunk) } else { None };
            let chunks: Vec<Chunk> = items.into_iter().filter_map(chunk).collect();
            for chunk in &chunks {
                assembler.push(chunk);
            }
            logged += chunks.len() as u64;
            writer.append(NewEvents::of_chunks(1, 1, &chunks));
        });
        runtime.block_on(writer.checkpoint()).unwrap();
        let path = writer.path().to_owned();
        drop(writer);
        assert_eq!(durable.load(Ordering::Relaxed), logged);
        assert!(path.metadata().unwrap().len() > text_length, "the log holds the deltas");
        std::fs::remove_file(path).unwrap();
        assembled(assembler)
    };
    let in_memory = || {
        let mut assembler = BlockAssembler::new();
        decode(&mut |items| {
            for item in items {
                if let Item::Chunk(chunk) = item {
                    assembler.push(&chunk);
                }
            }
        });
        assembled(assembler)
    };
    let comparison = Comparison {
        name: "100,000 five-character deltas".to_owned(),
        sides: vec![
            Side::new("decode, assemble, log", text_length, all),
            Side::new("decode, assemble", text_length, in_memory),
        ],
        unit: Unit::MillionsPerSecond(stream.deltas, "deltas"),
        aim: "1 M deltas/s on one core",
    };
    comparison.measure(effort).into_iter().collect()
}

/// Length of the text that was kept.
fn assembled(assembler: BlockAssembler) -> u64 {
    match &assembler.assemble().content[..] {
        [Block::Text(text)] => text.len() as u64,
        other => panic!("one text was expected: {} blocks", other.len()),
    }
}
