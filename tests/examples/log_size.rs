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
    let mut random = Random(7);
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

/// An xorshift generator: the same text every time.
struct Random(u64);

impl Random {
    /// A number below this one.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1_u64 << 40) as f64
    }
}

/// Words by how often they are used, the most used first.
const WORDS: &str = "the of and to a in is that for it as with on be by this are not or from at an which but have was \
    if one can will all when has you its more so no we there what they would their only each out into then other than \
    any these may time do first up such two same file how must some new set like line over where because like see use \
    used make read write name value list way work called given long part does most need after before here through \
    between without number under again state since while still every small order place right end point case case \
    second known data change place text both own form type back field less last enough error look return function \
    hold means next open left large result system example always start never find server memory program message \
    answer question model people water house light world school country problem hand high year keep thought city tree \
    cross farm hard story saw far sea draw late run press close night real life few north book carry took science eat \
    room friend began idea fish mountain stop once base hear horse cut sure watch color face wood main plain girl \
    usual young ready above ever red though feel talk bird soon body dog family direct pose leave song measure door \
    product black short class wind happen complete ship area half rock fire south piece told knew pass top whole king \
    space heard best hour better true during hundred five remember step early west ground interest reach fast verb \
    sing listen six table travel morning ten simple several vowel toward war lay against pattern slow center love \
    person money serve appear road map rain rule govern pull cold notice voice unit power town fine certain fly fall \
    lead cry dark machine note wait plan figure star box noun rest correct able pound done beauty drive stood contain \
    front teach week final gave green quick develop ocean warm free minute strong special mind behind clear tail \
    produce fact street inch multiply nothing course stay wheel full force blue object decide surface deep moon island \
    foot busy test record boat common gold possible plane stead dry wonder laugh thousand ago ran check game shape \
    equate hot miss brought heat snow tire bring yes distant fill east paint language among compiler buffer thread \
    pointer socket packet kernel register iterate borrow lifetime schema cluster latency";

/// What a word may end in beside itself.
const ENDINGS: [&str; 8] = ["", "", "", "", "s", "ed", "ing", "ly"];

/// ASCII prose of this length: words by Zipf's law, with endings, names that hardly come again, and sentences.
fn prose(length: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let weights: Vec<f64> = (0..words.len())
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / (rank as f64 + 2.7);
            Some(*sum)
        })
        .collect();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut text = String::with_capacity(length + 64);
    let mut in_sentence = 0;
    while text.len() < length {
        let mut word = match random.below(100) {
            0..4 => name(&mut random),
            _ => {
                let at = random.share() * weights[weights.len() - 1];
                let rank = weights.partition_point(|sum| *sum < at).min(words.len() - 1);
                let ending = if rank < 60 { "" } else { ENDINGS[random.below(8) as usize] };
                format!("{}{ending}", words[rank])
            }
        };
        if in_sentence == 0 {
            word[..1].make_ascii_uppercase();
        }
        in_sentence += 1;
        text.push_str(&word);
        text.push_str(match random.below(100) {
            0..7 if in_sentence > 3 => {
                in_sentence = 0;
                if random.below(5) == 0 { ".\n\n" } else { ". " }
            }
            7..13 => ", ",
            _ => " ",
        });
    }
    text.truncate(length);
    text
}

/// A word of two to four syllables.
fn name(random: &mut Random) -> String {
    let (first, second) = (b"bcdfghklmnprstvw", b"aeiou");
    let mut name = String::new();
    for _ in 0..2 + random.below(3) {
        name.push(char::from(first[random.below(16) as usize]));
        name.push(char::from(second[random.below(5) as usize]));
    }
    name
}
