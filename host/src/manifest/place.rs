//! Where a value stands: sources and spans.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A span in one of the manifest's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Index into the sources: 0 is the manifest, then the overlays in order.
    pub file: usize,
    /// Byte offset of the first byte.
    pub start: usize,
    /// Byte offset behind the last byte.
    pub end: usize,
}

impl Place {
    pub(super) const fn new(file: usize, span: Range<usize>) -> Self {
        Self { file, start: span.start, end: span.end }
    }

    /// The very beginning of a file, for what the whole file lacks.
    pub(super) const fn start_of(file: usize) -> Self {
        Self { file, start: 0, end: 0 }
    }
}

/// One file that took part in a composition.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// The file as the user knows it, for messages.
    pub name: String,
    /// The file, absolute; `None` for text that is no file.
    pub path: Option<PathBuf>,
    /// Folder that relative paths in it start from, absolute.
    pub dir: PathBuf,
    /// Its text as read.
    pub text: Arc<str>,
    /// Its text as it may be shown: of the same length, with what looks like a secret masked.
    pub shown: Arc<str>,
}

impl Source {
    pub(super) fn new(name: impl Into<String>, path: Option<PathBuf>, dir: PathBuf, text: &str) -> Self {
        let text: Arc<str> = text.into();
        Self { name: name.into(), path, dir, shown: Arc::clone(&text), text }
    }

    /// Masks the inside of spans in what is shown, byte for byte, so that all offsets stay right.
    pub(super) fn mask(&mut self, spans: &[Place]) {
        if spans.is_empty() {
            return;
        }
        let mut bytes = self.shown.as_bytes().to_vec();
        for span in spans {
            let inside = span.start + 1..span.end.saturating_sub(1).max(span.start + 1);
            for byte in bytes.get_mut(inside).into_iter().flatten() {
                if *byte != b'\n' && *byte != b'\r' {
                    *byte = b'*';
                }
            }
        }
        self.shown = String::from_utf8_lossy(&bytes).into();
    }

    /// Length in bytes of the line that a byte offset stands in.
    pub(super) fn line_length(&self, offset: usize) -> usize {
        let (before, after) = self.text.as_bytes().split_at(offset.min(self.text.len()));
        let is_end = |byte: &u8| *byte == b'\n';
        let start = before.iter().rposition(is_end).map_or(0, |at| at + 1);
        before.len() - start + after.iter().position(is_end).unwrap_or(after.len())
    }

    /// Line and column of a byte offset, both from 1; columns count characters.
    pub(super) fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        (line, column)
    }
}
