//! What the tests of every wire share: an adapter with one route, responses decoded whole and in pieces and folded,
//! requests converted as a host does it, and messages in few words.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::kit::head::HeadFacts;
use dsh_plugin_api::vocab::{
    Block, Chunk, Exchange, Failure, FinishReason, HttpRequest, Message, Repair, ReplayEnvelope, Request, Role, Source,
    Target, Usage,
};
use dsh_plugin_api::{Adapter, Chunks, Decoder as _, ResponseHead, StreamEnd};
use serde_json::{Value, json};

use crate::PiAi;

/// The one route and model of most tests.
pub(crate) fn target() -> Target {
    Target { provider: "local".into(), model: "m".into() }
}

/// What the head of a stream says that has nothing to say.
pub(crate) fn head() -> HeadFacts {
    HeadFacts::read(&ResponseHead::Http { status: 200, headers: Vec::new() }).unwrap()
}

/// An adapter with one route, `local`, and the model that is asked.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub adapter: PiAi,
    pub target: Target,
    ends: Ends,
}

impl Fixture {
    /// The members of `model` are merged into those of a thinking model with images.
    pub fn new(api: &str, model: &str, more: Value) -> Self {
        Self::with_route(api, model, more, json!({}))
    }

    /// The same, with these members in the route.
    pub fn with_route(api: &str, model: &str, more: Value, members: Value) -> Self {
        let mut entry = json!({"id": model, "context_window": 200_000, "max_tokens": 8192, "reasoning": true,
            "input": ["text", "image"]});
        extend(&mut entry, more);
        let mut route =
            json!({"api": api, "base_url": "http://gateway.test/v1", "credential": "KEY", "models": [entry]});
        extend(&mut route, members);
        let config = json!({"providers": {"local": route}});
        let adapter = PiAi::new(serde_json::from_value(config).unwrap()).unwrap();
        let ends = if api == "openai-responses" { Ends::Win } else { Ends::RepeatDeltas };
        Self { adapter, target: Target { provider: "local".into(), model: model.into() }, ends }
    }

    /// Decodes a response that comes in pieces of `split` bytes.
    pub fn decode_as(&self, head: (u16, &[(&str, &str)]), body: &[u8], split: usize, end: &StreamEnd) -> Decoded {
        let headers = head.1.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let head = ResponseHead::Http { status: head.0, headers };
        let mut decoder = self.adapter.decoder(&head, &self.target).unwrap();
        let mut out = Chunks::new();
        let mut reader = BatchReader::new();
        let mut chunks = Vec::new();
        for piece in body.chunks(split.max(1)) {
            decoder.feed(piece, &mut out);
            take(&mut reader, &mut out, &mut chunks);
        }
        decoder.finish(end, &mut out);
        take(&mut reader, &mut out, &mut chunks);
        Decoded::of(chunks, &self.target, self.ends)
    }

    /// Decodes a complete event stream, whole and in small pieces.
    pub fn decode(&self, body: &str) -> Decoded {
        let whole = self.decode_as((200, &[]), body.as_bytes(), usize::MAX, &StreamEnd::Complete);
        for split in [1, 2, 3, 7] {
            let pieces = self.decode_as((200, &[]), body.as_bytes(), split, &StreamEnd::Complete);
            assert_eq!(pieces.text(), whole.text(), "pieces of {split}");
        }
        whole
    }

    /// True when the response is over after these bytes, whatever the connection does.
    pub fn is_over_after(&self, body: &str) -> bool {
        let head = ResponseHead::Http { status: 200, headers: Vec::new() };
        let mut out = Chunks::new();
        self.adapter.decoder(&head, &self.target).unwrap().feed(body.as_bytes(), &mut out);
        out.is_finished()
    }

    /// What a response is worth that the host stops after these bytes.
    pub fn cancelled(&self, body: &str) -> Decoded {
        let head = ResponseHead::Http { status: 200, headers: Vec::new() };
        let mut decoder = self.adapter.decoder(&head, &self.target).unwrap();
        let mut out = Chunks::new();
        decoder.feed(body.as_bytes(), &mut out);
        decoder.cancel(&mut out);
        let mut chunks = Vec::new();
        take(&mut BatchReader::new(), &mut out, &mut chunks);
        Decoded::of(chunks, &self.target, self.ends)
    }

    /// A request as a host converts it: messages with a state are native.
    pub fn request(&self, request: &Value) -> Result<(HttpRequest, Vec<Repair>), Failure> {
        let request: Request = dsh_plugin_api::json::from_str(&request.to_string()).unwrap();
        let history = request.messages.iter().map(|message| match &message.source {
            Source::Model { replay_state: Some(state), .. } => {
                self.adapter.restore(message, &ReplayEnvelope::parse(state).unwrap(), &self.target).unwrap()
            }
            _ => self.adapter.foreign(message, &self.target).unwrap(),
        });
        let encoded = self.adapter.encode(&request, history.collect(), &self.target)?;
        let Exchange::Http(http) = encoded.exchange else { panic!("no HTTP request") };
        Ok((http, encoded.repairs))
    }

    /// The body of a request.
    pub fn body(&self, request: &Value) -> Value {
        self.encode(request).0
    }

    /// The kinds of what had to be changed, with the places of the messages.
    pub fn repairs(&self, request: &Value) -> Vec<(usize, String)> {
        self.request(request).unwrap().1.into_iter().map(|repair| (repair.message, repair.kind)).collect()
    }

    /// The body of a request, and what had to be changed.
    pub fn encode(&self, request: &Value) -> (Value, Vec<Repair>) {
        let (http, repairs) = self.request(request).unwrap();
        (serde_json::from_str(http.body.get()).unwrap(), repairs)
    }

    /// The body of the request after an answer, its calls answered with `out`.
    pub fn sent_back(&self, answer: &Decoded) -> Value {
        self.body(&next_request(answer))
    }
}

/// The request after an answer, its calls answered with `out`.
pub(crate) fn next_request(answer: &Decoded) -> Value {
    let message = answer.message();
    let mut messages = vec![user("go"), serde_json::to_value(&message).unwrap()];
    for block in &message.content {
        if let Block::ToolCall { id, .. } = block {
            messages.push(result(id, json!([text("out")])));
        }
    }
    json!({"messages": messages})
}

fn extend(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

fn take(reader: &mut BatchReader, out: &mut Chunks, chunks: &mut Vec<Chunk>) {
    reader.read(&out.take_batch(), |item| match item {
        Item::Chunk(chunk) => chunks.push(chunk),
        Item::Wait(_) => {}
        Item::Malformed(text) => panic!("{text}"),
    });
}

/// Everything a response gave.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub chunks: Vec<Chunk>,
    pub blocks: Vec<Block>,
    pub finish: FinishReason,
    pub envelope: Option<ReplayEnvelope>,
    pub usage: Option<Usage>,
    target: Target,
}

impl Decoded {
    fn of(chunks: Vec<Chunk>, target: &Target, ends: Ends) -> Self {
        let Folded { blocks, finish, envelope, usage } = fold(&chunks, ends);
        Self { blocks, finish, envelope, usage, chunks, target: target.clone() }
    }

    /// Code of the failure, or the kind of the finish.
    pub fn outcome(&self) -> &str {
        self.finish.failure().map_or(self.finish.kind(), |failure| failure.code.name())
    }

    /// The message of the failure.
    pub fn failure(&self) -> &str {
        self.finish.failure().map_or("", |failure| &failure.message)
    }

    /// The chunks as text, for comparison.
    pub fn text(&self) -> String {
        raw(&self.chunks).get().to_owned()
    }

    /// The blocks as JSON.
    pub fn content(&self) -> Value {
        serde_json::to_value(&self.blocks).unwrap()
    }

    /// `(id, name, arguments)` of every call.
    pub fn calls(&self) -> Vec<(&str, &str, &str)> {
        let calls = self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => Some((&**id, &**name, &**arguments)),
            _ => None,
        });
        calls.collect()
    }

    /// The block entries of the envelope.
    pub fn entries(&self) -> Value {
        serde_json::to_value(&self.envelope.as_ref().unwrap().blocks).unwrap()
    }

    /// The response half of the envelope.
    pub fn response(&self) -> Value {
        serde_json::from_str(self.envelope.as_ref().unwrap().response.get()).unwrap()
    }

    /// The message as a host would store it after a complete answer.
    pub fn message(&self) -> Message {
        let Target { provider, model } = &self.target;
        let source = Source::model(provider, model, self.envelope.as_ref().map(raw));
        Message::new("a", Role::Assistant, self.blocks.clone(), source)
    }
}

/// What the end of a block may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// What its deltas said.
    RepeatDeltas,
    /// Something else, which wins: the wire sends the block once more.
    Win,
}

/// What a stream of chunks comes to.
#[derive(Debug)]
struct Folded {
    blocks: Vec<Block>,
    finish: FinishReason,
    envelope: Option<ReplayEnvelope>,
    usage: Option<Usage>,
}

/// Folds a stream of chunks, and checks that it is one.
fn fold(chunks: &[Chunk], ends: Ends) -> Folded {
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

/// A text block.
pub(crate) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A small image.
pub(crate) fn image() -> Value {
    json!({"type": "image", "mimeType": "image/png", "data": "AA=="})
}

/// A call of the tool `bash`.
pub(crate) fn call(id: &str, arguments: &str) -> Value {
    json!({"type": "tool-call", "id": id, "name": "bash", "arguments": arguments})
}

/// What the user says.
pub(crate) fn user(says: &str) -> Value {
    json!({"role": "user", "content": [text(says)], "source": {"kind": "user"}})
}

/// What another model said.
pub(crate) fn said(content: Value) -> Value {
    json!({"role": "assistant", "content": content, "source": {"kind": "model", "provider": "x", "model": "y"}})
}

/// The result of a tool.
pub(crate) fn result(id: &str, content: Value) -> Value {
    json!({"role": "user", "source": {"kind": "tool", "callId": id},
        "content": [{"type": "tool-result", "toolCallId": id, "content": content}]})
}
