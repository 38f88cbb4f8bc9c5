//! Sessions: events, how they are stored on lines, what history derives from them.

pub mod derive;
pub mod event;
pub mod line;
pub mod recovery;
