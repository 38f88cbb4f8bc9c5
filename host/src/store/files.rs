//! Files that get their name once they are whole.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::StoreError;
use super::disk::{Disk, DiskFile};

/// A file that is durable and does not bear its name yet. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Unnamed {
    at: PathBuf,
    path: PathBuf,
    disk: Disk,
}

impl Unnamed {
    /// Writes a file beside `path`, where no listing shows it. One process at a time may do so: the caller holds the
    /// lock of that log.
    pub fn write(
        disk: &Disk,
        path: &Path,
        write: impl FnOnce(&mut io::BufWriter<DiskFile>) -> io::Result<()>,
    ) -> Result<Self, StoreError> {
        let at = unnamed(path);
        let mut file = io::BufWriter::new(disk.create(&at).map_err(StoreError::io("create", &at))?);
        let unnamed = Self { at, path: path.to_owned(), disk: disk.clone() };
        let written = write(&mut file).and_then(|()| file.flush()).and_then(|()| file.get_mut().sync());
        written.map_err(StoreError::io("write", &unnamed.at))?;
        Ok(unnamed)
    }

    /// Opens it to read what was written.
    pub fn read(&self) -> Result<File, StoreError> {
        File::open(&self.at).map_err(StoreError::io("read", &self.at))
    }

    /// Gives it the permissions of this file.
    pub fn permit_as(&self, path: &Path) -> Result<(), StoreError> {
        let permissions = std::fs::metadata(path).map_err(StoreError::io("read", path))?.permissions();
        self.disk.permit(&self.at, permissions).map_err(StoreError::io("write", &self.at))
    }

    /// Gives it its name, in place of a file that bears it. The name is durable after [`Disk::sync_name`].
    pub fn name(self) -> Result<(), StoreError> {
        self.disk.rename(&self.at, &self.path).map_err(StoreError::io("create", &self.path))
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // Under its name it is no longer here. What cannot be removed is overwritten by the next of its kind.
        if self.at.exists() {
            let _ = self.disk.remove(&self.at);
        }
    }
}

/// Where a file is written before it gets its name.
pub(super) fn unnamed(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.tmp"))
}
