//! From a request in the host's words to a stream of chunks.
//!
//! `registry` knows the routes, `degrade` decides native or foreign, `view` makes a history acceptable, `prepare` does
//! both and has the adapter convert the result. `transport` sends it, with the secrets of `credential`, `exchange`
//! makes chunks of the answer, `assembler` makes blocks of chunks, and `retry` says whether a failed attempt is worth
//! another; `ladder`, what a refused request is sent without. `discovery` asks a server for its models.

pub mod assembler;
pub mod client;
pub mod credential;
pub mod degrade;
mod discovery;
pub mod exchange;
pub mod ladder;
pub mod prepare;
pub mod registry;
pub mod retry;
#[cfg(test)]
pub(crate) mod testing;
pub mod transport;
pub mod view;
