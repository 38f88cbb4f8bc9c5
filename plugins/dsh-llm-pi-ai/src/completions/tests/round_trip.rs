//! What a server sent is what it gets back: decode, store, restore, encode.

use serde_json::json;

use super::*;

/// The assistant message of the request after an answer, its calls answered.
fn sent_back(fixture: &Fixture, body: &str) -> Value {
    fixture.sent_back(&decode(body))["messages"][1].clone()
}

#[test]
fn reasoning_goes_back_in_the_field_it_came_in() {
    for field in super::super::replay::REASONING_FIELDS {
        let body =
            [delta(json!({field: "plan "})), delta(json!({field: "b"})), delta(json!({"content": "Hi."})), end("stop")];
        let sent = sent_back(&adapter(json!({}), json!({})), &body.concat());
        assert_eq!(sent, json!({"role": "assistant", "content": "Hi.", field: "plan b"}));
    }
}

#[test]
fn a_dialect_decides_over_the_field() {
    let body = delta(json!({"reasoning": "plan"})) + &delta(json!({"content": "Hi."})) + &end("stop");
    for (compat, expected) in [
        (json!({"reasoning_field": "none"}), json!({"role": "assistant", "content": "Hi."})),
        (
            json!({"reasoning_field": "reasoning_content"}),
            json!({"role": "assistant", "content": "Hi.", "reasoning_content": "plan"}),
        ),
        (
            json!({"requires_reasoning_content_on_assistant_messages": true}),
            json!({"role": "assistant", "content": "Hi.", "reasoning_content": "plan"}),
        ),
        (json!({"requires_thinking_as_text": true}), json!({"role": "assistant", "content": "plan\n\nHi."})),
    ] {
        assert_eq!(sent_back(&adapter(json!({}), compat.clone()), &body), expected, "{compat}");
    }
}

#[test]
fn reasoning_that_is_text_goes_back_also_alone() {
    let body = delta(json!({"reasoning": "plan"})) + &end("length");
    let compat = json!({"requires_thinking_as_text": true});
    assert_eq!(sent_back(&adapter(json!({}), compat), &body), json!({"role": "assistant", "content": "plan"}));
}

#[test]
fn details_go_back_instead_of_the_field() {
    let secret = json!({"type": "reasoning.encrypted", "id": "c", "data": "BLOB"});
    let body = [
        delta(json!({"reasoning": "plan"})),
        delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]})),
        delta(json!({"reasoning_details": [secret]})),
        end("tool_calls"),
    ];
    let sent = sent_back(&adapter(json!({}), json!({})), &body.concat());
    assert_eq!((&sent["reasoning_details"], sent.get("reasoning")), (&json!([secret]), None));
}

#[test]
fn details_and_calls_go_back_as_they_were() {
    let arguments = r#"{"n":12345678901234567890123,"a":1,"a":2}"#;
    let thought = json!({"type": "reasoning.text", "index": 0, "text": "plan", "signature": "S=="});
    let secret = json!({"type": "reasoning.encrypted", "id": "functions.f:0", "data": "BLOB"});
    let body = [
        delta(json!({"reasoning": "plan", "reasoning_details": [thought]})),
        delta(json!({"reasoning_details": [secret]})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "functions.f:0", "function": {"name": "f", "arguments": arguments}}]}),
        ),
        end("tool_calls"),
    ];
    let sent = sent_back(&adapter(json!({}), json!({})), &body.concat());
    assert_eq!(
        sent,
        json!({"role": "assistant", "content": null, "reasoning_details": [thought, secret], "tool_calls": [
            {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    );
}
