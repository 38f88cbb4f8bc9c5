//! OpenAI's responses (<https://platform.openai.com/docs/api-reference/responses-streaming>): output items that are added,
//! take deltas and are done, or one response when the request does not ask for a stream.
//!
//! Errors are those of the completions wire; one inside a stream fails the response. Encrypted reasoning comes when the
//! request includes `reasoning.encrypted_content`. The item that the output limit cuts off is the last one; it is
//! `incomplete`, as the response is.

use serde_json::{Value, json};

use super::{Ask, Reply, completions, split_chars, type_of, unix_seconds};
use crate::mock::script::{Described, Finish};

pub(super) fn spell(answer: &Described, ask: &Ask) -> Reply {
    let items = items(answer, ask);
    if !ask.streams() {
        return Reply::whole(&response(answer, ask, &items));
    }
    let mut begun = response(answer, ask, &[]);
    begun["status"] = json!("in_progress");
    begun["incomplete_details"] = Value::Null;
    begun["usage"] = Value::Null;
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
    ];
    for (index, item) in items.iter().enumerate() {
        item_events(item, index, answer.chunk_chars, &mut events);
    }
    let mut over = response(answer, ask, &items);
    if let Some(error) = &answer.error {
        let fault = completions::fault(error.kind).saying(error);
        over["status"] = json!("failed");
        over["error"] = json!({ "code": fault.code.unwrap_or(fault.name), "message": fault.message });
        over["incomplete_details"] = Value::Null;
        over["usage"] = Value::Null;
    }
    let end = format!("response.{}", over["status"].as_str().unwrap_or_default());
    events.push(json!({ "type": end, "response": over }));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    Reply::events(&events, type_of)
}

/// The items as they are when they are done.
fn items(answer: &Described, ask: &Ask) -> Vec<Value> {
    let number = ask.number;
    let mut items = Vec::new();
    if answer.thinks() {
        let summary = match answer.shown_reasoning() {
            "" => json!([]),
            text => json!([{ "type": "summary_text", "text": text }]),
        };
        let mut item = json!({ "id": format!("rs_mock_{number}"), "type": "reasoning", "summary": summary });
        let included = ask.body.get("include").is_some_and(|list| list.get().contains("reasoning.encrypted_content"));
        if included {
            item["encrypted_content"] = json!(ask.signature(answer));
        }
        items.push(item);
    }
    if !answer.text.is_empty() {
        let content = json!([{ "type": "output_text", "text": answer.text, "annotations": [] }]);
        items.push(json!({
            "id": format!("msg_mock_{number}"),
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": content,
        }));
    }
    for (index, call) in answer.tool_calls.iter().enumerate() {
        items.push(json!({
            "id": format!("fc_mock_{number}_{index}"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }));
    }
    if let Some(last) = items.last_mut().filter(|item| item.get("status").is_some()) {
        last["status"] = json!(status(answer.finish));
    }
    items
}

/// The events of one item, from its announcement to its end.
fn item_events(item: &Value, index: usize, chars: usize, events: &mut Vec<Value>) {
    let (kind, list, text) = match item["type"].as_str() {
        Some("reasoning") => ("reasoning_summary", "summary", &item["summary"][0]["text"]),
        Some("message") => ("output", "content", &item["content"][0]["text"]),
        _ => ("function_call", "arguments", &item["arguments"]),
    };
    let is_call = kind == "function_call";
    let index_name = if list == "summary" { "summary_index" } else { "content_index" };
    let event = |what: &str, member: &str, value: &Value| {
        let mut event = json!({ "type": format!("response.{what}"), "output_index": index, member: value });
        if !what.starts_with("output_item") {
            event["item_id"] = item["id"].clone();
            if !is_call {
                event[index_name] = json!(0);
            }
        }
        event
    };
    let mut announced = item.clone();
    announced[list] = if is_call { json!("") } else { json!([]) };
    if announced.get("status").is_some() {
        announced["status"] = json!("in_progress");
    }
    events.push(event("output_item.added", "item", &announced));

    // Reasoning that is not shown has no parts.
    if item[list].as_array().is_some_and(Vec::is_empty) {
        return events.push(event("output_item.done", "item", item));
    }
    let part = if list == "content" { "content_part" } else { "reasoning_summary_part" };
    let mut empty = item[list][0].clone();
    if !is_call {
        empty["text"] = json!("");
        events.push(event(&format!("{part}.added"), "part", &empty));
    }
    let (about, whole) =
        if is_call { ("function_call_arguments".to_owned(), "arguments") } else { (format!("{kind}_text"), "text") };
    for piece in split_chars(text.as_str().unwrap_or_default(), chars) {
        events.push(event(&format!("{about}.delta"), "delta", &json!(piece)));
    }
    events.push(event(&format!("{about}.done"), whole, text));
    if !is_call {
        events.push(event(&format!("{part}.done"), "part", &item[list][0]));
    }
    events.push(event("output_item.done", "item", item));
}

/// The response as it is when it is over.
fn response(answer: &Described, ask: &Ask, output: &[Value]) -> Value {
    let details = match answer.finish {
        Finish::Length => json!({ "reason": "max_output_tokens" }),
        Finish::ContentFilter => json!({ "reason": "content_filter" }),
        Finish::Stop | Finish::ToolCalls => Value::Null,
    };
    json!({
        "id": format!("resp_mock_{}", ask.number),
        "object": "response",
        "created_at": unix_seconds(),
        "status": status(answer.finish),
        "incomplete_details": details,
        "error": null,
        "model": ask.model(),
        "output": output,
        "usage": usage(answer, ask),
    })
}

fn usage(answer: &Described, ask: &Ask) -> Value {
    let counts = ask.usage(answer);
    let mut usage = json!({
        "input_tokens": counts.input,
        "input_tokens_details": { "cached_tokens": counts.cache_read },
        "output_tokens": counts.output,
        "output_tokens_details": { "reasoning_tokens": counts.reasoning },
        "total_tokens": counts.input + counts.output,
    });
    if counts.cache_write > 0 {
        usage["input_tokens_details"]["cache_write_tokens"] = json!(counts.cache_write);
    }
    usage
}

const fn status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::ToolCalls => "completed",
        Finish::Length | Finish::ContentFilter => "incomplete",
    }
}
