//! Events that are compared with the one before, which decoders do for speed, against events that are read.
//!
//! An event whose data is JSON but no object says nothing on any wire, and what comes after it is read, since it repeats
//! nothing. So a stream with such an event behind each of its own must give the same chunks as the stream alone.

use dsh_plugin_api::sse::SseEvent;
use dsh_plugin_api::{Adapter, StreamEnd};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::decoding::{STREAM, Wire, decode};
use crate::framing;

/// What streams of a wire are made of. In the data of an event `@` stands for a string and `#` for a number.
#[derive(Debug, Clone, Copy)]
pub struct Events {
    /// Events that a stream begins with.
    pub starts: &'static [&'static str],
    /// Events that come many times, each as a rule like the one before it.
    pub pieces: &'static [&'static str],
    /// Events that come between them or at the end.
    pub ends: &'static [&'static str],
    /// Names of events.
    pub names: &'static [&'static str],
}

/// Nothing is said by this one.
const SILENT: &str = "data: 7\n\n";

/// An event stream gives the same chunks with silent events between its own.
pub fn check_body<W: Wire>(adapter: &impl Adapter, body: &[u8], end: &StreamEnd) {
    let (mut alone, mut apart) = (String::new(), String::new());
    // The last event may be open; it is not repeated by anything.
    for event in framing::events(body, &[]).iter().filter(|event| event.complete) {
        let written = written(event);
        alone += &written;
        apart += &written;
        apart += SILENT;
    }
    let read = decode::<W>(adapter, STREAM, apart.as_bytes(), &[], end);
    let compared = decode::<W>(adapter, STREAM, alone.as_bytes(), &[], end);
    assert_eq!(compared.items, read.items, "compared, and read: {alone}");
}

fn written(event: &SseEvent) -> String {
    let name = if event.name.is_empty() { String::new() } else { format!("event: {}\n", event.name) };
    let data: String = event.data.split('\n').map(|line| format!("data: {line}\n")).collect();
    name + &data + "\n"
}

/// Streams of a wire in which most events repeat the one before but for strings, numbers, or a small change.
pub fn streams<W: Wire>() -> impl Strategy<Value = Vec<u8>> {
    let Events { starts, pieces, ends, names } = W::EVENTS;
    let start = proptest::sample::subsequence(starts, 0..=starts.len());
    let name = prop_oneof![3 => Just(""), 1 => select(names)];
    let piece =
        (select(pieces), proptest::collection::vec((fill(), change(), name.clone()), 1..6)).prop_map(run).boxed();
    let other = (select(ends), fill(), name).prop_map(|(form, fill, name)| event(&filled(form, &fill), name)).boxed();
    let pieces = proptest::collection::vec(prop_oneof![7 => piece, 1 => other.clone()], 1..7);
    (start, pieces, any::<bool>(), proptest::collection::vec(other, 0..3)).prop_map(|(start, pieces, starts, ends)| {
        let start = start.into_iter().filter(|_| starts).map(|data| event(&filled(data, &Fill::default()), ""));
        start.chain(pieces).chain(ends).collect::<String>().into_bytes()
    })
}

/// Strings and numbers for the places of a form, in their order; the last one of each stands for all that are missing.
#[derive(Debug, Clone, Default)]
struct Fill {
    strings: Vec<&'static str>,
    numbers: Vec<&'static str>,
}

fn fill() -> impl Strategy<Value = Fill> {
    let strings = prop_oneof![3 => select(&PLAIN[..]), 1 => select(&STRINGS[..])];
    let numbers = prop_oneof![3 => select(&["1", "12", "305"][..]), 1 => select(&NUMBERS[..])];
    (proptest::collection::vec(strings, 1..3), proptest::collection::vec(numbers, 1..4))
        .prop_map(|(strings, numbers)| Fill { strings, numbers })
}

const PLAIN: [&str; 4] = ["\"a\"", "\" b\"", "\"é😀\"", r#""\n\"""#];

/// What may stand where a string is expected.
const STRINGS: [&str; 24] = [
    "\" \"",
    "\"\"",
    r#""\"x\\""#,
    r#""\ud83d\ude00""#,
    r#""x\ud83d""#,
    r#""\ude00y""#,
    r#""\ud83d\ud83d""#,
    r#""{\"a\":1}""#,
    r#""{""#,
    r#""\u0022""#,
    r#""\/""#,
    "\"\t\"",
    "\"\u{7f}\"",
    r#""\x""#,
    r#""\u12""#,
    "null",
    "7",
    "{}",
    r#"{"a":"b"}"#,
    r#"["c"]"#,
    r#""a","content":"b""#,
    r#""a","type":"b","text":"c","delta":"d""#,
    r#""a"}"#,
    "\"a",
];

/// What may stand where a number is expected.
const NUMBERS: [&str; 17] = [
    "0",
    "00",
    "07",
    "-1",
    "1.5",
    "1e3",
    "1E400",
    "1.",
    "1x",
    "999999999999999999",
    "1000000000000000000",
    "18446744073709551615",
    "18446744073709551616",
    "\"3\"",
    "\"\\u0033\"",
    "null",
    "{}",
];

/// A change to the data of one event.
#[derive(Debug, Clone)]
enum Change {
    None,
    /// Members get in behind a brace.
    Insert(Index, &'static str),
    /// White space gets in, between tokens or not.
    Blank(Index, &'static str),
    /// One character becomes another.
    Replace(Index, char),
    /// Two members change places.
    Swap(Index),
    /// The end is lost.
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let members = [
        r#""text":"t","#,
        r#""type":"x","#,
        r#""type":null,"#,
        r#""delta":{"text":"u"},"#,
        r#""delta":"v","#,
        r#""content":"w","#,
        r#""index":1,"#,
        r#""id":"i","#,
        r#""name":"n","#,
        r#""error":{"message":"m"},"#,
        r#""error":null,"#,
        r#""usage":{"prompt_tokens":1},"#,
        r#""obfuscation":"o","#,
        r#""\"obfuscation":{},"#,
        r#""total_tokens":5,"#,
        r#""tokenCount":5,"#,
        r#""sequence_number":{"a":1},"#,
        r#""\ud83d":1,"#,
        r#""te\u0078t":"t","#,
    ];
    prop_oneof![
        12 => Just(Change::None),
        3 => (any::<Index>(), select(members.to_vec())).prop_map(|(at, members)| Change::Insert(at, members)),
        1 => (any::<Index>(), select(&[" ", "  ", "\t", "\u{a0}"][..])).prop_map(|(at, blank)| Change::Blank(at, blank)),
        2 => (any::<Index>(), select("\"\\{}[],:019.e-nx ".chars().collect::<Vec<_>>()))
            .prop_map(|(at, c)| Change::Replace(at, c)),
        1 => any::<Index>().prop_map(Change::Swap),
        1 => any::<Index>().prop_map(Change::Cut),
    ]
}

impl Change {
    fn of(&self, data: &str) -> String {
        // Places are more often right behind a token than inside of one, and often at the end.
        let place = |at: &Index, of: &[char]| {
            let places: Vec<usize> = data.match_indices(of).map(|(at, token)| at + token.len()).collect();
            if places.is_empty() { data.len() } else { *at.get(&places) }
        };
        let put = |at: usize, what: &str| format!("{}{what}{}", &data[..at], &data[at..]);
        match self {
            Self::None => data.to_owned(),
            Self::Insert(at, members) => put(place(at, &['{']), members),
            Self::Blank(at, blank) => put(place(at, &['{', '}', ',', ':', '"', '1']), blank),
            Self::Replace(at, c) => {
                let places: Vec<(usize, char)> = data.char_indices().collect();
                let (at, old) = *at.get(&places);
                format!("{}{c}{}", &data[..at], &data[at + old.len_utf8()..])
            }
            Self::Swap(at) => {
                let at = place(at, &['{']);
                let (before, members) = data.split_at(at);
                match members.split_once(',') {
                    Some((first, rest)) => match rest.split_once(',') {
                        Some((second, rest)) => format!("{before}{second},{first},{rest}"),
                        None => data.to_owned(),
                    },
                    None => data.to_owned(),
                }
            }
            Self::Cut(at) => data[..place(at, &['{', '}', ',', ':', '"'])].to_owned(),
        }
    }
}

fn run((form, fills): (&str, Vec<(Fill, Change, &str)>)) -> String {
    fills.iter().map(|(fill, change, name)| event(&change.of(&filled(form, fill)), name)).collect()
}

fn filled(form: &str, fill: &Fill) -> String {
    let (mut strings, mut numbers) = (fill.strings.iter(), fill.numbers.iter());
    let (mut string, mut number) = ("\"a\"", "1");
    let mut out = String::new();
    for c in form.chars() {
        match c {
            '@' => {
                string = strings.next().unwrap_or(&string);
                out += string;
            }
            '#' => {
                number = numbers.next().unwrap_or(&number);
                out += number;
            }
            c => out.push(c),
        }
    }
    out
}

fn event(data: &str, name: &str) -> String {
    written(&SseEvent { name: name.to_owned(), data: data.to_owned(), complete: true })
}
