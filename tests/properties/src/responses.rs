//! The wire `openai-responses`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::decoding::{Answer, Wire};
use crate::layout::{Layout, arounds, layouts};
use crate::material::{Called, Runs, Said, by_turns, called, done, is_success, opaque, said, sent};
use crate::reference::{document, events, unescaped};
use crate::repeating::Events;

/// See the module.
#[derive(Debug)]
pub struct Responses;

/// The types of events that may end a response with a success: what its status says counts more than the type.
const TERMINAL: [&str; 6] = ["completed", "done", "incomplete", "failed", "cancelled", "canceled"];

impl Wire for Responses {
    const API: &'static str = "openai-responses";

    const WORDS: &'static [&'static str] = &[
        "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[]}}\n\n",
        "event: response.completed\n",
        "response.completed",
        "\"status\":\"completed\"",
        "\"status\":\"incomplete\"",
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":\"m\"}}}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"x\"}\n\n",
        "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"message\",\"content\":\"x\"}}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"name\":\"f\"}}\n\n",
        "{\"output\":[{\"type\":\"message\",\"content\":\"x\"}]}",
        "data: {\"type\":\"error\",\"message\":\"m\"}\n\n",
        "event: error\n",
        "\"output_index\":0",
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
            r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","model":"m"}}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"msg_1"}}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":""}}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#,
        ],
        pieces: &[
            r#"{"type":"response.output_text.delta","sequence_number":#,"item_id":"msg_1","output_index":0,"content_index":0,"delta":@,"logprobs":[],"obfuscation":@}"#,
            r#"{"type":"response.output_text.delta","sequence_number":#,"item_id":@,"output_index":0,"content_index":#,"delta":@}"#,
            r#"{"type":"response.output_text.delta","delta":@}"#,
            r#"{"item_id":"msg_1","output_index":0,"content_index":0,"delta":@}"#,
            r#"{"type":@,"item_id":"msg_1","delta":@}"#,
            r#"{"type":"response.refusal.delta","item_id":"msg_1","output_index":0,"content_index":1,"delta":@}"#,
            r#"{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":1,"delta":@}"#,
            r#"{"type":"response.function_call_arguments.delta","item_id":"fc_9","output_index":#,"delta":@}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":2,"summary_index":0,"delta":@}"#,
            r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":2,"summary_index":#,"delta":@}"#,
            r#"{"type":"response.reasoning_text.delta","item_id":"rs_1","output_index":2,"content_index":0,"delta":null,"text":@}"#,
        ],
        ends: &[
            r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":0,"content_index":#,"text":@}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"msg_1","content":[{"type":"output_text","text":@}]}}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":@}}"#,
            r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","usage":{"input_tokens":#,"output_tokens":#}}}"#,
            r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","id":"msg_1","content":[{"type":"output_text","text":@}]}]}}"#,
            r#"{"type":"error","message":@}"#,
            "[DONE]",
        ],
        names: &["response.output_text.delta", "response.completed", "error"],
    };

    fn answers() -> BoxedStrategy<Answer> {
        prop_oneof![9 => streams(), 1 => documents()].boxed()
    }

    /// A terminal event by its type or its name; or a document with an output.
    fn may_succeed(body: &[u8]) -> bool {
        if let Some(document) = document(body) {
            return unescaped(&document).contains("output");
        }
        let is_terminal = |text: &str| TERMINAL.iter().any(|word| text.contains(&format!("response.{word}")));
        let (events, open) = events(body);
        events.iter().chain(&open).any(|(name, data)| is_terminal(name) || is_terminal(&unescaped(data)))
    }
}

/// An item of the output.
#[derive(Debug, Clone)]
enum Item {
    /// Its parts, and which of them are refusals.
    Message(Vec<(Said, bool)>),
    /// `is_raw`: the reasoning itself, not summaries of it.
    Reasoning {
        parts: Vec<Said>,
        is_raw: bool,
        encrypted: Option<Said>,
    },
    Call(Called),
    /// Of a kind that is not shown.
    Hidden(&'static str),
}

/// Which events of an item come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streamed {
    /// All that OpenAI writes.
    Full,
    /// Its announcement, deltas and its end.
    Deltas,
    /// Its end.
    End,
    /// Its announcement and deltas, and no end.
    Open,
}

/// What comes between the start and the end of a response.
#[derive(Debug, Clone)]
enum Part {
    Item(Item, Streamed),
    /// Calls whose events come by turns.
    Calls(Vec<Called>),
    /// Type and members of an event that says nothing.
    Noise(&'static str, &'static str),
    /// Data that says nothing.
    Odd(&'static str),
}

fn item() -> impl Strategy<Value = Item> {
    let parts = vec((said(), proptest::bool::weighted(0.1)), 1..3);
    let encrypted = proptest::option::weighted(0.8, opaque());
    prop_oneof![
        5 => parts.prop_map(Item::Message),
        4 => (vec(said(), 1..4), any::<bool>(), encrypted)
            .prop_map(|(parts, is_raw, encrypted)| Item::Reasoning { parts, is_raw, encrypted }),
        3 => called().prop_map(Item::Call),
        1 => select(&["web_search_call", "odd"][..]).prop_map(Item::Hidden),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    let streamed =
        select(&[Streamed::Full, Streamed::Full, Streamed::Full, Streamed::Deltas, Streamed::End, Streamed::Open][..]);
    let noise = select(
        &[
            ("response.in_progress", r#""response":{"id":"resp_2","status":"in_progress"}"#),
            ("response.queued", ""),
            ("response.odd.delta", r#""output_index":0,"delta":"no""#),
            ("response.output_text.annotation.added", r#""output_index":0,"annotation":{"text":"no"}"#),
            ("response.web_search_call.completed", r#""output_index":9"#),
            ("rate_limits.updated", ""),
            ("keepalive", r#""sequence_number":3"#),
        ][..],
    );
    prop_oneof![
        6 => (item(), streamed).prop_map(|(item, streamed)| Part::Item(item, streamed)),
        1 => vec(called(), 2..4).prop_map(Part::Calls),
        1 => noise.prop_map(|(kind, members)| Part::Noise(kind, members)),
        1 => select(&["", "{}", "7", "[]", "null", "\"\\ud83d\""][..]).prop_map(Part::Odd),
    ]
}

/// How events say which item they are about.
#[derive(Debug, Clone, Copy)]
struct Keys {
    indexes: bool,
    ids: bool,
}

/// How a response ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// A terminal event: its type, the members that say why, and what they mean. `listed`: with the output. `mark`:
    /// with what ends streams of another wire.
    Terminal { end: (&'static str, &'static str, &'static str), listed: bool, mark: bool },
    /// An error event: name and data.
    Error(&'static str, &'static str),
    /// The mark alone.
    Mark,
    /// Nothing.
    Nothing,
}

fn ending() -> impl Strategy<Value = Ending> {
    let end = select(
        &[
            ("response.completed", r#""status":"completed","#, "done"),
            ("response.completed", r#""status":"completed","#, "done"),
            ("response.completed", r#""status":"completed","#, "done"),
            ("response.completed", "", "done"),
            ("response.done", r#""status":"completed","error":null,"#, "done"),
            (
                "response.incomplete",
                r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"#,
                "max-tokens",
            ),
            (
                "response.incomplete",
                r#""status":"incomplete","incomplete_details":{"reason":"content_filter"},"#,
                "REFUSED",
            ),
            ("response.failed", r#""status":"failed","error":{"code":"server_error","message":"gone"},"#, "SERVER"),
            ("response.failed", r#""status":"failed","#, "SERVER"),
            ("response.cancelled", r#""status":"cancelled","#, "SERVER"),
        ][..],
    );
    let error = select(
        &[
            ("error", r#"{"type":"error","code":"server_error","message":"gone","param":null}"#),
            ("", r#"{"type":"error","error":{"message":"gone"}}"#),
            ("", r#"{"error":{"message":"gone","code":502}}"#),
            ("error", r#"{"message":"gone"}"#),
            ("error", "upstream is gone"),
        ][..],
    );
    prop_oneof![
        8 => (end, any::<bool>(), any::<bool>()).prop_map(|(end, listed, mark)| Ending::Terminal { end, listed, mark }),
        1 => error.prop_map(|(name, data)| Ending::Error(name, data)),
        1 => Just(Ending::Mark),
        1 => Just(Ending::Nothing),
    ]
}

fn streams() -> impl Strategy<Value = Answer> {
    let keys = select(&[(true, true), (true, true), (true, false), (false, true)][..]);
    (vec(part(), 0..5), keys, ending(), layouts()).prop_map(|(parts, (indexes, ids), ending, layout)| {
        let keys = Keys { indexes, ids };
        let mut writer = Writer { body: layout.start(), layout, keys, items: Vec::new(), known: Known::default() };
        writer.event("response.created", r#""response":{"id":"resp_1","status":"in_progress","model":"m-1"}"#);
        let last = parts.len();
        for (at, part) in parts.into_iter().enumerate() {
            writer.part(part, at + 1 == last);
        }
        writer.end(ending)
    })
}

impl Item {
    /// The item of this number as JSON, announced or done.
    fn json(&self, number: usize, is_done: bool) -> String {
        let list = |items: Vec<String>| if is_done { items.join(",") } else { String::new() };
        let status = if is_done { "completed" } else { "in_progress" };
        match self {
            Self::Message(parts) => {
                let part = |(said, is_refusal): &(Said, bool)| match is_refusal {
                    true => format!(r#"{{"type":"refusal","refusal":{}}}"#, said.whole()),
                    false => format!(r#"{{"type":"output_text","text":{},"annotations":[]}}"#, said.whole()),
                };
                format!(
                    r#"{{"id":"msg_{number}","type":"message","status":"{status}","role":"assistant","content":[{}]}}"#,
                    list(parts.iter().map(part).collect())
                )
            }
            Self::Reasoning { parts, is_raw, encrypted } => {
                let kind = if *is_raw { "reasoning_text" } else { "summary_text" };
                let part = |said: &Said| format!(r#"{{"type":"{kind}","text":{}}}"#, said.whole());
                let parts = list(parts.iter().map(part).collect());
                let texts = match is_raw {
                    true => format!(r#""summary":[],"content":[{parts}]"#),
                    false => format!(r#""summary":[{parts}]"#),
                };
                let encrypted = encrypted.as_ref().filter(|_| is_done);
                let encrypted = encrypted.map(|data| format!(r#","encrypted_content":{}"#, data.whole()));
                format!(r#"{{"id":"rs_{number}","type":"reasoning",{texts}{}}}"#, encrypted.unwrap_or_default())
            }
            Self::Call(call) => {
                let arguments = if is_done { call.arguments.whole() } else { "\"\"".to_owned() };
                format!(
                    r#"{{"id":"fc_{number}","type":"function_call","status":"{status}","arguments":{arguments},"call_id":"call_{number}","name":"{}"}}"#,
                    call.name
                )
            }
            Self::Hidden(kind) => format!(r#"{{"id":"ws_{number}","type":"{kind}","status":"{status}"}}"#),
        }
    }

    /// What its id begins with.
    const fn prefix(&self) -> &'static str {
        match self {
            Self::Message(_) => "msg",
            Self::Reasoning { .. } => "rs",
            Self::Call(_) => "fc",
            Self::Hidden(_) => "ws",
        }
    }

    /// Its parts: the beginning of the type of their events, the name of their index, and their texts.
    fn parts(&self) -> Vec<(&'static str, &'static str, &Said)> {
        match self {
            Self::Message(parts) => {
                let kind = |is_refusal| if is_refusal { "response.refusal" } else { "response.output_text" };
                parts.iter().map(|(said, is_refusal)| (kind(*is_refusal), "content_index", said)).collect()
            }
            Self::Reasoning { parts, is_raw: true, .. } => {
                parts.iter().map(|said| ("response.reasoning_text", "content_index", said)).collect()
            }
            Self::Reasoning { parts, .. } => {
                parts.iter().map(|said| ("response.reasoning_summary_text", "summary_index", said)).collect()
            }
            Self::Call(call) => vec![("response.function_call_arguments", "", &call.arguments)],
            Self::Hidden(_) => Vec::new(),
        }
    }

    /// What is shown of it.
    fn text(&self, streamed: Streamed) -> Vec<u16> {
        match self {
            Self::Message(parts) => parts.iter().flat_map(|(said, _)| said.units.iter().copied()).collect(),
            Self::Reasoning { parts, is_raw, .. } if parts.len() > 1 || streamed == Streamed::End => {
                let mut out = String::new();
                for said in parts {
                    if !out.is_empty() {
                        out.push_str("\n\n");
                    }
                    out.push_str(&said.text());
                }
                // A summary that says nothing is not asked for what it says.
                let is_shown = *is_raw || streamed != Streamed::End || !out.trim().is_empty();
                if is_shown { out.encode_utf16().collect() } else { Vec::new() }
            }
            Self::Reasoning { parts, .. } => parts.iter().flat_map(|said| said.units.iter().copied()).collect(),
            Self::Call(_) | Self::Hidden(_) => Vec::new(),
        }
    }
}

/// A block of the answer and what goes back of it.
#[derive(Debug)]
struct Kept {
    number: usize,
    /// Reasoning that the server could read again; None for other blocks.
    reasoning: Option<bool>,
    id: String,
    returned: Vec<String>,
}

/// What a decoder must know of an answer.
#[derive(Debug, Default)]
struct Known {
    runs: Runs,
    calls: Vec<(String, String)>,
    kept: Vec<Kept>,
}

impl Known {
    fn item(&mut self, number: usize, item: &Item, streamed: Streamed) {
        let units = item.text(streamed);
        let text = String::from_utf16_lossy(&units);
        let is_open = streamed == Streamed::Open;
        let (reasoning, returned) = match item {
            Item::Message(_) => {
                self.runs.block(true, &units, is_open);
                if text.trim().is_empty() {
                    return;
                }
                (None, vec![format!(r#""text":{}"#, sent(&text))])
            }
            Item::Reasoning { is_raw, encrypted, .. } => {
                self.runs.block(false, &units, is_open);
                let is_readable = encrypted.is_some() || (*is_raw && !text.trim().is_empty());
                let data = encrypted.as_ref().map(|data| format!(r#""encrypted_content":{}"#, data.whole()));
                (Some(is_readable), data.into_iter().collect())
            }
            Item::Call(call) => {
                let arguments = call.arguments.text();
                let returned =
                    vec![format!(r#""call_id":"call_{number}""#), format!(r#""arguments":{}"#, sent(&arguments))];
                self.calls.push((call.name.to_owned(), arguments));
                (None, returned)
            }
            Item::Hidden(_) => return,
        };
        let id = format!(r#""id":"{}_{number}""#, item.prefix());
        self.kept.push(Kept { number, reasoning, id, returned });
    }

    /// Reasoning goes back with what follows it, or not at all; where it is left out, what follows goes without its id.
    fn returned(self) -> Vec<String> {
        let mut out = Vec::new();
        let mut is_lost = false;
        let mut kept = self.kept.into_iter().peekable();
        while let Some(Kept { reasoning, id, returned, .. }) = kept.next() {
            if let Some(is_readable) = reasoning {
                let has_follower = kept.peek().is_some_and(|next| next.reasoning.is_none());
                is_lost = !(is_readable && has_follower);
            }
            if reasoning.is_none() || !is_lost {
                out.extend(returned);
                out.extend((!is_lost).then_some(id));
            }
        }
        out
    }

    fn answer(self, body: Vec<u8>, outcome: &'static str, complete_at: usize) -> Answer {
        let outcome = if outcome == "done" { done(&self.calls, &self.runs) } else { outcome };
        Answer {
            body,
            complete_at: is_success(outcome).then_some(complete_at),
            outcome,
            text: self.runs.texts(true),
            reasoning: self.runs.texts(false),
            calls: self.calls.clone(),
            returned: if is_success(outcome) { self.returned() } else { Vec::new() },
        }
    }
}

struct Writer {
    layout: Layout,
    keys: Keys,
    body: Vec<u8>,
    items: Vec<(Item, Streamed)>,
    known: Known,
}

impl Writer {
    fn event(&mut self, kind: &str, members: &str) -> usize {
        self.layout.typed(&mut self.body, kind, members)
    }

    fn part(&mut self, part: Part, is_last: bool) {
        match part {
            Part::Item(item, streamed) => {
                let item = if streamed == Streamed::Open { without_end(item, is_last) } else { item };
                for (kind, members) in self.item(item, streamed) {
                    self.event(&kind, &members);
                }
            }
            Part::Calls(calls) => {
                let lists = calls.into_iter().map(|call| self.item(Item::Call(call), Streamed::Full)).collect();
                for (kind, members) in by_turns(lists, true) {
                    self.event(&kind, &members);
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

    /// Types and members of the events of an item.
    fn item(&mut self, item: Item, streamed: Streamed) -> Vec<(String, String)> {
        let number = self.items.len();
        let index = format!(r#""output_index":{number},"#);
        let index = if self.keys.indexes { &*index } else { "" };
        let id = format!(r#""item_id":"{}_{number}","#, item.prefix());
        let id = if self.keys.ids { &*id } else { "" };
        let whole = |kind: &str, is_done| {
            (format!("response.output_item.{kind}"), format!(r#"{index}"item":{}"#, item.json(number, is_done)))
        };
        let mut events = Vec::new();
        if streamed != Streamed::End {
            events.push(whole("added", false));
            for (at, (about, counted, said)) in item.parts().into_iter().enumerate() {
                let counted = if counted.is_empty() { String::new() } else { format!(r#""{counted}":{at},"#) };
                let delta = |text| (format!("{about}.delta"), format!(r#"{id}{index}{counted}"delta":{text}"#));
                events.extend(said.strings().into_iter().map(delta));
                if streamed == Streamed::Full {
                    let name = match about {
                        "response.refusal" => "refusal",
                        "response.function_call_arguments" => "arguments",
                        _ => "text",
                    };
                    let text = format!(r#"{id}{index}{counted}"{name}":{}"#, said.whole());
                    events.push((format!("{about}.done"), text));
                }
            }
        }
        if streamed != Streamed::Open {
            events.push(whole("done", true));
        }
        self.known.item(number, &item, streamed);
        self.items.push((item, streamed));
        events
    }

    fn end(mut self, ending: Ending) -> Answer {
        let (mut complete_at, mut outcome) = (0, "TRANSPORT");
        match ending {
            Ending::Terminal { end: (kind, members, meaning), listed, mark } => {
                let listed = listed && meaning != "SERVER";
                let listed_items = self.items.iter().enumerate().filter(|_| listed);
                let output: Vec<_> = listed_items.map(|(number, (item, _))| item.json(number, true)).collect();
                let usage =
                    r#""usage":{"input_tokens":12,"output_tokens":3,"input_tokens_details":{"cached_tokens":5}}"#;
                complete_at = self.event(
                    kind,
                    &format!(r#""response":{{"id":"resp_1",{members}"output":[{}],{usage}}}"#, output.join(",")),
                );
                if mark {
                    self.layout.event(&mut self.body, "", "[DONE]");
                }
                outcome = meaning;
                self.forget_unfinished(listed);
            }
            Ending::Error(name, data) => {
                self.layout.event(&mut self.body, name, data);
                self.layout.event(&mut self.body, "", "[DONE]");
                outcome = "SERVER";
            }
            Ending::Mark => drop(self.layout.event(&mut self.body, "", "[DONE]")),
            Ending::Nothing => {}
        }
        if matches!(outcome, "TRANSPORT" | "SERVER") {
            self.known.runs.cut();
        }
        self.known.answer(self.body, outcome, complete_at)
    }

    /// Reasoning whose item never came whole cannot go back.
    fn forget_unfinished(&mut self, listed: bool) {
        for kept in self.known.kept.iter_mut().filter(|_| !listed) {
            if self.items[kept.number].1 == Streamed::Open && kept.reasoning.is_some() {
                kept.reasoning = Some(false);
            }
        }
    }
}

/// An item that can do without its end: of several parts of reasoning only the end tells where half a pair belongs, and
/// a text of nothing but such a half has its place only once the response ends.
fn without_end(item: Item, is_last: bool) -> Item {
    match item {
        Item::Message(mut parts) => {
            if let Some((said, _)) = parts.first_mut().filter(|_| !is_last) {
                said.units.insert(0, u16::from(b'x'));
            }
            Item::Message(parts)
        }
        Item::Reasoning { mut parts, is_raw, encrypted } => {
            parts.truncate(1);
            Item::Reasoning { parts, is_raw, encrypted }
        }
        other => other,
    }
}

/// Answers that are one JSON document.
fn documents() -> impl Strategy<Value = Answer> {
    let status = select(
        &[
            (r#""status":"completed","#, "done"),
            ("", "done"),
            (r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"#, "max-tokens"),
        ][..],
    );
    (vec(item(), 0..4), status, arounds()).prop_map(|(items, (status, meaning), around)| {
        let mut known = Known::default();
        for (number, item) in items.iter().enumerate() {
            known.item(number, item, Streamed::End);
        }
        let output: Vec<_> = items.iter().enumerate().map(|(number, item)| item.json(number, true)).collect();
        let document = format!(
            r#"{{"id":"resp_1","object":"response",{status}"model":"m-1","output":[{}],"usage":{{"input_tokens":3,"output_tokens":4}}}}"#,
            output.join(",")
        );
        let (body, complete_at) = around.put(&document);
        known.answer(body, meaning, complete_at)
    })
}
