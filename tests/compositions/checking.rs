//! `dsh manifest check` with the real adapters: everything that is wrong is told at once, with its place.

use dsh_tests::Composition;

#[test]
fn no_problem_hides_another() {
    let composition = Composition::new(
        "version = 1
[[adapter]]
id = \"pi-ai\"
library = \"dsh-llm-pi-ai\"
[adapter.config.providers.one]
provider = \"groq\"
base_ulr = \"x\"
[adapter.config.providers.\"two.5\"]
provider = \"deepseak\"
[adapter.config.providers.three]
provider = \"groq\"
models = [{ id = 5 }]
[adapter.config.providers.good]
provider = \"groq\"
[[adapter]]
id = \"replay\"
library = \"dsh-llm-replay\"
[adapter.config.providers.good]
reply = \"hi\"
[adapter.config.providers.mute]
reply = \" \"
[[adapter]]
id = \"gone\"
library = \"dsh-llm-gone\"
[agent]
model = \"one/m\"
[agents.quick]
model = \"good/m\"
",
    );
    let outcome = composition.dsh(&["manifest", "check"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    for (place, what) in [
        ("7:1", "unknown key `base_ulr`"),
        ("9:12", "`deepseak` is not possible"),
        ("12:18", "must be a string, not an integer"),
        ("18:1", "both serve the route `good`"),
        ("21:9", "the reply is blank"),
        ("24:11", "the adapter `gone` cannot be used"),
    ] {
        assert!(outcome.says(&format!("composition.toml:{place}]")) && outcome.says(what), "{place} {what}: {outcome}");
    }
    assert!(outcome.says("the manifest has 6 problems"), "{outcome}");
}

#[test]
fn a_model_without_a_route_is_a_problem_of_every_agent_that_names_it() {
    let composition = Composition::new(
        "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n\
         [adapter.config.providers.keyless]\nreply = \"hi\"\n\
         [agent]\nmodel = \"keyles/hello\"\n[agents.quick]\nmodel = \"nowhere/m\"\n",
    );
    let outcome = composition.dsh(&["manifest", "check"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    for part in ["composition.toml:8:9]", "did you mean \"keyless\"?", "composition.toml:10:9]"] {
        assert!(outcome.says(part), "no {part}: {outcome}");
    }
}

#[test]
fn a_model_that_its_route_does_not_list_is_a_warning_at_its_place() {
    let composition = Composition::new(
        "version = 1\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n\
         [adapter.config.providers.deepseek]\nprovider = \"deepseek\"\nmodels = [{ id = \"deepseek-chat\" }]\n\
         [adapter.config.providers.any]\nprovider = \"groq\"\n\
         [agent]\nmodel = \"deepseek/deepsek-chat\"\n[agents.quick]\nmodel = \"any/m\"\n",
    );
    let outcome = composition.dsh(&["manifest", "check"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    for part in ["manifest::unlisted-model", "composition.toml:11:9]", "did you mean `deepseek-chat`?"] {
        assert!(outcome.says(part), "no {part}: {outcome}");
    }
    // A route that lists none lets expect none.
    assert!(!outcome.says("composition.toml:13:9]"), "{outcome}");
}
