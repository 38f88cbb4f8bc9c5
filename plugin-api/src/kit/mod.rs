//! The pieces that every wire needs, for decoders and for requests.
//!
//! None of them is obligatory: an adapter may do without, or take one. They are what the adapters of this project are
//! made of.
//!
//! - [`body`]: a response is an event stream, a whole JSON answer, or a refusal; [`head`]: what its head says.
//! - [`errors`]: the class of a failure from what a provider writes.
//! - [`lenient`]: provider JSON by the names of its members, everything else skipped, values as they were written.
//! - [`repeat`]: events that repeat the one before, which are compared instead of read.
//! - [`streaming`]: pieces of blocks; [`ids`] and [`names`]: what a provider takes as the id of a call and the name of
//!   a tool; [`endpoint`]: where a route's requests go; [`request`] and [`notes`]: what stands in requests;
//!   [`repairs`]: what had to be changed for that.
//! - [`models`]: asking a server for its models, and reading what it lists.

pub mod body;
pub mod endpoint;
pub mod errors;
mod hash;
pub mod head;
pub mod ids;
pub mod lenient;
pub mod models;
pub mod names;
pub mod notes;
pub mod repairs;
pub mod repeat;
pub mod request;
pub mod streaming;
