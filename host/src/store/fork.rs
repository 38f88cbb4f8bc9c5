//! Fork: a new session that begins as another one did.

use std::io::Write;
use std::path::PathBuf;

use dsh_plugin_api::json;

use super::files::Unnamed;
use super::lock::Lock;
use super::repair::lines_of;
use super::{Log, Problem, Store, StoreError, now};

/// A new session.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// Its id.
    pub id: String,
    /// Its log.
    pub path: PathBuf,
    /// The id in the header of the session that it begins as.
    pub parent_session: String,
    /// How many of that session's events it begins with.
    pub seed_length: u64,
    /// The file of the session that it begins as.
    #[serde(skip)]
    pub parent_path: PathBuf,
    /// What was wrong with that file, and is not so in the new one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

impl Store {
    /// Creates a session of this folder whose events are those of another one up to and including the seq `at` (absent:
    /// the last). The other session is only read, and may be open to a writer.
    ///
    /// Seqs are those that reading gives, recovery included. The new header is the other one's, with the new id and
    /// time, with `parentSession`, and with `seedLength`: how many events are copies of what stands in the other file.
    /// A turn that is open at `at` is closed by recovery, in memory for a reader and durably by the next writer, so
    /// every event is a place to fork at.
    ///
    /// # Errors
    ///
    /// As [`Store::read`]; [`StoreError::NoEvent`]; an I/O error with its path, and then there is no new session.
    pub fn fork(&self, reference: &str, at: Option<u64>) -> Result<Fork, StoreError> {
        let Log { path: parent_path, mut header, mut events, recovered, problems, .. } = self.read(reference)?;
        let in_file = events.len() - recovered;
        if let Some(at) = at {
            if at >= events.len() {
                return Err(StoreError::NoEvent { path: parent_path, seq: at, events: events.len() });
            }
            events.truncate(at + 1);
        }
        let seed_length = events.len().min(in_file);

        let id = uuid::Uuid::new_v4().to_string();
        let parent_session = std::mem::replace(&mut header.id, id.clone());
        header.created_at = now();
        header.extra.set("parentSession", json::raw(&parent_session));
        header.extra.set("seedLength", json::raw(&seed_length));

        self.disk.create_folder(self.dir())?;
        let path = self.dir().join(format!("{id}.jsonl"));
        let _lock = Lock::take(&path)?;
        let lines = lines_of(&header, &events);
        Unnamed::write(&self.disk, &path, |file| file.write_all(lines.as_bytes()))?.name()?;
        self.disk.sync_name(&path).inspect_err(|_| {
            // Nobody knows of the session yet.
            let _ = self.disk.remove(&path);
        })?;
        Ok(Fork { id, path, parent_session, seed_length, parent_path, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::event::kind;
    use crate::store::Log;

    /// A turn that ended, and one whose writer died in a tool call.
    fn parent() -> (tempfile::TempDir, Store, Vec<u8>) {
        let user = |seq: u64| {
            format!(
                r#"{{"type":"user/message","seq":{seq},"time":{seq},"data":{{"id":"u{seq}","role":"user","content":[{{"type":"text","text":"t{seq}"}}],"source":{{"kind":"user"}}}},"surfaceOp":"append"}}"#
            )
        };
        let plain =
            |kind: &str, seq: u64, data: &str| format!(r#"{{"type":"{kind}","seq":{seq},"time":{seq},"data":{data}}}"#);
        let call = r#"{"turn":2,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"tool-call","id":"c","name":"bash","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"}}}"#;
        let lines = [
            r#"{"type":"session","version":0,"id":"s","createdAt":7,"cwd":"/p","seedLength":99,"delegationDepth":1,"own":[1]}"#.to_owned(),
            plain("turn/start", 0, r#"{"turn":1}"#),
            user(1),
            r#"{"type":"text-chunks","seq0":2,"time0":2,"data":{"turn":1,"step":1,"index":0,"dt":[0,1,0],"texts":["a","b","c","d"]}}"#.to_owned(),
            plain("x/y", 6, "null"),
            plain("turn/end", 7, r#"{"turn":1,"reason":{"kind":"completed"}}"#),
            plain("turn/start", 8, r#"{"turn":2}"#),
            plain("step/start", 9, r#"{"turn":2,"step":1}"#),
            user(10),
            plain("assistant/message", 11, call),
        ];
        let dir = tempfile::tempdir().unwrap();
        let text = lines.map(|line| line + "\n").concat().into_bytes();
        std::fs::write(dir.path().join("s.jsonl"), &text).unwrap();
        let store = Store::new(dir.path());
        (dir, store, text)
    }

    fn events(log: &Log) -> Vec<String> {
        log.events.iter().map(|event| json::raw(&*event).get().to_owned()).collect()
    }

    #[test]
    fn a_fork_begins_as_its_parent_did_at_every_seq() {
        let (dir, store, text) = parent();
        let whole = store.read("s").unwrap();
        assert_eq!((whole.events.len(), whole.recovered), (15, 3));
        for at in (0..15).map(Some).chain([None]) {
            let fork = store.fork("s", at).unwrap();
            let length = at.map_or(15, |at| at + 1);
            let log = store.read(&fork.id).unwrap();
            assert_eq!(log.problems, [], "{at:?}");
            assert_eq!(
                events(&log)[..usize::try_from(length).unwrap()],
                events(&whole)[..usize::try_from(length).unwrap()]
            );
            assert_eq!(log.events.singles().last().unwrap().kind, kind::TURN_END, "{at:?}");
            assert_eq!(log.events.len() - log.recovered, length, "{at:?}");
            let header = &log.header;
            assert_eq!((header.id.as_str(), header.cwd.as_deref()), (fork.id.as_str(), Some("/p")));
            assert!(header.created_at > 7);
            let member = |name| header.extra.get(name).map(|value| value.get().to_owned());
            for (name, value) in [
                ("parentSession", r#""s""#.to_owned()),
                ("seedLength", length.min(12).to_string()),
                ("own", "[1]".to_owned()),
                ("delegationDepth", "1".to_owned()),
            ] {
                assert_eq!(member(name), Some(value), "{name} at {at:?}");
            }
            assert_eq!((fork.seed_length, fork.parent_session.as_str()), (length.min(12), "s"));
            // It opens, and what an open turn lacks is then in it.
            drop(store.open(&fork.id, Box::new(|_| {})).unwrap());
            let opened = store.read(&fork.id).unwrap();
            assert_eq!((opened.recovered, events(&opened)), (0, events(&log)), "{at:?}");
        }
        assert_eq!(std::fs::read(dir.path().join("s.jsonl")).unwrap(), text, "the parent is only read");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left.len(), 17, "{left:?}");
    }

    #[test]
    fn a_fork_of_a_fork_names_the_fork() {
        let (_dir, store, _) = parent();
        let first = store.fork("s", Some(6)).unwrap();
        let second = store.fork(&first.id, Some(1)).unwrap();
        assert_eq!((second.parent_session, second.seed_length), (first.id, 2));
    }

    #[test]
    fn a_session_that_is_open_can_be_forked_and_a_file_elsewhere_too() {
        let (dir, store, _) = parent();
        let (_, writer) = store.open("s", Box::new(|_| {})).unwrap();
        store.fork("s", Some(3)).unwrap();
        drop(writer);
        let other = Store::new(dir.path().join("other/folder"));
        let fork = other.fork(dir.path().join("s.jsonl").to_str().unwrap(), None).unwrap();
        assert_eq!(fork.path.parent(), Some(other.dir()));
        assert_eq!(other.read(&fork.id).unwrap().events.len(), 15);
    }

    #[test]
    fn an_event_that_is_not_there_is_refused_by_the_range_and_nothing_is_written() {
        let (dir, store, _) = parent();
        for at in [15, u64::MAX] {
            let error = store.fork("s", Some(at)).unwrap_err().to_string();
            assert!(error.contains(&format!("no event {at}")) && error.contains("0 to 14"), "{error}");
        }
        std::fs::write(
            dir.path().join("none.jsonl"),
            "{\"type\":\"session\",\"version\":0,\"id\":\"none\",\"createdAt\":1}\n",
        )
        .unwrap();
        let error = store.fork("none", Some(0)).unwrap_err().to_string();
        assert!(error.contains("no event 0") && error.contains("no events yet"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        let fork = store.fork("none", None).unwrap();
        assert_eq!((fork.seed_length, store.read(&fork.id).unwrap().events.len()), (0, 0));
    }

    #[test]
    fn a_fork_of_a_damaged_session_is_sound() {
        let (dir, store, text) = parent();
        let damaged = [&text[..], b"garbage\n"].concat();
        std::fs::write(dir.path().join("s.jsonl"), damaged).unwrap();
        let fork = store.fork("s", None).unwrap();
        assert_eq!(fork.problems.len(), 1);
        assert_eq!(store.read(&fork.id).unwrap().problems, []);
    }
}
