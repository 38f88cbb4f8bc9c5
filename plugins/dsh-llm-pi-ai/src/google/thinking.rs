//! How thinking is switched: by level from Gemini 3 on and for Gemma, by a budget of tokens before.
//!
//! Source: Google's guide to thinking; levels and budgets by model, and that Pro models and Gemini 3 cannot be kept
//! from thinking.

use dsh_plugin_api::json::{Object, Raw, raw};

use super::family::{Family, Size};
use crate::config::{Level, LevelSpelling, Model};
use crate::effort::{self, Off, Thinking};

/// A budget that leaves it to the model.
const DYNAMIC: i64 = -1;

/// How much a model is to think.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Amount {
    /// `thinkingLevel`
    Level(String),
    /// `thinkingBudget`, in tokens.
    Budget(i64),
}

/// The `thinkingConfig` of a request; none for a model that does not think.
pub(super) fn config(thinking: &Thinking, model: &Model, family: Family) -> Option<Raw> {
    let (on, amount) = match thinking {
        Thinking::Unavailable => return None,
        Thinking::On { effort, mapped: true, .. } => (true, spelled(effort, family)),
        Thinking::On { level, .. } => (true, amount(*level, family)),
        Thinking::Off(Off::Named(name)) => (false, spelled(name, family)),
        Thinking::Off(Off::Unnamed) => (false, off(family)),
        Thinking::Off(Off::Impossible) => (false, least(model, family)),
    };
    let mut out = Object::new();
    if on {
        out.set("includeThoughts", raw(&true));
    }
    match amount {
        Amount::Level(level) => out.set("thinkingLevel", raw(&level)),
        Amount::Budget(tokens) => out.set("thinkingBudget", raw(&tokens)),
    }
    Some(raw(&out))
}

/// A spelling of the manifest: a number of tokens, the name of a level, or a word of the wire.
fn spelled(name: &str, family: Family) -> Amount {
    if let Ok(tokens) = name.trim().parse() {
        return Amount::Budget(tokens);
    }
    match Level::ALL.into_iter().find(|level| level.name().eq_ignore_ascii_case(name)) {
        Some(Level::Off) => off(family),
        Some(level) => match amount(level, family) {
            // The manifest knows better which levels the model has.
            Amount::Level(_) => Amount::Level(name.to_ascii_uppercase()),
            budget @ Amount::Budget(_) => budget,
        },
        None => Amount::Level(name.to_ascii_uppercase()),
    }
}

/// The least that a model has which always thinks.
fn least(model: &Model, family: Family) -> Amount {
    let has = |level: &Level| *level != Level::Off && effort::is_supported(*level, model);
    let level = Level::ALL.into_iter().find(has).unwrap_or(Level::Minimal);
    match model.thinking_level_map.get(&level) {
        Some(LevelSpelling::Name(name)) => spelled(name, family),
        _ => amount(level, family),
    }
}

/// Off, for a model of which the manifest does not say that it always thinks.
fn off(family: Family) -> Amount {
    match family {
        Family::Gemini { generation: 2, size: Size::Pro } | Family::Gemma => amount(Level::Minimal, family),
        _ => Amount::Budget(0),
    }
}

fn amount(level: Level, family: Family) -> Amount {
    match family {
        Family::Gemini { generation: 3.., size } => Amount::Level(
            match level {
                Level::Off | Level::Minimal if size == Size::Pro => "LOW",
                Level::Off | Level::Minimal => "MINIMAL",
                Level::Low => "LOW",
                Level::Medium => "MEDIUM",
                Level::High | Level::Xhigh | Level::Max => "HIGH",
            }
            .to_owned(),
        ),
        Family::Gemma => Amount::Level(
            match level {
                Level::Off | Level::Minimal | Level::Low => "MINIMAL",
                Level::Medium | Level::High | Level::Xhigh | Level::Max => "HIGH",
            }
            .to_owned(),
        ),
        Family::Gemini { generation: 2, size } => Amount::Budget(match (level, size) {
            (Level::Off | Level::Minimal, Size::FlashLite) => 512,
            (Level::Off | Level::Minimal, _) => 128,
            (Level::Low, _) => 2048,
            (Level::Medium, _) => 8192,
            (Level::High | Level::Xhigh | Level::Max, Size::Pro) => 32_768,
            (Level::High | Level::Xhigh | Level::Max, _) => 24_576,
        }),
        Family::Gemini { .. } | Family::Guest | Family::Other => Amount::Budget(DYNAMIC),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sent(id: &str, thinking: &Thinking) -> Value {
        config(thinking, &Model::default(), Family::of(id))
            .map_or(Value::Null, |config| serde_json::from_str(config.get()).unwrap())
    }

    fn on(level: Level) -> Thinking {
        Thinking::On { level, effort: level.name().to_owned(), mapped: false }
    }

    #[test]
    fn levels_and_budgets_depend_on_the_model() {
        for (id, level, expected) in [
            ("gemini-3-pro-preview", Level::Minimal, json!("LOW")),
            ("gemini-3-pro-preview", Level::Low, json!("LOW")),
            ("gemini-3-pro-preview", Level::Medium, json!("MEDIUM")),
            ("gemini-3-pro-preview", Level::High, json!("HIGH")),
            ("gemini-3-flash-preview", Level::Minimal, json!("MINIMAL")),
            ("gemini-flash-latest", Level::Medium, json!("MEDIUM")),
            ("gemma-4-31b-it", Level::Low, json!("MINIMAL")),
            ("gemma-4-31b-it", Level::Medium, json!("HIGH")),
            ("gemini-2.5-pro", Level::Minimal, json!(128)),
            ("gemini-2.5-pro", Level::High, json!(32768)),
            ("gemini-2.5-flash", Level::Low, json!(2048)),
            ("gemini-2.5-flash", Level::Medium, json!(8192)),
            ("gemini-2.5-flash", Level::High, json!(24576)),
            ("gemini-2.5-flash-lite", Level::Minimal, json!(512)),
            ("gemini-exp-1206", Level::Low, json!(-1)),
            ("gemini-2.0-flash", Level::High, json!(-1)),
        ] {
            let name = if expected.is_string() { "thinkingLevel" } else { "thinkingBudget" };
            assert_eq!(sent(id, &on(level)), json!({"includeThoughts": true, name: expected}), "{id} {level:?}");
        }
        assert_eq!(sent("gemini-3-pro", &Thinking::Unavailable), Value::Null);
    }

    #[test]
    fn off_is_no_budget_or_the_least_that_the_model_has() {
        for (id, off, expected) in [
            ("gemini-2.5-flash", Off::Unnamed, json!({"thinkingBudget": 0})),
            ("gemini-3-pro-preview", Off::Unnamed, json!({"thinkingBudget": 0})),
            ("gemini-2.5-pro", Off::Unnamed, json!({"thinkingBudget": 128})),
            ("gemini-pro-x", Off::Unnamed, json!({"thinkingBudget": 0})),
            ("gemma-4-31b-it", Off::Unnamed, json!({"thinkingLevel": "MINIMAL"})),
            ("gemini-3-pro-preview", Off::Impossible, json!({"thinkingLevel": "LOW"})),
            ("gemini-3-flash-preview", Off::Impossible, json!({"thinkingLevel": "MINIMAL"})),
            ("gemini-2.5-flash", Off::Impossible, json!({"thinkingBudget": 128})),
            ("gemini-3-pro-preview", Off::Named("low".into()), json!({"thinkingLevel": "LOW"})),
            ("gemini-2.5-pro", Off::Named("256".into()), json!({"thinkingBudget": 256})),
            ("gemini-2.5-flash", Off::Named("off".into()), json!({"thinkingBudget": 0})),
        ] {
            assert_eq!(sent(id, &Thinking::Off(off)), expected, "{id}");
        }
    }

    #[test]
    fn a_spelling_of_the_manifest_wins() {
        for (id, effort, expected) in [
            ("gemini-3-pro-preview", "minimal", json!({"includeThoughts": true, "thinkingLevel": "MINIMAL"})),
            ("gemini-3-pro-preview", "ULTRA", json!({"includeThoughts": true, "thinkingLevel": "ULTRA"})),
            ("gemini-2.5-flash", "low", json!({"includeThoughts": true, "thinkingBudget": 2048})),
            ("gemini-2.5-flash", "-1", json!({"includeThoughts": true, "thinkingBudget": -1})),
        ] {
            let thinking = Thinking::On { level: Level::High, effort: effort.into(), mapped: true };
            assert_eq!(sent(id, &thinking), expected, "{id} {effort}");
        }
    }

    #[test]
    fn a_model_that_always_thinks_is_told_the_least_that_the_manifest_leaves() {
        let no = || LevelSpelling::Switch(false);
        let name = |name: &str| LevelSpelling::Name(name.to_owned());
        for (id, map, expected) in [
            ("gemini-3-flash-preview", vec![(Level::Minimal, no())], json!({"thinkingLevel": "LOW"})),
            ("gemini-3-flash-preview", vec![(Level::Minimal, name("low"))], json!({"thinkingLevel": "LOW"})),
            ("gemini-2.5-flash", vec![(Level::Minimal, no())], json!({"thinkingBudget": 2048})),
            ("gemini-2.5-pro", vec![(Level::Minimal, name("256"))], json!({"thinkingBudget": 256})),
        ] {
            let map = map.into_iter().chain([(Level::Off, no())]).collect();
            let model = Model { thinking_level_map: map, ..Model::default() };
            let sent = config(&Thinking::Off(Off::Impossible), &model, Family::of(id)).unwrap();
            assert_eq!(serde_json::from_str::<Value>(sent.get()).unwrap(), expected, "{id}");
        }
    }
}
