//! One binary, so that the adapter is linked once.

mod corpus;
mod decoding;
mod framing;
mod oracle;
mod restoring;
