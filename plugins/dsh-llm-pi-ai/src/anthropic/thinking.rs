//! How thinking is switched: adaptive with an effort, or with a budget of tokens that is added to the output limit.

use dsh_plugin_api::json::{Object, raw};
use serde_json::json;

use super::dialect::Dialect;
use crate::config::{Level, LevelSpelling, Model};
use crate::effort::{Off, Thinking};

/// The least that the provider takes as a budget, and what is left for the answer beside one, in tokens.
const LEAST: u64 = 1024;

/// What is said about thinking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing.
    Silent,
    /// It is off.
    Disabled,
    /// The model decides, by this effort.
    Adaptive(String),
    /// It is on, with this many tokens.
    Budget(u64),
}

impl Mode {
    /// The mode for what the request asks.
    pub fn of(thinking: &Thinking, dialect: &Dialect) -> Self {
        match thinking {
            Thinking::Unavailable | Thinking::Off(Off::Impossible) => Self::Silent,
            Thinking::Off(Off::Unnamed | Off::Named(_)) => Self::Disabled,
            Thinking::On { effort, mapped: true, .. } if dialect.adaptive_thinking => Self::Adaptive(effort.clone()),
            Thinking::On { level, .. } if dialect.adaptive_thinking => {
                let effort = match level {
                    Level::Off | Level::Minimal | Level::Low => Level::Low,
                    Level::Medium => Level::Medium,
                    Level::High | Level::Xhigh | Level::Max => Level::High,
                };
                Self::Adaptive(effort.name().to_owned())
            }
            Thinking::On { level, .. } => Self::Budget(match level {
                Level::Off | Level::Minimal => 1024,
                Level::Low => 2048,
                Level::Medium => 8192,
                Level::High | Level::Xhigh | Level::Max => 16384,
            }),
        }
    }

    /// Off, as far as the model can be: one that always thinks is told nothing.
    pub fn off(model: &Model) -> Self {
        match model.thinking_level_map.get(&Level::Off) {
            Some(LevelSpelling::Switch(_)) => Self::Silent,
            Some(LevelSpelling::Name(_)) | None => Self::Disabled,
        }
    }

    /// True when the model may think.
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::Adaptive(_) | Self::Budget(_))
    }

    /// The tokens that are added to the output limit.
    pub const fn budget(&self) -> u64 {
        match self {
            Self::Budget(tokens) => *tokens,
            Self::Silent | Self::Disabled | Self::Adaptive(_) => 0,
        }
    }

    /// The mode beside an output limit: a budget leaves room for the answer, and stays below the limit in any case.
    /// `None` where not even the least budget fits.
    pub fn within(self, limit: u64) -> Option<Self> {
        match self {
            Self::Budget(_) if limit <= LEAST => None,
            Self::Budget(tokens) => Some(Self::Budget(tokens.min(limit.saturating_sub(LEAST)).max(LEAST))),
            Self::Silent | Self::Disabled | Self::Adaptive(_) => Some(self),
        }
    }

    /// Adds the members that switch thinking.
    pub fn apply(&self, body: &mut Object) {
        match self {
            Self::Silent => {}
            Self::Disabled => body.set("thinking", raw(&json!({"type": "disabled"}))),
            Self::Adaptive(effort) => {
                body.set("thinking", raw(&json!({"type": "adaptive", "display": "summarized"})));
                body.set("output_config", raw(&json!({"effort": effort})));
            }
            Self::Budget(tokens) => {
                let thinking = json!({"type": "enabled", "budget_tokens": tokens, "display": "summarized"});
                body.set("thinking", raw(&thinking));
            }
        }
    }
}
