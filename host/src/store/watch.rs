//! Telling somebody how far the reading of large logs has come.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// Is told how many bytes were read so far, and of how many; where their number is not known, of 0.
#[derive(Clone)]
pub(super) struct Watch(Arc<dyn Fn(u64, u64) + Send + Sync>);

impl Watch {
    pub fn new(told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }

    pub fn tell(&self, read: u64, of: u64) {
        (self.0)(read, of);
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// A file that tells of each of its reads.
#[derive(Debug)]
pub(super) struct Watched {
    file: File,
    read: u64,
    length: u64,
    watch: Option<Watch>,
}

impl Watched {
    pub fn new(file: File, watch: Option<Watch>) -> Self {
        // What is no regular file has no length, and one whose length cannot be told fails when it is read.
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        Self { file, read: 0, length, watch }
    }
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(into)?;
        self.read += count as u64;
        if let Some(watch) = &self.watch {
            watch.tell(self.read, self.length);
        }
        Ok(count)
    }
}
