//! How much of a session a model gets back as it was made: `dsh sessions show --fidelity`.
//!
//! The next request to that model is prepared and summed up, not sent. An adapter has the last word on its own
//! metadata, so this look at a session is the one that needs the manifest and loads its adapters.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dsh_plugin_api::vocab::{Message, Repair, Role, Source};
use serde::Serialize;

use super::super::output::{plain, table};
use super::super::request::{explain, prepare_session};
use super::super::{CommandError, Context};
use crate::agent::last_model;
use crate::llm::degrade::Fate;
use crate::llm::prepare::{Degraded, Neutral};
use crate::llm::view::RepairKind;
use crate::store::Log;

/// What becomes of a session's answers, and what is repaired on the way. Positions are those of
/// `sessions show --messages`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Fidelity {
    /// `provider/model`
    target: String,
    /// How many answers go out in each way.
    native: usize,
    neutral: usize,
    degraded: usize,
    #[serde(rename = "leftOut")]
    left_out: usize,
    /// One per answer of a model.
    messages: Vec<Answer>,
    /// One per kind.
    repairs: Vec<Repairs>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    message: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    made_by: Option<String>,
    fidelity: Way,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How an answer goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    Native,
    Neutral,
    Degraded,
    LeftOut,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Neutral => "neutral",
            Self::Degraded => "degraded",
            Self::LeftOut => "left out",
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
struct Repairs {
    kind: String,
    count: usize,
    /// Positions of the repaired messages, each once.
    messages: Vec<usize>,
}

impl Fidelity {
    /// The session's own: for `model`, else the model that it used last, else the agent's.
    ///
    /// # Errors
    ///
    /// Exit code 2 for a bad manifest or a model that it does not serve, 1 when no request can be made.
    pub fn of(context: &Context, log: &Log, model: Option<String>) -> Result<Self, CommandError> {
        let manifest = context.manifest()?;
        let registry = context.registry(&manifest)?;
        let model = model.or_else(|| last_model(log.events.singles())).or_else(|| manifest.default_agent().model);
        let model = model.ok_or_else(|| {
            CommandError::usage_text("the session has used no model yet", "name one with -m PROVIDER/MODEL")
        })?;
        let (route, target) = registry.resolve(&model).map_err(|failure| {
            CommandError::usage_text(
                failure.message,
                "name another with -m PROVIDER/MODEL; `dsh models` lists what the manifest serves",
            )
        })?;
        let history = log.messages();
        if history.is_empty() {
            return Ok(Self { target: target.to_string(), ..Self::default() });
        }
        let prepared = prepare_session(log, &manifest, &route, &target)
            .map_err(|failure| CommandError::failed_text(format!("{target}: {failure}")))?;
        let facts = Facts { fates: &prepared.fates, degraded: &prepared.degraded, neutral: &prepared.neutral };
        Ok(Self::new(target.to_string(), &history, facts, &prepared.repairs))
    }

    fn new(target: String, history: &[Message], facts: Facts<'_>, repairs: &[Repair]) -> Self {
        let answers = history.iter().enumerate().filter(|(_, message)| message.role == Role::Assistant);
        let messages: Vec<Answer> =
            answers.map(|(position, message)| facts.answer(position, message, repairs)).collect();
        let count = |way| messages.iter().filter(|answer| answer.fidelity == way).count();
        Self {
            target,
            native: count(Way::Native),
            neutral: count(Way::Neutral),
            degraded: count(Way::Degraded),
            left_out: count(Way::LeftOut),
            repairs: by_kind(repairs),
            messages,
        }
    }

    /// For a person.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { target, native, neutral, degraded, left_out, messages, repairs } = self;
        let count: usize = repairs.iter().map(|repair| repair.count).sum();
        writeln!(
            out,
            "To {target}: {native} native, {neutral} neutral, {degraded} degraded, {left_out} left out; {count} repairs",
        )?;
        if !messages.is_empty() {
            let rows = messages.iter().map(|Answer { message, made_by, fidelity, reason }| {
                let text = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), plain);
                [message.to_string(), text(made_by), fidelity.name().to_owned(), text(reason)]
            });
            write!(out, "\n{}", table(["MESSAGE", "MADE BY", "GOES OUT", "REASON"], rows))?;
        }
        if !repairs.is_empty() {
            let rows = repairs.iter().map(|repair| {
                let places: Vec<_> = repair.messages.iter().take(PLACES).map(ToString::to_string).collect();
                let more = if repair.messages.len() > PLACES { ", …" } else { "" };
                [repair.count.to_string(), plain(&explain(&repair.kind)), places.join(", ") + more]
            });
            write!(out, "\n{}", table(["COUNT", "REPAIR", "MESSAGES"], rows))?;
        }
        Ok(())
    }
}

/// How many positions of one kind of repair a person is shown.
const PLACES: usize = 12;

/// What a prepared request says of its messages.
#[derive(Clone, Copy)]
struct Facts<'a> {
    fates: &'a [Fate],
    degraded: &'a [Degraded],
    neutral: &'a [Neutral],
}

impl Facts<'_> {
    fn answer(self, position: usize, message: &Message, repairs: &[Repair]) -> Answer {
        let degraded = self.degraded.binary_search_by_key(&position, |entry| entry.message);
        let neutral = self.neutral.binary_search_by_key(&position, |entry| entry.message);
        // A message that says nothing in the request has a repair that says so, whatever else is said of it.
        let here = repairs.partition_point(|repair| repair.message < position);
        let here = repairs[here..].iter().take_while(|repair| repair.message == position);
        let unsaid = here.map(|repair| repair.kind.as_str()).find(|kind| LEFT_OUT.contains(kind));
        let (fidelity, reason) = match (unsaid, degraded, neutral) {
            (Some(kind), ..) => (Way::LeftOut, Some(kind.to_owned())),
            (None, Ok(at), _) => (Way::Degraded, Some(self.degraded[at].reason.clone())),
            (None, Err(_), Ok(at)) => (Way::Neutral, Some(self.neutral[at].reason.clone())),
            (None, Err(_), Err(_)) if self.fates.get(position) == Some(&Fate::Native) => (Way::Native, None),
            // Results alone, in a message of the assistant's role: they go to their calls.
            (None, Err(_), Err(_)) => (Way::Neutral, None),
        };
        let made_by = match &message.source {
            Source::Model { provider, model, .. } => Some(format!("{provider}/{model}")),
            Source::User | Source::Tool { .. } | Source::Other(_) => None,
        };
        Answer { message: position, made_by, fidelity, reason }
    }
}

/// Repairs that leave a whole message out.
const LEFT_OUT: [&str; 2] = [RepairKind::FailedAttempt.name(), RepairKind::EmptyMessage.name()];

fn by_kind(repairs: &[Repair]) -> Vec<Repairs> {
    let mut kinds: BTreeMap<&str, (usize, Vec<usize>)> = BTreeMap::new();
    for Repair { message, kind } in repairs {
        let (count, messages) = kinds.entry(kind).or_default();
        *count += 1;
        if messages.last() != Some(message) {
            messages.push(*message);
        }
    }
    let repairs = kinds.into_iter();
    repairs.map(|(kind, (count, messages))| Repairs { kind: kind.to_owned(), count, messages }).collect()
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::Block;
    use serde_json::json;

    use super::*;

    fn answer(model: &str) -> Message {
        Message::new("a", Role::Assistant, vec![Block::Text("t".into())], Source::model("p", model, None))
    }

    fn fidelity() -> Fidelity {
        let history =
            [Message::user("u", "q"), answer("m"), answer("n"), answer("m\u{1b}[31m"), answer("m"), answer("m")];
        let degraded = Degraded { message: 3, message_id: "a".into(), code: "C", reason: "bad\nstate".into() };
        let neutral = Neutral { message: 2, reason: "it was made by p/n".into() };
        let fates = [Fate::Foreign, Fate::Native, Fate::Foreign, Fate::Foreign, Fate::FailedAttempt, Fate::Foreign];
        let facts = Facts { fates: &fates, degraded: &[degraded], neutral: &[neutral] };
        let repairs = [(1, "blank-text"), (1, "blank-text"), (2, "blank-text"), (4, "failed-attempt"), (5, "odd")];
        let repairs = repairs.map(|(message, kind)| Repair { message, kind: kind.to_owned() });
        Fidelity::new("p/m".into(), &history, facts, &repairs)
    }

    #[test]
    fn every_answer_has_its_way_and_its_reason_and_repairs_are_counted_by_kind() {
        assert_eq!(
            serde_json::to_value(fidelity()).unwrap(),
            json!({
                "target": "p/m", "native": 1, "neutral": 2, "degraded": 1, "leftOut": 1,
                "messages": [
                    {"message": 1, "madeBy": "p/m", "fidelity": "native"},
                    {"message": 2, "madeBy": "p/n", "fidelity": "neutral", "reason": "it was made by p/n"},
                    {"message": 3, "madeBy": "p/m\u{1b}[31m", "fidelity": "degraded", "reason": "bad\nstate"},
                    {"message": 4, "madeBy": "p/m", "fidelity": "left-out", "reason": "failed-attempt"},
                    {"message": 5, "madeBy": "p/m", "fidelity": "neutral"},
                ],
                "repairs": [
                    {"kind": "blank-text", "count": 3, "messages": [1, 2]},
                    {"kind": "failed-attempt", "count": 1, "messages": [4]},
                    {"kind": "odd", "count": 1, "messages": [5]},
                ],
            })
        );
    }

    #[test]
    fn a_person_gets_two_tables_that_cannot_steer_the_terminal() {
        let mut out = Vec::new();
        fidelity().print(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let squeezed: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            squeezed,
            [
                "To p/m: 1 native, 2 neutral, 1 degraded, 1 left out; 5 repairs",
                "",
                "MESSAGE MADE BY GOES OUT REASON",
                "1 p/m native -",
                "2 p/n neutral it was made by p/n",
                "3 p/m[31m degraded bad state",
                "4 p/m left out failed-attempt",
                "5 p/m neutral -",
                "",
                "COUNT REPAIR MESSAGES",
                "3 blank-text: A blank text block was left out. 1, 2",
                "1 failed-attempt: The partial answer of an attempt that failed was left out. 4",
                "1 odd 5",
            ]
        );
    }
}
