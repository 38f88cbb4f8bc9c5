//! Between the protocol's words and the host's: content, tool calls, ends of turns, errors.
//!
//! Pure functions. What a client may not send is refused here with `-32602` and the reason; nothing that a session
//! holds is refused, what cannot be shown is named in text instead.

use std::path::Path;

use agent_client_protocol::v1::schema::{
    BlobResourceContents, ContentBlock, EmbeddedResourceResource, ErrorCode, ImageContent, PromptResponse, StopReason,
    TextContent, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use agent_client_protocol::{Error, Result};
use dsh_plugin_api::json;
use dsh_plugin_api::vocab::{Block, Failure, FailureCode, Image};
use serde_json::{Value, json};

use crate::agent::{AgentError, TurnEnd, TurnReason};

/// Longest title of a tool call, in characters.
const TITLE_CHARS: usize = 100;

/// The content of a prompt in the host's blocks.
///
/// Text and images map one to one. An embedded text resource becomes text that holds its URI and its content, an
/// embedded image becomes the image after a text with its URI, and a link becomes text with its name and URI: the
/// model reads the file with its tools.
///
/// # Errors
///
/// `-32602` for an empty prompt and for content that the agent did not announce (audio).
pub(super) fn prompt(content: Vec<ContentBlock>) -> Result<Vec<Block>> {
    if content.is_empty() {
        return Err(invalid_params("the prompt is empty"));
    }
    let mut blocks = Vec::with_capacity(content.len());
    for block in content {
        match block {
            ContentBlock::Text(text) => blocks.push(Block::Text(text.text)),
            ContentBlock::Image(image) => blocks.push(image_block(image.mime_type, image.data)),
            ContentBlock::ResourceLink(link) => blocks.push(Block::Text(format!("[{}]({})", link.name, link.uri))),
            ContentBlock::Resource(embedded) => match embedded.resource {
                EmbeddedResourceResource::TextResourceContents(resource) => blocks
                    .push(Block::Text(format!("<context uri=\"{}\">\n{}\n</context>", resource.uri, resource.text))),
                EmbeddedResourceResource::BlobResourceContents(resource) => blocks.extend(blob(resource)),
                _ => return Err(invalid_params("this kind of embedded resource is not supported")),
            },
            ContentBlock::Audio(_) => return Err(invalid_params("audio in a prompt is not supported")),
            _ => return Err(invalid_params("this kind of content block is not supported in a prompt")),
        }
    }
    Ok(blocks)
}

/// An embedded binary resource: an image is shown to the model, of anything else it learns that it is there.
fn blob(resource: BlobResourceContents) -> Vec<Block> {
    match resource.mime_type {
        Some(mime_type) if mime_type.starts_with("image/") => {
            vec![Block::Text(format!("<context uri=\"{}\"/>", resource.uri)), image_block(mime_type, resource.blob)]
        }
        mime_type => {
            let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            vec![Block::Text(format!(
                "<context uri=\"{}\">\nbinary content of type {mime_type}, not shown\n</context>",
                resource.uri
            ))]
        }
    }
}

fn image_block(mime_type: String, data: String) -> Block {
    Block::Image(Image::Data { mime_type, data })
}

/// How a block of a user message or a tool result is shown. `None` for blocks that are no content of their own.
pub(super) fn content(block: &Block) -> Option<ContentBlock> {
    match block {
        Block::Text(text) => Some(self::text(text)),
        Block::Image(Image::Data { mime_type, data }) => {
            Some(ContentBlock::Image(ImageContent::new(data.clone(), mime_type.clone())))
        }
        Block::Image(Image::Attachment(attachment)) => Some(self::text(&format!("[image {}]", attachment.get()))),
        Block::Reasoning(_) | Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Other(_) => None,
    }
}

/// A text content block.
pub(super) fn text(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}

/// A call as it is announced. `id` is unique in the client's view of the session; `arguments` is JSON text as the
/// model wrote it and is shown as a string when it does not parse.
pub(super) fn tool_call(id: String, name: &str, arguments: &str) -> ToolCall {
    let input = match arguments {
        "" => json!({}),
        text => json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    ToolCall::new(id, title(name, &input))
        .name(name.to_owned())
        .kind(kind(name))
        .status(ToolCallStatus::InProgress)
        .raw_input(input)
}

/// The end of a call.
pub(super) fn tool_result(id: String, content: &[Block], is_error: bool) -> ToolCallUpdate {
    ToolCallUpdate::new(
        id,
        ToolCallUpdateFields::new()
            .status(if is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed })
            .content(tool_content(content)),
    )
}

/// What a tool gave back.
pub(super) fn tool_content(content: &[Block]) -> Vec<ToolCallContent> {
    content.iter().filter_map(self::content).map(ToolCallContent::from).collect()
}

/// The kind by which clients choose an icon, for the names of built-in tools, also those of other writers of the log.
fn kind(name: &str) -> ToolKind {
    match name {
        "bash" => ToolKind::Execute,
        "read" => ToolKind::Read,
        "write" | "edit" => ToolKind::Edit,
        "glob" | "grep" => ToolKind::Search,
        _ => ToolKind::Other,
    }
}

/// One line that says what the call does: the command or the file, else the name of the tool.
fn title(name: &str, input: &Value) -> String {
    let detail = match name {
        "bash" => ["command"].as_slice(),
        "read" | "write" | "edit" => &["path", "file_path"],
        "glob" | "grep" => &["pattern"],
        _ => &[],
    };
    let detail = detail.iter().find_map(|key| input.get(key)?.as_str()).map(str::trim).filter(|text| !text.is_empty());
    let Some(detail) = detail else { return name.to_owned() };
    let line = detail.lines().next().unwrap_or_default();
    let short: String = line.chars().take(TITLE_CHARS).collect();
    let cut = if short.len() < detail.len() { "…" } else { "" };
    match kind(name) {
        ToolKind::Execute => format!("{short}{cut}"),
        _ => format!("{name} {short}{cut}"),
    }
}

/// The answer to a prompt.
///
/// # Errors
///
/// A failed request is an error with the failure's message and `{code, status?, …}` as data, except a refusal, which
/// has its own stop reason.
pub(super) fn turn_end(result: Result<TurnEnd, AgentError>) -> Result<PromptResponse> {
    let stop = match result.map_err(|error| agent_error(&error))?.reason {
        TurnReason::Completed => StopReason::EndTurn,
        TurnReason::MaxTokens => StopReason::MaxTokens,
        TurnReason::MaxSteps => StopReason::MaxTurnRequests,
        TurnReason::Aborted => StopReason::Cancelled,
        TurnReason::Error { failure } if failure.code == FailureCode::Refused => StopReason::Refusal,
        TurnReason::Error { failure } => return Err(self::failure(&failure)),
    };
    Ok(PromptResponse::new(stop))
}

/// A failed request as a JSON-RPC error.
fn failure(failure: &Failure) -> Error {
    internal(&failure.message).data(json!(failure))
}

/// Why a session cannot be opened or a turn cannot run.
pub(super) fn agent_error(error: &AgentError) -> Error {
    match error {
        AgentError::Store(error) => internal(&error.to_string()),
        AgentError::Failure(failure) => self::failure(failure),
    }
}

/// `-32603` with a message of its own.
pub(super) fn internal(message: &str) -> Error {
    Error::new(ErrorCode::InternalError, message)
}

/// `-32602` with the reason.
pub(super) fn invalid_params(message: &str) -> Error {
    Error::new(ErrorCode::InvalidParams, message)
}

/// `-32600`: the request is sound, but not now.
pub(super) fn not_now(message: &str) -> Error {
    Error::new(ErrorCode::InvalidRequest, message)
}

/// `-32002`
pub(super) fn unknown_session(id: &str, hint: &str) -> Error {
    Error::new(ErrorCode::ResourceNotFound, format!("there is no session {id:?}{hint}"))
        .data(json!({ "sessionId": id }))
}

/// Refuses a working folder that is not absolute.
///
/// # Errors
///
/// `-32602`
pub(super) fn check_cwd(cwd: &Path) -> Result<()> {
    if cwd.is_absolute() {
        return Ok(());
    }
    Err(invalid_params(&format!("cwd {cwd:?} is not an absolute path")))
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{AudioContent, EmbeddedResource, ResourceLink, TextResourceContents};
    use dsh_plugin_api::vocab::Usage;

    use super::*;

    fn blocks(content: Vec<ContentBlock>) -> Value {
        json!(prompt(content).unwrap())
    }

    fn embedded(resource: EmbeddedResourceResource) -> ContentBlock {
        ContentBlock::Resource(EmbeddedResource::new(resource))
    }

    #[test]
    fn every_announced_kind_of_prompt_content_reaches_the_model() {
        for (content, expected) in [
            (text("a"), json!([{ "type": "text", "text": "a" }])),
            (
                ContentBlock::Image(ImageContent::new("AA==", "image/png")),
                json!([{ "type": "image", "mimeType": "image/png", "data": "AA==" }]),
            ),
            (
                ContentBlock::ResourceLink(ResourceLink::new("a.rs", "file:///a.rs")),
                json!([{ "type": "text", "text": "[a.rs](file:///a.rs)" }]),
            ),
            (
                embedded(EmbeddedResourceResource::TextResourceContents(TextResourceContents::new("x", "file:///x"))),
                json!([{ "type": "text", "text": "<context uri=\"file:///x\">\nx\n</context>" }]),
            ),
            (
                embedded(EmbeddedResourceResource::BlobResourceContents(
                    BlobResourceContents::new("AA==", "file:///i").mime_type("image/png".to_owned()),
                )),
                json!([{ "type": "text", "text": "<context uri=\"file:///i\"/>" },
                    { "type": "image", "mimeType": "image/png", "data": "AA==" }]),
            ),
            (
                embedded(EmbeddedResourceResource::BlobResourceContents(BlobResourceContents::new(
                    "AA==",
                    "file:///b",
                ))),
                json!([{ "type": "text", "text":
                    "<context uri=\"file:///b\">\nbinary content of type application/octet-stream, not shown\n</context>" }]),
            ),
        ] {
            assert_eq!(blocks(vec![content]), expected);
        }
    }

    #[test]
    fn an_empty_prompt_and_audio_are_invalid_params() {
        for content in [vec![], vec![text("a"), ContentBlock::Audio(AudioContent::new("AA==", "audio/wav"))]] {
            assert_eq!(prompt(content).unwrap_err().code, ErrorCode::InvalidParams);
        }
    }

    #[test]
    fn a_tool_call_says_what_it_does_in_one_line() {
        let long = format!("{{\"command\":\"{}\"}}", "x".repeat(300));
        for (name, arguments, title, kind) in [
            ("bash", r#"{"command":"ls -l"}"#, "ls -l", ToolKind::Execute),
            ("bash", r#"{"command":"cat <<E\na\nE"}"#, "cat <<E…", ToolKind::Execute),
            ("bash", &long, &format!("{}…", "x".repeat(TITLE_CHARS)), ToolKind::Execute),
            ("bash", "", "bash", ToolKind::Execute),
            ("bash", "{\"comm", "bash", ToolKind::Execute),
            ("bash", r#"{"command":"echo \ud83d"}"#, "echo \u{fffd}", ToolKind::Execute),
            ("read", r#"{"file_path":"/a"}"#, "read /a", ToolKind::Read),
            ("weather", r#"{"city":"B"}"#, "weather", ToolKind::Other),
        ] {
            let call = tool_call("c".into(), name, arguments);
            assert_eq!((call.title.as_str(), call.kind), (title, kind), "{name} {arguments}");
            assert_eq!(call.status, ToolCallStatus::InProgress);
        }
    }

    #[test]
    fn arguments_are_shown_parsed_or_as_they_are() {
        for (arguments, input) in
            [("", json!({})), (r#"{"a":1}"#, json!({ "a": 1 })), ("{\"comm", json!("{\"comm")), ("[1]", json!([1]))]
        {
            assert_eq!(tool_call("c".into(), "t", arguments).raw_input, Some(input));
        }
    }

    #[test]
    fn a_turn_ends_with_its_own_stop_reason() {
        let end = |reason| {
            turn_end(Ok(TurnEnd { reason, text: String::new(), degraded: Vec::new(), usage: Usage::default() }))
        };
        let failed =
            |code, status| TurnReason::Error { failure: Failure { status, ..Failure::new(code, "it failed") } };
        for (reason, stop) in [
            (TurnReason::Completed, StopReason::EndTurn),
            (TurnReason::MaxTokens, StopReason::MaxTokens),
            (TurnReason::MaxSteps, StopReason::MaxTurnRequests),
            (TurnReason::Aborted, StopReason::Cancelled),
            (failed(FailureCode::Refused, None), StopReason::Refusal),
        ] {
            assert_eq!(end(reason).unwrap().stop_reason, stop);
        }
        let error = end(failed(FailureCode::RateLimit, Some(429))).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (ErrorCode::InternalError.into(), "it failed"));
        assert_eq!(error.data, Some(json!({ "message": "it failed", "code": "RATE_LIMIT", "status": 429 })));
    }
}
