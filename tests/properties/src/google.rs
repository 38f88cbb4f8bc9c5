//! The wire `google-generative-ai`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::decoding::{Answer, Wire};
use crate::layout::{Layout, arounds, layouts};
use crate::material::{Called, Runs, Said, called, done, is_success, opaque, said};
use crate::reference::{document, events, unescaped};
use crate::repeating::Events;

/// See the module.
#[derive(Debug)]
pub struct Google;

impl Wire for Google {
    const API: &'static str = "google-generative-ai";

    const WORDS: &'static [&'static str] = &[
        "\"finishReason\":\"STOP\"",
        "\"finishReason\":null",
        "finishReason",
        "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
        "data: {\"candidates\":[{\"finishReason\":\"MAX_TOKENS\"}],\"usageMetadata\":{\"promptTokenCount\":1}}",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}]}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]}}]}\n\n",
        "[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]},\"finishReason\":\"STOP\"}]}]",
        "data: {\"error\":{\"message\":\"m\",\"status\":\"INTERNAL\"}}\n\n",
        "\"thoughtSignature\":\"AAAA\"",
        "\"thought\":true",
        "\"usageMetadata\":{\"promptTokenCount\":1,\"candidatesTokenCount\":1}",
        "\"promptFeedback\":{\"blockReason\":\"SAFETY\"}",
        "event: error\n",
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
            r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"}}],"responseId":"r1","modelVersion":"other"}"#,
        ],
        pieces: &[
            r#"{"candidates":[{"content":{"parts":[{"text":@}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":#,"candidatesTokenCount":#,"totalTokenCount":#},"modelVersion":"m","responseId":"r1"}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@,"thought":true}]}}],"usageMetadata":{"promptTokenCount":9,"thoughtsTokenCount":#,"cachedContentTokenCount":#,"promptTokensDetails":[{"modality":"TEXT","tokenCount":#}]}}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@,"thoughtSignature":"c2ln"}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@,"thoughtSignature":@}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@},{"text":@,"thought":true}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@,"inlineData":{}},7]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@}]}}],"promptFeedback":{"blockReason":@}}"#,
            r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":@,"args":{"tokenCount":#}}}]}}]}"#,
            r#"{"candidates":[{"content":{"parts":[{"text":@,"functionCall":{"name":"f","args":{"tokenCount":#}}}]}}]}"#,
        ],
        ends: &[
            r#"{"candidates":[{"content":{"parts":[{"text":@}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":#}}"#,
            r#"{"candidates":[{"finishReason":@}]}"#,
            r#"{"usageMetadata":{"promptTokenCount":#,"candidatesTokenCount":#}}"#,
            r#"{"error":{"message":@}}"#,
            "[DONE]",
        ],
        names: &["error", "message"],
    };

    fn answers() -> BoxedStrategy<Answer> {
        prop_oneof![8 => streams(), 2 => documents()].boxed()
    }

    /// A `finishReason`, in an event or a document.
    fn may_succeed(body: &[u8]) -> bool {
        if let Some(document) = document(body) {
            return unescaped(&document).contains("finishReason");
        }
        let (events, open) = events(body);
        events.iter().chain(&open).any(|(_, data)| unescaped(data).contains("finishReason"))
    }
}

/// A part of the content.
#[derive(Debug, Clone)]
enum Part {
    /// Text or thought in pieces. A signature comes with the last piece, or behind it with an empty one.
    Text { said: Said, is_thought: bool, signature: Option<Said>, is_behind: bool },
    /// A call, with an id or without.
    Call { call: Called, has_id: bool, signature: Option<Said> },
    /// A part that says nothing.
    Silent(&'static str),
}

fn part() -> impl Strategy<Value = Part> {
    let signature = || proptest::option::weighted(0.4, opaque());
    let silent = select(
        &[
            r#"{"text":""}"#,
            r#"{"text":"","thought":true}"#,
            r#"{"text":"","thoughtSignature":"no base64"}"#,
            r#"{"inlineData":{"mimeType":"image/png","data":"AAAA"}}"#,
            r#"{"executableCode":{"language":"PYTHON","code":"no"},"thoughtSignature":"AAAA"}"#,
            r#"{"text":null}"#,
            r#"{"odd":"no"}"#,
            "{}",
            "7",
            "null",
        ][..],
    );
    prop_oneof![
        6 => (said(), any::<bool>(), signature(), any::<bool>()).prop_map(|(said, is_thought, signature, is_behind)| {
            Part::Text { said, is_thought, signature, is_behind }
        }),
        3 => (called(), any::<bool>(), signature())
            .prop_map(|(call, has_id, signature)| Part::Call { call, has_id, signature }),
        1 => silent.prop_map(Part::Silent),
    ]
}

/// How an answer ends.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// A finish reason and what it means; where the usage stands; whether the last parts come with it; whether the mark
    /// of another wire follows.
    Reason { reason: (&'static str, &'static str), usage: &'static str, is_beside: bool, mark: bool },
    /// The prompt is blocked.
    Blocked,
    /// An error object: name and data.
    Error(&'static str, &'static str),
    /// The mark alone.
    Mark,
    /// Nothing.
    Nothing,
}

fn ending() -> impl Strategy<Value = Ending> {
    let reason = select(
        &[
            ("STOP", "done"),
            ("STOP", "done"),
            ("STOP", "done"),
            ("\\u0053TOP", "done"),
            ("MAX_TOKENS", "max-tokens"),
            ("SAFETY", "REFUSED"),
            ("RECITATION", "REFUSED"),
            ("MALFORMED_FUNCTION_CALL", "SERVER"),
            ("ODD", "SERVER"),
        ][..],
    );
    let usage = select(&["", "always", "at the end", "after"][..]);
    let error = select(
        &[
            ("", r#"{"error":{"code":500,"message":"gone","status":"INTERNAL"}}"#),
            ("", r#"{"error":{"message":"gone"}}"#),
            ("error", r#"{"message":"gone"}"#),
            ("error", "upstream is gone"),
        ][..],
    );
    prop_oneof![
        8 => (reason, usage, any::<bool>(), any::<bool>())
            .prop_map(|(reason, usage, is_beside, mark)| Ending::Reason { reason, usage, is_beside, mark }),
        1 => Just(Ending::Blocked),
        1 => error.prop_map(|(name, data)| Ending::Error(name, data)),
        1 => Just(Ending::Mark),
        1 => Just(Ending::Nothing),
    ]
}

const USAGE: &str = r#","usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":3,"thoughtsTokenCount":2,"cachedContentTokenCount":5}"#;

/// What a decoder must know of an answer.
#[derive(Debug, Default)]
struct Known {
    runs: Runs,
    calls: Vec<(String, String)>,
    /// Kind and signature of the block that takes deltas.
    open: Option<(bool, Option<String>)>,
    signatures: Vec<String>,
}

impl Known {
    /// A part of text, or of thought: it continues the one before it, unless both are signed.
    fn text(&mut self, is_text: bool, units: &[u16], signature: Option<String>) {
        if units.is_empty() && signature.is_none() {
            return;
        }
        match &mut self.open {
            Some((open, known))
                if *open == is_text && (known.is_none() || signature.is_none() || *known == signature) =>
            {
                if known.is_none() {
                    self.signatures.extend(signature.clone());
                    *known = signature;
                }
            }
            _ => {
                self.runs.interrupt();
                self.signatures.extend(signature.clone());
                self.open = Some((is_text, signature));
            }
        }
        self.runs.push(is_text, units);
    }

    fn call(&mut self, call: &Called, signature: Option<String>) {
        self.runs.interrupt();
        self.open = None;
        self.calls.push((call.name.to_owned(), call.arguments.text()));
        self.signatures.extend(signature);
    }

    /// Takes a part and gives the JSON of its pieces.
    fn part(&mut self, part: &Part) -> Vec<String> {
        match part {
            Part::Text { said, is_thought, signature, is_behind } => {
                let thought = if *is_thought { r#","thought":true"# } else { "" };
                let mut pieces: Vec<_> = said.pieces().into_iter().zip(said.strings()).collect();
                if *is_behind && signature.is_some() {
                    pieces.push((&[], "\"\"".to_owned()));
                }
                let last = pieces.len();
                let piece = |(at, (units, text)): (usize, (&[u16], String))| {
                    let signature = signature.as_ref().filter(|_| at + 1 == last);
                    self.text(!is_thought, units, signature.map(Said::sent));
                    format!(r#"{{"text":{text}{thought}{}}}"#, signature.map(signed).unwrap_or_default())
                };
                pieces.into_iter().enumerate().map(piece).collect()
            }
            Part::Call { call, has_id, signature } => {
                let id = if *has_id { format!(r#""id":"call_{}","#, self.calls.len()) } else { String::new() };
                let signed = signature.as_ref().map_or_else(String::new, signed);
                self.call(call, signature.as_ref().map(Said::sent));
                let arguments = call.arguments.text();
                vec![format!(r#"{{"functionCall":{{{id}"name":"{}","args":{arguments}}}{signed}}}"#, call.name)]
            }
            Part::Silent(json) => vec![(*json).to_owned()],
        }
    }

    fn answer(self, body: Vec<u8>, outcome: &'static str, complete_at: usize) -> Answer {
        let outcome = if outcome == "done" { done(&self.calls, &self.runs) } else { outcome };
        let signatures = self.signatures.iter().map(|signature| format!(r#""thoughtSignature":{signature}"#));
        let arguments = self.calls.iter().map(|(_, arguments)| format!(r#""args":{arguments}"#));
        let returned = signatures.chain(arguments).filter(|_| is_success(outcome)).collect();
        Answer {
            body,
            complete_at: is_success(outcome).then_some(complete_at),
            outcome,
            text: self.runs.texts(true),
            reasoning: self.runs.texts(false),
            calls: self.calls,
            returned,
        }
    }
}

fn signed(signature: &Said) -> String {
    format!(r#","thoughtSignature":{}"#, signature.whole())
}

fn candidate(parts: &[String], more: &str) -> String {
    format!(r#""candidates":[{{"content":{{"parts":[{}],"role":"model"}},"index":0{more}}}]"#, parts.join(","))
}

fn streams() -> impl Strategy<Value = Answer> {
    (vec(part(), 0..6), vec(0usize..4, 1..4), ending(), layouts()).prop_map(|(parts, sizes, ending, layout)| {
        let mut known = Known::default();
        let pieces: Vec<String> = parts.iter().flat_map(|part| known.part(part)).collect();
        let mut rest = &*pieces;
        let mut events: Vec<Vec<String>> = Vec::new();
        for size in sizes.iter().cycle() {
            // Now and then an event without parts.
            let (now, later) = rest.split_at((*size).min(rest.len()));
            events.push(now.to_vec());
            rest = later;
            if rest.is_empty() || sizes.iter().all(|size| *size == 0) {
                break;
            }
        }
        events.extend((!rest.is_empty()).then(|| rest.to_vec()));
        write(known, events, ending, layout)
    })
}

/// Writes the events and the end.
fn write(mut known: Known, mut events: Vec<Vec<String>>, ending: Ending, mut layout: Layout) -> Answer {
    let mut body = layout.start();
    let beside = match ending {
        Ending::Reason { is_beside: true, .. } => events.pop().unwrap_or_default(),
        _ => Vec::new(),
    };
    let usage = if matches!(ending, Ending::Reason { usage: "always", .. }) { USAGE } else { "" };
    for parts in events {
        layout.event(
            &mut body,
            "",
            &format!(r#"{{{}{usage},"modelVersion":"m-1","responseId":"r-1"}}"#, candidate(&parts, "")),
        );
    }
    let (mut complete_at, mut outcome) = (0, "TRANSPORT");
    match ending {
        Ending::Reason { reason: (reason, meaning), usage, mark, .. } => {
            let now = if matches!(usage, "always" | "at the end") { USAGE } else { "" };
            let more = format!(r#","finishReason":"{reason}""#);
            complete_at = layout.event(&mut body, "", &format!("{{{}{now}}}", candidate(&beside, &more)));
            if usage == "after" {
                layout.event(&mut body, "", &format!(r#"{{"responseId":"r-1"{USAGE}}}"#));
            }
            if mark {
                layout.event(&mut body, "", "[DONE]");
            }
            outcome = meaning;
        }
        Ending::Blocked => {
            layout.event(&mut body, "", r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"}}"#);
            outcome = "REFUSED";
        }
        Ending::Error(name, data) => {
            layout.event(&mut body, name, data);
            layout.event(&mut body, "", "[DONE]");
            outcome = "SERVER";
        }
        Ending::Mark => drop(layout.event(&mut body, "", "[DONE]")),
        Ending::Nothing => {}
    }
    if !matches!(ending, Ending::Reason { .. }) {
        known.runs.cut();
    }
    known.answer(body, outcome, complete_at)
}

/// Answers that are one JSON document: an object, or the list of what would have been events.
fn documents() -> impl Strategy<Value = Answer> {
    let reason = select(&[("STOP", "done"), ("MAX_TOKENS", "max-tokens"), ("SAFETY", "REFUSED")][..]);
    (vec(part(), 0..4), reason, any::<bool>(), arounds()).prop_map(|(parts, (reason, meaning), is_list, around)| {
        let mut known = Known::default();
        let pieces: Vec<Vec<String>> = parts.iter().map(|part| known.part(part)).collect();
        let more = format!(r#","finishReason":"{reason}""#);
        let document = if is_list {
            let event = |parts: &Vec<String>| format!("{{{}}},", candidate(parts, ""));
            let events: String = pieces.iter().map(event).collect();
            format!("[{events}{{{}{USAGE}}}]", candidate(&[], &more))
        } else {
            format!("{{{}{USAGE}}}", candidate(&pieces.concat(), &more))
        };
        let (body, complete_at) = around.put(&document);
        known.answer(body, meaning, complete_at)
    })
}
