//! Files that are no adapter of this host.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use dsh_host::loader::{LibraryRef, LibrarySpec, LoadError, Unfit};
use dsh_tests::{FIXTURE, built};
use object::{Object, ObjectSection, ObjectSegment};

use super::{Bench, fixture_bytes, replace, replace_in_metadata};

#[test]
fn a_good_library_loads_by_path_and_by_name() {
    let bench = Bench::new();
    bench.assert_alive();
    let plugins = bench.file("home").join("plugins");
    fs::create_dir_all(&plugins).unwrap();
    let built = built().library(FIXTURE);
    fs::copy(&built, plugins.join(built.file_name().unwrap())).unwrap();
    let library = LibraryRef::Name(FIXTURE.to_owned());
    let loaded = bench.loader.load(&LibrarySpec { library, sha256: None }).unwrap();
    assert_eq!(loaded.metadata.name, FIXTURE);
    assert_eq!(loaded.descriptor.name, FIXTURE);
}

#[test]
fn a_missing_library_is_reported_with_its_path_or_with_every_folder_looked_at() {
    let bench = Bench::new();
    let gone = bench.file("libgone.so");
    assert!(matches!(bench.load(&gone), Err(LoadError::Unreadable { .. })));
    assert!(bench.refusal(&gone).contains("`library`"));

    let library = LibraryRef::Name("dsh-llm-nothing".to_owned());
    let error = bench.loader.load(&LibrarySpec { library, sha256: None }).unwrap_err().to_string();
    let plugins = bench.file("home").join("plugins");
    for part in ["dsh_llm_nothing", "DSH_PLUGIN_PATH", "lib/dsh", &plugins.display().to_string()] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn a_library_that_was_cut_off_anywhere_is_refused_before_it_is_mapped() {
    let bench = Bench::new();
    let bytes = fixture_bytes();
    let whole = bytes.len() as u64;
    let object = object::File::parse(&*bytes).unwrap();
    let mut lengths: BTreeSet<u64> = (0..1200).chain((0..200).map(|step| step * whole / 200)).collect();
    let segments = object.segments().map(|segment| segment.file_range());
    let sections = object.sections().filter_map(|section| section.file_range());
    for (offset, size) in segments.chain(sections) {
        lengths.extend([offset, offset + size].into_iter().flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]));
    }
    lengths.extend([whole - 1, whole - 64]);
    lengths.retain(|length| *length < whole);

    let path = bench.changed("libcut.so", |_| {});
    for length in lengths.into_iter().rev() {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        match bench.load(&path) {
            Err(LoadError::Unfit { unfit: Unfit::Damaged(_), .. }) => {}
            Err(LoadError::Unfit { unfit: Unfit::NotALibrary(what), .. }) if length == 0 => {
                assert_eq!(what, "an empty file");
            }
            other => panic!("cut to {length} of {whole} bytes: {other:?}"),
        }
    }
    let cache = bench.file("home").join("cache");
    assert!(!cache.exists(), "nothing that was refused is kept");
    bench.assert_alive();
}

#[test]
fn a_library_for_another_cpu_names_both() {
    let bench = Bench::new();
    let other = if cfg!(target_arch = "aarch64") { (62u16, "x86_64") } else { (183, "aarch64") };
    let path = bench.changed("libcpu.so", |bytes| bytes[18..20].copy_from_slice(&other.0.to_le_bytes()));
    let error = bench.refusal(&path);
    assert!(error.contains(&format!("built for {}", other.1)) && error.contains(std::env::consts::ARCH), "{error}");
    let path = bench.changed("libcpu.so", |bytes| bytes[18..20].copy_from_slice(&0x1234u16.to_le_bytes()));
    assert!(bench.refusal(&path).contains("machine number 4660"));
    bench.assert_alive();
}

#[test]
fn a_library_for_another_system_or_class_is_refused() {
    let bench = Bench::new();
    for (offset, value, expected) in [(7, 9, "another system"), (4, 1, "32-bit"), (5, 2, "big")] {
        let path = bench.changed("libother.so", |bytes| bytes[offset] = value);
        let error = bench.refusal(&path);
        // A file in big-endian form has another machine number as well.
        assert!(error.contains(expected) || error.contains("machine number"), "{expected}: {error}");
    }
    bench.assert_alive();
}

#[test]
fn what_is_no_library_is_said_to_be_what_it_is() {
    let bench = Bench::new();
    let file = |name: &str, bytes: &[u8]| {
        let path = bench.file(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let fifo = bench.file("fifo.so");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let huge = file("huge.so", b"\x7fELF");
    fs::OpenOptions::new().write(true).open(&huge).unwrap().set_len(1 << 40).unwrap();
    for (path, expected) in [
        (file("text.so", b"just a text\n"), "a text file"),
        (file("script.so", b"#!/bin/sh\nexit 0\n"), "a script"),
        (file("empty.so", b""), "an empty file"),
        (file("noise.so", &[0x80; 100]), "no object file"),
        (built().dsh.clone(), "an executable"),
        (bench.dir.path().to_owned(), "a folder"),
        (fifo, "a FIFO"),
        ("/dev/zero".into(), "a device"),
        (huge, "larger than"),
    ] {
        let error = bench.refusal(&path);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    bench.assert_alive();
}

#[test]
fn a_shared_library_that_is_no_adapter_is_told_from_a_damaged_one() {
    let bench = Bench::new();
    let path = bench.changed("libplain.so", |bytes| replace(bytes, b"\0.dshmeta\0", b"\0.dshmeto\0"));
    assert!(bench.refusal(&path).contains("no dsh adapter"));
    let path = bench.changed("libmeta.so", |bytes| replace_in_metadata(bytes, b"DSHMETA1", b"DSHMETA9"));
    assert!(bench.refusal(&path).contains("magic"));
    let root = b"_1as_0lib_1header_0root_bmodule_bloader\0";
    let path = bench.changed("librootless.so", |bytes| {
        replace(bytes, root, b"_1as_0lib_1header_0root_bmodule_bloadex\0");
    });
    assert!(bench.refusal(&path).contains("does not export the root"));
    bench.assert_alive();
}

#[test]
fn metadata_that_does_not_fit_this_host_is_refused() {
    let bench = Bench::new();
    for (old, new, expected) in [
        (&br#""api":"1.0""#[..], &br#""api":"9.0""#[..], "adapter API 9.0"),
        (br#""panic":"unwind""#, br#""panic":"abort" "#, "process isolation"),
        (br#""name":"dsh-fix"#, br#""name":"DSH fix"#, "lower-case"),
    ] {
        let path = bench.changed("libmeta.so", |bytes| replace_in_metadata(bytes, old, new));
        let error = bench.refusal(&path);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    bench.assert_alive();
}

#[test]
fn metadata_that_differs_from_the_code_is_refused() {
    let bench = Bench::new();
    for (old, new) in [
        (&br#""name":"dsh-fixture-adapter""#[..], &br#""name":"dsh-fixture-adapted""#[..]),
        (br#""version":"0.1.0""#, br#""version":"0.1.7""#),
        (br#""api":"1.0""#, br#""api":"1.7""#),
        (br#""kind":"fixture","version":1"#, br#""kind":"fixture","version":7"#),
    ] {
        let path = bench.changed("libliar.so", |bytes| replace_in_metadata(bytes, old, new));
        let error = bench.refusal(&path);
        assert!(error.contains("its metadata section gives the") && error.contains("its code"), "{error}");
    }
    bench.assert_alive();
}

#[test]
fn a_root_of_another_layout_is_refused_in_one_line_with_the_report_in_a_file() {
    let bench = Bench::new();
    let path = built().library("dsh-fixture-alien");
    let Err(LoadError::Abi { report: Some(report), .. }) = bench.load(&path) else { panic!("the alien was loaded") };
    let text = fs::read_to_string(report).unwrap();
    assert!(text.lines().count() > 10, "{text}");
    assert!(bench.refusal(&path).contains("mismatched package: expected dsh-plugin-api, found dsh-fixture-alien"));
    bench.assert_alive();
}

#[test]
fn a_pin_must_match() {
    let bench = Bench::new();
    let library = LibraryRef::Path(built().library(FIXTURE));
    let wrong = "0".repeat(64);
    let spec = LibrarySpec { library: library.clone(), sha256: Some(wrong.clone()) };
    let error = bench.loader.load(&spec).unwrap_err();
    let LoadError::WrongSha256 { found, .. } = &error else { panic!("{error}") };
    assert!(error.to_string().contains(&wrong) && error.to_string().contains(found));
    for pin in [found.clone(), found.to_uppercase()] {
        bench.loader.load(&LibrarySpec { library: library.clone(), sha256: Some(pin) }).unwrap();
    }
}

#[test]
fn a_library_that_is_overwritten_while_in_use_goes_on_working() {
    let bench = Bench::new();
    let path = bench.changed("libbusy.so", |_| {});
    let library = bench.load(&path).unwrap();
    let config = serde_json::json!({ "routes": ["echo"] });
    let (handle, _) = library.create(&config).unwrap();
    fs::write(&path, [0; 64]).unwrap();
    assert_eq!(super::panics::echo(&*handle, "still here").unwrap(), "still here");
    let (second, _) = library.create(&config).unwrap();
    assert_eq!(super::panics::echo(&*second, "again").unwrap(), "again");
    assert!(bench.refusal(&path).contains("no object file"));
}

#[test]
fn the_same_library_is_opened_once_and_serves_several_entries() {
    let bench = Bench::new();
    let copies = [bench.changed("liba.so", |_| {}), bench.changed("libb.so", |_| {})];
    let handles: Vec<_> = copies
        .iter()
        .map(|path| bench.load(path).unwrap().create(&serde_json::json!({ "routes": ["echo"] })).unwrap().0)
        .collect();
    let kept = fs::read_dir(bench.file("home").join("cache/libraries")).unwrap().count();
    assert_eq!(kept, 1);
    for handle in &handles {
        assert_eq!(super::panics::echo(&**handle, "hi").unwrap(), "hi");
    }
}
