//! What the store promises, on real files.

use std::sync::{Arc, Mutex};

use dsh_plugin_api::vocab::{Block, Chunk, Role, Source};
use proptest::prelude::*;
use serde_json::json;

use super::read::FileRead;
use super::*;

const HEADER: &str = r#"{"type":"session","version":0,"id":"s","createdAt":7,"cwd":"/p","delegationDepth":0}"#;

fn said(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

fn user(seq: u64, text: &str) -> String {
    format!(
        r#"{{"type":"user/message","seq":{seq},"time":{seq},"data":{{"id":"u{seq}","role":"user","content":[{{"type":"text","text":"{text}"}}],"source":{{"kind":"user"}}}},"surfaceOp":"append"}}"#
    )
}

fn plain(seq: u64) -> String {
    format!(r#"{{"type":"x/y","seq":{seq},"time":{seq},"data":{{}}}}"#)
}

fn read_text(text: impl AsRef<[u8]>) -> Result<(FileRead, Events), Unreadable> {
    read_as(Form::Plain, text.as_ref())
}

fn read_as(form: Form, bytes: &[u8]) -> Result<(FileRead, Events), Unreadable> {
    let mut events = Events::default();
    let read = read::read(bytes, form, "file", &mut |entry| events.push(entry))?;
    Ok((read, events))
}

fn forms(events: &Events) -> Vec<String> {
    events.iter().map(|event| json::raw(&*event).get().to_owned()).collect()
}

fn nobody() -> OnDurable {
    Box::new(|_| {})
}

/// A store with one session of this text, whose writes do not wait for the disk.
fn store_with(text: impl AsRef<[u8]>) -> (tempfile::TempDir, Store, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store { disk: Disk::recording(), ..Store::new(dir.path()) };
    let path = dir.path().join("s.jsonl");
    std::fs::write(&path, text).unwrap();
    (dir, store, path)
}

fn checkpoint(writer: &Writer) -> Result<(), StoreError> {
    fn sendable<F: Future<Output = Result<(), StoreError>> + Send>(future: F) -> F {
        future
    }
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(sendable(writer.checkpoint()))
}

#[test]
fn each_damaged_place_is_one_problem_and_no_message_is_lost() {
    let (a, b, c) = (user(0, "a"), user(1, "b"), user(2, "c"));
    let nuls = "\0".repeat(9);
    let row = |texts: &str| {
        format!(
            r#"{{"type":"text-chunks","seq0":1,"time0":1,"data":{{"turn":1,"step":1,"index":0,"dt":[0,0],"texts":{texts}}}}}"#
        )
    };
    /// Name, file, messages, problems.
    type Case = (&'static str, String, &'static [&'static str], &'static [(u64, &'static str)]);
    let cases: Vec<Case> = vec![
        ("sound", format!("{HEADER}\n{a}\n{b}\n"), &["a", "b"], &[]),
        ("blank lines", format!("{HEADER}\n\n{a}\r\n{b}\n"), &["a", "b"], &[]),
        ("torn tail", format!("{HEADER}\n{a}\n{}", &b[..30]), &["a"], &[(3, "torn-tail")]),
        ("no last newline", format!("{HEADER}\n{a}\n{b}"), &["a", "b"], &[(3, "missing-newline")]),
        ("NULs at the end", format!("{HEADER}\n{a}\n{nuls}"), &["a"], &[(3, "torn-tail")]),
        (
            "NULs before a record and alone",
            format!("{HEADER}\n{nuls}{a}\n{nuls}\n{b}\n"),
            &["a", "b"],
            &[(2, "nul-padding"), (3, "nul-padding")],
        ),
        ("bad line", format!("{HEADER}\n{a}\n{{\"type\":\n{c}\n"), &["a", "c"], &[(3, "unreadable")]),
        (
            "a record on two lines",
            format!("{HEADER}\n{a}\n{}\n{}\n{c}\n", &b[..60], &b[60..]),
            &["a", "c"],
            &[(3, "unreadable")],
        ),
        ("joined", format!("{HEADER}\n{a}{b}{c}\n"), &["a", "b", "c"], &[(2, "joined-records")]),
        ("joined to the header", format!("{HEADER}{a}\n{b}\n"), &["a", "b"], &[(1, "joined-records")]),
        ("glued to a fragment", format!("{HEADER}\n{a}\n{}{b}\n", &b[..40]), &["a", "b"], &[(3, "unreadable")]),
        ("fork", format!("{HEADER}\n{a}\n{b}\n{b}\n{c}\n"), &["a", "b", "b", "c"], &[(4, "seq-fork")]),
        ("gap", format!("{HEADER}\n{a}\n{c}\n"), &["a", "c"], &[(3, "seq-gap")]),
        ("missing header", format!("{a}\n{b}\n"), &["a", "b"], &[(1, "missing-header")]),
        ("broken header", format!("garbage\n{a}\n{b}\n"), &["a", "b"], &[(1, "missing-header")]),
        ("second header", format!("{HEADER}\n{a}\n{HEADER}\n{a}\n"), &["a", "a"], &[(3, "second-header")]),
        ("bad row", format!("{HEADER}\n{a}\n{}\n{}\n", row("[1]"), user(4, "b")), &["a", "b"], &[(3, "unreadable")]),
        ("flawed row", format!("{HEADER}\n{a}\n{}\n", row(r#"["x"]"#)), &["a"], &[(3, "flawed-record")]),
        ("unnumbered", format!("{HEADER}\n{}\n", a.replace(r#""seq":0,"time":0,"#, "")), &["a"], &[]),
        ("unknown events", format!("{HEADER}\n{}\n{b}\n", plain(0)), &["b"], &[]),
    ];
    for (name, text, messages, problems) in cases {
        let (read, events) = read_text(&text).unwrap();
        let found: Vec<(u64, &str)> = read.problems.iter().map(|p| (p.line, p.kind.as_str())).collect();
        assert_eq!(found, problems, "{name}: {:?}", read.problems);
        let history: Vec<Message> = derive::history(events.singles()).into_iter().map(|entry| entry.message).collect();
        assert_eq!(said(&history), messages, "{name}");
        assert!(events.iter().zip(0..).all(|(event, seq)| event.seq == seq), "{name}");
    }
}

#[test]
fn invalid_utf8_is_replaced_and_reported() {
    let text = format!("{HEADER}\n{}\n", user(0, "a?b"));
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
    let (read, events) = read_text(bytes).unwrap();
    assert_eq!(derive::history(events.singles())[0].message.text(), "a\u{fffd}b");
    assert_eq!((read.problems[0].line, read.problems[0].kind.as_str()), (2, "invalid-utf8"));
}

#[test]
fn a_file_without_header_and_message_is_no_session_and_a_newer_one_is_refused() {
    for text in
        ["", "\0\u{1f}garbage\n", "garbage\n{\"type\":\"turn/start\",\"seq\":0,\"data\":{\"turn\":1}}\n", &HEADER[..20]]
    {
        assert!(matches!(read_text(text), Err(Unreadable::NoSession(_))), "{text:?}");
    }
    for version in ["1", "\"0\"", "0.5"] {
        let text = format!("{}\n", HEADER.replace("\"version\":0", &format!("\"version\":{version}")));
        assert!(matches!(read_text(&text), Err(Unreadable::Newer(found)) if found == version));
    }
    assert!(read_text(format!("{HEADER}\n")).unwrap().1.is_empty());
}

#[test]
fn what_follows_a_damaged_header_keeps_the_file_name_as_id() {
    assert_eq!(read_text(user(0, "a") + "\n").unwrap().0.header.id, "file");
}

#[test]
fn replacements_follow_events_that_were_renumbered() {
    let replace = user(9, "x").replace(r#""append""#, r#"{"op":"replace","start":5,"end":6}"#);
    let text = format!("{HEADER}\n{}\n{}\n{}\n{}\n{replace}\n", user(0, "a"), user(5, "b"), user(6, "c"), user(8, "d"));
    let (_, events) = read_text(&text).unwrap();
    let history: Vec<String> = derive::history(events.singles()).iter().map(|entry| entry.message.text()).collect();
    assert_eq!(history, ["a", "x", "d"]);
}

/// A session with every kind of line that the writer makes, the last turn open.
fn small_session() -> (String, Vec<NewEvent>) {
    let delta = |text: &str| NewEvent::assistant_chunk(1, 1, &Chunk::TextDelta { index: 0, text: text.into() });
    let call = Block::ToolCall { id: "c".into(), name: "bash".into(), arguments: "{}".into() };
    let answer =
        Message::new("a", Role::Assistant, vec![Block::Text("é😀".into()), call], Source::model("p", "m", None));
    let events = vec![
        NewEvent::turn_start(1),
        NewEvent::step_start(1, 1),
        NewEvent::user_message(&Message::user("u", "hi")),
        NewEvent::request_context("p", "m", None),
        delta("é"),
        delta("😀"),
        delta("!"),
        NewEvent::assistant_message(1, 1, &answer, None, false),
        NewEvent::tool_call(1, 1, "c", "bash", "{}"),
    ];
    let placed: Vec<Event> = events.iter().cloned().zip(0..).map(|(event, seq)| event.at(seq, 9)).collect();
    let mut text = format!("{HEADER}\n");
    line::encode(&placed, 0, &mut text);
    (text, events)
}

/// What is read is what the next writer makes durable, and what it goes on with.
fn assert_same(opened: &Log, read: &Log, store: &Store, cut: usize) {
    let durable = store.read("s").unwrap();
    assert_eq!((durable.recovered, forms(&durable.events)), (0, forms(&read.events)), "cut at {cut}");
    let singles = |log: &Log| log.events.singles().map(|event| json::raw(event).get().to_owned()).collect::<Vec<_>>();
    let is_chunk = |event: &String| event.contains(r#""type":"assistant/chunk""#);
    let without_streams: Vec<String> = singles(read).into_iter().filter(|event| !is_chunk(event)).collect();
    assert_eq!((opened.events.len(), singles(opened)), (read.events.len(), without_streams), "cut at {cut}");
    assert_eq!((opened.recovered, opened.last_time), (read.recovered, read.last_time), "cut at {cut}");
    assert_eq!(json::raw(&opened.messages()).get(), json::raw(&read.messages()).get(), "cut at {cut}");
}

#[test]
fn a_log_that_is_cut_at_any_byte_keeps_every_complete_line_and_opens() {
    let (text, _) = small_session();
    let (_dir, store, path) = store_with("");
    for cut in HEADER.len()..=text.len() {
        std::fs::write(&path, &text.as_bytes()[..cut]).unwrap();
        // Lines that are whole; a last one may lack its newline.
        let whole = text.match_indices('\n').filter(|(end, _)| *end <= cut).count() - 1;
        let counts = text.lines().skip(1).take(whole).map(|line| if line.contains("\"texts\"") { 3 } else { 1 });
        let expected: u64 = counts.sum();
        let log = store.read("s").unwrap();
        assert_eq!(log.events.len() - log.recovered, expected, "cut at {cut}");
        let (opened, writer) = store.open("s", nobody()).unwrap();
        assert_same(&opened, &log, &store, cut);
        writer.append(vec![NewEvent::user_message(&Message::user("n", "next"))]);
        drop(writer);
        let log = store.read("s").unwrap();
        assert_eq!(log.problems, [], "cut at {cut}");
        assert_eq!(log.recovered, 0, "cut at {cut}");
        assert_eq!(log.messages().last().unwrap().text(), "next", "cut at {cut}");
        assert!(log.events.len() > opened.events.len(), "cut at {cut}");
    }
}

#[test]
fn opening_a_sound_log_changes_no_byte() {
    let text = format!("{HEADER}\n{}\n{}\n", user(0, "a"), plain(1));
    let (_dir, store, path) = store_with(&text);
    drop(store.open("s", nobody()).unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_forked_log_goes_on_above_all_seqs_without_a_new_problem() {
    let text = format!("{HEADER}\n{}\n{}\n{}\n", user(0, "a"), user(1, "b"), user(1, "c"));
    let (_dir, store, path) = store_with(&text);
    let (log, writer) = store.open("s", nobody()).unwrap();
    assert_eq!(log.problems.len(), 1);
    let seq = writer.append(vec![NewEvent::turn_end(1, &json!({"kind":"completed"}))]);
    assert_eq!(seq, 3);
    drop(writer);
    let after = std::fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(&text) && after[text.len()..].contains("\"seq\":2,"), "{after}");
    assert_eq!(store.read("s").unwrap().problems, log.problems);
}

#[test]
fn what_was_appended_is_acknowledged_once_durable_and_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("new/folder"));
    let durable = Arc::new(Mutex::new(Vec::new()));
    let seen = durable.clone();
    let on_durable: OnDurable = Box::new(move |events| seen.lock().unwrap().extend(events.events().map(|e| e.seq)));
    let writer = store.create(Header::new("id", 5, None), on_durable).unwrap();
    assert!(matches!(store.open("id", nobody()), Err(StoreError::Locked { pid: Some(_), .. })));
    let (_, events) = small_session();
    assert_eq!(writer.append(events.clone()), 0);
    assert_eq!(writer.append(Vec::<NewEvent>::new()), 9);
    checkpoint(&writer).unwrap();
    assert_eq!(*durable.lock().unwrap(), (0..9).collect::<Vec<_>>());
    let on_disk = std::fs::read_to_string(writer.path()).unwrap();
    assert!(on_disk.contains("\"text-chunks\",\"seq0\":4"), "{on_disk}");
    drop(writer);
    let log = store.read("id").unwrap();
    assert_eq!(log.events.iter().take(events.len()).count(), events.len());
    for (logged, event) in log.events.iter().zip(&events) {
        assert_eq!(logged.data.get(), event.data.get());
    }
    assert!(matches!(store.create(Header::new("id", 5, None), nobody()), Err(StoreError::Exists(_))));
    assert!(matches!(store.create(Header::new("../x", 5, None), nobody()), Err(StoreError::InvalidId(_))));
}

#[cfg(unix)]
#[test]
fn logs_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("sessions"));
    let writer = store.create(Header::new("id", 5, None), nobody()).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(store.dir()), mode(writer.path())), (0o700, 0o600));
}

#[test]
fn a_compressed_log_is_continued_in_a_plain_file_beside_it() {
    let (text, _) = small_session();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("project/s");
    std::fs::create_dir_all(&folder).unwrap();
    let compressed = folder.join("session.jsonl.zst");
    let half = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let frames = [&text[..half], &text[half..]].map(|part| zstd::encode_all(part.as_bytes(), 3).unwrap());
    let bytes = frames.concat();
    std::fs::write(&compressed, &bytes).unwrap();
    let store = Store::new(dir.path());
    let before = store.read("s").unwrap();
    let (log, writer) = store.open("s", nobody()).unwrap();
    assert_eq!(log.path, folder.canonicalize().unwrap().join("session.jsonl"));
    drop(writer);
    assert_eq!(std::fs::read(&compressed).unwrap(), bytes, "the original is untouched");
    let after = store.read("s").unwrap();
    assert_eq!(after.path, folder.join("session.jsonl"));
    assert_eq!((after.recovered, after.events.len()), (0, before.events.len()));
    let path = compressed.to_str().unwrap();
    assert!(matches!(store.open(path, nobody()), Err(StoreError::Continued { .. })));
}

#[test]
fn a_torn_frame_is_one_problem() {
    let (text, _) = small_session();
    let half = text[..text.len() / 2].rfind('\n').unwrap() + 1;
    let frames = [&text[..half], &text[half..]].map(|part| zstd::encode_all(part.as_bytes(), 3).unwrap());
    let bytes = frames.concat();
    for cut in frames[0].len() + 1..bytes.len() {
        let (read, events) = read_as(Form::Zstd, &bytes[..cut]).unwrap();
        let kinds: Vec<&str> = read.problems.iter().map(|problem| problem.kind.as_str()).collect();
        assert_eq!(kinds, ["torn-frame"], "{cut}");
        assert!(events.len() >= text[..half].lines().count() as u64 - 1, "{cut}");
    }
}

#[test]
fn a_file_without_any_sound_frame_is_called_damaged_and_not_empty() {
    let (text, _) = small_session();
    for (bytes, told) in [(text.into_bytes(), "the Zstandard frame at byte 0 is damaged"), (Vec::new(), "it is empty")]
    {
        let Err(read::Unreadable::NoSession(reason)) = read_as(Form::Zstd, &bytes) else { panic!("{told}") };
        assert!(reason.starts_with(told), "{reason}");
    }
}

#[test]
fn the_list_has_the_newest_first_and_marks_what_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let title = r#"{"type":"session/title","seq":1,"time":1,"data":{"title":"T","messageSeqs":[0],"source":{"kind":"fallback"}}}"#;
    for (name, text) in [
        ("old.jsonl", format!("{HEADER}\n{}\n{title}\n", user(0, "a"))),
        ("new.jsonl", format!("{}\n", HEADER.replace(":7", ":99999999999999"))),
        ("broken.jsonl", "garbage\n".to_owned()),
        ("later.jsonl", format!("{}\n", HEADER.replace("\"version\":0", "\"version\":3"))),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let listed = Store::new(dir.path()).list().unwrap();
    assert_eq!((listed[0].id.as_str(), listed[3].id.as_str()), ("new", "old"));
    assert_eq!((listed[3].title.as_deref(), listed[3].messages.as_ref().ok()), (Some("T"), Some(&1)));
    for entry in &listed[1..3] {
        assert!(entry.messages.is_err(), "{}", entry.id);
    }
    assert!(Store::new(dir.path().join("none")).list().unwrap().is_empty());
}

/// A compressed session as it was while its writer lived: the file after each checkpoint, and how many events were
/// acknowledged by then.
fn compressed_states(dir: &Path) -> (Store, PathBuf, Vec<(usize, u64)>, Vec<u8>) {
    let store = Store { disk: Disk::recording(), ..Store::new(dir).compressed() };
    let writer = store.create(Header::new("s", 5, None), nobody()).unwrap();
    let path = writer.path().to_owned();
    assert_eq!(path, dir.join("s.jsonl.zst"));
    let mut states = Vec::new();
    let mut count = 0;
    let mut commit = |events: Vec<NewEvent>| {
        count += events.len() as u64;
        writer.append(events);
        checkpoint(&writer).unwrap();
        states.push((usize::try_from(path.metadata().unwrap().len()).unwrap(), count));
    };
    let (_, events) = small_session();
    commit(events[..4].to_vec());
    commit(events[4..].to_vec());
    commit(vec![NewEvent::step_end(1, 1), NewEvent::turn_end(1, &json!({"kind":"completed"}))]);
    // Texts that do not compress, so that one batch is several blocks and a block can end in the middle of a line.
    let mut noise = 1_u64;
    let mut text = |length: usize| -> String {
        let mut letter = || {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'0' + u8::try_from(noise >> 58).unwrap() % 64 % 43)
        };
        (0..length).map(|_| letter()).filter(|letter| *letter != '\\').collect()
    };
    commit(vec![NewEvent::turn_start(2), NewEvent::user_message(&Message::user("v", "more"))]);
    commit((0..4).map(|n| NewEvent::user_message(&Message::user(format!("n{n}"), text(50_000)))).collect());
    commit(events[4..7].to_vec());
    let bytes = std::fs::read(&path).unwrap();
    (store, path, states, bytes)
}

#[test]
fn a_compressed_log_that_is_cut_at_any_byte_keeps_what_was_acknowledged_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path, states, bytes) = compressed_states(dir.path());
    let (read, events) = read_as(Form::Zstd, &bytes).unwrap();
    assert_eq!(read.problems, [], "a frame that goes on is no damage");
    let all = forms(&events);
    let header = zstd::zstd_safe::find_frame_compressed_size(&bytes).unwrap();
    let near = |cut: &usize| states.iter().any(|(length, _)| cut.abs_diff(*length) < 12) || *cut < states[3].0;
    // Every byte of the small batches; the noise in steps, and every byte around the ends of batches.
    for cut in (header..=bytes.len()).filter(|cut| near(cut) || cut % 4_999 == 0 || *cut > states[4].0) {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let acknowledged = states.iter().rev().find(|(length, _)| *length <= cut).map_or(0, |(_, count)| *count);
        let log = store.read("s").unwrap();
        let (opened, writer) = store.open("s", nobody()).unwrap();
        let kept = opened.events.len() - opened.recovered;
        assert!(kept >= acknowledged, "{kept} of {acknowledged} events; cut at {cut}");
        let kept = usize::try_from(kept).unwrap();
        assert_eq!(forms(&log.events)[..kept], all[..kept], "cut at {cut}");
        assert_same(&opened, &log, &store, cut);
        let before = forms(&log.events);
        writer.append(vec![NewEvent::turn_start(3), NewEvent::user_message(&Message::user("n", "next"))]);
        checkpoint(&writer).unwrap();
        let unfinished = store.read("s").unwrap();
        assert_eq!(unfinished.problems, [], "cut at {cut}");
        writer.append(vec![NewEvent::turn_end(3, &json!({"kind":"completed"}))]);
        drop(writer);
        let log = store.read("s").unwrap();
        assert_eq!((log.problems.as_slice(), log.recovered), (&[][..], 0), "cut at {cut}");
        assert_eq!(log.messages().last().unwrap().text(), "next", "cut at {cut}");
        assert_eq!(forms(&log.events)[..before.len()], before, "cut at {cut}");
        let decoded = zstd::decode_all(&std::fs::read(&path).unwrap()[..]).unwrap();
        assert!(decoded.ends_with(b"\n"), "any decoder reads the whole file; cut at {cut}");
        assert!(!dir.path().join("s.jsonl").exists(), "it goes on in place");
    }
}

#[test]
fn a_compressed_log_is_whole_for_any_decoder_once_its_writer_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path()).compressed();
    let writer = store.create(Header::new("s", 5, None), nobody()).unwrap();
    writer.append(small_session().1);
    checkpoint(&writer).unwrap();
    let path = writer.path().to_owned();
    assert!(zstd::decode_all(&std::fs::read(&path).unwrap()[..]).is_err(), "the frame goes on");
    drop(writer);
    let whole = std::fs::read(&path).unwrap();
    let decoded = zstd::decode_all(&whole[..]).unwrap();
    let log = store.read("s").unwrap();
    assert_eq!((log.problems.len(), log.events.len() - log.recovered), (0, 9));
    assert_eq!(decoded.iter().filter(|byte| **byte == b'\n').count(), 8, "a header, six events, one row");
    // Opening closes the turn; opening again has nothing left to do.
    drop(store.open("s", nobody()).unwrap());
    let recovered = std::fs::read(&path).unwrap();
    assert!(recovered.starts_with(&whole) && recovered.len() > whole.len());
    drop(store.open("s", nobody()).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), recovered, "opening a sound log changes no byte");
}

#[test]
fn a_session_keeps_the_form_that_it_began_in() {
    let text = format!("{HEADER}\n{}\n", user(0, "a"));
    let (_dir, store, path) = store_with(&text);
    let (log, writer) = store.compressed().open("s", nobody()).unwrap();
    assert_eq!(writer.path(), path.canonicalize().unwrap());
    writer.append(vec![NewEvent::user_message(&Message::user("n", "next"))]);
    drop(writer);
    let after = std::fs::read_to_string(&path).unwrap();
    assert!(after.starts_with(&text) && after.contains("next") && log.problems.is_empty(), "{after}");
}

#[test]
fn a_compressed_log_whose_end_is_damaged_is_not_cut_but_continued_beside() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path, states, mut bytes) = compressed_states(dir.path());
    // A block of the kind that does not exist, behind acknowledged events.
    bytes.truncate(states[1].0);
    bytes.extend_from_slice(&[0xff; 40]);
    std::fs::write(&path, &bytes).unwrap();
    let (log, writer) = store.open("s", nobody()).unwrap();
    assert_eq!(log.events.len() - log.recovered, states[1].1);
    assert_eq!(writer.path(), dir.path().canonicalize().unwrap().join("s.jsonl"));
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "the original is untouched");
}

/// JSON as others may write it.
fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0.0".to_owned()),
        Just("1e400".to_owned()),
        Just("123456789012345678901234567890".to_owned()),
        Just("0.10".to_owned()),
        any_string(),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            proptest::collection::vec((any_string(), inner), 0..4).prop_map(|members| {
                let members: Vec<String> = members.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

/// A JSON string, perhaps with half a character.
fn any_string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a"),
        Just("é"),
        Just("😀"),
        Just("\\n"),
        Just("\\\""),
        Just("\\u0000"),
        Just("\\ud83d"),
        Just("\\ude00"),
        Just("\\/"),
        Just("\u{2028}"),
        Just("{\\\"type\\\":"),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// A line of a log: one of dsh's own events with whatever content, one of another writer, or a row.
fn any_record() -> impl Strategy<Value = String> {
    let own = proptest::sample::select(vec![
        kind::TURN_START,
        kind::TURN_END,
        kind::STEP_START,
        kind::STEP_END,
        kind::USER_MESSAGE,
        kind::ASSISTANT_MESSAGE,
        kind::ASSISTANT_CHUNK,
        kind::REQUEST_HEADER,
        kind::REQUEST_CONTEXT,
        kind::TOOL_CALL,
        kind::TOOL_RESULT,
        kind::SESSION_TITLE,
        kind::LLM_DEGRADE,
        kind::LLM_RETRY,
        "plugin/own",
        "",
        "text-chunk",
    ]);
    let members = |name: BoxedStrategy<String>| {
        let members = proptest::collection::vec((name, any_json()), 0..3);
        members.prop_map(|all| all.iter().map(|(name, value)| format!(",\"{name}\":{value}")).collect::<String>())
    };
    let event =
        (own, any_json(), members("[a-z]{2}".boxed()), any::<bool>()).prop_map(|(kind, data, members, first)| {
            match first {
                true => format!(r#"{{"type":"{kind}","data":{data}{members}}}"#),
                false => format!(r#"{{"data" : {data}{members} , "type":"{kind}"}}"#),
            }
        });
    // A row may have what means something to events alone.
    let of_rows = prop_oneof![2 => "[a-z]{2}", 1 => Just("seq".to_owned()), 1 => Just("time".to_owned())];
    let row = (0..3_u8, proptest::collection::vec((any_string(), 0..3_i64), 1..6), any_string(), members(of_rows.boxed()), 0..6_u8).prop_map(
        |(kind, pieces, id, members, odd)| {
            let texts: Vec<&str> = pieces.iter().map(|(text, _)| text.as_str()).collect();
            let gaps: Vec<String> = pieces[1..].iter().map(|(_, gap)| (gap - i64::from(odd == 1)).to_string()).collect();
            let (kind, name) = [("text-chunks", "texts"), ("reasoning-chunks", "texts"), ("tool-call-chunks", "args")][usize::from(kind)];
            let id = match (name, odd) {
                ("args", 2) => format!(r#","id":{id}"#),
                ("args", 3) => r#","id":7,"name":null"#.to_owned(),
                ("args", _) => format!(r#","id":{id},"name":"bash""#),
                _ => String::new(),
            };
            let members = if odd == 4 { members } else { String::new() };
            let (texts, gaps) = (texts.join(","), gaps.join(","));
            format!(
                r#"{{"type":"{kind}","time0":50,"data":{{"turn":1,"step":2,"index":0,"dt":[{gaps}]{id},"{name}":[{texts}]}}{members}}}"#
            )
        },
    );
    prop_oneof![2 => event, 1 => row]
}

proptest! {
    #[test]
    fn everything_that_was_read_is_written_again_as_it_was(
        header in proptest::collection::vec(("[A-Z]{2}", any_json()), 0..3),
        records in proptest::collection::vec(any_record(), 0..16),
        batch in 1..6_usize,
    ) {
        let header: String = header.iter().map(|(name, value)| format!(",\"{name}\":{value}")).collect();
        let header = format!(r#"{{"type":"session","version":0,"id":"s","createdAt":7{header}}}"#);
        let lines: String = [header].iter().chain(&records).map(|line| format!("{line}\n")).collect();
        let read = |name: &str, bytes: &[u8]| Log::from_bytes(Path::new(name), bytes).unwrap();
        let log = read("s.jsonl", lines.as_bytes());
        prop_assert_eq!(&log.problems, &[]);
        let same = |other: &Log, way: &str| {
            let header = |log: &Log| json::raw(&log.header).get().to_owned();
            prop_assert_eq!(header(other), header(&log), "{}", way);
            prop_assert_eq!(forms(&other.events), forms(&log.events), "{}", way);
            prop_assert_eq!(&other.problems, &[], "{}", way);
            Ok(())
        };
        let packed = log.to_lines();
        same(&read("s.jsonl", packed.as_bytes()), "packed")?;
        let single: Events = log.events.iter().map(std::borrow::Cow::into_owned).collect();
        let repacked = repair::lines_of(&log.header, &single);
        same(&read("s.jsonl", repacked.as_bytes()), "packed again")?;
        prop_assert_eq!(&repacked, &read("s.jsonl", repacked.as_bytes()).to_lines(), "packing is done when it is done");
        // As a writer of compressed logs stores it, batch by batch.
        let mut packer = Packer::new(Form::Zstd);
        let lines: Vec<&str> = packed.split_inclusive('\n').collect();
        let mut frames = Vec::new();
        for (n, lines) in lines.chunks(batch).enumerate() {
            let end = if n % 3 == 0 { BatchEnd::Frame } else { BatchEnd::Flush };
            frames.extend(packer.pack(lines.concat().into_bytes(), end).unwrap());
        }
        same(&read("s.jsonl.zst", &frames), "frames that go on")?;
        frames.extend_from_slice(packer.close());
        same(&read("s.jsonl.zst", &frames), "frames")?;
    }
}

/// Lines that a log may hold in any order: events of turns, chunks, rows, answers, results.
fn any_line() -> impl Strategy<Value = String> {
    let place = |turn: u64, step: u64| format!(r#""turn":{turn},"step":{step}"#);
    let text = prop_oneof![Just("a"), Just(""), Just("\\ud83d"), Just("\\ude00b"), Just(" "), Just("é\\n")];
    let block = prop_oneof![
        Just(r#"{"type":"text","text":"t"}"#),
        Just(r#"{"type":"reasoning","text":"r"}"#),
        Just(r#"{"type":"tool-call","id":"c","name":"bash","arguments":"{}"}"#),
    ];
    (0..14_u8, 1..3_u64, 1..3_u64, 0..3_u32, proptest::collection::vec(text, 1..6), block).prop_map(
        move |(kind, turn, step, index, texts, block)| {
            let at = place(turn, step);
            let event = |kind: &str, data: &str| format!(r#"{{"type":"{kind}","data":{data}}}"#);
            let chunk = |chunk: &str| event("assistant/chunk", &format!(r#"{{{at},"chunk":{chunk}}}"#));
            let message = |content: &str| {
                let source = r#"{"kind":"model","provider":"p","model":"m"}"#;
                format!(r#"{{"id":"i","role":"assistant","content":[{content}],"source":{source}}}"#)
            };
            let pieces = texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(",");
            let row = |kind: &str, more: &str, pieces_name: &str| {
                let gaps = vec!["1"; texts.len() - 1].join(",");
                event(kind, &format!(r#"{{{at},"index":{index},"dt":[{gaps}]{more},"{pieces_name}":[{pieces}]}}"#))
            };
            match kind {
                0 => event("turn/start", &format!(r#"{{"turn":{turn}}}"#)),
                1 => event("turn/end", &format!(r#"{{"turn":{turn},"reason":{{"kind":"completed"}}}}"#)),
                2 => event("step/start", &format!("{{{at}}}")),
                3 => event("step/end", &format!("{{{at}}}")),
                4 => event("llm/retry", &format!("{{{at}}}")),
                5 => event("assistant/message", &format!(r#"{{{at},"message":{}}}"#, message(block))),
                6 => event("request/context", &format!(r#"{{"provider":"p{turn}","model":"m"}}"#)),
                7 => chunk(&format!(r#"{{"type":"block-end","index":{index},"block":{block}}}"#)),
                8 => chunk(&format!(r#"{{"type":"text-delta","index":{index},"text":"{}"}}"#, texts[0])),
                9 | 10 => row("text-chunks", "", "texts"),
                11 => row("reasoning-chunks", "", "texts"),
                12 => row("tool-call-chunks", r#","id":"c","name":"bash""#, "args"),
                _ => event("x/y", "null"),
            }
        },
    )
}

proptest! {
    #[test]
    fn a_log_without_its_streams_recovers_as_the_whole_one_does(
        lines in proptest::collection::vec(any_line(), 0..24),
        limit in prop_oneof![Just(0_usize), Just(600), Just(WAITING)],
    ) {
        let text = format!("{HEADER}\n{}", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
        let read = |streams| {
            let mut collected = Collected { limit, ..Collected::new(streams) };
            let read = read_bytes(Path::new("s.jsonl"), text.as_bytes(), &mut |entry| collected.take(entry)).unwrap();
            collected.into_log(PathBuf::from("s.jsonl"), read)
        };
        let ((whole, added), (without, added_without)) = (read(Streams::Kept), read(Streams::LeftOut));
        let form = |events: &[Event]| events.iter().map(|event| json::raw(event).get().to_owned()).collect::<Vec<_>>();
        prop_assert_eq!(form(&added_without), form(&added));
        prop_assert_eq!((without.events.len(), without.last_time), (whole.events.len(), whole.last_time));
        let said = |log: &Log| json::raw(&log.messages()).get().to_owned();
        prop_assert_eq!(said(&without), said(&whole));
        prop_assert!(without.events.entries().iter().all(|entry| !entry.is_chunk()));
    }
}

#[test]
fn a_writer_without_work_has_no_thread_and_goes_on_where_it_was() {
    for store in [|store: Store| store, Store::compressed] {
        let dir = tempfile::tempdir().unwrap();
        let store = store(Store::new(dir.path()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let durable = seen.clone();
        let on_durable: OnDurable =
            Box::new(move |events| durable.lock().unwrap().extend(events.events().map(|event| event.seq)));
        let writer = store.create(Header::new("s", 7, None), on_durable).unwrap();
        writer.rest();
        checkpoint(&writer).unwrap();
        for n in 0..40 {
            assert_eq!(writer.append(vec![NewEvent::user_message(&Message::user("u", "text"))]), n);
            match n {
                // In the middle of a frame.
                0..4 => writer.rest(),
                // About when the thread goes.
                _ => {
                    checkpoint(&writer).unwrap();
                    std::thread::sleep(std::time::Duration::from_micros(4_500 + 25 * n));
                }
            }
        }
        writer.rest();
        let path = writer.path().to_owned();
        drop(writer);
        assert_eq!(*seen.lock().unwrap(), (0..40).collect::<Vec<u64>>());
        let log = store.read("s").unwrap();
        assert_eq!((log.problems.len(), log.events.len()), (0, 40));
        if Form::of(&path) == Form::Zstd {
            assert!(zstd::decode_all(&std::fs::read(&path).unwrap()[..]).is_ok(), "the frame was ended");
        }
    }
}

#[test]
fn who_watches_is_told_of_every_byte_that_is_read() {
    let (dir, store, path) = store_with(format!("{HEADER}\n{}\n", user(0, "a").repeat(2_000)));
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = told.clone();
    let store = store.watched(move |read, of| seen.lock().unwrap().push((read, of)));
    std::fs::write(dir.path().join("t.jsonl"), format!("{HEADER}\n")).unwrap();
    let one = path.metadata().unwrap().len();
    let all = one + HEADER.len() as u64 + 1;
    let cases: [(&str, u64, &dyn Fn()); 5] = [
        ("list", all, &|| drop(store.list().unwrap())),
        ("read", one, &|| drop(store.read("s").unwrap())),
        ("read_without_streams", one, &|| drop(store.read_without_streams("s").unwrap())),
        ("verify", one, &|| drop(store.verify("s").unwrap())),
        ("repair", one, &|| drop(store.repair("s").unwrap())),
    ];
    for (name, length, work) in cases {
        work();
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert!(told.is_sorted() && told.iter().all(|(_, of)| *of == length), "{name}: {told:?}");
        assert_eq!(told.last(), Some(&(length, length)), "{name}");
    }
}
