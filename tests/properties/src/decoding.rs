//! Decoders of any wire: bytes to chunks, judged by what must hold for every body.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, FinishReason, ReplayEnvelope, Target};
use dsh_plugin_api::{Adapter, Chunks, Decoder, ResponseHead, StreamEnd};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::pieces::pieces;
use crate::repeating::{self, Events};

/// One wire of an adapter, for the checks of this crate.
pub trait Wire {
    /// Its name in the manifest, and that of its route.
    const API: &'static str;
    /// What damage inserts: the wire's own words, those of its end first of all.
    const WORDS: &'static [&'static str];

    /// What streams of it are made of, for [`crate::repeating`].
    const EVENTS: Events;

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
    /// What the next request holds of it, byte for byte: the provider's opaque values, each with the name of its
    /// member, and the arguments.
    pub returned: Vec<String>,
}

impl std::fmt::Debug for Answer {
    /// Readable: a failing case is read by a person.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { body, complete_at, outcome, text, reasoning, calls, returned } = self;
        writeln!(f, "{outcome}, complete at {complete_at:?}, text {text:?}, reasoning {reasoning:?}, calls {calls:?}")?;
        writeln!(f, "    returned {returned:?}")?;
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
    /// What is stored for the next request.
    pub state: Option<ReplayEnvelope>,
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

/// The adapter of the common wires, with one route for each, named like its wire.
///
/// The adapters themselves are not linked to this crate: each exports the same symbol, so that a binary holds one.
#[must_use]
pub fn pi_ai<A: Adapter>() -> A {
    let model = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192, "reasoning": true,
        "input": ["text", "image"]});
    let route = |api: &str| json!({"api": api, "base_url": "http://gateway.test/v1", "models": [model]});
    adapter(COMMON_APIS.iter().map(|api| (*api, route(api))))
}

/// The adapter of DeepSeek's own API, with one route.
#[must_use]
pub fn deepseek<A: Adapter>() -> A {
    let model = json!({"id": "m", "context_window": 200_000, "max_tokens": 8192, "images": true});
    adapter([("deepseek", json!({"base_url": "http://deepseek.test", "models": [model]}))].into_iter())
}

/// The common wires.
pub const COMMON_APIS: [&str; 5] =
    ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai", "mistral-conversations"];

fn adapter<A: Adapter>(routes: impl Iterator<Item = (&'static str, Value)>) -> A {
    let routes: Map<String, Value> = routes.map(|(name, route)| (name.to_owned(), route)).collect();
    let config = serde_json::from_value(json!({"providers": routes})).expect("the configuration is one");
    A::new(config).expect("the adapter takes the configuration")
}

/// Where requests of a wire go.
#[must_use]
pub fn target(api: &str) -> Target {
    Target { provider: api.to_owned(), model: "m".to_owned() }
}

/// One response in progress.
struct Response<A: Adapter> {
    decoder: A::Decoder,
    out: Chunks,
    reader: BatchReader,
    seen: Seen,
}

impl<A: Adapter> Response<A> {
    fn new<W: Wire>(adapter: &A, (status, content_type): (u16, &str)) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let head = ResponseHead::Http { status, headers };
        let decoder = adapter.decoder(&head, &target(W::API)).expect("the wire is served");
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
    state: Option<ReplayEnvelope>,
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
                if let Some(entries) = replay_state.as_ref().and_then(ReplayEnvelope::block_types) {
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
                self.state = replay_state;
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
        let finish = self.finish.expect("a response ends with a finish");
        Decoded { items: self.items, blocks, finish, state: self.state }
    }
}

/// Decodes a body that comes in pieces of these widths.
#[must_use]
pub fn decode<W: Wire>(
    adapter: &impl Adapter,
    head: (u16, &str),
    body: &[u8],
    widths: &[u8],
    end: &StreamEnd,
) -> Decoded {
    let mut response = Response::new::<W>(adapter, head);
    for piece in pieces(body, widths) {
        response.feed(piece);
    }
    response.finish(end)
}

/// A body of any kind: its chunks do not depend on the split, and success needs the wire's own terminal event and a
/// status that is one. An event that is compared with the one before does what it does when it is read. Stopped half-way
/// it is aborted, unless it was over.
pub fn check_body<W: Wire>(
    adapter: &impl Adapter,
    head: (u16, &str),
    body: &[u8],
    widths: &[u8],
    end: &StreamEnd,
) -> Decoded {
    let whole = decode::<W>(adapter, head, body, &[], end);
    let split = decode::<W>(adapter, head, body, widths, end);
    // The chunks themselves, one for one: a decoder makes them of events, and never of how the events came in.
    assert_eq!(split.items, whole.items, "pieces of {widths:?}");
    if whole.is_success() {
        assert!((200..300).contains(&head.0), "status {} was taken for a success", head.0);
        assert!(W::may_succeed(body), "a success without the wire's terminal event");
    }
    if head == STREAM {
        repeating::check_body::<W>(adapter, body, end);
    }
    let mut stopped = Response::new::<W>(adapter, head);
    stopped.feed(&body[..body.len() / 2]);
    let was_over = stopped.seen.finish.is_some();
    let stopped = stopped.cancel();
    assert!(was_over || stopped.finish.kind() == "aborted", "stopped, and yet {:?}", stopped.finish);
    whole
}

/// The fuzz target of a wire. Two bytes choose status, content type, the way it ends and the number of widths, which
/// are the next bytes; the rest is the body.
pub fn check<W: Wire>(adapter: &impl Adapter, data: &[u8]) {
    let Some((&[head, count], rest)) = data.split_first_chunk() else { return };
    let status = [200, 200, 200, 201, 400, 401, 429, 503][usize::from(head & 7)];
    let content_type = ["text/event-stream", "application/json", "", "text/html"][usize::from(head >> 3 & 3)];
    let end = match head >> 5 & 3 {
        0 | 1 => StreamEnd::Complete,
        2 => StreamEnd::Cut("reset".to_owned()),
        _ => StreamEnd::TimedOut("too slow".to_owned()),
    };
    let (widths, body) = rest.split_at_checked(usize::from(count % 8)).unwrap_or((rest, &[]));
    check_body::<W>(adapter, (status, content_type), body, widths, &end);
}

/// What [`check`] reads as this head, these widths (at most 7) and this body of an answer that was complete.
#[must_use]
pub fn seed(body: &[u8], widths: &[u8]) -> Vec<u8> {
    let count = widths.len().min(7);
    [&[0, count as u8], &widths[..count], body].concat()
}
