//! Why a library or an instance cannot be used. Each message names the file, the reason and the remedy in itself, so
//! that it can be shown without its sources.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use dsh_plugin_api::abi::calls::ConfigRefusal;

use super::vet::Unfit;

/// A library that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No folder of the search path holds the name.
    #[error(
        "no library {file_name} for the adapter {name:?}; {}{}; {}",
        Looked(looked),
        Near(near),
        remedy_not_found(file_name)
    )]
    NotFound {
        /// The name as the manifest gives it.
        name: String,
        /// The file that was looked for.
        file_name: String,
        /// Every folder that was looked at, in order.
        looked: Vec<PathBuf>,
        /// Libraries in those folders whose names are close to it, nearest first.
        near: Vec<PathBuf>,
    },
    /// The file cannot be read.
    #[error("{}: it cannot be read: {error}; check `library` in the manifest and the permissions of the file", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The path is no regular file. It was not opened.
    #[error("{}: it is {what}, not a file; `library` must name a shared library", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// The file is too large to be an adapter. It was not read.
    #[error("{}: it is larger than {} MiB, which no adapter is; check `library` in the manifest", path.display(), limit >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is not the one that the manifest pins.
    #[error(
        "{}: its sha256 is {found}, the manifest pins {expected}; restore the pinned file, or change `sha256` in the \
         manifest if you trust this one", path.display()
    )]
    WrongSha256 {
        /// The file.
        path: PathBuf,
        /// The pin, in lower-case hex.
        expected: String,
        /// What the file has, in lower-case hex.
        found: String,
    },
    /// Vetting refused the file. Nothing of it was mapped.
    #[error("{}: {unfit}; {}", path.display(), unfit.remedy())]
    Unfit {
        /// The file.
        path: PathBuf,
        /// Why.
        unfit: Unfit,
    },
    /// The vetted copy cannot be written.
    #[error(
        "{}: its vetted copy cannot be written to {}: {error}; make that folder writable, or choose another home \
         folder with --home DIR or DSH_HOME", path.display(), folder.display()
    )]
    Cache {
        /// The file.
        path: PathBuf,
        /// The folder of the copy.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The dynamic linker refused the vetted copy.
    #[error("{}: the system cannot load it: {reason}; {}", path.display(), linker_remedy(reason))]
    Linker {
        /// The file.
        path: PathBuf,
        /// The linker's words, symbol names translated.
        reason: String,
    },
    /// The library is mapped, but its root module is not that of this host. None of its functions was called.
    #[error("{}: {reason}{}; rebuild it with dsh-plugin-api {}", path.display(), Report(report.as_deref()), dsh_plugin_api::API_VERSION)]
    Abi {
        /// The file.
        path: PathBuf,
        /// The last line of the report.
        reason: String,
        /// Where the whole report is.
        report: Option<PathBuf>,
    },
    /// The library answers its first calls as no adapter may.
    #[error("{}: {reason}; the library is broken, get another build of it", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What it did.
        reason: String,
    },
}

/// An instance that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The adapter refused its configuration.
    #[error("{}{}", At(&.0.path), .0.message)]
    Config(Box<ConfigRefusal>),
    /// The adapter panicked; the text is its message and place.
    #[error("the adapter panicked in its constructor: {0}; report this to its author")]
    Panicked(String),
    /// The adapter answered what no adapter may answer.
    #[error("{0}; report this to the author of the adapter")]
    Broken(String),
}

/// The message of an error followed by those of its sources.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(error.to_string().trim());
        source = error.source();
    }
    text
}

fn remedy_not_found(file_name: &str) -> String {
    format!(
        "build the adapter and put {file_name} in one of these folders, name its folder in DSH_PLUGIN_PATH, or give `library` a path"
    )
}

fn linker_remedy(reason: &str) -> &'static str {
    if reason.contains("undefined symbol") {
        "it needs a symbol that nothing provides: rebuild it with everything it uses linked in"
    } else if reason.contains("failed to map") {
        "the folder of its vetted copy may be mounted noexec: choose another home folder with --home DIR or DSH_HOME"
    } else if reason.contains("No such file") {
        "it needs another library that is not installed: install that library, or rebuild the adapter without it"
    } else if reason.contains("not found") {
        "it was built against newer system libraries: rebuild it on this system"
    } else {
        "rebuild it for this system"
    }
}

struct Looked<'a>(&'a [PathBuf]);

impl fmt::Display for Looked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "there was no folder to look in" } else { "looked in " })?;
        list(f, self.0)
    }
}

struct Near<'a>(&'a [PathBuf]);

impl fmt::Display for Near<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("; close to it: ")?;
        list(f, self.0)
    }
}

fn list(f: &mut fmt::Formatter<'_>, paths: &[PathBuf]) -> fmt::Result {
    for (position, path) in paths.iter().enumerate() {
        write!(f, "{}{}", if position == 0 { "" } else { ", " }, path.display())?;
    }
    Ok(())
}

struct Report<'a>(Option<&'a Path>);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |path| write!(f, " (the whole report is in {})", path.display()))
    }
}

struct At<'a>(&'a str);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{}: ", self.0) }
    }
}
