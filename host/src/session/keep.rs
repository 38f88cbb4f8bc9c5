//! Which answers become messages.
//!
//! The assembler decides which blocks of an answer are kept. Whether what is left makes a message is decided here, by
//! one rule for everybody who asks: the turn that saw the answer end or was cancelled in it, and the recovery of a turn
//! whose process did not live to see it. So an interrupted answer is worth the same,
//! whatever interrupted it.

use dsh_plugin_api::vocab::Block;

use crate::llm::view::is_blank;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The model ended it, or its output limit did.
    Complete,
    /// It was cancelled, broke off, or its process died.
    Interrupted,
}

/// True when the kept blocks of an answer make a message. Blank text alone never does: no request could carry it.
///
/// Reasoning alone is a complete answer, which the model that gave it can go on from. It is no interrupted one: another
/// model never sees it, and an answer that ends in thinking is one that the model's own provider refuses. The chunks of
/// the log have it all the same.
#[must_use]
pub fn makes_message(ending: Ending, kept: &[Block]) -> bool {
    kept.iter().any(|block| match block {
        Block::Text(text) => !is_blank(text),
        Block::Reasoning(_) => ending == Ending::Complete,
        Block::ToolCall { .. } | Block::ToolResult { .. } | Block::Image(_) | Block::Other(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::json::raw;

    use super::*;

    #[test]
    fn an_answer_makes_a_message_when_it_says_something() {
        let text = |text: &str| Block::Text(text.to_owned());
        let thought = || Block::Reasoning("hm".to_owned());
        let call = Block::ToolCall { id: "c".into(), name: "bash".into(), arguments: "{}".into() };
        for (content, complete, interrupted) in [
            (vec![], false, false),
            (vec![text(" \n\u{1f}")], false, false),
            (vec![text("a")], true, true),
            (vec![thought()], true, false),
            (vec![thought(), text("\n")], true, false),
            (vec![thought(), text("a")], true, true),
            (vec![call], true, true),
            (vec![Block::Other(raw(&["x"]))], true, true),
        ] {
            let makes = [Ending::Complete, Ending::Interrupted].map(|ending| makes_message(ending, &content));
            assert_eq!(makes, [complete, interrupted], "{content:?}");
        }
    }
}
