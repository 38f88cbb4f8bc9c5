use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::super::document::Document;
use super::super::paths::Surroundings;
use super::super::place::Source;
use super::super::{Code, Manifest, Origin};
use super::{World, render};

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

proptest! {
    /// Whatever stands in the files, reading ends with a manifest or with problems that can be shown.
    #[test]
    fn any_text_is_read_or_told(
        base in "(version = 1\n)?(\\[{0,3}(agent|adapter|sessions|x)\\]{0,3}\n|[a-z_]{1,12} ?= ?(\"[^\n]{0,9}|[0-9.\\-]{1,5}|\\{ ?a = 1)\n|[^\n]{0,12}\n){0,6}",
        overlay in "(\\[\\[adapter\\]\\]\nid = \"a\"\n|dir = \"\\$X\"\n|[^\n]{0,8}\n){0,4}",
    ) {
        let sources = [("m", &base), ("o", &overlay)].map(|(name, text)| {
            Source::new(name, None, PathBuf::from("/"), text)
        });
        let env = |_: &str| None;
        let around = Surroundings { env: &env, user_home: None, cwd: PathBuf::from("/") };
        let read = Document::merge(sources.to_vec(), Vec::new())
            .and_then(|document| Manifest::build(Origin::BuiltIn, document, Path::new("/h"), true, &around));
        if let Err(error) = read {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(!error.to_string().contains('\n'));
            let report = render(error);
            prop_assert!(!report.contains("Failed to read contents"), "{}", report);
        }
    }
}

#[test]
fn very_many_problems_are_told_by_the_first() {
    let world = World::new();
    let text = "version = 1\n".to_owned() + &(0..20_000).map(|n| format!("bad{n} = 1\n")).collect::<String>();
    let error = world.compose(&text, &[]).unwrap_err();
    assert_eq!(error.problems().len(), 30);
    let report = render(error);
    assert!(report.contains("the manifest has 20000 problems; the first 30 are:"), "{report}");
    assert!(report.contains("m.toml:2:1]") && !report.contains("bad40"), "{report}");
}

#[test]
fn a_huge_line_is_told_by_its_place_alone() {
    let world = World::new();
    let long = "k".repeat(1_000_000);
    for text in [format!("version = 1\n{long} = 1\n"), format!("version = 1\nx = {}", "[".repeat(1_000_000))] {
        let report = render(world.compose(&text, &[]).unwrap_err());
        assert!(report.len() < 10_000 && report.contains("m.toml:2:"), "{}", report.len());
    }
}
