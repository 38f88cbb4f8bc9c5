//! Response streams: what each wire's server sends for many short deltas, and how anybody would read its events with
//! `serde_json` alone.
//!
//! A further form is a further row of [`STREAMS`]. Most streams are steady: an event is that before but for its text, its
//! numbers and its padding. The last row of a wire is not, so that each of its events is read.

mod anthropic;
mod completions;
mod google;
mod responses;

/// Deltas of a stream that is not told otherwise.
pub const DELTAS: usize = 10_000;

/// Pieces in which a body comes from the network, in bytes.
pub const PIECE: usize = 16 * 1024;

/// The wire that has an adapter of its own.
pub const DEEPSEEK: &str = "deepseek";

/// A form of stream of a wire.
pub struct Form {
    /// Its name in the table.
    pub name: &'static str,
    /// The wire, as a manifest names it.
    pub api: &'static str,
    /// The data of each event. `text` are the deltas.
    pub events: fn(text: &[&str]) -> Vec<String>,
    /// Length in bytes of what an event's data adds to the answer, read into a struct of the members that are needed,
    /// strings borrowed where they hold no escape. Panics for what is no such event.
    pub typed: fn(&str) -> usize,
    /// The deltas to send; `place` counts up.
    pub delta: fn(place: usize) -> &'static str,
}

/// A stream, ready to be fed.
pub struct Stream {
    /// The events' data.
    pub data: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Number of deltas.
    pub deltas: u64,
    /// Length in bytes of the text, or of the arguments, as a whole.
    pub text_length: u64,
}

impl Form {
    /// A stream of this many deltas.
    pub fn stream(&self, deltas: usize) -> Stream {
        let pieces: Vec<&str> = (0..deltas).map(self.delta).collect();
        let data = (self.events)(&pieces);
        let body: String = data.iter().map(|data| format!("{}data: {data}\n\n", self.name_line(data))).collect();
        let has_mark = ["openai-completions", "mistral-conversations", DEEPSEEK].contains(&self.api);
        let end = if has_mark { "data: [DONE]\n\n" } else { "" };
        let body = body + end;
        let text_length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Stream { data, body: body.into_bytes(), deltas: deltas as u64, text_length }
    }

    /// The line with the event's name, on a wire whose events have one: their `type`.
    fn name_line(&self, data: &str) -> String {
        let name = data.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
        name.map_or_else(String::new, |name| format!("event: {name}\n"))
    }
}

/// Every form.
pub const STREAMS: [Form; 27] = [
    Form {
        name: "completions: plain server, text",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::plain),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "completions: plain server, prose with escapes",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::plain),
        typed: completions::typed,
        delta: prose,
    },
    Form {
        name: "completions: OpenAI, text, every event padded",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::padded),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "completions: vLLM, counts in every event",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::counted),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "completions: reasoning",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::reasoning),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "completions: OpenRouter, reasoning in details",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::details),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "completions: arguments of a tool call",
        api: "openai-completions",
        events: |text| completions::events(text, &completions::arguments),
        typed: completions::typed,
        delta: |_| "abcde",
    },
    Form {
        name: "completions: text, another id in every event",
        api: "openai-completions",
        events: |text| completions::with_ids(text, &completions::plain),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "anthropic: text",
        api: "anthropic-messages",
        events: |text| anthropic::events(text, TEXT_BLOCK, &text_delta, 1),
        typed: anthropic::typed,
        delta: five_characters,
    },
    Form {
        name: "anthropic: thinking",
        api: "anthropic-messages",
        events: |text| anthropic::events(text, THINKING_BLOCK, &thinking_delta, 1),
        typed: anthropic::typed,
        delta: five_characters,
    },
    Form {
        name: "anthropic: input of a tool call",
        api: "anthropic-messages",
        events: |text| anthropic::events(text, CALL_BLOCK, &input_delta, 1),
        typed: anthropic::typed,
        delta: |_| "abcde",
    },
    Form {
        name: "anthropic: text, two blocks in turn",
        api: "anthropic-messages",
        events: |text| anthropic::events(text, TEXT_BLOCK, &text_delta, 2),
        typed: anthropic::typed,
        delta: five_characters,
    },
    Form {
        name: "responses: text, numbered and padded",
        api: "openai-responses",
        events: |text| responses::events(text, "output_text", MESSAGE, one_id),
        typed: responses::typed,
        delta: five_characters,
    },
    Form {
        name: "responses: reasoning summary",
        api: "openai-responses",
        events: |text| responses::events(text, "reasoning_summary_text", REASONING, one_id),
        typed: responses::typed,
        delta: five_characters,
    },
    Form {
        name: "responses: arguments of a tool call",
        api: "openai-responses",
        events: |text| responses::events(text, "function_call_arguments", CALL, one_id),
        typed: responses::typed,
        delta: |_| "abcde",
    },
    Form {
        name: "responses: text, another id in every event",
        api: "openai-responses",
        events: |text| responses::events(text, "output_text", MESSAGE, new_id),
        typed: responses::typed,
        delta: five_characters,
    },
    Form {
        name: "google: text, counts in every event",
        api: "google-generative-ai",
        events: |text| google::events(text, &google::said, one_id),
        typed: google::typed,
        delta: five_characters,
    },
    Form {
        name: "google: thoughts",
        api: "google-generative-ai",
        events: |text| google::events(text, &google::thought, one_id),
        typed: google::typed,
        delta: five_characters,
    },
    Form {
        name: "google: calls, each of them whole",
        api: "google-generative-ai",
        events: |text| google::events(text, &google::call, one_id),
        typed: google::typed,
        delta: |_| r#"{"a":"bcde"}"#,
    },
    Form {
        name: "google: text, another id in every event",
        api: "google-generative-ai",
        events: |text| google::events(text, &google::said, new_id),
        typed: google::typed,
        delta: five_characters,
    },
    Form {
        name: "mistral: text",
        api: "mistral-conversations",
        events: |text| completions::events(text, &completions::plain),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "mistral: thinking parts",
        api: "mistral-conversations",
        events: |text| completions::events(text, &completions::thinking),
        typed: completions::thinking_typed,
        delta: five_characters,
    },
    Form {
        name: "mistral: arguments of a tool call",
        api: "mistral-conversations",
        events: |text| completions::events(text, &completions::arguments),
        typed: completions::typed,
        delta: |_| "abcde",
    },
    Form {
        name: "deepseek: text",
        api: "deepseek",
        events: |text| completions::events(text, &completions::plain),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "deepseek: reasoning",
        api: "deepseek",
        events: |text| completions::events(text, &completions::reasoning),
        typed: completions::typed,
        delta: five_characters,
    },
    Form {
        name: "deepseek: arguments of a tool call",
        api: "deepseek",
        events: |text| completions::events(text, &completions::arguments),
        typed: completions::typed,
        delta: |_| "abcde",
    },
    Form {
        name: "deepseek: text, another id in every event",
        api: "deepseek",
        events: |text| completions::with_ids(text, &completions::plain),
        typed: completions::typed,
        delta: five_characters,
    },
];

const TEXT_BLOCK: &str = r#"{"type":"text","text":""}"#;
const THINKING_BLOCK: &str = r#"{"type":"thinking","thinking":"","signature":""}"#;
const CALL_BLOCK: &str = r#"{"type":"tool_use","id":"toolu_1","name":"write","input":{}}"#;

fn text_delta(text: &str) -> String {
    format!(r#""type":"text_delta","text":{text}"#)
}

fn thinking_delta(text: &str) -> String {
    format!(r#""type":"thinking_delta","thinking":{text}"#)
}

fn input_delta(text: &str) -> String {
    format!(r#""type":"input_json_delta","partial_json":{text}"#)
}

const MESSAGE: &str = r#"{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}"#;
const REASONING: &str = r#"{"type":"reasoning","id":"msg_1","summary":[]}"#;
const CALL: &str =
    r#"{"type":"function_call","id":"msg_1","call_id":"call_1","name":"write","arguments":"","status":"in_progress"}"#;

fn one_id(_: usize) -> String {
    "msg_1".to_owned()
}

/// Gateways exist that write another id into every event.
fn new_id(place: usize) -> String {
    format!("msg_{place}")
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn five_characters(place: usize) -> &'static str {
    ["abcde", " the ", "fghij", "klmn.", " and ", "12345", "opqr "][place % 7]
}

fn prose(place: usize) -> &'static str {
    [" word", ",", " another", " one", ".\n", " \"quoted\"", " naïve", "\n\n", "\t`let x = 1;`", " the", " end"]
        [place % 11]
}
