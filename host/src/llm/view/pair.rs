//! Calls and results: which result belongs to which call, and what the call is called.
//!
//! A result belongs to the nearest message before it that has a call of its id. Ids are therefore local to a message,
//! and one that a model uses again in a later turn does no harm.

use std::collections::{HashMap, HashSet, VecDeque};

use dsh_plugin_api::kit::notes::NO_OUTPUT;
use dsh_plugin_api::vocab::Block;

use super::clean::Item;
use super::{Fate, RepairKind, Repairs, is_blank};

/// A call of an assistant message.
#[derive(Debug)]
pub(super) struct Call {
    /// Its id; after [`give_ids`] the one in the request.
    pub id: String,
    /// Its result.
    pub answer: Option<Answer>,
}

impl Call {
    pub fn of(block: &Block) -> Option<Self> {
        match block {
            Block::ToolCall { id, .. } => Some(Self { id: id.clone(), answer: None }),
            _ => None,
        }
    }
}

/// A result, apart from the message that it came in.
#[derive(Debug)]
pub(super) struct Answer {
    /// Position of its message in the input history.
    pub position: usize,
    /// Which of that message's results it is.
    pub order: usize,
    /// The id of its call, as recorded. Blank when it has lost it.
    pub id: String,
    /// Text and images.
    pub content: Vec<Block>,
    /// True when the tool failed.
    pub is_error: Option<bool>,
}

/// Gives every result to its call; what finds none becomes text where it stands.
///
/// One pass: what a result may belong to is known when it is met, so that a history with as many late results as
/// messages takes no longer for each of them.
pub(super) fn join(items: &mut [Item], repairs: &mut Repairs) {
    let mut homes: HashMap<String, Home> = HashMap::new();
    let mut caller = None;
    let mut lost: Vec<Lost> = Vec::new();
    for at in 0..items.len() {
        if !items[at].calls.is_empty() {
            caller = Some(at);
            open(&items[at], at, &mut homes);
        }
        for answer in std::mem::take(&mut items[at].results) {
            if is_blank(&answer.id) {
                lost.push(Lost { at, caller, answer });
                continue;
            }
            match homes.get_mut(&answer.id).map(|home| (home.item, home.waiting.pop_front())) {
                Some((item, Some(call))) => items[item].calls[call].answer = Some(answer),
                Some((item, None)) if items[item].fate != Fate::FailedAttempt => {
                    stray(&mut items[at], answer, RepairKind::DuplicateResult, repairs);
                }
                Some((_, None)) | None => stray(&mut items[at], answer, RepairKind::OrphanResult, repairs),
            }
        }
    }
    adopt(items, lost, repairs);
}

/// The nearest message with calls of one id.
struct Home {
    item: usize,
    /// Those of its calls of this id that have no result, in order: ids that repeat within one message are answered in
    /// order. The calls of a failed attempt wait for nothing.
    waiting: VecDeque<usize>,
}

/// From here on the results of these ids belong to this item.
fn open(item: &Item, at: usize, homes: &mut HashMap<String, Home>) {
    for (call, Call { id, .. }) in item.calls.iter().enumerate() {
        let home = homes.entry(id.clone()).or_insert_with(|| Home { item: at, waiting: VecDeque::new() });
        if home.item != at {
            *home = Home { item: at, waiting: VecDeque::new() };
        }
        if item.fate != Fate::FailedAttempt {
            home.waiting.push_back(call);
        }
    }
}

/// A result without an id.
struct Lost {
    /// The item it came in.
    at: usize,
    /// The nearest item before it that has calls.
    caller: Option<usize>,
    answer: Answer,
}

/// Results without an id go to the calls that still wait in the nearest message before them, where that is certain:
/// one call waits, or as many as there are such results.
fn adopt(items: &mut [Item], lost: Vec<Lost>, repairs: &mut Repairs) {
    let mut lost = lost.into_iter().peekable();
    while let Some(first) = lost.next() {
        let caller = first.caller;
        let mut group = vec![first];
        while let Some(next) = lost.next_if(|next| next.caller == caller) {
            group.push(next);
        }
        let caller = caller.filter(|caller| items[*caller].fate != Fate::FailedAttempt);
        let mut waiting: Vec<usize> = caller.map_or_else(Vec::new, |caller| {
            let calls = items[caller].calls.iter().enumerate();
            calls.filter(|(_, call)| call.answer.is_none()).map(|(at, _)| at).collect()
        });
        if waiting.len() != 1 && waiting.len() != group.len() {
            waiting.clear();
        }
        let mut waiting = waiting.into_iter();
        for Lost { at, answer, .. } in group {
            match (caller, waiting.next()) {
                (Some(caller), Some(call)) => {
                    repairs.add(answer.position, RepairKind::AdoptedResult);
                    items[caller].calls[call].answer = Some(answer);
                }
                _ => stray(&mut items[at], answer, RepairKind::OrphanResult, repairs),
            }
        }
    }
}

/// Turns a result into text of the user's role.
fn stray(item: &mut Item, answer: Answer, kind: RepairKind, repairs: &mut Repairs) {
    repairs.add(answer.position, kind);
    let (texts, images): (Vec<_>, Vec<_>) = answer.content.into_iter().partition(|b| matches!(b, Block::Text(_)));
    let mut lines = vec![match kind {
        RepairKind::DuplicateResult => "[further result of an earlier tool call]".to_owned(),
        _ => "[result of a tool call that is not part of this conversation]".to_owned(),
    }];
    lines.extend(texts.into_iter().filter_map(|block| if let Block::Text(text) = block { Some(text) } else { None }));
    if lines.len() == 1 && images.is_empty() {
        lines.push(NO_OUTPUT.to_owned());
    }
    item.strays.push(Block::Text(lines.join("\n")));
    item.strays.extend(images);
}

/// Makes the ids of calls distinct over the whole request. The first call of an id keeps it, so that a history which
/// only grows keeps its beginning.
pub(super) fn give_ids(items: &mut [Item], repairs: &mut Repairs) {
    let mut used = HashSet::new();
    let mut counters: HashMap<String, u32> = HashMap::new();
    for item in items.iter_mut().filter(|item| item.fate != Fate::FailedAttempt) {
        let blocks = item.message.content.iter_mut().filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id),
            _ => None,
        });
        for (call, in_block) in item.calls.iter_mut().zip(blocks) {
            let (kind, stem) = if is_blank(&call.id) {
                (RepairKind::MissingId, "call")
            } else if used.contains(&call.id) {
                // Of a composite id (`call|item`) only the call's part is ours to continue.
                (RepairKind::RepeatedId, call.id.split('|').next().unwrap_or_default())
            } else {
                used.insert(call.id.clone());
                continue;
            };
            repairs.add(item.position, kind);
            let counter = counters.entry(stem.to_owned()).or_insert(1);
            let id = loop {
                *counter += 1;
                let id = format!("{stem}_{counter}");
                if !used.contains(&id) {
                    break id;
                }
            };
            used.insert(id.clone());
            call.id.clone_from(&id);
            *in_block = id;
        }
    }
}
