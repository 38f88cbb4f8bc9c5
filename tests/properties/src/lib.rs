//! What holds for every input of the framing, the decoders and the reading of replay metadata, stated once.
//!
//! A property test, a fuzz target and the replay of a fuzz corpus run the same functions from here:
//!
//! - [`framing::check`]: any split gives the same events, and they are those of the WHATWG standard;
//! - [`decoding::check`]: any split gives the same chunks, and nothing but the wire's own terminal event is a success;
//! - [`repeating::check_body`]: an event that is compared with the one before does what it does when it is read;
//! - [`restoring::check`]: stored replay metadata, however damaged, gives a request or an error;
//! - [`returning::check`]: what a provider sent for its own use is in the next request, byte for byte.
//!
//! A wire joins with one implementation of [`decoding::Wire`]: its name in the manifest, a generator of answers
//! that knows what a decoder must make of them and what of them goes back, and an independent reading of "this body may
//! be a success". The adapter that serves it comes from outside, since a binary can hold one alone.
//!
//! Everything here panics when a property is broken; that is how a test fails and how a fuzzer notices.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test that called it")]
#![allow(clippy::missing_panics_doc, reason = "a broken property is a panic everywhere in this crate")]

pub mod anthropic;
pub mod bodies;
pub mod completions;
pub mod decoding;
pub mod deepseek;
pub mod framing;
pub mod google;
pub mod json_text;
pub mod layout;
pub mod material;
pub mod mistral;
pub mod pieces;
pub mod reference;
pub mod repeating;
pub mod responses;
pub mod restoring;
pub mod returning;
pub mod session_log;
