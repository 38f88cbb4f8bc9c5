//! Everything a provider adapter for `dsh` needs: the vocabulary, the trait to implement, the pieces that every wire
//! needs, and the stable ABI that carries it.
//!
//! # Compatibility
//!
//! An adapter built against version 1.x of this crate loads in every host of version 1.y. The root of the ABI
//! ([`abi::Root`]) is frozen; whatever comes later goes through its `call` entry, and unknown record kinds, JSON
//! members and operations are ignored or answered `UNSUPPORTED`.
//!
//! # Safety
//!
//! Loading a shared library runs its code in the host's process. The loader vets what can be vetted before it maps
//! the file, and panics stop at the border, but a library with undefined behaviour can do anything to its host.
//! Authors write no `unsafe`: the one macro, [`export_adapter!`], holds what is needed.
//!
//! # An adapter in outline
//!
//! 1. A crate with `crate-type = ["cdylib", "rlib"]` that depends on this crate alone.
//! 2. A type that implements [`Adapter`], and one that implements [`Decoder`].
//! 3. `dsh_plugin_api::export_adapter!(MyAdapter);` at the root of the crate.

#![warn(missing_docs)]

pub mod abi;
pub mod adapter;
mod chunks;
pub mod json;
pub mod kit;
pub mod sse;
pub mod vocab;

pub use adapter::{Adapter, ConfigError, Decoder, Encoded, Poll, ResponseHead, StreamEnd};
pub use chunks::{Chunks, Slot};

#[doc(hidden)]
pub use abi_stable;
pub use schemars;
pub use serde;
pub use serde_json;

/// Version of the adapter API: `major.minor` of this crate.
pub const API_VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Compiles the adapter that the documentation shows.
#[cfg(doctest)]
#[doc = include_str!("../../docs/adapters.md")]
mod page {}
