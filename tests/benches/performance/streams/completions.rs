//! The completions wire, and those that answer like it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::quoted;

/// Begin, a delta for each text, finish reason, usage.
pub fn events(text: &[&str], delta: &dyn Fn(usize, &str) -> String) -> Vec<String> {
    let head = |id| format!(r#""id":"{id}","object":"chat.completion.chunk","created":1741569952,"model":"m""#);
    events_of(text, &|_| head("chatcmpl-B9MBs8CjcvOU2jLn4n570S5qMJKcT"), delta)
}

/// The same with another id in every event, as some gateways have it.
pub fn with_ids(text: &[&str], delta: &dyn Fn(usize, &str) -> String) -> Vec<String> {
    let head =
        |place| format!(r#""id":"gen-{place}","object":"chat.completion.chunk","created":1741569952,"model":"m""#);
    events_of(text, &head, delta)
}

fn events_of(text: &[&str], head: &dyn Fn(usize) -> String, delta: &dyn Fn(usize, &str) -> String) -> Vec<String> {
    let event = |(place, text): (usize, &&str)| format!("{{{},{}}}", head(place), delta(place, &quoted(text)));
    let mut events: Vec<String> = text.iter().enumerate().map(event).collect();
    let head = head(text.len());
    events.push(format!(r#"{{{head},"choices":[{{"index":0,"delta":{{"content":"."}},"finish_reason":"stop"}}]}}"#));
    events.push(format!(
        r#"{{{head},"choices":[],"usage":{{"prompt_tokens":19,"completion_tokens":{},"total_tokens":29}}}}"#,
        text.len()
    ));
    events
}

pub fn plain(_: usize, text: &str) -> String {
    format!(r#""choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":null}}]"#)
}

pub fn reasoning(_: usize, text: &str) -> String {
    format!(
        r#""choices":[{{"index":0,"delta":{{"content":null,"reasoning_content":{text}}},"logprobs":null,"finish_reason":null}}]"#
    )
}

/// The manner of Mistral's reasoning models.
pub fn thinking(_: usize, text: &str) -> String {
    let content = format!(r#"[{{"type":"thinking","thinking":[{{"type":"text","text":{text}}}]}}]"#);
    format!(r#""choices":[{{"index":0,"delta":{{"content":{content}}},"finish_reason":null}}]"#)
}

pub fn padded(place: usize, text: &str) -> String {
    let padding = "vUEMJS1cNpwb07Ax".get(place % 7..).unwrap_or_default();
    format!(
        r#""service_tier":"default","system_fingerprint":"fp_b376dfbbd5","choices":[{{"index":0,"delta":{{"content":{text}}},"logprobs":null,"finish_reason":null}}],"usage":null,"obfuscation":"{padding}{place}""#
    )
}

pub fn counted(place: usize, text: &str) -> String {
    let (tokens, total) = (place + 1, place + 20);
    let usage = format!(r#"{{"prompt_tokens":19,"total_tokens":{total},"completion_tokens":{tokens}}}"#);
    format!(r#"{},"usage":{usage}"#, plain(place, text))
}

pub fn details(_: usize, text: &str) -> String {
    format!(
        r#""provider":"Anthropic","choices":[{{"index":0,"delta":{{"role":"assistant","content":"","reasoning":{text},"reasoning_details":[{{"type":"reasoning.text","text":{text},"format":"anthropic-claude-v1","index":0}}]}},"finish_reason":null,"native_finish_reason":null,"logprobs":null}}]"#
    )
}

pub fn arguments(place: usize, text: &str) -> String {
    let call = match place {
        0 => {
            format!(r#"{{"index":0,"id":"call_1","type":"function","function":{{"name":"write","arguments":{text}}}}}"#)
        }
        _ => format!(r#"{{"index":0,"function":{{"arguments":{text}}}}}"#),
    };
    format!(r#""choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}},"finish_reason":null}}]"#)
}

pub fn typed(data: &str) -> usize {
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
        #[serde(borrow, alias = "reasoning_content")]
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

/// Of a stream of [`thinking`], in which content is a list, or text at the end.
pub fn thinking_typed(data: &str) -> usize {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        choices: Vec<Choice<'a>>,
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
        content: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow)]
        thinking: Vec<Thought<'a>>,
    }
    #[derive(Deserialize)]
    struct Thought<'a> {
        #[serde(borrow)]
        text: Cow<'a, str>,
    }
    let of_choice = |choice: &Choice<'_>| {
        let content = choice.delta.content.get();
        if content.starts_with('"') {
            return serde_json::from_str::<Cow<'_, str>>(content).unwrap().len();
        }
        let parts: Vec<Part<'_>> = serde_json::from_str(content).unwrap();
        parts.iter().flat_map(|part| &part.thinking).map(|thought| thought.text.len()).sum()
    };
    serde_json::from_str::<Event<'_>>(data).unwrap().choices.iter().map(of_choice).sum()
}
