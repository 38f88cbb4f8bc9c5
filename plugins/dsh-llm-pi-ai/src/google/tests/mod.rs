//! The wire as a whole.
