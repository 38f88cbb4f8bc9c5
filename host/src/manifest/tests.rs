use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use dsh_plugin_api::abi::calls::ConfigRefusal;

use super::paths::Surroundings;
use super::{Agent, Code, Compression, Lookup, Manifest, ManifestError, Origin, Transport, Trust};
use crate::loader::LibraryRef;

/// A folder with a home and a current folder, and an environment of its own.
struct World {
    dir: tempfile::TempDir,
    env: BTreeMap<&'static str, &'static str>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "cwd", "user"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir, env: BTreeMap::from([("LIBS", "/opt/libs"), ("EMPTY", "")]) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn lookup(&self, manifest: Option<PathBuf>, overlays: Vec<PathBuf>) -> Lookup {
        Lookup { manifest, overlays, home: self.path("home") }
    }

    fn within<T>(&self, work: impl FnOnce(&Surroundings) -> T) -> T {
        let env = |name: &str| self.env.get(name).map(OsString::from);
        work(&Surroundings { env: &env, user_home: Some(self.path("user")), cwd: self.path("cwd") })
    }

    fn load(&self, lookup: &Lookup) -> Result<Manifest, ManifestError> {
        self.within(|around| lookup.load_in(around))
    }

    fn sessions_dir(&self, lookup: &Lookup) -> PathBuf {
        self.within(|around| super::document::sessions_dir(lookup, around))
    }

    /// Loads one manifest that `--manifest` names, and overlays.
    fn compose(&self, manifest: &str, overlays: &[&str]) -> Result<Manifest, ManifestError> {
        let manifest = self.write("cwd/m.toml", manifest);
        let overlays =
            overlays.iter().enumerate().map(|(n, text)| self.write(&format!("over/{n}.toml"), text)).collect();
        self.load(&self.lookup(Some(manifest), overlays))
    }

    /// An error as one line, with the names of temporary folders cut.
    fn line(&self, error: &ManifestError) -> String {
        error.to_string().replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn render(error: ManifestError) -> String {
    let mut text = String::new();
    let report = error.into_report();
    let theme = miette::GraphicalTheme::unicode_nocolor();
    miette::GraphicalReportHandler::new_themed(theme)
        .with_width(200)
        .render_report(&mut text, report.as_ref())
        .unwrap();
    text
}

const ADAPTER: &str = "version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"lib-a\"\n";

/// What is broken, the code, where, the text under the caret, the message, the help.
type Broken = (&'static str, Code, (usize, usize), &'static str, &'static str, &'static str);

#[rustfmt::skip]
const BROKEN: &[Broken] = &[
    // Not TOML.
    ("version = 1\n[agent\nmodel = \"a/b\"\n", Code::Syntax, (2, 7), "", "unclosed table", "expected here: `]`"),
    ("version = 1\n[agent]\nmodel = a/b\n", Code::Syntax, (3, 9), "a/b", "string values must be quoted", "double quotes"),
    ("version = 1\n[agent]\nmodel = “a/b”\n", Code::Syntax, (3, 9), "“a/b”", "quotes of another kind", "plain \" and '"),
    ("version = 1\n[agent]\nmodel =\n", Code::Syntax, (3, 8), "", "a key without a value", "write a value behind the `=`"),
    ("version = 1\n[agent]\nmodel\n", Code::Syntax, (3, 6), "", "key with no value", "expected here: `=`"),
    ("version = 1\n[agent]\nmodel = \"a/b\n", Code::Syntax, (3, 13), "", "invalid basic string", "expected here: `\"`"),
    // Twice.
    ("version = 1\nversion = 1\n", Code::DuplicateKey, (2, 1), "version", "duplicate key `version`", "delete one"),
    ("version = 1\n[agent]\n[sessions]\n[agent]\n", Code::DuplicateKey, (4, 2), "agent", "duplicate key `agent`", "each [header], once"),
    // Version.
    ("", Code::Version, (1, 1), "", "`version` is missing", "write `version = 1` at the top"),
    ("# nothing\n", Code::Version, (1, 1), "", "`version` is missing", "write `version = 1` at the top"),
    ("version = 2\nnovelty = 1\n", Code::Version, (1, 11), "2", "manifest version 2", "this build reads version 1"),
    ("version = \"1\"\n", Code::WrongType, (1, 11), "\"1\"", "`version` must be the integer 1, not a string", "write the integer 1"),
    // Types.
    ("version = 1\nsessions = 5\n", Code::WrongType, (2, 12), "5", "`sessions` must be a table: [sessions], not an integer", "[sessions]"),
    ("version = 1\n[sessions]\ndir = 5\n", Code::WrongType, (3, 7), "5", "`dir` must be a string, not an integer", "write a string"),
    ("version = 1\n[agent]\ntools = \"bash\"\n", Code::WrongType, (3, 9), "\"bash\"", "`tools` must be an array of names", "[\"bash\"]"),
    ("version = 1\n[agent]\ntools = [\"bash\", 5]\n", Code::WrongType, (3, 18), "5", "a tool must be a string", "write a string"),
    ("version = 1\n[agent]\nmax_steps = 1.5\n", Code::WrongType, (3, 13), "1.5", "`max_steps` must be an integer, not a float", "write an integer"),
    ("version = 1\n[agents]\nsmall = \"a/b\"\n", Code::WrongType, (3, 9), "\"a/b\"", "`agents.small` must be a table", "[agents.small]"),
    ("version = 1\n[adapter.config.providers.x]\napi = \"y\"\n", Code::WrongType, (2, 2), "adapter", "`adapter` must be an array of tables", "begin each adapter with `[[adapter]]`"),
    ("version = 1\nadapter = [1]\n", Code::WrongType, (2, 12), "1", "an adapter must be a table: [[adapter]]", "[[adapter]]"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\nconfig = true\n", Code::WrongType, (5, 10), "true", "`config` must be a table", "[adapter.config]"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\nrequired = \"yes\"\n", Code::WrongType, (5, 12), "\"yes\"", "`required` must be `true` or `false`", "`true` or `false`"),
    // Keys.
    ("version = 1\n[agent]\nmodle = \"a/b\"\n", Code::UnknownKey, (3, 1), "modle", "unknown key `modle` in [agent]", "did you mean `model`?"),
    ("version = 1\n[transport]\nidle-timeout-ms = 5\n", Code::UnknownKey, (3, 1), "idle-timeout-ms", "unknown key `idle-timeout-ms` in [transport]", "did you mean `idle_timeout_ms`?"),
    ("version = 1\nmodel = \"a/b\"\n", Code::UnknownKey, (2, 1), "model", "unknown key `model` at the top level", "`model` belongs into [agent]"),
    ("version = 1\n[agent]\nqwertz = 1\n", Code::UnknownKey, (3, 1), "qwertz", "unknown key `qwertz`", "keys in [agent]: `model`, `tools`"),
    ("version = 1\n[adaptor]\n", Code::UnknownKey, (2, 2), "adaptor", "unknown key `adaptor` at the top level", "did you mean `adapter`?"),
    ("version = 1\n[[adapter]]\nlibrary = \"l\"\n", Code::MissingKey, (2, 1), "[[adapter]]", "an adapter without `id`", "id = "),
    ("version = 1\n[[adapter]]\nid = \"a\"\n", Code::MissingKey, (2, 1), "[[adapter]]", "adapter `a` without `library`", "name its library"),
    // Words.
    ("version = 1\n[sessions]\ncompression = \"zst\"\n", Code::UnknownVariant, (3, 15), "\"zst\"", "`compression` cannot be `zst`", "did you mean `zstd`?"),
    ("version = 1\n[sessions]\ncompression = \"zstd\"\n", Code::Unsupported, (3, 15), "\"zstd\"", "cannot be written by this version", "read all the same"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\nisolation = \"process\"\n", Code::Unsupported, (5, 13), "\"process\"", "in its own process only", "write \"in-process\""),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\nisolation = \"in_process\"\n", Code::UnknownVariant, (5, 13), "\"in_process\"", "`isolation` cannot be `in_process`", "did you mean `in-process`?"),
    ("version = 1\n[agent]\nreasoning_effort = \"hihg\"\n", Code::UnknownVariant, (3, 20), "\"hihg\"", "cannot be `hihg`", "did you mean `high`?"),
    ("version = 1\n[agent]\ntools = [\"bahs\"]\n", Code::UnknownTool, (3, 10), "\"bahs\"", "this build has no tool `bahs`", "did you mean `bash`?"),
    ("version = 1\n[agent]\ntools = [\"bash\", \"read\"]\n", Code::UnknownTool, (3, 18), "\"read\"", "this build has no tool `read`", "tools of this build: `bash`"),
    ("version = 1\n[agent]\ntools = [\"bash\", \"bash\"]\n", Code::BadValue, (3, 18), "\"bash\"", "the tool `bash` is named twice", "once"),
    ("version = 1\n[agent]\nmodel = \"deepseek\"\n", Code::BadValue, (3, 9), "\"deepseek\"", "`deepseek` is not PROVIDER/MODEL", "deepseek/deepseek-chat"),
    ("version = 1\n[agent]\nmodel = \"/x\"\n", Code::BadValue, (3, 9), "\"/x\"", "`/x` is not PROVIDER/MODEL", "a slash and the model id"),
    ("version = 1\n[agent]\nmodel = \"$MODEL\"\n", Code::BadValue, (3, 9), "\"$MODEL\"", "is not PROVIDER/MODEL", "expanded in paths only"),
    ("version = 1\n[agents.default]\nmodel = \"a/b\"\n", Code::BadValue, (2, 9), "default", "the agent `default` is [agent]", "write [agent]"),
    ("version = 1\n[agents.\"a b\"]\n", Code::BadValue, (2, 9), "\"a b\"", "`a b` cannot be the name of an agent", "letters, digits"),
    ("version = 1\n[[adapter]]\nid = \"a b\"\nlibrary = \"l\"\n", Code::BadValue, (3, 6), "\"a b\"", "`a b` cannot be an id", "letters, digits"),
    ("version = 1\n[[adapter]]\nid = \"\"\nlibrary = \"l\"\n", Code::BadValue, (3, 6), "\"\"", "`` cannot be an id", "letters, digits"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\n[[adapter]]\nid = \"a\"\nlibrary = \"m\"\n", Code::DuplicateId, (6, 6), "\"a\"", "two adapters with the id `a`", "an id of its own"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"\"\n", Code::BadValue, (4, 11), "\"\"", "adapter `a` has an empty `library`", "name its library"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"libx.so\"\n", Code::BadValue, (4, 11), "\"libx.so\"", "`libx.so` is not the name of a library", "\"./libx.so\""),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\nsha256 = \"abc\"\n", Code::BadValue, (5, 10), "\"abc\"", "`sha256` is no SHA-256", "64 hexadecimal digits"),
    // Numbers.
    ("version = 1\n[transport]\nconnect_timeout_ms = 0\n", Code::BadValue, (3, 22), "0", "`connect_timeout_ms` cannot be 0", "a number of milliseconds from 1 to 604800000"),
    ("version = 1\n[transport]\nidle_timeout_ms = -5\n", Code::BadValue, (3, 19), "-5", "`idle_timeout_ms` cannot be -5", "milliseconds"),
    ("version = 1\n[transport]\nprogress_timeout_ms = 99_999_999_999\n", Code::BadValue, (3, 23), "99_999_999_999", "cannot be 99999999999", "to 604800000"),
    ("version = 1\n[transport]\nmax_retries = 101\n", Code::BadValue, (3, 15), "101", "`max_retries` cannot be 101", "from 0 to 100"),
    ("version = 1\n[agent]\nmax_tokens = 0\n", Code::BadValue, (3, 14), "0", "`max_tokens` cannot be 0", "a number of tokens from 1"),
    ("version = 1\n[agent]\ntemperature = 2.5\n", Code::BadValue, (3, 15), "2.5", "`temperature` is out of range", "from 0 to 2"),
    ("version = 1\n[agent]\ntemperature = 3\n", Code::BadValue, (3, 15), "3", "`temperature` is out of range", "from 0 to 2"),
    ("version = 1\n[agent]\ntemperature = nan\n", Code::BadValue, (3, 15), "nan", "not a finite number", "0.7"),
    ("version = 1\n[agent]\nmax_steps = 999999999999999999999999999999999999999999\n", Code::BadValue, (3, 13), "999999999999999999999999999999999999999999", "an integer that is too large", "integers go from"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\n[adapter.config]\nbig = 99999999999999999999\n", Code::BadValue, (6, 7), "99999999999999999999", "an integer that is too large", "integers go from"),
    // Paths and credentials.
    ("version = 1\n[sessions]\ndir = \"$NOWHERE/x\"\n", Code::UnsetVariable, (3, 7), "\"$NOWHERE/x\"", "`sessions.dir` needs $NOWHERE, which is not set", "export NOWHERE=…"),
    ("version = 1\n[sessions]\ndir = \"${EMPTY}/x\"\n", Code::UnsetVariable, (3, 7), "\"${EMPTY}/x\"", "needs $EMPTY", "export EMPTY=…"),
    ("version = 1\n[sessions]\ndir = \"a$-b\"\n", Code::BadValue, (3, 7), "\"a$-b\"", "a `$` without a name", "a plain dollar is $$"),
    ("version = 1\n[sessions]\ndir = \"~other/x\"\n", Code::BadValue, (3, 7), "\"~other/x\"", "a `~` that cannot be expanded", "only `~/…`"),
    ("version = 1\n[sessions]\ndir = \" \"\n", Code::BadValue, (3, 7), "\" \"", "`sessions.dir` is empty", "leave the key out"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"$NOWHERE/l.so\"\n", Code::UnsetVariable, (4, 11), "\"$NOWHERE/l.so\"", "`library` needs $NOWHERE", "export"),
    ("version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\n[adapter.config.providers.x]\ncredential = \"deepseek_api_key\"\n", Code::CredentialForm, (6, 14), "\"deepseek_api_key\"", "the credential of route `x` is no reference", "DEEPSEEK_API_KEY"),
];

#[test]
fn every_broken_manifest_is_told_with_place_caret_and_remedy() {
    for &(text, code, (line, column), caret, message, help) in BROKEN {
        let world = World::new();
        let error = world.compose(text, &[]).expect_err(text);
        let [problem] = error.problems() else { panic!("{text}\n{}", world.line(&error)) };
        assert_eq!(problem.code(), code, "{text}");
        assert_eq!(problem.line_column(), Some((line, column)), "{text}\n{}", world.line(&error));
        let label = miette::Diagnostic::labels(problem).unwrap().find(miette::LabeledSpan::primary).unwrap();
        assert_eq!(&text[label.offset()..label.offset() + label.len()], caret, "{text}");
        assert!(problem.message().contains(message), "{text}\n{}", problem.message());
        assert!(problem.help().unwrap().contains(help), "{text}\n{:?}", problem.help());

        let plain = world.line(&error);
        assert!(plain.starts_with(&format!("cwd/m.toml:{line}:{column}: {}; ", problem.message())), "{plain}");
        assert!(!plain.contains('\n'), "{plain}");
        let report = render(error.clone());
        for part in [&format!("m.toml:{line}:{column}]"), problem.message(), code.as_str(), "help: "] {
            assert!(report.contains(part), "no {part:?} in\n{report}");
        }
    }
}

#[test]
fn a_report_shows_the_line_with_its_caret() {
    let world = World::new();
    let error = world.compose("version = 1\n\n[agent]\nmodle = \"a/b\"\n", &[]).unwrap_err();
    let report = render(error).replace(&format!("{}/", world.dir.path().display()), "");
    let expected = "\
manifest::unknown-key

  × unknown key `modle` in [agent]
   ╭─[cwd/m.toml:4:1]
 3 │ [agent]
 4 │ modle = \"a/b\"
   · ──┬──
   ·   ╰── nothing reads this
   ╰────
  help: did you mean `model`? keys in [agent]: `model`, `tools`, `system`, `max_tokens`, `temperature`, `reasoning_effort`, `max_steps`
";
    assert_eq!(report, expected);
}

#[test]
fn all_problems_are_told_at_once_and_in_order() {
    let world = World::new();
    let text = "version = 1\n[agent]\nmodel = \"x\"\ntools = [\"reed\"]\n[transport]\nidle_timeout_ms = 0\nwhat = 1\n\
                [[adapter]]\n";
    let error = world.compose(text, &[]).unwrap_err();
    let lines: Vec<usize> =
        error.problems().iter().filter_map(|problem| problem.line_column()).map(|at| at.0).collect();
    assert_eq!(lines, [3, 4, 6, 7, 8, 8]);
    assert_eq!(error.to_string().matches(" | ").count(), 5);
    assert!(render(error).contains("the manifest has 6 problems"));
}

#[test]
fn columns_count_characters_not_bytes() {
    let world = World::new();
    let error = world.compose("version = 1\nagent = { system = \"äöü\", modle = 1 }\n", &[]).unwrap_err();
    assert_eq!(error.problems()[0].line_column(), Some((2, 27)));
}

#[test]
fn a_secret_in_the_manifest_is_never_shown() {
    let head = "version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"l\"\n[adapter.config.providers.x]\n";
    let bodies = [
        "credential = \"sk-hidden-ß-1\"\n",
        "credential = \"gsk_hidden\"\nmodels = 5\n",
        "credential = sk-hidden\n",
        "credential = \"sk-hidden\nbase_url = \"x\"\n",
        "api_key = \"sk-hidden\"\ncredential = \"no reference\"\n",
        "credential = \"sk-hidden\" oops\n",
    ];
    for body in bodies {
        let world = World::new();
        let error = world.compose(&format!("{head}{body}"), &[]).unwrap_err();
        let told = format!("{error}\n{error:?}\n{}", render(error.clone()));
        assert!(!told.contains("hidden"), "{told}");
        assert!(told.contains("m.toml:6:") || told.contains("m.toml:7:"), "{told}");
    }
}

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
    assert!(routes.values().all(|route| route["api"] == "openai-completions"));
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
        "version = 1\n[sessions]\ndir = \"/s\"\ncompression = \"none\"\n\
         [[adapter]]\nid = \"a\"\nlibrary = \"dsh-llm-a\"\nisolation = \"in-process\"\nsha256 = \"{hash}\"\nrequired = true\n\
         [adapter.config]\nn = 18446744073709551615\nf = 0.5\nday = 2020-01-02\nlist = [1, {{ x = true }}]\n\
         [agent]\nmodel = \"r/a/b\"\ntools = [\"bash\"]\nsystem = \"s\"\nmax_tokens = 9\ntemperature = 1\n\
         reasoning_effort = \"low\"\nmax_steps = 0\n[agents.quick]\nreasoning_effort = \"off\"\n\
         [transport]\nconnect_timeout_ms = 1\nidle_timeout_ms = 2\nprogress_timeout_ms = 3\nmax_retries = 0\n\
         retry_base_ms = 0\nretry_max_ms = 6\n"
    );
    let manifest = world.compose(&text, &[]).unwrap();
    assert_eq!(manifest.sessions.dir, Path::new("/s"));
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
fn a_manifest_of_the_current_folder_needs_trust_to_load_by_path() {
    let world = World::new();
    let lookup = world.lookup(None, Vec::new());
    let text = "version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"./a.so\"\n";
    world.write("cwd/loader.toml", text);
    let error = world.load(&lookup).unwrap_err();
    assert_eq!(error.problems()[0].code(), Code::Untrusted);
    assert!(error.to_string().starts_with("loader.toml:4:11: "), "{error}");
    assert!(error.to_string().contains("dsh manifest trust"), "{error}");

    let trusted = world.within(|around| lookup.trust_in(around)).unwrap();
    let marked = Trust::Marked { manifest: world.path("cwd/loader.toml"), libraries: vec!["./a.so".into()] };
    assert_eq!(trusted, marked);
    assert!(world.load(&lookup).is_ok());

    world.write("cwd/loader.toml", format!("{text}# changed\n"));
    assert!(world.load(&lookup).is_err(), "a changed manifest is trusted");

    let elsewhere = Lookup { manifest: None, ..lookup.clone() };
    world.write("other/loader.toml", text);
    let env = |_: &str| None;
    let around = Surroundings { env: &env, user_home: None, cwd: world.path("other") };
    assert!(elsewhere.load_in(&around).is_err(), "trust went along to another folder");
}

#[test]
fn what_was_named_on_the_command_line_needs_no_trust() {
    let world = World::new();
    let by_path = "[[adapter]]\nid = \"a\"\nlibrary = \"./a.so\"\n";
    let here = world.write("cwd/loader.toml", format!("version = 1\n{by_path}"));
    assert!(world.load(&world.lookup(Some(here), Vec::new())).is_ok());

    world.write("cwd/loader.toml", ADAPTER);
    let overlay = world.write("over/o.toml", by_path);
    assert!(world.load(&world.lookup(None, vec![overlay])).is_ok());

    std::fs::remove_file(world.path("cwd/loader.toml")).unwrap();
    world.write("home/loader.toml", format!("version = 1\n{by_path}"));
    assert!(world.load(&world.lookup(None, Vec::new())).is_ok());
    assert_eq!(world.within(|around| world.lookup(None, Vec::new()).trust_in(around)).unwrap(), Trust::NotNeeded);
}

/// Config text below `[adapter.config.providers.…]`, the refusal's path and message, and the line that tells it.
#[rustfmt::skip]
const REFUSALS: &[(&str, &str, &str)] = &[
    ("providers.d.base_ulr", "unknown field `base_ulr`, expected one of `api`, `base_url`, `credential`",
        "cwd/m.toml:7:1: unknown key `base_ulr` in [adapter.config.providers.d]; did you mean `base_url`? keys there: `api`, `base_url`, `credential`"),
    ("providers.d", "unknown field `base_ulr`, expected `api` or `base_url`",
        "cwd/m.toml:7:1: unknown key `base_ulr` in [adapter.config.providers.d]; did you mean `base_url`? keys there: `api`, `base_url`"),
    ("providers.d", "missing field `base_url`",
        "cwd/m.toml:5:1: `base_url` is missing in [adapter.config.providers.d]; adapter `a` needs a `base_url` here"),
    ("providers.d.api", "unknown variant `opnai`, expected `openai-completions` or `openai-responses`",
        "cwd/m.toml:6:7: `opnai` is not possible for `providers.d.api`; possible: `openai-completions`, `openai-responses`"),
    ("providers.d.models[1].id", "invalid type: integer `5`, expected a string",
        "over/0.toml:4:32: adapter `a` refuses its configuration at `providers.d.models[1].id`: invalid type: integer `5`, expected a string"),
    ("providers.d.models[1].idd", "unknown field `idd`, expected `id`",
        "over/0.toml:4:35: unknown key `idd` in [adapter.config.providers.d.models[1]]; did you mean `id`? keys there: `id`"),
    ("providers.v1.5.api", "no such wire",
        "over/0.toml:6:7: adapter `a` refuses its configuration at `providers.v1.5.api`: no such wire"),
    ("providers.gone.api", "no such wire",
        "cwd/m.toml:5:17: adapter `a` refuses its configuration at `providers.gone.api`: no such wire"),
    ("", "routes are needed", "cwd/m.toml:5:10: adapter `a` refuses its configuration: routes are needed"),
];

#[test]
fn a_refused_configuration_points_at_its_key() {
    let world = World::new();
    let base = format!("{ADAPTER}[adapter.config.providers.d]\napi = \"opnai\"\nbase_ulr = \"x\"\n");
    let overlay = "[[adapter]]\nid = \"a\"\n[adapter.config.providers.d]\nmodels = [{ id = \"m\" }, { id = 5, idd = 6 }]\n\
                   [adapter.config.providers.\"v1.5\"]\napi = 1\n";
    let manifest = world.compose(&base, &[overlay]).unwrap();
    for (path, message, expected) in REFUSALS {
        let refusal = ConfigRefusal { path: (*path).to_owned(), message: (*message).to_owned() };
        let error = manifest.config_error("a", &refusal);
        assert_eq!(world.line(&error), *expected, "{path} {message}\n{}", render(error.clone()));
    }
}

#[test]
fn a_refusal_without_any_configuration_points_at_the_adapter() {
    let world = World::new();
    let manifest = world.compose(ADAPTER, &[]).unwrap();
    let refusal = ConfigRefusal { path: String::new(), message: "missing field `providers`".into() };
    let line = world.line(&manifest.config_error("a", &refusal));
    assert_eq!(
        line,
        "cwd/m.toml:2:1: `providers` is missing in [adapter.config]; adapter `a` needs a `providers` here"
    );
}

#[test]
fn a_route_with_two_owners_names_and_shows_both() {
    let world = World::new();
    let base = format!(
        "{ADAPTER}[adapter.config.providers.d]\nx = 1\n[[adapter]]\nid = \"b\"\nlibrary = \"l\"\n[adapter.config.providers.d]\n"
    );
    let manifest = world.compose(&base, &[]).unwrap();
    let error = manifest.route_conflict("d", "a", "b");
    assert!(world.line(&error).starts_with("cwd/m.toml:10:1: adapters `a` and `b` both serve the route `d`"));
    let report = render(error);
    for part in ["`a` serves `d`", "`b` serves it again", "m.toml:10:1]"] {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }

    let manifest = world.compose(ADAPTER, &["[[adapter]]\nid = \"b\"\nlibrary = \"l\"\n"]).unwrap();
    let error = manifest.route_conflict("d", "a", "b");
    assert!(world.line(&error).contains("; cwd/m.toml:2:1: `a` serves `d`"), "{error}");
    assert!(render(error).contains("over/0.toml:1:1]"));
}

#[test]
fn a_failed_required_adapter_is_told_with_the_whole_chain() {
    #[derive(Debug, thiserror::Error)]
    #[error("cannot open lib_a.so")]
    struct Outer(#[source] std::io::Error);
    let world = World::new();
    let manifest = world.compose(ADAPTER, &[]).unwrap();
    let error = manifest.adapter_error("a", &Outer(std::io::Error::other("undefined symbol: foo")));
    assert_eq!(
        world.line(&error),
        "cwd/m.toml:4:11: the required adapter `a` cannot be used: cannot open lib_a.so: undefined symbol: foo; with \
         `required = false` the host starts without it"
    );
}

#[test]
fn a_model_without_a_route_points_at_the_agent_that_names_it() {
    let world = World::new();
    let text = "version = 1\n[agent]\nmodel = \"x/y\"\n[agents.quick]\nmodel = \"x/z\"\n";
    let manifest = world.compose(text, &[]).unwrap();
    assert_eq!(world.line(&manifest.model_error("default", "no route `x`")), "cwd/m.toml:3:9: no route `x`");
    assert_eq!(world.line(&manifest.model_error("quick", "no route `x`")), "cwd/m.toml:5:9: no route `x`");
}

#[test]
fn the_schema_has_the_keys_that_are_read() {
    let schema = super::json_schema();
    let schema = schema.as_value();
    let keys = |table: &serde_json::Value| -> Vec<String> {
        assert_eq!(table["additionalProperties"], false);
        let mut keys: Vec<String> = table["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let sorted = |known: &[&str]| -> Vec<String> {
        let mut known: Vec<String> = known.iter().map(|key| (*key).to_owned()).collect();
        known.sort();
        known
    };
    assert_eq!(keys(schema), sorted(super::read::ROOT));
    let tables = [
        ("Sessions", super::read::SESSIONS),
        ("Adapter", super::read::ADAPTER),
        ("Agent", super::read::AGENT),
        ("Transport", super::read::TRANSPORT),
    ];
    for (name, known) in tables {
        assert_eq!(keys(&schema["$defs"][name]), sorted(known), "{name}");
    }
    assert_eq!(schema["required"], serde_json::json!(["version"]));
}

#[test]
fn the_schema_beside_the_default_manifest_is_this_one() {
    let shipped: serde_json::Value = serde_json::from_str(include_str!("../../../loader.schema.json")).unwrap();
    assert_eq!(&shipped, super::json_schema().as_value(), "write it again with `dsh manifest schema`");
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever stands in the files, reading ends with a manifest or with problems that can be shown.
        #[test]
        fn any_text_is_read_or_told(
            base in "(version = 1\n)?(\\[{0,3}(agent|adapter|sessions|x)\\]{0,3}\n|[a-z_]{1,12} ?= ?(\"[^\n]{0,9}|[0-9.\\-]{1,5}|\\{ ?a = 1)\n|[^\n]{0,12}\n){0,6}",
            overlay in "(\\[\\[adapter\\]\\]\nid = \"a\"\n|dir = \"\\$X\"\n|[^\n]{0,8}\n){0,4}",
        ) {
            let sources = [("m", &base), ("o", &overlay)].map(|(name, text)| {
                super::super::Source::new(name, None, PathBuf::from("/"), text)
            });
            let env = |_: &str| None;
            let around = Surroundings { env: &env, user_home: None, cwd: PathBuf::from("/") };
            let read = super::super::Document::merge(sources.to_vec(), Vec::new())
                .and_then(|document| Manifest::build(Origin::BuiltIn, document, Path::new("/h"), true, &around));
            if let Err(error) = read {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().contains('\n'));
                let report = render(error);
                prop_assert!(!report.contains("Failed to read contents"), "{}", report);
            }
        }
    }
}
