//! Writes the request's messages down: each assistant message, its results in the order of its calls, then the rest.

use std::collections::HashSet;

use dsh_plugin_api::vocab::{Block, Message, Role, Routing, Source};

use super::clean::Item;
use super::pair::{Answer, Call};
use super::{Fate, RepairKind, Repairs};

/// The result of a call that has none.
pub(super) const UNANSWERED: &str =
    "No result: the call was interrupted before it finished. It may or may not have taken effect.";
/// Follows an answer that was interrupted.
pub(super) const INTERRUPTED: &str = "[The answer above was interrupted before it was complete.]";

/// The messages of a request, with what is known of each.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub messages: Vec<Message>,
    pub routing: Vec<Routing>,
    pub positions: Vec<usize>,
}

impl Sent {
    fn push(&mut self, message: Message, routing: Routing, position: usize) {
        self.messages.push(message);
        self.routing.push(routing);
        self.positions.push(position);
    }
}

/// Id, source and further members of a message, for the results that came in it.
struct Shell {
    position: usize,
    message: Message,
}

pub(super) fn messages(items: Vec<Item>, repairs: &mut Repairs) -> Sent {
    report_moves(&items, repairs);
    let shells: Vec<Shell> = items
        .iter()
        .filter(|item| item.had_results)
        .map(|item| {
            let Message { id, source, extra, .. } = &item.message;
            let message = Message {
                id: id.clone(),
                role: Role::User,
                content: Vec::new(),
                source: source.clone(),
                extra: extra.clone(),
            };
            Shell { position: item.position, message }
        })
        .collect();
    let mut sent = Sent::default();
    for item in items {
        if item.is_assistant() {
            assistant(item, &shells, &mut sent, repairs);
        } else {
            other(item, &mut sent, repairs);
        }
    }
    sent
}

fn assistant(item: Item, shells: &[Shell], sent: &mut Sent, repairs: &mut Repairs) {
    let speaks = item.speaks();
    let Item { position, fate, message, interrupted, calls, had_results, strays, .. } = item;
    if speaks {
        let routing = if fate == Fate::Native { Routing::Native } else { Routing::Foreign };
        sent.push(message, routing, position);
        results(position, calls, shells, sent, repairs);
        if interrupted {
            let note = Block::Text(INTERRUPTED.to_owned());
            let note = Message::new(String::new(), Role::User, vec![note], Source::host());
            sent.push(note, Routing::Foreign, position);
        }
    } else if fate != Fate::FailedAttempt && !had_results {
        repairs.add(position, RepairKind::EmptyMessage);
    }
    if !strays.is_empty() {
        let message = Message::new(String::new(), Role::User, strays, Source::host());
        sent.push(message, Routing::Foreign, position);
    }
}

fn other(item: Item, sent: &mut Sent, repairs: &mut Repairs) {
    let Item { position, mut message, had_results, mut strays, .. } = item;
    if had_results && matches!(message.source, Source::Tool { .. }) {
        message.source = Source::host();
    }
    strays.append(&mut message.content);
    message.content = strays;
    if !message.content.is_empty() {
        sent.push(message, Routing::Foreign, position);
    } else if !had_results {
        repairs.add(position, RepairKind::EmptyMessage);
    }
}

/// The results of a message's calls. Those that came together stay together.
fn results(position: usize, calls: Vec<Call>, shells: &[Shell], sent: &mut Sent, repairs: &mut Repairs) {
    let mut previous = None;
    for Call { id, answer } in calls {
        let Some(Answer { position: from, id: recorded, content, is_error, .. }) = answer else {
            repairs.add(position, RepairKind::UnansweredCall);
            let content = vec![Block::Text(UNANSWERED.to_owned())];
            let block = Block::ToolResult { tool_call_id: id.clone(), content, is_error: Some(true) };
            let message = Message::new(String::new(), Role::User, vec![block], Source::Tool { call_id: id });
            sent.push(message, Routing::Foreign, position);
            previous = None;
            continue;
        };
        let renamed = id != recorded;
        let block = Block::ToolResult { tool_call_id: id.clone(), content, is_error };
        if previous == Some(from)
            && let Some(message) = sent.messages.last_mut()
        {
            message.content.push(block);
            continue;
        }
        previous = Some(from);
        let mut message = match shells.binary_search_by_key(&from, |shell| shell.position) {
            Ok(at) => shells[at].message.clone(),
            Err(_) => Message::new(String::new(), Role::User, Vec::new(), Source::host()),
        };
        message.content.push(block);
        match message.source {
            Source::Tool { .. } if !renamed => {}
            Source::Tool { .. } | Source::Model { .. } => message.source = Source::Tool { call_id: id },
            Source::User | Source::Other(_) => {}
        }
        sent.push(message, Routing::Foreign, from);
    }
}

/// Names what will stand in another place than in the history.
fn report_moves(items: &[Item], repairs: &mut Repairs) {
    let calls = items.iter().flat_map(|item| &item.calls);
    let answering: HashSet<usize> = calls.filter_map(|call| Some(call.answer.as_ref()?.position)).collect();
    for item in items {
        if answering.contains(&item.position) && (item.speaks() || !item.strays.is_empty()) {
            repairs.add(item.position, RepairKind::SplitMessage);
        }
    }
    for (at, item) in items.iter().enumerate() {
        let answers: Vec<&Answer> = item.calls.iter().filter_map(|call| call.answer.as_ref()).collect();
        let Some(last) = answers.iter().map(|answer| answer.position).max() else { continue };
        let between = items[at + 1..].iter().take_while(|other| other.position < last);
        for other in between {
            if other.is_assistant() && other.speaks() {
                for answer in answers.iter().filter(|answer| answer.position > other.position) {
                    repairs.add_once(answer.position, RepairKind::ResultMoved);
                }
                break;
            }
            if other.speaks() || !other.strays.is_empty() {
                repairs.add_once(other.position, RepairKind::NoteMoved);
            }
        }
        for pair in answers.windows(2) {
            let places = [0, 1].map(|at| (pair[at].position, pair[at].order));
            if !places.is_sorted() {
                repairs.add_once(pair[1].position, RepairKind::ResultOrder);
            }
        }
    }
}
