//! Sessions: events, how they stand on lines, what history derives from them, how an interrupted turn is closed.
//!
//! Everything here is data in, data out: no file, no clock, no provider. [`crate::store`] moves the bytes.

pub mod batch;
pub mod deltas;
pub mod derive;
pub mod event;
pub mod events;
pub mod keep;
pub mod line;
pub mod recovery;
mod row;
