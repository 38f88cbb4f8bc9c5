//! A decoder that compares events with the last one says the same as one that reads every event.

use dsh_plugin_api::abi::{BatchReader, Item};
use dsh_plugin_api::json::raw;
use dsh_plugin_api::vocab::Chunk;
use dsh_plugin_api::{Chunks, ResponseHead};
use proptest::prelude::*;

use dsh_plugin_api::Decoder as _;

use super::*;

/// The chunks of a stream, as text. `split`: bytes in a call. `forgets`: every event is read.
fn decode(events: &[String], split: usize, forgets: bool) -> String {
    let head = ResponseHead::Http { status: 200, headers: Vec::new() };
    let target = Target { provider: "p".to_owned(), model: "m".to_owned() };
    let mut decoder = decoder(ApiName::OpenaiCompletions, HeadFacts::read(&head).unwrap(), &target, true);
    let (mut out, mut reader) = (Chunks::new(), BatchReader::new());
    let mut chunks: Vec<Chunk> = Vec::new();
    let mut take = |out: &mut Chunks| {
        reader.read(&out.take_batch(), |item| match item {
            Item::Chunk(chunk) => chunks.push(chunk),
            Item::Wait(_) => {}
            Item::Malformed(text) => panic!("{text}"),
        });
    };
    let bodies: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    if forgets {
        for body in &bodies {
            decoder.feed(body.as_bytes(), &mut out);
            decoder.answer_mut().repeat.forget();
        }
    } else {
        for piece in bodies.concat().as_bytes().chunks(split) {
            decoder.feed(piece, &mut out);
            take(&mut out);
        }
    }
    decoder.finish(&StreamEnd::Complete, &mut out);
    take(&mut out);
    raw(&chunks).get().to_owned()
}

/// JSON texts for a place where a string is expected: most are strings, some of them hold what is hard to carry.
fn string() -> impl Strategy<Value = &'static str> {
    let all = [
        "\"a\"",
        "\" b\"",
        "\" \"",
        "\"\"",
        "\"é😀\"",
        r#""\n""#,
        r#""\"x\\""#,
        r#""\ud83d\ude00""#,
        r#""x\ud83d""#,
        r#""\ude00y""#,
        r#""{\"a\":1}""#,
        "\"\t\"",
        r#""\x""#,
        "null",
        "7",
        "{}",
        r#"{"a":"b"}"#,
        r#"["c"]"#,
        r#""a","content":"b""#,
        r#""a"}"#,
    ];
    proptest::sample::select(all.to_vec())
}

/// Forms of events; `@` stands for a string.
const FORMS: [&str; 19] = [
    r#"{"choices":[{"delta":{"content":@}}],"obfuscation":@}"#,
    r#"{"choices":[{"delta":{"content":@}}]}"#,
    r#"{"id":"r","model":"other","choices":[{"index":0,"delta":{"content":@},"finish_reason":null}],"usage":null}"#,
    r#"{"choices":[{"delta":{"content":@}}],"usage":{"prompt_tokens":0}}"#,
    r#"{"choices":[{"delta":{"content":@}}],"usage":{"prompt_tokens":1}}"#,
    r#"{"choices":[{"delta":{"content":[{"type":"text","text":@}]}}]}"#,
    r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"text":@}]}]}}]}"#,
    r#"{"choices":[{"delta":{"content":"x","refusal":@}}]}"#,
    r#"{"choices":[{"delta":{"reasoning_content":@}}]}"#,
    r#"{"choices":[{"delta":{"reasoning":@,"content":null}}]}"#,
    r#"{"choices":[{"delta":{"reasoning":"x","reasoning_details":[{"type":"reasoning.text","text":@}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":@}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":@}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"index":1,"function":{"arguments":@}}]}}]}"#,
    r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":@}}]}}]}"#,
    r#"{"choices":[{"delta":{"function_call":{"name":"g","arguments":@}}}]}"#,
    r#"{"choices":[{"message":{"content":@}}]}"#,
    r#"{"choices":[{"delta":{"content":"x"},"finish_reason":@}]}"#,
    r#"{"error":@,"choices":[{"delta":{"content":"x"}}]}"#,
];

/// A few events of one form behind another.
fn run() -> impl Strategy<Value = Vec<String>> {
    // The forms at the end mostly end the answer.
    let form = prop_oneof![8 => 0..16usize, 1 => 16..FORMS.len()];
    (form, proptest::collection::vec(string(), 1..5))
        .prop_map(|(form, strings)| strings.into_iter().map(|string| FORMS[form].replace('@', string)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn an_event_that_repeats_the_last_one_does_what_reading_it_would_do(
        runs in proptest::collection::vec(run(), 1..8),
        ends in any::<bool>(),
        split in 1usize..400,
    ) {
        let mut events = runs.concat();
        if ends {
            events.push(r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#.to_owned());
            events.push("[DONE]".to_owned());
        }
        prop_assert_eq!(decode(&events, split, false), decode(&events, split, true));
    }
}

#[test]
fn a_steady_stream_is_compared_and_not_read() {
    let mut events = vec![FORMS[1].replace('@', "\"a\""); 3];
    let head = ResponseHead::Http { status: 200, headers: Vec::new() };
    let target = Target { provider: "p".to_owned(), model: "m".to_owned() };
    let mut decoder = decoder(ApiName::OpenaiCompletions, HeadFacts::read(&head).unwrap(), &target, true);
    let mut out = Chunks::new();
    for event in &events {
        decoder.feed(format!("data: {event}\n\n").as_bytes(), &mut out);
        assert!(decoder.answer_mut().repeat.repeated(event).is_some());
    }
    events[1] = FORMS[4].replace('@', "\"a\"");
    decoder.feed(format!("data: {}\n\n", events[1]).as_bytes(), &mut out);
    let other = events[1].replace(":1}", ":2}");
    let repeated = decoder.answer_mut().repeat.repeated(&other).map(|repeated| repeated.counts[0]);
    assert_eq!(repeated, Some(Some(2)), "its counts are taken each time");
}
