//! What happens when an adapter's library is not what it should be: the reason is said, the host lives, and the other
//! adapters serve.

mod library;
mod panics;
mod registry;

use std::path::{Path, PathBuf};

use dsh_host::loader::{LibraryRef, LibrarySpec, LoadError, Loader};
use dsh_tests::{FIXTURE, built};

/// A home folder and a loader of its own.
struct Bench {
    dir: tempfile::TempDir,
    loader: Loader,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let loader = Loader::new(&dir.path().join("home"));
        Self { dir, loader }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a library that differs from the fixture.
    fn changed(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
        let mut bytes = fixture_bytes();
        change(&mut bytes);
        let path = self.file(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn load(&self, path: &Path) -> Result<dsh_host::loader::Library, LoadError> {
        self.loader.load(&LibrarySpec { library: LibraryRef::Path(path.to_owned()), sha256: None })
    }

    /// The message of a refusal, after the checks that every message passes: it names the file and is one line.
    fn refusal(&self, path: &Path) -> String {
        let error = self.load(path).expect_err("this library must be refused").to_string();
        assert!(error.starts_with(&format!("{}: ", path.display())), "{error}");
        assert!(!error.contains('\n') && error.contains("; "), "one line, with a remedy: {error}");
        error
    }

    /// The good library still loads and works.
    fn assert_alive(&self) {
        let library = self.load(&built().library(FIXTURE)).unwrap();
        let config = serde_json::json!({ "routes": ["echo"] });
        let (_, created) = library.create(&config).unwrap();
        assert_eq!(created.routes[0].name, "echo");
    }
}

fn fixture_bytes() -> Vec<u8> {
    std::fs::read(built().library(FIXTURE)).unwrap()
}

/// Replaces every occurrence of a text; both have the same length.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let places: Vec<usize> = (0..=bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    assert!(!places.is_empty(), "{} is not in the library", String::from_utf8_lossy(old));
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
}

/// Replaces a text in the metadata section only.
fn replace_in_metadata(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    // The magic also stands in the code that checks it; the section is where a length and JSON follow.
    let section = |at: &usize| bytes[*at..].starts_with(b"DSHMETA1") && bytes[at + 12] == b'{';
    let start = (0..bytes.len() - 1024).find(section).expect("the library has a metadata section");
    replace(&mut bytes[start..start + 1024], old, new);
}
