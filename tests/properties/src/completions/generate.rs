//! Answers in every form that servers of this wire, and of those that answer like it, send them; and what a decoder
//! must make of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::decoding::Answer;
use crate::layout::{Layout, arounds, layouts};
use crate::material::{Called, Runs, Said, by_turns, called, done, is_success, opaque, said, sent};

/// What differs between the wires that answer like this one.
#[derive(Debug)]
pub struct Dialect {
    /// What an answer may hold.
    pub parts: fn() -> BoxedStrategy<Part>,
    /// How it may end.
    pub reasons: &'static [(&'static str, Meaning)],
    /// Names and data of events that end it with `SERVER`.
    pub errors: &'static [(&'static str, &'static str)],
    /// Id of the call of this number.
    pub id: fn(usize) -> String,
    /// A document without a finish reason is complete.
    pub any_document_is_whole: bool,
    /// How the next request holds the reasoning.
    pub reasoning: fn(&Runs) -> Vec<String>,
}

/// What a finish reason means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The model was done.
    Done,
    /// The output limit.
    Limit,
    /// A filter.
    Filtered,
    /// The provider gave up.
    Failed,
    /// Nobody knows: an end only together with the mark.
    Unknown,
}

/// How a server tells its parallel calls apart.
#[derive(Debug, Clone, Copy)]
pub enum Calling {
    /// By index; the fragments of several calls may come by turns.
    Index {
        /// They do.
        by_turns: bool,
    },
    /// By id alone, repeated in every fragment.
    Id {
        /// The fragments of several calls come by turns.
        by_turns: bool,
    },
    /// Neither index nor id in a continuation.
    Order,
    /// Arguments as an object, not as a string.
    Object,
}

/// A part of an answer, in the order of the stream.
#[derive(Debug, Clone)]
pub enum Part {
    /// `content`
    Text(Said),
    /// `content` as a list of texts.
    TextParts(Said),
    /// `refusal`
    Refusal(Said),
    /// Reasoning in the field of this name.
    Reasoning(&'static str, Said),
    /// `content` as a list of thoughts.
    ThinkingParts(Said),
    /// `reasoning_details` that can be read, with a signature at their end, perhaps repeated in a field.
    Details {
        /// The text.
        said: Said,
        /// Its signature.
        signature: Said,
        /// Where else it stands.
        field: Option<&'static str>,
        /// Type of the detail and member with the text.
        member: (&'static str, &'static str),
    },
    /// `reasoning_details` that cannot be read.
    Encrypted(Said),
    /// `tool_calls`
    Calls(Vec<Called>, Calling),
    /// `function_call`
    Legacy(Called),
    /// An event that says nothing.
    Noise(&'static str),
}

/// How the calls of a server come that numbers them.
pub fn indexed_calls() -> impl Strategy<Value = Part> {
    (vec(called(), 1..4), any::<bool>()).prop_map(|(calls, by_turns)| Part::Calls(calls, Calling::Index { by_turns }))
}

/// Events that say nothing.
pub fn noise() -> impl Strategy<Value = Part> {
    let noise = select(
        &[
            "",
            "{}",
            "7",
            "[]",
            "null",
            "\"\\ud83d\"",
            "{\"choices\":[]}",
            "{\"choices\":[{\"delta\":{}}]}",
            "{\"choices\":[{\"delta\":{\"content\":\"\",\"role\":\"assistant\"},\"finish_reason\":null}]}",
            "{\"choices\":[{\"delta\":{\"content\":null,\"tool_calls\":null,\"reasoning_content\":\"\"}}]}",
            "{\"id\":\"r-2\",\"model\":\"other\",\"choices\":[],\"error\":null}",
            "{\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0}}",
            "{\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":\"2\"}}",
        ][..],
    );
    noise.prop_map(Part::Noise)
}

fn parts() -> BoxedStrategy<Part> {
    let field = || select(&["reasoning_content", "reasoning", "reasoning_text"][..]);
    let member = select(&[("reasoning.text", "text"), ("reasoning.summary", "summary")][..]);
    let calling = prop_oneof![
        1 => any::<bool>().prop_map(|by_turns| Calling::Id { by_turns }),
        1 => Just(Calling::Order),
        1 => Just(Calling::Object),
    ];
    prop_oneof![
        6 => said().prop_map(Part::Text),
        1 => said().prop_map(Part::TextParts),
        1 => said().prop_map(Part::Refusal),
        4 => (field(), said()).prop_map(|(field, said)| Part::Reasoning(field, said)),
        1 => said().prop_map(Part::ThinkingParts),
        2 => (said(), opaque(), proptest::option::of(field()), member)
            .prop_map(|(said, signature, field, member)| Part::Details { said, signature, field, member }),
        1 => opaque().prop_map(Part::Encrypted),
        2 => indexed_calls(),
        2 => (vec(called(), 1..4), calling).prop_map(|(calls, calling)| Part::Calls(calls, calling)),
        1 => called().prop_map(Part::Legacy),
        4 => noise(),
    ]
    .boxed()
}

/// Servers of this wire.
pub const DIALECT: Dialect = Dialect {
    parts,
    reasons: &[
        ("stop", Meaning::Done),
        ("stop", Meaning::Done),
        ("STOP", Meaning::Done),
        ("end_turn", Meaning::Done),
        ("tool_calls", Meaning::Done),
        ("function_call", Meaning::Done),
        ("length", Meaning::Limit),
        ("max_tokens", Meaning::Limit),
        ("content_filter", Meaning::Filtered),
        ("network_error", Meaning::Failed),
        ("eos_token_found", Meaning::Unknown),
        ("\\u0073top", Meaning::Done),
    ],
    errors: &[
        ("", "{\"error\":{\"message\":\"gone\",\"code\":502}}"),
        ("", "{\"error\":\"gone\"}"),
        ("error", "{\"message\":\"gone\"}"),
        ("error", "upstream is gone"),
        ("", "{\"object\":\"error\",\"message\":\"gone\"}"),
        ("", "{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\",\"error\":{\"message\":\"gone\"}}]}"),
    ],
    id: |number| format!("call_{number}"),
    any_document_is_whole: true,
    // It goes back in a field that the manifest chooses, or as the details that it came in.
    reasoning: |_| Vec::new(),
};

/// How an answer ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// A finish reason, usage in one of its places, perhaps the mark.
    Reason { reason: (&'static str, Meaning), usage: &'static str, mark: bool },
    /// An error object or event.
    Error { name: &'static str, data: &'static str },
    /// The mark alone.
    Mark,
    /// Nothing.
    Nothing,
}

fn ending(dialect: &Dialect) -> impl Strategy<Value = Ending> {
    let usage = select(&["", "beside", "choice", "after"][..]);
    let (reason, error) = (select(dialect.reasons), select(dialect.errors));
    prop_oneof![
        8 => (reason, usage, any::<bool>()).prop_map(|(reason, usage, mark)| Ending::Reason { reason, usage, mark }),
        1 => error.prop_map(|(name, data)| Ending::Error { name, data }),
        1 => Just(Ending::Mark),
        1 => Just(Ending::Nothing),
    ]
}

const USAGE: &str = r#"{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}"#;

/// Answers of this dialect.
pub fn answers(dialect: &'static Dialect) -> BoxedStrategy<Answer> {
    prop_oneof![9 => streams(dialect), 1 => documents(dialect)].boxed()
}

/// Event streams.
fn streams(dialect: &'static Dialect) -> impl Strategy<Value = Answer> {
    (vec((dialect.parts)(), 0..6), ending(dialect), layouts()).prop_map(move |(parts, ending, layout)| {
        let mut writer = Writer::new(dialect, layout);
        for part in &parts {
            writer.part(part);
        }
        writer.end(ending)
    })
}

struct Writer {
    dialect: &'static Dialect,
    layout: Layout,
    body: Vec<u8>,
    runs: Runs,
    calls: Vec<(String, String)>,
    /// What only the provider reads, as it is written, and the ids of calls.
    opaque: Vec<String>,
    legacy: bool,
}

impl Writer {
    fn new(dialect: &'static Dialect, layout: Layout) -> Self {
        let (body, runs) = (layout.start(), Runs::default());
        Self { dialect, layout, body, runs, calls: Vec::new(), opaque: Vec::new(), legacy: false }
    }

    fn event(&mut self, data: &str) -> usize {
        self.layout.event(&mut self.body, "", data)
    }

    fn delta(&mut self, members: &str) {
        self.event(&format!(
            r#"{{"id":"r-1","object":"chat.completion.chunk","model":"m-1","choices":[{{"index":0,"delta":{{{members}}},"finish_reason":null}}]}}"#
        ));
    }

    fn part(&mut self, part: &Part) {
        match part {
            Part::Text(said) => {
                self.runs.push(true, &said.units);
                said.strings().iter().for_each(|text| self.delta(&format!(r#""content":{text}"#)));
            }
            Part::TextParts(said) => {
                self.runs.push(true, &said.units);
                let part = |text: &String| format!(r#"{{"type":"text","text":{text}}},{{"type":"odd"}}"#);
                let parts: Vec<_> = said.strings().iter().map(part).collect();
                self.delta(&format!(r#""content":[{}]"#, parts.join(",")));
            }
            Part::Refusal(said) => {
                self.runs.push(true, &said.units);
                said.strings().iter().for_each(|text| self.delta(&format!(r#""content":null,"refusal":{text}"#)));
            }
            Part::Reasoning(field, said) => {
                self.runs.push(false, &said.units);
                said.strings().iter().for_each(|text| self.delta(&format!(r#""{field}":{text},"content":null"#)));
            }
            Part::ThinkingParts(said) => {
                self.runs.push(false, &said.units);
                for text in said.strings() {
                    let thought = format!(r#"{{"type":"thinking","thinking":[{{"type":"text","text":{text}}}]}}"#);
                    self.delta(&format!(r#""content":[{thought}]"#));
                }
            }
            Part::Details { said, signature, field, member: (kind, member) } => {
                self.runs.push(false, &said.units);
                let signature = format!(r#","signature":{}"#, signature.whole());
                let texts = said.strings();
                for (at, text) in texts.iter().enumerate() {
                    let beside = field.map_or_else(String::new, |field| format!(r#""{field}":{text},"#));
                    let signature = if at + 1 == texts.len() { &*signature } else { "" };
                    self.delta(&format!(
                        r#"{beside}"reasoning_details":[{{"type":"{kind}","index":0,"{member}":{text}{signature}}}]"#
                    ));
                }
            }
            Part::Encrypted(data) => {
                let (id, data) = ((self.dialect.id)(self.calls.len()), data.whole());
                self.delta(&format!(
                    r#""reasoning_details":[{{"type":"reasoning.encrypted","id":"{id}","data":{data}}}]"#
                ));
                self.opaque.push(format!(r#""data":{data}"#));
            }
            Part::Calls(calls, calling) => self.calls(calls, *calling),
            Part::Legacy(call) if !self.legacy => {
                self.legacy = true;
                self.expect(call);
                for (at, arguments) in call.arguments.strings().iter().enumerate() {
                    let name = if at == 0 { format!(r#""name":"{}","#, call.name) } else { String::new() };
                    self.delta(&format!(r#""function_call":{{{name}"arguments":{arguments}}}"#));
                }
            }
            Part::Legacy(_) => {}
            Part::Noise(data) => {
                self.event(data);
            }
        }
    }

    fn expect(&mut self, call: &Called) {
        self.runs.interrupt();
        self.calls.push((call.name.to_owned(), call.arguments.text()));
    }

    fn calls(&mut self, calls: &[Called], calling: Calling) {
        let mut lists = Vec::new();
        for call in calls {
            let number = self.calls.len();
            self.expect(call);
            let id = format!(r#""id":"{}","#, (self.dialect.id)(number));
            self.opaque.push(id.trim_end_matches(',').to_owned());
            let index =
                if matches!(calling, Calling::Index { .. }) { format!(r#""index":{number},"#) } else { String::new() };
            let name = format!(r#""name":"{}","#, call.name);
            let arguments = match calling {
                Calling::Object => vec![call.arguments.text()],
                Calling::Index { .. } | Calling::Id { .. } | Calling::Order => call.arguments.strings(),
            };
            let event = |(turn, arguments): (usize, &String)| {
                let (id, name) = match (turn, calling) {
                    (0, _) => (&*id, &*name),
                    (_, Calling::Id { .. }) => (&*id, ""),
                    _ => ("", ""),
                };
                format!(r#"{{{index}{id}"type":"function","function":{{{name}"arguments":{arguments}}}}}"#)
            };
            lists.push(arguments.iter().enumerate().map(event).collect());
        }
        let turns = matches!(calling, Calling::Index { by_turns: true } | Calling::Id { by_turns: true });
        for call in by_turns(lists, turns) {
            self.delta(&format!(r#""tool_calls":[{call}]"#));
        }
    }

    fn end(mut self, ending: Ending) -> Answer {
        let (mut complete_at, mut outcome) = (None, "TRANSPORT");
        if !matches!(ending, Ending::Reason { .. }) {
            self.runs.cut();
        }
        match ending {
            Ending::Reason { reason: (reason, meaning), usage, mark } => {
                let beside = if usage == "beside" { format!(r#","usage":{USAGE}"#) } else { String::new() };
                let inside = if usage == "choice" { format!(r#","usage":{USAGE}"#) } else { String::new() };
                let named = self.event(&format!(
                    r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"{inside}}}]{beside}}}"#
                ));
                if usage == "after" {
                    self.event(&format!(r#"{{"choices":[],"usage":{USAGE}}}"#));
                }
                let marked = mark.then(|| self.event("[DONE]"));
                (complete_at, outcome) = match meaning {
                    Meaning::Done => (Some(named), done(&self.calls, &self.runs)),
                    Meaning::Limit => (Some(named), "max-tokens"),
                    Meaning::Filtered => (None, "REFUSED"),
                    Meaning::Failed => (None, "SERVER"),
                    Meaning::Unknown if mark => (marked, done(&self.calls, &self.runs)),
                    Meaning::Unknown => (None, "TRANSPORT"),
                };
            }
            Ending::Error { name, data } => {
                self.layout.event(&mut self.body, name, data);
                self.event("[DONE]");
                outcome = "SERVER";
            }
            Ending::Mark => drop(self.event("[DONE]")),
            Ending::Nothing => {}
        }
        let calls = &self.calls;
        let goes_back = is_success(outcome) && (!calls.is_empty() || !self.runs.texts(true).trim().is_empty());
        let mut returned = Vec::new();
        if goes_back {
            returned.append(&mut self.opaque);
            returned.extend(calls.iter().map(|(_, arguments)| format!(r#""arguments":{}"#, sent(arguments))));
            returned.extend((self.dialect.reasoning)(&self.runs));
        }
        Answer {
            complete_at: complete_at.filter(|_| is_success(outcome)),
            outcome,
            text: self.runs.texts(true),
            reasoning: self.runs.texts(false),
            calls: self.calls,
            returned,
            body: self.body,
        }
    }
}

/// Answers that are one JSON document.
fn documents(dialect: &'static Dialect) -> impl Strategy<Value = Answer> {
    let reason = select(&["\"stop\"", "\"tool_calls\"", "null", "\"length\""][..]);
    (said(), proptest::option::of(said()), vec(called(), 0..3), reason, arounds()).prop_map(
        move |(said, thought, calls, reason, around)| {
            let call = |(at, call): (usize, &Called)| {
                let arguments = call.arguments.whole();
                let id = (dialect.id)(at);
                format!(r#"{{"id":"{id}","function":{{"name":"{}","arguments":{arguments}}}}}"#, call.name)
            };
            let listed: Vec<_> = calls.iter().enumerate().map(call).collect();
            let thinking = thought.as_ref().map_or_else(|| "null".to_owned(), Said::whole);
            let document = format!(
                r#"{{"id":"r","choices":[{{"message":{{"content":{},"reasoning_content":{thinking},"tool_calls":[{}]}},"finish_reason":{reason}}}],"usage":{USAGE}}}"#,
                said.whole(),
                listed.join(",")
            );
            let mut runs = Runs::default();
            runs.push(false, thought.as_ref().map_or(&[], |thought| &thought.units));
            runs.push(true, &said.units);
            if !calls.is_empty() {
                runs.interrupt();
            }
            let calls: Vec<_> =
                calls.iter().map(|call| (call.name.to_owned(), call.arguments.text())).collect();
            let is_blank = runs.texts(true).is_empty() && runs.texts(false).is_empty();
            let outcome = match reason {
                "\"length\"" => "max-tokens",
                "null" if !dialect.any_document_is_whole || (is_blank && calls.is_empty()) => "PROTOCOL",
                _ => done(&calls, &runs),
            };
            if outcome == "PROTOCOL" {
                runs.cut();
            }
            let (body, complete_at) = around.put(&document);
            Answer {
                complete_at: is_success(outcome).then_some(complete_at),
                body,
                outcome,
                text: runs.texts(true),
                reasoning: runs.texts(false),
                returned: Vec::new(),
                calls,
            }
        },
    )
}
