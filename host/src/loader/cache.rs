//! Vetted copies.
//!
//! A library is never opened where it was found: it is copied once to `<home>/cache/libraries/<sha256>/<file name>`,
//! and that copy is opened. Overwriting the original while it is in use, as every rebuild does, therefore harms
//! nobody. Folders are private to the user (0700) and copies are read-only; a copy that is there already is used only
//! when it is byte for byte what was vetted, and replaced otherwise.
//!
//! Where the home folder cannot be written, the copy goes to a private folder of its own under the system's temporary
//! folder, which is removed once the library is open: a mapped file needs no name.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::LoadError;

/// The largest file that is read. The largest adapter that was measured, unoptimised with debug information, is a
/// tenth of it.
pub(super) const LIMIT: u64 = 256 << 20;

/// Reads a library. Anything but a regular file is refused unopened: opening a FIFO would block.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.to_owned(), error };
    let metadata = fs::metadata(path).map_err(unreadable)?;
    regular(path, &metadata)?;
    // One byte more than the file has, so that its end is met without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LIMIT {
        return Err(LoadError::TooLarge { path: path.to_owned(), limit: LIMIT });
    }
    Ok(bytes)
}

fn regular(path: &Path, metadata: &fs::Metadata) -> Result<(), LoadError> {
    let kind = metadata.file_type();
    if kind.is_file() {
        if metadata.len() > LIMIT {
            return Err(LoadError::TooLarge { path: path.to_owned(), limit: LIMIT });
        }
        return Ok(());
    }
    let what = if kind.is_dir() { "a folder" } else { special(kind) };
    Err(LoadError::NotAFile { path: path.to_owned(), what })
}

#[cfg(unix)]
fn special(kind: fs::FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(not(unix))]
fn special(_: fs::FileType) -> &'static str {
    "a special file"
}

/// Lower-case hex.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A copy that may be opened. One in the temporary folder is removed with the value.
pub(super) struct VettedCopy {
    pub(super) path: PathBuf,
    temporary: bool,
}

impl Drop for VettedCopy {
    fn drop(&mut self) {
        if self.temporary
            && let Some(folder) = self.path.parent()
            && let Err(error) = fs::remove_dir_all(folder)
        {
            tracing::debug!("{} stays behind: {error}", folder.display());
        }
    }
}

/// Puts vetted bytes where they can be opened; `original` is only for the file name and messages.
pub(super) fn store(cache: &Path, sha256: &str, original: &Path, bytes: &[u8]) -> Result<VettedCopy, LoadError> {
    let name = original.file_name().unwrap_or(OsStr::new("library"));
    let folder = cache.join("libraries").join(sha256);
    let path = folder.join(name);
    if is_copy(&path, bytes).unwrap_or(false) {
        return Ok(VettedCopy { path, temporary: false });
    }
    let error = match place(&folder, &path, bytes) {
        Ok(()) => return Ok(VettedCopy { path, temporary: false }),
        Err(error) => error,
    };
    let temporary = std::env::temp_dir().join(format!("dsh-library-{}", uuid::Uuid::new_v4()));
    let path = temporary.join(name);
    match private_folder(&temporary, false).and_then(|()| write_new(&path, bytes)) {
        Ok(()) => {
            tracing::warn!("{} cannot be written ({error}); using {} instead", folder.display(), temporary.display());
            Ok(VettedCopy { path, temporary: true })
        }
        Err(_) => Err(LoadError::Cache { path: original.to_owned(), folder, error }),
    }
}

/// True when a file holds exactly these bytes.
fn is_copy(path: &Path, mut bytes: &[u8]) -> io::Result<bool> {
    let mut file = fs::File::open(path)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes.is_empty()),
            length => match bytes.strip_prefix(&buffer[..length]) {
                Some(rest) => bytes = rest,
                None => return Ok(false),
            },
        }
    }
}

/// Writes beside and renames, so that a copy under its final name is always whole.
fn place(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    private_folder(folder, true)?;
    let draft = folder.join(format!(".{}", uuid::Uuid::new_v4()));
    let placed = write_new(&draft, bytes).and_then(|()| fs::rename(&draft, path));
    if placed.is_err() {
        // What went wrong is reported; the draft is of no use to anybody.
        let _ = fs::remove_file(&draft);
    }
    placed
}

fn private_folder(folder: &Path, recursive: bool) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(recursive).create(folder)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o500);
    options.open(path)?.write_all(bytes)
}

/// Writes a report that is too long for a message; `None` when that is not possible.
pub(super) fn report(cache: &Path, sha256: &str, text: &str) -> Option<PathBuf> {
    let folder = cache.join("reports");
    let path = folder.join(format!("{sha256}.txt"));
    private_folder(&folder, true).and_then(|()| fs::write(&path, text)).ok().map(|()| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_named_by_its_hash_and_private() {
        let home = tempfile::tempdir().unwrap();
        let sha = sha256(b"abc");
        assert_eq!(sha, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let copy = store(home.path(), &sha, Path::new("/x/libx.so"), b"abc").unwrap();
        assert_eq!(copy.path, home.path().join("libraries").join(&sha).join("libx.so"));
        assert_eq!(fs::read(&copy.path).unwrap(), b"abc");
        assert_eq!(fs::read_dir(copy.path.parent().unwrap()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(copy.path.parent().unwrap()), 0o700);
            assert_eq!(mode(&copy.path), 0o500);
        }
    }

    #[test]
    fn a_copy_that_was_tampered_with_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let sha = sha256(b"abc");
        let copy = store(home.path(), &sha, Path::new("libx.so"), b"abc").unwrap();
        for tampered in [&b"abd"[..], b"ab", b"abcd", b""] {
            fs::remove_file(&copy.path).unwrap();
            fs::write(&copy.path, tampered).unwrap();
            let again = store(home.path(), &sha, Path::new("libx.so"), b"abc").unwrap();
            assert_eq!(again.path, copy.path);
            assert_eq!(fs::read(&again.path).unwrap(), b"abc", "{tampered:?}");
        }
    }

    #[test]
    fn without_a_writable_home_the_copy_lives_in_the_temporary_folder_until_it_is_open() {
        let home = tempfile::tempdir().unwrap();
        // A file where the folder should be: not even root can create a folder below it.
        let blocked = home.path().join("file");
        fs::write(&blocked, "").unwrap();
        let copy = store(&blocked, &sha256(b"abc"), Path::new("libx.so"), b"abc").unwrap();
        assert!(copy.path.starts_with(std::env::temp_dir()));
        assert_eq!(fs::read(&copy.path).unwrap(), b"abc");
        let folder = copy.path.parent().unwrap().to_owned();
        drop(copy);
        assert!(!folder.exists());
    }
}
