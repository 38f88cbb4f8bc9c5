//! Which result belongs to which call, and where it stands.

use super::*;

#[test]
fn an_unanswered_call_gets_an_error_result_right_after_its_message() {
    repaired(
        json!([
            user("q".into()),
            assistant(json!([call("1"), call("2")])),
            tool("2", "two"),
            user("x".into()),
            assistant(json!([call("3")]))
        ]),
        json!([
            ["user", [text("q")]],
            ["assistant", [call("1"), call("2")]],
            ["user", [no_result("1")]],
            ["user", [result("2", "two")]],
            ["user", [text("x")]],
            ["assistant", [call("3")]],
            ["user", [no_result("3")]]
        ]),
        &[(1, "unanswered-call"), (4, "unanswered-call")],
    );
}

#[test]
fn a_result_without_a_call_becomes_text_of_the_user() {
    repaired(
        json!([tool("9", "lost data"), assistant(json!([text("t")])), tool("9", "more")]),
        json!([
            ["user", [text("[result of a tool call that is not part of this conversation]\nlost data")]],
            ["assistant", [text("t")]],
            ["user", [text("[result of a tool call that is not part of this conversation]\nmore")]]
        ]),
        &[(0, "orphan-result"), (2, "orphan-result")],
    );
    let image = json!({"type": "image", "mimeType": "image/png", "data": "AA=="});
    repaired(
        json!([user(
            json!([{"type": "tool-result", "toolCallId": "9", "content": [image]}, {"type": "tool-result", "toolCallId": "8"}])
        )]),
        json!([[
            "user",
            [
                text("[result of a tool call that is not part of this conversation]"),
                image,
                text("[result of a tool call that is not part of this conversation]\n(no tool output)")
            ]
        ]]),
        &[(0, "orphan-result"), (0, "orphan-result")],
    );
}

#[test]
fn a_result_never_belongs_to_a_later_call() {
    repaired(
        json!([tool("1", "early"), assistant(json!([call("1")]))]),
        json!([
            ["user", [text("[result of a tool call that is not part of this conversation]\nearly")]],
            ["assistant", [call("1")]],
            ["user", [no_result("1")]]
        ]),
        &[(0, "orphan-result"), (1, "unanswered-call")],
    );
}

#[test]
fn of_two_results_the_first_is_the_result() {
    repaired(
        json!([assistant(json!([call("1")])), tool("1", "first"), tool("1", "second")]),
        json!([
            ["assistant", [call("1")]],
            ["user", [result("1", "first")]],
            ["user", [text("[further result of an earlier tool call]\nsecond")]]
        ]),
        &[(2, "duplicate-result")],
    );
}

#[test]
fn notes_between_a_call_and_its_result_move_behind_it() {
    repaired(
        json!([
            assistant(json!([call("1"), call("2")])),
            assistant(json!([text("")])),
            user("note".into()),
            tool("2", "two"),
            user("note 2".into()),
            tool("1", "one"),
            user("go on".into())
        ]),
        json!([
            ["assistant", [call("1"), call("2")]],
            ["user", [result("1", "one")]],
            ["user", [result("2", "two")]],
            ["user", [text("note")]],
            ["user", [text("note 2")]],
            ["user", [text("go on")]]
        ]),
        &[(1, "blank-text"), (1, "empty-message"), (2, "note-moved"), (3, "result-order"), (4, "note-moved")],
    );
}

#[test]
fn a_result_behind_a_later_answer_moves_to_its_call() {
    repaired(
        json!([
            assistant(json!([call("1")])),
            user("n".into()),
            assistant(json!([text("t")])),
            user("m".into()),
            tool("1", "one")
        ]),
        json!([
            ["assistant", [call("1")]],
            ["user", [result("1", "one")]],
            ["user", [text("n")]],
            ["assistant", [text("t")]],
            ["user", [text("m")]]
        ]),
        &[(1, "note-moved"), (4, "result-moved")],
    );
}

#[test]
fn ids_are_paired_within_their_message_and_made_distinct_in_the_request() {
    repaired(
        json!([
            assistant(json!([call("1")])),
            tool("1", "first"),
            assistant(json!([text("t")])),
            assistant(json!([call("1")])),
            assistant(json!([call("1_2"), call("1"), call("1")])),
            tool("1", "x"),
            tool("1_2", "y"),
            tool("1", "z")
        ]),
        json!([
            ["assistant", [call("1")]],
            ["user", [result("1", "first")]],
            ["assistant", [text("t")]],
            ["assistant", [call("1_2")]],
            ["user", [no_result("1_2")]],
            ["assistant", [call("1_2_2"), call("1_3"), call("1_4")]],
            ["user", [result("1_2_2", "y")]],
            ["user", [result("1_3", "x")]],
            ["user", [result("1_4", "z")]]
        ]),
        &[
            (3, "repeated-id"),
            (3, "unanswered-call"),
            (4, "repeated-id"),
            (4, "repeated-id"),
            (4, "repeated-id"),
            (5, "result-order"),
        ],
    );
    let composite =
        json!([assistant(json!([call("c|i")])), tool("c|i", "1"), assistant(json!([call("c|i")])), tool("c|i", "2")]);
    let view = view_of(&composite);
    assert_eq!(said(&view)[2][1][0]["id"], "c_2");
    let sources = serde_json::to_value(&view.request.messages[3].source).unwrap();
    assert_eq!(sources, json!({"kind": "tool", "callId": "c_2"}));
}

#[test]
fn a_result_that_lost_its_id_belongs_to_the_only_call_that_waits() {
    for id in [json!(""), json!(" "), Value::Null] {
        let lost = |said: &str| {
            json!({"id": "t", "role": "user", "source": {"kind": "tool", "callId": id},
            "content": [{"type": "tool-result", "toolCallId": id, "content": [text(said)]}]})
        };
        repaired(
            json!([
                assistant(json!([call("1"), call("2")])),
                tool("1", "one"),
                lost("two"),
                assistant(json!([text("t")]))
            ]),
            json!([
                ["assistant", [call("1"), call("2")]],
                ["user", [result("1", "one")]],
                ["user", [result("2", "two")]],
                ["assistant", [text("t")]]
            ]),
            &[(2, "adopted-result")],
        );
        // As many results as calls: in order. Fewer: nothing is certain.
        repaired(
            json!([assistant(json!([call("1"), call("2")])), lost("one"), lost("two")]),
            json!([
                ["assistant", [call("1"), call("2")]],
                ["user", [result("1", "one")]],
                ["user", [result("2", "two")]]
            ]),
            &[(1, "adopted-result"), (2, "adopted-result")],
        );
        let view = view_of(&json!([assistant(json!([call("1"), call("2"), call("3")])), lost("x"), lost("y")]));
        assert_eq!(repairs(&view).iter().filter(|(_, kind)| *kind == "orphan-result").count(), 2);
        // One call waits, two results came: the first is its result.
        let view = view_of(&json!([assistant(json!([call("1")])), lost("x"), lost("y")]));
        assert_eq!(repairs(&view), [(1, "adopted-result"), (2, "orphan-result")]);
        let view = view_of(&json!([lost("x")]));
        assert_eq!(repairs(&view), [(0, "orphan-result")]);
    }
}

#[test]
fn a_result_block_without_an_id_takes_that_of_its_message() {
    let lost = json!({"id": "t", "role": "user", "source": {"kind": "tool", "callId": "1"},
        "content": [{"type": "tool-result", "content": "bare text"}]});
    repaired(
        json!([assistant(json!([call("1"), call("2")])), lost, tool("2", "two")]),
        json!([
            ["assistant", [call("1"), call("2")]],
            ["user", [result("1", "bare text")]],
            ["user", [result("2", "two")]]
        ]),
        &[],
    );
}

#[test]
fn a_call_without_an_id_is_given_one_and_keeps_its_result() {
    let nameless = json!({"type": "tool-call", "name": "bash", "arguments": {"a": 1}});
    let lost = json!({"role": "user", "source": {"kind": "user"}, "content": [{"type": "tool-result", "content": [text("one")]}]});
    repaired(
        json!([assistant(json!([nameless])), lost]),
        json!([
            ["assistant", [{"type": "tool-call", "id": "call_2", "name": "bash", "arguments": "{\"a\":1}"}]],
            ["user", [result("call_2", "one")]]
        ]),
        &[(0, "missing-id"), (1, "adopted-result")],
    );
}

#[test]
fn results_without_ids_go_to_the_turn_they_stand_in() {
    let lost = |said: &str| user(json!([result("", said)]));
    repaired(
        json!([assistant(json!([call("1")])), lost("one"), assistant(json!([call("2")])), lost("two")]),
        json!([
            ["assistant", [call("1")]],
            ["user", [result("1", "one")]],
            ["assistant", [call("2")]],
            ["user", [result("2", "two")]]
        ]),
        &[(1, "adopted-result"), (3, "adopted-result")],
    );
}
