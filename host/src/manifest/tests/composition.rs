use std::path::{Path, PathBuf};

use super::super::{Agent, Code, Compression, Manifest, Origin, Transport};
use super::{ADAPTER, World, render};
use crate::loader::LibraryRef;

#[test]
fn files_that_cannot_be_read_say_why() {
    let world = World::new();
    world.write("cwd/sub/loader.toml", "version = 1\n");
    world.write("cwd/latin.toml", b"version = 1\n# caf\xe9\n");
    world.write("cwd/huge.toml", vec![b'#'; (4 << 20) + 1]);
    let cases = [
        ("gone.toml", Code::NotFound, "there is no such file", "check the path"),
        ("sub", Code::Unreadable, "is a folder, not a manifest", "sub/loader.toml"),
        (
            "latin.toml",
            Code::NotUtf8,
            "cwd/latin.toml:2:6: is not UTF-8: byte 0xe9 at offset 17",
            "save it in that encoding",
        ),
        ("huge.toml", Code::Unreadable, "larger than 4 MiB", ""),
        ("latin.toml/x", Code::Unreadable, "cannot be read", "permissions"),
    ];
    for (name, code, message, help) in cases {
        let path = world.path("cwd").join(name);
        let good = world.write("cwd/good.toml", "version = 1\n");
        for lookup in [world.lookup(Some(path.clone()), Vec::new()), world.lookup(Some(good), vec![path])] {
            let error = world.load(&lookup).unwrap_err();
            let line = world.line(&error);
            assert_eq!(error.problems()[0].code(), code, "{line}");
            assert!(line.contains(message) && line.contains(help) && line.contains("cwd/"), "{line}");
        }
    }
}

#[test]
fn the_manifest_is_looked_for_in_order() {
    let world = World::new();
    assert_eq!(world.load(&world.lookup(None, Vec::new())).unwrap().origin, Origin::BuiltIn);
    let home = world.write("home/loader.toml", "version = 1\n");
    assert_eq!(world.load(&world.lookup(None, Vec::new())).unwrap().origin, Origin::Home(home));
    let here = world.write("cwd/loader.toml", "version = 1\n");
    assert_eq!(world.load(&world.lookup(None, Vec::new())).unwrap().origin, Origin::CurrentFolder(here));
    world.write("cwd/given.toml", "version = 1\n");
    let given = PathBuf::from("given.toml");
    assert_eq!(world.load(&world.lookup(Some(given.clone()), Vec::new())).unwrap().origin, Origin::Given(given));
}

#[test]
fn the_first_manifest_that_is_there_counts_even_when_it_is_broken() {
    let world = World::new();
    world.write("home/loader.toml", "version = 1\n");
    std::fs::create_dir(world.path("cwd/loader.toml")).unwrap();
    let error = world.load(&world.lookup(None, Vec::new())).unwrap_err();
    assert_eq!(error.problems()[0].code(), Code::Unreadable);
}

#[test]
fn the_built_in_manifest_works_without_any_key() {
    let world = World::new();
    let manifest = world.load(&world.lookup(None, Vec::new())).unwrap();
    let ids: Vec<&str> = manifest.adapters.iter().map(|adapter| adapter.id.as_str()).collect();
    assert_eq!(ids, ["pi-ai", "replay"]);
    assert_eq!(manifest.sessions.dir, world.path("home/sessions"));
    assert_eq!(manifest.agents["default"].model.as_deref(), Some("deepseek/deepseek-chat"));
    assert_eq!(manifest.agents["default"].tools, ["bash"]);
    assert_eq!(manifest.transport, Transport::default());
    let routes = manifest.adapters[0].config["providers"].as_object().unwrap();
    let by_preset: Vec<&str> =
        routes.iter().filter(|(_, route)| route.get("provider").is_some()).map(|(name, _)| name.as_str()).collect();
    assert_eq!(by_preset, ["anthropic", "google"]);
    let keyed: Vec<&str> =
        routes.iter().filter(|(_, route)| route.get("credential").is_some()).map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        keyed,
        [
            "openai",
            "deepseek",
            "openrouter",
            "groq",
            "together",
            "xai",
            "zai",
            "moonshot",
            "mistral",
            "fireworks",
            "cerebras"
        ]
    );
    assert!(manifest.adapters[1].config["providers"]["keyless"].get("credential").is_none());
}

#[test]
fn a_manifest_without_anything_but_its_version_has_the_defaults() {
    let manifest = World::new().compose("version = 1\n", &[]).unwrap();
    let Agent { model, tools, max_steps, .. } = &manifest.agents["default"];
    assert_eq!((model, tools.len(), *max_steps), (&None, 0, 100));
    assert!(manifest.adapters.is_empty());
    assert_eq!(manifest.transport, Transport::default());
    assert_eq!(manifest.sessions.compression, Compression::None);
}

#[test]
fn every_key_is_read() {
    let world = World::new();
    let hash = "AB".repeat(32);
    let text = format!(
        "version = 1\n[sessions]\ndir = \"/s\"\ncompression = \"zstd\"\n\
         [[adapter]]\nid = \"a\"\nlibrary = \"dsh-llm-a\"\nisolation = \"in-process\"\nsha256 = \"{hash}\"\nrequired = true\n\
         [adapter.config]\nn = 18446744073709551615\nf = 0.5\nday = 2020-01-02\nlist = [1, {{ x = true }}]\n\
         [agent]\nmodel = \"r/a/b\"\ntools = [\"bash\"]\nsystem = \"s\"\nmax_tokens = 9\ntemperature = 1\n\
         reasoning_effort = \"low\"\nmax_steps = 0\n[agents.quick]\nreasoning_effort = \"off\"\n\
         [transport]\nconnect_timeout_ms = 1\nidle_timeout_ms = 2\nprogress_timeout_ms = 3\nmax_retries = 0\n\
         retry_base_ms = 0\nretry_max_ms = 6\n"
    );
    let manifest = world.compose(&text, &[]).unwrap();
    assert_eq!(manifest.sessions.dir, Path::new("/s"));
    assert_eq!(manifest.sessions.compression, Compression::Zstd);
    let adapter = &manifest.adapters[0];
    assert_eq!(adapter.spec.library, LibraryRef::Name("dsh-llm-a".into()));
    assert_eq!(adapter.spec.sha256.as_deref(), Some(hash.to_lowercase().as_str()));
    assert!(adapter.required);
    let config = serde_json::json!({ "n": u64::MAX, "f": 0.5, "day": "2020-01-02", "list": [1, { "x": true }] });
    assert_eq!(adapter.config, config);
    let agent = &manifest.agents["default"];
    assert_eq!(agent.model.as_deref(), Some("r/a/b"));
    assert_eq!((agent.max_tokens, agent.temperature, agent.max_steps), (Some(9), Some(1.0), 0));
    assert_eq!((agent.system.as_deref(), agent.reasoning_effort.as_deref()), (Some("s"), Some("low")));
    assert_eq!(manifest.agents["quick"].reasoning_effort, None);
    let expected = Transport {
        connect_timeout_ms: 1,
        idle_timeout_ms: 2,
        progress_timeout_ms: 3,
        max_retries: 0,
        retry_base_ms: 0,
        retry_max_ms: 6,
    };
    assert_eq!(manifest.transport, expected);
}

#[test]
fn a_library_is_a_path_when_it_looks_like_one() {
    let world = World::new();
    let library = |library: &str| {
        let text = format!("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = '{library}'\n");
        let manifest = world.compose(&text, &[]).unwrap();
        assert_eq!(manifest.adapters[0].library, library);
        manifest.adapters[0].spec.library.clone()
    };
    let cwd = world.path("cwd");
    assert_eq!(library("dsh-llm-a"), LibraryRef::Name("dsh-llm-a".into()));
    assert_eq!(library("./x.so"), LibraryRef::Path(cwd.join("x.so")));
    assert_eq!(library("sub/x.so"), LibraryRef::Path(cwd.join("sub/x.so")));
    assert_eq!(library("../x.so"), LibraryRef::Path(cwd.join("../x.so")));
    assert_eq!(library("/abs/x.so"), LibraryRef::Path("/abs/x.so".into()));
    assert_eq!(library("~/x.so"), LibraryRef::Path(world.path("user/x.so")));
    assert_eq!(library("$LIBS/x.so"), LibraryRef::Path("/opt/libs/x.so".into()));
    assert_eq!(library("./a${LIBS}$$b.so"), LibraryRef::Path(cwd.join("a/opt/libs$b.so")));
}

#[test]
fn credentials_reach_the_adapter_as_plain_names() {
    let text = format!(
        "{ADAPTER}[adapter.config.providers.p]\ncredential = \"KEY_1\"\n[adapter.config.providers.q]\n\
         credential = \"$KEY_1\"\n[adapter.config.providers.r]\ncredential = \"${{KEY_1}}\"\n"
    );
    let manifest = World::new().compose(&text, &[]).unwrap();
    for route in ["p", "q", "r"] {
        assert_eq!(manifest.adapters[0].config["providers"][route]["credential"], "KEY_1");
    }
}

#[test]
fn overlays_merge_tables_and_adapters_and_replace_the_rest() {
    let world = World::new();
    let base = "version = 1\n[agent]\nmodel = \"r/m\"\ntools = [\"bash\"]\n\
                [[adapter]]\nid = \"a\"\nlibrary = \"lib-a\"\n[adapter.config.providers.r]\nbase_url = \"https://real\"\n\
                models = [{ id = \"m\" }, { id = \"n\" }]\n[[adapter]]\nid = \"b\"\nlibrary = \"lib-b\"\n";
    let first = "[[adapter]]\nid = \"b\"\nrequired = true\n[[adapter]]\nid = \"c\"\nlibrary = \"./c.so\"\n\
                 [[adapter]]\nid = \"a\"\n[adapter.config.providers.r]\nbase_url = \"http://mock\"\n\
                 [adapter.config.providers.s]\nbase_url = \"http://s\"\n";
    let second =
        "version = 1\n[agent]\ntools = []\n[[adapter]]\nid = \"a\"\nconfig.providers.r.models = [{ id = \"o\" }]\n";
    let manifest = world.compose(base, &[first, second]).unwrap();
    let ids: Vec<&str> = manifest.adapters.iter().map(|adapter| adapter.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    let config = serde_json::json!({ "providers": {
        "r": { "base_url": "http://mock", "models": [{ "id": "o" }] },
        "s": { "base_url": "http://s" },
    } });
    assert_eq!(manifest.adapters[0].config, config);
    assert_eq!(manifest.adapters[0].library, "lib-a");
    assert!(manifest.adapters[1].required && !manifest.adapters[0].required);
    assert_eq!(manifest.adapters[2].spec.library, LibraryRef::Path(world.path("over/c.so")));
    assert_eq!(manifest.agents["default"].model.as_deref(), Some("r/m"));
    assert!(manifest.agents["default"].tools.is_empty());
    assert_eq!(manifest.files().count(), 3);
}

#[test]
fn problems_of_an_overlay_point_into_the_overlay() {
    let cases = [
        ("version = 2\n", "over/0.toml:1:11: manifest version 2"),
        ("[agent\n", "over/0.toml:1:7: not valid TOML"),
        ("[agent]\nmodle = 1\n", "over/0.toml:2:1: unknown key `modle`"),
        ("agent = 5\n", "over/0.toml:1:9: `agent` must be a table"),
        ("[adapter.config]\nx = 1\n", "over/0.toml:1:2: `adapter` must be an array of tables"),
        ("[[adapter]]\nlibrary = \"x\"\n", "over/0.toml:1:1: an adapter without `id`"),
        ("[[adapter]]\nid = \"new\"\n", "over/0.toml:1:1: adapter `new` without `library`"),
        ("[[adapter]]\nid = \"a\"\nlibrary = \"\"\n", "over/0.toml:3:11: adapter `a` has an empty `library`"),
        ("[sessions]\ndir = \"$NOWHERE\"\n", "over/0.toml:2:7: `sessions.dir` needs $NOWHERE"),
    ];
    for (overlay, expected) in cases {
        let world = World::new();
        let error = world.compose(ADAPTER, &[overlay]).unwrap_err();
        let line = world.line(&error);
        assert!(line.starts_with(expected) && error.problems().len() == 1, "{line}");
    }
}

#[test]
fn an_overlay_may_not_name_an_id_twice() {
    let world = World::new();
    let error =
        world.compose(ADAPTER, &["[[adapter]]\nid = \"a\"\n[[adapter]]\nid = \"a\"\nlibrary = \"x\"\n"]).unwrap_err();
    let line = world.line(&error);
    assert!(line.starts_with("over/0.toml:4:6: two adapters with the id `a`"), "{line}");
    assert!(render(error).contains("`a` stands here first"));
}

#[test]
fn an_overlay_s_version_does_not_stand_in_for_the_manifest_s() {
    let world = World::new();
    let error = world.compose("[agent]\n", &["version = 1\n"]).unwrap_err();
    assert!(world.line(&error).starts_with("cwd/m.toml:1:1: `version` is missing"));
}

#[test]
fn relative_paths_start_from_the_file_that_names_them() {
    let world = World::new();
    let base = "version = 1\n[sessions]\ndir = \"./logs\"\n";
    assert_eq!(world.compose(base, &[]).unwrap().sessions.dir, world.path("cwd/logs"));
    let overlaid = world.compose(base, &["[sessions]\ndir = \"logs\"\n"]).unwrap();
    assert_eq!(overlaid.sessions.dir, world.path("over/logs"));
}

#[test]
fn the_sessions_folder_is_found_in_a_broken_or_missing_manifest() {
    let world = World::new();
    let fallback = world.path("home/sessions");
    let dir = |manifest: &str, overlays: &[&str]| {
        let manifest = world.write("cwd/m.toml", manifest);
        let overlays =
            overlays.iter().enumerate().map(|(n, text)| world.write(&format!("over/{n}.toml"), text)).collect();
        world.sessions_dir(&world.lookup(Some(manifest), overlays))
    };
    assert_eq!(dir("version = 9\n[sessions]\ndir = \"/s\"\nwhat = 1\n", &[]), Path::new("/s"));
    assert_eq!(dir("[sessions]\ndir = \"/s\"\n[agent\n", &[]), Path::new("/s"));
    assert_eq!(dir("[sessions]\ndir = 5\n", &[]), fallback);
    assert_eq!(dir("[sessions]\ndir = \"$NOWHERE\"\n", &[]), fallback);
    assert_eq!(dir("[sessions]\ndir = \"/s\"\n", &["[sessions]\ndir = \"t\"\n", "[[[\n"]), world.path("over/t"));
    assert_eq!(dir("[sessions]\ndir = \"/s\"\n", &["[sessions]\ndir = \"$NOWHERE\"\n"]), Path::new("/s"));
    let gone = world.lookup(Some(world.path("gone.toml")), vec![world.path("gone-too.toml")]);
    assert_eq!(world.sessions_dir(&gone), fallback);
    assert_eq!(world.sessions_dir(&world.lookup(None, Vec::new())), fallback);
}

#[test]
fn a_manifest_from_text_starts_its_paths_from_the_home_folder() {
    let text = "version = 1\n[sessions]\ndir = \"logs\"\n";
    assert_eq!(Manifest::from_text("m", text, Path::new("/h")).unwrap().sessions.dir, Path::new("/h/logs"));
    let error = Manifest::from_text("m", "version = 3\n", Path::new("/h")).unwrap_err();
    assert_eq!(error.to_string(), "m:1:11: manifest version 3; this build reads version 1");
}
