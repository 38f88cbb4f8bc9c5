//! One writer per session.
//!
//! The lock is an advisory lock on a sibling file `<stem>.lock` that holds the holder's process id. The system releases
//! it with the process, however that ends; a file that was left behind locks nothing. Readers never look at it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use super::StoreError;
use super::bytes::ENDINGS;
use super::disk::private;

/// A held lock. Dropping it removes the file and releases the lock.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the lock of this log.
    pub fn take(log: &Path) -> Result<Self, StoreError> {
        let path = Self::path_of(log);
        loop {
            let mut file = private(OpenOptions::new().read(true).write(true).create(true).truncate(false))
                .open(&path)
                .map_err(StoreError::io("lock", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked { path: log.to_owned(), pid: holder(&mut file) });
                }
                Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &path)(error)),
            }
            // The last holder may have removed the file between the two calls; a lock on it would exclude nobody.
            if is_same_file(&file, &path) {
                file.set_len(0)
                    .and_then(|()| writeln!(file, "{}", std::process::id()))
                    .map_err(StoreError::io("lock", &path))?;
                return Ok(Self { path, file });
            }
        }
    }

    /// The lock file of this log: one for all forms of its name.
    pub fn path_of(log: &Path) -> PathBuf {
        let name = log.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let stem = ENDINGS.iter().rev().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(&name);
        log.with_file_name(format!("{stem}.lock"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While the lock is held nobody else can hold this file, so removing it harms nobody. A file that cannot be
        // removed is no lock either.
        let _ = std::fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same_file(_: &File, path: &Path) -> bool {
    // An open file cannot be removed there.
    path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_refused_by_name_and_gets_in_when_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.jsonl");
        let lock = Lock::take(&log).unwrap();
        for other in ["a.jsonl", "a.jsonl.zst", "a.jsonl.zstd"] {
            let error = Lock::take(&dir.path().join(other)).unwrap_err();
            assert!(matches!(error, StoreError::Locked { pid, .. } if pid == Some(std::process::id())));
        }
        drop(lock);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        Lock::take(&log).unwrap();
    }

    #[test]
    fn a_lock_file_that_was_left_behind_locks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.lock"), "99999999999999\nlonger than a pid").unwrap();
        let lock = Lock::take(&dir.path().join("a.jsonl")).unwrap();
        assert_eq!(std::fs::read_to_string(&lock.path).unwrap(), format!("{}\n", std::process::id()));
    }
}
