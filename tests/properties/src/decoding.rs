//! Decoders of any wire: bytes to chunks, judged by what must hold for every body.

use std::sync::LazyLock;

use dsh_llm_pi_ai::PiAi;
use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, FinishReason, Target};
use dsh_plugin_api::{Adapter, Chunks, Decoder, ResponseHead, StreamEnd};
use proptest::prelude::*;
use serde_json::json;

use crate::pieces::pieces;

/// One wire of the adapter, for the checks of this module.
pub trait Wire {
    /// Its name in the manifest.
    const API: &'static str;
    /// What damage inserts: the wire's own words, those of its end first of all.
    const WORDS: &'static [&'static str];

    /// Answers in every form that servers of this wire send them.
    fn answers() -> BoxedStrategy<Answer>;

    /// False when the wire's own terminal event is certainly not in this body. Independent of the decoder, and
    /// cautious: it may say true for a body that only seems to hold it.
    fn may_succeed(body: &[u8]) -> bool;
}

/// A generated answer, and what a decoder must make of it.
#[derive(Clone)]
pub struct Answer {
    /// The bytes of a response with status 200.
    pub body: Vec<u8>,
    /// Length of the shortest beginning that may be read as a success: up to the last byte that the terminal event
    /// cannot do without. None when no beginning may.
    pub complete_at: Option<usize>,
    /// Code of the failure, or kind of the finish, of the whole body.
    pub outcome: &'static str,
    /// All visible text.
    pub text: String,
    /// All reasoning.
    pub reasoning: String,
    /// Name and arguments of every call.
    pub calls: Vec<(String, String)>,
}

impl std::fmt::Debug for Answer {
    /// Readable: a failing case is read by a person.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { body, complete_at, outcome, text, reasoning, calls } = self;
        writeln!(f, "{outcome}, complete at {complete_at:?}, text {text:?}, reasoning {reasoning:?}, calls {calls:?}")?;
        write!(f, "    b\"{}\"", body.escape_ascii())
    }
}

/// What a decoder made of a body.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// Every chunk as JSON, and every wait, in order.
    pub items: Vec<String>,
    /// The blocks, a complete one as its end says.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub finish: FinishReason,
}

impl Decoded {
    /// True for the three ends that are no failure.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self.finish, FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MaxTokens)
    }

    /// Code of the failure, or kind of the finish.
    #[must_use]
    pub fn outcome(&self) -> &str {
        self.finish.failure().map_or(self.finish.kind(), |failure| failure.code.name())
    }

    /// All visible text.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks
            .iter()
            .filter_map(|block| if let Block::Text(text) = block { Some(&**text) } else { None })
            .collect()
    }

    /// All reasoning.
    #[must_use]
    pub fn reasoning(&self) -> String {
        let blocks = self.blocks.iter();
        blocks.filter_map(|block| if let Block::Reasoning(text) = block { Some(&**text) } else { None }).collect()
    }

    /// Name and arguments of every call.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, String)> {
        let call = |block: &Block| match block {
            Block::ToolCall { name, arguments, .. } => Some((name.clone(), arguments.clone())),
            _ => None,
        };
        self.blocks.iter().filter_map(call).collect()
    }
}

/// Head of a response that is an event stream.
pub const STREAM: (u16, &str) = (200, "text/event-stream");

/// The adapter with one route per wire, each named like its wire.
pub static ADAPTER: LazyLock<PiAi> = LazyLock::new(|| {
    let apis = [
        "openai-completions",
        "openai-responses",
        "anthropic-messages",
        "google-generative-ai",
        "mistral-conversations",
    ];
    let model = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192, "reasoning": true,
        "input": ["text", "image"]});
    let route =
        |api: &str| (api.to_owned(), json!({"api": api, "base_url": "http://gateway.test/v1", "models": [model]}));
    let config = json!({"providers": apis.map(route).into_iter().collect::<serde_json::Map<_, _>>()});
    let config = serde_json::from_value(config).expect("the configuration is one");
    PiAi::new(config).expect("the adapter takes the configuration")
});

/// Where requests of a wire go.
#[must_use]
pub fn target(api: &str) -> Target {
    Target { provider: api.to_owned(), model: "m".to_owned() }
}

/// One response in progress.
struct Response {
    decoder: <PiAi as Adapter>::Decoder,
    out: Chunks,
    reader: BatchReader,
    seen: Seen,
}

impl Response {
    fn new(api: &str, (status, content_type): (u16, &str)) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let head = ResponseHead::Http { status, headers };
        let decoder = ADAPTER.decoder(&head, &target(api)).expect("the wire is served");
        Self { decoder, out: Chunks::new(), reader: BatchReader::new(), seen: Seen::default() }
    }

    fn take(&mut self) {
        self.reader.read(&self.out.take_batch(), |item| self.seen.item(item));
    }

    fn feed(&mut self, piece: &[u8]) {
        self.decoder.feed(piece, &mut self.out);
        self.take();
    }

    fn finish(mut self, end: &StreamEnd) -> Decoded {
        self.decoder.finish(end, &mut self.out);
        self.take();
        self.seen.done()
    }

    fn cancel(mut self) -> Decoded {
        self.decoder.cancel(&mut self.out);
        self.take();
        self.seen.done()
    }
}

/// The chunks so far. It insists on what every stream of chunks promises.
#[derive(Debug, Default)]
struct Seen {
    items: Vec<String>,
    blocks: Vec<(Block, bool)>,
    usage: bool,
    finish: Option<FinishReason>,
}

impl Seen {
    fn item(&mut self, item: Item) {
        assert!(self.finish.is_none(), "after the finish: {item:?}");
        match item {
            Item::Malformed(text) => panic!("{text}"),
            Item::Wait(ms) => self.items.push(format!("wait {ms}")),
            Item::Chunk(chunk) => {
                self.items.push(raw(&chunk).get().to_owned());
                self.chunk(chunk);
            }
        }
    }

    fn chunk(&mut self, chunk: Chunk) {
        assert!(
            !self.usage || matches!(chunk, Chunk::Finish { .. }),
            "only the finish comes after the usage: {chunk:?}"
        );
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                assert_eq!(index as usize, self.blocks.len(), "indexes count up from 0");
                let block = match block_type {
                    BlockType::Text => Block::Text(String::new()),
                    BlockType::Reasoning => Block::Reasoning(String::new()),
                    BlockType::ToolCall => {
                        Block::ToolCall { id: String::new(), name: String::new(), arguments: String::new() }
                    }
                };
                self.blocks.push((block, true));
            }
            Chunk::TextDelta { index, text } => match self.open(index) {
                Block::Text(known) => known.push_str(&text),
                other => panic!("text for {other:?}"),
            },
            Chunk::ReasoningDelta { index, text } => match self.open(index) {
                Block::Reasoning(known) => known.push_str(&text),
                other => panic!("reasoning for {other:?}"),
            },
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => match self.open(index) {
                Block::ToolCall { id: known_id, name: known_name, arguments } => {
                    *known_id = id;
                    *known_name = name.unwrap_or_default();
                    arguments.push_str(&arguments_delta);
                }
                other => panic!("arguments for {other:?}"),
            },
            Chunk::BlockEnd { index, block } => {
                let open = self.open(index);
                assert_eq!(open.kind(), block.kind(), "a block ends as what it began as");
                *open = block;
                self.blocks[index as usize].1 = false;
            }
            Chunk::Usage { .. } => self.usage = true,
            Chunk::Finish { reason, replay_state } => {
                if let Some(entries) = replay_state.and_then(|state| state.block_types()) {
                    let kinds: Vec<_> = self.blocks.iter().map(|(block, _)| Some(block.kind())).collect();
                    assert_eq!(
                        entries.iter().map(Option::as_deref).collect::<Vec<_>>(),
                        kinds.iter().map(Option::as_deref).collect::<Vec<_>>(),
                        "the envelope has one entry per block"
                    );
                }
                let complete = matches!(reason, FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MaxTokens);
                assert!(!complete || self.blocks.iter().all(|(_, open)| !open), "a success leaves a block open");
                self.finish = Some(reason);
            }
        }
    }

    fn open(&mut self, index: u32) -> &mut Block {
        let (block, open) = self.blocks.get_mut(index as usize).expect("a block that was started");
        assert!(*open, "block {index} is closed");
        block
    }

    fn done(self) -> Decoded {
        let blocks = self.blocks.into_iter().map(|(block, _)| block).collect();
        Decoded { items: self.items, blocks, finish: self.finish.expect("a response ends with a finish") }
    }
}

/// Decodes a body that comes in pieces of these widths.
#[must_use]
pub fn decode<W: Wire>(head: (u16, &str), body: &[u8], widths: &[u8], end: &StreamEnd) -> Decoded {
    let mut response = Response::new(W::API, head);
    for piece in pieces(body, widths) {
        response.feed(piece);
    }
    response.finish(end)
}

/// A body of any kind: its chunks do not depend on the split, and success needs the wire's own terminal event and a
/// status that is one. Stopped half-way it is aborted, unless it was over.
pub fn check_body<W: Wire>(head: (u16, &str), body: &[u8], widths: &[u8], end: &StreamEnd) -> Decoded {
    let whole = decode::<W>(head, body, &[], end);
    let split = decode::<W>(head, body, widths, end);
    // The chunks themselves, one for one: a decoder makes them of events, and never of how the events came in.
    assert_eq!(split.items, whole.items, "pieces of {widths:?}");
    if whole.is_success() {
        assert!((200..300).contains(&head.0), "status {} was taken for a success", head.0);
        assert!(W::may_succeed(body), "a success without the wire's terminal event");
    }
    let mut stopped = Response::new(W::API, head);
    stopped.feed(&body[..body.len() / 2]);
    let was_over = stopped.seen.finish.is_some();
    let stopped = stopped.cancel();
    assert!(was_over || stopped.finish.kind() == "aborted", "stopped, and yet {:?}", stopped.finish);
    whole
}

/// The fuzz target of a wire. Two bytes choose status, content type, the way it ends and the number of widths, which
/// are the next bytes; the rest is the body.
pub fn check<W: Wire>(data: &[u8]) {
    let Some((&[head, count], rest)) = data.split_first_chunk() else { return };
    let status = [200, 200, 200, 201, 400, 401, 429, 503][usize::from(head & 7)];
    let content_type = ["text/event-stream", "application/json", "", "text/html"][usize::from(head >> 3 & 3)];
    let end = match head >> 5 & 3 {
        0 | 1 => StreamEnd::Complete,
        2 => StreamEnd::Cut("reset".to_owned()),
        _ => StreamEnd::TimedOut("too slow".to_owned()),
    };
    let (widths, body) = rest.split_at_checked(usize::from(count % 8)).unwrap_or((rest, &[]));
    check_body::<W>((status, content_type), body, widths, &end);
}

/// What [`check`] reads as this head, these widths (at most 7) and this body of an answer that was complete.
#[must_use]
pub fn seed(body: &[u8], widths: &[u8]) -> Vec<u8> {
    let count = widths.len().min(7);
    [&[0, count as u8], &widths[..count], body].concat()
}
