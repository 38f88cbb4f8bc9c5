//! Response streams: what each wire's server sends for many short deltas, and how anybody would read its events with
//! `serde_json` alone.
//!
//! A further wire is a further row of [`STREAMS`].

use std::borrow::Cow;

use serde::Deserialize;

/// Deltas of a stream that is not told otherwise.
pub const DELTAS: usize = 10_000;

/// Pieces in which a body comes from the network, in bytes.
pub const PIECE: usize = 16 * 1024;

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
        let end = if self.api.ends_with("completions") { "data: [DONE]\n\n" } else { "" };
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
pub const STREAMS: [Form; 13] = [
    Form {
        name: "completions: plain server, text",
        api: "openai-completions",
        events: |text| completions(text, &plain),
        typed: completions_typed,
        delta: five_characters,
    },
    Form {
        name: "completions: plain server, prose with escapes",
        api: "openai-completions",
        events: |text| completions(text, &plain),
        typed: completions_typed,
        delta: prose,
    },
    Form {
        name: "completions: OpenAI, text, every event padded",
        api: "openai-completions",
        events: |text| completions(text, &padded),
        typed: completions_typed,
        delta: five_characters,
    },
    Form {
        name: "completions: vLLM, counts in every event",
        api: "openai-completions",
        events: |text| completions(text, &counted),
        typed: completions_typed,
        delta: five_characters,
    },
    Form {
        name: "completions: OpenRouter, reasoning in details",
        api: "openai-completions",
        events: |text| completions(text, &details),
        typed: completions_typed,
        delta: five_characters,
    },
    Form {
        name: "completions: arguments of a tool call",
        api: "openai-completions",
        events: |text| completions(text, &arguments),
        typed: completions_typed,
        delta: |_| "abcde",
    },
    Form {
        name: "anthropic: text",
        api: "anthropic-messages",
        events: |text| {
            anthropic(text, r#"{"type":"text","text":""}"#, &|text| format!(r#""type":"text_delta","text":{text}"#))
        },
        typed: anthropic_typed,
        delta: five_characters,
    },
    Form {
        name: "anthropic: input of a tool call",
        api: "anthropic-messages",
        events: |text| {
            let call = r#"{"type":"tool_use","id":"toolu_1","name":"write","input":{}}"#;
            anthropic(text, call, &|text| format!(r#""type":"input_json_delta","partial_json":{text}"#))
        },
        typed: anthropic_typed,
        delta: |_| "abcde",
    },
    Form {
        name: "responses: text, numbered and padded",
        api: "openai-responses",
        events: |text| {
            responses(
                text,
                "output_text",
                r#"{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}"#,
            )
        },
        typed: responses_typed,
        delta: five_characters,
    },
    Form {
        name: "responses: arguments of a tool call",
        api: "openai-responses",
        events: |text| {
            let call = r#"{"type":"function_call","id":"fc_1","call_id":"call_1","name":"write","arguments":"","status":"in_progress"}"#;
            responses(text, "function_call_arguments", call)
        },
        typed: responses_typed,
        delta: |_| "abcde",
    },
    Form {
        name: "google: text, counts in every event",
        api: "google-generative-ai",
        events: |text| google(text, ""),
        typed: google_typed,
        delta: five_characters,
    },
    Form {
        name: "google: thoughts",
        api: "google-generative-ai",
        events: |text| google(text, r#","thought":true"#),
        typed: google_typed,
        delta: five_characters,
    },
    Form {
        name: "mistral: text",
        api: "mistral-conversations",
        events: |text| completions(text, &plain),
        typed: completions_typed,
        delta: five_characters,
    },
];

fn five_characters(place: usize) -> &'static str {
    ["abcde", " the ", "fghij", "klmn.", " and ", "12345", "opqr "][place % 7]
}

fn prose(place: usize) -> &'static str {
    [" word", ",", " another", " one", ".\n", " \"quoted\"", " naïve", "\n\n", "\t`let x = 1;`", " the", " end"]
        [place % 11]
}

/// Begin, a delta for each text, finish reason, usage.
fn completions(text: &[&str], delta: &dyn Fn(usize, &str) -> String) -> Vec<String> {
    let head = r#""id":"chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT","object":"chat.completion.chunk","created":1741569952,"model":"m""#;
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut events: Vec<String> =
        text.iter().enumerate().map(|(place, text)| format!("{{{head},{}}}", delta(place, &quoted(text)))).collect();
    events.push(format!(r#"{{{head},"choices":[{{"index":0,"delta":{{"content":"."}},"finish_reason":"stop"}}]}}"#));
    events.push(format!(
        r#"{{{head},"choices":[],"usage":{{"prompt_tokens":19,"completion_tokens":{},"total_tokens":29}}}}"#,
        text.len()
    ));
    events
}

fn plain(_: usize, text: &str) -> String {
    format!(r#""choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]"#)
}

fn padded(place: usize, text: &str) -> String {
    let padding = "vUEMJS1cNpwb07Ax".get(place % 7..).unwrap_or_default();
    format!(
        r#""service_tier":"default","system_fingerprint":"fp_b376dfbbd5","choices":[{{"index":0,"delta":{{"content":{text}}},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"{padding}{place}""#
    )
}

/// No event repeats the one before, so that each of them is read.
fn counted(place: usize, text: &str) -> String {
    let (tokens, total) = (place + 1, place + 20);
    let usage = format!(r#"{{"prompt_tokens":19,"total_tokens":{total},"completion_tokens":{tokens}}}"#);
    format!(r#"{},"usage":{usage}"#, plain(place, text))
}

fn details(_: usize, text: &str) -> String {
    format!(
        r#""provider":"Anthropic","choices":[{{"index":0,"delta":{{"role":"assistant","content":"","reasoning":{text},"reasoning_details":[{{"type":"reasoning.text","text":{text},"format":"anthropic-claude-v1","index":0}}]}},"finish_reason":null,"native_finish_reason":null,"logprobs":null}}]"#
    )
}

fn arguments(place: usize, text: &str) -> String {
    let call = match place {
        0 => {
            format!(r#"{{"index":0,"id":"call_1","type":"function","function":{{"name":"write","arguments":{text}}}}}"#)
        }
        _ => format!(r#"{{"index":0,"function":{{"arguments":{text}}}}}"#),
    };
    format!(r#""choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}},"finish_reason":null}}]"#)
}

fn completions_typed(data: &str) -> usize {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow, rename = "id")]
        _id: Cow<'a, str>,
        #[serde(borrow, rename = "model")]
        _model: Cow<'a, str>,
        #[serde(borrow)]
        choices: Vec<Choice<'a>>,
        #[serde(rename = "usage")]
        _usage: Option<Usage>,
    }
    #[derive(Deserialize)]
    struct Choice<'a> {
        #[serde(borrow)]
        delta: Delta<'a>,
        #[serde(borrow, rename = "finish_reason")]
        _finish_reason: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Delta<'a> {
        #[serde(borrow)]
        content: Option<Cow<'a, str>>,
        #[serde(borrow)]
        reasoning: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        reasoning_details: Vec<Detail<'a>>,
        #[serde(borrow, default)]
        tool_calls: Vec<Call<'a>>,
    }
    #[derive(Deserialize)]
    struct Detail<'a> {
        #[serde(borrow, rename = "type")]
        _type: Cow<'a, str>,
        #[serde(borrow, rename = "text")]
        _text: Option<Cow<'a, str>>,
        #[serde(borrow, rename = "format")]
        _format: Option<Cow<'a, str>>,
        #[serde(rename = "index")]
        _index: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(rename = "index")]
        _index: u64,
        #[serde(borrow, rename = "id")]
        _id: Option<Cow<'a, str>>,
        #[serde(borrow)]
        function: Function<'a>,
    }
    #[derive(Deserialize)]
    struct Function<'a> {
        #[serde(borrow, rename = "name")]
        _name: Option<Cow<'a, str>>,
        #[serde(borrow)]
        arguments: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(rename = "prompt_tokens")]
        _prompt_tokens: u64,
        #[serde(rename = "completion_tokens")]
        _completion_tokens: u64,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    let length = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
    let of_choice = |choice: &Choice<'_>| {
        let Delta { content, reasoning, reasoning_details, tool_calls } = &choice.delta;
        std::hint::black_box(reasoning_details.len());
        let arguments = tool_calls.iter().map(|call| length(&call.function.arguments)).sum::<usize>();
        length(content) + length(reasoning) + arguments
    };
    event.choices.iter().map(of_choice).sum()
}

/// Start, a delta for each text and one more, stop.
fn anthropic(text: &[&str], block: &str, delta: &dyn Fn(&str) -> String) -> Vec<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let piece =
        |text: &str| format!(r#"{{"type":"content_block_delta","index":0,"delta":{{{}}}}}"#, delta(&quoted(text)));
    let mut events = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":19,"output_tokens":1}}}"#.to_owned(),
        format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#),
    ];
    events.extend(text.iter().map(|text| piece(text)));
    events.push(piece("."));
    events.extend(
        [
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}"#,
            r#"{"type":"message_stop"}"#,
        ]
        .map(str::to_owned),
    );
    events
}

fn anthropic_typed(data: &str) -> usize {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow, rename = "type")]
        _type: Cow<'a, str>,
        #[serde(rename = "index")]
        _index: Option<u64>,
        #[serde(borrow)]
        delta: Option<Delta<'a>>,
    }
    #[derive(Deserialize)]
    struct Delta<'a> {
        #[serde(borrow, rename = "type")]
        _type: Option<Cow<'a, str>>,
        #[serde(borrow)]
        text: Option<Cow<'a, str>>,
        #[serde(borrow)]
        partial_json: Option<Cow<'a, str>>,
        #[serde(borrow, rename = "stop_reason")]
        _stop_reason: Option<Cow<'a, str>>,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    event.delta.map_or(0, |delta| delta.text.or(delta.partial_json).map_or(0, |text| text.len()))
}

/// An item that is added, a delta for each text and one more, the item done, completed.
fn responses(text: &[&str], kind: &str, item: &str) -> Vec<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let piece = |(place, text): (usize, &&str)| {
        let padding = "vUEMJS1cNpwb07Ax".get(place % 7..).unwrap_or_default();
        format!(
            r#"{{"type":"response.{kind}.delta","sequence_number":{},"item_id":"msg_1","output_index":0,"content_index":0,"delta":{},"logprobs":[],"obfuscation":"{padding}{place}"}}"#,
            place + 4,
            quoted(text)
        )
    };
    let mut events = vec![
        r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","status":"in_progress","model":"m","output":[]}}"#.to_owned(),
        format!(r#"{{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{item}}}"#),
    ];
    let last: &[&str] = &["."];
    events.extend(text.iter().chain(last).enumerate().map(piece));
    let whole = quoted(&text.iter().chain(last).copied().collect::<String>());
    let done = item.replace(
        r#""content":[]"#,
        &format!(r#""content":[{{"type":"output_text","text":{whole},"annotations":[]}}]"#),
    );
    let done =
        done.replace(r#""arguments":"""#, &format!(r#""arguments":{whole}"#)).replace("in_progress", "completed");
    events
        .push(format!(r#"{{"type":"response.output_item.done","sequence_number":9,"output_index":0,"item":{done}}}"#));
    events.push(r#"{"type":"response.completed","sequence_number":10,"response":{"id":"resp_1","status":"completed","model":"m","usage":{"input_tokens":19,"output_tokens":9}}}"#.to_owned());
    events
}

fn responses_typed(data: &str) -> usize {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow, rename = "type")]
        _type: Cow<'a, str>,
        #[serde(rename = "output_index")]
        _output_index: Option<u64>,
        #[serde(borrow, rename = "item_id")]
        _item_id: Option<Cow<'a, str>>,
        #[serde(borrow)]
        delta: Option<Cow<'a, str>>,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    event.delta.map_or(0, |text| text.len())
}

/// A candidate for each text and one more, which ends it.
fn google(text: &[&str], member: &str) -> Vec<String> {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let event = |text: &str, member: &str, end: &str, tokens: usize| {
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":{}{member}}}],"role":"model"}}{end},"index":0}}],"usageMetadata":{{"promptTokenCount":19,"candidatesTokenCount":{tokens},"totalTokenCount":{}}},"modelVersion":"m","responseId":"r1"}}"#,
            quoted(text),
            tokens + 19
        )
    };
    let mut events: Vec<String> =
        text.iter().enumerate().map(|(place, text)| event(text, member, "", place + 1)).collect();
    events.push(event(".", "", r#","finishReason":"STOP""#, text.len() + 1));
    events
}

fn google_typed(data: &str) -> usize {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        candidates: Vec<Candidate<'a>>,
        #[serde(rename = "usageMetadata")]
        _usage: Option<Usage>,
        #[serde(borrow, rename = "responseId")]
        _response_id: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Candidate<'a> {
        #[serde(borrow)]
        content: Content<'a>,
        #[serde(borrow, rename = "finishReason")]
        _finish_reason: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(borrow)]
        parts: Vec<Part<'a>>,
    }
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
        #[serde(rename = "thought")]
        _thought: Option<bool>,
        #[serde(borrow, rename = "thoughtSignature")]
        _signature: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(rename = "promptTokenCount")]
        _prompt: u64,
        #[serde(rename = "candidatesTokenCount")]
        _candidates: u64,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    event.candidates.iter().flat_map(|candidate| &candidate.content.parts).map(|part| part.text.len()).sum()
}
