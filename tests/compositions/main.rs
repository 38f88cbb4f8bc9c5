//! Real compositions: the built `dsh`, the built adapters, real files. One module per subject.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails a test")]

mod checking;
mod continuation;
mod discovery;
mod handover;
mod hostile;
mod keeping;
mod killing;
mod loading;
mod mocking;
mod providers;
mod refusals;
mod replaying;
mod scenarios;
mod strangers;
mod tools;
mod trust;
mod usage;
