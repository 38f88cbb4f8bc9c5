//! Where the library of a name is.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use super::LoadError;

/// How alike two file names must be for one to be offered in place of the other.
const NEAR: f64 = 0.8;
/// How many names are offered.
const NEAR_COUNT: usize = 3;

/// The standard search path: beside the executable, `../lib/dsh` from it, `plugins` under the home folder, and the
/// folders of `DSH_PLUGIN_PATH` (separated as in `PATH`; empty parts are left out, relative ones start at the current
/// folder).
pub(super) fn standard_path(home: &Path) -> Vec<PathBuf> {
    let executable = std::env::current_exe().ok();
    let bin = executable.as_deref().and_then(Path::parent);
    let lib = bin.and_then(Path::parent).map(|prefix| prefix.join("lib").join("dsh"));
    let listed = std::env::var_os("DSH_PLUGIN_PATH").unwrap_or_default();
    let listed = std::env::split_paths(&listed).filter(|folder| !folder.as_os_str().is_empty());
    let listed = listed.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
    bin.map(Path::to_owned).into_iter().chain(lib).chain([home.join("plugins")]).chain(listed).collect()
}

/// `dsh-llm-x` is `libdsh_llm_x.so`, or what this platform makes of it.
pub(super) fn file_name(name: &str) -> String {
    format!("{DLL_PREFIX}{}{DLL_SUFFIX}", name.replace('-', "_"))
}

/// The first file of that name in the folders. Whether it can be used is not looked at.
pub(super) fn find(name: &str, folders: &[PathBuf]) -> Result<PathBuf, LoadError> {
    let file_name = file_name(name);
    // A path that cannot be examined counts as found: reading it then says why.
    let found = folders.iter().map(|folder| folder.join(&file_name)).find(|path| path.try_exists().unwrap_or(true));
    found.ok_or_else(|| LoadError::NotFound {
        name: name.to_owned(),
        near: near(&file_name, folders),
        file_name,
        looked: folders.to_vec(),
    })
}

/// Libraries whose names are close to the one that is missing, nearest first. Folders that cannot be read have none.
fn near(file_name: &str, folders: &[PathBuf]) -> Vec<PathBuf> {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut near: Vec<(f64, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let name = name.to_str().filter(|name| name.ends_with(DLL_SUFFIX))?;
            let likeness = strsim::normalized_damerau_levenshtein(name, file_name);
            (likeness >= NEAR).then(|| (likeness, entry.path()))
        })
        .collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    near.into_iter().take(NEAR_COUNT).map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_the_first_folder_that_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let folders: Vec<_> = ["a", "b", "c"].iter().map(|name| dir.path().join(name)).collect();
        for folder in &folders[1..] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join(file_name("dsh-llm-x")), "").unwrap();
        }
        assert_eq!(find("dsh-llm-x", &folders).unwrap(), folders[1].join(file_name("dsh-llm-x")));
    }

    #[test]
    fn a_missing_name_lists_the_folders_the_nearest_files_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join(file_name("dsh-llm-pi-ai"));
        std::fs::write(&there, "").unwrap();
        std::fs::write(dir.path().join("notes.txt"), "").unwrap();
        let gone = dir.path().join("gone");
        let error = find("dsh-llm-piai", &[gone.clone(), dir.path().to_owned()]).unwrap_err().to_string();
        let expected = [
            "\"dsh-llm-piai\"",
            &file_name("dsh-llm-piai"),
            &format!("looked in {}, {}", gone.display(), dir.path().display()),
            &format!("close to it: {}", there.display()),
            "DSH_PLUGIN_PATH",
        ];
        for part in expected {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        assert!(!error.contains("notes.txt"), "{error}");
    }

    #[test]
    fn the_standard_path_begins_beside_the_executable_and_holds_the_home_folder() {
        let path = standard_path(Path::new("/h"));
        let bin = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        assert_eq!(path[..3], [bin.clone(), bin.parent().unwrap().join("lib/dsh"), PathBuf::from("/h/plugins")]);
    }
}
