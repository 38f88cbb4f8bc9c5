//! The messages wire of Anthropic.

use std::borrow::Cow;

use serde::Deserialize;

use super::quoted;

/// Start, a delta for each text and one more, stop.
///
/// There are as many blocks as that, and the deltas are of each in turn.
pub fn events(text: &[&str], block: &str, delta: &dyn Fn(&str) -> String, blocks: usize) -> Vec<String> {
    let piece = |(place, text): (usize, &&str)| {
        let index = place % blocks;
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{{}}}}}"#, delta(&quoted(text)))
    };
    let mut events = vec![
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":19,"output_tokens":1}}}"#.to_owned(),
    ];
    let start = |index| format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#);
    events.extend((0..blocks).map(start));
    let last: &[&str] = &["."];
    events.extend(text.iter().chain(last).enumerate().map(piece));
    events.extend((0..blocks).map(|index| format!(r#"{{"type":"content_block_stop","index":{index}}}"#)));
    events.extend(
        [
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}}"#,
            r#"{"type":"message_stop"}"#,
        ]
        .map(str::to_owned),
    );
    events
}

pub fn typed(data: &str) -> usize {
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
        #[serde(borrow, alias = "thinking")]
        text: Option<Cow<'a, str>>,
        #[serde(borrow)]
        partial_json: Option<Cow<'a, str>>,
        #[serde(borrow, rename = "stop_reason")]
        _stop_reason: Option<Cow<'a, str>>,
    }
    let event: Event<'_> = serde_json::from_str(data).unwrap();
    event.delta.map_or(0, |delta| delta.text.or(delta.partial_json).map_or(0, |text| text.len()))
}
