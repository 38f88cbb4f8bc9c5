//! Compositions in which one adapter is broken, as `dsh` reports them.

use std::fs;
use std::path::Path;

use dsh_host::llm::registry::Registry;
use dsh_host::loader::Loader;
use dsh_host::manifest::Lookup;
use dsh_plugin_api::vocab::FailureCode;
use dsh_tests::{Composition, FIXTURE, built};
use serde_json::json;

/// A good adapter `good` with the route `echo`, and an adapter `other` that the rest of the text describes.
fn with_other(library: &Path, rest: &str) -> Composition {
    let (good, library) = (built().library(FIXTURE), library.display());
    Composition::new(&format!(
        "version = 1\n\n\
         [[adapter]]\nid = \"good\"\nlibrary = \"{}\"\n[adapter.config]\nroutes = [\"echo\"]\n\n\
         [[adapter]]\nid = \"other\"\nlibrary = \"{library}\"\n{rest}",
        good.display()
    ))
}

fn load(composition: &Composition) -> Registry {
    let home = composition.home().to_owned();
    let lookup = Lookup { manifest: Some(composition.manifest()), overlays: Vec::new(), home: home.clone() };
    Registry::load(&lookup.load().unwrap(), &Loader::new(&home)).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_broken_adapter_is_listed_with_its_reason_and_the_others_serve() {
    let fixture = built().library(FIXTURE);
    let dir = tempfile::tempdir().unwrap();
    let [gone, cut, text] = ["gone.so", "cut.so", "text.so"].map(|name| dir.path().join(name));
    let bytes = fs::read(&fixture).unwrap();
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(&text, "hello").unwrap();
    let pin = format!("sha256 = \"{}\"\n", "0".repeat(64));
    let provider = "[adapter.config.providers.x]\nbase_url = \"https://x.test\"\n";
    let claim = format!("[adapter.config]\nclaim_credential = \"STOLEN\"\n{provider}credential = \"X_KEY\"\n");
    for (library, rest, expected) in [
        (&gone, "", vec!["gone.so", "cannot be read"]),
        (&cut, "", vec!["cut.so", "damaged or cut off"]),
        (&text, "", vec!["text.so", "a text file"]),
        (&fixture, &pin, vec!["sha256", "pins"]),
        (&fixture, "[adapter.config]\npanic_in = \"new\"\n", vec!["panicked in its constructor", "as it was told"]),
        (&fixture, &claim, vec!["\"STOLEN\"", "\"X_KEY\"", "config.providers.x.credential"]),
    ] {
        let composition = with_other(library, rest);
        let outcome = composition.dsh(&["plugins", "list", "--json"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let list = outcome.json();
        assert_eq!(list[0]["status"], "loaded", "{list:#}");
        assert_eq!(list[0]["routes"], json!(["echo"]));
        assert_eq!(list[1]["id"], "other");
        assert_eq!(list[1]["status"], "failed", "{list:#}");
        assert_eq!(list[1]["routes"], json!([]));
        let error = list[1]["error"].as_str().unwrap();
        assert!(expected.iter().all(|part| error.contains(part)), "{expected:?}: {error}");

        let shown = composition.dsh(&["plugins", "list"]);
        assert!(shown.code == Some(0) && shown.stdout.contains(error), "{shown}");
        let models = composition.dsh(&["models", "--json"]);
        assert_eq!(models.json()[0]["provider"], "echo", "{models}");

        let required = with_other(library, &format!("required = true\n{rest}"));
        let outcome = required.dsh(&["plugins", "list"]);
        assert_eq!(outcome.code, Some(2), "{outcome}");
        assert!(outcome.stderr.contains("other"), "{outcome}");
    }
}

#[test]
fn a_loaded_adapter_is_listed_whole() {
    let composition = with_other(&built().library(FIXTURE), "[adapter.config]\nroutes = [\"a\", \"b\"]\n");
    let list = composition.dsh(&["plugins", "list", "--json"]).json();
    let expected = json!({
        "id": "other",
        "library": built().library(FIXTURE),
        "version": env!("CARGO_PKG_VERSION"),
        "api": dsh_plugin_api::API_VERSION,
        "envelope": { "kind": "fixture", "version": 1 },
        "routes": ["a", "b"],
        "isolation": "in-process",
        "status": "loaded",
    });
    assert_eq!(list[1], expected);
}

#[test]
fn a_route_with_two_owners_is_a_bad_manifest_that_names_both() {
    let outcome = with_other(&built().library(FIXTURE), "[adapter.config]\nroutes = [\"echo\"]\n").dsh(&["models"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    for part in ["echo", "good", "other"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome}");
    }
}

#[test]
fn a_configuration_that_its_adapter_refuses_is_a_bad_manifest() {
    let outcome = with_other(&built().library(FIXTURE), "[adapter.config]\nroutes = 7\n").dsh(&["plugins", "list"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    for part in ["other", "routes"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome}");
    }
}

#[test]
fn models_show_limits_and_whether_the_credential_is_set_but_never_its_value() {
    let composition = with_other(
        &built().library(FIXTURE),
        "[adapter.config.providers.x]\nbase_url = \"https://x.test/v1\"\ncredential = \"FIXTURE_KEY\"\n\
         [[adapter.config.providers.x.models]]\nid = \"org/m\"\ncontext_window = 1000\nmax_tokens = 100\n",
    );
    for value in [None, Some(""), Some("s3cret-value")] {
        let run = |args: &[&str]| {
            let mut command = composition.command(args);
            command.env_remove("FIXTURE_KEY");
            if let Some(value) = value {
                command.env("FIXTURE_KEY", value);
            }
            dsh_tests::run(command)
        };
        let set = value.is_some_and(|value| !value.is_empty());
        let outcome = run(&["models", "x", "--json"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let expected = json!([{
            "provider": "x", "model": "org/m", "adapter": "other", "api": "fixture-lines", "origin": "https://x.test",
            "contextWindow": 1000, "maxTokens": 100, "reasoning": false, "input": ["text"],
            "credential": { "reference": "FIXTURE_KEY", "set": set }, "anyModel": false,
        }]);
        assert_eq!(outcome.json(), expected);
        let shown = run(&["models"]);
        assert!(shown.stdout.contains("x/org/m") && shown.stdout.contains("echo/*"), "{shown}");
        assert_eq!(shown.stdout.contains("FIXTURE_KEY (set)"), set, "{shown}");
        for outcome in [outcome, shown] {
            assert!(!outcome.to_string().contains("s3cret"), "{outcome}");
        }
    }
    let outcome = composition.dsh(&["models", "nope"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
}

#[test]
fn a_model_resolves_at_the_first_slash_and_what_is_unknown_gets_an_offer() {
    let registry = load(&with_other(
        &built().library(FIXTURE),
        "[adapter.config.providers.local]\nbase_url = \"http://127.0.0.1:1\"\ncredential = \"K\"\n\
         [[adapter.config.providers.local.models]]\nid = \"org/model-one\"\n",
    ));
    let (route, target) = registry.resolve("local/org/model-one").unwrap();
    assert_eq!((target.provider.as_str(), target.model.as_str()), ("local", "org/model-one"));
    assert_eq!((route.adapter.as_str(), route.credential.as_deref()), ("other", Some("K")));
    assert_eq!(route.origin.as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!(registry.resolve("echo/whatever").unwrap().1.model, "whatever");
    for (model, expected) in [
        ("locla/org/model-one", vec!["\"locla\"", "did you mean \"local\"?", "echo, local"]),
        ("local/org/model-won", vec!["\"org/model-won\"", "did you mean \"org/model-one\"?"]),
        ("local", vec!["PROVIDER/MODEL", "local/org/model-one"]),
        ("/x", vec!["PROVIDER/MODEL"]),
        ("local/", vec!["PROVIDER/MODEL"]),
    ] {
        let failure = registry.resolve(model).map(|_| ()).unwrap_err();
        assert_eq!(failure.code, FailureCode::UnknownModel);
        assert!(expected.iter().all(|part| failure.message.contains(part)), "{expected:?}: {failure}");
    }
}

#[test]
fn a_route_that_no_loaded_adapter_serves_is_reported_with_the_errors_of_those_that_are_not() {
    let registry = load(&with_other(Path::new("/nowhere/libx.so"), ""));
    let failure = registry.resolve("x/m").map(|_| ()).unwrap_err();
    for part in ["\"x\"", "\"other\" is not loaded", "/nowhere/libx.so"] {
        assert!(failure.message.contains(part), "{part}: {failure}");
    }
}
