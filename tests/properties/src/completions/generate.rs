//! Answers in every form that servers of this wire send them, and what a decoder must make of them.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::layout::{Layout, layouts};
use crate::decoding::Answer;
use crate::json_text::{Units, fragments, string, text, units};

/// A text and the places where the stream cuts it.
#[derive(Debug, Clone)]
struct Said {
    units: Units,
    cuts: Vec<Index>,
    escapes: Vec<bool>,
}

fn said() -> impl Strategy<Value = Said> {
    (units(), vec(any::<Index>(), 0..4), vec(proptest::bool::weighted(0.2), 1..4))
        .prop_map(|(units, cuts, escapes)| Said { units, cuts, escapes })
}

impl Said {
    /// JSON strings of the fragments.
    fn strings(&self) -> Vec<String> {
        fragments(&self.units, &self.cuts).into_iter().map(|part| string(part, &self.escapes)).collect()
    }

    fn whole(&self) -> String {
        string(&self.units, &self.escapes)
    }
}

/// A tool call: its name and its arguments, which are the JSON text of an object.
#[derive(Debug, Clone)]
struct Called {
    name: &'static str,
    arguments: Said,
}

fn called() -> impl Strategy<Value = Called> {
    (
        select(&["bash", "read_file", "f"][..]),
        said(),
        select(&["", r#""n":12345678901234567890123,"#, r#""a":1,"a":2,"#][..]),
    )
        .prop_map(|(name, mut arguments, more)| {
            // Half a pair inside arguments is for the reader of the arguments; it stays out of this.
            let whole: Units = text(&arguments.units).encode_utf16().collect();
            let value = string(&whole, &arguments.escapes);
            arguments.units = format!("{{{more}\"value\":{value}}}").encode_utf16().collect();
            Called { name, arguments }
        })
}

/// How a server tells its parallel calls apart.
#[derive(Debug, Clone, Copy)]
enum Calling {
    /// By index; the fragments of several calls may come by turns.
    Index { by_turns: bool },
    /// By id alone, repeated in every fragment.
    Id { by_turns: bool },
    /// Neither index nor id in a continuation.
    Order,
    /// Arguments as an object, not as a string.
    Object,
}

/// A part of an answer, in the order of the stream.
#[derive(Debug, Clone)]
enum Part {
    Text(Said),
    TextParts(Said),
    Refusal(Said),
    Reasoning(&'static str, Said),
    ThinkingParts(Said),
    Details { said: Said, field: Option<&'static str>, member: (&'static str, &'static str) },
    Encrypted(Said),
    Calls(Vec<Called>, Calling),
    Legacy(Called),
    Noise(&'static str),
}

fn part() -> impl Strategy<Value = Part> {
    let field = || select(&["reasoning_content", "reasoning", "reasoning_text"][..]);
    let member = select(&[("reasoning.text", "text"), ("reasoning.summary", "summary")][..]);
    let calling = prop_oneof![
        2 => any::<bool>().prop_map(|by_turns| Calling::Index { by_turns }),
        1 => any::<bool>().prop_map(|by_turns| Calling::Id { by_turns }),
        1 => Just(Calling::Order),
        1 => Just(Calling::Object),
    ];
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
    prop_oneof![
        6 => said().prop_map(Part::Text),
        1 => said().prop_map(Part::TextParts),
        1 => said().prop_map(Part::Refusal),
        4 => (field(), said()).prop_map(|(field, said)| Part::Reasoning(field, said)),
        1 => said().prop_map(Part::ThinkingParts),
        2 => (said(), proptest::option::of(field()), member)
            .prop_map(|(said, field, member)| Part::Details { said, field, member }),
        1 => said().prop_map(Part::Encrypted),
        3 => (vec(called(), 1..4), calling).prop_map(|(calls, calling)| Part::Calls(calls, calling)),
        1 => called().prop_map(Part::Legacy),
        4 => noise.prop_map(Part::Noise),
    ]
}

/// How an answer ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// A finish reason, usage in one of its places, perhaps the mark.
    Reason { reason: &'static str, usage: &'static str, mark: bool },
    /// An error object or event.
    Error { name: &'static str, data: &'static str },
    /// The mark alone.
    Mark,
    /// Nothing.
    Nothing,
}

fn ending() -> impl Strategy<Value = Ending> {
    let reason = select(
        &[
            "stop",
            "stop",
            "STOP",
            "end_turn",
            "tool_calls",
            "function_call",
            "length",
            "max_tokens",
            "content_filter",
            "network_error",
            "eos_token_found",
            "\\u0073top",
        ][..],
    );
    let usage = select(&["", "beside", "choice", "after"][..]);
    let error = select(
        &[
            ("", "{\"error\":{\"message\":\"gone\",\"code\":502}}"),
            ("", "{\"error\":\"gone\"}"),
            ("error", "{\"message\":\"gone\"}"),
            ("error", "upstream is gone"),
            ("", "{\"object\":\"error\",\"message\":\"gone\"}"),
            ("", "{\"choices\":[{\"delta\":{},\"finish_reason\":\"error\",\"error\":{\"message\":\"gone\"}}]}"),
        ][..],
    );
    prop_oneof![
        8 => (reason, usage, any::<bool>()).prop_map(|(reason, usage, mark)| Ending::Reason { reason, usage, mark }),
        1 => error.prop_map(|(name, data)| Ending::Error { name, data }),
        1 => Just(Ending::Mark),
        1 => Just(Ending::Nothing),
    ]
}

const USAGE: &str = r#"{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}"#;

/// Event streams.
pub(super) fn streams() -> impl Strategy<Value = Answer> {
    (vec(part(), 0..6), ending(), layouts()).prop_map(|(parts, ending, layout)| {
        let mut writer = Writer::new(layout);
        for part in &parts {
            writer.part(part);
        }
        writer.end(ending)
    })
}

/// Blocks that are text or reasoning, each a run of deltas with nothing of the other kind between them.
#[derive(Debug, Default)]
struct Runs(Vec<(bool, Units)>);

impl Runs {
    fn push(&mut self, is_text: bool, units: &[u16]) {
        match self.0.last_mut() {
            _ if units.is_empty() => {}
            Some((kind, known)) if *kind == is_text => known.extend_from_slice(units),
            _ => self.0.push((is_text, units.to_vec())),
        }
    }

    /// A call stands between what comes before and after it.
    fn interrupt(&mut self) {
        for kind in [true, false] {
            self.0.push((kind, Vec::new()));
        }
    }

    /// Half a pair at the end of a block that is never closed still waits for its partner.
    fn cut(&mut self) {
        if let Some((_, units)) = self.0.last_mut() {
            units.pop_if(|unit| (0xd800..0xdc00).contains(unit));
        }
    }

    fn texts(&self, wanted: bool) -> String {
        self.0.iter().filter(|(is_text, _)| *is_text == wanted).map(|(_, units)| text(units)).collect()
    }
}

struct Writer {
    layout: Layout,
    body: Vec<u8>,
    runs: Runs,
    calls: Vec<(String, String)>,
    legacy: bool,
}

impl Writer {
    fn new(layout: Layout) -> Self {
        Self { body: layout.start(), layout, runs: Runs::default(), calls: Vec::new(), legacy: false }
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
            Part::Details { said, field, member: (kind, member) } => {
                self.runs.push(false, &said.units);
                for text in said.strings() {
                    let beside = field.map_or_else(String::new, |field| format!(r#""{field}":{text},"#));
                    self.delta(&format!(
                        r#"{beside}"reasoning_details":[{{"type":"{kind}","index":0,"{member}":{text},"signature":"S=="}}]"#
                    ));
                }
            }
            Part::Encrypted(said) => {
                let (id, data) = (self.calls.len(), said.whole());
                self.delta(&format!(
                    r#""reasoning_details":[{{"type":"reasoning.encrypted","id":"call_{id}","data":{data}}}]"#
                ));
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
        self.calls.push((call.name.to_owned(), text(&call.arguments.units)));
    }

    fn calls(&mut self, calls: &[Called], calling: Calling) {
        let mut events: Vec<(usize, String)> = Vec::new();
        for call in calls {
            let number = self.calls.len();
            self.expect(call);
            let id = format!(r#""id":"call_{number}","#);
            let index = format!(r#""index":{number},"#);
            let name = format!(r#""name":"{}","#, call.name);
            let arguments = match calling {
                Calling::Object => vec![text(&call.arguments.units)],
                Calling::Index { .. } | Calling::Id { .. } | Calling::Order => call.arguments.strings(),
            };
            for (turn, arguments) in arguments.iter().enumerate() {
                let (id, name) = match (turn, calling) {
                    (0, _) => (&*id, &*name),
                    (_, Calling::Id { .. }) => (&*id, ""),
                    _ => ("", ""),
                };
                let index = if matches!(calling, Calling::Index { .. }) { &*index } else { "" };
                events.push((
                    turn,
                    format!(r#"{{{index}{id}"type":"function","function":{{{name}"arguments":{arguments}}}}}"#),
                ));
            }
        }
        if let Calling::Index { by_turns: true } | Calling::Id { by_turns: true } = calling {
            // A stable sort: of each call the first fragment, then of each the second.
            events.sort_by_key(|(turn, _)| *turn);
        }
        for (_, call) in events {
            self.delta(&format!(r#""tool_calls":[{call}]"#));
        }
    }

    fn end(mut self, ending: Ending) -> Answer {
        let (mut complete_at, mut outcome) = (None, "TRANSPORT");
        if !matches!(ending, Ending::Reason { .. }) {
            self.runs.cut();
        }
        match ending {
            Ending::Reason { reason, usage, mark } => {
                let beside = if usage == "beside" { format!(r#","usage":{USAGE}"#) } else { String::new() };
                let inside = if usage == "choice" { format!(r#","usage":{USAGE}"#) } else { String::new() };
                let named = self.event(&format!(
                    r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"{inside}}}]{beside}}}"#
                ));
                if usage == "after" {
                    self.event(&format!(r#"{{"choices":[],"usage":{USAGE}}}"#));
                }
                let marked = mark.then(|| self.event("[DONE]"));
                (complete_at, outcome) = match reason {
                    "content_filter" => (None, "REFUSED"),
                    "network_error" => (None, "SERVER"),
                    // A reason that nobody knows is an end only together with the mark.
                    "eos_token_found" if !mark => (None, "TRANSPORT"),
                    "eos_token_found" => (marked, self.done()),
                    "length" | "max_tokens" => (Some(named), "max-tokens"),
                    _ => (Some(named), self.done()),
                };
                if outcome == "EMPTY_RESPONSE" {
                    complete_at = None;
                }
            }
            Ending::Error { name, data } => {
                self.layout.event(&mut self.body, name, data);
                self.event("[DONE]");
                outcome = "SERVER";
            }
            Ending::Mark => drop(self.event("[DONE]")),
            Ending::Nothing => {}
        }
        Answer {
            complete_at,
            outcome,
            text: self.runs.texts(true),
            reasoning: self.runs.texts(false),
            calls: self.calls,
            body: self.body,
        }
    }

    fn done(&self) -> &'static str {
        match (&self.calls[..], self.runs.texts(true).trim()) {
            ([_, ..], _) => "tool-calls",
            ([], "") => "EMPTY_RESPONSE",
            ([], _) => "stop",
        }
    }
}

/// Answers that are one JSON document.
pub(super) fn documents() -> impl Strategy<Value = Answer> {
    let around = || select(&["", "\n", " \r\n", "\t"][..]);
    let reason = select(&["\"stop\"", "\"tool_calls\"", "null", "\"length\""][..]);
    (said(), proptest::option::of(said()), vec(called(), 0..3), reason, any::<bool>(), (around(), around())).prop_map(
        |(said, thought, calls, reason, mark, (before, after))| {
            let call = |(at, call): (usize, &Called)| {
                let arguments = call.arguments.whole();
                format!(r#"{{"id":"call_{at}","function":{{"name":"{}","arguments":{arguments}}}}}"#, call.name)
            };
            let listed: Vec<_> = calls.iter().enumerate().map(call).collect();
            let thinking = thought.as_ref().map_or_else(|| "null".to_owned(), Said::whole);
            let document = format!(
                r#"{{"id":"r","choices":[{{"message":{{"content":{},"reasoning_content":{thinking},"tool_calls":[{}]}},"finish_reason":{reason}}}],"usage":{USAGE}}}"#,
                said.whole(),
                listed.join(",")
            );
            let mark = if mark { "\u{feff}" } else { "" };
            let visible = text(&said.units);
            let reasoning = thought.as_ref().map_or_else(String::new, |thought| text(&thought.units));
            let anything = !visible.is_empty() || !reasoning.is_empty();
            let outcome = match reason {
                "\"length\"" => "max-tokens",
                _ if !calls.is_empty() => "tool-calls",
                "null" if !anything => "PROTOCOL",
                _ if visible.trim().is_empty() => "EMPTY_RESPONSE",
                _ => "stop",
            };
            let body = format!("{mark}{before}{document}{after}").into_bytes();
            let complete = !matches!(outcome, "PROTOCOL" | "EMPTY_RESPONSE");
            Answer {
                complete_at: complete.then(|| body.len() - after.len()),
                body,
                outcome,
                text: visible,
                reasoning,
                calls: calls.iter().map(|call| (call.name.to_owned(), text(&call.arguments.units))).collect(),
            }
        },
    )
}
