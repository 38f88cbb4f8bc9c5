//! The wire of Google's Gemini.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::quoted;

/// A candidate for each text and one more, which ends it.
///
/// `part` writes a part, and `id` is that of the response in the event of this place.
pub fn events(text: &[&str], part: &dyn Fn(&str) -> String, id: fn(usize) -> String) -> Vec<String> {
    let event = |part: &str, end: &str, place: usize| {
        let (tokens, total, id) = (place + 1, place + 20, id(place));
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}}{end},"index":0}}],"usageMetadata":{{"promptTokenCount":19,"candidatesTokenCount":{tokens},"totalTokenCount":{total}}},"modelVersion":"m","responseId":"{id}"}}"#,
        )
    };
    let mut events: Vec<String> = text.iter().enumerate().map(|(place, text)| event(&part(text), "", place)).collect();
    events.push(event(&said("."), r#","finishReason":"STOP""#, text.len()));
    events
}

/// A part that is text.
pub fn said(text: &str) -> String {
    format!(r#"{{"text":{}}}"#, quoted(text))
}

/// A part that is reasoning.
pub fn thought(text: &str) -> String {
    format!(r#"{{"text":{},"thought":true}}"#, quoted(text))
}

/// A part that is a call with these arguments.
pub fn call(arguments: &str) -> String {
    format!(r#"{{"functionCall":{{"name":"write","args":{arguments}}}}}"#)
}

pub fn typed(data: &str) -> usize {
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
        #[serde(borrow, default)]
        text: Cow<'a, str>,
        #[serde(borrow, rename = "functionCall")]
        call: Option<Call<'a>>,
        #[serde(rename = "thought")]
        _thought: Option<bool>,
        #[serde(borrow, rename = "thoughtSignature")]
        _signature: Option<Cow<'a, str>>,
    }
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(borrow, rename = "name")]
        _name: Cow<'a, str>,
        #[serde(borrow)]
        args: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Usage {
        #[serde(rename = "promptTokenCount")]
        _prompt: u64,
        #[serde(rename = "candidatesTokenCount")]
        _candidates: u64,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    let of_part = |part: &Part<'_>| part.text.len() + part.call.as_ref().map_or(0, |call| call.args.get().len());
    event.candidates.iter().flat_map(|candidate| &candidate.content.parts).map(of_part).sum()
}
