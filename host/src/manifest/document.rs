//! The files of a composition, parsed and merged.

use std::fmt;
use std::path::PathBuf;

use super::paths::{self, Surroundings};
use super::place::Source;
use super::problem::{Finding, ManifestError, Problem};
use super::tree::{self, Table, Value};
use super::{Lookup, Origin, files};

/// Sources and the tree that they merge to.
#[derive(Clone)]
pub(super) struct Document {
    pub sources: Vec<Source>,
    pub root: Table,
}

/// The text of a manifest is long and may be private: only file names are worth printing.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| &source.name)).finish()
    }
}

impl Document {
    /// Reads, parses and merges. Files that cannot be read and files that cannot be parsed are reported together.
    pub(super) fn read(origin: &Origin, lookup: &Lookup, around: &Surroundings) -> Result<Self, ManifestError> {
        let mut unreadable = Vec::new();
        let mut sources = Vec::new();
        let overlays = lookup.overlays.iter().map(|path| files::read_overlay(path, around));
        for source in std::iter::once(files::read_origin(origin, lookup, around)).chain(overlays) {
            match source {
                Ok(source) => sources.push(source),
                Err(problem) => unreadable.push(problem),
            }
        }
        Self::merge(sources, unreadable)
    }

    /// Parses and merges sources, the manifest first.
    pub(super) fn merge(mut sources: Vec<Source>, mut problems: Vec<Problem>) -> Result<Self, ManifestError> {
        let mut findings: Vec<Finding> = Vec::new();
        let mut root: Option<Table> = None;
        for (file, source) in sources.iter_mut().enumerate() {
            let (mut table, errors) = tree::parse(source, file);
            findings.extend(errors);
            match &mut root {
                None => root = Some(table),
                Some(root) => {
                    drop_known_version(&mut table);
                    tree::merge(root, table);
                }
            }
        }
        if problems.is_empty() && findings.is_empty() {
            return Ok(Self { sources, root: root.unwrap_or_default() });
        }
        if !findings.is_empty() {
            problems.extend(ManifestError::new(findings, &sources).into_problems());
        }
        Err(ManifestError::of(problems))
    }
}

/// An overlay's version is optional and never stands in for the manifest's own. One that is not known stays: it
/// replaces the manifest's and is reported at its place.
fn drop_known_version(overlay: &mut Table) {
    overlay.entries.retain(|entry| !(entry.key == "version" && matches!(entry.node.value, Value::Integer(1))));
}

/// The last `sessions.dir` that can be made out, whatever else is wrong with the files.
pub(super) fn sessions_dir(lookup: &Lookup, around: &Surroundings) -> PathBuf {
    let manifest = files::read_origin(&files::find(lookup, around), lookup, around);
    let overlays = lookup.overlays.iter().map(|path| files::read_overlay(path, around));
    std::iter::once(manifest)
        .chain(overlays)
        .filter_map(|source| {
            let mut source = source.ok()?;
            let (root, _) = tree::parse(&mut source, 0);
            let dir = root.get("sessions")?.value.as_table()?.get("dir")?;
            paths::resolve(dir.value.as_str()?, &source.dir, around).ok()
        })
        .last()
        .unwrap_or_else(|| lookup.home.join("sessions"))
}
