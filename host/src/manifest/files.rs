//! Finding and reading the files of a composition.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::paths::Surroundings;
use super::place::Source;
use super::problem::{Code, Problem};
use super::{Lookup, Origin};

/// The manifest that is compiled in: `loader.toml` of the repository.
pub(super) const BUILT_IN: &str = include_str!("../../../loader.toml");

const FILE_NAME: &str = "loader.toml";

/// Far above any manifest that a person or a generator writes; keeps a wrong path from filling memory.
const MAX_BYTES: u64 = 4 << 20;

/// Where the manifest is, by the order of the lookup.
pub(super) fn find(lookup: &Lookup, around: &Surroundings) -> Origin {
    if let Some(given) = &lookup.manifest {
        return Origin::Given(given.clone());
    }
    // Anything but "there is none" counts as found: a file that cannot be looked at is reported, not passed over.
    let there = |path: &Path| !matches!(path.try_exists(), Ok(false));
    let here = around.cwd.join(FILE_NAME);
    let home = lookup.home.join(FILE_NAME);
    // Who stands in the home folder has not stumbled over its manifest.
    if here != home && there(&here) {
        return Origin::CurrentFolder(here);
    }
    if there(&home) {
        return Origin::Home(home);
    }
    Origin::BuiltIn
}

/// Reads the manifest of an origin.
pub(super) fn read_origin(origin: &Origin, lookup: &Lookup, around: &Surroundings) -> Result<Source, Problem> {
    match origin {
        Origin::Given(path) => read(path, path.display().to_string(), around),
        // Nobody named it, and opening a pipe would wait for a writer.
        Origin::CurrentFolder(path) if std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir()) => {
            let help = "move it away, or name a manifest with --manifest";
            Err(Problem::of_file(Code::Unreadable, FILE_NAME, "is a device, a pipe or a socket", help))
        }
        Origin::CurrentFolder(path) => read(path, FILE_NAME.to_owned(), around),
        Origin::Home(path) => read(path, path.display().to_string(), around),
        Origin::BuiltIn => Ok(Source::new("<built-in loader.toml>", None, lookup.home.clone(), BUILT_IN)),
    }
}

/// Reads an overlay.
pub(super) fn read_overlay(path: &Path, around: &Surroundings) -> Result<Source, Problem> {
    read(path, path.display().to_string(), around)
}

fn read(path: &Path, name: String, around: &Surroundings) -> Result<Source, Problem> {
    let path: PathBuf = around.cwd.join(path).components().collect();
    let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
    let unreadable = |error: &std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Problem::of_file(
            Code::NotFound,
            &name,
            "there is no such file",
            "check the path; without --manifest the built-in composition is used where no loader.toml is found",
        ),
        _ => Problem::of_file(Code::Unreadable, &name, format!("cannot be read: {error}"), "check its permissions"),
    };
    let metadata = std::fs::metadata(&path).map_err(|e| unreadable(&e))?;
    if metadata.is_dir() {
        let inside = path.join(FILE_NAME);
        let help = if inside.is_file() {
            format!("the manifest in it is {}", inside.display())
        } else {
            "name a TOML file".to_owned()
        };
        return Err(Problem::of_file(Code::Unreadable, name, "is a folder, not a manifest", &help));
    }
    let file = std::fs::File::open(&path).map_err(|e| unreadable(&e))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&e))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Problem::of_file(Code::Unreadable, name, "is larger than 4 MiB", "name a TOML file"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, Some(path), dir, &text)),
        Err(error) => Err(not_utf8(&name, &error)),
    }
}

/// No source is shown with it: bytes that are no text would only garble the terminal.
fn not_utf8(name: &str, error: &std::string::FromUtf8Error) -> Problem {
    let at = error.utf8_error().valid_up_to();
    let before = String::from_utf8_lossy(&error.as_bytes()[..at]).into_owned();
    let (line, column) = Source::new(name, None, PathBuf::new(), &before).line_column(at);
    let found = error.as_bytes().get(at).copied().unwrap_or_default();
    Problem::of_file(
        Code::NotUtf8,
        name,
        format!("is not UTF-8: byte 0x{found:02x} at offset {at}"),
        "TOML files are UTF-8: save it in that encoding",
    )
    .at(line, column)
}
