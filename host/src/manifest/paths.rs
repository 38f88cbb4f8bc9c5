//! Paths in a manifest: `~/`, `$NAME`, and what a relative path starts from.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What paths and lookup need to know of the process. Tests make their own.
pub(super) struct Surroundings<'a> {
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    /// The user's home folder, for `~/`.
    pub user_home: Option<PathBuf>,
    /// The current folder, absolute.
    pub cwd: PathBuf,
}

impl Surroundings<'static> {
    /// Those of this process. A current folder that is gone counts as `/`: nothing is found there.
    pub(super) fn of_process() -> Self {
        Self {
            env: &|name| std::env::var_os(name),
            user_home: std::env::home_dir(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathError {
    /// Nothing is written there.
    Empty,
    /// The variable is not set, or set to nothing.
    Unset(String),
    /// A `$` that begins no name.
    Dollar,
    /// `~name`, or `~` without a home folder.
    Tilde,
}

/// Expands `~/`, `$NAME`, `${NAME}` (and `$$` for a plain `$`), then resolves against the folder of the file.
pub(super) fn resolve(text: &str, dir: &Path, around: &Surroundings) -> Result<PathBuf, PathError> {
    if text.trim().is_empty() {
        return Err(PathError::Empty);
    }
    let mut expanded = OsString::new();
    let mut rest = text;
    if let Some(after) = text.strip_prefix('~') {
        if !(after.is_empty() || after.starts_with('/')) {
            return Err(PathError::Tilde);
        }
        expanded.push(around.user_home.as_ref().ok_or(PathError::Tilde)?);
        rest = after;
    }
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push(before);
        if let Some(after) = after.strip_prefix('$') {
            expanded.push("$");
            rest = after;
            continue;
        }
        let (name, after) = variable(after).ok_or(PathError::Dollar)?;
        let value = (around.env)(name).filter(|value| !value.is_empty());
        expanded.push(value.ok_or_else(|| PathError::Unset(name.to_owned()))?);
        rest = after;
    }
    expanded.push(rest);
    // Collecting the components drops `.` and doubled slashes, which only clutter messages.
    Ok(dir.join(expanded).components().collect())
}

/// The name behind a `$`, with or without braces, and what follows it.
fn variable(text: &str) -> Option<(&str, &str)> {
    let (name, after) = match text.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => {
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
            text.split_at(end)
        }
    };
    let right = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    right.then_some((name, after))
}

/// Whether a `library` is a path; otherwise it is a name.
pub(super) fn is_path(library: &str) -> bool {
    library.contains(['/', '\\']) || library.starts_with(['.', '~', '$'])
}
