//! Trust in manifests of the current folder.
//!
//! Entering a folder must not run code that somebody put there, nor send its user's secrets, files and conversations
//! elsewhere. A manifest that was merely found in the current folder may choose among what `dsh` does anyway: the
//! places of the built-in composition and of presets, each with the credential that belongs to it, and the tools.
//! Whatever goes beyond that is a [`Grant`] and needs `dsh manifest trust`, once per content and place: the mark is a
//! file in `trusted/` under the home folder whose name is the SHA-256 of the manifest's folder, its file name and its text.
//! Changing either asks again. A file whose text is that of the built-in manifest asks for nothing.
//!
//! Overlays are named on the command line, so what they say is not asked about: a place that an overlay names is its
//! user's, whatever the manifest says of that route. The mark is for the text of the manifest and not for the files that
//! it names: pin a library with `sha256`.

mod grants;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::place::{Place, Source};
use super::problem::{Code, Finding, Problem};

pub(super) use grants::{Known, grants, unexpected_place};

/// What `dsh manifest trust` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The manifest is trusted now.
    Marked {
        /// The manifest.
        manifest: PathBuf,
        /// What it may do that an untrusted one may not, in its order; each continues a sentence that begins with it:
        /// ``loads `./libx.so`, which runs its code``.
        allows: Vec<String>,
    },
    /// The manifest of this lookup is not one that anybody asks about: it is the home folder's or built in.
    NotNeeded,
}

/// Something that a manifest does and that needs trust where it was merely found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    /// The value that does it.
    pub place: Place,
    /// What it does: continues a sentence that begins with the manifest.
    pub does: String,
    /// What stands under the caret.
    pub label: &'static str,
    /// A second value that takes part in it.
    pub with: Option<(Place, String)>,
}

impl Grant {
    pub(super) fn new(place: Place, label: &'static str, does: impl Into<String>) -> Self {
        Self { place, does: does.into(), label, with: None }
    }

    /// What is told of it where the manifest was not trusted yet.
    pub(super) fn refused(self) -> Finding {
        let Self { place, does, label, with } = self;
        let message = format!("this manifest was found in the current folder and {does}");
        let mut finding = Finding::new(Code::Untrusted, place, message, label)
            .help("read it, then run `dsh manifest trust` once; or name it yourself with --manifest loader.toml");
        finding.also.extend(with);
        finding
    }
}

/// File whose existence says that a manifest is trusted; `None` for text that is no file.
pub(super) fn mark(home: &Path, source: &Source) -> Option<PathBuf> {
    // The real folder that it was found in, where its relative paths start, and not what a link in it leads to: else a
    // link to a trusted manifest would carry trust to the files of the folder with the link.
    let path = source.dir.canonicalize().ok()?.join(source.path.as_ref()?.file_name()?);
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
