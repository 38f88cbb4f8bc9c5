//! Delete: every file of a session.

use std::path::{Path, PathBuf};

use super::bytes::ENDINGS;
use super::find::{self, entries, subfolders};
use super::lock::Lock;
use super::repair::KEPT;
use super::{Store, StoreError, files, list, read_file};

/// The files that make up one session.
#[derive(Debug, Clone)]
pub struct SessionFiles {
    /// Its id.
    pub id: String,
    store: Store,
    /// Where its logs are; the one that the id means first.
    places: Vec<Place>,
}

/// A folder, and what the names of the logs in it begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    folder: PathBuf,
    stem: String,
}

impl Store {
    /// The files of the session that a reference means. An id means all forms in all places of this folder; a path means
    /// all forms of the name in the folder of that file. Nothing is read of a session that is given by its id.
    ///
    /// # Errors
    ///
    /// As [`Store::resolve`]; [`StoreError::NoSession`] for a path whose file holds none.
    pub fn files_of(&self, reference: &str) -> Result<SessionFiles, StoreError> {
        let path = self.resolve(reference)?;
        if !find::is_path(reference) {
            let top = Place { folder: self.dir().to_owned(), stem: reference.to_owned() };
            let nested = subfolders(self.dir())?
                .into_iter()
                .map(|project| Place { folder: project.join(reference), stem: "session".to_owned() });
            let places = std::iter::once(top).chain(nested).filter(|place| !place.logs().is_empty()).collect();
            return Ok(SessionFiles { id: reference.to_owned(), store: self.clone(), places });
        }
        // Any file can be named by its path; what is no session is not for this to remove.
        let (id, stem) = find::id_of(&path).zip(find::stem_of(&path)).ok_or_else(|| StoreError::NoSession {
            path: path.clone(),
            reason: "its name is not that of a session log".to_owned(),
        })?;
        if let Err(error @ (StoreError::NoSession { .. } | StoreError::Io { .. })) = read_file(&path, &mut |_| {}) {
            return Err(error);
        }
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(SessionFiles { id, store: self.clone(), places: vec![Place { folder, stem }] })
    }
}

impl PartialEq for SessionFiles {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.places) == (&other.id, &other.places)
    }
}

impl SessionFiles {
    /// All of them that are there now: logs, what [`Store::repair`] kept, what a killed writer left behind.
    ///
    /// # Errors
    ///
    /// A folder that cannot be listed.
    pub fn paths(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut paths = Vec::new();
        for place in &self.places {
            paths.extend(place.logs());
            paths.extend(place.beside()?);
        }
        Ok(paths)
    }

    /// Removes them, durably, and a folder of the session's own that is then empty.
    ///
    /// [`StoreError::Locked`] while a writer has the session open, and then nothing is removed. After an I/O error, which
    /// names the path that could not be removed, the id means what it meant before.
    #[must_use]
    pub fn delete(&self) -> Deleted {
        let mut deleted = Deleted::default();
        deleted.error = self.delete_into(&mut deleted.removed).err();
        deleted.removed.sort();
        deleted
    }

    fn delete_into(&self, removed: &mut Vec<PathBuf>) -> Result<(), StoreError> {
        let disk = &self.store.disk;
        let mut lock_files = Vec::new();
        let mut locks = Vec::new();
        for place in &self.places {
            let lock_file = Lock::path_of(&place.folder.join(format!("{}.jsonl", place.stem)));
            if lock_file.exists() {
                lock_files.push(lock_file);
            }
            let Some(log) = place.logs().into_iter().next() else { continue };
            // A writer locks the file that a link leads to.
            let log = log.canonicalize().map_err(StoreError::io("open", &log))?;
            locks.push(Lock::take(&log)?);
        }
        // Backwards, so that what the id means goes last.
        let removing = self.places.iter().rev().try_for_each(|place| {
            let mut logs = place.logs().into_iter();
            let meant = logs.next();
            let others: Vec<PathBuf> = place.beside()?.into_iter().chain(logs).collect();
            // In two steps, so that not even a power loss leaves an older form alone.
            for paths in [others, meant.into_iter().collect()] {
                for path in paths.into_iter().filter(|path| !lock_files.contains(path)) {
                    disk.remove(&path).map_err(StoreError::io("remove", &path))?;
                    removed.push(path);
                }
                disk.sync_folder(&place.folder)?;
            }
            Ok(())
        });
        // What was left behind by a process that is gone goes with the locks.
        drop(locks);
        removed.extend(lock_files.into_iter().filter(|path| !path.exists()));
        list::forget(&self.store, removed);
        removing?;
        for Place { folder, stem } in &self.places {
            // A folder with anything else in it stays.
            if stem == "session" && folder.ends_with(&self.id) && disk.remove_folder(folder).is_ok() {
                removed.push(folder.clone());
                disk.sync_name(folder)?;
            }
        }
        Ok(())
    }
}

/// What [`SessionFiles::delete`] did.
#[derive(Debug, Default)]
pub struct Deleted {
    /// What is gone.
    pub removed: Vec<PathBuf>,
    /// Why something is not.
    pub error: Option<StoreError>,
}

impl Place {
    fn names(&self) -> impl Iterator<Item = String> {
        ENDINGS.iter().map(|(ending, _)| format!("{}{ending}", self.stem))
    }

    /// The logs, the one that the id means first.
    fn logs(&self) -> Vec<PathBuf> {
        self.names().map(|name| self.folder.join(name)).filter(|path| path.is_file()).collect()
    }

    /// Files beside the logs that are about them.
    fn beside(&self) -> Result<Vec<PathBuf>, StoreError> {
        let unfinished: Vec<PathBuf> = self.names().map(|name| files::unnamed(&self.folder.join(name))).collect();
        let kept: Vec<String> = self.names().map(|name| name + KEPT).collect();
        let is_kept = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            kept.iter().filter_map(|kept| name.strip_prefix(kept.as_str())).any(|rest| {
                rest.is_empty()
                    || rest.strip_prefix('-').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            })
        };
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let mut beside = entries(folder)?;
        beside.retain(|path| {
            let named = self.folder.join(path.file_name().unwrap_or_default());
            path.is_file() && (unfinished.contains(&named) || is_kept(path))
        });
        Ok(beside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delete(files: &SessionFiles) -> Result<Vec<PathBuf>, StoreError> {
        let Deleted { removed, error } = files.delete();
        error.map_or(Ok(removed), Err)
    }
    use crate::store::Form;

    const LOG: &str = "{\"type\":\"session\",\"version\":0,\"id\":\"a\",\"createdAt\":1}\n";

    fn folder(files: &[&str]) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, Form::of(&path).encode(LOG.as_bytes()).unwrap()).unwrap();
        }
        let store = Store::new(dir.path());
        (dir, store)
    }

    /// Names of files and empty folders, relative to the folder.
    fn left(dir: &Path) -> Vec<String> {
        fn walk(at: &Path, root: &Path, names: &mut Vec<String>) {
            let inside = entries(at).unwrap();
            if inside.is_empty() || at.is_file() {
                names.push(at.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
            for path in inside {
                if path.is_dir() {
                    walk(&path, root, names);
                } else {
                    names.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let mut names = Vec::new();
        walk(dir, dir, &mut names);
        names
    }

    #[test]
    fn every_form_of_an_id_goes_and_nothing_else() {
        let stays = [
            "a.jsonl.bak",
            "a.jsonl.before-repairs",
            "aa.jsonl",
            "b.jsonl",
            "b.jsonl.before-repair",
            "p/b/session.jsonl",
            "q/a/notes.txt",
            "session.jsonl",
        ];
        let goes = [
            ".a.jsonl.tmp",
            "a.jsonl",
            "a.jsonl.before-repair",
            "a.jsonl.before-repair-12",
            "a.jsonl.zst",
            "a.jsonl.zst.before-repair",
            "a.jsonl.zstd",
            "a.lock",
            "p/a/session.jsonl.zst",
            "q/a/session.jsonl",
        ];
        let (dir, store) = folder(&[&stays[..], &goes[..]].concat());
        let files = store.files_of("a").unwrap();
        assert_eq!(files.paths().unwrap()[0], dir.path().join("a.jsonl"));
        let removed = delete(&files).unwrap();
        let mut expected: Vec<PathBuf> = goes.iter().map(|file| dir.path().join(file)).collect();
        expected.push(dir.path().join("p/a"));
        expected.sort();
        assert_eq!(removed, expected);
        assert_eq!(left(dir.path()), stays);
        assert!(matches!(store.files_of("a"), Err(StoreError::NotFound { .. })));
    }

    #[test]
    fn a_path_means_the_forms_of_its_name_in_its_folder() {
        let (dir, store) = folder(&["a.jsonl", "p/a/session.jsonl", "p/a/session.jsonl.zst", "p/b/session.jsonl"]);
        let files = store.files_of(dir.path().join("p/a/session.jsonl").to_str().unwrap()).unwrap();
        assert_eq!(files.id, "a");
        assert_eq!(delete(&files).unwrap().len(), 3);
        assert_eq!(left(dir.path()), ["a.jsonl", "p/b/session.jsonl"]);
    }

    #[test]
    fn a_file_that_is_no_session_is_not_removed_by_its_path() {
        let (dir, store) = folder(&["notes.txt"]);
        std::fs::write(dir.path().join("data.jsonl"), "{\"x\":1}\n").unwrap();
        for name in ["notes.txt", "data.jsonl"] {
            let error = store.files_of(dir.path().join(name).to_str().unwrap()).unwrap_err();
            assert!(matches!(error, StoreError::NoSession { .. }), "{error}");
        }
        // By its id, an unreadable session goes like any other: the list shows it.
        assert_eq!(delete(&store.files_of("data").unwrap()).unwrap(), [dir.path().join("data.jsonl")]);
        // A newer one is a session.
        std::fs::write(dir.path().join("n.jsonl"), LOG.replace("\"version\":0", "\"version\":9")).unwrap();
        delete(&store.files_of(dir.path().join("n.jsonl").to_str().unwrap()).unwrap()).unwrap();
        assert_eq!(left(dir.path()), ["notes.txt"]);
    }

    #[test]
    fn a_session_that_is_open_stays_whole() {
        let (dir, store) = folder(&["a.jsonl", "a.jsonl.before-repair", "p/a/session.jsonl"]);
        let nested = dir.path().join("p/a/session.jsonl");
        for log in [dir.path().join("a.jsonl"), nested] {
            let lock = Lock::take(&log).unwrap();
            let error = delete(&store.files_of("a").unwrap()).unwrap_err();
            assert!(matches!(error, StoreError::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
            drop(lock);
            assert_eq!(left(dir.path()), ["a.jsonl", "a.jsonl.before-repair", "p/a/session.jsonl"]);
        }
    }

    #[cfg(unix)]
    #[test]
    fn of_a_link_only_the_link_goes() {
        let (dir, store) = folder(&["elsewhere/x.jsonl"]);
        let target = dir.path().join("elsewhere/x.jsonl");
        std::os::unix::fs::symlink(&target, dir.path().join("a.jsonl")).unwrap();
        let lock = Lock::take(&target).unwrap();
        assert!(matches!(delete(&store.files_of("a").unwrap()), Err(StoreError::Locked { .. })));
        drop(lock);
        delete(&store.files_of("a").unwrap()).unwrap();
        assert_eq!(left(dir.path()), ["elsewhere/x.jsonl"]);
    }
}
