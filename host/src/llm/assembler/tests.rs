use dsh_plugin_api::vocab::{Failure, FailureCode};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn chunks(values: Value) -> Vec<Chunk> {
    json::from_str(&values.to_string()).unwrap()
}

fn assemble(values: Value) -> Assembled {
    let mut assembler = BlockAssembler::new();
    for chunk in chunks(values) {
        assembler.push(&chunk);
    }
    assembler.assemble()
}

fn content(assembled: &Assembled) -> Value {
    serde_json::to_value(&assembled.content).unwrap()
}

fn entries(assembled: &Assembled) -> Value {
    let state: Value = serde_json::from_str(assembled.replay_state.as_ref().unwrap().get()).unwrap();
    state.get("blocks").cloned().unwrap_or(Value::Null)
}

fn start(index: u32, kind: &str) -> Value {
    json!({"type": "block-start", "index": index, "blockType": kind})
}

fn text(index: u32, text: &str) -> Value {
    json!({"type": "text-delta", "index": index, "text": text})
}

fn reasoning(index: u32, text: &str) -> Value {
    json!({"type": "reasoning-delta", "index": index, "text": text})
}

fn call(index: u32, id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "tool-call-delta", "index": index, "id": id, "name": name, "argumentsDelta": arguments})
}

fn end(index: u32, block: Value) -> Value {
    json!({"type": "block-end", "index": index, "block": block})
}

fn finish(kind: &str, blocks: Value) -> Value {
    let failure = json!({"message": "m", "code": "TRANSPORT"});
    let reason = if matches!(kind, "error" | "aborted") {
        json!({"kind": kind, "failure": failure})
    } else {
        json!({"kind": kind})
    };
    if blocks.is_null() {
        return json!({"type": "finish", "reason": reason});
    }
    json!({"type": "finish", "reason": reason, "replayState": {"response": {"kind": "x", "version": 1}, "blocks": blocks}})
}

/// Reasoning, text and a call, all closed, with entries that name their block.
fn closed_answer(kind: &str) -> Value {
    json!([
        start(0, "reasoning"),
        reasoning(0, "think"),
        end(0, json!({"type": "reasoning", "text": "think"})),
        start(1, "text"),
        text(1, "say"),
        end(1, json!({"type": "text", "text": "say"})),
        start(2, "tool-call"),
        call(2, "c", "bash", "{}"),
        end(2, json!({"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"})),
        finish(kind, json!([{"type": "reasoning", "s": 0}, {"type": "text", "s": 1}, {"type": "tool-call", "s": 2}])),
    ])
}

#[test]
fn a_complete_answer_passes_through_with_its_envelope() {
    for kind in ["stop", "tool-calls"] {
        let assembled = assemble(closed_answer(kind));
        assert_eq!(
            content(&assembled),
            json!([
                {"type": "reasoning", "text": "think"},
                {"type": "text", "text": "say"},
                {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}
            ])
        );
        assert_eq!(
            assembled.replay_state.as_ref().unwrap().get(),
            r#"{"response":{"kind":"x","version":1},"blocks":[{"type":"reasoning","s":0},{"type":"text","s":1},{"type":"tool-call","s":2}]}"#
        );
        assert_eq!(assembled.finish, FinishReason::ToolCalls);
        assert!(assembled.dropped.is_empty());
        assert_eq!(assembled.discarded_envelope, None);
    }
}

#[test]
fn a_tool_call_goes_with_its_entry_when_the_answer_was_cut() {
    for kind in ["max-tokens", "error", "aborted"] {
        let assembled = assemble(closed_answer(kind));
        assert_eq!(
            content(&assembled),
            json!([{"type": "reasoning", "text": "think"}, {"type": "text", "text": "say"}]),
            "{kind}"
        );
        assert_eq!(entries(&assembled), json!([{"type": "reasoning", "s": 0}, {"type": "text", "s": 1}]), "{kind}");
        assert_eq!(assembled.finish.kind(), kind);
        assert_eq!(assembled.dropped.len(), 1);
        assert_eq!(assembled.dropped[0].0, 2);
    }
}

#[test]
fn a_dropped_block_in_the_middle_takes_its_own_entry() {
    let assembled = assemble(json!([
        start(0, "tool-call"),
        call(0, "c", "bash", "{\"a"),
        start(1, "text"),
        text(1, "after"),
        finish("max-tokens", json!([{"type": "tool-call", "s": 0}, {"type": "text", "s": 1}])),
    ]));
    assert_eq!(content(&assembled), json!([{"type": "text", "text": "after"}]));
    assert_eq!(entries(&assembled), json!([{"type": "text", "s": 1}]));
}

#[test]
fn deltas_after_block_end_are_ignored_and_the_first_block_end_wins() {
    let assembled = assemble(json!([
        start(0, "text"),
        text(0, "draft"),
        end(0, json!({"type": "text", "text": "final"})),
        text(0, " late"),
        end(0, json!({"type": "text", "text": "second"})),
        start(1, "reasoning"),
        end(1, json!({"type": "reasoning", "text": "r"})),
        reasoning(1, " late"),
        start(2, "tool-call"),
        end(2, json!({"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"})),
        call(2, "d", "m", " late"),
        finish("stop", Value::Null),
    ]));
    assert_eq!(
        content(&assembled),
        json!([
            {"type": "text", "text": "final"},
            {"type": "reasoning", "text": "r"},
            {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"}
        ])
    );
}

#[test]
fn an_unclosed_block_assembles_from_its_deltas() {
    let assembled = assemble(json!([
        start(0, "reasoning"),
        reasoning(0, "th"),
        reasoning(0, "ink"),
        start(1, "text"),
        text(1, "Hel"),
        start(2, "tool-call"),
        call(2, "", "", "{\"a\""),
        {"type": "tool-call-delta", "index": 2, "id": "c", "argumentsDelta": ""},
        call(2, "", "bash", ":1}"),
        text(1, "lo"),
        finish("tool-calls", json!([{"type": "reasoning", "s": 0}, {"type": "text"}, {"type": "tool-call", "s": 2}])),
    ]));
    assert_eq!(
        content(&assembled),
        json!([
            {"type": "reasoning", "text": "think"},
            {"type": "text", "text": "Hello"},
            {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{\"a\":1}"}
        ])
    );
    assert_eq!(entries(&assembled)[0], json!({"type": "reasoning", "s": 0}));
}

#[test]
fn an_interruption_keeps_open_text_bare_and_drops_open_reasoning() {
    for kind in ["error", "aborted"] {
        let assembled = assemble(json!([
            start(0, "text"),
            end(0, json!({"type": "text", "text": "closed"})),
            start(1, "text"),
            text(1, "open"),
            start(2, "reasoning"),
            reasoning(2, "open"),
            finish(kind, json!([{"type": "text", "s": 0}, {"type": "text", "s": 1}, {"type": "reasoning", "s": 2}])),
        ]));
        assert_eq!(content(&assembled), json!([{"type": "text", "text": "closed"}, {"type": "text", "text": "open"}]));
        assert_eq!(entries(&assembled), json!([{"type": "text", "s": 0}, {"type": "text"}]));
        assert_eq!(assembled.dropped.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2]);
    }
}

#[test]
fn an_attempt_without_a_finish_counts_as_cut_off() {
    let assembled = assemble(json!([
        start(0, "reasoning"),
        end(0, json!({"type": "reasoning", "text": "r"})),
        start(1, "text"),
        text(1, "Hel"),
        start(2, "tool-call"),
        end(2, json!({"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"})),
    ]));
    assert_eq!(content(&assembled), json!([{"type": "reasoning", "text": "r"}, {"type": "text", "text": "Hel"}]));
    assert!(assembled.replay_state.is_none());
    assert_eq!(assembled.finish.failure().map(|failure| failure.code.clone()), Some(FailureCode::Transport));
}

#[test]
fn empty_blocks_are_dropped_unless_their_entry_says_more_than_its_type() {
    let answer = |blocks: Value| {
        assemble(json!([
            start(0, "text"),
            start(1, "reasoning"),
            start(2, "text"),
            text(2, " "),
            finish("stop", blocks)
        ]))
    };
    let bare = answer(json!([{"type": "text"}, {"type": "reasoning"}, {"type": "text"}]));
    assert_eq!(content(&bare), json!([{"type": "text", "text": " "}]));
    assert_eq!(entries(&bare), json!([{"type": "text"}]));
    assert_eq!(bare.dropped, [(0, "empty text"), (1, "empty reasoning")]);
    let signed = answer(json!([{"type": "text", "s": 0}, {"type": "reasoning", "redacted": true}, {"type": "text"}]));
    assert_eq!(signed.content.len(), 3);
    assert!(signed.dropped.is_empty());
    assert_eq!(content(&answer(Value::Null)), json!([{"type": "text", "text": " "}]));
}

#[test]
fn a_misaligned_envelope_is_discarded_whole() {
    for (blocks, reason) in [
        (json!([{"type": "text", "s": 0}]), "1 block entries for 2 blocks"),
        (json!([{"type": "text"}, {"type": "reasoning"}, {"type": "text"}]), "3 block entries for 2 blocks"),
        (json!([]), "0 block entries for 2 blocks"),
        (json!([{"type": "reasoning", "s": 0}, {"type": "text", "s": 1}]), "entry of block 4 is of type \"reasoning\""),
    ] {
        let assembled = assemble(json!([
            start(4, "text"),
            text(4, "a"),
            start(7, "reasoning"),
            reasoning(7, "b"),
            finish("stop", blocks)
        ]));
        assert_eq!(assembled.content.len(), 2, "the content is the record");
        assert!(assembled.replay_state.is_none());
        let why = assembled.discarded_envelope.unwrap();
        assert!(why.contains(reason), "{why}");
    }
}

#[test]
fn an_entry_without_a_type_contradicts_nothing() {
    let assembled = assemble(json!([start(0, "text"), text(0, "a"), finish("stop", json!([{"s": 0}]))]));
    assert_eq!(entries(&assembled), json!([{"s": 0}]));
}

#[test]
fn an_envelope_without_entries_passes_through_whatever_is_dropped() {
    let state = json!({"response": {"kind": "x", "big": 1}});
    let assembled = assemble(json!([
        start(0, "tool-call"),
        call(0, "c", "n", "{}"),
        {"type": "finish", "reason": {"kind": "max-tokens"}, "replayState": state},
    ]));
    assert!(assembled.content.is_empty());
    assert_eq!(assembled.replay_state.unwrap().get(), state.to_string());
    assert_eq!(assembled.discarded_envelope, None);
}

#[test]
fn the_finish_reason_fits_the_kept_calls() {
    let reason = |kind: &str, name: &str| {
        assemble(json!([start(0, "tool-call"), call(0, "c", name, "{}"), finish(kind, Value::Null)])).finish.kind()
    };
    assert_eq!(reason("stop", "bash"), "tool-calls");
    assert_eq!(reason("tool-calls", "bash"), "tool-calls");
    assert_eq!(reason("tool-calls", ""), "stop");
    assert_eq!(reason("stop", ""), "stop");
    assert_eq!(reason("max-tokens", "bash"), "max-tokens");
    assert_eq!(assemble(json!([finish("stop", Value::Null)])).finish.kind(), "stop");
    assert_eq!(assemble(json!([finish("tool-calls", Value::Null)])).finish.kind(), "stop");
}

#[test]
fn nothing_is_taken_after_the_finish_and_the_last_usage_wins() {
    let usage = |n: u64| json!({"type": "usage", "usage": {"inputTokens": n, "outputTokens": n}});
    let assembled = assemble(json!([
        usage(1),
        usage(2),
        finish("stop", Value::Null),
        usage(3),
        start(0, "text"),
        text(0, "late"),
        finish("max-tokens", Value::Null),
    ]));
    assert!(assembled.content.is_empty());
    assert_eq!(assembled.finish.kind(), "stop");
    assert_eq!(assembled.usage.map(|usage| usage.input_tokens), Some(2));
}

#[test]
fn odd_streams_lose_nothing_and_attribute_nothing_wrongly() {
    // A delta and an end without a start, a second start, deltas of another type than their block.
    let assembled = assemble(json!([
        text(3, "a"),
        start(3, "text"),
        start(3, "tool-call"),
        reasoning(3, "x"),
        call(3, "c", "n", "x"),
        text(3, "b"),
        end(1, json!({"type": "reasoning", "text": "r"})),
        reasoning(2, "q"),
        end(0, json!({"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"})),
        call(5, "d", "m", "{}"),
        text(2, "y"),
        finish(
            "stop",
            json!([{"type": "text", "s": 3}, {"type": "reasoning", "s": 1}, {"type": "reasoning", "s": 2},
                   {"type": "tool-call", "s": 0}, {"type": "tool-call", "s": 5}])
        ),
    ]));
    assert_eq!(
        content(&assembled),
        json!([
            {"type": "text", "text": "ab"},
            {"type": "reasoning", "text": "r"},
            {"type": "reasoning", "text": "q"},
            {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"},
            {"type": "tool-call", "id": "d", "name": "m", "arguments": "{}"}
        ])
    );
    assert_eq!(entries(&assembled).as_array().unwrap().len(), 5);
}

#[test]
fn a_block_end_of_a_type_that_streams_do_not_have_is_kept_verbatim() {
    let assembled = assemble(json!([
        start(0, "text"),
        end(0, json!({"type": "hologram", "n": 1})),
        finish("stop", json!([{"type": "hologram", "s": 0}])),
    ]));
    assert_eq!(content(&assembled), json!([{"type": "hologram", "n": 1}]));
    assert_eq!(entries(&assembled), json!([{"type": "hologram", "s": 0}]));
}

#[derive(Debug, Clone)]
enum Step {
    Start(u32, u8),
    Delta(u32, u8),
    End(u32, u8),
}

impl Step {
    const fn index(&self) -> u32 {
        match self {
            Self::Start(index, _) | Self::Delta(index, _) | Self::End(index, _) => *index,
        }
    }

    fn chunk(&self) -> Value {
        const KINDS: [&str; 3] = ["text", "reasoning", "tool-call"];
        match self {
            Self::Start(index, kind) => start(*index, KINDS[*kind as usize]),
            // The mark of a block is in each of its pieces, so that content tells which block it is.
            Self::Delta(index, 0) => text(*index, &format!("<{index}>")),
            Self::Delta(index, 1) => reasoning(*index, &format!("<{index}>")),
            Self::Delta(index, _) => call(*index, &format!("<{index}>"), "n", ""),
            Self::End(index, 2) => {
                end(*index, json!({"type": "tool-call", "id": format!("<{index}>"), "name": "n", "arguments": ""}))
            }
            Self::End(index, kind) => end(*index, json!({"type": KINDS[*kind as usize], "text": format!("<{index}>")})),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u32..5, 0u8..3, 0u8..3).prop_map(|(index, kind, what)| match what {
        0 => Step::Start(index, kind),
        1 => Step::Delta(index, kind),
        _ => Step::End(index, kind),
    });
    proptest::collection::vec(step, 0..24)
}

fn first_seen(steps: &[Step]) -> Vec<u32> {
    let mut order = Vec::new();
    for step in steps {
        if !order.contains(&step.index()) {
            order.push(step.index());
        }
    }
    order
}

#[test]
fn a_response_of_very_many_blocks_is_assembled_in_linear_time() {
    let begun = std::time::Instant::now();
    let mut assembler = BlockAssembler::new();
    for index in 0..200_000 {
        assembler.push(&Chunk::TextDelta { index, text: "x".to_owned() });
    }
    assert_eq!(assembler.assemble().content.len(), 200_000);
    // In squared time it is minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

proptest! {
    /// Any chunk sequence, any ending, any drop rule: a kept block has its own entry, in its own place.
    #[test]
    fn kept_blocks_and_entries_always_correspond(
        steps in steps(),
        ending in prop::sample::select(vec!["stop", "tool-calls", "max-tokens", "error", "aborted"]),
        drop in proptest::collection::vec(any::<bool>(), 5),
        extra in -1i32..2,
        standard: bool,
    ) {
        let order = first_seen(&steps);
        let count = usize::try_from(order.len() as i32 + extra).unwrap_or(0);
        let blocks: Vec<_> = (0..count).map(|at| json!({"mark": order.get(at)})).collect();
        let mut assembler = BlockAssembler::new();
        for chunk in chunks(Value::Array(steps.iter().map(Step::chunk).collect())) {
            assembler.push(&chunk);
        }
        assembler.push(&chunks(json!([finish(ending, Value::Array(blocks))]))[0]);
        let assembled = if standard {
            assembler.assemble()
        } else {
            assembler.assemble_with(|_, emitted| drop[emitted.index as usize].then_some("by the test"))
        };

        prop_assert_eq!(assembled.content.len() + assembled.dropped.len(), order.len());
        let kept: Vec<u32> =
            order.iter().copied().filter(|index| !assembled.dropped.iter().any(|(d, _)| d == index)).collect();
        if !standard {
            prop_assert!(kept.iter().all(|index| !drop[*index as usize]));
        }
        for (block, index) in assembled.content.iter().zip(&kept) {
            let said = raw(block).get().to_owned();
            prop_assert!(!said.contains('<') || said.contains(&format!("<{index}>")), "{} is not {}", said, index);
        }
        if count == order.len() {
            let entries = entries(&assembled);
            prop_assert_eq!(entries.as_array().unwrap().len(), kept.len());
            for (entry, index) in entries.as_array().unwrap().iter().zip(&kept) {
                // `{type}` alone is the entry of a block that an interruption left open.
                prop_assert!(entry.get("mark").is_none_or(|mark| mark == index));
            }
            prop_assert_eq!(assembled.discarded_envelope, None);
        } else {
            prop_assert!(assembled.replay_state.is_none());
            prop_assert!(assembled.discarded_envelope.is_some());
        }
    }

    /// Without a drop the envelope comes out as it went in.
    #[test]
    fn an_untransformed_envelope_is_unchanged(texts in proptest::collection::vec("[a-z]{1,4}", 0..5)) {
        let mut stream: Vec<_> = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            stream.push(start(index as u32, "text"));
            stream.push(end(index as u32, json!({"type": "text", "text": text})));
        }
        let blocks: Vec<_> = (0..texts.len()).map(|n| json!({"type": "text", "n": n})).collect();
        stream.push(finish("error", Value::Array(blocks.clone())));
        let assembled = assemble(Value::Array(stream));
        prop_assert_eq!(entries(&assembled), Value::Array(blocks));
        prop_assert_eq!(assembled.finish, FinishReason::Error { failure: Failure::new(FailureCode::Transport, "m") });
    }
}
