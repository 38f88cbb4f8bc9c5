//! What the tests of every wire share: a response fed in pieces and folded, a request converted as a host would.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::vocab::{
    Block, Chunk, Exchange, FinishReason, Message, Repair, ReplayEnvelope, Request, Role, Source, Target, Usage,
};
use dsh_plugin_api::{Adapter, Chunks, Decoder as _, ResponseHead, StreamEnd};
use serde_json::Value;

use crate::PiAi;

/// The one route and model of the tests.
pub(crate) fn target() -> Target {
    Target { provider: "local".into(), model: "m".into() }
}

/// What the head of a stream says that has nothing to say.
pub(crate) fn head() -> HeadFacts {
    HeadFacts::read(&ResponseHead::Http { status: 200, headers: Vec::new() }).unwrap()
}

/// Everything a response gave.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub chunks: Vec<Chunk>,
    pub blocks: Vec<Block>,
    pub finish: FinishReason,
    pub envelope: Option<ReplayEnvelope>,
    pub usage: Option<Usage>,
}

impl Decoded {
    /// Code of the failure, or the kind of the finish.
    pub fn outcome(&self) -> &str {
        self.finish.failure().map_or(self.finish.kind(), |failure| failure.code.name())
    }

    /// The chunks as text, for comparison.
    pub fn text(&self) -> String {
        raw(&self.chunks).get().to_owned()
    }

    pub fn content(&self) -> Value {
        serde_json::to_value(&self.blocks).unwrap()
    }

    pub fn entries(&self) -> Value {
        serde_json::to_value(&self.envelope.as_ref().unwrap().blocks).unwrap()
    }

    pub fn response(&self) -> Value {
        serde_json::from_str(self.envelope.as_ref().unwrap().response.get()).unwrap()
    }

    /// The message as a host would store it after a complete answer.
    pub fn message(&self) -> Message {
        let source = Source::model("local", "m", self.envelope.as_ref().map(raw));
        Message::new("a", Role::Assistant, self.blocks.clone(), source)
    }
}

/// Decodes a response that comes in pieces of `split` bytes.
pub(crate) fn decode_as(
    adapter: &PiAi,
    head: (u16, &[(&str, &str)]),
    body: &[u8],
    split: usize,
    end: &StreamEnd,
) -> Decoded {
    let headers = head.1.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let head = ResponseHead::Http { status: head.0, headers };
    let mut decoder = adapter.decoder(&head, &target()).unwrap();
    let mut out = Chunks::new();
    let mut reader = BatchReader::new();
    let mut chunks = Vec::new();
    let mut take = |out: &mut Chunks| {
        reader.read(&out.take_batch(), |item| match item {
            Item::Chunk(chunk) => chunks.push(chunk),
            Item::Wait(_) => {}
            Item::Malformed(text) => panic!("{text}"),
        });
    };
    for piece in body.chunks(split.max(1)) {
        decoder.feed(piece, &mut out);
        take(&mut out);
    }
    decoder.finish(end, &mut out);
    take(&mut out);
    folded(chunks)
}

/// The blocks, the finish and the counts of a stream of chunks.
pub(crate) fn folded(chunks: Vec<Chunk>) -> Decoded {
    let Folded { blocks, finish, envelope, usage } = fold(&chunks, Ends::RepeatDeltas);
    Decoded { blocks, finish, envelope, usage, chunks }
}

/// What the end of a block may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// What its deltas said.
    RepeatDeltas,
    /// Something else, which wins: the wire sends the block once more.
    Win,
}

/// What a stream of chunks comes to.
#[derive(Debug)]
pub(crate) struct Folded {
    pub blocks: Vec<Block>,
    pub finish: FinishReason,
    pub envelope: Option<ReplayEnvelope>,
    pub usage: Option<Usage>,
}

/// Folds a stream of chunks, and checks that it is one.
pub(crate) fn fold(chunks: &[Chunk], ends: Ends) -> Folded {
    let mut blocks = Vec::new();
    let mut ended = None;
    let mut usage = None;
    for chunk in chunks {
        assert!(ended.is_none(), "a chunk after the finish");
        match chunk {
            Chunk::BlockStart { index, block_type } => {
                assert_eq!(*index as usize, blocks.len());
                blocks.push(match block_type.name() {
                    "text" => Block::Text(String::new()),
                    "reasoning" => Block::Reasoning(String::new()),
                    _ => Block::ToolCall { id: String::new(), name: String::new(), arguments: String::new() },
                });
            }
            Chunk::TextDelta { index, text } | Chunk::ReasoningDelta { index, text } => {
                match &mut blocks[*index as usize] {
                    Block::Text(known) | Block::Reasoning(known) => known.push_str(text),
                    other => panic!("text in {other:?}"),
                }
            }
            Chunk::ToolCallDelta { index, id, name, arguments_delta } => match &mut blocks[*index as usize] {
                Block::ToolCall { id: known_id, name: known_name, arguments } => {
                    id.clone_into(known_id);
                    known_name.clone_from(name.as_ref().unwrap());
                    arguments.push_str(arguments_delta);
                }
                other => panic!("arguments in {other:?}"),
            },
            Chunk::BlockEnd { index, block } => {
                let known = &mut blocks[*index as usize];
                if ends == Ends::RepeatDeltas {
                    assert_eq!(raw(known).get(), raw(block).get(), "the deltas of block {index}");
                }
                *known = block.clone();
            }
            Chunk::Usage { usage: counts } => usage = Some(*counts),
            Chunk::Finish { reason, replay_state } => ended = Some((reason.clone(), replay_state.clone())),
        }
    }
    let (finish, envelope) = ended.expect("a finish");
    Folded { blocks, finish, envelope, usage }
}

/// A request as a host would convert it: messages with a state are native.
pub(crate) fn encode(adapter: &PiAi, request: &Value) -> (Value, Vec<Repair>) {
    let request: Request = dsh_plugin_api::json::from_str(&request.to_string()).unwrap();
    let history = request.messages.iter().map(|message| match &message.source {
        Source::Model { replay_state: Some(state), .. } => {
            adapter.restore(message, &ReplayEnvelope::parse(state).unwrap(), &target()).unwrap()
        }
        _ => adapter.foreign(message, &target()).unwrap(),
    });
    let encoded = adapter.encode(&request, history.collect(), &target()).unwrap();
    let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
    (serde_json::from_str(http.body.get()).unwrap(), encoded.repairs)
}
