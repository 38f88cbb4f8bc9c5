//! What a provider sent for its own use, and the arguments of its calls, are in the next request as they were sent: an
//! answer is decoded, stored, restored and encoded, and the request is searched for every value of it.

use dsh_plugin_api::Adapter;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::json::{self, raw};
use dsh_plugin_api::vocab::{Block, Exchange, Message, ReplayEnvelope, Request, Role, Source};
use serde_json::json;

use crate::decoding::{Answer, Decoded, STREAM, Wire, decode, target};

/// The body of the request after this answer, its calls answered. None where nothing was stored.
#[must_use]
pub fn next_request<W: Wire>(adapter: &impl Adapter, decoded: &Decoded) -> Option<String> {
    let state = decoded.state.as_ref().map(raw)?;
    let source = Source::model(W::API, "m", Some(state));
    let stored = raw(&Message::new("a", Role::Assistant, decoded.blocks.clone(), source));
    let answer: Message = json::from_str(stored.get()).expect("a message that was written can be read");
    let Source::Model { replay_state: Some(state), .. } = &answer.source else { panic!("the state is lost") };
    let envelope = ReplayEnvelope::parse(state).expect("the state is an envelope");

    let to = target(W::API);
    let foreign = |message: &Message| adapter.foreign(message, &to).expect("plain messages can be sent");
    let native = adapter.restore(&answer, &envelope, &to).expect("what the adapter stored it restores");
    let mut messages = vec![Message::user("u", "Go."), answer];
    let mut history = vec![foreign(&messages[0]), native];
    let call = |block: &Block| if let Block::ToolCall { id, .. } = block { Some(result(id)) } else { None };
    for message in decoded.blocks.iter().filter_map(call).chain([Message::user("v", "Go on.")]) {
        history.push(foreign(&message));
        messages.push(message);
    }
    let request = Request { messages, reasoning_effort: Some("high".to_owned()), ..Request::default() };
    let encoded = adapter.encode(&request, history, &to).expect("the history can be sent");
    let Exchange::Http(http) = encoded.exchange else { panic!("a request is HTTP") };
    Some(http.body.get().to_owned())
}

/// The result of a call.
fn result(call_id: &str) -> Message {
    let message = json!({"id": call_id, "role": "user", "source": {"kind": "tool", "callId": call_id}, "content": [
        {"type": "tool-result", "toolCallId": call_id, "content": [{"type": "text", "text": "out"}]}]});
    json::from_str(&message.to_string()).expect("a message")
}

/// Every value of the answer is in the next request, as often as it came.
pub fn check<W: Wire>(adapter: &impl Adapter, answer: &Answer) {
    let decoded = decode::<W>(adapter, STREAM, &answer.body, &[], &StreamEnd::Complete);
    let body = next_request::<W>(adapter, &decoded).unwrap_or_default();
    for value in &answer.returned {
        let wanted = answer.returned.iter().filter(|other| *other == value).count();
        assert!(body.matches(&**value).count() >= wanted, "{value} is not in the next request, or too rarely:\n{body}");
    }
}
