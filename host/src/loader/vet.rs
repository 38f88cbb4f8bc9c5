//! Judges the bytes of a library before anything of it is mapped.
//!
//! `dlopen` believes what a file says: one that was cut off in the middle kills the process with SIGBUS, and one for
//! another CPU is reported as missing. What is checked here is therefore the format and target, that every segment and
//! section lies inside the file and maps to where it should be, that the dynamic table leads to sections, that the
//! root is exported, and the adapter's own metadata.
//!
//! This finds files that are cut off, misplaced, or made for another host. It does not find every changed byte (a
//! wrong size in the dynamic table, a wrong instruction), and it does not find malice: a file that passes runs as part
//! of the host. Against both there is the manifest's sha256 pin.

use std::fmt;

use dsh_plugin_api::abi::{META_SECTION, Metadata};
use dsh_plugin_api::abi_stable::library::ROOT_MODULE_LOADER_NAME;
use object::{FileKind, Object, ObjectSection, ObjectSegment, ObjectSymbol};

mod elf;

/// Why a file is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is no shared library at all; the text says what it is, with its article.
    #[error("it is {0}, not a shared library")]
    NotALibrary(String),
    /// It is an object file that cannot be loaded at run time; the text says which, with its article.
    #[error("it is {0}, not a shared library that can be loaded at run time")]
    NotShared(&'static str),
    /// It was built for another machine or system.
    #[error("it is built for {found}, this host is {host}")]
    OtherTarget {
        /// What it was built for.
        found: String,
        /// What this host is.
        host: String,
    },
    /// It is cut off or overwritten; the text says where.
    #[error("the file is damaged or cut off: {0}")]
    Damaged(String),
    /// It has no metadata section, so it is a library, but no adapter.
    #[error("it is a shared library, but no dsh adapter: it has no {META_SECTION} section")]
    NoMetadata,
    /// Its metadata section cannot be read.
    #[error("its {META_SECTION} section cannot be read: {0}")]
    BadMetadata(String),
    /// It does not export the root of an adapter.
    #[error("it does not export the root of an adapter")]
    NoRoot,
    /// It was built against another major version of the adapter API.
    #[error("it is built for adapter API {found}, this host has {host}")]
    OtherApi {
        /// `major.minor` of the library.
        found: String,
        /// `major.minor` of this host.
        host: &'static str,
    },
    /// A panic in it would end the host.
    #[error(
        "it is built with panic = {0:?}, so a panic in it would end the host; that is allowed only under process \
         isolation, which this version does not have"
    )]
    Aborts(String),
    /// The host cannot vet libraries of this platform.
    #[error("adapters cannot be loaded on {0} yet")]
    UnsupportedHost(&'static str),
}

impl Unfit {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NotALibrary(_) => "`library` must name the cdylib that building the adapter produces",
            Self::NotShared(_) | Self::NoRoot | Self::NoMetadata => {
                "build the adapter with crate-type = [\"cdylib\"] and export it with dsh_plugin_api::export_adapter!"
            }
            Self::OtherTarget { .. } => "get or build it for this host",
            Self::Damaged(_) | Self::BadMetadata(_) => "copy or build it again",
            Self::OtherApi { .. } => "rebuild it with the dsh-plugin-api of this host, or use the dsh it was made for",
            Self::Aborts(_) => "rebuild it with panic = \"unwind\"",
            Self::UnsupportedHost(_) => "use Linux or macOS",
        }
    }
}

fn damaged(what: impl fmt::Display) -> Unfit {
    Unfit::Damaged(what.to_string())
}

fn other_target(found: impl Into<String>) -> Unfit {
    Unfit::OtherTarget { found: found.into(), host: Metadata::host_target() }
}

/// Judges a whole file.
///
/// # Errors
///
/// The first reason not to load it.
pub(super) fn vet(bytes: &[u8]) -> Result<Metadata, Unfit> {
    let kind = FileKind::parse(bytes).map_err(|_| not_an_object(bytes))?;
    let section = match kind {
        FileKind::Archive => {
            return Err(Unfit::NotShared("an archive of object files (a static library or an rlib)"));
        }
        FileKind::Elf32 | FileKind::Elf64 if cfg!(any(target_os = "macos", target_os = "windows")) => {
            return Err(other_target("Linux or another ELF system"));
        }
        FileKind::Elf32 | FileKind::Elf64 => elf::vet(kind, bytes)?,
        FileKind::MachO32 | FileKind::MachO64 | FileKind::MachOFat32 | FileKind::MachOFat64 => {
            if cfg!(not(target_os = "macos")) {
                return Err(other_target("macOS"));
            }
            mach_o(bytes)?
        }
        FileKind::Pe32 | FileKind::Pe64 if cfg!(target_os = "windows") => {
            return Err(Unfit::UnsupportedHost("Windows"));
        }
        FileKind::Pe32 | FileKind::Pe64 => return Err(other_target("Windows")),
        _ => return Err(not_an_object(bytes)),
    };
    let metadata = Metadata::parse(section.ok_or(Unfit::NoMetadata)?).map_err(Unfit::BadMetadata)?;
    judge(&metadata)?;
    Ok(metadata)
}

/// What the metadata allows.
fn judge(metadata: &Metadata) -> Result<(), Unfit> {
    let host = dsh_plugin_api::API_VERSION;
    let major = |version: &str| {
        let (major, minor) = version.split_once('.')?;
        minor.parse::<u32>().ok()?;
        major.parse::<u32>().ok()
    };
    let found = major(&metadata.api)
        .ok_or_else(|| Unfit::BadMetadata(format!("the API version {:?} is not major.minor", metadata.api)))?;
    // Any minor version loads: the root is frozen, and what is newer is answered with `UNSUPPORTED` on either side.
    if Some(found) != major(host) {
        return Err(Unfit::OtherApi { found: metadata.api.clone(), host });
    }
    if metadata.target != Metadata::host_target() {
        return Err(other_target(metadata.target.clone()));
    }
    if metadata.panic != "unwind" {
        return Err(Unfit::Aborts(metadata.panic.clone()));
    }
    for (what, name) in [("adapter's name", &metadata.name), ("envelope's kind", &metadata.envelope.kind)] {
        let sane = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(sane) {
            let text = format!("the {what} is {name:?}; it must be 1 to 64 lower-case letters, digits and '-'");
            return Err(Unfit::BadMetadata(text));
        }
    }
    Ok(())
}

/// Says what a file is that is no object file.
fn not_an_object(bytes: &[u8]) -> Unfit {
    let head = &bytes[..bytes.len().min(512)];
    let printable = |text: &str| text.chars().all(|c| !c.is_control() || c.is_ascii_whitespace());
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // The head may end inside a character.
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&head[..e.valid_up_to()]).ok(),
        Err(_) => None,
    };
    let what = match text {
        Some("") => "an empty file",
        _ if head.len() < 16 && (head.starts_with(b"\x7fELF") || b"\x7fELF".starts_with(head)) => {
            return damaged("it ends inside the ELF header");
        }
        Some(text) if text.starts_with("#!") => "a script",
        Some(text) if text.starts_with("version https://git-lfs") => "a Git LFS pointer whose file was not fetched",
        Some(text) if printable(text) => "a text file",
        _ => "no object file",
    };
    Unfit::NotALibrary(what.to_owned())
}

/// The metadata section of a Mach-O library, with the checks that its generic view allows.
fn mach_o(bytes: &[u8]) -> Result<Option<&[u8]>, Unfit> {
    let file = object::File::parse(bytes).map_err(damaged)?;
    let found = format!("{:?}", file.architecture()).to_lowercase();
    if found != std::env::consts::ARCH {
        return Err(other_target(format!("{found}-macos")));
    }
    if file.kind() != object::ObjectKind::Dynamic {
        return Err(Unfit::NotShared("an executable or object file"));
    }
    for segment in file.segments() {
        segment.data().map_err(|e| damaged(format_args!("a segment lies outside the file ({e})")))?;
    }
    let root = |symbol: object::Symbol<'_, '_>| {
        symbol.is_definition() && symbol.name().is_ok_and(|name| name.trim_start_matches('_') == root_stem())
    };
    if !file.symbols().any(root) {
        return Err(Unfit::NoRoot);
    }
    match file.section_by_name(META_SECTION) {
        Some(section) => section.data().map(Some).map_err(damaged),
        None => Ok(None),
    }
}

/// The root's symbol without the underscores that Mach-O puts before names.
fn root_stem() -> &'static str {
    ROOT_MODULE_LOADER_NAME.trim_start_matches('_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use dsh_plugin_api::vocab::EnvelopeId;

    fn metadata() -> Metadata {
        Metadata {
            name: "dsh-llm-x".into(),
            version: "0.1.0".into(),
            api: "1.0".into(),
            envelope: EnvelopeId { kind: "x".into(), version: 1 },
            panic: "unwind".into(),
            target: Metadata::host_target(),
        }
    }

    #[test]
    fn what_is_no_library_is_named() {
        let zeros = [0; 4096];
        for (bytes, expected) in [
            (&b""[..], "an empty file"),
            (b"\x7fEL", "damaged or cut off"),
            (b"\x7fELF\x02\x01\x01", "damaged or cut off"),
            (b"#!/bin/sh\n", "a script"),
            (b"hello", "a text file"),
            ("größer".repeat(100).as_bytes(), "a text file"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
            (b"!<arch>\n________", "an archive"),
            (b"\x89PNG\r\n\x1a\n________", "no object file"),
            (&zeros, "no object file"),
        ] {
            let unfit = vet(bytes).unwrap_err();
            assert!(unfit.to_string().contains(expected), "{expected}: {unfit}");
            assert!(!unfit.remedy().is_empty());
        }
    }

    #[test]
    fn any_minor_version_of_the_same_major_is_accepted() {
        for (api, accepted) in
            [("1.0", true), ("1.99", true), ("2.0", false), ("0.9", false), ("1", false), ("1.x", false)]
        {
            assert_eq!(judge(&Metadata { api: api.into(), ..metadata() }).is_ok(), accepted, "{api}");
        }
    }

    #[test]
    fn metadata_that_does_not_fit_this_host_is_refused_with_both_sides() {
        let cases = [
            (Metadata { api: "2.1".into(), ..metadata() }, vec!["2.1", dsh_plugin_api::API_VERSION]),
            (Metadata { target: "sparc-plan9".into(), ..metadata() }, vec!["sparc-plan9", std::env::consts::ARCH]),
            (Metadata { panic: "abort".into(), ..metadata() }, vec!["\"abort\"", "process isolation", "does not have"]),
            (Metadata { name: "../x".into(), ..metadata() }, vec!["../x", "lower-case"]),
            (Metadata { name: String::new(), ..metadata() }, vec!["name"]),
        ];
        for (metadata, parts) in cases {
            let text = judge(&metadata).unwrap_err().to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
