//! From the file of a session to what a turn goes on with: lines, records, recovery, history.
//!
//! The file is in the system's cache. One answer makes nearly all of it: 100,000 deltas of five characters.

use std::fmt::Write;

use dsh_host::session::batch::NewEvents;
use dsh_host::session::event::{Header, NewEvent};
use dsh_host::session::line;
use dsh_host::store::Store;
use dsh_plugin_api::json;
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, FinishReason, Message, Role, Source};
use serde::de::IgnoredAny;
use tempfile::TempDir;

use super::harness::{Comparison, Effort, Measured, Side, Unit};

/// Deltas of the answer.
const DELTAS: u64 = 100_000;

/// Opening to write, reading all of it, and JSON alone.
pub fn run(effort: Effort) -> Vec<Measured> {
    let deltas = match effort {
        Effort::Check => 100,
        Effort::Rounds(_) => DELTAS,
    };
    let forms = [("burst, 1,000 deltas a row", 1_000), ("100 a second, 5 deltas a row", 5)];
    forms.into_iter().filter_map(|(form, row)| compare(form, deltas, row, effort)).collect()
}

fn compare(form: &str, deltas: u64, row: usize, effort: Effort) -> Option<Measured> {
    let folder = TempDir::new().unwrap();
    let store = Store::new(folder.path());
    let text = session(deltas, row);
    std::fs::write(folder.path().join("s.jsonl"), &text).unwrap();
    let answer = deltas * 5;
    let said = |messages: Vec<Message>| messages.last().unwrap().text().len() as u64;
    let open = || said(store.open("s", Box::new(|_| {})).unwrap().0.messages());
    let read = || said(store.read("s").unwrap().messages());
    let json = || text.lines().map(|line| u64::from(serde_json::from_str::<IgnoredAny>(line).is_ok())).sum();
    let comparison = Comparison {
        name: format!("open a session, 100,000 deltas, {form}"),
        sides: vec![
            Side::new("open, recover, derive", answer, open),
            Side::new("read with its stream, derive", answer, read),
            Side::new("serde_json over its lines", text.lines().count() as u64, json),
        ],
        unit: Unit::NanosecondsPer(deltas, "delta"),
        aim: "100 ns/delta",
    };
    comparison.measure(effort)
}

/// A closed turn whose answer came in deltas of five characters; so many of them stand in a row.
fn session(deltas: u64, row: usize) -> String {
    let piece = |n: u64| format!("{:05}", n * 7_919 % 100_000);
    let all: String = (0..deltas).map(piece).collect();
    let chunk = |chunk: Chunk| NewEvents::from(NewEvent::assistant_chunk(1, 1, &chunk));
    let message = Message::new("a", Role::Assistant, vec![Block::Text(all.clone())], Source::model("p", "m", None));
    let mut batches = vec![vec![
        NewEvent::turn_start(1).into(),
        NewEvent::step_start(1, 1).into(),
        NewEvent::user_message(&Message::user("u", "hi")).into(),
        chunk(Chunk::BlockStart { index: 0, block_type: BlockType::Text }),
    ]];
    let numbers: Vec<u64> = (0..deltas).collect();
    batches.extend(numbers.chunks(row).map(|numbers| {
        let deltas: Vec<Chunk> = numbers.iter().map(|n| Chunk::TextDelta { index: 0, text: piece(*n) }).collect();
        NewEvents::of_chunks(1, 1, &deltas)
    }));
    batches.push(vec![
        chunk(Chunk::BlockEnd { index: 0, block: Block::Text(all) }),
        chunk(Chunk::Finish { reason: FinishReason::Stop, replay_state: None }),
        NewEvent::assistant_message(1, 1, &message, None, false).into(),
        NewEvent::step_end(1, 1).into(),
        NewEvent::turn_end(1, &serde_json::json!({"kind": "completed"})).into(),
    ]);
    let mut text = String::new();
    let _ = writeln!(text, "{}", json::raw(&Header::new("s", 1, None)));
    let mut seq = 0;
    for (batch, time) in batches.into_iter().zip((1..).step_by(50)) {
        let placed: Vec<_> = batch
            .into_iter()
            .map(|events| {
                let first = seq;
                seq += events.count();
                events.at(first, time)
            })
            .collect();
        line::encode(&placed, 0, &mut text);
    }
    text
}
