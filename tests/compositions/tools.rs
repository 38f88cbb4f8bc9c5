//! The tool loop: what runs, what must not run, what the model is told, and what an interrupt leaves behind.

use std::time::{Duration, Instant};

use dsh_tests::{Composition, Provider, Run, Running, assistants, of_kind, text_of, wait_until};
use serde_json::{Value, json};

fn bash(id: &str, command: &str) -> Value {
    json!({ "id": id, "name": "bash", "arguments": json!({ "command": command }).to_string() })
}

/// The tool results of a request, as id and text.
fn results(messages: &[Value]) -> Vec<(String, String)> {
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|result| (result["tool_call_id"].as_str().unwrap().to_owned(), text_of(result))).collect()
}

#[test]
fn calls_run_in_order_and_their_results_go_back() {
    let calls: Vec<Value> =
        ["one", "two", "three"].iter().map(|id| bash(id, &format!("echo {id} >> order; cat order"))).collect();
    let provider = Provider::start(&[
        json!({ "text": "Three at once.", "tool_calls": calls }),
        json!({ "tool_calls": [bash("four", "exit 7")] }),
        json!({ "text": "done" }),
    ]);
    let composition = Composition::on(&provider, "");
    let run = composition.prompt(&[], "go").completed();
    assert_eq!(run.result["text"], "done");
    assert_eq!(std::fs::read_to_string(composition.home().join("order")).unwrap(), "one\ntwo\nthree\n");

    let conversations = provider.conversations("");
    assert_eq!(conversations.len(), 3);
    let expected = [("one", "one\n"), ("two", "one\ntwo\n"), ("three", "one\ntwo\nthree\n")];
    let got = results(&conversations[1]);
    assert_eq!(got, expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
    let ids: Vec<&Value> =
        assistants(&conversations[1])[0]["tool_calls"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
    assert_eq!(ids, ["one", "two", "three"]);
    let failed = results(&conversations[2]).pop().unwrap();
    assert!(failed.0 == "four" && failed.1.contains("[exit code: 7]"), "{failed:?}");

    // A call is durable before it runs, and its result follows.
    let kinds: Vec<&str> = run.events.iter().filter_map(|event| event["type"].as_str()).collect();
    let tools: Vec<&str> = kinds.into_iter().filter(|kind| kind.starts_with("tool/")).collect();
    assert_eq!(tools, ["tool/call", "tool/result"].repeat(4));
}

#[test]
fn calls_that_cannot_be_read_never_run_and_the_model_is_told() {
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "name": name, "arguments": arguments });
    let calls = [
        call("cut", "bash", "{\"command\":\"touch ran"),
        call("list", "bash", "[\"touch ran\"]"),
        call("other", "bash", "{\"comand\":\"touch ran\"}"),
        call("nobody", "shell", "{\"command\":\"touch ran\"}"),
        bash("good", "touch good"),
    ];
    let provider = Provider::start(&[json!({ "tool_calls": calls }), json!({ "text": "sorry" })]);
    let composition = Composition::on(&provider, "");
    let run = composition.prompt(&[], "go").completed();
    assert!(!composition.home().join("ran").exists() && composition.home().join("good").exists());

    let sent = provider.conversations("").pop().unwrap();
    let got = results(&sent);
    let expected = [
        ("cut", "not a JSON object"),
        ("list", "not a JSON object"),
        ("other", "comand"),
        ("nobody", "no tool \"shell\""),
    ];
    for (at, (id, words)) in expected.into_iter().enumerate() {
        assert_eq!(got[at].0, id, "{got:?}");
        assert!(got[at].1.contains("The call was not run") && got[at].1.contains(words), "{id}: {got:?}");
    }
    // What cannot be read is never sent raw: a provider would refuse every later request for it.
    for call in assistants(&sent)[0]["tool_calls"].as_array().unwrap() {
        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments.is_object(), "{call}");
    }
    let results = run.of_kind("tool/result");
    let errors = results.iter().filter(|result| result["message"]["content"][0]["isError"] == true).count();
    assert_eq!((results.len(), errors), (5, 4));
}

/// Interrupts a run and checks that it ends as aborted within seconds.
fn interrupt(running: Running) -> Run {
    let begun = Instant::now();
    running.signal("INT");
    let run = Run::read(running.finish());
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
    assert_eq!((run.outcome.code, &run.result["reason"]["kind"]), (Some(1), &json!("aborted")), "{}", run.outcome);
    run
}

#[test]
fn an_interrupt_during_a_tool_ends_the_turn_and_the_whole_process_group() {
    let command = "echo $$ > shell; (echo $BASHPID > child; exec sleep 600) & echo started; wait";
    let provider = Provider::start(&[
        json!({ "text": "Working.", "tool_calls": [bash("slow", command), bash("next", "touch next")] }),
        json!({ "text": "fine" }),
    ]);
    let composition = Composition::on(&provider, "");
    let running = Running::start(composition.command(&["run", "--json", "go"]));
    let pid = |name: &str| {
        let path = composition.home().join(name);
        let mut text = String::new();
        wait_until(name, || {
            text = std::fs::read_to_string(&path).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim().to_owned()
    };
    let pids = [pid("shell"), pid("child")];
    let run = interrupt(running);
    for pid in pids {
        // What nobody reaps stays a zombie; it must not run any more.
        wait_until("the process group is dead", || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
        });
    }
    assert!(!composition.home().join("next").exists());

    let events = composition.events(run.session());
    let results = of_kind(&events, "tool/result");
    assert_eq!(results.len(), 2, "every call has a result");
    for (result, words) in results.iter().zip(["started\n[killed: the user cancelled]", "was not run"]) {
        let block = &result["message"]["content"][0];
        assert!(block["isError"] == true && block["content"][0]["text"].as_str().unwrap().contains(words), "{block}");
    }
    assert_eq!(of_kind(&events, "turn/end")[0]["reason"]["kind"], "aborted");
    let next = composition.prompt(&["--session", run.session()], "go on").completed();
    assert_eq!(next.result["text"], "fine");
}

#[test]
fn an_interrupt_during_an_answer_keeps_its_text_as_interrupted() {
    let long = "A long answer that ends much later.";
    let provider = Provider::start(&[
        json!({ "reasoning": "hm", "text": long, "chunk_chars": 13, "stall_after": 4 }),
        json!({ "text": "fine" }),
    ]);
    let composition = Composition::on(&provider, "");
    let mut running = Running::start(composition.command(&["run", "--json", "go"]));
    running.wait_for("\"text\":\" that ends mu\"");
    let run = interrupt(running);
    assert_eq!(run.result["text"], "A long answer that ends mu");
    let kept = run.of_kind("assistant/message");
    assert_eq!((kept.len(), &kept[0]["interrupted"]), (1, &json!(true)));
    assert!(run.outcome.stderr.contains("stopped"), "{}", run.outcome);

    let next = composition.prompt(&["--session", run.session()], "go on").completed();
    assert_eq!(next.result["text"], "fine");
    let _ = composition.events(run.session());
    let sent = provider.conversations("").pop().unwrap();
    assert_eq!(text_of(assistants(&sent)[0]), "A long answer that ends mu");
    assert!(
        sent.iter().any(|message| message["role"] == "user" && text_of(message).contains("interrupted")),
        "{sent:#?}"
    );
}
