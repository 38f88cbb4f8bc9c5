//! Routes that name a preset, servers that are asked for their models, and what is wrong in such a route.

use std::process::Command;

use dsh_tests::{Composition, Outcome, Provider, run};
use serde_json::{Value, json};

const KEY: &str = "sk-0123456789";

/// A server that answers for the routes of [`composition`].
fn server() -> Provider {
    let lists = |route: &str, answer: Value| {
        let mut response = answer;
        response["match"] = json!({ "path_contains": format!("/{route}/") });
        response["repeat"] = json!(true);
        response
    };
    let anthropic = r#"{"data":[{"id":"one","max_input_tokens":200000}],"has_more":true,"last_id":"one"}"#;
    let mut last_page = lists("ant", json!({ "body": r#"{"data":[{"id":"two"}],"has_more":false}"# }));
    last_page["match"]["path_contains"] = json!("after_id=one");
    Provider::start(&[
        lists(
            "rich",
            json!({ "body": r#"{"data":[
                {"id":"known","context_window":8192},
                {"id":"a/\"b\u001b","context_window":131072,"max_completion_tokens":4096,"supports_image_in":true},
                {"id":"voice","type":"audio"}
            ]}"# }),
        ),
        lists("denied", json!({ "status": 401, "body": format!("{{\"error\":\"no such key: {KEY}\"}}") })),
        lists("page", json!({ "headers": { "content-type": "text/html" }, "body": "<h1>Hello</h1>" })),
        lists("moved", json!({ "status": 308, "headers": { "location": "https://elsewhere.test/v1/models" } })),
        lists("silent", json!({ "no_head": true, "close": "hold" })),
        lists("endless", json!({ "chunks": [{ "text": "[" }], "close": "hold" })),
        last_page,
        lists("ant", json!({ "body": anthropic })),
    ])
}

fn composition(server: &Provider) -> Composition {
    let mut text =
        "version = 1\n[transport]\nidle_timeout_ms = 1000\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n"
            .to_owned();
    for route in ["rich", "denied", "page", "moved", "silent", "endless"] {
        let url = server.url();
        text.push_str(&format!(
            "[adapter.config.providers.{route}]\nprovider = \"groq\"\nbase_url = \"{url}/{route}\"\ncredential = \"GROQ_API_KEY\"\n"
        ));
    }
    text.push_str("[[adapter.config.providers.rich.models]]\nid = \"known\"\n");
    text.push_str(&format!(
        "[adapter.config.providers.ant]\nprovider = \"anthropic\"\nbase_url = \"{}/ant\"\ncredential = \"ANTHROPIC_API_KEY\"\n",
        server.url()
    ));
    text.push_str("[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n");
    text.push_str("[adapter.config.providers.keyless]\nreply = \"hi\"\n");
    Composition::new(&text)
}

fn with_keys(mut command: Command) -> Outcome {
    command.env("GROQ_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
    run(command)
}

#[test]
fn the_models_of_a_server_are_listed_with_what_it_says_of_them() {
    let server = server();
    let composition = composition(&server);
    let outcome = with_keys(composition.command(&["models", "rich", "--discover", "--json"]));
    assert_eq!(outcome.code, Some(0), "{outcome}");
    let row = |model: &str, more: Value| {
        let mut row = json!({
            "provider": "rich", "model": model, "adapter": "pi-ai", "api": "openai-completions",
            "origin": server.url(), "reasoning": false, "input": [],
            "credential": { "reference": "GROQ_API_KEY", "set": true }, "anyModel": true,
        });
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    let expected = json!([
        row("known", json!({ "contextWindow": 8192 })),
        row("a/\"b\u{1b}", json!({ "contextWindow": 131072, "maxTokens": 4096, "input": ["text", "image"] })),
    ]);
    assert_eq!(outcome.json(), expected);

    let asked = &server.requests()[0];
    assert_eq!((&asked["method"], &asked["path"], &asked["body"]), (&json!("GET"), &json!("/rich/models"), &json!("")));
    assert!(asked["headers"].get("content-type").is_none() && asked["headers"].get("authorization").is_some());

    let shown = with_keys(composition.command(&["models", "rich", "--discover"]));
    assert!(!shown.stdout.contains('\u{1b}') && shown.stdout.contains("rich/known"), "{shown}");
    // The hint is about the model that the manifest does not list, and can be pasted.
    let (_, hint) = shown.stdout.split_once("\n[adapter").unwrap();
    let overlay = composition.file("pasted.toml", &format!("[[adapter]]\nid = \"pi-ai\"\n[adapter{hint}"));
    let pasted = composition.dsh(&["--overlay", overlay.to_str().unwrap(), "models", "rich", "--json"]).json();
    assert_eq!(pasted[0]["model"], "a/\"b\u{1b}", "{pasted:#}");
    assert_eq!((&pasted[0]["contextWindow"], &pasted[0]["maxTokens"]), (&json!(131_072), &json!(4096)));
}

#[test]
fn every_page_is_read_in_the_words_of_the_wire() {
    let server = server();
    let outcome = with_keys(composition(&server).command(&["models", "ant", "--discover", "--json"]));
    let models: Vec<Value> = outcome.json().as_array().unwrap().iter().map(|row| row["model"].clone()).collect();
    assert_eq!(models, ["one", "two"], "{outcome}");
    let paths: Vec<Value> = server.requests().iter().map(|request| request["path"].clone()).collect();
    assert_eq!(paths, ["/ant/v1/models?limit=1000", "/ant/v1/models?limit=1000&after_id=one"]);
}

#[test]
fn each_adapter_says_how_a_model_is_written() {
    let body = r#"{"data":[{"id":"deepseek-x","context_length":65536,"supports_image_in":true}]}"#;
    let server = Provider::start(&[json!({ "match": { "path_contains": "/own/models" }, "body": body })]);
    let composition = Composition::new(&format!(
        "version = 1\n[[adapter]]\nid = \"deepseek\"\nlibrary = \"dsh-llm-deepseek\"\n\
         [adapter.config.providers.own]\nbase_url = \"{}/own\"\n",
        server.url()
    ));
    let outcome = composition.dsh(&["models", "own", "--discover"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    for part in ["-m own/deepseek-x\n", "{ id = \"deepseek-x\", context_window = 65536, images = true }"] {
        assert!(outcome.stdout.contains(part), "no {part}: {outcome}");
    }
}

#[test]
fn a_server_that_gives_no_list_is_told_with_what_it_said() {
    let server = server();
    let composition = composition(&server);
    for (route, parts) in [
        ("denied", &["AUTH (status 401)", "no such key: <credential GROQ_API_KEY>"][..]),
        ("page", &["PROTOCOL", "no list of models: Hello; check base_url"]),
        ("moved", &["redirects to https://elsewhere.test/v1/models", "base_url"]),
        ("silent", &["TIMEOUT", "no answer within 1 s"]),
        ("endless", &["TIMEOUT", "no whole list of models within 1 s"]),
        (
            "keyless",
            &[
                "UNSUPPORTED",
                "cannot ask a server for its models",
                "`dsh models keyless` lists those",
                "-m keyless/MODEL",
            ],
        ),
    ] {
        let outcome = with_keys(composition.command(&["models", route, "--discover"]));
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{route}: {outcome}");
        assert!(outcome.says(&format!("the models of `{route}` cannot be listed")), "{outcome}");
        assert!(parts.iter().all(|part| outcome.says(part)) && !outcome.says(KEY), "{route}: {outcome}");
    }
    let mut command = composition.command(&["models", "rich", "--discover"]);
    command.env_remove("GROQ_API_KEY");
    let outcome = run(command);
    assert_eq!(outcome.code, Some(1), "{outcome}");
    assert!(outcome.says("MISSING_CREDENTIAL") && outcome.says("export GROQ_API_KEY=..."), "{outcome}");
    for args in [&["models", "--discover"][..], &["models", "nowhere", "--discover"]] {
        assert_eq!(composition.dsh(args).code, Some(2));
    }
}

#[test]
fn a_preset_sends_its_own_key_and_only_to_its_route() {
    let server = Provider::start(&[json!({ "match": { "header": { "authorization": KEY } }, "text": "hello" })]);
    let composition = Composition::new(&format!(
        "version = 1\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n\
         [adapter.config.providers.work]\nprovider = \"groq\"\nbase_url = \"{}\"\ncredential = \"GROQ_API_KEY\"\n[agent]\nmodel = \"work/m\"\n",
        server.url()
    ));
    let outcome = with_keys(composition.command(&["run", "hi"]));
    assert_eq!((outcome.code, outcome.stdout.trim()), (Some(0), "hello"), "{outcome}");
}

#[test]
fn what_is_wrong_inside_an_adapters_configuration_is_told_with_its_place() {
    let head = "version = 1\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n[adapter.config.providers.x]\n";
    for (text, place, parts) in [
        ("", "5:1", &["`api` is missing in [adapter.config.providers.x]", "or `provider` to one of `anthropic`"][..]),
        ("provider = \"deepseak\"\n", "6:12", &["`deepseak` is not possible", "did you mean `deepseek`?", "`vllm`"]),
        ("provider = 5\n", "6:12", &["`providers.x.provider` of adapter `pi-ai` must be a string, not an integer"]),
        ("provider = \"groq\"\nbase_ulr = \"x\"\n", "7:1", &["unknown key `base_ulr`", "did you mean `base_url`?"]),
        ("provider = \"groq\"\napi = \"openai\"\n", "7:7", &["`openai` is not possible", "`openai-responses`"]),
        (
            "provider = \"groq\"\napi = 7\n",
            "7:7",
            &["`providers.x.api` of adapter `pi-ai` must be a string, not an integer"],
        ),
        ("provider = \"groq\"\nprovider = \"groq\"\n", "7:1", &["duplicate key `provider`"]),
        (
            "provider = \"groq\"\nmodels = { id = \"m\" }\n",
            "7:10",
            &["`providers.x.models` of adapter `pi-ai` must be an array, not a table"],
        ),
        (
            "provider = \"groq\"\nmodels = [{ id = \"m\", context_window = -5 }]\n",
            "7:40",
            &["`providers.x.models[0].context_window` of adapter `pi-ai` cannot be `-5`", "an integer of 0 or more"],
        ),
        (
            "provider = \"groq\"\nmodels = [{ id = \"m\", thinking_level_map = { hihg = \"x\" } }]\n",
            "7:46",
            &["unknown key `hihg`", "did you mean `high`?"],
        ),
    ] {
        let composition = Composition::new(&format!("{head}{text}"));
        let outcome = composition.dsh(&["manifest", "check"]);
        assert_eq!(outcome.code, Some(2), "{text}: {outcome}");
        assert!(outcome.says(&format!("composition.toml:{place}]")), "{text}: {outcome}");
        assert!(parts.iter().all(|part| outcome.says(part)), "{text}: {outcome}");
        assert!(!outcome.says("at line 1 column"), "{text}: {outcome}");
    }
}
