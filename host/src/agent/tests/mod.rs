//! The agent over a real log, a real client and a scripted model.

mod cancelling;
mod model;
mod refusals;
mod turns;
mod world;
