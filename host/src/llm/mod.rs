//! From a request in the host's words to a stream of chunks.
//!
//! `registry` knows the routes, `view` makes a history acceptable, `degrade` decides native or foreign, `transport`
//! moves the bytes, `assembler` makes blocks of chunks.

pub mod assembler;
pub mod client;
pub mod credential;
pub mod degrade;
pub mod registry;
pub mod transport;
pub mod view;
