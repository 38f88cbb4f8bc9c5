//! From the bytes of a response to an answer and its log: decode through the loaded library, assemble, write.
//!
//! The file is a real one with the store's own writer, so the bytes are synced; waiting for the disk is not counted,
//! the work of the writer's thread is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dsh_host::llm::assembler::BlockAssembler;
use dsh_host::session::batch::{Durable, NewEvents, PlacedEvents};
use dsh_host::session::event::Header;
use dsh_host::session::line;
use dsh_host::store::Store;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::vocab::{Block, Chunk};
use dsh_tests::prose::prose;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::adapter;
use super::harness::{Comparison, Effort, Measured, Side, Unit};
use super::streams::{PIECE, STREAMS};

/// Deltas of the answer.
const DELTAS: usize = 100_000;
/// Deltas of a read of 64 KiB from a fast server.
const READ: usize = 364;

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
    let append = [("plain", store.clone()), ("zstd", store.clone().compressed())]
        .into_iter()
        .filter_map(|(form, store)| append(form, &store, &runtime).measure(effort));
    comparison.measure(effort).into_iter().chain(append).collect()
}

/// Appending alone: chunks as values to a durable log, against packing them into rows in memory.
fn append<'a>(form: &str, store: &'a Store, runtime: &'a Runtime) -> Comparison<'a> {
    let chunk = |piece: &[u8]| Chunk::TextDelta { index: 0, text: String::from_utf8_lossy(piece).into_owned() };
    let chunks: Arc<[Chunk]> = prose(DELTAS * 5).as_bytes().chunks(5).map(chunk).collect();
    let rows = {
        let chunks = Arc::clone(&chunks);
        move || {
            let mut first = 0;
            let mut lines = String::new();
            let events = chunks.chunks(READ).flat_map(|chunks| NewEvents::of_chunks(1, 1, chunks));
            let events: Vec<PlacedEvents> = events
                .map(|events| {
                    first += events.count();
                    events.at(first, 0)
                })
                .collect();
            line::encode(&events, 0, &mut lines);
            u64::from(lines.len() > DELTAS * 5)
        }
    };
    let mut sessions = 0;
    let append = move || {
        sessions += 1;
        let writer = store.create(Header::new(format!("a{sessions}"), 0, None), Box::new(|_| {})).unwrap();
        for chunks in chunks.chunks(READ) {
            writer.append(NewEvents::of_chunks(1, 1, chunks));
        }
        runtime.block_on(writer.checkpoint()).unwrap();
        let path = writer.path().to_owned();
        drop(writer);
        let written = path.metadata().unwrap().len();
        std::fs::remove_file(path).unwrap();
        u64::from(written > DELTAS as u64)
    };
    Comparison {
        name: format!("append 100,000 five-character deltas, {form}"),
        sides: vec![Side::new("append", 1, append), Side::new("rows in memory", 1, rows)],
        unit: Unit::MillionsPerSecond(DELTAS as u64, "deltas"),
        aim: "2 M deltas/s on one core",
    }
}

/// Length of the text that was kept.
fn assembled(assembler: BlockAssembler) -> u64 {
    match &assembler.assemble().content[..] {
        [Block::Text(text)] => text.len() as u64,
        other => panic!("one text was expected: {} blocks", other.len()),
    }
}
