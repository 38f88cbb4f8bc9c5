//! How thinking is switched.

use dsh_plugin_api::json::{Object, raw};
use serde_json::json;

use super::dialect::Dialect;
use crate::effort::{Off, Thinking};

/// Adds the members that switch thinking, and asks for reasoning that can be sent back.
pub(super) fn apply(body: &mut Object, thinking: &Thinking, dialect: &Dialect) {
    let off = match thinking {
        Thinking::Unavailable => return,
        Thinking::On { effort, .. } => {
            body.set("reasoning", raw(&json!({"effort": effort, "summary": "auto"})));
            None
        }
        Thinking::Off(Off::Impossible) => None,
        Thinking::Off(Off::Named(name)) => Some(name.as_str()),
        Thinking::Off(Off::Unnamed) => Some("none"),
    };
    if let Some(effort) = off.filter(|_| dialect.off_by_effort) {
        body.set("reasoning", raw(&json!({"effort": effort})));
    }
    if matches!(thinking, Thinking::On { .. }) || dialect.always_encrypted {
        body.set("include", raw(&["reasoning.encrypted_content"]));
    }
}
