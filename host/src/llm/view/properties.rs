//! What holds for the view of any history.

use dsh_plugin_api::json;
use dsh_plugin_api::vocab::{Block, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{input, result, stateful, text, user};
use super::*;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just(" ".to_owned()), "[a-z]{3}"]
}

fn any_id() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "1", "1", "2", "1_2", "x|y"]).prop_map(str::to_owned)
}

fn any_block() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => any_text().prop_map(|said| text(&said)),
        1 => any_text().prop_map(|said| json!({"type": "reasoning", "text": said})),
        3 => (any_id(), prop::sample::select(vec!["{}", "", "{\"a", "[]"])).prop_map(|(id, arguments)| {
            json!({"type": "tool-call", "id": id, "name": "bash", "arguments": arguments})
        }),
        3 => (any_id(), any_text(), prop::option::of(any::<bool>())).prop_map(|(id, said, is_error)| {
            let mut block = result(&id, &said);
            if let Some(is_error) = is_error {
                block["isError"] = json!(is_error);
            }
            block
        }),
        1 => prop::sample::select(vec![
            json!({"type": "hologram"}), json!(7), json!({"type": "tool-result"}), json!({"type": "tool-call", "name": "b"}),
            json!({"type": "image", "mimeType": "image/png", "data": "AA=="}), json!({"type": "image", "attachment": {}}),
        ]),
    ]
}

fn any_message() -> impl Strategy<Value = (Value, Fate, bool)> {
    let fates = prop::sample::select(vec![Fate::Native, Fate::Foreign, Fate::Foreign, Fate::FailedAttempt]);
    (0u8..8, proptest::collection::vec(any_block(), 0..4), fates, any::<bool>()).prop_map(
        |(role, blocks, fate, interrupted)| match role {
            0..=3 => (stateful(Value::Array(blocks)), fate, interrupted && fate != Fate::FailedAttempt),
            4 => {
                let mut message = user(Value::Array(blocks));
                message["role"] = json!("system");
                (message, Fate::Foreign, false)
            }
            5 => {
                let mut message = user(Value::Array(blocks));
                message["source"] = json!({"kind": "tool", "callId": "1"});
                (message, Fate::Foreign, false)
            }
            _ => (user(Value::Array(blocks)), Fate::Foreign, false),
        },
    )
}

/// What every provider insists on: each call is answered once, right behind its message, and nothing else is.
fn check_structure(view: &View) -> Result<(), TestCaseError> {
    let mut waiting: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for message in &view.request.messages {
        prop_assert!(!message.content.is_empty());
        let kinds: Vec<_> = message.content.iter().map(Block::kind).collect();
        if message.role == Role::Assistant {
            prop_assert!(waiting.is_empty(), "{waiting:?} not answered");
            for block in &message.content {
                match block {
                    Block::ToolCall { id, arguments, .. } => {
                        prop_assert!(!is_blank(id) && !seen.contains(id), "{id}");
                        prop_assert!(arguments.is_empty() || serde_json::from_str::<json::Object>(arguments).is_ok());
                        seen.push(id.clone());
                        waiting.push(id.clone());
                    }
                    Block::Text(_) | Block::Reasoning(_) | Block::Image(_) => {}
                    Block::ToolResult { .. } | Block::Other(_) => prop_assert!(false, "{kinds:?}"),
                }
            }
            continue;
        }
        prop_assert_eq!(message.role, Role::User);
        let results = kinds.iter().filter(|kind| *kind == "tool-result").count();
        prop_assert!(results == 0 || results == kinds.len(), "{kinds:?}");
        prop_assert!(results > 0 || waiting.is_empty());
        for block in &message.content {
            match block {
                Block::ToolResult { tool_call_id, content, is_error } => {
                    prop_assert!(!waiting.is_empty());
                    prop_assert_eq!(tool_call_id, &waiting.remove(0));
                    prop_assert!(is_error != &Some(true) || !content.is_empty());
                }
                Block::Text(text) => prop_assert!(!is_blank(text)),
                Block::Image(_) => {}
                _ => prop_assert!(false, "{kinds:?}"),
            }
        }
    }
    prop_assert!(waiting.is_empty());
    Ok(())
}

/// A turn that every provider takes as it is: a question, an answer, and a result for each of its calls.
fn healthy_turn() -> impl Strategy<Value = (Vec<bool>, usize, bool, bool)> {
    (proptest::collection::vec(any::<bool>(), 1..4), 0usize..4, any::<bool>(), any::<bool>())
}

/// The messages of healthy turns, each with its fate.
fn healthy_history(turns: &[(Vec<bool>, usize, bool, bool)]) -> (Vec<Value>, Vec<Fate>) {
    let (mut messages, mut fates) = (Vec::new(), Vec::new());
    for (turn, (blocks, calls, together, native)) in turns.iter().enumerate() {
        messages.push(user(format!("question {turn}").into()));
        fates.push(Fate::Foreign);
        let ids: Vec<_> = (0..*calls).map(|call| format!("{turn}_{call}")).collect();
        let mut content: Vec<_> = blocks
            .iter()
            .map(|reasoning| if *reasoning { json!({"type": "reasoning", "text": "r"}) } else { text("t") })
            .collect();
        // A blank text with a signature is part of a native answer only.
        content.push(text(if *native { " " } else { "said" }));
        let signed = content.len() - 1;
        content.extend(ids.iter().map(|id| json!({"type": "tool-call", "id": id, "name": "b", "arguments": "{}"})));
        let mut answer = stateful(Value::Array(content));
        if *native {
            answer["source"]["replayState"]["blocks"][signed]["s"] = json!("signature");
        } else {
            answer["source"].as_object_mut().unwrap().remove("replayState");
        }
        messages.push(answer);
        fates.push(if *native { Fate::Native } else { Fate::Foreign });
        let results: Vec<_> = ids.iter().map(|id| (id, result(id, "done"))).collect();
        if *together && !results.is_empty() {
            messages.push(user(results.into_iter().map(|(_, result)| result).collect()));
        } else {
            messages.extend(results.into_iter().map(|(id, result)| {
                json!({"id": "t", "role": "user", "content": [result], "source": {"kind": "tool", "callId": id}})
            }));
        }
        fates.resize(messages.len(), Fate::Foreign);
    }
    (messages, fates)
}

proptest! {
    /// A history that needs no repair goes out as it is, message by message.
    #[test]
    fn a_healthy_history_is_its_own_view(turns in proptest::collection::vec(healthy_turn(), 0..6)) {
        let (messages, fates) = healthy_history(&turns);
        let view = request_view(&input(&Value::Array(messages.clone())), &fates);
        prop_assert!(view.repairs.is_empty(), "{:?}", view.repairs);
        prop_assert_eq!(&view.positions, &(0..messages.len()).collect::<Vec<_>>());
        prop_assert_eq!(view.native(), fates.iter().filter(|fate| **fate == Fate::Native).count());
        prop_assert_eq!(serde_json::to_value(&view.request.messages).unwrap(), Value::Array(messages));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Any history: sendable, aligned, nothing said is lost without a repair, and the view of the view is the view.
    #[test]
    fn any_history_becomes_one_that_a_provider_takes(
        messages in proptest::collection::vec(any_message(), 0..8), images_from in 0usize..9,
    ) {
        let mut input = input(&messages.iter().map(|(message, ..)| message.clone()).collect());
        input.images_from = images_from;
        for (entry, (.., interrupted)) in input.history.iter_mut().zip(&messages) {
            entry.interrupted = *interrupted;
        }
        let fates: Vec<_> = messages.iter().map(|(_, fate, _)| *fate).collect();
        let view = request_view(&input, &fates);
        check_structure(&view)?;
        let same = request_view(&input, &fates);
        prop_assert_eq!(raw_text(&same), raw_text(&view));
        prop_assert_eq!(&same.repairs, &view.repairs);
        prop_assert_eq!(view.positions.len(), view.request.messages.len());
        prop_assert_eq!(view.routing.len(), view.request.messages.len());
        prop_assert!(view.positions.iter().all(|position| *position < messages.len()));
        prop_assert!(view.repairs.is_sorted_by_key(|repair| repair.message));

        // Entries stay aligned with the blocks of native messages.
        for (message, routing) in view.request.messages.iter().zip(&view.routing) {
            let source = serde_json::to_value(&message.source).unwrap();
            match (routing, source.get("replayState")) {
                (Routing::Native, Some(state)) => {
                    let kinds: Vec<_> = message.content.iter().map(|block| json!({"type": block.kind()})).collect();
                    prop_assert_eq!(&state["blocks"], &Value::Array(kinds));
                }
                (Routing::Native, None) => prop_assert!(false, "a native message without its state"),
                (Routing::Foreign, state) => prop_assert!(state.is_none()),
            }
        }

        // Text survives: word by word, unless a repair names its message.
        let sent = raw_text(&view);
        for (position, (message, fate, _)) in messages.iter().enumerate() {
            let named = view.repairs.iter().any(|repair| repair.message == position);
            for word in words(message) {
                prop_assert!(sent.contains(&word) || named || *fate == Fate::FailedAttempt, "{word} of {position}");
            }
        }

        // Images go as a whole, and each that goes is named.
        let images = view.images();
        prop_assert!(images.iter().all(|position| *position >= images_from));
        prop_assert!(images.is_sorted());
        let all = request_view(&RequestInput { images_from: 0, ..input.clone() }, &fates);
        let refused = all.images().iter().filter(|position| **position < images_from).count();
        prop_assert_eq!(all.images().len(), images.len() + refused);
        let named = view.repairs.iter().filter(|repair| repair.kind == RepairKind::RefusedImage.name()).count();
        prop_assert_eq!(named, refused);

        let again = RequestInput {
            system: view.request.system.clone(),
            history: view.request.messages.iter().cloned().map(HistoryMessage::from).collect(),
            ..RequestInput::default()
        };
        let fates: Vec<_> = view.routing.iter()
            .map(|routing| if *routing == Routing::Native { Fate::Native } else { Fate::Foreign }).collect();
        let twice = request_view(&again, &fates);
        prop_assert_eq!(
            serde_json::to_value(&twice.request.messages).unwrap(),
            serde_json::to_value(&view.request.messages).unwrap()
        );
        prop_assert!(twice.repairs.is_empty(), "{:?}", twice.repairs);
    }
}

fn raw_text(view: &View) -> String {
    serde_json::to_string(&view.request).unwrap()
}

/// The words of text and results.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(words).collect(),
        Value::Object(members) if members.get("type") == Some(&json!("text")) => members["text"]
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .into_iter()
            .collect(),
        Value::Object(members) => members.get("content").map(words).unwrap_or_default(),
        _ => Vec::new(),
    }
}
