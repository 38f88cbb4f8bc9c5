mod pairing;

use dsh_plugin_api::json;
use dsh_plugin_api::vocab::{Request, Source};
use serde_json::{Value, json};

use super::*;

pub(super) fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

pub(super) fn user(content: Value) -> Value {
    let content = if content.is_string() { json!([text(content.as_str().unwrap())]) } else { content };
    json!({"id": "u", "role": "user", "content": content, "source": {"kind": "user"}})
}

fn assistant(content: Value) -> Value {
    json!({"id": "a", "role": "assistant", "content": content, "source": {"kind": "model", "provider": "p", "model": "m"}})
}

fn call(id: &str) -> Value {
    json!({"type": "tool-call", "id": id, "name": "bash", "arguments": "{}"})
}

pub(super) fn result(id: &str, said: &str) -> Value {
    json!({"type": "tool-result", "toolCallId": id, "content": [text(said)]})
}

fn tool(id: &str, said: &str) -> Value {
    json!({"id": "t", "role": "user", "content": [result(id, said)], "source": {"kind": "tool", "callId": id}})
}

fn no_result(id: &str) -> Value {
    json!({"type": "tool-result", "toolCallId": id, "content": [text(emit::UNANSWERED)], "isError": true})
}

pub(super) fn input(messages: &Value) -> RequestInput {
    json::from_str::<Request>(&json!({ "messages": messages }).to_string()).unwrap().into()
}

fn view_of(messages: &Value) -> View {
    let input = input(messages);
    request_view(&input, &vec![Fate::Foreign; input.history.len()])
}

fn repairs(view: &View) -> Vec<(usize, &str)> {
    view.repairs.iter().map(|repair| (repair.message, repair.kind.as_str())).collect()
}

/// Role and content of each message.
fn said(view: &View) -> Value {
    let messages = view.request.messages.iter();
    messages.map(|message| json!([message.role, serde_json::to_value(&message.content).unwrap()])).collect()
}

/// The view of `messages` says `expected` after these repairs.
fn repaired(messages: Value, expected: Value, kinds: &[(usize, &str)]) {
    let view = view_of(&messages);
    assert_eq!(said(&view), expected);
    assert_eq!(repairs(&view), kinds);
}

#[test]
fn a_history_that_needs_no_repair_is_unchanged() {
    let messages = json!([
        user("q".into()),
        assistant(json!([{"type": "reasoning", "text": "r"}, text("t"), call("1"), call("2")])),
        tool("1", "one"),
        {"id": "t2", "role": "user", "content": [result("2", "two")], "source": {"kind": "tool", "callId": "2"}, "more": 1},
        assistant(json!([call("3"), call("4")])),
        {"id": "t3", "role": "user", "content": [result("3", "three"), result("4", "four")], "source": {"kind": "user"}},
        assistant(json!([call("5")])),
        {"id": "t5", "role": "user", "source": {"kind": "tool", "callId": "5"},
         "content": [{"type": "tool-result", "toolCallId": "5", "content": []}]},
        user(json!([text("look"), {"type": "image", "mimeType": "image/png", "data": "AA=="}])),
        user("note".into()),
    ]);
    let view = view_of(&messages);
    assert_eq!(serde_json::to_value(&view.request.messages).unwrap(), messages);
    assert!(view.repairs.is_empty(), "{:?}", view.repairs);
    assert_eq!(view.positions, (0..10).collect::<Vec<_>>());
}

#[test]
fn ids_and_contents_of_other_json_types_are_read() {
    let number = |id: u32| json!({"type": "tool-call", "id": id, "name": "bash", "arguments": "{}"});
    for (content, read) in [
        (json!(null), json!([])),
        (json!("bare"), json!([text("bare")])),
        (json!({"a": 1}), json!([text("{\"a\":1}")])),
        (json!(5), json!([text("5")])),
    ] {
        let odd = json!({"type": "tool-result", "toolCallId": 8, "content": content});
        repaired(
            json!([assistant(json!([number(7), number(8)])), user(json!([odd])), tool("7", "seven")]),
            json!([
                ["assistant", [call("7"), call("8")]],
                ["user", [result("7", "seven")]],
                ["user", [{"type": "tool-result", "toolCallId": "8", "content": read}]]
            ]),
            &[(1, "result-order")],
        );
    }
}

#[test]
fn unparseable_arguments_are_never_sent() {
    for (arguments, sent, broken) in [
        ("{\"a\":\"echo hel", "{}", true),
        ("[1,2]", "{}", true),
        ("\"str\"", "{}", true),
        ("null", "{}", true),
        ("{} {}", "{}", true),
        ("", "", false),
        ("  ", "", false),
        ("{\"n\":12345678901234567890123,\"a\":1,\"a\":2}", "{\"n\":12345678901234567890123,\"a\":1,\"a\":2}", false),
        ("{\"a\":\"x\\ud83d\"}", "{\"a\":\"x\\ufffd\"}", false),
    ] {
        let block = json!({"type": "tool-call", "id": "1", "name": "b", "arguments": arguments});
        let view = view_of(&json!([assistant(json!([block])), tool("1", "one")]));
        assert_eq!(said(&view)[0][1][0]["arguments"], sent, "{arguments}");
        let expected: &[(usize, &str)] = if broken { &[(0, "unparseable-arguments")] } else { &[] };
        assert_eq!(repairs(&view), expected, "{arguments}");
    }
}

#[test]
fn what_cannot_be_sent_is_left_out_or_replaced_by_a_note() {
    let image = |data: &str, mime: &str| json!({"type": "image", "mimeType": mime, "data": data});
    repaired(
        json!([
            user(
                json!([text(" \u{1c}"), image("", "image/png"), image("AA==", "text/html"), {"type": "image", "attachment": "a.png"},
                        {"type": "chart", "x": 1}, {"type": "reasoning", "text": "r"}, call("1"), 7])
            ),
            assistant(json!([{"type": "chart"}, text("\n"), image("AA==", "image/png"), text("t"),
                             {"type": "tool-call", "id": "1", "name": "", "arguments": "{}"}])),
        ]),
        json!([
            [
                "user",
                [
                    text("[image left out: it has no data]"),
                    text("[image left out: its type is \"text/html\"]"),
                    text("[image left out: the attachment \"a.png\" is not at hand]")
                ]
            ],
            ["assistant", [text("t")]]
        ]),
        &[
            (0, "blank-text"),
            (0, "unusable-image"),
            (0, "unusable-image"),
            (0, "unusable-image"),
            (0, "unknown-block"),
            (0, "misplaced-block"),
            (0, "misplaced-block"),
            (0, "unknown-block"),
            (1, "unknown-block"),
            (1, "blank-text"),
            (1, "misplaced-block"),
            (1, "nameless-call"),
        ],
    );
}

#[test]
fn images_before_the_position_that_is_asked_for_become_notes() {
    let image = || json!({"type": "image", "mimeType": "image/png", "data": "AA=="});
    let shot = json!({"type": "tool-result", "toolCallId": "1", "content": [text("shot"), image()]});
    let mut input = input(&json!([
        user(json!([text("look"), image(), image(), {"type": "image", "mimeType": "image/png", "data": ""}])),
        assistant(json!([call("1")])),
        user(json!([shot])),
        user(json!([image()])),
    ]));
    assert_eq!(request_view(&input, &[Fate::Foreign; 4]).images(), [0, 0, 2, 3]);
    input.images_from = 3;
    let view = request_view(&input, &[Fate::Foreign; 4]);
    assert_eq!(
        said(&view),
        json!([
            [
                "user",
                [text("look"), text(image::REFUSED_IMAGE), text(image::REFUSED_IMAGE), text("[image left out: it has no data]")]
            ],
            ["assistant", [call("1")]],
            [
                "user",
                [{"type": "tool-result", "toolCallId": "1", "content": [text("shot"), text(image::REFUSED_IMAGE)]}]
            ],
            ["user", [image()]]
        ])
    );
    assert_eq!(
        repairs(&view),
        [(0, "refused-image"), (0, "refused-image"), (0, "unusable-image"), (2, "refused-image")]
    );
    assert_eq!(view.images(), [3]);
    input.images_from = 4;
    assert!(request_view(&input, &[Fate::Foreign; 4]).images().is_empty());
}

#[test]
fn the_content_of_results_is_cleaned_too() {
    repaired(
        json!([
            assistant(json!([call("1"), call("2")])),
            user(json!([
                {"type": "tool-result", "toolCallId": "1", "content": [text(""), {"type": "chart"}, result("x", "inner")]},
                {"type": "tool-result", "toolCallId": "2", "content": [text(" ")], "isError": true}
            ])),
        ]),
        json!([
            ["assistant", [call("1"), call("2")]],
            ["user", [result("1", "inner"),
                      {"type": "tool-result", "toolCallId": "2", "content": [text("(no tool output)")], "isError": true}]]
        ]),
        &[(1, "blank-text"), (1, "unknown-block"), (1, "misplaced-block"), (1, "blank-text"), (1, "empty-error")],
    );
}

#[test]
fn results_and_other_content_of_one_message_are_sent_as_two() {
    repaired(
        json!([assistant(json!([call("1")])), user(json!([text("before"), result("1", "one"), text("after")]))]),
        json!([["assistant", [call("1")]], ["user", [result("1", "one")]], ["user", [text("before"), text("after")]]]),
        &[(1, "split-message")],
    );
    repaired(
        json!([assistant(json!([call("1"), result("1", "one"), text("t"), result("9", "nine")]))]),
        json!([
            ["assistant", [call("1"), text("t")]],
            ["user", [result("1", "one")]],
            ["user", [text("[result of a tool call that is not part of this conversation]\nnine")]]
        ]),
        &[(0, "orphan-result"), (0, "split-message")],
    );
    // Of a message of results alone only those that become text are a second message.
    repaired(
        json!([assistant(json!([call("1")])), user(json!([result("1", "one"), result("1", "two")]))]),
        json!([
            ["assistant", [call("1")]],
            ["user", [result("1", "one")]],
            ["user", [text("[further result of an earlier tool call]\ntwo")]]
        ]),
        &[(1, "duplicate-result"), (1, "split-message")],
    );
    repaired(
        json!([assistant(json!([call("1")])), assistant(json!([result("1", "one")]))]),
        json!([["assistant", [call("1")]], ["user", [result("1", "one")]]]),
        &[],
    );
    repaired(
        json!([
            assistant(json!([call("1"), call("2")])),
            assistant(json!([text("t"), result("1", "one")])),
            tool("2", "two")
        ]),
        json!([
            ["assistant", [call("1"), call("2")]],
            ["user", [result("1", "one")]],
            ["user", [result("2", "two")]],
            ["assistant", [text("t")]]
        ]),
        &[(1, "split-message"), (2, "result-moved")],
    );
}

#[test]
fn sources_change_only_with_what_they_name() {
    let sources = |messages: Value| -> Value {
        let view = view_of(&messages);
        view.request.messages[1..].iter().map(|message| serde_json::to_value(&message.source).unwrap()).collect()
    };
    let from = |id: &str, content: Value| {
        let mut message = user(content);
        message["source"] = json!({"kind": "tool", "callId": id});
        message
    };
    let ask = || assistant(json!([call("1")]));
    let (of_user, of_host) = (json!({"kind": "user"}), serde_json::to_value(Source::host()).unwrap());
    let of_tool = |id: &str| json!({"kind": "tool", "callId": id});
    // The text beside a result is the user's, or the host's when the message was a tool's.
    let both = json!([result("1", "one"), text("more")]);
    assert_eq!(sources(json!([ask(), user(both.clone())])), json!([of_user, of_user]));
    assert_eq!(sources(json!([ask(), from("1", both)])), json!([of_tool("1"), of_host]));
    assert_eq!(sources(json!([user("q".into()), from("1", "t".into())])), json!([of_tool("1")]));
    // A source that differs from its result is as good as any, as long as the result keeps its id.
    assert_eq!(sources(json!([ask(), from("x", json!([result("1", "one")]))])), json!([of_tool("x")]));
}

#[test]
fn messages_with_nothing_to_say_are_left_out() {
    repaired(
        json!([
            user("  ".into()),
            assistant(json!([])),
            assistant(json!([{"type": "reasoning", "text": "only"}])),
            user("q".into())
        ]),
        json!([["user", [text("q")]]]),
        &[(0, "blank-text"), (0, "empty-message"), (1, "empty-message"), (2, "empty-message")],
    );
}

#[test]
fn system_messages_join_the_prompt_or_become_notes() {
    let system = |said: &str| json!({"role": "system", "content": [text(said)], "source": {"kind": "user"}});
    let mut input = input(&json!([system("two"), system(" "), user("q".into()), system("later")]));
    input.system = Some("one".to_owned());
    let view = request_view(&input, &[Fate::Foreign; 4]);
    assert_eq!(view.request.system.as_deref(), Some("one\n\ntwo"));
    assert_eq!(said(&view), json!([["user", [text("q")]], ["user", [text("later")]]]));
    assert_eq!(view.positions, [2, 3]);
    assert_eq!(repairs(&view), [(0, "system-message"), (1, "system-message"), (3, "system-message")]);
    input.history.clear();
    input.system = Some(" \n".to_owned());
    assert_eq!(request_view(&input, &[]).request.system, None);
}

#[test]
fn failed_attempts_are_left_out_and_their_results_are_nobody_elses() {
    let input = input(&json!([
        assistant(json!([call("1")])),
        assistant(json!([text("partial"), call("1"), call("")])),
        tool("1", "late"),
        tool("", "lost")
    ]));
    let view = request_view(&input, &[Fate::Foreign, Fate::FailedAttempt, Fate::Foreign, Fate::Foreign]);
    assert_eq!(
        said(&view),
        json!([
            ["assistant", [call("1")]],
            ["user", [no_result("1")]],
            ["user", [text("[result of a tool call that is not part of this conversation]\nlate")]],
            ["user", [text("[result of a tool call that is not part of this conversation]\nlost")]]
        ])
    );
    assert_eq!(
        repairs(&view),
        [(0, "unanswered-call"), (1, "failed-attempt"), (2, "orphan-result"), (3, "orphan-result")]
    );
}

#[test]
fn an_interrupted_answer_is_followed_by_a_note_and_only_if_it_says_something() {
    let mut input = input(&json!([assistant(json!([text("half")])), assistant(json!([])), user("q".into())]));
    input.history[0].interrupted = true;
    input.history[1].interrupted = true;
    let view = request_view(&input, &[Fate::Foreign; 3]);
    assert_eq!(
        said(&view),
        json!([["assistant", [text("half")]], ["user", [text(emit::INTERRUPTED)]], ["user", [text("q")]]])
    );
    assert_eq!(view.positions, [0, 0, 2]);
    assert_eq!(repairs(&view), [(1, "empty-message")]);
}

/// An assistant message with a state that has one marked entry per block.
pub(super) fn stateful(content: Value) -> Value {
    let blocks: Vec<_> = content.as_array().unwrap().iter().map(|block| json!({"type": block["type"]})).collect();
    let mut message = assistant(content);
    message["source"]["replayState"] = json!({"response": {"kind": "k"}, "blocks": blocks, "more": 1});
    message
}

#[test]
fn a_block_of_a_native_message_leaves_with_its_entry() {
    let mut message =
        stateful(json!([text(" "), {"type": "reasoning", "text": "r"}, text(""), {"type": "chart"}, text("t")]));
    message["source"]["replayState"]["blocks"][2]["s"] = json!("signed");
    let view = request_view(&input(&json!([message])), &[Fate::Native]);
    assert_eq!(said(&view), json!([["assistant", [{"type": "reasoning", "text": "r"}, text(""), text("t")]]]));
    let source = serde_json::to_value(&view.request.messages[0].source).unwrap();
    assert_eq!(
        source["replayState"],
        json!({"response": {"kind": "k"}, "blocks": [{"type": "reasoning"}, {"type": "text", "s": "signed"}, {"type": "text"}], "more": 1})
    );
    assert_eq!(repairs(&view), [(0, "blank-text"), (0, "unknown-block")]);
    assert_eq!(view.routing, [Routing::Native]);
    assert_eq!(view.native(), 1);
}

#[test]
fn a_native_message_may_be_reasoning_alone_and_an_unchanged_state_keeps_its_text() {
    let mut message = stateful(
        json!([{"type": "reasoning", "text": ""}, {"type": "image", "mimeType": "image/png", "data": "AA=="}]),
    );
    message["source"]["replayState"]["big"] = json!(1.5);
    let view = request_view(&input(&json!([message])), &[Fate::Native]);
    assert_eq!(serde_json::to_value(&view.request.messages).unwrap(), json!([message]));
    assert!(view.repairs.is_empty());
    let mut blank = stateful(json!([text(" ")]));
    blank["source"]["replayState"].as_object_mut().unwrap().remove("blocks");
    let view = request_view(&input(&json!([blank])), &[Fate::Native]);
    assert!(view.request.messages.is_empty());
    assert_eq!(repairs(&view), [(0, "blank-text"), (0, "empty-message")]);
}

#[test]
fn hostile_nesting_of_results_ends_somewhere() {
    // Built as text: the JSON library of the tests reads no such depth.
    let depth = 50_000;
    let nested = r#"{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"said"},"#.repeat(depth)
        + r#"{"type":"text","text":"deepest"}"#
        + &"]}".repeat(depth);
    let messages = format!(
        r#"{{"messages":[{},{{"id":"t","role":"user","content":[{nested}],"source":{{"kind":"tool","callId":"c"}}}}]}}"#,
        assistant(json!([call("c")]))
    );
    let input = RequestInput::from(json::from_str::<Request>(&messages).unwrap());
    let view = request_view(&input, &[Fate::Foreign; 2]);
    let said = said(&view)[1][1][0]["content"].as_array().unwrap().len();
    assert!((2..20).contains(&said), "{said}");
    assert_eq!(repairs(&view).iter().filter(|(_, kind)| *kind != "misplaced-block").count(), 0);
}

#[test]
fn a_foreign_message_carries_no_state_into_the_request() {
    let view = view_of(&json!([stateful(json!([text("t")]))]));
    let source = serde_json::to_value(&view.request.messages[0].source).unwrap();
    assert_eq!(source, json!({"kind": "model", "provider": "p", "model": "m"}));
    assert!(view.repairs.is_empty());
    assert_eq!(view.routing, [Routing::Foreign]);
}

#[test]
fn settings_and_tools_pass_through() {
    let request = json!({
        "system": "s", "messages": [user("q".into())], "maxTokens": 5, "temperature": 0.5, "reasoningEffort": "low",
        "tools": [{"name": "bash", "description": "d", "parameters": {"type": "object"}}]
    });
    let input = RequestInput::from(json::from_str::<Request>(&request.to_string()).unwrap());
    assert_eq!(serde_json::to_value(request_view(&input, &[Fate::Foreign]).request).unwrap(), request);
}

#[test]
fn repair_names_are_distinct_and_described() {
    for (at, kind) in RepairKind::ALL.iter().enumerate() {
        assert!(RepairKind::ALL[..at].iter().all(|other| other.name() != kind.name()));
        assert!(kind.description().ends_with('.'), "{kind:?}");
        assert!(!kind.description().starts_with(' '));
    }
}

#[test]
fn every_repair_is_described_in_the_documentation_in_order_and_with_its_reason() {
    let mut page = include_str!("../../../../docs/never-stuck.md");
    for kind in RepairKind::ALL {
        let row = format!("\n| `{}` | {} | ", kind.name(), kind.description());
        let Some((_, rest)) = page.split_once(&row) else {
            panic!("docs/never-stuck.md lacks this row, or has it elsewhere: {row}")
        };
        page = rest;
        let reason = page.lines().next().unwrap();
        assert!(reason.ends_with(". |") && reason.len() > 10, "{}: {reason}", kind.name());
    }
}

/// Each took a second and more as long as every result, call or repair was looked for among all others.
#[test]
fn thousands_of_messages_in_any_disorder_are_put_in_order_in_one_pass() {
    const MANY: usize = 3_000;
    let message = |role, content| Message::new("m", role, content, Source::host());
    let asked = |ids: &mut dyn Iterator<Item = String>| {
        let call = |id| Block::ToolCall { id, name: "bash".to_owned(), arguments: "{}".to_owned() };
        message(Role::Assistant, ids.map(call).collect())
    };
    let told = |id: String| {
        let content = vec![Block::Text("late".to_owned())];
        message(Role::User, vec![Block::ToolResult { tool_call_id: id, content, is_error: None }])
    };
    let said = |role, text: &str| message(role, vec![Block::Text(text.to_owned())]);
    let each = |message: &dyn Fn(usize) -> Message| (0..MANY).map(message).collect::<Vec<_>>();
    let ask = |id: String| asked(&mut std::iter::once(id));
    let (calls, results) = (each(&|at| ask(at.to_string())), each(&|at| told(at.to_string())));
    let reversed: Vec<_> = results.iter().rev().cloned().collect();
    let one = vec![ask("0".to_owned())];
    for (what, history, repairs) in [
        ("results behind all calls", [calls.clone(), results.clone()].concat(), MANY - 1),
        ("the same in reverse", [calls.clone(), reversed.clone()].concat(), MANY - 1),
        (
            "results of one message in reverse",
            [vec![asked(&mut (0..MANY).map(|at| at.to_string()))], reversed].concat(),
            MANY - 1,
        ),
        (
            "calls of one id in one message",
            [vec![asked(&mut (0..MANY).map(|_| "1".to_owned()))], each(&|_| told("1".to_owned()))].concat(),
            MANY - 1,
        ),
        ("results without calls", [calls.clone(), each(&|at| told(format!("x{at}")))].concat(), 2 * MANY),
        ("results without ids", [calls, each(&|_| told(String::new()))].concat(), 2 * MANY - 1),
        ("further results", [one.clone(), each(&|_| told("0".to_owned()))].concat(), MANY - 1),
        (
            "notes in between",
            [one.clone(), each(&|_| said(Role::User, "n")), vec![told("0".to_owned())]].concat(),
            MANY,
        ),
        ("ids that repeat", each(&|_| ask("1".to_owned())), 2 * MANY - 1),
        ("silent answers in between", [one, each(&|_| said(Role::Assistant, " ")), results].concat(), 3 * MANY - 1),
        ("system messages", [each(&|_| said(Role::System, "rule")), vec![said(Role::User, "q")]].concat(), MANY),
    ] {
        let history: Vec<_> = history.into_iter().map(HistoryMessage::from).collect();
        let (input, fates) = (RequestInput { history, ..RequestInput::default() }, vec![Fate::Foreign; 2 * MANY + 1]);
        let begin = std::time::Instant::now();
        let view = request_view(&input, &fates);
        let took = begin.elapsed();
        assert!(took < std::time::Duration::from_secs(2), "{what}: {took:?}");
        assert_eq!(view.repairs.len(), repairs, "{what}");
    }
}
