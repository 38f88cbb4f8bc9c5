//! The replay adapter in real compositions: recordings as answers, and a session that moves between two adapters
//! whose envelopes are of different kinds.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use dsh_tests::{Composition, Outcome};
use serde_json::{Value, json};

/// A composition of one replay route `recorded`.
fn recorded(answers: &str) -> Composition {
    Composition::new(&format!(
        "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n\
         [adapter.config.providers.recorded]\n{answers}\n[agent]\nmodel = \"recorded/m\"\n"
    ))
}

/// The result line of a `dsh run --json`, and the events before it.
fn events(outcome: &Outcome) -> (Value, Vec<Value>) {
    let mut lines: Vec<Value> = outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = lines.pop().unwrap_or_else(|| panic!("no result line: {outcome}"));
    assert_eq!(result["type"], "result", "{outcome}");
    (result, lines)
}

/// Runs a prompt, in the session if there is one, and checks the text of the answer. Gives the result line.
fn ask(composition: &Composition, session: Option<&Value>, model: &str, expected: &str) -> (Value, Outcome) {
    let mut args = vec!["run", "--json", "-m", model];
    args.extend(session.into_iter().flat_map(|id| ["--session", id.as_str().unwrap()]));
    args.push("next");
    let outcome = composition.dsh(&args);
    let (result, _) = events(&outcome);
    assert_eq!(result["text"], expected, "{outcome}");
    assert_eq!(outcome.code, Some(0), "{outcome}");
    (result, outcome)
}

fn session_file(composition: &Composition, id: &Value) -> PathBuf {
    composition.home().join("sessions").join(format!("{}.jsonl", id.as_str().unwrap()))
}

/// A log of two turns as another host might have written it: packed rows and plain events, other events between them.
const LOG: &str = r#"{"type":"session","version":0,"id":"old","createdAt":1700000000000,"delegationDepth":0}
{"type":"turn/start","seq":0,"time":1700000000000,"data":{"turn":1}}
{"type":"step/start","seq":1,"time":1700000000000,"data":{"turn":1,"step":1}}
{"type":"user/message","seq":2,"time":1700000000000,"data":{"id":"u1","role":"user","content":[{"type":"text","text":"hi"}],"source":{"kind":"user"}},"surfaceOp":"append"}
{"type":"assistant/chunk","seq":3,"time":1700000000100,"data":{"turn":1,"step":1,"chunk":{"type":"block-start","index":0,"blockType":"text"}}}
{"type":"text-chunks","seq0":4,"time0":1700000000100,"data":{"turn":1,"step":1,"index":0,"dt":[5,5],"texts":["Good ","mor","ning."]}}
{"type":"assistant/chunk","seq":7,"time":1700000000120,"data":{"turn":1,"step":1,"chunk":{"type":"block-end","index":0,"block":{"type":"text","text":"Good morning."}}}}
{"type":"assistant/chunk","seq":8,"time":1700000000120,"data":{"turn":1,"step":1,"chunk":{"type":"usage","usage":{"inputTokens":7,"outputTokens":3}}}}
{"type":"assistant/chunk","seq":9,"time":1700000000120,"data":{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"},"replayState":{"response":{"kind":"other","version":9},"blocks":[{"type":"text","signature":"s"}]}}}}
{"type":"assistant/message","seq":10,"time":1700000000120,"data":{"turn":1,"step":1,"message":{"id":"a1","role":"assistant","content":[{"type":"text","text":"Good morning."}],"source":{"kind":"model","provider":"p","model":"m"}}},"surfaceOp":"append"}
{"type":"step/end","seq":11,"time":1700000000120,"data":{"turn":1,"step":1}}
{"type":"turn/end","seq":12,"time":1700000000120,"data":{"turn":1,"reason":{"kind":"completed"}}}
{"type":"turn/start","seq":13,"time":1700000009000,"data":{"turn":2}}
{"type":"step/start","seq":14,"time":1700000009000,"data":{"turn":2,"step":1}}
{"type":"user/message","seq":15,"time":1700000009000,"data":{"id":"u2","role":"user","content":[{"type":"text","text":"and?"}],"source":{"kind":"user"}},"surfaceOp":"append"}
{"type":"assistant/chunk","seq":16,"time":1700000009100,"data":{"turn":2,"step":1,"chunk":{"type":"text-delta","index":0,"text":"Good "}}}
{"type":"assistant/chunk","seq":17,"time":1700000009100,"data":{"turn":2,"step":1,"chunk":{"type":"text-delta","index":0,"text":"night."}}}
{"type":"assistant/chunk","seq":18,"time":1700000009120,"data":{"turn":2,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop"}}}}
"#;

#[test]
fn the_model_side_of_a_session_log_is_served_request_by_request() {
    let composition = recorded("session = { file = \"logs/old.jsonl\" }");
    fs::create_dir(composition.home().join("logs")).unwrap();
    fs::write(composition.home().join("logs/old.jsonl"), LOG).unwrap();

    let (first, _) = ask(&composition, None, "recorded/m", "Good morning.");
    let session = &first["sessionId"];
    assert_eq!(first["usage"]["inputTokens"], 7);
    ask(&composition, Some(session), "recorded/m", "Good night.");
    // What the recording held as metadata is shown under `recorded`, never as this route's own.
    let messages = composition.dsh(&["sessions", "show", "--json", session.as_str().unwrap()]).json();
    let state = &messages[1]["source"]["replayState"];
    assert_eq!(state["response"]["kind"], "replay", "{messages:#}");
    assert_eq!(state["response"]["recorded"], json!({ "kind": "other", "version": 9 }));
    assert_eq!(state["blocks"][0]["recorded"], json!({ "type": "text", "signature": "s" }));

    let beyond = composition.dsh(&["run", "--json", "--session", session.as_str().unwrap(), "more"]);
    assert_eq!(beyond.code, Some(1), "{beyond}");
    let (result, _) = events(&beyond);
    assert_eq!(result["reason"]["failure"]["code"], "UNSUPPORTED", "{beyond}");
    assert!(result["reason"]["failure"]["message"].as_str().unwrap().contains("after prompt 3"), "{beyond}");
}

#[test]
fn a_log_that_cannot_be_served_is_a_bad_manifest_that_names_the_route_and_the_line() {
    let composition = recorded("session = { file = \"old.jsonl\" }");
    let damaged = LOG.replace("\"and?\"", "\"and?");
    for (text, parts) in [
        (None, ["old.jsonl does not exist", "composition.toml:6:20"]),
        (Some(damaged.as_str()), ["providers.recorded.session", "line 15"]),
        (Some("{\"type\":\"session\",\"version\":0}\n"), ["providers.recorded.session", "no response of a model"]),
    ] {
        if let Some(text) = text {
            fs::write(composition.home().join("old.jsonl"), text).unwrap();
        }
        let outcome = composition.dsh(&["run", "hi"]);
        assert_eq!(outcome.code, Some(2), "{outcome}");
        // The report wraps long lines.
        let words = |text: &str| text.replace(['│', '\n'], " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(parts.iter().all(|part| words(&outcome.stderr).contains(part)), "{parts:?}: {outcome}");
    }
}

/// Two requests of one turn, since the first one asks for a tool; then one that fails.
const RESPONSES: &str = r#"responses = [
  [
    { type = "reasoning-delta", index = 0, text = "one command" },
    { type = "tool-call-delta", index = 1, id = "c1", name = "bash", argumentsDelta = '{"command":"echo $((6*7))"}' },
    { type = "finish", reason = { kind = "tool-calls" } },
  ],
  [{ type = "text-delta", index = 0, text = "It is 42." }, { type = "finish", reason = { kind = "stop" } }],
  [{ type = "finish", reason = { kind = "error", failure = { code = "AUTH", message = "no more" } } }],
]"#;

#[test]
fn scripted_responses_stand_in_the_manifest_and_what_dsh_records_of_them_is_a_script_again() {
    let run = |composition: &Composition| {
        let outcome = composition.dsh(&["run", "--json", "what is six times seven?"]);
        assert_eq!(outcome.code, Some(0), "{outcome}");
        let (result, events) = events(&outcome);
        assert_eq!(result["text"], "It is 42.", "{outcome}");
        let results: Vec<&Value> = events.iter().filter(|event| event["type"] == "tool/result").collect();
        assert_eq!(results.len(), 1, "{outcome}");
        let output = &results[0]["data"]["message"]["content"][0]["content"][0]["text"];
        assert!(output.as_str().unwrap().contains("42"), "the tool really ran: {output}");
        result["sessionId"].clone()
    };
    let tools = "tools = [\"bash\"]\n";
    let scripted = recorded(RESPONSES);
    let manifest = fs::read_to_string(scripted.manifest()).unwrap();
    fs::write(scripted.manifest(), format!("{manifest}{tools}")).unwrap();
    let id = run(&scripted);

    let failed = scripted.dsh(&["run", "--json", "--session", id.as_str().unwrap(), "again"]);
    assert_eq!(failed.code, Some(1), "{failed}");
    assert_eq!(events(&failed).0["reason"]["failure"]["code"], "AUTH", "{failed}");

    let again = recorded(&format!("session = {{ file = {:?} }}", session_file(&scripted, &id)));
    let manifest = fs::read_to_string(again.manifest()).unwrap();
    fs::write(again.manifest(), format!("{manifest}{tools}")).unwrap();
    run(&again);
}

/// `dsh mock-provider` with a script; ended when dropped.
struct Provider {
    process: Child,
    url: String,
    log: PathBuf,
}

impl Provider {
    fn start(composition: &Composition, script: &str) -> Self {
        let (file, log) = (composition.home().join("script.toml"), composition.home().join("requests.jsonl"));
        fs::write(&file, script).unwrap();
        let mut command =
            composition.command(&["mock-provider", "--script", file.to_str().unwrap(), "--log", log.to_str().unwrap()]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { process, url: url.trim().to_owned(), log }
    }

    /// The messages of the last request, without the system prompt.
    fn last_messages(&self) -> Vec<Value> {
        let log = fs::read_to_string(&self.log).unwrap();
        let request: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        let messages = request["body"]["messages"].as_array().unwrap().iter();
        messages.filter(|message| message["role"] == "user" || message["role"] == "assistant").cloned().collect()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// What a session says was degraded: position of the message and reason.
fn degraded(result: &Value) -> Vec<(u64, String)> {
    let entries = result["degraded"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            assert_eq!(entry["code"], "INVALID_REPLAY_STATE", "{result:#}");
            (entry["message"].as_u64().unwrap(), entry["reason"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn a_session_moves_to_another_kind_of_adapter_and_its_way_back_is_native() {
    let composition = recorded("reply = \"From the recording.\"");
    let script = "[[response]]\nreasoning = \"hm\"\ntext = \"From the provider.\"\nrepeat = true\n";
    let provider = Provider::start(&composition, script);
    let manifest = fs::read_to_string(composition.manifest()).unwrap();
    let with_provider = format!(
        "{manifest}\n[[adapter]]\nid = \"pi-ai\"\nlibrary = \"dsh-llm-pi-ai\"\n[adapter.config.providers.mock]\n\
         api = \"openai-completions\"\nbase_url = \"{}\"\n",
        provider.url
    );
    fs::write(composition.manifest(), with_provider).unwrap();
    let of_kind =
        |kind: &str, own: &str| format!("its replay state is of kind \"{kind}\", this adapter writes \"{own}\"");
    let (to_provider, to_recording) = (of_kind("replay", "pi-ai"), of_kind("pi-ai", "replay"));

    let (first, _) = ask(&composition, None, "recorded/m", "From the recording.");
    let session = &first["sessionId"];
    let id = session.as_str().unwrap();
    assert!(degraded(&first).is_empty());

    // There: the other adapter's message goes out as what it says, and that is told once everywhere.
    let (there, outcome) = ask(&composition, Some(session), "mock/m", "From the provider.");
    assert_eq!(degraded(&there), [(1, to_provider.clone())]);
    assert!(outcome.stderr.contains("message 1 ") && outcome.stderr.contains("INVALID_REPLAY_STATE"), "{outcome}");
    let logged = |outcome: &Outcome| -> Vec<Value> {
        let of_kind = |event: &Value| event["type"] == "llm/degrade";
        events(outcome).1.into_iter().filter(of_kind).map(|event| event["data"]["message"].clone()).collect()
    };
    assert_eq!(logged(&outcome), [json!(1)], "{outcome}");
    assert_eq!(provider.last_messages()[1], json!({ "role": "assistant", "content": "From the recording." }));

    // Back: only the provider's message is degraded, so the recording's own one is native again.
    let request = composition.dsh(&["request", "-m", "recorded/m", "--session", id, "--json"]).json();
    assert_eq!(degraded(&request), [(3, to_recording.clone())], "{request:#}");
    assert_eq!(request["neutral"], json!([]), "{request:#}");
    let (back, _) = ask(&composition, Some(session), "recorded/m", "From the recording.");
    assert_eq!(degraded(&back), [(3, to_recording)]);

    // And there again: the provider gets its own reasoning back in its own field; what was told is not told again.
    let (again, outcome) = ask(&composition, Some(session), "mock/m", "From the provider.");
    assert_eq!(degraded(&again), [(1, to_provider.clone()), (5, to_provider)]);
    assert_eq!(logged(&outcome), [json!(5)], "{outcome}");
    assert!(!outcome.stderr.contains("message 1 "), "{outcome}");
    let sent = provider.last_messages();
    let native = json!({ "role": "assistant", "content": "From the provider.", "reasoning_content": "hm" });
    assert_eq!((&sent[1]["reasoning_content"], &sent[3]), (&Value::Null, &native));

    // A look at the whole session says the same, for the model it used last and for any other.
    let ways = |args: &[&str]| -> Value {
        let shown = composition.dsh(&[&["sessions", "show", id, "--fidelity", "--json"], args].concat()).json();
        let answers = shown["messages"].as_array().unwrap().iter();
        let ways: Vec<_> = answers.map(|answer| json!([answer["message"], answer["fidelity"]])).collect();
        json!([shown["target"], shown["native"], shown["degraded"], ways])
    };
    let (native, degraded) = ("native", "degraded");
    assert_eq!(ways(&[]), json!(["mock/m", 2, 2, [[1, degraded], [3, native], [5, degraded], [7, native]]]));
    let there = json!(["recorded/m", 2, 2, [[1, native], [3, degraded], [5, native], [7, degraded]]]);
    assert_eq!(ways(&["-m", "recorded/m"]), there);
    assert_eq!(ways(&["--target", "recorded/m"]), there);
    let table = composition.dsh(&["sessions", "show", id, "--fidelity"]);
    assert!(table.stdout.starts_with("To mock/m: 2 native, 0 neutral, 2 degraded, 0 left out; 0 repairs"), "{table}");
    let unknown = composition.dsh(&["sessions", "show", id, "--fidelity", "-m", "nobody/m"]);
    assert_eq!((unknown.code, unknown.says("nobody")), (Some(2), true), "{unknown}");

    // Nothing stored was changed on the way.
    let kinds: Vec<Value> = {
        let messages = composition.dsh(&["sessions", "show", "--json", id]).json();
        let states = messages.as_array().unwrap().iter().map(|message| message["source"]["replayState"].clone());
        states.filter(|state| !state.is_null()).map(|state| state["response"]["kind"].clone()).collect()
    };
    assert_eq!(kinds, ["replay", "pi-ai", "replay", "pi-ai"]);
}
