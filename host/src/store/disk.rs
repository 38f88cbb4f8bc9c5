//! Every change that the store makes on a disk goes through here, so that tests can make each of them fail, and can see
//! what a power loss would leave of them.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::StoreError;

#[cfg(test)]
pub(super) mod probe;

/// The disk. Files and folders are made for their owner alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    probe: Option<std::sync::Arc<probe::Probe>>,
}

/// A change that is about to be made.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look at what is about to be changed"))]
pub(super) enum Change<'a> {
    Create(&'a Path),
    CreateFolder(&'a Path),
    Append(&'a Path, &'a [u8]),
    Cut(&'a Path, u64),
    Sync(&'a Path),
    SyncFolder(&'a Path),
    Rename(&'a Path, &'a Path),
    Link(&'a Path, &'a Path),
    Permit,
    Remove(&'a Path),
    RemoveFolder,
}

impl Disk {
    /// Makes a change, where no test stands in the way.
    #[cfg_attr(not(test), expect(clippy::unused_self, reason = "only tests stand in the way"))]
    fn change<T>(&self, change: Change<'_>, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        #[cfg(test)]
        if let Some(probe) = &self.probe {
            probe.before(change)?;
            let made = make()?;
            probe.made(change);
            return Ok(made);
        }
        let _ = change;
        make()
    }

    /// Waits for the real disk. A test's disk has no need to: it knows what was synced.
    fn sync_change(&self, change: Change<'_>, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        #[cfg(test)]
        if self.probe.is_some() {
            return self.change(change, || Ok(()));
        }
        self.change(change, sync)
    }

    /// A file that did not exist, to append to.
    pub fn create_new(&self, path: &Path) -> io::Result<DiskFile> {
        self.change(Change::Create(path), || private(OpenOptions::new().append(true).create_new(true)).open(path))
            .map(|file| DiskFile { file, path: path.to_owned(), disk: self.clone() })
    }

    /// An empty file, to append to; what was there is gone.
    pub fn create(&self, path: &Path) -> io::Result<DiskFile> {
        // A file cannot be opened to append and to be emptied.
        self.change(Change::Create(path), || {
            private(OpenOptions::new().write(true).create(true).truncate(true)).open(path)
        })
        .map(|file| DiskFile { file, path: path.to_owned(), disk: self.clone() })
    }

    /// A file that exists, to append to.
    pub fn open(&self, path: &Path) -> Result<DiskFile, StoreError> {
        let file = OpenOptions::new().append(true).open(path).map_err(StoreError::io("open", path))?;
        Ok(DiskFile { file, path: path.to_owned(), disk: self.clone() })
    }

    /// Creates a folder and those above it, durably. Existing ones stay as they are.
    pub fn create_folder(&self, path: &Path) -> Result<(), StoreError> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            self.create_folder(parent)?;
        }
        let made = self.change(Change::CreateFolder(path), || {
            let mut builder = DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.create(path)
        });
        match made {
            // Another process was quicker.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            Err(error) => Err(StoreError::io("create", path)(error)),
            Ok(()) => self.sync_name(path),
        }
    }

    /// Makes the names in a folder durable.
    pub fn sync_folder(&self, path: &Path) -> Result<(), StoreError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.sync_change(Change::SyncFolder(path), || File::open(path).and_then(|folder| folder.sync_all()))
            .map_err(StoreError::io("sync", path))
    }

    /// Makes the name of a file durable.
    pub fn sync_name(&self, path: &Path) -> Result<(), StoreError> {
        path.parent().map_or(Ok(()), |folder| self.sync_folder(folder))
    }

    /// Gives a file another name, in place of a file that bears it.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Change::Rename(from, to), || std::fs::rename(from, to))
    }

    /// Gives a file a second name.
    pub fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(Change::Link(from, to), || std::fs::hard_link(from, to))
    }

    /// Gives a file these permissions.
    pub fn permit(&self, path: &Path, permissions: Permissions) -> io::Result<()> {
        self.change(Change::Permit, || std::fs::set_permissions(path, permissions))
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        self.change(Change::Remove(path), || std::fs::remove_file(path))
    }

    /// Removes a folder that is empty.
    pub fn remove_folder(&self, path: &Path) -> io::Result<()> {
        self.change(Change::RemoveFolder, || std::fs::remove_dir(path))
    }
}

/// A file that is written to its end.
#[derive(Debug)]
pub(super) struct DiskFile {
    file: File,
    path: PathBuf,
    disk: Disk,
}

impl DiskFile {
    /// Appends all of these bytes.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { file, path, disk } = self;
        #[cfg(test)]
        if let Some(probe) = &disk.probe
            && let Some((written, error)) = probe.short(path, bytes)
        {
            file.write_all(&bytes[..written])?;
            return Err(error);
        }
        disk.change(Change::Append(path, bytes), || file.write_all(bytes))
    }

    /// Makes everything that was appended durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.disk.sync_change(Change::Sync(&self.path), || self.file.sync_data())
    }

    /// Cuts the file back to this length in bytes.
    pub fn cut(&mut self, length: u64) -> io::Result<()> {
        self.disk.change(Change::Cut(&self.path, length), || self.file.set_len(length))
    }

    /// Its length in bytes.
    pub fn length(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }
}

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Options that create a file for the owner alone.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}
