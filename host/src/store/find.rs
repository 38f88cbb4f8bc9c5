//! Where sessions lie, and which one a reference means.

use std::collections::BTreeMap;
use std::fs::FileType;
use std::path::{Path, PathBuf};

use super::bytes::ENDINGS;
use super::{Store, StoreError};

/// How many ids an error proposes.
const PROPOSALS: usize = 3;

impl Store {
    /// The file that a reference means: a path, where it has a path separator or names an existing file, else an id.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] with the nearest ids, [`StoreError::InvalidId`].
    pub fn resolve(&self, reference: &str) -> Result<PathBuf, StoreError> {
        if is_path(reference) {
            let path = Path::new(reference);
            return match std::fs::metadata(path) {
                Ok(_) => Ok(path.to_owned()),
                Err(error) => Err(StoreError::io("open", path)(error)),
            };
        }
        check_id(reference)?;
        self.find(reference)?.ok_or_else(|| StoreError::NotFound {
            reference: reference.to_owned(),
            dir: self.dir().to_owned(),
            nearest: self.nearest(reference),
        })
    }

    /// As [`Store::resolve`], for a writer: the file itself where the reference leads to it through a link, so that
    /// all writers take one lock.
    ///
    /// # Errors
    ///
    /// As [`Store::resolve`], and [`StoreError::NoSession`] for what is no regular file.
    pub(super) fn resolve_to_write(&self, reference: &str) -> Result<PathBuf, StoreError> {
        let path = self.resolve(reference)?;
        let path = path.canonicalize().map_err(StoreError::io("open", &path))?;
        if !path.is_file() {
            let reason = "only a regular file can be written to".to_owned();
            return Err(StoreError::NoSession { path, reason });
        }
        Ok(path)
    }

    /// `<dir>/<id>.jsonl`, then its compressed forms, then the same as `<dir>/<project>/<id>/session`.
    pub(super) fn find(&self, id: &str) -> Result<Option<PathBuf>, StoreError> {
        if let Some(path) = with_any_ending(self.dir(), id) {
            return Ok(Some(path));
        }
        for project in subfolders(self.dir())? {
            if let Some(path) = with_any_ending(&project.join(id), "session") {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Every session file by id; where one id has several files, the one that the id means.
    pub(super) fn files(&self) -> Result<BTreeMap<String, PathBuf>, StoreError> {
        // With the place of its ending. There may be very many: nothing is asked of the system that the list says.
        let mut files: BTreeMap<String, (usize, PathBuf)> = BTreeMap::new();
        let mut projects = Vec::new();
        for (path, form) in typed_entries(self.dir())? {
            if form.is_dir() {
                projects.push(path);
            } else if form.is_file()
                && let Some((stem, rank)) = ranked_stem(&path)
                && files.get(&stem).is_none_or(|(known, _)| rank < *known)
            {
                files.insert(stem, (rank, path));
            }
        }
        projects.sort();
        for project in projects {
            for folder in subfolders(&project)? {
                if let (Some(id), Some(file)) = (file_name(&folder), with_any_ending(&folder, "session")) {
                    files.entry(id).or_insert((0, file));
                }
            }
        }
        Ok(files.into_iter().map(|(id, (_, path))| (id, path)).collect())
    }

    fn nearest(&self, id: &str) -> Vec<String> {
        // What the error is about is the missing session; a folder that cannot be listed has no ids to propose.
        let ids = self.files().map(|files| files.into_keys().collect::<Vec<_>>()).unwrap_or_default();
        let mut scored: Vec<(f64, String)> = ids
            .into_iter()
            .map(|known| {
                let prefix = known.starts_with(id) || id.starts_with(known.as_str());
                (if prefix { 1.0 } else { strsim::jaro_winkler(&known, id) }, known)
            })
            .filter(|(score, _)| *score > 0.75)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().take(PROPOSALS).map(|(_, id)| id).collect()
    }
}

/// True for a reference that is a path and no id.
pub(super) fn is_path(reference: &str) -> bool {
    let separated = reference.contains(std::path::is_separator);
    !reference.contains('\0') && (separated || Path::new(reference).is_file())
}

/// Refuses what could lead out of the folder or name a hidden file.
pub(super) fn check_id(id: &str) -> Result<(), StoreError> {
    let safe = !id.is_empty()
        && id.len() <= 200
        && !id.starts_with('.')
        && !id.contains(|c: char| std::path::is_separator(c) || c == '/' || c == '\\' || c.is_control());
    if safe { Ok(()) } else { Err(StoreError::InvalidId(id.to_owned())) }
}

/// The id that a file name stands for: the name of a nested log's folder, else the name without its ending.
pub(super) fn id_of(path: &Path) -> Option<String> {
    let stem = stem_of(path)?;
    if stem == "session"
        && let Some(id) = path.parent().and_then(file_name)
    {
        return Some(id);
    }
    Some(stem)
}

/// The name of a session file without its ending; `None` for the name of another file.
pub(super) fn stem_of(path: &Path) -> Option<String> {
    ranked_stem(path).map(|(stem, _)| stem)
}

/// The same, with the place of its ending in the order of preference.
fn ranked_stem(path: &Path) -> Option<(String, usize)> {
    let name = file_name(path)?;
    let stem = |(ending, _): &(&str, _)| name.strip_suffix(ending);
    let (rank, stem) = ENDINGS.iter().enumerate().find_map(|(rank, ending)| Some((rank, stem(ending)?)))?;
    (!stem.is_empty() && !stem.starts_with('.')).then(|| (stem.to_owned(), rank))
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

fn with_any_ending(folder: &Path, stem: &str) -> Option<PathBuf> {
    ENDINGS.iter().map(|(ending, _)| folder.join(format!("{stem}{ending}"))).find(|path| path.is_file())
}

/// What is in a folder, sorted; nothing when it does not exist.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut paths: Vec<PathBuf> = typed_entries(folder)?.into_iter().map(|(path, _)| path).collect();
    paths.sort();
    Ok(paths)
}

pub(super) fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let folders = typed_entries(folder)?.into_iter().filter(|(_, form)| form.is_dir());
    let mut folders: Vec<PathBuf> = folders.map(|(path, _)| path).collect();
    folders.sort();
    Ok(folders)
}

/// What is in a folder with what it is, links followed; a link that leads nowhere is a link.
fn typed_entries(folder: &Path) -> Result<Vec<(PathBuf, FileType)>, StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StoreError::io("list", folder)(error)),
    };
    let typed = entries.map(|entry| {
        let entry = entry?;
        let (path, form) = (entry.path(), entry.file_type()?);
        let form = if form.is_symlink() { std::fs::metadata(&path).map_or(form, |to| to.file_type()) } else { form };
        Ok((path, form))
    });
    typed.collect::<Result<_, _>>().map_err(StoreError::io("list", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_found_and_the_plain_file_wins() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        std::fs::create_dir_all(at("project/deep")).unwrap();
        for file in [
            "plain.jsonl",
            "both.jsonl",
            "both.jsonl.zst",
            "packed.jsonl.zstd",
            "project/deep/session.jsonl.zst",
            "plain.lock",
            ".plain.jsonl.tmp",
            "notes.txt",
        ] {
            std::fs::write(at(file), "").unwrap();
        }
        let store = Store::new(dir.path());
        for (id, file) in [
            ("plain", "plain.jsonl"),
            ("both", "both.jsonl"),
            ("packed", "packed.jsonl.zstd"),
            ("deep", "project/deep/session.jsonl.zst"),
        ] {
            assert_eq!(store.resolve(id).unwrap(), at(file));
        }
        assert_eq!(store.files().unwrap().into_keys().collect::<Vec<_>>(), ["both", "deep", "packed", "plain"]);
        assert_eq!(store.resolve(at("notes.txt").to_str().unwrap()).unwrap(), at("notes.txt"));
        let error = store.resolve("plane").unwrap_err().to_string();
        assert!(error.contains("plain") && error.contains(dir.path().to_str().unwrap()), "{error}");
    }

    #[test]
    fn an_id_never_leads_out_of_the_folder() {
        let store = Store::new("/nowhere");
        for id in ["", "..", ".", ".hidden", "a\0b", "a\nb"] {
            assert!(matches!(store.resolve(id), Err(StoreError::InvalidId(_))), "{id:?}");
            assert!(check_id(id).is_err(), "{id:?}");
        }
        for path in ["../x", "a/b", "/etc"] {
            assert!(check_id(path).is_err(), "{path:?}");
        }
    }
}
