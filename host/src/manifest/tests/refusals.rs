use dsh_plugin_api::abi::calls::{ConfigProblem, ConfigRefusal};

use super::{ADAPTER, World, render};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn key(key: &str, expected: &[&str]) -> ConfigProblem {
    ConfigProblem::UnknownKey { key: key.into(), expected: words(expected) }
}

fn word(word: &str, expected: &[&str]) -> ConfigProblem {
    ConfigProblem::UnknownWord { word: word.into(), expected: words(expected) }
}

fn missing(key: &str, remedy: Option<&str>) -> ConfigProblem {
    ConfigProblem::Missing { key: key.into(), remedy: remedy.map(str::to_owned) }
}

fn typed(found: &str, expected: &str) -> ConfigProblem {
    ConfigProblem::WrongType { found: found.into(), expected: expected.into() }
}

/// The refusal's path, its problem, and the line that tells it.
#[rustfmt::skip]
fn refusals() -> Vec<(&'static str, ConfigProblem, &'static str)> {
    vec![
        ("providers.d.base_ulr", key("base_ulr", &["api", "base_url", "credential"]),
            "cwd/m.toml:7:1: unknown key `base_ulr` in [adapter.config.providers.d]; did you mean `base_url`? keys there: `api`, `base_url`, `credential`"),
        ("providers.d", key("base_ulr", &["api", "base_url"]),
            "cwd/m.toml:7:1: unknown key `base_ulr` in [adapter.config.providers.d]; did you mean `base_url`? keys there: `api`, `base_url`"),
        ("providers.d", missing("base_url", None),
            "cwd/m.toml:5:1: `base_url` is missing in [adapter.config.providers.d]; adapter `a` needs a `base_url` here"),
        ("providers.d", missing("base_url", Some("set it, or `provider` to one of `x`")),
            "cwd/m.toml:5:1: `base_url` is missing in [adapter.config.providers.d]; set it, or `provider` to one of `x`"),
        ("providers.d.api", word("opnai", &["openai-completions", "openai-responses"]),
            "cwd/m.toml:6:7: `opnai` is not possible for `providers.d.api`; possible: `openai-completions`, `openai-responses`"),
        ("providers.d.models[1].id", typed("integer", "a string"),
            "over/0.toml:4:32: `providers.d.models[1].id` of adapter `a` must be a string, not an integer; write a string"),
        ("providers.d.models[1].idd", ConfigProblem::BadValue { found: "-6".into(), expected: "an integer of 0 or more".into() },
            "over/0.toml:4:41: `providers.d.models[1].idd` of adapter `a` cannot be `-6`; write an integer of 0 or more"),
        ("providers.d", typed("table", "an array"),
            "cwd/m.toml:5:1: `providers.d` of adapter `a` must be an array, not a table; write an array"),
        ("providers.d.models[1].?", typed("integer", "a string or `false`"),
            "over/0.toml:4:32: `providers.d.models[1].id` of adapter `a` must be a string or `false`, not an integer; write a string or `false`"),
        ("providers.d.models[1].?", word("idd", &["id", "name"]),
            "over/0.toml:4:35: unknown key `idd` in [adapter.config.providers.d.models[1]]; did you mean `id`? keys there: `id`, `name`"),
        ("providers.d.models[1].idd", key("idd", &["id"]),
            "over/0.toml:4:35: unknown key `idd` in [adapter.config.providers.d.models[1]]; did you mean `id`? keys there: `id`"),
        ("providers.v1.5.api", ConfigProblem::Other,
            "over/0.toml:6:7: adapter `a` refuses its configuration at `providers.v1.5.api`: no such wire"),
        ("providers.gone.api", ConfigProblem::Other,
            "cwd/m.toml:5:17: adapter `a` refuses its configuration at `providers.gone.api`: no such wire"),
        ("", ConfigProblem::Other, "cwd/m.toml:5:10: adapter `a` refuses its configuration: no such wire"),
    ]
}

fn refusal(path: &str, problem: ConfigProblem) -> ConfigRefusal {
    ConfigRefusal { path: path.to_owned(), message: "no such wire".to_owned(), problem }
}

#[test]
fn a_refused_configuration_points_at_its_key() {
    let world = World::new();
    let base = format!("{ADAPTER}[adapter.config.providers.d]\napi = \"opnai\"\nbase_ulr = \"x\"\n");
    let overlay = "[[adapter]]\nid = \"a\"\n[adapter.config.providers.d]\nmodels = [{ id = \"m\" }, { id = 5, idd = 6 }]\n\
                   [adapter.config.providers.\"v1.5\"]\napi = 1\n";
    let manifest = world.compose(&base, &[overlay]).unwrap();
    for (path, problem, expected) in refusals() {
        let error = manifest.config_error("a", &refusal(path, problem.clone()));
        assert_eq!(world.line(&error), expected, "{path} {problem:?}\n{}", render(error.clone()));
    }
}

#[test]
fn a_refusal_without_any_configuration_points_at_the_adapter() {
    let world = World::new();
    let manifest = world.compose(ADAPTER, &[]).unwrap();
    let line = world.line(&manifest.config_error("a", &refusal("", missing("providers", None))));
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
