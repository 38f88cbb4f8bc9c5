//! What is left when the disk fails, at every change that the store makes on it, and when the power does.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};

use dsh_plugin_api::vocab::{BlockType, Chunk};
use serde_json::json;

use super::disk::probe::{Failure, How, Remains};
use super::*;

/// Events by the place that they were acknowledged at.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<BTreeMap<u64, String>>>);

impl Acknowledged {
    fn sink(&self, disk: &Disk, notes: bool) -> OnDurable {
        let (all, disk) = (Arc::clone(&self.0), disk.clone());
        Box::new(move |events| {
            let mut all = all.lock().unwrap();
            for event in events.events() {
                assert_eq!(all.insert(event.seq, form(&event)), None, "acknowledged twice");
            }
            if notes {
                disk.acknowledge(events.events().map(|event| event.seq));
            }
        })
    }

    fn get(&self) -> BTreeMap<u64, String> {
        self.0.lock().unwrap().clone()
    }
}

fn form(event: &Event) -> String {
    json::raw(event).get().to_owned()
}

fn forms(log: &Log) -> Vec<String> {
    log.events.iter().map(|event| form(&event)).collect()
}

fn text(text: &str) -> NewEvent {
    NewEvent::assistant_chunk(1, 1, &Chunk::TextDelta { index: 0, text: text.to_owned() })
}

fn said(id: &str) -> NewEvent {
    NewEvent::user_message(&Message::user(id, "text"))
}

/// A session with a turn that ends, one that is left open, and one behind its recovery. Each batch is acknowledged
/// before the next one begins.
fn live(store: &Store, acknowledged: &Acknowledged, notes: bool) -> Result<(), StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sink = || acknowledged.sink(&store.disk, notes);
    let commit = |writer: &Writer, events: Vec<NewEvent>| {
        let count = events.len() as u64;
        let first = writer.append(events);
        runtime.block_on(writer.checkpoint())?;
        let known = acknowledged.get();
        assert!((first..first + count).all(|seq| known.contains_key(&seq)), "acknowledged before it was durable");
        Ok(())
    };
    let turn = |n: u64| vec![NewEvent::turn_start(n), NewEvent::step_start(n, 1), said(&format!("u{n}"))];
    let end = |n: u64| vec![NewEvent::step_end(n, 1), NewEvent::turn_end(n, &json!({"kind": "completed"}))];

    let writer = store.create(Header::new("s", 5, None), sink())?;
    commit(&writer, turn(1))?;
    let start = Chunk::BlockStart { index: 0, block_type: BlockType::Text };
    commit(&writer, vec![NewEvent::assistant_chunk(1, 1, &start), text("a"), text("b"), text("c"), text("d")])?;
    commit(&writer, end(1))?;
    commit(&writer, turn(2))?;
    commit(&writer, vec![text("half an "), text("answer")])?;
    drop(writer);
    let (log, writer) = store.open("s", sink())?;
    assert!(log.recovered > 0);
    // What recovery added is durable when the session is open.
    let recovered = log.events.singles().filter(|event| event.seq >= log.events.len() - log.recovered);
    for event in recovered {
        acknowledged.0.lock().unwrap().insert(event.seq, form(event));
        if notes {
            store.disk.acknowledge([event.seq]);
        }
    }
    commit(&writer, turn(3))?;
    commit(&writer, end(3))?;
    Ok(())
}

/// The session of this folder holds these events, each in its place and once, and goes on.
fn check(dir: &Path, form_of_store: Form, acknowledged: &BTreeMap<u64, String>, context: &str) {
    let store = Store { form: form_of_store, disk: Disk::recording(), ..Store::new(dir) };
    let listed = store.list().unwrap();
    for session in &listed {
        assert!(session.messages.is_ok(), "{context}: the list shows {session:?}");
    }
    if listed.is_empty() {
        assert!(acknowledged.is_empty(), "{context}: the session is gone");
        drop(store.create(Header::new("s", 5, None), Box::new(|_| {})).unwrap());
        return;
    }
    let log = store.read("s").unwrap();
    let read = forms(&log);
    for (seq, event) in acknowledged {
        let at = usize::try_from(*seq).unwrap();
        assert_eq!(read.get(at), Some(event), "{context}: event {seq} is not in its place; {:?}", log.problems);
    }
    let (opened, writer) = store.open("s", Box::new(|_| {})).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(opened.events.len(), log.events.len(), "{context}");
    writer.append(vec![said("next")]);
    drop(writer);
    let after = store.read("s").unwrap();
    assert_eq!(forms(&after)[..read.len()], read, "{context}: what was read is what went on");
    assert_eq!((after.events.len(), after.recovered), (log.events.len() + 1, 0), "{context}");
    assert_eq!(after.messages().last().unwrap().id, "next", "{context}");
    // A part of what nobody was told of may be there, and is damage then; it is none that costs a conversation.
    let harmless = |problem: &&Problem| !matches!(problem.kind, ProblemKind::SeqFork | ProblemKind::MissingHeader);
    assert_eq!(
        after.problems.iter().filter(|problem| !harmless(problem)).count(),
        0,
        "{context}: {:?}",
        after.problems
    );
}

const KINDS: [How; 4] = [
    How::Error(ErrorKind::StorageFull),
    How::Error(ErrorKind::Other),
    How::Short(ErrorKind::StorageFull),
    How::Short(ErrorKind::Other),
];

/// Runs something on disks that fail at the first change, at the second, and so on, each in every way, until nothing
/// fails any more.
fn at_every_change(mut run: impl FnMut(&Disk, &str)) {
    for how in KINDS {
        for times in [1, usize::MAX] {
            for at in 1.. {
                let disk = Disk::failing(Failure { at, times, how });
                run(&disk, &format!("{how:?} at change {at}, {times} times"));
                if !disk.has_failed() {
                    assert!(at > 1, "nothing was changed");
                    break;
                }
            }
        }
    }
}

fn folder_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

fn files_in(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn no_failure_of_the_disk_loses_what_was_acknowledged() {
    for form in [Form::Plain, Form::Zstd] {
        at_every_change(|disk, context| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("sessions");
            let store = Store { dir: path.clone(), form, disk: disk.clone(), watch: None };
            let acknowledged = Acknowledged::default();
            let lived = live(&store, &acknowledged, false);
            match &lived {
                Ok(()) => {}
                Err(error @ StoreError::Io { path: at, .. }) => {
                    assert!(at.starts_with(dir.path()), "{context}: {error}");
                    assert!(disk.has_failed(), "{context}: {error}");
                }
                Err(error) => panic!("{context}: {error}"),
            }
            // The end of a frame is the one change that costs nothing when it fails.
            let harmless = form == Form::Zstd && lived.is_ok();
            assert!(harmless || lived.is_err() == disk.has_failed(), "{context}: the failure was not reported");
            let context = format!("{form:?}, {context}");
            if let Ok(log) = Store::new(&path).read("s")
                && !context.contains(&usize::MAX.to_string())
                && lived.is_err()
            {
                let known = acknowledged.get().len() as u64;
                let in_file = log.events.len() - log.recovered;
                assert_eq!((log.problems.as_slice(), in_file), (&[][..], known), "{context}: what failed is cut off");
            }
            check(&path, form, &acknowledged.get(), &context);
            let problems = Store::new(&path).read("s").unwrap().problems;
            assert_eq!(problems, [], "{context}");
        });
    }
}

#[test]
fn the_first_failure_is_what_every_later_checkpoint_says() {
    let dir = tempfile::tempdir().unwrap();
    let how = How::Error(ErrorKind::StorageFull);
    let disk = Disk::failing(Failure { at: 7, times: 1, how });
    let store = Store { disk: disk.clone(), ..Store::new(dir.path()) };
    let acknowledged = Acknowledged::default();
    let writer = store.create(Header::new("s", 5, None), acknowledged.sink(&disk, false)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let said: Vec<Option<String>> = (0..5)
        .map(|n| {
            writer.append(vec![said(&format!("u{n}"))]);
            runtime.block_on(writer.checkpoint()).err().map(|error| error.to_string())
        })
        .collect();
    let first = said.iter().position(Option::is_some).unwrap();
    assert!(first < 4 && said[first..].iter().all(|error| *error == said[first]), "{said:?}");
    let words = said[first].as_deref().unwrap();
    assert!(words.contains("s.jsonl") && words.contains("make room"), "{words}");
    drop(writer);
    let log = store.read("s").unwrap();
    assert_eq!((acknowledged.get().len(), forms(&log).len()), (first, first), "nothing is written behind a failure");
}

/// Ends of a log as a writer that died may have left them.
fn ends() -> Vec<(&'static str, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for (name, store) in [("s.jsonl", Store::new(dir.path())), ("s.jsonl.zst", Store::new(dir.path()).compressed())] {
        live(&store, &Acknowledged::default(), false).unwrap();
        let whole = std::fs::read(dir.path().join(name)).unwrap();
        std::fs::remove_file(dir.path().join(name)).unwrap();
        for cut in [0, 1, 2, 30] {
            all.push((name, whole[..whole.len() - cut].to_vec()));
        }
        all.push((name, [whole, vec![0; 40]].concat()));
    }
    all
}

#[test]
fn opening_again_survives_every_failure() {
    for (name, bytes) in ends() {
        for form in [Form::Plain, Form::Zstd] {
            let before = folder_with(&[(name, &bytes)]);
            let complete = Store::new(before.path()).read("s").unwrap();
            let kept = usize::try_from(complete.events.len() - complete.recovered).unwrap();
            let complete: BTreeMap<u64, String> = (0..).zip(forms(&complete)).take(kept).collect();
            let compressed = form == Form::Zstd && name == "s.jsonl.zst";
            let checked = if compressed { Form::Zstd } else { Form::Plain };
            at_every_change(|disk, context| {
                let dir = folder_with(&[(name, &bytes)]);
                let store = Store { dir: dir.path().to_owned(), form, disk: disk.clone(), watch: None };
                let acknowledged = Acknowledged::default();
                if let Ok((_, writer)) = store.open("s", acknowledged.sink(disk, false)) {
                    writer.append(vec![said("again")]);
                }
                let all = complete.iter().map(|(seq, event)| (*seq, event.clone())).chain(acknowledged.get()).collect();
                check(dir.path(), checked, &all, &format!("{name}, {} bytes, {form:?}, {context}", bytes.len()));
            });
        }
    }
}

fn damaged() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    live(&Store::new(dir.path()), &Acknowledged::default(), false).unwrap();
    let text = std::fs::read_to_string(dir.path().join("s.jsonl")).unwrap();
    text.replacen("\n{\"type\":\"step/start\"", "\ngarbage\n{\"type\":\"step/start\"", 1).into_bytes()
}

/// The damaged bytes of a repair are there, under one name or the other, and the session reads as before.
fn check_repair(dir: &Path, original: &[u8], before: &[String], context: &str) {
    let files = files_in(dir);
    assert!(files.values().any(|bytes| bytes == original), "{context}: the original is lost: {:?}", files.keys());
    let store = Store::new(dir);
    assert_eq!(forms(&store.read("s").unwrap()), before, "{context}");
    let listed = store.list().unwrap();
    assert_eq!(listed.len(), 1, "{context}: {listed:?}");
    let repaired = store.repair("s").unwrap();
    assert_eq!(store.read("s").unwrap().problems, [], "{context}: {repaired:?}");
    assert!(files_in(dir).values().any(|bytes| bytes == original), "{context}: the original is lost");
}

#[test]
fn a_repair_survives_every_failure_and_a_power_loss_at_any_moment() {
    let original = damaged();
    let whole = folder_with(&[("s.jsonl", &original)]);
    let before = forms(&Store::new(whole.path()).read("s").unwrap());
    at_every_change(|disk, context| {
        let dir = folder_with(&[("s.jsonl", &original)]);
        let store = Store { disk: disk.clone(), ..Store::new(dir.path()) };
        match store.repair("s") {
            Ok(repair) => assert!(repair.repaired, "{context}"),
            Err(error) => assert!(matches!(error, StoreError::Io { .. }) && disk.has_failed(), "{context}: {error}"),
        }
        check_repair(dir.path(), &original, &before, context);
    });
    let disk = Disk::recording();
    let dir = folder_with(&[("s.jsonl", &original)]);
    let path = dir.path().canonicalize().unwrap();
    let seeded = files_in(&path);
    Store { disk: disk.clone(), ..Store::new(&path) }.repair("s").unwrap();
    for remains in disk.remains(&seeded) {
        let names = format!("{:?}", remains.files.keys());
        check_repair(left(&remains, &path).path(), &original, &before, &names);
    }
}

#[test]
fn a_fork_survives_every_failure_and_a_power_loss_at_any_moment() {
    let original = damaged();
    let check = |dir: &Path, context: &str| {
        assert_eq!(std::fs::read(dir.join("s.jsonl")).unwrap(), original, "{context}");
        for session in Store::new(dir).list().unwrap() {
            assert!(session.messages.is_ok(), "{context}: the list shows {session:?}");
        }
    };
    at_every_change(|disk, context| {
        let dir = folder_with(&[("s.jsonl", &original)]);
        let store = Store { disk: disk.clone(), ..Store::new(dir.path()) };
        match store.fork("s", Some(3)) {
            Ok(fork) => assert_eq!(Store::new(dir.path()).read(&fork.id).unwrap().events.singles().count(), 6),
            Err(error) => {
                assert!(matches!(error, StoreError::Io { .. }) && disk.has_failed(), "{context}: {error}");
                // Taken back, where the disk allows it.
                let count = Store::new(dir.path()).list().unwrap().len();
                assert!(count == 1 || context.contains(&usize::MAX.to_string()), "{context}: {count} sessions");
            }
        }
        check(dir.path(), context);
        let count = if disk.has_failed() { 1..=2 } else { 2..=2 };
        assert!(count.contains(&Store::new(dir.path()).list().unwrap().len()), "{context}");
    });
    let disk = Disk::recording();
    let dir = folder_with(&[("s.jsonl", &original)]);
    let seeded = files_in(dir.path());
    Store { disk: disk.clone(), ..Store::new(dir.path()) }.fork("s", None).unwrap();
    for remains in disk.remains(&seeded) {
        check(left(&remains, dir.path()).path(), &format!("{:?}", remains.files.keys()));
    }
}

#[test]
fn a_deletion_that_fails_says_what_is_gone_and_leaves_what_the_id_meant() {
    let (plain, compressed) = (damaged(), Form::Zstd.encode(damaged()).unwrap());
    at_every_change(|disk, context| {
        let files: [(&str, &[u8]); 3] =
            [("s.jsonl", &plain), ("s.jsonl.zst", &compressed), ("s.jsonl.before-repair", b"x")];
        let dir = folder_with(&files);
        let before = files_in(dir.path());
        let store = Store { disk: disk.clone(), ..Store::new(dir.path()) };
        let deleted = store.files_of("s").unwrap().delete();
        let after = files_in(dir.path());
        let gone: Vec<PathBuf> = before.into_keys().filter(|path| !after.contains_key(path)).collect();
        assert_eq!(deleted.removed, gone, "{context}");
        assert_eq!(deleted.error.is_some(), disk.has_failed(), "{context}: {:?}", deleted.error);
        assert!(gone.len() == 3 || std::fs::read(dir.path().join("s.jsonl")).unwrap() == plain, "{context}");
    });
}

#[test]
fn a_list_needs_no_disk_that_can_be_written() {
    let text = damaged();
    let dir = tempfile::tempdir().unwrap();
    for n in 0..200 {
        std::fs::write(dir.path().join(format!("s{n}.jsonl")), &text).unwrap();
    }
    let list = |store: &Store| {
        let rows = store.list().unwrap().into_iter().map(|row| (row.id, row.messages.ok()));
        rows.collect::<Vec<_>>()
    };
    let expected = list(&Store::new(dir.path()));
    for at in 1..=3 {
        let disk = Disk::failing(Failure { at, times: usize::MAX, how: How::Short(ErrorKind::StorageFull) });
        assert_eq!(list(&Store { disk, ..Store::new(dir.path()) }), expected);
    }
}

/// A folder with what a power loss left of `dir`.
fn left(remains: &Remains, dir: &Path) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    for (path, bytes) in &remains.files {
        std::fs::write(left.path().join(path.strip_prefix(dir).unwrap()), bytes).unwrap();
    }
    left
}

#[test]
fn what_was_acknowledged_is_there_after_a_power_loss_at_any_moment() {
    for form in [Form::Plain, Form::Zstd] {
        let disk = Disk::recording();
        let dir = tempfile::tempdir().unwrap();
        // A folder that is not there yet, in one that is not there either.
        let path = dir.path().canonicalize().unwrap().join("new/sessions");
        let store = Store { dir: path.clone(), form, disk: disk.clone(), watch: None };
        let acknowledged = Acknowledged::default();
        live(&store, &acknowledged, true).unwrap();
        let states = check_power_losses(&disk, &path, form, &BTreeMap::new(), &acknowledged, "");
        assert!(states > 40, "{states} states");
    }
}

/// Cuts the power at every moment that the disk remembers; returns how many states that may leave.
fn check_power_losses(
    disk: &Disk,
    dir: &Path,
    form: Form,
    before: &BTreeMap<PathBuf, Vec<u8>>,
    acknowledged: &Acknowledged,
    context: &str,
) -> usize {
    let all = acknowledged.get();
    let states = disk.remains(before);
    for remains in &states {
        let known = remains.acknowledged.iter().map(|seq| (*seq, all[seq].clone())).collect();
        let lengths: Vec<_> = remains.files.iter().map(|(path, bytes)| (path.file_name(), bytes.len())).collect();
        let context = format!("{context} {form:?}, {lengths:?}, {} acknowledged", remains.acknowledged.len());
        check(left(remains, dir).path(), form, &known, &context);
    }
    states.len()
}

#[test]
fn what_was_acknowledged_behind_a_failure_is_there_after_a_power_loss() {
    for form in [Form::Plain, Form::Zstd] {
        for at in 1.. {
            let disk = Disk::failing(Failure { at, times: 2, how: How::Error(ErrorKind::Other) });
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().canonicalize().unwrap();
            let store = Store { dir: path.clone(), form, disk: disk.clone(), watch: None };
            let acknowledged = Acknowledged::default();
            let _ = live(&store, &acknowledged, true);
            let failed = disk.has_failed();
            // The disk works again, and somebody goes on.
            disk.mend();
            if let Ok((log, writer)) = store.open("s", acknowledged.sink(&disk, true)) {
                let stands = forms(&store.read("s").unwrap());
                writer.append(vec![said("again")]);
                drop(writer);
                // What nobody was told of and stood there is what the session went on from.
                acknowledged.0.lock().unwrap().extend((0..).zip(stands));
                disk.acknowledge(0..log.events.len());
            }
            check_power_losses(&disk, &path, form, &BTreeMap::new(), &acknowledged, &format!("failed at {at},"));
            if !failed {
                break;
            }
        }
    }
}

#[test]
fn opening_again_survives_a_power_loss_at_any_moment() {
    for (name, bytes) in ends() {
        for form in [Form::Plain, Form::Zstd] {
            let dir = folder_with(&[(name, &bytes)]);
            let path = dir.path().canonicalize().unwrap();
            let before = files_in(&path);
            let complete = Store::new(&path).read("s").unwrap();
            let kept = complete.events.len() - complete.recovered;
            let disk = Disk::recording();
            let acknowledged = Acknowledged::default();
            let whole = (0..).zip(forms(&complete)).take_while(|(seq, _)| *seq < kept);
            acknowledged.0.lock().unwrap().extend(whole);
            disk.acknowledge(0..kept);
            let store = Store { dir: path.clone(), form, disk: disk.clone(), watch: None };
            let (_, writer) = store.open("s", acknowledged.sink(&disk, true)).unwrap();
            writer.append(vec![said("again")]);
            drop(writer);
            let compressed = form == Form::Zstd && name == "s.jsonl.zst";
            let checked = if compressed { Form::Zstd } else { Form::Plain };
            check_power_losses(&disk, &path, checked, &before, &acknowledged, name);
        }
    }
}

#[test]
fn a_power_loss_in_a_deletion_leaves_what_the_id_meant_or_nothing() {
    let (plain, compressed) = (damaged(), Form::Zstd.encode(&damaged()[..200]).unwrap());
    let dir = folder_with(&[("s.jsonl", &plain), ("s.jsonl.zst", &compressed)]);
    let before = files_in(dir.path());
    let disk = Disk::recording();
    assert!(Store { disk: disk.clone(), ..Store::new(dir.path()) }.files_of("s").unwrap().delete().error.is_none());
    for remains in disk.remains(&before) {
        let left = left(&remains, dir.path());
        assert!(remains.files.is_empty() || std::fs::read(left.path().join("s.jsonl")).unwrap() == plain);
    }
}
