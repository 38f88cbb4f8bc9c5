//! Ids of tool calls as the wire takes them: legal, distinct within the request, the same on a call and its result,
//! and the same in every request that begins with the same history.

use std::collections::BTreeSet;

use super::hash;

/// Ids that are made here are no longer than this, since some gateways pass them on to stricter servers.
const MADE_LENGTH: usize = 40;
/// Length of the ids that Mistral takes.
const NINE: usize = 9;
/// Length of the hash in an id that is made here.
const HASH_LENGTH: usize = 12;

/// What a server takes as an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdRule {
    /// At most 40 characters: what OpenAI's Chat Completions take as `tool_calls[].id`.
    OpenAiCompletions,
    /// At most 64 characters: what Anthropic's Messages and OpenAI's Responses take. Servers that name no limit are
    /// asked for no more.
    Common,
    /// Exactly nine letters or digits: what Mistral's API takes.
    Mistral,
    /// At most so many characters, as a manifest says. A limit of nine is that of [`IdRule::Mistral`].
    Limit(usize),
}

impl IdRule {
    /// Longest id, in characters.
    const fn longest(self) -> usize {
        match self {
            Self::OpenAiCompletions => 40,
            Self::Common => 64,
            Self::Mistral => NINE,
            Self::Limit(max) => max,
        }
    }

    const fn is_nine(self) -> bool {
        matches!(self, Self::Mistral | Self::Limit(NINE))
    }

    /// An id of the server's own making goes back as it is, as long as it can be one; every other id has to fit the
    /// alphabet that all servers share.
    fn takes(self, id: &str, native: bool) -> bool {
        let length = id.chars().count();
        if self.is_nine() {
            return length == NINE && id.chars().all(|c| c.is_ascii_alphanumeric());
        }
        let shared = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let printable = |c: char| !c.is_whitespace() && !c.is_control();
        (1..=self.longest()).contains(&length) && id.chars().all(|c| shared(c) || (native && printable(c)))
    }

    fn make(self, id: &str, ordinal: u32) -> String {
        if self.is_nine() {
            return hash::word(id, ordinal, NINE);
        }
        let room = self.longest().min(MADE_LENGTH);
        if room < HASH_LENGTH + 6 {
            return hash::word(id, ordinal, room);
        }
        let stem: String = id
            .chars()
            .take_while(|c| *c != '|')
            .filter(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '-')
            .take(room - HASH_LENGTH - 1)
            .collect();
        let stem = if stem.is_empty() { "call" } else { &stem };
        format!("{stem}_{}", hash::word(id, ordinal, HASH_LENGTH))
    }
}

/// The ids of one request.
#[derive(Debug)]
pub struct CallIds {
    rule: IdRule,
    taken: BTreeSet<String>,
    /// Calls of the latest assistant message that are not answered yet.
    open: Vec<OpenCall>,
}

/// A call that waits for its result.
#[derive(Debug, Clone)]
pub struct OpenCall {
    original: String,
    /// Id on the wire.
    pub id: String,
    /// Name of the tool on the wire.
    pub name: String,
}

impl CallIds {
    /// No ids yet.
    pub const fn new(rule: IdRule) -> Self {
        Self { rule, taken: BTreeSet::new(), open: Vec::new() }
    }

    /// An assistant message begins: pairing is local to it.
    pub fn begin_message(&mut self) {
        self.open.clear();
    }

    /// The wire id of a call.
    pub fn call(&mut self, original: &str, name: &str, native: bool) -> String {
        self.call_as(original, original, name, native)
    }

    /// The wire id of a call, on a wire that calls it `wanted`, which is a part of the id in the history.
    pub fn call_as(&mut self, original: &str, wanted: &str, name: &str, native: bool) -> String {
        let mut id = wanted.to_owned();
        let mut ordinal = 0;
        while !self.rule.takes(&id, native) || self.taken.contains(&id) {
            id = self.rule.make(original, ordinal);
            ordinal += 1;
        }
        self.taken.insert(id.clone());
        self.open.push(OpenCall { original: original.to_owned(), id: id.clone(), name: name.to_owned() });
        id
    }

    /// The open call that a result answers.
    pub fn answered(&mut self, original: &str) -> Option<OpenCall> {
        let place = self.open.iter().position(|call| call.original == original)?;
        Some(self.open.remove(place))
    }

    /// A legal id for a result that answers no open call.
    pub fn stray(&self, original: &str) -> String {
        if self.rule.takes(original, false) { original.to_owned() } else { self.rule.make(original, 0) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_legal_id_passes_and_a_native_one_may_be_odd() {
        let mut ids = CallIds::new(IdRule::OpenAiCompletions);
        assert_eq!(ids.call("toolu_ok-1", "t", false), "toolu_ok-1");
        assert_eq!(ids.call("functions.bash:0", "t", true), "functions.bash:0");
        assert_ne!(ids.call("functions.bash:1", "t", false), "functions.bash:1");
    }

    #[test]
    fn a_result_finds_the_call_of_its_own_message() {
        let mut ids = CallIds::new(IdRule::Common);
        ids.begin_message();
        let first = ids.call("c", "a", true);
        let twin = ids.call("c", "b", true);
        assert_eq!(ids.answered("c").unwrap().id, first);
        assert_eq!(ids.answered("c").unwrap().id, twin);
        ids.begin_message();
        let second = ids.call("c", "c", true);
        assert_eq!(ids.answered("c").unwrap().id, second);
        assert!(ids.answered("c").is_none());
    }

    #[test]
    fn mistral_takes_nine_letters_or_digits() {
        for rule in [IdRule::Mistral, IdRule::Limit(9)] {
            let mut ids = CallIds::new(rule);
            assert_eq!(ids.call("abc123def", "t", false), "abc123def");
            let made = ids.call("call_1", "t", true);
            assert!(made.len() == 9 && made.chars().all(|c| c.is_ascii_alphanumeric()), "{made}");
        }
    }

    proptest! {
        #[test]
        fn any_ids_become_legal_distinct_and_stable(
            originals in proptest::collection::vec(".{0,80}", 1..12),
            max in 8usize..70,
            native: bool,
        ) {
            let map = || {
                let mut ids = CallIds::new(IdRule::Limit(max));
                originals.iter().map(|id| ids.call(id, "t", native)).collect::<Vec<_>>()
            };
            let made = map();
            prop_assert_eq!(&made, &map());
            prop_assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), originals.len());
            for id in &made {
                prop_assert!((1..=max).contains(&id.chars().count()), "{}", id);
                prop_assert!(!id.chars().any(|c| c.is_whitespace() || c.is_control()), "{}", id);
            }
        }
    }
}
