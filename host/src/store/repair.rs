//! Repair: a sound log in the place of a damaged one, whose bytes are kept beside it.
//!
//! The repaired log holds what reading gives of the damaged one: its header and every event, renumbered, unknown ones
//! as they were written. Recovery is left to the next writer, so that nothing is in it that was not in the file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dsh_plugin_api::json;

use super::bytes::Form;
use super::files::Unnamed;
use super::lock::Lock;
use super::read::{self, FileRead, Problem};
use super::{Store, StoreError, read_bytes};
use crate::session::event::{Event, Header};
use crate::session::events::{Entry, Events};
use crate::session::line;

/// What stands behind the name of a log that was repaired, in the name of the file that keeps its bytes. A number
/// follows where there are several.
pub(super) const KEPT: &str = ".before-repair";

/// What a repair did.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Repair {
    /// False where nothing was to be done and nothing was written.
    pub repaired: bool,
    /// The log.
    pub path: PathBuf,
    /// The damaged bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<PathBuf>,
    /// How many events the log holds.
    pub events: u64,
    /// What was wrong, in order of line.
    pub problems: Vec<Problem>,
}

impl Store {
    /// Writes a sound log in the place of a damaged one. The damaged bytes stay beside it, as `<file>.before-repair`,
    /// or `<file>.before-repair-2` and so on where that exists. A sound log is not touched.
    ///
    /// At every moment one of the two stands under the name of the log, whole.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]. The log is then as it was.
    pub fn repair(&self, reference: &str) -> Result<Repair, StoreError> {
        let path = self.resolve_to_write(reference)?;
        let _lock = Lock::take(&path)?;
        let mut events = Events::default();
        let FileRead { header, problems, .. } =
            read_bytes(&path, self.open_to_read(&path)?, &mut |entry| events.push(entry))?;
        let count = events.len();
        if problems.is_empty() {
            return Ok(Repair { repaired: false, path, kept: None, events: count, problems });
        }
        let form = Form::of(&path);
        let bytes = form.encode(lines_of(&header, &events)).map_err(StoreError::io("compress", &path))?;
        let repaired = Unnamed::write(&self.disk, &path, |file| file.write_all(&bytes))?;
        // There is no way back for whoever deletes the kept bytes: what replaces them has to be what they said.
        if !reads_back(repaired.read()?, form, &header, &events) {
            return Err(StoreError::Unrepairable(path));
        }
        repaired.permit_as(&path)?;
        let kept = self.keep(&path)?;
        if let Err(error) = self.disk.sync_name(&path).and_then(|()| repaired.name()) {
            // The log still bears its name.
            let _ = self.disk.remove(&kept);
            return Err(error);
        }
        self.disk.sync_name(&path)?;
        Ok(Repair { repaired: true, path, kept: Some(kept), events: count, problems })
    }

    /// Gives the bytes of a log a second name that was free.
    fn keep(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut number = 1_u32;
        loop {
            let kept = path.with_file_name(match number {
                1 => format!("{name}{KEPT}"),
                number => format!("{name}{KEPT}-{number}"),
            });
            match self.disk.link(path, &kept).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Err(error),
                // Not every file system has links.
                _ => self.copy(path, &kept),
            }) {
                Ok(()) => return Ok(kept),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(StoreError::io("create", &kept)(error)),
            }
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut from = File::open(from)?;
        let mut file = self.disk.create_new(to)?;
        let copied = io::copy(&mut from, &mut file).and_then(|_| file.sync());
        if copied.is_err() {
            // Half a copy keeps nothing.
            let _ = self.disk.remove(to);
        }
        copied
    }
}

/// A whole log of these events, which are numbered from 0.
pub(super) fn lines_of(header: &Header, events: &Events) -> String {
    let mut lines = format!("{}\n", json::raw(header));
    line::encode(events.entries(), 0, &mut lines);
    lines
}

fn reads_back(file: File, form: Form, header: &Header, events: &Events) -> bool {
    let mut written = events.iter();
    let mut same = true;
    let take = &mut |entry: Entry| same &= entry.events().all(|a| written.next().is_some_and(|b| is_same(&a, &b)));
    let read = read::read(file, form, &header.id, take);
    read.is_ok_and(|read| read.problems.is_empty()) && same && written.next().is_none()
}

fn is_same(a: &Event, b: &Event) -> bool {
    (a.seq, a.time, &a.kind, a.data.get()) == (b.seq, b.time, &b.kind, b.data.get()) && members(a).eq(members(b))
}

fn members(event: &Event) -> impl Iterator<Item = (&str, &str)> {
    event.extra.iter().map(|(name, value)| (name, value.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        r#"{"type":"session","version":0,"id":"s","createdAt":7,"cwd":"/p","delegationDepth":0,"own":{"b":1,"a":[]}}"#;

    fn user(seq: u64, text: &str) -> String {
        format!(
            r#"{{"type":"user/message","seq":{seq},"time":{seq},"data":{{"id":"u{seq}","role":"user","content":[{{"type":"text","text":"{text}"}}],"source":{{"kind":"user"}}}},"surfaceOp":"append"}}"#
        )
    }

    /// A summary in place of the messages of these seqs.
    fn summary(seq: u64, start: u64, end: u64) -> String {
        let op = format!(r#"{{"op":"replace","start":{start},"end":{end}}}"#);
        user(seq, "summary").replace(r#""append""#, &op)
    }

    fn row(seq: u64, more: &str) -> String {
        format!(
            r#"{{"type":"text-chunks","seq0":{seq},"time0":9,"data":{{"turn":1,"step":1,"index":0,"dt":[1,2],"texts":["a\ud83d","\ude00",""]}}{more}}}"#
        )
    }

    fn unknown(seq: u64) -> String {
        format!(r#"{{"type":"x/y","seq":{seq},"time":3,"data":{{"z":1e400,"a":"\ud800"}},"m":-0.0,"ignorable":false}}"#)
    }

    fn start(seq: u64) -> String {
        format!(r#"{{"type":"turn/start","seq":{seq},"time":3,"data":{{"turn":1}}}}"#)
    }

    /// Files that are damaged, each in its way.
    fn damaged() -> Vec<(&'static str, Vec<u8>)> {
        let text = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        let (a, b, x) = (user(0, "a"), user(1, "b"), unknown(2));
        let invalid = text(&[HEADER, &a.replace("\"a\"", "\"a?\"")]);
        let invalid = invalid.into_iter().map(|byte| if byte == b'?' { 0xff } else { byte }).collect();
        vec![
            ("torn tail", [text(&[HEADER, &a, &b, &x]), row(3, "").as_bytes()[..40].to_vec()].concat()),
            ("no last newline", [text(&[HEADER, &a, &b]), x.as_bytes().to_vec()].concat()),
            ("NULs", text(&[HEADER, &format!("\0\0{a}"), "\0\0\0", &b, &x])),
            ("NULs at the end", [text(&[HEADER, &a, &b]), vec![0; 4096]].concat()),
            ("bad line", text(&[HEADER, &a, "{\"type\":", &unknown(2), &row(3, "")])),
            ("joined", text(&[&format!("{HEADER}{a}{b}{x}"), &row(3, "")])),
            ("glued to a fragment", text(&[HEADER, &a, &format!("{}{b}", &x[..20]), &x])),
            ("fork", text(&[HEADER, &a, &b, &x, &user(1, "other"), &summary(2, 1, 1), &row(3, "")])),
            ("gap before a replacement", text(&[HEADER, &a, &user(4, "b"), &summary(7, 0, 4), &unknown(8)])),
            ("missing header", text(&[&a, &b, &x])),
            ("flawed header", text(&[r#"{"type":"session","own":1}"#, &a, &b])),
            ("second header", text(&[HEADER, &a, HEADER, &b])),
            ("flawed record", text(&[HEADER, &a, &b.replace(r#""seq":1"#, r#""seq":-1"#), &x])),
            ("flawed row", text(&[HEADER, &a, &row(1, "").replace("[1,2]", "[1]"), &unknown(4)])),
            ("row with a member of its own", text(&[HEADER, &a, &row(1, r#","m":[1 ,2]"#), "garbage", &unknown(4)])),
            ("invalid UTF-8", invalid),
            ("open turn", text(&[HEADER, &start(0), &user(1, "a"), "garbage", &row(2, "")])),
        ]
    }

    fn events(log: &super::super::Log) -> Vec<String> {
        log.events.iter().map(|event| json::raw(&*event).get().to_owned()).collect()
    }

    fn messages(log: &super::super::Log) -> String {
        json::raw(&log.messages()).get().to_owned()
    }

    #[test]
    fn a_repaired_log_is_sound_and_says_what_the_damaged_one_said() {
        for ending in ["jsonl", "jsonl.zst"] {
            for (name, text) in damaged() {
                let dir = tempfile::tempdir().unwrap();
                let store = Store::new(dir.path());
                let path = dir.path().join(format!("s.{ending}"));
                let bytes = Form::of(&path).encode(text.clone()).unwrap();
                std::fs::write(&path, &bytes).unwrap();
                let before = store.read("s").unwrap();
                assert!(!before.problems.is_empty(), "{name}");

                let repair = store.repair("s").unwrap();
                assert!(repair.repaired, "{name}");
                assert_eq!(repair.problems, before.problems, "{name}");
                let after = store.read("s").unwrap();
                assert_eq!(after.problems, [], "{name}");
                assert_eq!(events(&after), events(&before), "{name}");
                assert_eq!(messages(&after), messages(&before), "{name}");
                assert_eq!(json::raw(&after.header).get(), json::raw(&before.header).get(), "{name}");
                assert_eq!(repair.events, after.events.len() - after.recovered, "{name}");
                let kept = dir.path().join(format!("s.{ending}.before-repair"));
                assert_eq!(repair.kept.as_ref(), Some(&kept), "{name}");
                assert_eq!(std::fs::read(&kept).unwrap(), bytes, "{name}");
                assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{name}: nothing else is left behind");
                assert_eq!(store.list().unwrap().len(), 1, "{name}: what is kept is no session");
                // Again there is nothing to do.
                let again = store.repair("s").unwrap();
                assert_eq!((again.repaired, again.kept), (false, None), "{name}");
                drop(store.open("s", Box::new(|_| {})).unwrap());
            }
        }
    }

    #[test]
    fn a_damaged_frame_gives_a_sound_file_of_frames() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let path = dir.path().join("project/s/session.jsonl.zstd");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let frame = |text: String| Form::Zstd.encode(text).unwrap();
        let mut bytes = [frame(format!("{HEADER}\n{}\n", user(0, "a"))), frame(user(1, "b") + "\n")].concat();
        bytes.truncate(bytes.len() - 9);
        std::fs::write(&path, &bytes).unwrap();
        let before = messages(&store.read("s").unwrap());
        let repair = store.repair("s").unwrap();
        assert_eq!(repair.problems[0].kind.as_str(), "torn-frame");
        assert_eq!(std::fs::read(repair.kept.unwrap()).unwrap(), bytes);
        let text = zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap();
        assert!(text.starts_with(b"{\"type\":\"session\""), "{}", String::from_utf8_lossy(&text));
        let after = store.read("s").unwrap();
        assert_eq!((after.problems.as_slice(), messages(&after)), (&[][..], before));
    }

    #[test]
    fn bytes_that_were_kept_are_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let path = dir.path().join("s.jsonl");
        for n in 1..=3 {
            std::fs::write(&path, format!("{HEADER}\n{}\ngarbage {n}\n", user(0, "a"))).unwrap();
            store.repair("s").unwrap();
        }
        for (name, n) in [("s.jsonl.before-repair", 1), ("s.jsonl.before-repair-2", 2), ("s.jsonl.before-repair-3", 3)]
        {
            let kept = std::fs::read_to_string(dir.path().join(name)).unwrap();
            assert!(kept.ends_with(&format!("garbage {n}\n")), "{name}: {kept}");
        }
        let copied = dir.path().join("copy");
        store.copy(&path, &copied).unwrap();
        assert_eq!(std::fs::read(&copied).unwrap(), std::fs::read(&path).unwrap());
        assert_eq!(store.copy(&path, &copied).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn what_cannot_be_repaired_stays_as_it_is() {
        let newer = HEADER.replace("\"version\":0", "\"version\":1");
        for (text, says) in
            [(format!("{newer}\n{}\ngarbage\n", user(0, "a")), "version 1"), ("garbage\n".to_owned(), "no session")]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("s.jsonl");
            std::fs::write(&path, &text).unwrap();
            let error = Store::new(dir.path()).repair("s").unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let path = dir.path().join("s.jsonl");
        let text = format!("{HEADER}\n{}\ngarbage\n", user(0, "a"));
        std::fs::write(&path, &text).unwrap();
        let lock = Lock::take(&path).unwrap();
        assert!(matches!(store.repair("s").unwrap_err(), StoreError::Locked { pid: Some(_), .. }));
        drop(lock);
        // The temporary name is taken by a folder: nothing can be written.
        std::fs::create_dir(super::super::files::unnamed(&path)).unwrap();
        assert!(matches!(store.repair("s").unwrap_err(), StoreError::Io { .. }));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert!(!dir.path().join("s.jsonl.before-repair").exists());
    }
}
