//! An adapter with a wire of lines, which does what no well-behaved adapter does when a line says so.
//!
//! `+TEXT` is a delta, `.` the end, `~MS` announces the end of the body, `!CODE TEXT` a failure, `#` a comment, `?` a
//! malformed record, `*` a finish with more after it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{CheckHistory, Convert, Converted, Open, OpenHead};
use dsh_plugin_api::vocab::{Chunk, Failure, FailureCode, FinishReason, InvalidReplay, ReplayDegrade};

use crate::loader::{AdapterHandle, StreamHandle};

/// What the adapter saw.
#[derive(Debug, Default)]
pub struct Saw {
    pub heads: Vec<OpenHead>,
    pub body: Vec<u8>,
    pub feeds: usize,
    pub ends: Vec<StreamEnd>,
    pub cancels: usize,
    pub closed: usize,
}

#[derive(Default)]
pub struct Lines {
    pub saw: Arc<Mutex<Saw>>,
    /// What `finish` answers.
    pub at_end: Vec<Item>,
    /// What `cancel` answers.
    pub at_cancel: Vec<Item>,
    /// What each `poll` answers; nothing once they are used up.
    pub polls: Vec<Vec<Item>>,
    /// Why no decoder can be had.
    pub refuses: Option<Failure>,
}

pub fn delta(text: &str) -> Item {
    Item::Chunk(Chunk::TextDelta { index: 0, text: text.to_owned() })
}

pub fn finish(reason: FinishReason) -> Item {
    Item::Chunk(Chunk::Finish { reason, replay_state: None })
}

pub fn error(code: &str, text: &str) -> FinishReason {
    FinishReason::Error { failure: Failure::new(FailureCode::from(code), text) }
}

impl AdapterHandle for Lines {
    fn check_history(&self, _: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> {
        Ok(Vec::new())
    }
    fn convert(&self, _: &Convert) -> Result<Converted, Failure> {
        Err(Failure::new(FailureCode::Unsupported, "only streams are of interest here"))
    }
    fn on_replay_degrade(&self, _: &ReplayDegrade) -> Result<(), Failure> {
        Ok(())
    }
    fn open(&self, call: &Open) -> Result<Box<dyn StreamHandle>, Failure> {
        self.saw.lock().unwrap().heads.push(call.head.clone());
        match &self.refuses {
            Some(failure) => Err(failure.clone()),
            None => Ok(Box::new(LineDecoder {
                saw: Arc::clone(&self.saw),
                line: Vec::new(),
                at_end: self.at_end.clone(),
                at_cancel: self.at_cancel.clone(),
                polls: self.polls.clone().into(),
            })),
        }
    }
}

struct LineDecoder {
    saw: Arc<Mutex<Saw>>,
    line: Vec<u8>,
    at_end: Vec<Item>,
    at_cancel: Vec<Item>,
    polls: VecDeque<Vec<Item>>,
}

impl StreamHandle for LineDecoder {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut saw = self.saw.lock().unwrap();
        saw.body.extend_from_slice(bytes);
        saw.feeds += 1;
        drop(saw);
        let mut items = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8(std::mem::take(&mut self.line)).unwrap();
            match line.split_at_checked(1).unwrap_or_default() {
                ("+", text) => items.push(delta(text)),
                ("~", ms) => items.push(Item::Wait(ms.parse().unwrap())),
                (".", _) => items.push(finish(FinishReason::Stop)),
                ("!", rest) => {
                    let (code, text) = rest.split_once(' ').unwrap();
                    items.push(finish(error(code, text)));
                }
                ("?", text) => items.push(Item::Malformed(text.to_owned())),
                ("*", _) => items.extend([finish(FinishReason::Stop), delta("late"), finish(FinishReason::MaxTokens)]),
                _ => {}
            }
        }
        items
    }
    fn finish(&mut self, end: &StreamEnd) -> Vec<Item> {
        self.saw.lock().unwrap().ends.push(end.clone());
        self.at_end.clone()
    }
    fn poll(&mut self) -> Vec<Item> {
        self.polls.pop_front().unwrap_or_default()
    }
    fn cancel(&mut self) -> Vec<Item> {
        self.saw.lock().unwrap().cancels += 1;
        self.at_cancel.clone()
    }
}

impl Drop for LineDecoder {
    fn drop(&mut self) {
        self.saw.lock().unwrap().closed += 1;
    }
}
