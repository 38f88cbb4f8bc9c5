//! For tests: a disk whose changes fail, and a disk whose power is cut.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::{Change, Disk};

/// Sees every change.
#[derive(Debug, Default)]
pub struct Probe(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failure: Option<Failure>,
    changes: usize,
    /// True once a change failed.
    failed: bool,
    record: Vec<Recorded>,
}

/// Which changes fail, and how.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    /// The first that fails, counted from 1.
    pub at: usize,
    /// How many fail from there on.
    pub times: usize,
    pub how: How,
}

#[derive(Debug, Clone, Copy)]
pub enum How {
    /// The change is not made.
    Error(io::ErrorKind),
    /// Half of what was to be appended is; other changes are not made.
    Short(io::ErrorKind),
}

/// A change that was made, or a note of the test.
#[derive(Debug, Clone)]
enum Recorded {
    Create(PathBuf),
    CreateFolder(PathBuf),
    Append(PathBuf, Vec<u8>),
    Cut(PathBuf, usize),
    Sync(PathBuf),
    SyncFolder(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    Acknowledged(Vec<u64>),
}

impl Disk {
    /// A disk on which these changes fail.
    pub fn failing(failure: Failure) -> Self {
        let state = State { failure: Some(failure), ..State::default() };
        Self { probe: Some(Arc::new(Probe(Mutex::new(state)))) }
    }

    /// A disk that remembers what was done to it.
    pub fn recording() -> Self {
        Self { probe: Some(Arc::default()) }
    }

    /// True when a change failed.
    pub fn has_failed(&self) -> bool {
        self.probe().0.lock().unwrap().failed
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        self.probe().0.lock().unwrap().failure = None;
    }

    /// Notes that these events were acknowledged now.
    pub fn acknowledge(&self, seqs: impl IntoIterator<Item = u64>) {
        let acknowledged = Recorded::Acknowledged(seqs.into_iter().collect());
        self.probe().0.lock().unwrap().record.push(acknowledged);
    }

    fn probe(&self) -> &Probe {
        self.probe.as_deref().unwrap()
    }
}

impl State {
    /// How the next change fails, if it does.
    fn next(&mut self) -> Option<How> {
        self.changes += 1;
        let failure = self.failure.filter(|it| (it.at..it.at.saturating_add(it.times)).contains(&self.changes))?;
        self.failed = true;
        Some(failure.how)
    }
}

impl Probe {
    /// Fails a change that is not to be made.
    pub fn before(&self, change: Change<'_>) -> io::Result<()> {
        // A short append has been asked for before.
        if matches!(change, Change::Append(..)) {
            return Ok(());
        }
        match self.0.lock().unwrap().next() {
            Some(How::Error(kind) | How::Short(kind)) => Err(kind.into()),
            None => Ok(()),
        }
    }

    /// How much of these bytes is appended before the error that follows.
    pub fn short(&self, path: &Path, bytes: &[u8]) -> Option<(usize, io::Error)> {
        let mut state = self.0.lock().unwrap();
        let (written, kind) = match state.next()? {
            How::Error(kind) => (0, kind),
            How::Short(kind) => (bytes.len() / 2, kind),
        };
        state.record.push(Recorded::Append(path.to_owned(), bytes[..written].to_vec()));
        Some((written, kind.into()))
    }

    /// Remembers a change that was made.
    pub fn made(&self, change: Change<'_>) {
        let path = Path::to_owned;
        let recorded = match change {
            Change::Create(at) => Recorded::Create(path(at)),
            Change::Append(at, bytes) => Recorded::Append(path(at), bytes.to_vec()),
            Change::Cut(at, length) => Recorded::Cut(path(at), usize::try_from(length).unwrap()),
            Change::Sync(at) => Recorded::Sync(path(at)),
            Change::SyncFolder(at) => Recorded::SyncFolder(path(at)),
            Change::Rename(from, to) => Recorded::Rename(path(from), path(to)),
            Change::Link(from, to) => Recorded::Link(path(from), path(to)),
            Change::Remove(at) => Recorded::Remove(path(at)),
            Change::CreateFolder(at) => Recorded::CreateFolder(path(at)),
            // An empty folder that is there again is no loss.
            Change::RemoveFolder | Change::Permit => return,
        };
        self.0.lock().unwrap().record.push(recorded);
    }
}

/// What a power loss may leave: the files by path, and the events that were acknowledged before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remains {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub acknowledged: Vec<u64>,
}

/// A file: what was written, and what of it was synced.
#[derive(Debug, Clone, Default)]
struct Content {
    written: Vec<u8>,
    synced: Vec<u8>,
}

/// A disk in memory, on which the recorded changes are made again.
#[derive(Debug, Clone, Default)]
struct Replayed {
    contents: Vec<Content>,
    names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Changes of names that were not synced, each as the names that change together.
    name_changes: Vec<Vec<(PathBuf, Option<usize>)>>,
    /// Folders that were made; each has a name in the one above.
    folders: Vec<PathBuf>,
    acknowledged: Vec<u64>,
}

fn apply(changes: &[(PathBuf, Option<usize>)], names: &mut BTreeMap<PathBuf, usize>) {
    for (path, content) in changes {
        match content {
            Some(content) => names.insert(path.clone(), *content),
            None => names.remove(path),
        };
    }
}

impl Replayed {
    /// These files were there, durable, before the first change.
    fn with(files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut disk = Self::default();
        for (path, bytes) in files {
            disk.names.insert(path.clone(), disk.contents.len());
            disk.contents.push(Content { written: bytes.clone(), synced: bytes.clone() });
        }
        disk.synced_names = disk.names.clone();
        disk
    }

    fn content(&mut self, path: &Path) -> &mut Content {
        let at = self.names[path];
        &mut self.contents[at]
    }

    fn name(&mut self, changes: Vec<(PathBuf, Option<usize>)>) {
        apply(&changes, &mut self.names);
        self.name_changes.push(changes);
    }

    fn make(&mut self, change: &Recorded) {
        if let Recorded::CreateFolder(path) = change {
            self.folders.push(path.clone());
        }
        match change {
            // A file that is emptied is one that was never synced.
            Recorded::Create(path) | Recorded::CreateFolder(path) => {
                self.contents.push(Content::default());
                self.name(vec![(path.clone(), Some(self.contents.len() - 1))]);
            }
            Recorded::Append(path, bytes) => self.content(path).written.extend_from_slice(bytes),
            Recorded::Cut(path, length) => self.content(path).written.truncate(*length),
            Recorded::Sync(path) => {
                let content = self.content(path);
                content.synced.clone_from(&content.written);
            }
            Recorded::SyncFolder(folder) => {
                let inside = |path: &Path| path.parent() == Some(folder);
                self.synced_names.retain(|path, _| !inside(path));
                let names = self.names.iter().filter(|(path, _)| inside(path));
                self.synced_names.extend(names.map(|(path, content)| (path.clone(), *content)));
                self.name_changes.retain(|changes| changes.iter().any(|(path, _)| !inside(path)));
            }
            Recorded::Rename(from, to) => self.name(vec![(from.clone(), None), (to.clone(), Some(self.names[from]))]),
            Recorded::Link(from, to) => self.name(vec![(to.clone(), Some(self.names[from]))]),
            Recorded::Remove(path) => self.name(vec![(path.clone(), None)]),
            Recorded::Acknowledged(seqs) => self.acknowledged.extend(seqs),
        }
    }

    /// What the power may leave when it is cut now: of the names and of the bytes that were not synced all, none, and
    /// of the names also each single change, of the bytes a part, or their room without them.
    fn remains(&self) -> Vec<Remains> {
        let kept = |content: &Content, variant: usize| {
            let Content { written, synced } = content;
            // Only a cut makes them differ in the middle.
            let common = written.iter().zip(synced).take_while(|(a, b)| a == b).count();
            let mut bytes = written.clone();
            match variant {
                0 => bytes.clone_from(synced),
                1 => {}
                2 => bytes.truncate(common + (written.len() - common) / 2),
                3 => bytes[common..].fill(0),
                _ => bytes[common..].iter_mut().take((written.len() - common) / 2).for_each(|byte| *byte = 0),
            }
            bytes
        };
        let mut all = Vec::new();
        let alone = self.name_changes.iter().map(|changes| {
            let mut names = self.synced_names.clone();
            apply(changes, &mut names);
            names
        });
        for names in [self.names.clone(), self.synced_names.clone()].into_iter().chain(alone) {
            let is_lost = |path: &&PathBuf| {
                self.folders
                    .iter()
                    .any(|folder| *path == folder || path.starts_with(folder) && !names.contains_key(folder))
            };
            for variant in 0..5 {
                let file = |(path, at): (&PathBuf, &usize)| (path.clone(), kept(&self.contents[*at], variant));
                let files = names.iter().filter(|(path, _)| !is_lost(path)).map(file).collect();
                all.push(Remains { files, acknowledged: self.acknowledged.clone() });
            }
        }
        all
    }
}

impl Disk {
    /// What a power loss may leave before and after each recorded change, each state once. `before` was there, durable,
    /// before the first.
    pub fn remains(&self, before: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<Remains> {
        let mut disk = Replayed::with(before);
        let mut all = disk.remains();
        for change in &self.probe().0.lock().unwrap().record {
            disk.make(change);
            all.extend(disk.remains());
        }
        all.sort();
        all.dedup();
        all
    }
}
