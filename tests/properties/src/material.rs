//! What the answers of every wire are made of: texts that come in pieces, tool calls, and values that only their
//! provider reads.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::json_text::{Units, fragments, string, text, units};

/// A text and the places where the stream cuts it.
#[derive(Debug, Clone)]
pub struct Said {
    /// All of it.
    pub units: Units,
    cuts: Vec<Index>,
    escapes: Vec<bool>,
}

/// Texts of [`units`].
pub fn said() -> impl Strategy<Value = Said> {
    said_of(units())
}

/// What only the provider reads, as it writes it: padded base64.
pub fn opaque() -> impl Strategy<Value = Said> {
    let whole = ("([A-Za-z0-9+/]{4}){1,9}", select(&["", "AB==", "/+8="][..]));
    said_of(whole.prop_map(|(data, end)| (data + end).encode_utf16().collect::<Units>()))
}

fn said_of(units: impl Strategy<Value = Units>) -> impl Strategy<Value = Said> {
    (units, vec(any::<Index>(), 0..4), vec(proptest::bool::weighted(0.2), 1..4))
        .prop_map(|(units, cuts, escapes)| Said { units, cuts, escapes })
}

impl Said {
    /// The fragments.
    #[must_use]
    pub fn pieces(&self) -> Vec<&[u16]> {
        fragments(&self.units, &self.cuts)
    }

    /// JSON strings of the fragments.
    #[must_use]
    pub fn strings(&self) -> Vec<String> {
        self.pieces().into_iter().map(|part| string(part, &self.escapes)).collect()
    }

    /// The JSON string of all of it.
    #[must_use]
    pub fn whole(&self) -> String {
        string(&self.units, &self.escapes)
    }

    /// What it reads as.
    #[must_use]
    pub fn text(&self) -> String {
        text(&self.units)
    }

    /// How it stands in a request: as a JSON string, escaped no more than needed.
    #[must_use]
    pub fn sent(&self) -> String {
        sent(&self.text())
    }
}

/// A text as it stands in a request: a JSON string, escaped no more than needed.
#[must_use]
pub fn sent(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

/// A tool call: its name and its arguments, which are the JSON text of an object.
#[derive(Debug, Clone)]
pub struct Called {
    /// Of the tool.
    pub name: &'static str,
    /// JSON text of an object.
    pub arguments: Said,
}

/// Calls whose arguments hold what a careless reader loses: integers beyond 2^53, keys that repeat, the order of keys.
pub fn called() -> impl Strategy<Value = Called> {
    (
        select(&["bash", "read_file", "f"][..]),
        said(),
        select(&["", r#""n":12345678901234567890123,"#, r#""z":1,"a":1.50,"a":2,"#][..]),
    )
        .prop_map(|(name, mut arguments, more)| {
            // Half a pair inside arguments is for the reader of the arguments; it stays out of this.
            let whole: Units = arguments.text().encode_utf16().collect();
            let value = string(&whole, &arguments.escapes);
            arguments.units = format!("{{{more}\"value\":{value}}}").encode_utf16().collect();
            Called { name, arguments }
        })
}

/// A text or reasoning block of an answer.
#[derive(Debug, Clone)]
struct Run {
    is_text: bool,
    units: Units,
    is_open: bool,
}

/// The texts and the reasoning of an answer, block by block.
///
/// A block matters here only for half a surrogate pair: it finds its partner inside its block and nowhere else.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<Run>);

impl Runs {
    /// Adds to the last block where it is of this kind and still open; else a block begins, and the last one is
    /// complete.
    pub fn push(&mut self, is_text: bool, units: &[u16]) {
        match self.0.last_mut() {
            _ if units.is_empty() => {}
            Some(run) if run.is_text == is_text && run.is_open => run.units.extend_from_slice(units),
            _ => {
                self.interrupt();
                self.0.push(Run { is_text, units: units.to_vec(), is_open: true });
            }
        }
    }

    /// A block of its own. `is_open`: nothing says that it is complete.
    pub fn block(&mut self, is_text: bool, units: &[u16], is_open: bool) {
        self.0.push(Run { is_text, units: units.to_vec(), is_open });
    }

    /// What comes next begins a block.
    pub fn interrupt(&mut self) {
        if let Some(run) = self.0.last_mut() {
            run.is_open = false;
        }
    }

    /// The answer breaks off: half a pair at the end of a block that is not complete still waits for its partner.
    pub fn cut(&mut self) {
        for run in self.0.iter_mut().filter(|run| run.is_open) {
            run.units.pop_if(|unit| (0xd800..0xdc00).contains(unit));
        }
    }

    /// All text, or all reasoning.
    #[must_use]
    pub fn texts(&self, is_text: bool) -> String {
        self.0.iter().filter(|run| run.is_text == is_text).map(|run| text(&run.units)).collect()
    }

    /// The blocks of text or of reasoning that are not blank.
    pub fn blocks(&self, is_text: bool) -> impl Iterator<Item = String> {
        let texts = self.0.iter().filter(move |run| run.is_text == is_text).map(|run| text(&run.units));
        texts.filter(|text| !text.trim().is_empty())
    }
}

/// The end of an answer that its model brought to its end: code of the failure or kind of the finish.
#[must_use]
pub fn done(calls: &[(String, String)], runs: &Runs) -> &'static str {
    match (calls, runs.texts(true).trim()) {
        ([_, ..], _) => "tool-calls",
        ([], "") => "EMPTY_RESPONSE",
        ([], _) => "stop",
    }
}

/// True for the three ends that are no failure.
#[must_use]
pub fn is_success(outcome: &str) -> bool {
    matches!(outcome, "stop" | "tool-calls" | "max-tokens")
}

/// Events by turns: of each list the first, then of each the second, and so on. Without turns list by list.
#[must_use]
pub fn by_turns<T>(lists: Vec<Vec<T>>, by_turns: bool) -> Vec<T> {
    let mut all: Vec<(usize, T)> = lists.into_iter().flat_map(|list| list.into_iter().enumerate()).collect();
    if by_turns {
        // A stable sort keeps the order of the lists within a turn.
        all.sort_by_key(|(turn, _)| *turn);
    }
    all.into_iter().map(|(_, event)| event).collect()
}
