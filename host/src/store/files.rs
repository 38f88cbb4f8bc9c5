//! Files and folders that only their owner can read, and that are there after a power loss.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::StoreError;

/// Options that create a file for the owner alone.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Creates a folder and those above it, for the owner alone. Existing ones stay as they are.
pub(super) fn create_folder(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(StoreError::io("create", path))?;
    if let Some(parent) = path.parent() {
        sync_folder(parent)?;
    }
    Ok(())
}

/// A file that is durable and does not bear its name yet. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Unnamed {
    at: PathBuf,
    path: PathBuf,
}

impl Unnamed {
    /// Writes these bytes beside `path`, where no listing shows them. One process at a time may do so: the caller holds
    /// the lock of that log.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<Self, StoreError> {
        let at = unnamed(path);
        let mut file = private(OpenOptions::new().write(true).create(true).truncate(true))
            .open(&at)
            .map_err(StoreError::io("create", &at))?;
        let unnamed = Self { at, path: path.to_owned() };
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(StoreError::io("write", &unnamed.at))?;
        Ok(unnamed)
    }

    /// Gives it the permissions of this file.
    pub fn permit_as(&self, path: &Path) -> Result<(), StoreError> {
        let permissions = std::fs::metadata(path).map_err(StoreError::io("read", path))?.permissions();
        std::fs::set_permissions(&self.at, permissions).map_err(StoreError::io("write", &self.at))
    }

    /// Gives it its name, in place of a file that bears it. The name is durable after [`sync_name`].
    pub fn name(self) -> Result<(), StoreError> {
        std::fs::rename(&self.at, &self.path).map_err(StoreError::io("create", &self.path))
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // Under its name it is no longer here. What cannot be removed is overwritten by the next of its kind.
        let _ = std::fs::remove_file(&self.at);
    }
}

/// Where a file is written before it gets its name.
pub(super) fn unnamed(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}

/// Makes the name of a file durable.
pub(super) fn sync_name(path: &Path) -> Result<(), StoreError> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|folder| folder.sync_all()).map_err(StoreError::io("sync", path))
}
