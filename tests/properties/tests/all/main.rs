//! One binary, so that the adapter is linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that panics fails")]

mod corpus;
mod decoding;
mod framing;
mod oracle;
mod restoring;
