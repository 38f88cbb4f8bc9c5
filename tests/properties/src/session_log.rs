//! Session logs, however damaged: reading never fails but with a reason, and what was read can be written again.

use std::path::Path;

use dsh_host::store::{Log, StoreError};
use dsh_plugin_api::json;

/// Checks one input. Its first byte says what the rest is: a plain file, a compressed one, or lines that are compressed
/// first and then changed.
///
/// # Panics
///
/// When anything is not as promised.
pub fn check(data: &[u8]) {
    let Some((form, data)) = data.split_first() else { return };
    match form % 3 {
        0 => check_file("s.jsonl", data),
        1 => check_file("s.jsonl.zst", data),
        _ => {
            let Some((change, lines)) = data.split_first_chunk::<3>() else { return };
            // Two frames, so that the first can be damaged alone.
            let (first, second) = lines.split_at(lines.len() / 2);
            let mut file = [first, second].map(|lines| zstd::encode_all(lines, 1).unwrap()).concat();
            let [high, low, bits] = *change;
            let at = usize::from(u16::from_be_bytes([high, low])) % file.len();
            file[at] ^= bits;
            check_file("s.jsonl.zst", &file);
        }
    }
}

fn check_file(name: &str, bytes: &[u8]) {
    let path = Path::new(name);
    let log = match Log::from_bytes(path, bytes) {
        Ok(log) => log,
        Err(error) => {
            assert!(matches!(error, StoreError::NoSession { .. } | StoreError::NewerVersion { .. }), "{error}");
            return;
        }
    };
    let events = forms(&log);
    assert_eq!(events.len() as u64, log.events.len());
    assert!(log.events.iter().zip(0..).all(|(event, seq)| event.seq == seq), "events count from 0");
    let messages = said(&log);

    let without = Log::from_bytes_without_streams(path, bytes).unwrap();
    assert_eq!((without.events.len(), without.recovered), (log.events.len(), log.recovered));
    assert_eq!(said(&without), messages, "streams make no message");
    assert_eq!(without.problems, log.problems);

    // What a repair writes is sound, and says the same; nothing is left to recover.
    let lines = log.to_lines();
    let again = Log::from_bytes(Path::new("s.jsonl"), lines.as_bytes()).unwrap();
    assert_eq!((again.problems.as_slice(), again.recovered), (&[][..], 0));
    assert_eq!(forms(&again), events);
    assert_eq!(said(&again), messages);
    assert_eq!(json::raw(&again.header).get(), json::raw(&log.header).get());
    let packed = zstd::encode_all(lines.as_bytes(), 1).unwrap();
    let compressed = Log::from_bytes(Path::new("s.jsonl.zst"), &packed).unwrap();
    assert_eq!((compressed.problems.as_slice(), forms(&compressed)), (&[][..], events));
}

fn forms(log: &Log) -> Vec<String> {
    log.events.iter().map(|event| json::raw(&*event).get().to_owned()).collect()
}

fn said(log: &Log) -> String {
    json::raw(&log.messages()).get().to_owned()
}

/// Inputs to begin with: a log of everything, whole, and with each kind of damage, in each form.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    const HEADER: &str = r#"{"type":"session","version":0,"id":"s","createdAt":7,"cwd":"/p","delegationDepth":0}"#;
    const LINES: [&str; 16] = [
        r#"{"type":"turn/start","seq":0,"time":7,"data":{"turn":1}}"#,
        r#"{"type":"step/start","seq":1,"time":7,"data":{"turn":1,"step":1}}"#,
        r#"{"type":"user/message","seq":2,"time":7,"data":{"id":"u","role":"user","content":[{"type":"text","text":"hi"}],"source":{"kind":"user"}},"surfaceOp":"append"}"#,
        r#"{"type":"request/context","seq":3,"time":8,"data":{"provider":"p","model":"m"}}"#,
        r#"{"type":"assistant/chunk","seq":4,"time":8,"data":{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}}"#,
        r#"{"type":"text-chunks","seq0":5,"time0":9,"data":{"turn":1,"step":1,"index":0,"dt":[1,0],"texts":["a\ud83d","\ude00","b"]}}"#,
        r#"{"type":"tool-call-chunks","seq0":8,"time0":9,"data":{"turn":1,"step":1,"index":1,"dt":[0,0],"id":"c","name":"bash","args":["{","\"","}"]}}"#,
        r#"{"type":"reasoning-chunks","seq0":11,"time0":9,"data":{"turn":1,"step":1,"index":2,"dt":[0,-4],"texts":["x","y","z"]},"own":[1 ,2]}"#,
        r#"{"type":"assistant/chunk","seq":14,"time":9,"data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"b"}}}}"#,
        r#"{"type":"llm/retry","seq":15,"time":9,"data":{"turn":1,"step":1,"provider":"p","retry":1},"ignorable":true}"#,
        r#"{"type":"assistant/message","seq":16,"time":9,"data":{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"tool-call","id":"c","name":"bash","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m","replayState":{"response":null}}}},"surfaceOp":"append"}"#,
        r#"{"type":"tool/call","seq":17,"time":9,"data":{"turn":1,"step":1,"callId":"c","name":"bash","arguments":"{}"}}"#,
        r#"{"type":"plugin/own","seq":18,"time":9,"data":{"a":1e400,"a":-0.0},"z":null}"#,
        r#"{"type":"user/message","seq":19,"time":9,"data":{"id":"s","role":"user","content":"short","source":{"kind":"plugin"}},"surfaceOp":{"op":"replace","start":2,"end":16}}"#,
        r#"{"type":"session/title","seq":20,"time":9,"data":{"title":"t"}}"#,
        r#"{"type":"turn/end","seq":21,"time":9,"data":{"turn":1,"reason":{"kind":"completed"}}}"#,
    ];
    let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
    let whole = text(&[&[HEADER], &LINES[..]].concat());
    let open = text(&[&[HEADER], &LINES[..9]].concat());
    let mut logs = vec![
        whole.clone(),
        open.clone(),
        open[..open.len() - 30].to_vec(),
        [open.clone(), vec![0; 20]].concat(),
        text(&LINES[..4]),
        text(&[HEADER, LINES[0], HEADER, LINES[2]]),
        text(&[HEADER, "garbage", LINES[2], &LINES[6][..50], LINES[3]]),
        text(&[HEADER, LINES[2], LINES[2], LINES[13]]),
        text(&[HEADER, LINES[10], LINES[2]]),
        text(&[HEADER, &format!("{}{}\0\0{}", LINES[0], LINES[2], &LINES[6][3..])]),
        text(&[&HEADER.replace(":0,\"id\"", ":1,\"id\""), LINES[2]]),
        [text(&[HEADER, LINES[2]]), b"{\"type\":\"x\",\"data\":\"\xff\xc3\"}\n".to_vec()].concat(),
    ];
    let unended = whole.len() - 1;
    logs.push(whole[..unended].to_vec());
    let mut seeds: Vec<Vec<u8>> = logs.iter().map(|log| [&[0][..], log].concat()).collect();
    seeds.extend(logs.iter().map(|log| [&[1][..], &zstd::encode_all(&log[..], 3).unwrap()].concat()));
    seeds.extend(logs.iter().zip(3_u8..).map(|(log, at)| [&[2, 0, at * 7, 1 << (at % 8)][..], log].concat()));
    seeds
}
