//! The host of `dsh`: everything but the provider wires.
//!
//! Modules, with dependencies pointing one way:
//! `cli → acp | agent → llm → loader → dsh-plugin-api`, and `agent → session → store`. The assembler knows nothing of
//! libraries or files, so recovery can use it: what is kept of an answer is decided there and nowhere else. The store
//! knows nothing of providers.

pub mod acp;
pub mod agent;
pub mod cli;
pub mod demo;
pub mod llm;
pub mod loader;
pub mod manifest;
pub mod mock;
pub mod scenario;
pub mod session;
pub mod store;
pub mod tools;
