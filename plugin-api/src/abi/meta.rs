//! The metadata section: what a host learns of a library before it maps it.
//!
//! The section `.dshmeta` holds the magic, the length of the JSON as a little-endian `u32`, and the JSON, padded with
//! zero bytes to [`META_CAPACITY`].

use serde::{Deserialize, Serialize};

use crate::json;
use crate::vocab::EnvelopeId;

/// Name of the section. Mach-O has it as `__DATA,__dshmeta`, which the `object` crate finds under this name as well.
pub const META_SECTION: &str = ".dshmeta";
/// Its first eight bytes.
pub const META_MAGIC: [u8; 8] = *b"DSHMETA1";
/// Its size in bytes.
pub const META_CAPACITY: usize = 1024;

/// What the section says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the adapter.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Adapter API that it was built with, `major.minor`.
    pub api: String,
    /// What it writes into replay state.
    pub envelope: EnvelopeId,
    /// `unwind` or `abort`.
    pub panic: String,
    /// `arch-os` as in `std::env::consts`, for example `x86_64-linux`.
    pub target: String,
}

impl Metadata {
    /// Reads the bytes of a section.
    ///
    /// # Errors
    ///
    /// Says what the section lacks.
    pub fn parse(section: &[u8]) -> Result<Self, String> {
        let rest = section.strip_prefix(&META_MAGIC).ok_or("it does not begin with the magic DSHMETA1")?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or("it ends before the length")?;
        let length = u32::from_le_bytes(*length) as usize;
        let text = rest.get(..length).ok_or_else(|| format!("it is shorter than its length says ({length} bytes)"))?;
        json::from_slice(text).map_err(|e| format!("its JSON does not parse: {e}"))
    }

    /// The target of this build, in the form of [`Metadata::target`].
    #[must_use]
    pub fn host_target() -> String {
        format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
    }
}

/// Builds the section at compile time.
///
/// # Panics
///
/// At compile time, when a text holds a character that JSON would have to escape, or all of it is too long.
#[doc(hidden)]
#[must_use]
pub const fn section(name: &str, version: &str, envelope_kind: &str, envelope_version: u32) -> [u8; META_CAPACITY] {
    let mut w = Writer { bytes: [0; META_CAPACITY], at: META_MAGIC.len() + 4 };
    let start = w.at;
    w = w.put("{\"name\":\"").text(name);
    w = w.put("\",\"version\":\"").text(version);
    w = w.put("\",\"api\":\"").text(crate::API_VERSION);
    w = w.put("\",\"envelope\":{\"kind\":\"").text(envelope_kind);
    w = w.put("\",\"version\":").number(envelope_version);
    w = w.put("},\"panic\":\"").text(if cfg!(panic = "abort") { "abort" } else { "unwind" });
    w = w.put("\",\"target\":\"").text(std::env::consts::ARCH).put("-").text(std::env::consts::OS).put("\"}");
    let length = ((w.at - start) as u32).to_le_bytes();
    w.at = 0;
    w = w.raw(&META_MAGIC).raw(&length);
    w.bytes
}

struct Writer {
    bytes: [u8; META_CAPACITY],
    at: usize,
}

impl Writer {
    const fn raw(mut self, bytes: &[u8]) -> Self {
        let mut i = 0;
        while i < bytes.len() {
            assert!(self.at < META_CAPACITY, "the adapter's metadata is too long");
            self.bytes[self.at] = bytes[i];
            self.at += 1;
            i += 1;
        }
        self
    }

    const fn put(self, text: &str) -> Self {
        self.raw(text.as_bytes())
    }

    const fn text(self, text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            assert!(
                bytes[i] >= b' ' && bytes[i] < 0x7f && bytes[i] != b'"' && bytes[i] != b'\\',
                "names and versions of an adapter are printable ASCII without quotes and backslashes"
            );
            i += 1;
        }
        self.raw(bytes)
    }

    const fn number(self, value: u32) -> Self {
        let mut digits = [0u8; 10];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.raw(digits.split_at(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_reads_back() {
        let bytes = section("dsh-llm-x", "0.1.0", "x", 20);
        let metadata = Metadata::parse(&bytes).unwrap();
        assert_eq!((metadata.name.as_str(), metadata.envelope.version), ("dsh-llm-x", 20));
        assert_eq!(metadata.target, Metadata::host_target());
    }

    #[test]
    fn damage_is_named() {
        let bytes = section("dsh-llm-x", "0.1.0", "x", 1);
        for length in 0..40 {
            assert!(Metadata::parse(&bytes[..length]).is_err());
        }
        assert!(Metadata::parse(&bytes[1..]).unwrap_err().contains("magic"));
    }
}
