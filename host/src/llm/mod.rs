//! From a request in the host's words to a stream of chunks.
//!
//! `registry` knows the routes, `degrade` decides native or foreign, `view` makes a history acceptable, `prepare` does
//! both and has the adapter convert the result, `transport` moves the bytes, `assembler` makes blocks of chunks.

pub mod assembler;
pub mod client;
pub mod credential;
pub mod degrade;
pub mod prepare;
pub mod registry;
#[cfg(test)]
pub(crate) mod testing;
pub mod transport;
pub mod view;
