//! Trust in manifests of the current folder.
//!
//! Entering a folder must not run code that somebody put there, nor send files of its user elsewhere. A manifest that
//! was merely found in the current folder and that loads a library by path, or takes the text of a file outside its
//! folder, is used only after `dsh manifest trust`, once per content and place: the mark is a file in `trusted/` under
//! the home folder whose name is the SHA-256 of the manifest's absolute path and its text. Changing either asks again.
//! Overlays are named on the command line, so what they name is not asked about; pin a library with `sha256`.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::place::{Place, Source};
use super::problem::{Code, Finding, Problem};

/// What `dsh manifest trust` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The manifest is trusted now.
    Marked {
        /// The manifest.
        manifest: PathBuf,
        /// The libraries that it names by path, as written.
        libraries: Vec<String>,
        /// The files outside its folder whose text it takes, as written.
        files: Vec<String>,
    },
    /// The manifest of this lookup is not one that anybody asks about: it is the home folder's or built in.
    NotNeeded,
}

/// File whose existence says that a manifest is trusted; `None` for text that is no file.
pub(super) fn mark(home: &Path, source: &Source) -> Option<PathBuf> {
    // The real path, so that a link does not carry trust from one folder to another.
    let path = source.path.as_ref()?.canonicalize().ok()?;
    let mut hash = Sha256::new();
    hash.update(path.as_os_str().as_encoded_bytes());
    hash.update([0]);
    hash.update(source.text.as_bytes());
    let name: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(home.join("trusted").join(name))
}

/// Writes the mark; its text is for people who look into the folder.
pub(super) fn write(home: &Path, source: &Source) -> Result<(), Problem> {
    let failed = |message: String| Problem::of_file(Code::Unreadable, &source.name, message, "check the home folder");
    let mark = mark(home, source).ok_or_else(|| failed("is no file that can be trusted".to_owned()))?;
    let path = source.path.as_deref().unwrap_or(Path::new("")).display();
    std::fs::create_dir_all(home.join("trusted"))
        .and_then(|()| std::fs::write(&mark, format!("{path}\n")))
        .map_err(|e| failed(format!("cannot be marked as trusted in {}: {e}", mark.display())))
}

/// What is told of a library by path in a manifest that was not trusted yet.
pub(super) fn loads(place: Place, library: &str) -> Finding {
    let message = format!("this manifest was found in the current folder and loads `{library}`, which runs its code");
    untrusted(place, message, "loaded by path")
}

/// What is told of a file elsewhere in a manifest that was not trusted yet.
pub(super) fn reads(place: Place, file: &str) -> Finding {
    let message =
        format!("this manifest was found in the current folder and takes the text of `{file}`, outside of it");
    untrusted(place, message, "read from elsewhere")
}

fn untrusted(place: Place, message: String, label: &str) -> Finding {
    Finding::new(Code::Untrusted, place, message, label)
        .help("read it, then run `dsh manifest trust` once; or name it yourself with --manifest loader.toml")
}
