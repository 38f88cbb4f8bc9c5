use std::io::Read;

use serde_json::json;

use super::super::{Code, Trust};
use super::{ADAPTER, World};

fn with(config: &str) -> String {
    format!("{ADAPTER}[adapter.config]\n{config}\n")
}

#[test]
fn a_table_with_the_one_key_file_stands_for_the_text_of_that_file() {
    let world = World::new();
    world.write("cwd/texts/a.jsonl", "{\"ü\":1}\n");
    let compressed = [zstd::encode_all(&b"one\n"[..], 3).unwrap(), zstd::encode_all(&b"two"[..], 3).unwrap()].concat();
    world.write("cwd/b.jsonl.zst", &compressed);
    world.write("cwd/c.zstd", &compressed);
    world.write("user/d", "");
    let config = r#"
        routes = { r = { session = { file = "texts/a.jsonl" } } }
        list = [{ file = "b.jsonl.zst" }, { file = "./c.zstd" }, "plain"]
        home = { file = "~/d" }
        two = { file = "texts/a.jsonl", more = 1 }
        number = { file = 7 }"#;
    let manifest = world.compose(&with(config), &[]).unwrap();
    let expected = json!({
        "routes": { "r": { "session": "{\"ü\":1}\n" } },
        "list": ["one\ntwo", "one\ntwo", "plain"],
        "home": "",
        "two": { "file": "texts/a.jsonl", "more": 1 },
        "number": { "file": 7 },
    });
    assert_eq!(manifest.adapters[0].config, expected);
}

#[test]
fn the_configuration_itself_is_never_taken_for_a_text() {
    let manifest = World::new().compose(&with("file = \"gone\""), &[]).unwrap();
    assert_eq!(manifest.adapters[0].config, json!({ "file": "gone" }));
}

#[test]
fn an_overlay_can_name_another_file_from_its_own_folder_or_put_text_in_its_place() {
    let world = World::new();
    world.write("cwd/a", "under");
    world.write("over/a", "over");
    let overlay = |value: &str| format!("[[adapter]]\nid = \"a\"\n[adapter.config]\nx = {value}\n");
    for (value, text) in [("{ file = \"a\" }", "over"), ("\"plain\"", "plain")] {
        let manifest = world.compose(&with("x = { file = \"a\" }"), &[&overlay(value)]).unwrap();
        assert_eq!(manifest.adapters[0].config["x"], text);
    }
    let manifest = world.compose(&with("x = \"plain\""), &[&overlay("{ file = \"a\" }")]).unwrap();
    assert_eq!(manifest.adapters[0].config["x"], "over");
}

#[test]
fn a_file_that_gives_no_text_is_an_error_at_its_path() {
    let world = World::new();
    world.write("cwd/latin", b"caf\xe9");
    world.write("cwd/text.zst", "no frame");
    world.write("cwd/large", vec![b'x'; (64 << 20) + 1]);
    let zeros = zstd::encode_all(std::io::repeat(0).take((64 << 20) + 1), 1).unwrap();
    world.write("cwd/bomb.zst", zeros);
    for (path, code, text) in [
        ("gone", Code::NotFound, "cwd/gone does not exist; a relative path starts from the folder of the manifest"),
        (".", Code::Unreadable, "cwd is not a file"),
        ("latin", Code::NotUtf8, "cwd/latin is not UTF-8 at byte 3"),
        ("text.zst", Code::Unreadable, "cwd/text.zst cannot be decompressed: "),
        ("large", Code::Unreadable, "cwd/large is too large; at most 64 MiB"),
        ("bomb.zst", Code::Unreadable, "cwd/bomb.zst is too large; at most 64 MiB"),
        ("$NOWHERE/x", Code::UnsetVariable, "`file` needs $NOWHERE, which is not set"),
        ("", Code::BadValue, "`file` is empty"),
    ] {
        let error = world.compose(&with(&format!("x = {{ file = \"{path}\" }}")), &[]).unwrap_err();
        let line = world.line(&error);
        assert_eq!(error.problems()[0].code(), code, "{line}");
        assert!(line.starts_with("cwd/m.toml:6:14: ") && line.contains(text), "{line}");
        assert_eq!(error.problems().len(), 1, "{line}");
    }
}

#[test]
fn a_credential_cannot_come_from_a_file() {
    let world = World::new();
    world.write("cwd/key", "sk-secret");
    let error = world.compose(&with("providers.r.credential = { file = \"key\" }"), &[]).unwrap_err();
    assert_eq!(error.problems()[0].code(), Code::CredentialForm);
    assert!(!error.to_string().contains("sk-secret"));
}

#[test]
fn a_manifest_of_the_current_folder_needs_trust_to_read_files_elsewhere() {
    let world = World::new();
    world.write("cwd/inside", "inside");
    world.write("user/outside", "outside");
    std::os::unix::fs::symlink(world.path("user/outside"), world.path("cwd/link")).unwrap();
    let lookup = world.lookup(None, Vec::new());
    world.write("cwd/loader.toml", with("x = { file = \"inside\" }"));
    assert_eq!(world.load(&lookup).unwrap().adapters[0].config["x"], "inside");
    for path in ["~/outside", "../user/outside", "link"] {
        world.write("cwd/loader.toml", with(&format!("x = {{ file = \"{path}\" }}")));
        let error = world.load(&lookup).unwrap_err();
        assert_eq!(error.problems()[0].code(), Code::Untrusted, "{path}");
        assert!(error.to_string().starts_with("loader.toml:6:14: "), "{error}");
        let Trust::Marked { allows, .. } = world.within(|around| lookup.trust_in(around)).unwrap() else { panic!() };
        assert_eq!(allows, [format!("takes the text of `{path}`, outside of its folder")]);
        assert_eq!(world.load(&lookup).unwrap().adapters[0].config["x"], "outside");
    }
}
