//! Maps a vetted library and takes its root. The only file of the host with `unsafe`.
//!
//! # What is safe about it, and what is not
//!
//! Opening a library runs its initialisers, and every call runs its code, in this process. Before that, [`vet`] has
//! looked at the file, and here the header is checked for the right `abi_stable` and C ABI, and the root's layout for
//! the types that this host was compiled with. That rules out mistakes, not malice: a library with undefined behaviour
//! can do anything to its host, and nothing here can notice.
//!
//! The root's constructor is the library's code too. As `export_adapter!` writes it, it only moves a table of
//! functions, and `abi_stable` catches a panic in it and returns an error, which [`Refusal::Root`] reports. A root
//! that was written by hand and panics outside that catch, in an initialiser or in an `extern "C"` function without
//! one, ends the process: Rust aborts when a panic reaches a C frame.
//!
//! A library once opened stays: its statics and thread-locals may be in use by anything it returned, so it is never
//! closed.
//!
//! [`vet`]: super::vet

#![allow(unsafe_code)]

use std::path::Path;

use dsh_plugin_api::abi::RootRef;
use dsh_plugin_api::abi_stable::library::{
    AbiHeader, AbiHeaderRef, LibraryError, ROOT_MODULE_LOADER_NAME, ROOT_MODULE_LOADER_NAME_WITH_NUL, RootModuleError,
};

#[cfg(not(unix))]
use libloading::Library;
#[cfg(unix)]
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Why a vetted library gives no root.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The dynamic linker's words, with symbol names translated.
    Linker(String),
    /// Its ABI is another one: one line, and the report it comes from, which may be long.
    Abi { line: String, report: String },
    /// Its root cannot be made.
    Root(String),
}

/// Opens a library that was vetted and that nobody else writes to.
pub(super) fn open(vetted: &Path) -> Result<RootRef, Refusal> {
    let linker = |error: libloading::Error| Refusal::Linker(linker_words(&error, vetted));
    // SAFETY: this runs the library's initialisers. The file is the loader's own copy of bytes that were vetted, so it
    // is whole, of this target and says that it is an adapter; that its code is sound is the promise of its author.
    // `RTLD_NOW` reports every missing symbol here rather than as a crash in a later call; `RTLD_LOCAL` keeps two
    // adapters that contain the same crates apart.
    #[cfg(unix)]
    let library = unsafe { Library::open(Some(vetted), RTLD_NOW | RTLD_LOCAL) }.map_err(linker)?;
    // SAFETY: as above.
    #[cfg(not(unix))]
    let library = unsafe { Library::new(vetted) }.map_err(linker)?;

    let header = {
        // SAFETY: `AbiHeaderRef` is a transparent pointer, and the symbol's address is read as one. Vetting has seen
        // that the symbol is defined and at least as large as an `AbiHeader`; `upgrade` reads nothing beyond the
        // magic and version in it before it has compared them.
        let symbol = unsafe { library.get::<AbiHeaderRef>(ROOT_MODULE_LOADER_NAME_WITH_NUL.as_bytes()) };
        *symbol.map_err(linker)?
    };
    // The header is a static of the library, and the root holds its functions.
    std::mem::forget(library);

    let header = header.upgrade().map_err(abi)?;
    if header.layout().is_none() {
        let line = "its root carries no layout to compare".to_owned();
        return Err(Refusal::Abi { report: line.clone(), line });
    }
    header.ensure_layout::<RootRef>().map_err(abi)?;
    // SAFETY: the layout of the root was compared with that of `RootRef` just above, and the header is not writable
    // from here, so it is still the one that was compared.
    unsafe { header.init_root_module_with_unchecked_layout::<RootRef>() }.map_err(abi)
}

fn abi(error: LibraryError) -> Refusal {
    match error {
        LibraryError::InvalidAbiHeader(found) => {
            let version = |header: &AbiHeader| format!("{}.{}", header.abi_major, header.abi_minor);
            let line = if found.magic_string == AbiHeader::VALUE.magic_string {
                let (found, host) = (version(&found), version(&AbiHeader::VALUE));
                format!("it is built with version {found} of abi_stable's ABI, this host has {host}")
            } else {
                "what it exports as its root is none".to_owned()
            };
            Refusal::Abi { line, report: LibraryError::InvalidAbiHeader(found).to_string() }
        }
        LibraryError::RootModule { err: RootModuleError::Unwound, .. } => {
            Refusal::Root("it panicked while it made its root (its message is on stderr)".to_owned())
        }
        LibraryError::RootModule { err: RootModuleError::Returned(error), .. } => {
            Refusal::Root(format!("it refused to make its root: {}", error.to_string().trim()))
        }
        LibraryError::IncompatibleVersionNumber { expected_version, actual_version, .. } => {
            let line = format!("its root is of version {actual_version}, this host has {expected_version}");
            Refusal::Abi { report: line.clone(), line }
        }
        other @ (LibraryError::OpenError { .. }
        | LibraryError::GetSymbolError { .. }
        | LibraryError::ParseVersionError(_)
        | LibraryError::AbiInstability(_)
        | LibraryError::InvalidCAbi { .. }
        | LibraryError::Many(_)) => {
            let report = other.to_string();
            let last = conclusion(&report);
            Refusal::Abi { line: format!("its root has another layout than this host's: {last}"), report }
        }
    }
}

/// The end of a layout report, in one line: what was compared last, and the two sides.
fn conclusion(report: &str) -> String {
    let error = report.rfind("\nError:").map(|newline| &report[newline + "\nError:".len()..]);
    let lines = error.unwrap_or(report).lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    match lines.as_slice() {
        [what, "Expected:", expected, "Found:", found] => format!("{what}: expected {expected}, found {found}"),
        [what, ..] if error.is_some() => (*what).to_owned(),
        lines => lines.last().copied().unwrap_or("no reason was given").to_owned(),
    }
}

/// The whole chain of an error of the dynamic linker, without the path of the copy, with symbol names translated.
fn linker_words(error: &libloading::Error, copy: &Path) -> String {
    let text = super::error::chain(error);
    let prefix = format!("{}: ", copy.display());
    text.replace(&prefix, "").split(' ').map(translate).collect::<Vec<_>>().join(" ")
}

/// A mangled symbol name in a word of its own is replaced by what it stands for.
fn translate(word: &str) -> String {
    let is_symbol = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    let start = word.find(is_symbol).unwrap_or(word.len());
    let end = word.rfind(is_symbol).map_or(start, |last| last + 1);
    let (before, symbol, after) = (&word[..start], &word[start..end], &word[end..]);
    if symbol == ROOT_MODULE_LOADER_NAME {
        return format!("{before}the root that dsh_plugin_api::export_adapter! exports{after}");
    }
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{before}{name:#}{after}"),
        Err(_) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_translated_and_other_words_stay() {
        for (word, expected) in [
            ("undefined", "undefined"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("(_ZN4core3fmt5write17h0123456789abcdefE)", "(core::fmt::write)"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_1as_0lib_1header_0root_bmodule_bloader", "the root that dsh_plugin_api::export_adapter! exports"),
            ("/lib/libc.so.6:", "/lib/libc.so.6:"),
            ("", ""),
        ] {
            assert_eq!(translate(word), expected);
        }
    }

    #[test]
    fn a_layout_report_is_cut_to_its_conclusion() {
        for (report, expected) in [
            (
                "Compared\n  a\n\nError:mismatched package\nExpected:\n  x\nFound:\n  y\n\n",
                "mismatched package: expected x, found y",
            ),
            (
                "a\nError:first\nExpected:\n1\nFound:\n2\nError:too many fields\nExpected:\n3\nFound:\n4\n",
                "too many fields: expected 3, found 4",
            ),
            ("a\nError:x\nExpected:\nT {\n}\nFound:\nU {\n}\n", "x"),
            ("\n\n the C ABI differs \n", "the C ABI differs"),
            ("", "no reason was given"),
        ] {
            assert_eq!(conclusion(report), expected);
        }
    }

    #[test]
    fn the_linkers_own_words_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("libx.so");
        std::fs::write(&path, "not a library").unwrap();
        let Err(Refusal::Linker(words)) = open(&path) else { panic!("a text file was opened") };
        assert!(words.len() > "dlopen failed: ".len() && !words.contains("libx.so"), "{words}");
    }
}
