//! `{ file = "PATH" }` in an adapter's configuration: the text of a file in place of the table.

use std::io::Read;
use std::path::Path;

use super::Reader;
use crate::manifest::place::Place;
use crate::manifest::problem::{Code, Finding};
use crate::manifest::tree::{Entry, Node, Table, Value};

/// The largest text that is taken, in bytes after decompression: room for a recorded session, and a stop for a wrong
/// path.
pub(super) const MAX_BYTES: u64 = 64 << 20;

impl Reader<'_> {
    /// A configuration with its texts in place. The configuration itself is never taken for such a table.
    pub(super) fn with_texts(&mut self, config: &Node) -> Node {
        match &config.value {
            Value::Table(table) => Node { value: Value::Table(self.entries(table)), place: config.place },
            _ => config.clone(),
        }
    }

    fn entries(&mut self, table: &Table) -> Table {
        let entries = table.entries.iter().map(|entry| Entry { node: self.expand(&entry.node), ..entry.clone() });
        Table { entries: entries.collect() }
    }

    fn expand(&mut self, node: &Node) -> Node {
        let value = match &node.value {
            Value::Table(table) => match named_file(table) {
                Some((path, place)) => Value::String(self.text_of(path, place).unwrap_or_default()),
                None => Value::Table(self.entries(table)),
            },
            Value::Array(nodes) => Value::Array(nodes.iter().map(|inner| self.expand(inner)).collect()),
            other => other.clone(),
        };
        Node { value, place: node.place }
    }

    /// The text of a file; `None` when the reason why there is none has been reported.
    fn text_of(&mut self, written: &str, place: Place) -> Option<String> {
        let path = self.path(written, place, "`file`")?;
        if is_outside(&path, &self.sources.get(place.file)?.dir) {
            self.outside_files.push((place, written.to_owned()));
        }
        let (code, message, help) = match read(&path) {
            Ok(text) => return Some(text),
            Err(Refusal::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                let help = "a relative path starts from the folder of the manifest that names it".to_owned();
                (Code::NotFound, "does not exist".to_owned(), help)
            }
            Err(Refusal::Io(error)) => {
                (Code::Unreadable, format!("cannot be read: {error}"), "check its permissions".to_owned())
            }
            Err(Refusal::NoFile) => (Code::Unreadable, "is not a file".to_owned(), "name a text file".to_owned()),
            Err(Refusal::Compression(error)) => (
                Code::Unreadable,
                format!("cannot be decompressed: {error}"),
                "files that end in .zst or .zstd are read as Zstandard; rename one that is not".to_owned(),
            ),
            Err(Refusal::TooLarge) => {
                let help = format!("at most {} MiB of text can stand here", MAX_BYTES >> 20);
                (Code::Unreadable, "is too large".to_owned(), help)
            }
            Err(Refusal::NotUtf8(at)) => {
                (Code::NotUtf8, format!("is not UTF-8 at byte {at}"), "save it in that encoding".to_owned())
            }
        };
        let message = format!("{} {message}", path.display());
        self.report(Finding::new(code, place, message, "its text belongs here").help(help));
        None
    }
}

/// The path of `{ file = "PATH" }`: a table with this key, no other, and a string.
fn named_file(table: &Table) -> Option<(&str, Place)> {
    match table.entries.as_slice() {
        [entry] if entry.key == "file" => entry.node.value.as_str().map(|path| (path, entry.node.place)),
        _ => None,
    }
}

/// True when the file, links followed, lies outside the folder.
fn is_outside(file: &Path, folder: &Path) -> bool {
    match (file.canonicalize(), folder.canonicalize()) {
        (Ok(file), Ok(folder)) => !file.starts_with(folder),
        // What is not there is not read.
        _ => false,
    }
}

/// Why a file gives no text.
enum Refusal {
    Io(std::io::Error),
    NoFile,
    Compression(std::io::Error),
    TooLarge,
    /// Offset of the first byte that is none.
    NotUtf8(usize),
}

fn read(path: &Path) -> Result<String, Refusal> {
    // Opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(Refusal::Io)?.is_file() {
        return Err(Refusal::NoFile);
    }
    let file = std::fs::File::open(path).map_err(Refusal::Io)?;
    let is_compressed = matches!(path.extension().and_then(|ending| ending.to_str()), Some("zst" | "zstd"));
    let mut bytes = Vec::new();
    if is_compressed {
        let decoder = zstd::stream::read::Decoder::new(file).map_err(Refusal::Compression)?;
        decoder.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Refusal::Compression)?;
    } else {
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Refusal::Io)?;
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Refusal::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| Refusal::NotUtf8(error.utf8_error().valid_up_to()))
}
