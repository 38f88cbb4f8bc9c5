//! How the store fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session that cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No file for this reference.
    #[error("there is no session {reference:?} in {}{}", .dir.display(), did_you_mean(.nearest))]
    NotFound {
        /// As given.
        reference: String,
        /// The folder that was searched.
        dir: PathBuf,
        /// Ids that are spelled alike, the nearest first.
        nearest: Vec<String>,
    },
    /// The id could not be the name of a file.
    #[error("{0:?} is no session id; an id is a file name without path separators, and does not begin with a dot")]
    InvalidId(String),
    /// [`super::Store::create`] found a file.
    #[error("session {} exists already", .0.display())]
    Exists(PathBuf),
    /// Another writer has the session open.
    #[error("session {} is open in {}; one process at a time can write to it", .path.display(), held_by(*.pid))]
    Locked {
        /// The log.
        path: PathBuf,
        /// The holder's process id, where it could be read.
        pid: Option<u32>,
    },
    /// A log of a later format.
    #[error(
        "session {} has format version {version}; this build reads version 0, so open it with a newer dsh",
        .path.display()
    )]
    NewerVersion {
        /// The log.
        path: PathBuf,
        /// The version as written.
        version: String,
    },
    /// There is no header and no message.
    #[error("{} holds no session: {reason}", .path.display())]
    NoSession {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        reason: String,
    },
    /// A compressed log was given by path whose continuation stands beside it.
    #[error("session {} was continued in {}; open that one", .path.display(), .continued.display())]
    Continued {
        /// The compressed log.
        path: PathBuf,
        /// The plain log that holds more.
        continued: PathBuf,
    },
    /// [`super::Store::fork`] was given a seq that the session does not have.
    #[error("session {} has no event {seq}; {}", .path.display(), range(*.events))]
    NoEvent {
        /// The log.
        path: PathBuf,
        /// As given.
        seq: u64,
        /// How many events there are.
        events: u64,
    },
    /// What [`super::Store::repair`] would write does not read back as what was read.
    #[error(
        "session {} cannot be repaired: what would be written reads back otherwise; the file was left as it is, and \
         can be read and continued",
        .0.display()
    )]
    Unrepairable(PathBuf),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}{}", .path.display(), advice(.source))]
    Io {
        /// What was to be done, such as `write`.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// Its answer.
        source: Arc<io::Error>,
    },
    /// The thread that writes the log is gone; events since the last checkpoint may not be durable.
    #[error("the writer of session {} has stopped", .0.display())]
    WriterStopped(PathBuf),
}

impl StoreError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }
}

fn did_you_mean(ids: &[String]) -> String {
    match ids {
        [] => "; `dsh sessions list` shows what there is".to_owned(),
        ids => format!("; did you mean {}?", ids.join(" or ")),
    }
}

fn range(events: u64) -> String {
    match events.checked_sub(1) {
        None => "it has no events yet".to_owned(),
        Some(last) => format!("its events are 0 to {last}"),
    }
}

fn held_by(pid: Option<u32>) -> String {
    match pid {
        Some(pid) if pid == std::process::id() => format!("this process ({pid})"),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room and open the session again, what was acknowledged is safe"
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            "; choose another folder with [sessions] dir or --home"
        }
        io::ErrorKind::FileTooLarge => {
            "; the limit on the size of files is reached (ulimit -f, or that of the file system); what was acknowledged \
             is safe, and the session goes on where there is room"
        }
        _ if error.raw_os_error() == Some(EIO) => {
            "; the disk or the way to it fails: look at the system's log before you go on; what was acknowledged was \
             written before"
        }
        _ => "",
    }
}

/// `EIO` has no kind of its own; it has this number on every Unix.
const EIO: i32 = 5;
