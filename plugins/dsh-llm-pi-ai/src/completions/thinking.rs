//! How thinking is switched, by dialect.

use dsh_plugin_api::json::{Object, raw};
use serde_json::{Map, Value, json};

use super::dialect::Dialect;
use crate::config::ThinkingFormat;
use crate::effort::{Off, Thinking};

/// Adds the members that switch thinking.
pub(super) fn apply(body: &mut Object, thinking: &Thinking, dialect: &Dialect, kwargs: Option<&Map<String, Value>>) {
    let mut set = |key: &str, value: Value| body.set(key, raw(&value));
    let (on, effort) = match thinking {
        Thinking::Unavailable => return,
        Thinking::Off(_) => (false, None),
        Thinking::On { effort, .. } => (true, Some(effort)),
    };
    let off = |default: &str| match thinking {
        Thinking::Off(Off::Named(name)) => Some(name.clone()),
        Thinking::Off(Off::Unnamed) => Some(default.to_owned()),
        _ => None,
    };
    let cannot_be_off = *thinking == Thinking::Off(Off::Impossible);
    let plain_effort = effort.filter(|_| dialect.reasoning_effort).cloned();
    match dialect.thinking_format {
        ThinkingFormat::Openai => {
            let named_off = match thinking {
                Thinking::Off(Off::Named(name)) if dialect.reasoning_effort => Some(name.clone()),
                _ => None,
            };
            if let Some(effort) = plain_effort.or(named_off) {
                set("reasoning_effort", json!(effort));
            }
            return;
        }
        ThinkingFormat::Deepseek | ThinkingFormat::Zai => {
            if on && dialect.thinking_format == ThinkingFormat::Zai {
                set("thinking", json!({"type": "enabled", "clear_thinking": false}));
            } else if on {
                set("thinking", json!({"type": "enabled"}));
            } else if !(cannot_be_off && dialect.thinking_format == ThinkingFormat::Deepseek) {
                set("thinking", json!({"type": "disabled"}));
            }
        }
        ThinkingFormat::Qwen => set("enable_thinking", json!(on)),
        ThinkingFormat::QwenChatTemplate => {
            set("chat_template_kwargs", json!({"enable_thinking": on, "preserve_thinking": true}));
            return;
        }
        ThinkingFormat::ChatTemplate => {
            let named_off = match thinking {
                Thinking::Off(Off::Named(name)) => Some(name.clone()),
                _ => None,
            };
            let filled = filled(kwargs, on, effort.cloned().or(named_off));
            if !filled.is_empty() {
                set("chat_template_kwargs", Value::Object(filled));
            }
            return;
        }
        ThinkingFormat::Openrouter => {
            if let Some(effort) = effort.cloned().or_else(|| off("none")) {
                set("reasoning", json!({"effort": effort}));
            }
            return;
        }
        ThinkingFormat::Together => set("reasoning", json!({"enabled": on})),
        ThinkingFormat::StringThinking => {
            if let Some(effort) = effort.cloned().or_else(|| off("none")) {
                set("thinking", json!(effort));
            }
            return;
        }
        ThinkingFormat::AntLing => {
            if let Thinking::On { effort, mapped: true, .. } = thinking {
                set("reasoning", json!({"effort": effort}));
            }
            return;
        }
    }
    if let Some(effort) = plain_effort {
        set("reasoning_effort", json!(effort));
    }
}

/// `chat_template_kwargs` as declared: constants as they are, variables by name.
fn filled(declared: Option<&Map<String, Value>>, on: bool, effort: Option<String>) -> Map<String, Value> {
    let value_of = |declared: &Value| {
        let Some(variable) = declared.get("var").and_then(Value::as_str) else { return Some(declared.clone()) };
        let omitted = !on && declared.get("omit_when_off").and_then(Value::as_bool) == Some(true);
        match variable {
            _ if omitted => None,
            "thinking.enabled" => Some(json!(on)),
            _ => effort.clone().map(Value::String),
        }
    };
    declared
        .into_iter()
        .flatten()
        .filter_map(|(key, declared)| value_of(declared).map(|value| (key.clone(), value)))
        .collect()
}

/// Checks `chat_template_kwargs`.
///
/// # Errors
///
/// Says which entry is wrong and what would be right.
pub(super) fn check_kwargs(declared: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in declared {
        let Some(table) = value.as_object().filter(|table| table.contains_key("var")) else { continue };
        if !matches!(table["var"].as_str(), Some("thinking.enabled" | "thinking.effort")) {
            return Err(format!("{key}.var is \"thinking.enabled\" or \"thinking.effort\", not {}", table["var"]));
        }
        if let Some(unknown) = table.keys().find(|name| !matches!(name.as_str(), "var" | "omit_when_off")) {
            return Err(format!("{key}.{unknown} is unknown: a variable has `var` and `omit_when_off`"));
        }
        if table.get("omit_when_off").is_some_and(|value| !value.is_boolean()) {
            return Err(format!("{key}.omit_when_off is true or false"));
        }
    }
    Ok(())
}
