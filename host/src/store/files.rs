//! Files and folders that only their owner can read, and that are there after a power loss.

use std::fs::{DirBuilder, File, OpenOptions};
use std::path::Path;

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

/// Makes the names in a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path).and_then(|folder| folder.sync_all()).map_err(StoreError::io("sync", path))
}
