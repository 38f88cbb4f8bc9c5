//! The reasoning effort of a request as a model takes it.

use dsh_plugin_api::vocab::{Failure, FailureCode, Target};

use crate::config::{Level, LevelSpelling, Model};

/// The level that a request asks for, in the model's spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Thinking {
    /// The model does not think; nothing is sent.
    Unavailable,
    /// Off, in the model's spelling where it has one.
    Off(Off),
    /// On.
    On {
        /// The level that was asked for.
        level: Level,
        /// Its spelling on the wire.
        effort: String,
        /// True when the manifest spells it.
        mapped: bool,
    },
}

/// What the manifest says about `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Off {
    /// Nothing.
    Unnamed,
    /// It has a spelling.
    Named(String),
    /// The model always thinks.
    Impossible,
}

/// Reads the requested effort.
///
/// # Errors
///
/// `UNSUPPORTED` for a level that the model does not have; the levels that it has are named.
pub(crate) fn of(effort: Option<&str>, model: &Model, target: &Target) -> Result<Thinking, Failure> {
    if !model.reasoning {
        return Ok(Thinking::Unavailable);
    }
    let spelling = |level: Level| model.thinking_level_map.get(&level);
    let effort = effort.map(str::trim).filter(|effort| !effort.is_empty() && *effort != Level::Off.name());
    let Some(effort) = effort else {
        return Ok(Thinking::Off(match spelling(Level::Off) {
            None => Off::Unnamed,
            Some(LevelSpelling::Name(name)) => Off::Named(name.clone()),
            Some(LevelSpelling::Switch(_)) => Off::Impossible,
        }));
    };
    let supported = |level: &Level| is_supported(*level, model);
    let level = Level::ALL.into_iter().find(|level| level.name() == effort).filter(supported).ok_or_else(|| {
        let levels = Level::ALL.into_iter().filter(supported).map(Level::name).collect::<Vec<_>>().join(", ");
        let message = format!("{target} has no reasoning effort {effort:?}; it takes {levels}");
        Failure::new(FailureCode::Unsupported, message)
    })?;
    Ok(match spelling(level) {
        Some(LevelSpelling::Name(name)) => Thinking::On { level, effort: name.clone(), mapped: true },
        _ => Thinking::On { level, effort: level.name().to_owned(), mapped: false },
    })
}

/// True for a level that the model has: every one that the manifest does not deny, the two highest only by name.
pub(crate) fn is_supported(level: Level, model: &Model) -> bool {
    match model.thinking_level_map.get(&level) {
        None => !matches!(level, Level::Xhigh | Level::Max),
        Some(LevelSpelling::Name(_)) => true,
        Some(LevelSpelling::Switch(_)) => false,
    }
}
