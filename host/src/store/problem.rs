//! The names of damage, as `sessions verify` prints them.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! problem_kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)*) => {
        /// What is wrong at a place of a session file. The names are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ProblemKind {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl ProblemKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The stable name, such as `torn-tail`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

problem_kinds! {
    /// The header names a later format; the file cannot be read.
    NewerVersion = "newer-version",
    /// There is neither a header nor a message; the file cannot be read.
    NoSession = "no-session",
    /// There is no header, but there are messages.
    MissingHeader = "missing-header",
    /// The header lacks a member.
    FlawedHeader = "flawed-header",
    /// A header stands among the events.
    SecondHeader = "second-header",
    /// The last line is cut off in the middle.
    TornTail = "torn-tail",
    /// The last line is complete and lacks its newline.
    MissingNewline = "missing-newline",
    /// A line, or a part of one, is no record.
    Unreadable = "unreadable",
    /// A record can be read, and lacks something.
    FlawedRecord = "flawed-record",
    /// Several records stand on one line.
    JoinedRecords = "joined-records",
    /// NUL bytes stand in the file.
    NulPadding = "nul-padding",
    /// Bytes are not UTF-8.
    InvalidUtf8 = "invalid-utf8",
    /// A Zstandard frame is damaged.
    TornFrame = "torn-frame",
    /// Events are missing.
    SeqGap = "seq-gap",
    /// Another writer continued from an earlier place.
    SeqFork = "seq-fork",
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ProblemKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_damage_is_described_in_the_documentation() {
        let page = include_str!("../../../docs/session-log.md");
        for kind in ProblemKind::ALL {
            assert!(page.contains(&format!("\n| `{kind}` | ")), "docs/session-log.md has no row for {kind}");
        }
    }
}
