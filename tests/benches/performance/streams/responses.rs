//! The responses wire.

use std::borrow::Cow;

use serde::Deserialize;

use super::quoted;

/// An item that is added, a delta for each text and one more, the item done, completed.
///
/// `id` is that of the item in the event of this place.
pub fn events(text: &[&str], kind: &str, item: &str, id: fn(usize) -> String) -> Vec<String> {
    let part = if kind.starts_with("reasoning") { "summary_index" } else { "content_index" };
    let piece = |(place, text): (usize, &&str)| {
        let padding = "vUEMJS1cNpwb07Ax".get(place % 7..).unwrap_or_default();
        format!(
            r#"{{"type":"response.{kind}.delta","sequence_number":{},"item_id":"{}","output_index":0,"{part}":0,"delta":{},"logprobs":[],"obfuscation":"{padding}{place}"}}"#,
            place + 4,
            id(place),
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

pub fn typed(data: &str) -> usize {
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
