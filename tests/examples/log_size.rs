//! Measures how large a log gets: bytes for each delta of one long answer.
//!
//! ```text
//! cargo run --release -p dsh-tests --example log_size -- [DELTAS]
//! ```
//!
//! The answer is prose of seeded random words in pieces of five characters. It is logged as the host logs it: the same
//! events, rows, frames and waiting for company as those of a running session, only that the clock is simulated and
//! nothing is written. In a burst the pieces come as a fast server sends them, 500,000 a second in reads of 64 KiB;
//! paced, 100 a second come one by one, 8 to 12 ms apart.
//!
//! The figures are the bytes of the whole session divided by its deltas. Besides its deltas it has the text twice more,
//! as the block that ends and as the message; the last columns leave all of that out.

use std::error::Error;
use std::io;
use std::time::Duration;

use dsh_host::session::batch::{NewEvents, PlacedEvents};
use dsh_host::session::event::{Header, NewEvent};
use dsh_host::store::{Encoder, window};
use dsh_plugin_api::json::{self, Object};
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, FinishReason, Message, Role, Source};
use dsh_tests::prose::{Random, prose};

/// Length of a delta in characters.
const PIECE: usize = 5;
/// Deltas of a read of 64 KiB, at some 180 bytes an event of a provider's stream.
const READ: usize = 364;
/// When the first delta comes, in microseconds of Unix time.
const BEGIN: u64 = 1_790_000_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let deltas = std::env::args().nth(1).map_or(Ok(100_000), |count| count.parse())?;
    let text = prose(deltas * PIECE);
    println!("{deltas} deltas of {PIECE} characters, bytes a delta");
    println!("{:10} {:>10} {:>10} {:>10}    {:>10} {:>10}", "", "events", "packed", "zstd", "packed", "zstd");
    println!("{:10} {:>32}    {:>21}", "", "the whole session", "its deltas alone");
    for pace in [Pace::Burst, Pace::Paced] {
        let batches = batches(&text, pace);
        let of_rows: Vec<_> = batches.iter().map(|batch| only_deltas(batch)).collect();
        let each = |bytes: usize| bytes as f64 / deltas as f64;
        let figures = [
            each(events(&batches)),
            each(size(&batches, Encoder::plain())?),
            each(size(&batches, Encoder::compressed())?),
            each(size(&of_rows, Encoder::plain())?),
            each(size(&of_rows, Encoder::compressed())?),
        ];
        let [events, plain, compressed, rows, compressed_rows] = figures;
        println!(
            "{:10} {events:>10.1} {plain:>10.1} {compressed:>10.1}    {rows:>10.1} {compressed_rows:>10.1}",
            pace.name()
        );
    }
    Ok(())
}

/// How the deltas come.
#[derive(Clone, Copy)]
enum Pace {
    Burst,
    Paced,
}

impl Pace {
    const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst",
            Self::Paced => "paced",
        }
    }

    /// Deltas that come together.
    const fn together(self) -> usize {
        match self {
            Self::Burst => READ,
            Self::Paced => 1,
        }
    }

    /// Time until the next ones, in microseconds.
    fn gap(self, random: &mut Random) -> u64 {
        match self {
            Self::Burst => 2 * READ as u64,
            Self::Paced => 8_000 + random.below(4_001),
        }
    }
}

/// The session in batches as its writer collects them: what comes within the window of the first.
fn batches(text: &str, pace: Pace) -> Vec<Vec<PlacedEvents>> {
    let mut random = Random::new(7);
    let mut log = Batches { next: 0, last: 0, deadline: 0, done: Vec::new(), current: Vec::new() };
    let model = "provider/model";
    log.add(
        BEGIN,
        vec![
            NewEvent::turn_start(1).into(),
            NewEvent::user_message(&Message::user("m1", "Write a long text.")).into(),
            NewEvent::step_start(1, 1).into(),
            NewEvent::request_context(model, model, None).into(),
        ],
    );
    log.write(BEGIN);
    let mut time = BEGIN + 500_000;
    let chunks = |chunks: &[Chunk]| NewEvents::of_chunks(1, 1, chunks);
    log.add(time, chunks(&[Chunk::BlockStart { index: 0, block_type: BlockType::Text }]));
    let pieces: Vec<Chunk> = text
        .as_bytes()
        .chunks(PIECE)
        .map(|piece| Chunk::TextDelta { index: 0, text: String::from_utf8_lossy(piece).into_owned() })
        .collect();
    for pieces in pieces.chunks(pace.together()) {
        time += pace.gap(&mut random);
        log.add(time, chunks(pieces));
    }
    let block = Block::Text(text.into());
    let end = [
        Chunk::BlockEnd { index: 0, block: block.clone() },
        Chunk::Finish { reason: FinishReason::Stop, replay_state: None },
    ];
    log.add(time, chunks(&end));
    let source =
        Source::Model { provider: model.to_owned(), model: model.to_owned(), replay_state: None, extra: Object::new() };
    let message = Message::new("m2", Role::Assistant, vec![block], source);
    log.add(
        time,
        vec![
            NewEvent::assistant_message(1, 1, &message, None, false).into(),
            NewEvent::step_end(1, 1).into(),
            NewEvent::turn_end(1, &serde_json::json!({"kind": "completed"})).into(),
        ],
    );
    log.write(time);
    log.done
}

struct Batches {
    /// `seq` of the next event.
    next: u64,
    /// When the last batch was written and the current one is, in microseconds.
    last: u64,
    deadline: u64,
    done: Vec<Vec<PlacedEvents>>,
    current: Vec<PlacedEvents>,
}

impl Batches {
    /// Takes events that come at this time, in microseconds.
    fn add(&mut self, time: u64, events: Vec<NewEvents>) {
        if !self.current.is_empty() && time > self.deadline {
            self.write(self.deadline);
        }
        if self.current.is_empty() {
            let quiet = Duration::from_micros(time - self.last);
            self.deadline = time + window(quiet).as_micros() as u64;
        }
        for events in events {
            let count = events.count();
            self.current.push(events.at(self.next, time / 1_000));
            self.next += count;
        }
    }

    fn write(&mut self, time: u64) {
        self.last = time;
        self.done.extend((!self.current.is_empty()).then(|| std::mem::take(&mut self.current)));
    }
}

fn only_deltas(batch: &[PlacedEvents]) -> Vec<PlacedEvents> {
    batch.iter().filter(|placed| matches!(placed, PlacedEvents::Deltas { .. })).cloned().collect()
}

/// Bytes of the file.
fn size(batches: &[Vec<PlacedEvents>], mut encoder: Encoder) -> io::Result<usize> {
    let header = Header::new("00000000-0000-4000-8000-000000000000", BEGIN / 1_000, Some("/home/me".to_owned()));
    let mut bytes = json::raw(&header).get().len() + 1;
    for batch in batches.iter().filter(|batch| !batch.is_empty()) {
        bytes += encoder.batch(batch)?.len();
    }
    Ok(bytes + encoder.close().len())
}

/// Bytes of the same with a line for each event.
fn events(batches: &[Vec<PlacedEvents>]) -> usize {
    let events = batches.iter().flatten().flat_map(PlacedEvents::events);
    events.map(|event| json::raw(&*event).get().len() + 1).sum()
}
