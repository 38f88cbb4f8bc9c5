//! What happens in one run: prompts, what the model streams for each, what its tools do, and who interrupts where.
//!
//! A plan holds no outcome. Every piece of text in it is a word of its own, so that a word tells where it came from.

use std::collections::VecDeque;

use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::{Block, BlockType, Chunk, Failure, FailureCode, FinishReason, ReplayEnvelope, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One session's life, as a list of prompts.
#[derive(Debug, Clone)]
pub struct Plan(pub Vec<Prompt>);

/// One prompt and what comes of it.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    /// What the model streams, an attempt each; afterwards it answers plainly.
    pub attempts: Vec<Attempt>,
    /// What the calls do, in order; afterwards they succeed.
    pub tools: Vec<Tool>,
    pub interrupts: Vec<Interrupt>,
    /// Where the log ends that a crash leaves: 0 is the last sync, 255 the last byte that was written.
    pub cut: u8,
    /// A second crash, inside the recovery from the first, with its own cut.
    pub cut_again: Option<u8>,
    /// The session is opened again afterwards, as another process would.
    pub reopen: bool,
}

/// What the provider streams for one request.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub parts: Vec<Part>,
    pub end: End,
    pub envelope: Envelope,
}

#[derive(Debug, Clone, Copy)]
pub enum Part {
    Text { pieces: u8, closed: bool },
    Blank,
    Reasoning { closed: bool },
    Call { name: Name, arguments: Arguments, closed: bool, own_id: bool },
    Pause,
}

#[derive(Debug, Clone, Copy)]
pub enum Name {
    Known,
    Unknown,
    Missing,
}

#[derive(Debug, Clone, Copy)]
pub enum Arguments {
    Object,
    Nothing,
    Truncated,
    Array,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Stop,
    ToolCalls,
    MaxTokens,
    /// The connection breaks.
    Cut,
    /// An error object inside the stream.
    Overloaded,
    /// 429 with a wait that is allowed, and with one that is not.
    RateLimit,
    LongRateLimit,
    Unauthorized,
    /// 400, which may be a refusal of replay metadata.
    Refused,
    /// An end called aborted that nobody asked for.
    Aborted,
    /// Nothing comes any more. The adapter knows what to make of that, or does not.
    Stall {
        finishes: bool,
    },
    /// The adapter breaks its interface.
    Malformed,
}

/// The replay metadata at the end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    None,
    Fits,
    /// One entry too many.
    Misfits,
}

#[derive(Debug, Clone, Copy)]
pub enum Tool {
    Succeeds,
    Fails,
    TimesOut,
}

#[derive(Debug, Clone, Copy)]
pub struct Interrupt {
    pub at: Moment,
    /// Which of these moments of the prompt, from 0.
    pub nth: u8,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Cancel,
    Crash,
}

/// A place where a turn can be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// A request is made.
    Request,
    /// The model gives a chunk.
    Chunk,
    /// The model is asked and has nothing.
    Stall,
    /// The user sees text, reasoning, a call, a result.
    Text,
    Reasoning,
    Call,
    Result,
    /// The user is told of a retry; some time of its wait has passed; the last attempt is void.
    Retry,
    Wait,
    Discarded,
    /// A tool has begun; it is half through.
    ToolBegins,
    ToolRuns,
}

/// All of them.
pub const MOMENTS: [Moment; 12] = [
    Moment::Request,
    Moment::Chunk,
    Moment::Stall,
    Moment::Text,
    Moment::Reasoning,
    Moment::Call,
    Moment::Result,
    Moment::Retry,
    Moment::Wait,
    Moment::Discarded,
    Moment::ToolBegins,
    Moment::ToolRuns,
];

/// What a poll of the model's stream gives.
#[derive(Debug, Clone)]
pub enum Given {
    Chunk(Chunk),
    Pause,
    Malformed,
}

impl Attempt {
    /// The answer of a model that is asked more often than the plan says.
    pub fn plain() -> Self {
        Self { parts: vec![Part::Text { pieces: 1, closed: true }], end: End::Stop, envelope: Envelope::None }
    }

    /// What it streams as attempt number `n` of the session.
    pub fn given(&self, n: usize) -> VecDeque<Given> {
        let mut given = VecDeque::new();
        for (part, index) in self.parts.iter().zip(0..) {
            if matches!(part, Part::Pause) {
                given.push_back(Given::Pause);
            }
            given.extend(part.chunks(n, index).into_iter().map(Given::Chunk));
        }
        match self.end {
            End::Stall { .. } => {}
            End::Malformed => given.push_back(Given::Malformed),
            end => {
                let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
                given.push_back(Given::Chunk(Chunk::Usage { usage }));
                let replay_state = self.envelope(self.parts.len());
                given.push_back(Given::Chunk(Chunk::Finish { reason: end.reason(), replay_state }));
            }
        }
        given
    }

    /// The envelope for the first `parts` parts.
    pub fn envelope(&self, parts: usize) -> Option<ReplayEnvelope> {
        let response = json!({ "kind": "k", "version": 1, "provider": "p", "model": "m", "stopReason": "stop" });
        let entry = |part: &Part| match part {
            Part::Text { .. } => Some(json!({ "type": "text", "textSignature": "s" })),
            Part::Blank => Some(json!({ "type": "text" })),
            Part::Reasoning { .. } => Some(json!({ "type": "reasoning", "thinkingSignature": "s" })),
            Part::Call { .. } => Some(json!({ "type": "tool-call" })),
            Part::Pause => None,
        };
        let mut entries: Vec<Value> = self.parts[..parts].iter().filter_map(entry).collect();
        match self.envelope {
            Envelope::None => return None,
            Envelope::Fits => {}
            Envelope::Misfits => entries.push(json!({ "type": "text" })),
        }
        Some(ReplayEnvelope { response: raw(&response), blocks: Some(entries.iter().map(raw).collect()) })
    }
}

impl Part {
    fn chunks(self, n: usize, index: u32) -> Vec<Chunk> {
        let start = |block_type| Chunk::BlockStart { index, block_type };
        let end = |closed: bool, block| closed.then_some(Chunk::BlockEnd { index, block });
        match self {
            Self::Pause => Vec::new(),
            Self::Blank => vec![start(BlockType::Text), Chunk::TextDelta { index, text: " \n".to_owned() }],
            Self::Text { pieces, closed } => {
                // A letter of two bytes, so that a log can be cut inside a character.
                let pieces: Vec<String> = (0..pieces).map(|piece| format!("text-{n}-{index}-{piece}é ")).collect();
                let deltas = pieces.iter().map(|text| Chunk::TextDelta { index, text: text.clone() });
                let block = Block::Text(pieces.concat());
                [start(BlockType::Text)].into_iter().chain(deltas).chain(end(closed, block)).collect()
            }
            Self::Reasoning { closed } => {
                let text = format!("thought-{n}-{index} ");
                let delta = Chunk::ReasoningDelta { index, text: text.clone() };
                let end = end(closed, Block::Reasoning(text));
                [start(BlockType::Reasoning), delta].into_iter().chain(end).collect()
            }
            Self::Call { name, arguments, closed, own_id } => {
                let id = if own_id { format!("call-{index}") } else { "call".to_owned() };
                let name = match name {
                    Name::Known => "bash",
                    Name::Unknown => "hammer",
                    Name::Missing => "",
                }
                .to_owned();
                let arguments = match arguments {
                    Arguments::Object => format!(r#"{{"command":"run-{n}-{index}"}}"#),
                    Arguments::Nothing => String::new(),
                    Arguments::Truncated => format!(r#"{{"command":"run-{n}-{index}"#),
                    Arguments::Array => format!(r#"["run-{n}-{index}"]"#),
                };
                let delta = Chunk::ToolCallDelta {
                    index,
                    id: id.clone(),
                    name: Some(name.clone()),
                    arguments_delta: arguments.clone(),
                };
                let end = end(closed, Block::ToolCall { id, name, arguments });
                [start(BlockType::ToolCall), delta].into_iter().chain(end).collect()
            }
        }
    }
}

impl End {
    /// How the finish chunk says it.
    pub fn reason(self) -> FinishReason {
        let failed = |code, status, provider_retry_after_ms| FinishReason::Error {
            failure: Failure { status, provider_retry_after_ms, ..Failure::new(code, "it failed") },
        };
        match self {
            Self::Stop => FinishReason::Stop,
            Self::ToolCalls => FinishReason::ToolCalls,
            Self::MaxTokens => FinishReason::MaxTokens,
            Self::Cut | Self::Stall { .. } => failed(FailureCode::Transport, None, None),
            Self::Overloaded => failed(FailureCode::Server, None, None),
            Self::RateLimit => failed(FailureCode::RateLimit, Some(429), Some(30_000)),
            Self::LongRateLimit => failed(FailureCode::RateLimit, Some(429), Some(3_600_000)),
            Self::Unauthorized => failed(FailureCode::Auth, Some(401), None),
            Self::Refused => failed(FailureCode::InvalidRequest, Some(400), None),
            Self::Malformed => failed(FailureCode::Protocol, None, None),
            Self::Aborted => FinishReason::Aborted { failure: Failure::new(FailureCode::Aborted, "it was stopped") },
        }
    }
}

fn any_part() -> impl Strategy<Value = Part> {
    let name = prop_oneof![6 => Just(Name::Known), 1 => Just(Name::Unknown), 1 => Just(Name::Missing)];
    let arguments = prop_oneof![
        6 => Just(Arguments::Object),
        1 => Just(Arguments::Nothing),
        1 => Just(Arguments::Truncated),
        1 => Just(Arguments::Array),
    ];
    prop_oneof![
        4 => (1u8..5, any::<bool>()).prop_map(|(pieces, closed)| Part::Text { pieces, closed }),
        1 => Just(Part::Blank),
        2 => any::<bool>().prop_map(|closed| Part::Reasoning { closed }),
        5 => (name, arguments, prop::bool::weighted(0.9), prop::bool::weighted(0.8))
            .prop_map(|(name, arguments, closed, own_id)| Part::Call { name, arguments, closed, own_id }),
        1 => Just(Part::Pause),
    ]
}

fn any_end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Stop),
        4 => Just(End::ToolCalls),
        2 => Just(End::MaxTokens),
        3 => Just(End::Cut),
        2 => Just(End::Overloaded),
        1 => Just(End::RateLimit),
        1 => Just(End::LongRateLimit),
        1 => Just(End::Unauthorized),
        1 => Just(End::Refused),
        1 => Just(End::Aborted),
        2 => any::<bool>().prop_map(|finishes| End::Stall { finishes }),
        1 => Just(End::Malformed),
    ]
}

fn any_attempt() -> impl Strategy<Value = Attempt> {
    let envelope = prop_oneof![Just(Envelope::None), Just(Envelope::Fits), Just(Envelope::Misfits)];
    let any = (prop::collection::vec(any_part(), 0..5), any_end(), envelope)
        .prop_map(|(parts, end, envelope)| Attempt { parts, end, envelope });
    // A turn without calls is soon over, so that many attempts have one and end well.
    let call = Part::Call { name: Name::Known, arguments: Arguments::Object, closed: true, own_id: true };
    (any, prop::bool::weighted(0.4)).prop_map(move |(mut attempt, calls)| {
        if calls {
            attempt.parts.push(call);
            attempt.end = End::ToolCalls;
        }
        attempt
    })
}

fn any_moment() -> impl Strategy<Value = Moment> {
    // Some moments are in every prompt, some in few.
    prop_oneof![
        2 => Just(Moment::Chunk),
        8 => prop::sample::select(&MOMENTS[..]),
        1 => Just(Moment::Stall),
        2 => Just(Moment::Wait),
        2 => Just(Moment::Discarded),
    ]
}

fn any_interrupt() -> impl Strategy<Value = Interrupt> {
    let what = prop::sample::select(vec![What::Cancel, What::Crash]);
    (any_moment(), 0u8..12, prop::sample::select(vec![0u8, 0, 0, 1, 2]), what).prop_map(|(at, chunk, nth, what)| {
        // Chunks are many; of the others there are a few.
        let nth = if at == Moment::Chunk { chunk } else { nth };
        Interrupt { at, nth, what }
    })
}

fn any_prompt() -> impl Strategy<Value = Prompt> {
    let tool = prop_oneof![2 => Just(Tool::Succeeds), 1 => Just(Tool::Fails), 1 => Just(Tool::TimesOut)];
    let cut = || prop_oneof![1 => Just(0u8), 1 => Just(255u8), 3 => any::<u8>()];
    (
        prop::collection::vec(any_attempt(), 0..5),
        prop::collection::vec(tool, 0..4),
        prop::collection::vec(any_interrupt(), 0..4),
        cut(),
        prop::option::weighted(0.3, cut()),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(attempts, tools, interrupts, cut, cut_again, reopen)| Prompt {
            attempts,
            tools,
            interrupts,
            cut,
            cut_again,
            reopen,
        })
}

/// Any plan of up to three prompts.
pub fn any_plan() -> impl Strategy<Value = Plan> {
    prop::collection::vec(any_prompt(), 1..4).prop_map(Plan)
}
