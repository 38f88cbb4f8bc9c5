//! The list of sessions, quick also where there are very many.
//!
//! What a list shows of a log takes reading it all. It is kept in a file of the folder and used again for a log that is
//! the same file, of the same length and times. That file is a cache and nothing else: whatever is missing, unreadable
//! or of another build in it is read from the logs, and a list that cannot write it is the same list.

use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use dsh_plugin_api::json;
use serde::{Deserialize, Serialize};

use super::{Log, Store, StoreError, Streams, now};

/// Its name.
const CACHE: &str = ".list.cache";

/// Its first line; what a log derives to may differ from build to build.
const BUILD: &str = concat!("dsh ", env!("CARGO_PKG_VERSION"), " list 1");

/// How much reading must have been needed before the cache is written again, in bytes; and what opening a file counts.
const WORTH: u64 = 1 << 20;
const OPENING: u64 = 8 << 10;

/// A file that changed so lately may change again without a difference in its times, in nanoseconds.
const SETTLED: u64 = 2_000_000_000;

/// One session of a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The id that opens it.
    pub id: String,
    /// Where it is.
    pub path: PathBuf,
    /// Unix time in milliseconds; the file's own time where the session cannot be read.
    pub created_at: u64,
    /// Its title, where it has one.
    pub title: Option<String>,
    /// Number of derived messages, or why the session cannot be read.
    pub messages: Result<usize, StoreError>,
}

impl Store {
    /// The sessions of this folder, newest first. A session that cannot be read is listed with its error.
    ///
    /// # Errors
    ///
    /// The folder cannot be listed. A folder that does not exist holds no sessions.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        // Both take about as long, and so do both halves of the stamps.
        let (cache, files) = std::thread::scope(|scope| {
            let cache = scope.spawn(|| Cache::load(self));
            let files = self.files();
            (cache.join(), files)
        });
        let files: Vec<(String, PathBuf)> = files?.into_iter().collect();
        // A thread that panicked has loaded nothing.
        let mut cache = cache.unwrap_or_else(|_| Cache::of(self, ""));
        let stamps = stamps(&files);
        let length = |stamp: &Option<Stamp>| stamp.map_or(0, |stamp| stamp.0);
        let (mut done, all) = (0, stamps.iter().map(length).sum());
        let mut listed: Vec<Listed> = Vec::with_capacity(files.len());
        for ((id, path), stamp) in files.into_iter().zip(stamps) {
            done += length(&stamp);
            listed.push(cache.listed(id, path, stamp));
            if let Some(watch) = &self.watch {
                watch.tell(done, all);
            }
        }
        cache.save();
        listed.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        Ok(listed)
    }
}

/// What tells one state of a file from another: length in bytes, times of its content and of its entry in nanoseconds,
/// number of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp(u64, u64, u64, u64);

impl Stamp {
    fn of(metadata: &Metadata) -> Option<Self> {
        let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        let modified = u64::try_from(modified.as_nanos()).ok()?;
        let (changed, number) = entry_of(metadata)?;
        Some(Self(metadata.len(), modified, changed, number))
    }

    fn is_settled(self, now: u64) -> bool {
        let Self(_, modified, changed, _) = self;
        modified.max(changed).saturating_add(SETTLED) < now
    }
}

/// The stamp of each of these files, in order; `None` where it cannot be told. Asking the system is most of the work of
/// a list, so two threads ask where there are many.
fn stamps(files: &[(String, PathBuf)]) -> Vec<Option<Stamp>> {
    const FEW: usize = 200;
    let ask = |files: &[(String, PathBuf)]| -> Vec<Option<Stamp>> {
        let stamp = |path: &Path| Stamp::of(&std::fs::metadata(path).ok()?);
        files.iter().map(|(_, path)| stamp(path)).collect()
    };
    if files.len() < FEW {
        return ask(files);
    }
    let (front, back) = files.split_at(files.len() / 2);
    std::thread::scope(|scope| {
        let front_stamps = scope.spawn(|| ask(front));
        let back = ask(back);
        let mut stamps = front_stamps.join().unwrap_or_else(|_| vec![None; front.len()]);
        stamps.extend(back);
        stamps
    })
}

#[cfg(unix)]
fn entry_of(metadata: &Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let changed = metadata.ctime().checked_mul(1_000_000_000)?.checked_add(metadata.ctime_nsec())?;
    Some((u64::try_from(changed).ok()?, metadata.ino()))
}

#[cfg(not(unix))]
fn entry_of(_: &Metadata) -> Option<(u64, u64)> {
    Some((0, 0))
}

/// What a readable log shows in a list: a line of the cache.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    /// Path below the folder.
    path: String,
    stamp: Stamp,
    created_at: u64,
    messages: usize,
    title: Option<String>,
}

/// Takes logs that are gone out of the cache: titles of theirs would stay in it.
pub(super) fn forget(store: &Store, paths: &[PathBuf]) {
    let dir = store.dir();
    let mut cache = Cache::load(store);
    let known = cache.loaded.len();
    for below in paths.iter().filter_map(|path| path.strip_prefix(dir).ok()?.to_str()) {
        cache.loaded.remove(below);
    }
    if cache.loaded.len() < known {
        cache.valid.extend(std::mem::take(&mut cache.loaded).into_values());
        cache.write();
    }
}

/// The path below the folder that it was listed from.
fn below<'p>(dir: &Path, path: &'p Path) -> Option<&'p str> {
    // Both begin with the same bytes; going through the parts of each path takes longer than all else here.
    let rest = path.as_os_str().as_encoded_bytes().strip_prefix(dir.as_os_str().as_encoded_bytes())?;
    Some(std::str::from_utf8(rest).ok()?.trim_start_matches(std::path::is_separator))
}

struct Cache<'a> {
    store: &'a Store,
    /// As loaded, by path; what is still right moves to `valid`.
    loaded: HashMap<String, Entry>,
    valid: Vec<Entry>,
    /// What was read although it may be kept, in bytes.
    read: u64,
    now: u64,
}

impl<'a> Cache<'a> {
    fn load(store: &'a Store) -> Self {
        Self::of(store, &std::fs::read_to_string(store.dir().join(CACHE)).unwrap_or_default())
    }

    fn of(store: &'a Store, text: &str) -> Self {
        let lines = text.strip_prefix(BUILD).and_then(|lines| lines.strip_prefix('\n')).unwrap_or_default();
        let entries = lines.lines().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let loaded = entries.map(|entry| (entry.path.clone(), entry)).collect();
        Self { store, loaded, valid: Vec::new(), read: 0, now: now().saturating_mul(1_000_000) }
    }

    /// `stamp` is from before: what is written to the file from then on makes another one.
    fn listed(&mut self, id: String, path: PathBuf, stamp: Option<Stamp>) -> Listed {
        let below = below(self.store.dir(), &path);
        if let Some((below, stamp)) = below.zip(stamp)
            && let Some(entry) = self.loaded.remove(below)
            && entry.stamp == stamp
        {
            let Entry { created_at, messages, ref title, .. } = entry;
            let listed = Listed { id, path, created_at, title: title.clone(), messages: Ok(messages) };
            self.valid.push(entry);
            return listed;
        }
        let below = below.map(str::to_owned);
        let listed = Listed::read(id, path);
        if let (Some(path), Some(stamp), Ok(messages)) = (below, stamp, &listed.messages)
            && stamp.is_settled(self.now)
        {
            let Listed { created_at, ref title, .. } = listed;
            self.read += stamp.0 + OPENING;
            self.valid.push(Entry { path, stamp, created_at, messages: *messages, title: title.clone() });
        }
        listed
    }

    /// Writes what is right now, where that spares the next list enough, or where logs are gone.
    fn save(self) {
        if self.read >= WORTH || !self.loaded.is_empty() {
            self.write();
        }
    }

    fn write(&self) {
        let mut text = format!("{BUILD}\n");
        for entry in &self.valid {
            text.push_str(json::raw(entry).get());
            text.push('\n');
        }
        let Store { dir, disk, .. } = self.store;
        let path = dir.join(CACHE);
        // Another list may write at the same time; either file is right.
        let unnamed = dir.join(format!("{CACHE}.{}.tmp", std::process::id()));
        let written = disk
            .create(&unnamed)
            .and_then(|mut file| file.append(text.as_bytes()))
            .and_then(|()| disk.rename(&unnamed, &path));
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "the cache of the list cannot be written");
            let _ = disk.remove(&unnamed);
        }
    }
}

impl Listed {
    fn read(id: String, path: PathBuf) -> Self {
        match Log::of_file(path.clone(), Streams::LeftOut) {
            Ok(log) => {
                let messages = Ok(log.history().len());
                Self { id, path, created_at: log.header.created_at, title: log.title(), messages }
            }
            Err(error) => {
                let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
                let age = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
                let created_at = age.and_then(|age| u64::try_from(age.as_millis()).ok()).unwrap_or_default();
                Self { id, path, created_at, title: None, messages: Err(error) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;

    fn log(id: &str, messages: usize) -> String {
        let user = |seq: usize| {
            format!(
                r#"{{"type":"user/message","seq":{seq},"time":1,"data":{{"id":"u","role":"user","content":[{{"type":"text","text":"hi"}}],"source":{{"kind":"user"}}}},"surfaceOp":"append"}}"#
            )
        };
        let mut text = format!("{{\"type\":\"session\",\"version\":0,\"id\":\"{id}\",\"createdAt\":5}}\n");
        (0..messages).for_each(|seq| text.push_str(&(user(seq) + "\n")));
        text
    }

    fn rows(store: &Store) -> Vec<(String, u64, Option<usize>)> {
        let rows = store.list().unwrap().into_iter();
        rows.map(|row| (row.id, row.created_at, row.messages.ok())).collect()
    }

    /// Entries as if all files had settled, through a cache that is written whatever it spares.
    fn list_into_cache(store: &Store) -> Vec<Option<usize>> {
        let mut cache = Cache::load(store);
        cache.now = u64::MAX;
        let files: Vec<(String, PathBuf)> = store.files().unwrap().into_iter().collect();
        let stamps = stamps(&files);
        let listed = files.into_iter().zip(stamps);
        let listed = listed.map(|((id, path), stamp)| cache.listed(id, path, stamp).messages.ok()).collect();
        cache.read = WORTH;
        cache.save();
        listed
    }

    fn cached(store: &Store) -> String {
        std::fs::read_to_string(store.dir().join(CACHE)).unwrap()
    }

    #[test]
    fn a_list_from_the_cache_is_the_list_of_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("p/n")).unwrap();
        for (name, text) in [
            ("a.jsonl", log("a", 1)),
            ("b.jsonl", log("b", 2)),
            ("p/n/session.jsonl", log("n", 3)),
            ("bad.jsonl", "garbage\n".to_owned()),
        ] {
            std::fs::write(path(name), text).unwrap();
        }
        assert_eq!(list_into_cache(&store), [Some(1), Some(2), None, Some(3)]);
        assert_eq!(cached(&store).lines().count(), 4, "an unreadable log is read each time");
        // It is used: what it says is shown while the file is the same.
        let spoilt = cached(&store).replace("\"messages\":2", "\"messages\":77");
        std::fs::write(path(CACHE), &spoilt).unwrap();
        let messages = |id: &str| rows(&store).into_iter().find(|row| row.0 == id).unwrap().2;
        assert_eq!((messages("a"), messages("b"), messages("n")), (Some(1), Some(77), Some(3)));
        // Same length, same time of the content, another file.
        let times = std::fs::metadata(path("b.jsonl")).unwrap().modified().unwrap();
        std::fs::write(path("new"), log("b", 2)).unwrap();
        std::fs::rename(path("new"), path("b.jsonl")).unwrap();
        File::open(path("b.jsonl")).unwrap().set_times(FileTimes::new().set_modified(times)).unwrap();
        assert_eq!(messages("b"), Some(2));
        // One that grew, one that is gone, one that is new.
        std::fs::write(path("a.jsonl"), log("a", 4)).unwrap();
        std::fs::remove_file(path("p/n/session.jsonl")).unwrap();
        std::fs::write(path("c.jsonl"), log("c", 6)).unwrap();
        assert_eq!(list_into_cache(&store), [Some(4), Some(2), None, Some(6)]);
        assert!(!cached(&store).contains("session.jsonl"));
        let before = rows(&store);
        // Whatever stands in it.
        for text in ["", "garbage", "dsh 9 list 1\n", &cached(&store)[..150]] {
            std::fs::write(path(CACHE), text).unwrap();
            assert_eq!(rows(&store), before, "{text:?}");
        }
        std::fs::remove_file(path(CACHE)).unwrap();
        std::fs::create_dir(path(CACHE)).unwrap();
        assert_eq!(list_into_cache(&store), [Some(4), Some(2), None, Some(6)]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6, "no half a cache is left behind");
    }

    #[test]
    fn nothing_of_a_deleted_session_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for id in ["a", "b", "c"] {
            std::fs::write(dir.path().join(format!("{id}.jsonl")), log(id, 1)).unwrap();
        }
        list_into_cache(&store);
        assert!(store.files_of("a").unwrap().delete().error.is_none());
        assert!(!cached(&store).contains("a.jsonl") && cached(&store).contains("c.jsonl"), "{}", cached(&store));
        std::fs::remove_file(dir.path().join("b.jsonl")).unwrap();
        assert_eq!(rows(&store).len(), 1);
        assert!(!cached(&store).contains("b.jsonl") && cached(&store).contains("c.jsonl"), "{}", cached(&store));
    }

    #[test]
    fn the_cache_is_written_only_where_it_spares_something_and_only_of_files_at_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for n in 0..200 {
            let path = dir.path().join(format!("{n}.jsonl"));
            std::fs::write(&path, log("x", 1)).unwrap();
            File::open(&path)
                .unwrap()
                .set_times(FileTimes::new().set_modified(SystemTime::now() - Duration::from_hours(1)))
                .unwrap();
        }
        // Their entries are new, whatever the time of their content says.
        assert_eq!(rows(&store).len(), 200);
        assert!(!dir.path().join(CACHE).exists());
        assert!(Stamp(1, 1, 1, 1).is_settled(SETTLED + 2) && !Stamp(1, 1, 2, 1).is_settled(SETTLED + 2));
    }
}
