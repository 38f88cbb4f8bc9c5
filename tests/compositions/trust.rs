//! A manifest that lies in the current folder, with the real adapters: what it may do before it is trusted.

use std::path::Path;

use dsh_tests::{Composition, Outcome, Provider, run};
use serde_json::json;

const KEY: &str = "sk-0123456789";

/// Runs `dsh` in a folder with this `loader.toml`, which is not the home folder.
fn in_folder(composition: &Composition, manifest: &str, args: &[&str]) -> Outcome {
    let folder = composition.home().join("work");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("loader.toml"), manifest).unwrap();
    let mut command = composition.bare_command(args);
    command.current_dir(folder).env("OPENAI_API_KEY", KEY).env_remove("DEEPSEEK_API_KEY");
    run(command)
}

#[test]
fn the_shipped_manifest_works_where_it_lies() {
    let shipped = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../loader.toml")).unwrap();
    let outcome = in_folder(&Composition::new("version = 1\n"), &shipped, &["run", "-m", "keyless/hello", "hi"]);
    assert!(outcome.code == Some(0) && outcome.stdout.starts_with("Hello!"), "{outcome}");
}

#[test]
fn a_found_manifest_sends_no_key_and_no_prompt_to_a_place_of_its_own() {
    let server = Provider::start(&[json!({ "match": { "header": { "authorization": KEY } }, "text": "hello" })]);
    let composition = Composition::new("version = 1\n");
    let manifest = format!(
        "version = 1\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n[adapter.config.providers.openai]\n\
         provider = \"openai\"\nbase_url = \"{}\"\ncredential = \"OPENAI_API_KEY\"\n[agent]\nmodel = \"openai/m\"\n\
         tools = [\"bash\"]\n",
        server.url()
    );
    for args in [&["run", "hi"][..], &["models", "openai", "--discover"], &["manifest", "check"]] {
        let outcome = in_folder(&composition, &manifest, args);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{outcome}");
        for part in ["manifest::untrusted", "loader.toml:7:12", "dsh manifest trust", "OPENAI_API_KEY", "`bash`"] {
            assert!(outcome.says(part), "no {part}: {outcome}");
        }
    }
    assert_eq!(server.requests().len(), 0);

    let outcome = in_folder(&composition, &manifest, &["manifest", "trust"]);
    let told = format!(
        "it sends the conversations of the route `openai` to `{}` with the credential `OPENAI_API_KEY` and lets the \
         answers use `bash`\n",
        server.url()
    );
    assert!(outcome.code == Some(0) && outcome.stdout.ends_with(&told), "{outcome}");
    let outcome = in_folder(&composition, &manifest, &["run", "hi"]);
    assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), "hello"), "{outcome}");
}

#[test]
fn a_found_manifest_runs_no_command_that_it_holds() {
    let composition = Composition::new("version = 1\n");
    let proof = composition.home().join("proof");
    let arguments = json!({ "command": format!("touch {}", proof.display()) }).to_string();
    let block = format!("{{ type = \"tool-call\", id = \"c\", name = \"bash\", arguments = '{arguments}' }}");
    let manifest = format!(
        "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n[adapter.config.providers.own]\n\
         responses = [\n[{{ type = \"block-start\", index = 0, blockType = \"tool-call\" }}, {{ type = \"block-end\", \
         index = 0, block = {block} }}, {{ type = \"finish\", reason = {{ kind = \"tool-calls\" }} }}],\n[{{ type = \
         \"text-delta\", index = 0, text = \"done\" }}, {{ type = \"finish\", reason = {{ kind = \"stop\" }} }}],\n]\n\
         [agent]\nmodel = \"own/m\"\ntools = [\"bash\"]\n"
    );
    let outcome = in_folder(&composition, &manifest, &["run", "hi"]);
    assert!(outcome.code == Some(2) && outcome.says("manifest::untrusted") && !proof.exists(), "{outcome}");
    // Trusted, it does; else the case would show nothing.
    assert_eq!(in_folder(&composition, &manifest, &["manifest", "trust"]).code, Some(0));
    let outcome = in_folder(&composition, &manifest, &["run", "hi"]);
    assert!(outcome.code == Some(0) && proof.exists(), "{outcome}");
}

#[test]
fn a_key_goes_where_it_belongs_when_the_adapter_says_the_place() {
    let manifest = |credential: &str| {
        format!(
            "version = 1\n[[adapter]]\nid = \"deepseek\"\nlibrary = \"dsh-llm-deepseek\"\n\
             [adapter.config.providers.own]\ncredential = \"{credential}\"\n[agent]\ntools = [\"bash\"]\n"
        )
    };
    let composition = Composition::new("version = 1\n");
    let outcome = in_folder(&composition, &manifest("DEEPSEEK_API_KEY"), &["models", "own"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    // A key that belongs somewhere, yet not there: only the adapter knows where it would go.
    let outcome = in_folder(&composition, &manifest("OPENAI_API_KEY"), &["models", "own"]);
    assert_eq!(outcome.code, Some(2), "{outcome}");
    assert!(outcome.says("https://api.deepseek.com") && outcome.says("OPENAI_API_KEY"), "{outcome}");
}
