//! Decides for every message of a history whether it goes out with its replay metadata.
//!
//! Durable content is the record; replay metadata is fidelity. Metadata that cannot be used costs one message its
//! fidelity, with the reason, and the request goes out. Stored state is read here and never rewritten.
//!
//! The checks run in a fixed order, so that the reason is always the first thing that is wrong: form, kind, version,
//! the message's own provider and model, number of blocks, types of blocks. What passes is sound; it is used when the
//! request goes to the route and model that made it, and the adapter has the last word on those.

#[cfg(test)]
mod tests;

use dsh_plugin_api::abi::calls::CheckHistory;
use dsh_plugin_api::json::{self, Object, Raw};
use dsh_plugin_api::vocab::{
    Block, EnvelopeId, InvalidReplay, Message, ReplayDegrade, ReplayEnvelope, Role, Source, Target,
};

use super::prepare::{Degraded, Neutral, Replay};
use super::registry::Route;
use super::view::{HistoryMessage, is_blank};

/// What becomes of one message of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes out with its replay metadata.
    Native,
    /// It goes out provider-neutral. Messages that are not the assistant's always do.
    Foreign,
    /// An earlier host stored the partial answer of an attempt that failed: it is left out.
    FailedAttempt,
}

/// The fates of a history, and what is to be said about them.
#[derive(Debug, Clone, Default)]
pub struct Routed {
    /// One per message.
    pub fates: Vec<Fate>,
    /// Messages whose metadata cannot be used, in order.
    pub degraded: Vec<Degraded>,
    /// Messages that go out foreign for a normal reason, in order.
    pub neutral: Vec<Neutral>,
}

/// What the host's own checks say of one assistant message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judgement {
    /// Sound, and made by the target: the adapter decides.
    Candidate,
    /// Nothing is wrong with it, but it is not of this target.
    Neutral(String),
    /// It cannot be used.
    Degraded(String),
}

/// Routes every message of a history.
///
/// The adapter is asked at most once, for all messages that pass the host's checks. When it fails to answer, those
/// messages go out foreign and are reported as degraded: an adapter cannot make a session stick. With
/// [`Replay::AllForeign`] it is not asked at all.
#[must_use]
pub fn route(route: &Route, target: &Target, history: &[HistoryMessage], replay: Replay) -> Routed {
    let mut routed = Routed { fates: vec![Fate::Foreign; history.len()], ..Routed::default() };
    let mut candidates = Vec::new();
    for (position, entry) in history.iter().enumerate() {
        if entry.message.role != Role::Assistant {
            continue;
        }
        if is_failed_attempt(entry) {
            routed.fates[position] = Fate::FailedAttempt;
            continue;
        }
        let judgement = judge(&entry.message, &route.envelope, target);
        match judgement {
            Judgement::Candidate if replay == Replay::Routed => candidates.push(position),
            // A message that says nothing is left out of the request, so there is nothing to report.
            _ if is_silent(&entry.message) => {}
            Judgement::Candidate => {
                routed.neutral(position, "replay metadata is left out after the provider refused it".to_owned());
            }
            Judgement::Neutral(reason) => routed.neutral(position, reason),
            Judgement::Degraded(reason) => routed.degraded(position, &entry.message, reason),
        }
    }
    routed.ask(route, target, history, &candidates);
    routed
}

/// Tells the adapter's hook of each degraded message. A hook that fails is logged and changes nothing.
pub fn announce(route: &Route, target: &Target, degraded: &[Degraded]) {
    for entry in degraded {
        let event = ReplayDegrade {
            message: entry.message,
            message_id: entry.message_id.clone(),
            code: entry.code.to_owned(),
            reason: entry.reason.clone(),
            target: target.clone(),
        };
        if let Err(failure) = route.handle.on_replay_degrade(&event) {
            tracing::warn!(adapter = route.adapter, %failure, "the adapter's on_replay_degrade hook failed");
        }
    }
}

impl Routed {
    /// Lets the adapter judge the candidates.
    fn ask(&mut self, route: &Route, target: &Target, history: &[HistoryMessage], candidates: &[usize]) {
        if candidates.is_empty() {
            return;
        }
        let messages = candidates.iter().map(|position| history[*position].message.clone()).collect();
        let verdicts = match route.handle.check_history(&CheckHistory { target: target.clone(), messages }) {
            Ok(verdicts) if verdicts.len() == candidates.len() => verdicts,
            Ok(verdicts) => {
                let reason = format!(
                    "the adapter {:?} answered {} verdicts for {} messages",
                    route.adapter,
                    verdicts.len(),
                    candidates.len()
                );
                vec![Some(InvalidReplay::Invalid(reason)); candidates.len()]
            }
            Err(failure) => {
                let reason = format!("the adapter {:?} failed to check it: {failure}", route.adapter);
                vec![Some(InvalidReplay::Invalid(reason)); candidates.len()]
            }
        };
        for (position, verdict) in candidates.iter().copied().zip(verdicts) {
            match verdict {
                None => self.fates[position] = Fate::Native,
                Some(InvalidReplay::OtherOrigin(reason)) => self.neutral(position, reason),
                Some(InvalidReplay::Invalid(reason)) => self.degraded(position, &history[position].message, reason),
            }
        }
    }

    /// Makes every native message foreign, for an adapter that cannot convert what it had accepted.
    pub fn give_up_native(&mut self, history: &[HistoryMessage], reason: &str) {
        for (position, entry) in history.iter().enumerate() {
            if self.fates[position] == Fate::Native {
                self.fates[position] = Fate::Foreign;
                self.degraded(position, &entry.message, reason.to_owned());
            }
        }
    }

    fn degraded(&mut self, position: usize, message: &Message, reason: String) {
        let entry = Degraded { message: position, message_id: message.id.clone(), code: ReplayDegrade::CODE, reason };
        let (Ok(at) | Err(at)) = self.degraded.binary_search_by_key(&position, |other| other.message);
        self.degraded.insert(at, entry);
    }

    fn neutral(&mut self, position: usize, reason: String) {
        let (Ok(at) | Err(at)) = self.neutral.binary_search_by_key(&position, |other| other.message);
        self.neutral.insert(at, Neutral { message: position, reason });
    }
}

/// The host's own checks of an assistant message.
fn judge(message: &Message, envelope: &EnvelopeId, target: &Target) -> Judgement {
    let (provider, model, state) = match &message.source {
        Source::Model { provider, model, replay_state: Some(state), .. } => (provider, model, state),
        Source::Model { replay_state: None, .. } | Source::User | Source::Tool { .. } => {
            return Judgement::Neutral("it has no replay state".to_owned());
        }
        Source::Other(source) => {
            let has_state = json::from_str::<Object>(source.get()).is_ok_and(|o| o.get("replayState").is_some());
            return if has_state {
                Judgement::Degraded("its source names no provider and model that made it".to_owned())
            } else {
                Judgement::Neutral("it has no replay state".to_owned())
            };
        }
    };
    if let Err(InvalidReplay::Invalid(reason) | InvalidReplay::OtherOrigin(reason)) =
        check_envelope(&message.content, provider, model, state, envelope)
    {
        return Judgement::Degraded(reason);
    }
    if *provider != target.provider || *model != target.model {
        return Judgement::Neutral(format!("it was made by {provider}/{model}"));
    }
    Judgement::Candidate
}

/// Form, kind, version, origin and alignment of an envelope, in this order.
fn check_envelope(
    content: &[Block],
    provider: &str,
    model: &str,
    state: &Raw,
    expected: &EnvelopeId,
) -> Result<(), InvalidReplay> {
    let invalid = |reason: String| Err(InvalidReplay::Invalid(reason));
    let envelope = ReplayEnvelope::parse(state)?;
    let head = envelope.head()?;
    if head.kind != expected.kind {
        return invalid(format!(
            "its replay state is of kind {:?}, this adapter writes {:?}",
            head.kind, expected.kind
        ));
    }
    if head.version != expected.version.to_string() {
        return invalid(format!(
            "its replay state has version {} of {:?}, this adapter reads version {}",
            head.version, head.kind, expected.version
        ));
    }
    for (what, of_envelope, of_message) in [("provider", head.provider, provider), ("model", head.model, model)] {
        if let Some(named) = of_envelope
            && named != of_message
        {
            return invalid(format!("its replay state names {what} {named:?}, the message itself {of_message:?}"));
        }
    }
    let Some(types) = envelope.block_types() else { return Ok(()) };
    if types.len() != content.len() {
        return invalid(format!(
            "its replay state has {} block entries, the message {} blocks",
            types.len(),
            content.len()
        ));
    }
    for (position, (entry_type, block)) in types.iter().zip(content).enumerate() {
        let kind = block.kind();
        if let Some(entry_type) = entry_type
            && *entry_type != kind
        {
            return invalid(format!(
                "entry {position} of its replay state is of type {entry_type:?}, the block is of type {kind:?}"
            ));
        }
    }
    Ok(())
}

/// Old hosts stored the partial answer of a failed attempt, with `error` or `aborted` as its stop reason. A partial
/// that was kept on purpose carries the interrupted mark, which counts whatever the envelope says.
fn is_failed_attempt(entry: &HistoryMessage) -> bool {
    let Source::Model { replay_state: Some(state), .. } = &entry.message.source else { return false };
    let Ok(state) = json::from_str::<Object>(state.get()) else { return false };
    let stop_reason = match state.get("response") {
        Some(response) => json::from_str::<Object>(response.get()).ok().and_then(|o| o.get_str("stopReason")),
        None => state.get_str("stopReason"),
    };
    !entry.interrupted && matches!(stop_reason.as_deref(), Some("error" | "aborted"))
}

/// True for a message without anything but blank text.
fn is_silent(message: &Message) -> bool {
    message.content.iter().all(|block| matches!(block, Block::Text(text) if is_blank(text)))
}
