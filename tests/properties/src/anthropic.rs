//! The wire `anthropic-messages`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::decoding::{Answer, Wire};
use crate::layout::{Layout, arounds, layouts};
use crate::material::{Called, Runs, Said, by_turns, called, done, is_success, opaque, said};
use crate::reference::{document, events, unescaped};
use crate::repeating::Events;

/// What is shown of thinking that is hidden.
const REDACTED: &str = "[Reasoning redacted]";

/// See the module.
#[derive(Debug)]
pub struct Anthropic;

impl Wire for Anthropic {
    const API: &'static str = "anthropic-messages";

    const WORDS: &'static [&'static str] = &[
        "data: {\"type\":\"message_stop\"}\n\n",
        "event: message_stop\n",
        "message_stop",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
        "\"stop_reason\":\"end_turn\"",
        "\"stop_reason\":null",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"x\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"x\"}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "data: {\"type\":\"error\",\"error\":{\"message\":\"m\"}}\n\n",
        "event: error\n",
        "\"index\":0",
        "\"type\":",
        "data: ",
        "data: [DONE]\n\n",
        "\n\n",
        "\n",
        "\r",
        "\u{feff}",
        "\\ud83d",
        "\\ude00",
        "\"",
        "{",
        "}",
        "null",
    ];

    const EVENTS: Events = Events {
        starts: &[
            r#"{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":19,"output_tokens":1}}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":@}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"s","name":"f"}}"#,
        ],
        pieces: &[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":@}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":@} }"#,
            r#"{"index":0,"delta":{"text":@}}"#,
            r#"{"type":"content_block_delta","delta":{"text":@,"thinking":@}}"#,
            r#"{"type":"content_block_delta","index":#,"delta":{"type":"text_delta","text":@}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"thinking_delta","thinking":@}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":@}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":@}}"#,
            r#"{"type":"content_block_delta","index":#,"delta":{"type":"input_json_delta","partial_json":@}}"#,
            r#"{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":@}}"#,
            r#"{"type":@,"index":0,"delta":{"text":@}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":@,"text":"x"},"usage":{"output_tokens":#}}"#,
        ],
        ends: &[
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_stop","index":#}"#,
            r#"{"type":"content_block_start","index":#,"content_block":{"type":"text","text":@}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":#}}"#,
            r#"{"type":"message_stop"}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"error","error":{"message":@}}"#,
            "[DONE]",
            "",
        ],
        names: &["content_block_delta", "message_stop", "error", "ping"],
    };

    fn answers() -> BoxedStrategy<Answer> {
        prop_oneof![9 => streams(), 1 => documents()].boxed()
    }

    /// `message_stop` as the type or the name of an event, and a stop reason; or a document with a content.
    fn may_succeed(body: &[u8]) -> bool {
        if let Some(document) = document(body) {
            return unescaped(&document).contains("content");
        }
        let (events, open) = events(body);
        let events: Vec<_> = events.iter().chain(&open).map(|(name, data)| (&**name, unescaped(data))).collect();
        events.iter().any(|(name, data)| *name == "message_stop" || data.contains("message_stop"))
            && events.iter().any(|(_, data)| data.contains("stop_reason"))
    }
}

/// A block of an answer.
#[derive(Debug, Clone)]
enum Block {
    /// `early`: its beginning comes with its start.
    Text {
        said: Said,
        early: bool,
    },
    /// `late`: its signature comes after its end.
    Thinking {
        said: Said,
        signature: Option<Said>,
        late: bool,
    },
    Redacted(Said),
    /// `whole`: its arguments come with its start.
    Call {
        call: Called,
        whole: bool,
    },
    /// Of a kind that is not shown: type, and more of its start.
    Hidden(&'static str, &'static str),
}

/// What comes between the start and the end of an answer.
#[derive(Debug, Clone)]
enum Part {
    /// Blocks, perhaps open at once.
    Blocks(Vec<Block>, bool),
    /// Type and members of an event that says nothing.
    Noise(&'static str, &'static str),
    /// Data that says nothing.
    Odd(&'static str),
}

fn block() -> impl Strategy<Value = Block> {
    let hidden = select(
        &[
            ("server_tool_use", r#","id":"srvtoolu_1","name":"web_search","input":{}"#),
            ("web_search_tool_result", r#","tool_use_id":"srvtoolu_1","content":[{"encrypted_content":"x"}]"#),
            ("odd", ""),
        ][..],
    );
    let signature = proptest::option::weighted(0.8, opaque());
    prop_oneof![
        6 => (said(), any::<bool>()).prop_map(|(said, early)| Block::Text { said, early }),
        4 => (said(), signature, proptest::bool::weighted(0.1))
            .prop_map(|(said, signature, late)| Block::Thinking { said, signature, late }),
        1 => opaque().prop_map(Block::Redacted),
        4 => (called(), proptest::bool::weighted(0.2)).prop_map(|(call, whole)| Block::Call { call, whole }),
        1 => hidden.prop_map(|(kind, more)| Block::Hidden(kind, more)),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let noise = select(
        &[
            ("ping", ""),
            ("vendor_event", r#""index":0,"delta":{"text":"no"}"#),
            ("content_block_delta", r#""index":0,"delta":{"type":"citations_delta","citation":{"text":"no"}}"#),
            ("content_block_delta", r#""index":0,"delta":{"type":"odd_delta"}"#),
            ("message_delta", r#""delta":{},"usage":{"output_tokens":7}"#),
        ][..],
    );
    prop_oneof![
        4 => (vec(block(), 1..4), any::<bool>()).prop_map(|(blocks, at_once)| Part::Blocks(blocks, at_once)),
        1 => noise.prop_map(|(kind, members)| Part::Noise(kind, members)),
        1 => select(&["", "{}", "7", "[]", "null", "\"\\ud83d\"", "[DONE]"][..]).prop_map(Part::Odd),
    ]
}

/// What a gateway leaves out.
#[derive(Debug, Clone, Copy)]
struct Style {
    starts: bool,
    stops: bool,
    indexes: bool,
    /// Types of deltas.
    types: bool,
}

fn style() -> impl Strategy<Value = Style> {
    let mostly = || proptest::bool::weighted(0.85);
    (mostly(), mostly(), mostly(), mostly()).prop_map(|(starts, stops, indexes, types)| Style {
        starts,
        stops,
        // Without both there is no telling where a block ends.
        indexes: indexes || !stops,
        types,
    })
}

/// How an answer ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// A stop reason with more of its event, and the terminal event, perhaps with the mark of another wire.
    Stop { reason: (&'static str, &'static str), mark: bool },
    /// A stop reason, and nothing behind it.
    Reason,
    /// The terminal event, and no stop reason.
    NoReason,
    /// An error event: name and data.
    Error(&'static str, &'static str),
    /// Nothing.
    Nothing,
}

fn ending() -> impl Strategy<Value = Ending> {
    let reason = select(
        &[
            ("end_turn", "done"),
            ("end_turn", "done"),
            ("tool_use", "done"),
            ("stop_sequence", "done"),
            ("pause_turn", "done"),
            ("odd", "done"),
            ("\\u0065nd_turn", "done"),
            ("max_tokens", "max-tokens"),
            ("model_context_window_exceeded", "max-tokens"),
            ("refusal", "REFUSED"),
            ("sensitive", "REFUSED"),
            ("network_error", "SERVER"),
        ][..],
    );
    let error = select(
        &[
            ("error", r#"{"type":"error","error":{"type":"api_error","message":"gone"},"request_id":"req_1"}"#),
            ("", r#"{"type":"error","error":{"message":"gone"}}"#),
            ("error", r#"{"error":{"message":"gone"}}"#),
            ("", r#"{"error":"gone"}"#),
            ("error", "upstream is gone"),
        ][..],
    );
    prop_oneof![
        8 => (reason, any::<bool>()).prop_map(|(reason, mark)| Ending::Stop { reason, mark }),
        1 => Just(Ending::Reason),
        1 => Just(Ending::NoReason),
        1 => error.prop_map(|(name, data)| Ending::Error(name, data)),
        1 => Just(Ending::Nothing),
    ]
}

fn streams() -> impl Strategy<Value = Answer> {
    (vec(part(), 0..4), style(), ending(), layouts()).prop_map(|(parts, style, ending, layout)| {
        let mut writer = Writer { body: layout.start(), layout, style, index: 0, known: Known::default() };
        if style.starts {
            let message = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[],"stop_reason":null,"usage":{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}}"#;
            writer.event("message_start", &format!(r#""message":{message}"#));
        }
        for part in &parts {
            writer.part(part);
        }
        writer.end(ending)
    })
}

/// What a decoder must know of an answer.
#[derive(Debug, Default)]
struct Known {
    runs: Runs,
    calls: Vec<(String, String)>,
    /// What of each block goes back, and whether it is thinking.
    returned: Vec<(bool, Vec<String>)>,
}

impl Known {
    fn block(&mut self, block: &Block, is_open: bool) {
        let returned = match block {
            Block::Text { said, .. } => {
                self.runs.block(true, &said.units, is_open);
                (!said.text().trim().is_empty()).then(|| (false, vec![format!(r#""text":{}"#, said.sent())]))
            }
            Block::Thinking { said, signature, .. } => {
                self.runs.block(false, &said.units, is_open);
                let signed = signature.as_ref().map(Said::sent);
                signed.map(|sent| (true, vec![format!(r#""thinking":{},"signature":{sent}"#, said.sent())]))
            }
            Block::Redacted(data) => {
                self.runs.block(false, &REDACTED.encode_utf16().collect::<Vec<_>>(), false);
                Some((true, vec![format!(r#""data":{}"#, data.sent())]))
            }
            Block::Call { call, .. } => {
                let (id, arguments) = (self.calls.len(), call.arguments.text());
                let sent = vec![format!(r#""id":"toolu_{id}","#), format!(r#""input":{arguments}"#)];
                self.calls.push((call.name.to_owned(), arguments));
                Some((false, sent))
            }
            Block::Hidden(..) => None,
        };
        self.returned.extend(returned);
    }

    fn answer(mut self, body: Vec<u8>, outcome: &'static str, complete_at: usize) -> Answer {
        let outcome = if outcome == "done" { done(&self.calls, &self.runs) } else { outcome };
        // An answer may not end with thinking.
        while self.returned.pop_if(|(is_thinking, _)| *is_thinking).is_some() {}
        let returned = self.returned.into_iter().filter(|_| is_success(outcome)).flat_map(|(_, values)| values);
        Answer {
            body,
            complete_at: is_success(outcome).then_some(complete_at),
            outcome,
            text: self.runs.texts(true),
            reasoning: self.runs.texts(false),
            calls: self.calls,
            returned: returned.collect(),
        }
    }
}

struct Writer {
    layout: Layout,
    style: Style,
    body: Vec<u8>,
    /// Of the next block.
    index: usize,
    known: Known,
}

impl Writer {
    fn event(&mut self, kind: &str, members: &str) -> usize {
        self.layout.typed(&mut self.body, kind, members)
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Blocks(blocks, at_once) => {
                let lists = blocks.iter().map(|block| self.block(block)).collect();
                for (kind, members) in by_turns(lists, *at_once && self.style.indexes) {
                    self.event(kind, &members);
                }
            }
            Part::Noise(kind, members) => {
                self.event(kind, members);
            }
            Part::Odd(data) => {
                self.layout.event(&mut self.body, "", data);
            }
        }
    }

    /// Types and members of the events of a block.
    fn block(&mut self, block: &Block) -> Vec<(&'static str, String)> {
        let index = if self.style.indexes { format!(r#""index":{},"#, self.index) } else { String::new() };
        self.index += 1;
        let delta = |kind: &str, member: &str, value: &String| {
            let kind = if self.style.types { format!(r#""type":"{kind}","#) } else { String::new() };
            ("content_block_delta", format!(r#"{index}"delta":{{{kind}"{member}":{value}}}"#))
        };
        let mut late = Vec::new();
        let (start, mut events): (String, Vec<_>) = match block {
            Block::Text { said, early } => {
                let mut texts = said.strings();
                let first = if *early { texts.remove(0) } else { "\"\"".to_owned() };
                (
                    start_of("text", &format!(r#","text":{first}"#)),
                    texts.iter().map(|text| delta("text_delta", "text", text)).collect(),
                )
            }
            Block::Thinking { said, signature, late: is_late } => {
                let events = said.strings().iter().map(|text| delta("thinking_delta", "thinking", text)).collect();
                let signatures = signature.as_ref().map(Said::strings).unwrap_or_default();
                late.extend(signatures.iter().map(|signature| delta("signature_delta", "signature", signature)));
                let mut events: Vec<_> = events;
                if !is_late {
                    events.append(&mut late);
                }
                (start_of("thinking", r#","thinking":"","signature":"""#), events)
            }
            Block::Redacted(data) => {
                (start_of("redacted_thinking", &format!(r#","data":{}"#, data.whole())), Vec::new())
            }
            Block::Call { call, whole } => {
                let (id, name, arguments) = (self.known.calls.len(), call.name, &call.arguments);
                // What came with the start is shown at the end; it stays with blocks that have one.
                let whole = &(*whole && self.style.stops);
                let input = if *whole { arguments.text() } else { "{}".to_owned() };
                let pieces = if *whole { vec!["\"\"".to_owned()] } else { arguments.strings() };
                let events = pieces.iter().map(|piece| delta("input_json_delta", "partial_json", piece)).collect();
                (start_of("tool_use", &format!(r#","id":"toolu_{id}","name":"{name}","input":{input}"#)), events)
            }
            Block::Hidden(kind, more) => {
                (start_of(kind, more), vec![delta("input_json_delta", "partial_json", &"\"{}\"".to_owned())])
            }
        };
        events.insert(0, ("content_block_start", format!(r#"{index}"content_block":{start}"#)));
        if self.style.stops {
            events.push(("content_block_stop", index.trim_end_matches(',').to_owned()));
        }
        events.append(&mut late);
        self.known.block(block, !self.style.stops);
        events
    }

    fn end(mut self, ending: Ending) -> Answer {
        let usage = r#""usage":{"output_tokens":42}"#;
        let (mut complete_at, mut outcome) = (0, "TRANSPORT");
        if !matches!(ending, Ending::Stop { .. }) {
            self.known.runs.cut();
        }
        match ending {
            Ending::Stop { reason: (reason, meaning), mark } => {
                self.event(
                    "message_delta",
                    &format!(r#""delta":{{"stop_reason":"{reason}","stop_sequence":null}},{usage}"#),
                );
                complete_at = self.event("message_stop", "");
                if mark {
                    self.layout.event(&mut self.body, "", "[DONE]");
                }
                outcome = meaning;
            }
            Ending::Reason => {
                self.event("message_delta", &format!(r#""delta":{{"stop_reason":"end_turn"}},{usage}"#));
            }
            Ending::NoReason => {
                self.event("message_delta", &format!(r#""delta":{{"stop_reason":null}},{usage}"#));
                self.event("message_stop", "");
            }
            Ending::Error(name, data) => {
                self.layout.event(&mut self.body, name, data);
                self.event("message_stop", "");
                outcome = "SERVER";
            }
            Ending::Nothing => {}
        }
        self.known.answer(self.body, outcome, complete_at)
    }
}

fn start_of(kind: &str, more: &str) -> String {
    format!(r#"{{"type":"{kind}"{more}}}"#)
}

/// Answers that are one JSON document.
fn documents() -> impl Strategy<Value = Answer> {
    let reason = select(&[("\"end_turn\"", "done"), ("null", "done"), ("\"max_tokens\"", "max-tokens")][..]);
    (vec(block(), 0..4), reason, arounds()).prop_map(|(blocks, (reason, meaning), around)| {
        let mut known = Known::default();
        let content = |block: &Block| {
            let json = match block {
                Block::Text { said, .. } => start_of("text", &format!(r#","text":{}"#, said.whole())),
                Block::Thinking { said, signature, .. } => {
                    let signature = signature.as_ref().map_or_else(|| "\"\"".to_owned(), Said::whole);
                    start_of("thinking", &format!(r#","thinking":{},"signature":{signature}"#, said.whole()))
                }
                Block::Redacted(data) => start_of("redacted_thinking", &format!(r#","data":{}"#, data.whole())),
                Block::Call { call, .. } => {
                    let (id, name, input) = (known.calls.len(), call.name, call.arguments.text());
                    start_of("tool_use", &format!(r#","id":"toolu_{id}","name":"{name}","input":{input}"#))
                }
                Block::Hidden(kind, more) => start_of(kind, more),
            };
            known.block(block, false);
            json
        };
        let content: Vec<_> = blocks.iter().map(content).collect();
        let document = format!(
            r#"{{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{}],"stop_reason":{reason},"usage":{{"input_tokens":3,"output_tokens":4}}}}"#,
            content.join(",")
        );
        let (body, complete_at) = around.put(&document);
        known.answer(body, meaning, complete_at)
    })
}
