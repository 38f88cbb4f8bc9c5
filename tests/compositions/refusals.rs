//! Refusals that name an image or a size: the session goes on without the images, and everybody is told.

use dsh_tests::{AcpClient, Composition, Provider, of_kind};
use serde_json::{Value, json};

/// Base64 of no picture at all, which the mock provider does not mind.
const OLDER: &str = "b2xkZXI=";
const NEWEST: &str = "bmV3ZXN0";
const NOTE: &str = "[image left out: the provider refused a request with it]";

/// A route whose model takes images, and another one to the same server.
fn seeing(provider: &Provider) -> Composition {
    let url = provider.url();
    let route = |name: &str| {
        format!(
            "[adapter.config.providers.{name}]\napi = \"openai-completions\"\nbase_url = \"{url}\"\n\
             models = [{{ id = \"m\", input = [\"text\", \"image\"] }}]\n"
        )
    };
    Composition::new(&format!(
        "version = 1\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n{}{}[agent]\nmodel = \"mock/m\"\n",
        route("mock"),
        route("spare")
    ))
}

fn refusing(status: u16, body: &str, of: &str) -> Value {
    json!({ "status": status, "body": body, "match": { "body_contains": of }, "repeat": true })
}

/// Two prompts with an image each, over ACP. Gives the session and what the client was shown.
fn show_two(composition: &Composition) -> (String, String) {
    let mut client = AcpClient::start(composition.command(&["acp"])).unwrap();
    client.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} })).unwrap();
    let made = client.call("session/new", &json!({ "cwd": composition.home(), "mcpServers": [] })).unwrap();
    let session = made["sessionId"].as_str().unwrap().to_owned();
    for (text, data) in [("first", OLDER), ("second", NEWEST)] {
        let image = json!({ "type": "image", "mimeType": "image/png", "data": data });
        let prompt = json!([{ "type": "text", "text": text }, image]);
        let ended = client.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt })).unwrap();
        assert_eq!(ended["stopReason"], "end_turn");
    }
    let (messages, _) = client.close().unwrap();
    (session, messages.iter().map(ToString::to_string).collect())
}

#[test]
fn a_refused_image_becomes_a_note_for_its_route_and_everybody_is_told() {
    const TOO_LARGE: &str = r#"{"error":{"message":"image exceeds 5 MB maximum","type":"invalid_request_error"}}"#;
    // The first prompt is answered before the provider minds its image.
    let first = json!({ "text": "I see.", "match": { "body_contains": OLDER } });
    let fine = json!({ "text": "I see.", "repeat": true });
    let provider = Provider::start(&[first, refusing(400, TOO_LARGE, OLDER), fine]);
    let composition = seeing(&provider);
    let (session, shown) = show_two(&composition);
    assert!(shown.contains("image exceeds 5 MB maximum") && shown.contains("without 1 older image"), "{shown}");
    let sent = provider.conversations("");
    assert_eq!(sent.len(), 3, "{sent:#?}");
    let last = json!(sent[2]).to_string();
    assert!(!last.contains(OLDER) && last.contains(NEWEST) && last.contains(NOTE) && last.contains("first"), "{last}");
    let retry = json!(of_kind(&composition.events(&session), "llm/retry"));
    assert_eq!((retry.as_array().unwrap().len(), &retry[0]["imagesFrom"]), (1, &json!(2)), "{retry}");

    // Another process, the same route: no second refusal. Another route: the image itself, and its own refusal.
    let next = composition.prompt(&["--session", &session], "third").completed();
    assert!(next.outcome.stderr.contains("refused images of this session before"), "{}", next.outcome);
    assert!(next.of_kind("llm/retry").is_empty() && provider.conversations("").len() == 4, "{}", next.outcome);
    let other = composition.prompt(&["--session", &session, "-m", "spare/m"], "fourth").completed();
    assert_eq!(other.of_kind("llm/retry").len(), 1, "{}", other.outcome);
    assert!(other.outcome.stderr.contains("spare refused the request"), "{}", other.outcome);

    let request = composition.dsh(&["request", "-m", "mock/m", "--session", &session, "--json"]).json();
    assert_eq!(request["repairs"], json!([{ "message": 0, "kind": "refused-image" }]));
    let log = std::fs::read_to_string(composition.log(&session)).unwrap();
    assert!(log.contains(OLDER), "what was said stays in the log");
}

#[test]
fn a_request_that_is_too_large_loses_all_its_images_and_then_fails_for_good() {
    let too_large = json!({ "status": 413, "body": "", "repeat": true, "match": { "body_contains": "image_url" } });
    let provider = Provider::start(&[too_large, json!({ "text": "I see nothing.", "repeat": true })]);
    let composition = seeing(&provider);
    let (session, shown) = show_two(&composition);
    assert!(shown.contains("I see nothing.") && shown.contains("without 1 image;"), "{shown}");
    // Each prompt was refused once: nothing older was left that it could have been.
    let mut bodies: Vec<String> = provider.conversations("").iter().map(|sent| json!(sent).to_string()).collect();
    assert_eq!(bodies.len(), 4, "{bodies:#?}");
    let last = &bodies[3];
    assert!(!last.contains("image_url") && last.contains("first") && last.contains("second"), "{session}: {last}");
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 4, "nothing is sent again as it was");

    let everything = Provider::start(&[json!({ "status": 413, "body": "", "repeat": true })]);
    let composition = seeing(&everything);
    let run = composition.prompt(&[], "too long a text");
    assert_eq!((run.outcome.code, &run.result["reason"]["failure"]["status"]), (Some(1), &json!(413)));
    assert_eq!(everything.conversations("").len(), 1, "a text is never left out");
}
