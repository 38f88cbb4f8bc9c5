//! Messages, their content blocks and where they came from.

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{self, Object, Raw, raw, replace_lone_surrogates};
use crate::kit::lenient::{members_as_written, string};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions of the host.
    System,
    /// The user; tool results also have this role.
    User,
    /// The model.
    Assistant,
}

/// One message: `{id, role, content: [block], source}`.
///
/// Members that this version does not know are kept in `extra` and written back.
#[derive(Debug, Clone)]
pub struct Message {
    /// Unique within its session. Empty when the log has none.
    pub id: String,
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub content: Vec<Block>,
    /// Where the message came from.
    pub source: Source,
    /// Members that are not in the list above.
    pub extra: Object,
}

impl Message {
    /// A user message with one text block.
    #[must_use]
    pub fn user(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(id, Role::User, vec![Block::Text(text.into())], Source::User)
    }

    /// A message without further members.
    #[must_use]
    pub fn new(id: impl Into<String>, role: Role, content: Vec<Block>, source: Source) -> Self {
        Self { id: id.into(), role, content, source, extra: Object::new() }
    }

    /// The text blocks, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.content
            .iter()
            .filter_map(|block| if let Block::Text(text) = block { Some(text.as_str()) } else { None })
            .collect()
    }
}

/// A message of role `assistant`.
pub type AssistantMessage = Message;

/// One content block.
///
/// A block of unknown type, or one of a known type that lacks what its type needs, is [`Block::Other`]: it is kept
/// verbatim in the log and left out of requests.
#[derive(Debug, Clone)]
pub enum Block {
    /// `text{text}`
    Text(String),
    /// `reasoning{text}`
    Reasoning(String),
    /// `image{mimeType,data}` or `image{attachment}`
    Image(Image),
    /// `tool-call{id,name,arguments}`; `arguments` is the raw JSON text as streamed.
    ToolCall {
        /// Id that the result refers to.
        id: String,
        /// Name of the tool.
        name: String,
        /// JSON text; empty stands for `{}`.
        arguments: String,
    },
    /// `tool-result{toolCallId,content,isError?}`
    ToolResult {
        /// Id of the call.
        tool_call_id: String,
        /// Text and image blocks.
        content: Vec<Block>,
        /// True when the tool failed.
        is_error: Option<bool>,
    },
    /// Anything else, as it was written.
    Other(Raw),
}

/// The two forms of an image block.
#[derive(Debug, Clone)]
pub enum Image {
    /// Base64 data with its MIME type.
    Data {
        /// For example `image/png`.
        mime_type: String,
        /// Base64 with padding.
        data: String,
    },
    /// A reference that the host resolves, verbatim.
    Attachment(Raw),
}

impl Block {
    /// The `type` member.
    #[must_use]
    pub fn kind(&self) -> String {
        match self {
            Self::Other(value) => {
                json::from_str::<Object>(value.get()).ok().and_then(|o| o.get_str("type")).unwrap_or_default()
            }
            known => known.known_kind().to_owned(),
        }
    }

    /// The `type` member; empty for any other block.
    const fn known_kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Image(_) => "image",
            Self::ToolCall { .. } => "tool-call",
            Self::ToolResult { .. } => "tool-result",
            Self::Other(_) => "",
        }
    }

    fn parse(value: Raw) -> Self {
        Self::parse_known(&replace_lone_surrogates(value.get()), true).unwrap_or(Self::Other(value))
    }

    /// `text` is JSON without lone surrogates. A result holds no results: one inside another is kept verbatim, so that
    /// hostile nesting costs no stack.
    fn parse_known(text: &str, results: bool) -> Option<Self> {
        let names = [
            "type",
            "text",
            "attachment",
            "mimeType",
            "data",
            "id",
            "name",
            "arguments",
            "toolCallId",
            "content",
            "isError",
        ];
        let [kind, text, attachment, mime_type, data, id, name, arguments, call_id, content, is_error] =
            members_as_written(text, names).ok()??;
        match string(kind?)?.as_str() {
            "text" => Some(Self::Text(string(text?)?)),
            "reasoning" => Some(Self::Reasoning(string(text?)?)),
            "image" => Some(Self::Image(match attachment {
                Some(attachment) => Image::Attachment(attachment.to_owned()),
                None => Image::Data { mime_type: string(mime_type?)?, data: string(data?)? },
            })),
            "tool-call" => {
                let arguments = arguments.map(|text| string(text).unwrap_or_else(|| text.get().to_owned()));
                Some(Self::ToolCall {
                    id: string(id?)?,
                    name: string(name?)?,
                    arguments: arguments.unwrap_or_default(),
                })
            }
            "tool-result" if results => Some(Self::ToolResult {
                content: content.map_or_else(|| Some(Vec::new()), |content| Self::parse_list(content.get(), false))?,
                tool_call_id: string(call_id?)?,
                is_error: is_error.and_then(|is_error| serde_json::from_str(is_error.get()).ok()),
            }),
            _ => None,
        }
    }

    /// `text` is JSON without lone surrogates. `None` for what is no list.
    fn parse_list(text: &str, results: bool) -> Option<Vec<Self>> {
        let values: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let block =
            |value: &RawValue| Self::parse_known(value.get(), results).unwrap_or_else(|| Self::Other(value.to_owned()));
        Some(values.into_iter().map(block).collect())
    }
}

impl<'de> Deserialize<'de> for Block {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(Self::parse)
    }
}

impl Serialize for Block {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Other(value) = self {
            return value.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", self.known_kind())?;
        match self {
            Self::Text(text) | Self::Reasoning(text) => map.serialize_entry("text", text)?,
            Self::Image(Image::Data { mime_type, data }) => {
                map.serialize_entry("mimeType", mime_type)?;
                map.serialize_entry("data", data)?;
            }
            Self::Image(Image::Attachment(attachment)) => map.serialize_entry("attachment", attachment)?,
            Self::ToolCall { id, name, arguments } => {
                map.serialize_entry("id", id)?;
                map.serialize_entry("name", name)?;
                map.serialize_entry("arguments", arguments)?;
            }
            Self::ToolResult { tool_call_id, content, is_error } => {
                map.serialize_entry("toolCallId", tool_call_id)?;
                map.serialize_entry("content", content)?;
                if let Some(is_error) = is_error {
                    map.serialize_entry("isError", is_error)?;
                }
            }
            Self::Other(_) => {}
        }
        map.end()
    }
}

/// Where a message came from, by `kind`.
#[derive(Debug, Clone)]
pub enum Source {
    /// `user`: a person.
    User,
    /// `tool{callId}`: the result of a tool call.
    Tool {
        /// Id of the call.
        call_id: String,
    },
    /// `model{provider,model,replayState?}`: a provider's answer.
    Model {
        /// Name of the route that made it.
        provider: String,
        /// Model id on the wire.
        model: String,
        /// Replay metadata as stored. It may be anything: it is checked before use and never rewritten.
        replay_state: Option<Raw>,
        /// Members that are not in the list above.
        extra: Object,
    },
    /// `plugin{plugin,…}` and every other kind, as it was written.
    Other(Raw),
}

impl Source {
    /// A note that the host itself puts into the conversation: `plugin{plugin: "dsh"}`.
    #[must_use]
    pub fn host() -> Self {
        Self::Other(raw(&serde_json::json!({ "kind": "plugin", "plugin": "dsh" })))
    }

    /// A model source without further members.
    #[must_use]
    pub fn model(provider: impl Into<String>, model: impl Into<String>, replay_state: Option<Raw>) -> Self {
        Self::Model { provider: provider.into(), model: model.into(), replay_state, extra: Object::new() }
    }

    fn parse(value: Raw) -> Self {
        Self::parse_known(&value).unwrap_or(Self::Other(value))
    }

    fn parse_known(value: &Raw) -> Option<Self> {
        let mut o: Object = json::from_str(value.get()).ok()?;
        match o.take_as::<String>("kind")?.as_str() {
            "user" if o.is_empty() => Some(Self::User),
            "tool" if o.get("callId").is_some() => {
                let call_id = o.take_as("callId")?;
                o.is_empty().then_some(Self::Tool { call_id })
            }
            "model" => Some(Self::Model {
                provider: o.take_as("provider")?,
                model: o.take_as("model")?,
                replay_state: o.take("replayState"),
                extra: o,
            }),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(Self::parse)
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = match self {
            Self::Other(value) => return value.serialize(serializer),
            _ => serializer.serialize_map(None)?,
        };
        match self {
            Self::User => map.serialize_entry("kind", "user")?,
            Self::Tool { call_id } => {
                map.serialize_entry("kind", "tool")?;
                map.serialize_entry("callId", call_id)?;
            }
            Self::Model { provider, model, replay_state, extra } => {
                map.serialize_entry("kind", "model")?;
                map.serialize_entry("provider", provider)?;
                map.serialize_entry("model", model)?;
                if let Some(state) = replay_state {
                    map.serialize_entry("replayState", state)?;
                }
                for (name, value) in extra.iter() {
                    map.serialize_entry(name, value)?;
                }
            }
            Self::Other(_) => {}
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut o = Object::deserialize(deserializer)?;
        let role = o.take("role").ok_or_else(|| serde::de::Error::missing_field("role"))?;
        let role = json::from_str(role.get()).map_err(|_| {
            serde::de::Error::custom(format_args!(
                "role {} is not one of \"system\", \"user\", \"assistant\"",
                role.get()
            ))
        })?;
        Ok(Self {
            id: o.take_as("id").unwrap_or_default(),
            role,
            content: match o.take("content") {
                None => Vec::new(),
                Some(value) if value.get() == "null" => Vec::new(),
                Some(value) => Block::parse_list(&replace_lone_surrogates(value.get()), true)
                    .ok_or_else(|| serde::de::Error::custom("content is not an array of blocks"))?,
            },
            source: o.take("source").map_or_else(|| Source::Other(raw(&serde_json::json!({}))), Source::parse),
            extra: o,
        })
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("role", &self.role)?;
        map.serialize_entry("content", &self.content)?;
        map.serialize_entry("source", &self.source)?;
        for (name, value) in self.extra.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_message_survives_a_round_trip() {
        for text in [
            r#"{"id":"m","role":"user","content":[{"type":"text","text":"a"}],"source":{"kind":"user"}}"#,
            r#"{"id":"m","role":"assistant","content":[{"type":"reasoning","text":""},{"type":"tool-call","id":"c","name":"bash","arguments":"{\"n\":12345678901234567890123}"}],"source":{"kind":"model","provider":"p","model":"m","replayState":null,"more":1}}"#,
            r#"{"id":"m","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"image","mimeType":"image/png","data":"AA=="}],"isError":false}],"source":{"kind":"tool","callId":"c"},"x":{"y":[1]}}"#,
            r#"{"id":"m","role":"user","content":[{"type":"hologram","n":1.50},{"type":"text"},7],"source":{"kind":"plugin","plugin":"p","form":"snapshot"}}"#,
            r#"{"id":"m","role":"user","content":[{"type":"tool-result","toolCallId":"c","content":"bare"}],"source":{"kind":"user"}}"#,
            r#"{"id":"m","role":"user","content":[{"type":"image","attachment":{"path":"a.png"}}],"source":{"kind":"user","via":"editor"}}"#,
        ] {
            let message: Message = json::from_str(text).unwrap();
            assert_eq!(raw(&message).get(), text);
        }
    }

    #[test]
    fn what_lacks_something_is_kept_and_what_is_null_is_there() {
        for (text, kept) in [
            (r#"{"type":"text","text":null}"#, true),
            (r#"{"type":"text","text":7}"#, true),
            (r#"{"type":"text","text":"a","text":"b"}"#, false),
            (r#"{"type":null,"type":"text","text":"a\ud83d"}"#, false),
            (r#"{"type":"image","attachment":null,"data":"x"}"#, false),
            (r#"{"type":"image","mimeType":"image/png"}"#, true),
            (r#"{"type":"tool-call","id":"c","name":"b","arguments":null}"#, false),
            (r#"{"type":"tool-call","id":"c","arguments":"{}"}"#, true),
            (r#"{"type":"tool-result","toolCallId":"c","content":null}"#, true),
            (r#"{"type":"tool-result","toolCallId":"c","isError":null}"#, false),
            (r#"{"type":"tool-result","content":[]}"#, true),
            ("[]", true),
            ("null", true),
        ] {
            let block: Block = serde_json::from_str(text).unwrap();
            assert_eq!(matches!(&block, Block::Other(_)), kept, "{text}");
            assert!(!kept || raw(&block).get() == text, "{text}");
        }
        let text = r#"{"type":"tool-call","id":"c","name":"b","arguments":null}"#;
        assert!(matches!(json::from_str(text).unwrap(), Block::ToolCall { arguments, .. } if arguments == "null"));
        let text = r#"{"type":"image","attachment":["\ud83d"]}"#;
        let block: Block = serde_json::from_str(text).unwrap();
        assert_eq!(raw(&block).get(), text.replace("d83d", "fffd"));
    }

    #[test]
    fn hostile_nesting_is_carried_verbatim() {
        let depth = 200_000;
        let text = r#"{"type":"tool-result","toolCallId":"c","content":["#.repeat(depth) + &"]}".repeat(depth);
        let block: Block = json::from_str(&text).unwrap();
        assert!(matches!(&block, Block::ToolResult { content, .. } if matches!(content[..], [Block::Other(_)])));
        assert_eq!(raw(&block).get(), text);
    }

    #[test]
    fn arguments_that_are_no_string_are_read_as_their_text() {
        let block: Block = json::from_str(r#"{"type":"tool-call","id":"c","name":"b","arguments":{"a":1}}"#).unwrap();
        assert!(matches!(block, Block::ToolCall { arguments, .. } if arguments == r#"{"a":1}"#));
    }

    #[test]
    fn a_message_without_a_role_is_refused_with_the_reason() {
        let error = json::from_str::<Message>(r#"{"id":"m","role":"boss"}"#).unwrap_err().to_string();
        assert!(error.contains("\"boss\" is not one of"), "{error}");
    }
}
