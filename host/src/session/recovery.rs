//! Recovery: the events that close a turn which its writer did not live to close.
//!
//! A pure function, so that a reader computes in memory exactly what the next writer makes durable. Nothing that is in
//! the log is changed, and a turn that was closed, however it ended, stays as it is.
//!
//! What is kept of a partial answer, and whether it makes a message, is decided where it is for an answer that its
//! writer saw break off: by the assembler and by [`makes_message`].

use std::collections::BTreeMap;

use dsh_plugin_api::json::{self, Joiner, Object, Raw};
use dsh_plugin_api::vocab::{Block, Chunk, Message, Role, Source};
use serde::Deserialize;
use serde_json::json;

use crate::llm::assembler::BlockAssembler;

use super::event::{Event, NewEvent, ToolError, kind};
use super::events::{Entry, Events, Row};
use super::keep::{Ending, makes_message};

/// What the model reads in place of the result of a call that was interrupted.
const INTERRUPTED_CALL: &str = "Error: the session was interrupted while this tool call was pending. It may or may \
                                not have taken effect; check before you repeat it.";

/// The events to append, in order; none when the last turn is closed.
///
/// In this order: the partial answer of the open step as `assistant/message{interrupted}`, if it makes one;
/// an error result for each call of the turn that has none; `step/end`; `turn/end` with reason `interrupted`.
#[must_use]
pub fn recovery(events: &Events) -> Vec<NewEvent> {
    let mut recovery = Recovery::default();
    let is_start = |entry: &Entry| entry.single().is_some_and(|event| event.kind == kind::TURN_START);
    let start = events.entries().iter().rposition(is_start).unwrap_or(events.entries().len());
    let (before, last) = events.entries().split_at(start);
    if last.iter().filter_map(Entry::single).any(|event| event.kind == kind::TURN_END) {
        return Vec::new();
    }
    before.iter().filter_map(Entry::single).for_each(|event| recovery.note_model(event));
    last.iter().for_each(|entry| recovery.take(entry));
    recovery.finish(events.len())
}

/// What has to be known of a log to recover it, for a reader that goes through it once.
#[derive(Default)]
pub struct Recovery {
    /// The last turn, while nothing closes it.
    turn: Option<OpenTurn>,
    /// Who was asked last.
    asked: Option<Target>,
}

impl Recovery {
    /// Takes the next entry.
    pub fn take(&mut self, entry: &Entry) {
        match entry {
            Entry::Single(event) => self.event(event),
            Entry::Row(row) => {
                if let Some(turn) = &mut self.turn {
                    turn.row(row);
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.note_model(event);
        match &*event.kind {
            kind::TURN_START => self.turn = Some(OpenTurn::begin(event)),
            kind::TURN_END => self.turn = None,
            _ => {
                if let Some(turn) = &mut self.turn {
                    turn.event(event);
                }
            }
        }
    }

    fn note_model(&mut self, event: &Event) {
        if let Some(target) = target(event) {
            self.asked = Some(target);
        }
    }

    /// The step of a chunk that is left out, since an event that follows voids it.
    pub(crate) fn note_step(&mut self, entry: &Entry) {
        if let Some(turn) = &mut self.turn {
            turn.note_step(|| match entry {
                Entry::Single(event) => step_of(event),
                Entry::Row(row) => row.step(),
            });
        }
    }

    /// True for an event that voids what was streamed before it.
    pub(crate) fn voids_chunks(event: &Event) -> bool {
        matches!(
            &*event.kind,
            kind::TURN_START
                | kind::TURN_END
                | kind::STEP_START
                | kind::STEP_END
                | kind::LLM_RETRY
                | kind::ASSISTANT_MESSAGE
        )
    }

    /// The events to append, as of [`recovery`], to a log of this many events.
    #[must_use]
    pub fn finish(self, len: u64) -> Vec<NewEvent> {
        let Self { turn, asked } = self;
        let Some(turn) = turn else { return Vec::new() };
        let mut recovered = Vec::new();
        let id = |recovered: &[NewEvent]| format!("recovered-{}", len + recovered.len() as u64);
        if let Some(step) = turn.step {
            let content = turn.partial.into_content();
            if makes_message(Ending::Interrupted, &content) {
                let source = match asked {
                    Some(Target { provider, model }) => Source::model(provider, model, None),
                    None => Source::host(),
                };
                let message = Message::new(id(&recovered), Role::Assistant, content, source);
                recovered.push(NewEvent::assistant_message(turn.number, step, &message, None, true));
            }
        }
        for (call, step) in turn.unanswered {
            let result = Block::ToolResult {
                tool_call_id: call.clone(),
                content: vec![Block::Text(INTERRUPTED_CALL.to_owned())],
                is_error: Some(true),
            };
            let message = Message::new(id(&recovered), Role::User, vec![result], Source::Tool { call_id: call });
            let error = ToolError { name: "AbortError".to_owned(), code: "INTERRUPTED".to_owned() };
            recovered.push(NewEvent::tool_result(turn.number, step, &message, Some(&error)));
        }
        if let Some(step) = turn.step {
            recovered.push(NewEvent::step_end(turn.number, step));
        }
        recovered.push(NewEvent::turn_end(turn.number, &json!({ "kind": "interrupted" })));
        recovered
    }
}

/// The last turn, when nothing closes it.
struct OpenTurn {
    number: u64,
    /// The step that is open.
    step: Option<u64>,
    /// What the open step's attempt streamed since its last message.
    partial: Partial,
    /// Ids of calls without result, in order, each with its step.
    unanswered: Vec<(String, u64)>,
}

#[derive(Deserialize)]
struct Place {
    turn: u64,
    #[serde(default)]
    step: Option<u64>,
}

fn step_of(event: &Event) -> Option<u64> {
    event.parse::<Place>().ok().and_then(|place| place.step)
}

impl OpenTurn {
    fn begin(event: &Event) -> Self {
        let number = event.parse::<Place>().map_or(0, |place| place.turn);
        Self { number, step: None, partial: Partial::default(), unanswered: Vec::new() }
    }

    fn note_step(&mut self, step: impl FnOnce() -> Option<u64>) {
        if self.step.is_none() {
            self.step = step();
        }
    }

    fn row(&mut self, row: &Row) {
        self.note_step(|| row.step());
        self.partial.row(row);
    }

    fn event(&mut self, event: &Event) {
        match &*event.kind {
            kind::STEP_START => {
                self.step = step_of(event);
                self.partial = Partial::default();
            }
            kind::STEP_END => {
                self.step = None;
                self.partial = Partial::default();
            }
            kind::LLM_RETRY => self.partial = Partial::default(),
            kind::ASSISTANT_CHUNK => {
                self.note_step(|| step_of(event));
                self.partial.event(event);
            }
            kind::ASSISTANT_MESSAGE => {
                self.partial = Partial::default();
                let step = step_of(event).or(self.step).unwrap_or(1);
                let calls = message_content(event).into_iter().filter_map(|block| match block {
                    Block::ToolCall { id, .. } => Some((id, step)),
                    _ => None,
                });
                self.unanswered.extend(calls);
            }
            kind::TOOL_RESULT => {
                for block in message_content(event) {
                    if let Block::ToolResult { tool_call_id, .. } = block
                        && let Some(answered) = self.unanswered.iter().position(|(id, _)| *id == tool_call_id)
                    {
                        self.unanswered.remove(answered);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The blocks of an event's message; none when it has no readable message.
fn message_content(event: &Event) -> Vec<Block> {
    super::derive::history([event]).into_iter().flat_map(|entry| entry.message.content).collect()
}

#[derive(Deserialize)]
struct Target {
    provider: String,
    model: String,
}

/// Who is asked from this event on: a request header's config, or a request context.
fn target(event: &Event) -> Option<Target> {
    #[derive(Deserialize)]
    struct Header {
        header: Config,
    }
    #[derive(Deserialize)]
    struct Config {
        config: Target,
    }
    match &*event.kind {
        kind::REQUEST_HEADER => event.parse::<Header>().ok().map(|data| data.header.config),
        kind::REQUEST_CONTEXT => event.parse::<Target>().ok(),
        _ => None,
    }
}

/// The text of a JSON string without escapes.
fn unescaped(json: &str) -> Option<&str> {
    let text = json.strip_prefix('"')?.strip_suffix('"')?;
    (!text.contains('\\')).then_some(text)
}

/// What an attempt streamed before it was cut off.
#[derive(Default)]
struct Partial {
    assembler: BlockAssembler,
    /// Per text block: a delta may end with the half of a character that the next one completes.
    joiners: BTreeMap<u32, Joiner>,
}

impl Partial {
    fn row(&mut self, row: &Row) {
        match row.texts() {
            Some((index, pieces)) => {
                let Ok(index) = u32::try_from(index) else { return };
                let joiner = self.joiners.entry(index).or_default();
                let mut text = String::with_capacity(row.data().len());
                for piece in pieces.iter().map(|piece| piece.get()) {
                    match unescaped(piece).filter(|_| !joiner.holds_half()) {
                        Some(piece) => text.push_str(piece),
                        None => text.push_str(&joiner.push(piece)),
                    }
                }
                self.assembler.push(&Chunk::TextDelta { index, text });
            }
            None => row.events().for_each(|event| self.event(&event)),
        }
    }

    fn event(&mut self, event: &Event) {
        #[derive(Deserialize)]
        struct Data {
            chunk: Raw,
        }
        let Ok(Data { chunk: written }) = serde_json::from_str(event.data.get()) else { return };
        let Ok(mut chunk) = json::from_str(written.get()) else { return };
        match &mut chunk {
            Chunk::TextDelta { index, text } => {
                // As it was written: reading it as text would have replaced the half of a character.
                let written = serde_json::from_str::<Object>(written.get()).ok();
                if let Some(piece) = written.as_ref().and_then(|delta| delta.get("text")) {
                    *text = self.joiners.entry(*index).or_default().push(piece.get());
                }
            }
            // Whatever it says, its message is missing: to the assembler the answer is one that was cut off.
            Chunk::Finish { .. } => return,
            _ => {}
        }
        self.assembler.push(&chunk);
    }

    /// What the assembler keeps of an answer that was cut off.
    fn into_content(mut self) -> Vec<Block> {
        for (index, mut joiner) in self.joiners {
            if let Some(half) = joiner.finish() {
                self.assembler.push(&Chunk::TextDelta { index, text: half.to_string() });
            }
        }
        self.assembler.assemble().content
    }
}

#[cfg(test)]
mod tests {
    use dsh_plugin_api::vocab::{BlockType, FailureCode};
    use dsh_plugin_api::vocab::{Failure, FinishReason};

    use super::*;
    use crate::session::derive::history;
    use crate::session::event::{LlmRetry, RequestConfig, RequestHeader};

    fn log(events: Vec<NewEvent>) -> Vec<Event> {
        events.into_iter().zip(0..).map(|(event, seq)| event.at(seq, 100 + seq)).collect()
    }

    fn recovery_of(events: &[Event]) -> Vec<NewEvent> {
        recovery(&events.iter().cloned().collect())
    }

    fn chunk(chunk: Chunk) -> NewEvent {
        NewEvent::assistant_chunk(1, 1, &chunk)
    }

    fn text(index: u32, text: &str) -> NewEvent {
        chunk(Chunk::TextDelta { index, text: text.into() })
    }

    fn start(index: u32, block_type: BlockType) -> NewEvent {
        chunk(Chunk::BlockStart { index, block_type })
    }

    fn end(index: u32, block: Block) -> NewEvent {
        chunk(Chunk::BlockEnd { index, block })
    }

    fn retry() -> NewEvent {
        let failure = Failure::new(FailureCode::Server, "down");
        let retry = LlmRetry {
            turn: 1,
            step: 1,
            provider: "p",
            retry: 1,
            max_retries: 3,
            delay_ms: 1,
            failure: &failure,
            replay: None,
            images_from: None,
        };
        NewEvent::llm_retry(&retry)
    }

    fn call(id: &str) -> Block {
        Block::ToolCall { id: id.into(), name: "bash".into(), arguments: "{}".into() }
    }

    fn answer(content: Vec<Block>) -> NewEvent {
        let message = Message::new("a", Role::Assistant, content, Source::model("p", "m", None));
        NewEvent::assistant_message(1, 1, &message, None, false)
    }

    fn result(id: &str) -> NewEvent {
        let block = Block::ToolResult { tool_call_id: id.into(), content: vec![], is_error: None };
        let message = Message::new("r", Role::User, vec![block], Source::Tool { call_id: id.into() });
        NewEvent::tool_result(1, 1, &message, None)
    }

    fn begin() -> Vec<NewEvent> {
        let config = RequestConfig {
            provider: "p".into(),
            model: "m".into(),
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
        };
        let header = RequestHeader { config, system: String::new(), tools: vec![] };
        vec![
            NewEvent::turn_start(1),
            NewEvent::step_start(1, 1),
            NewEvent::user_message(&Message::user("u", "hi")),
            NewEvent::request_header(&header, "initial"),
        ]
    }

    /// Recovers a turn, checks what holds for every recovery, and gives the kinds that were added and the partial
    /// answer's content.
    fn recovered(after: Vec<NewEvent>) -> (Vec<&'static str>, Option<String>) {
        let mut events = log([begin(), after].concat());
        let added = recovery_of(&events);
        let kinds = added.iter().map(|event| event.kind).collect();
        events.extend(
            added.into_iter().zip(events.len() as u64..).map(|(event, seq)| event.at(seq, 1)).collect::<Vec<_>>(),
        );
        assert!(recovery_of(&events).is_empty(), "recovering twice is recovering once");
        let partial = history(&events).into_iter().find(|entry| entry.interrupted);
        if let Some(partial) = &partial {
            assert!(matches!(&partial.message.source,
                Source::Model { provider, model, replay_state: None, .. } if provider == "p" && model == "m"));
        }
        (kinds, partial.map(|partial| json::raw(&partial.message.content).get().to_owned()))
    }

    const CLOSE: [&str; 2] = [kind::STEP_END, kind::TURN_END];
    const PARTIAL: [&str; 3] = [kind::ASSISTANT_MESSAGE, kind::STEP_END, kind::TURN_END];

    #[test]
    fn a_partial_answer_keeps_closed_blocks_and_the_open_text() {
        let thought = Block::Reasoning("hm".into());
        for (after, kinds, content) in [
            (vec![], &CLOSE[..], None),
            (vec![start(0, BlockType::Text)], &CLOSE, None),
            (vec![text(0, " \n")], &CLOSE, None),
            (vec![text(0, "a"), text(0, "b")], &PARTIAL, Some(r#"[{"type":"text","text":"ab"}]"#)),
            (
                vec![
                    start(0, BlockType::Reasoning),
                    end(0, thought.clone()),
                    text(1, "a"),
                    start(2, BlockType::ToolCall),
                    end(2, call("c")),
                ],
                &PARTIAL,
                Some(r#"[{"type":"reasoning","text":"hm"},{"type":"text","text":"a"}]"#),
            ),
            // Open reasoning is no part of it, nor is reasoning alone.
            (
                vec![
                    start(0, BlockType::Reasoning),
                    chunk(Chunk::ReasoningDelta { index: 0, text: "h".into() }),
                    text(1, "a"),
                ],
                &PARTIAL,
                Some(r#"[{"type":"text","text":"a"}]"#),
            ),
            (vec![end(0, thought)], &CLOSE, None),
            // The block as it was closed wins over its deltas.
            (vec![text(0, "x"), end(0, Block::Text("y".into()))], &PARTIAL, Some(r#"[{"type":"text","text":"y"}]"#)),
            // The end of the response changes nothing while its message is missing.
            (
                vec![
                    text(0, "a"),
                    end(1, call("c")),
                    chunk(Chunk::Finish { reason: FinishReason::ToolCalls, replay_state: None }),
                ],
                &PARTIAL,
                Some(r#"[{"type":"text","text":"a"}]"#),
            ),
            // What is kept is what the assembler keeps: in order of first sight, the first end of a block, no delta
            // behind it.
            (
                vec![text(2, "b"), end(1, Block::Text("a".into())), end(1, Block::Text("z".into())), text(1, "late")],
                &PARTIAL,
                Some(r#"[{"type":"text","text":"b"},{"type":"text","text":"a"}]"#),
            ),
            // What came before a retry belongs to the failed attempt.
            (vec![text(0, "old"), retry()], &CLOSE, None),
            (vec![text(0, "old"), retry(), text(0, "new")], &PARTIAL, Some(r#"[{"type":"text","text":"new"}]"#)),
        ] {
            let after_text = format!("{after:?}");
            let (found, partial) = recovered(after);
            assert_eq!((found.as_slice(), partial.as_deref()), (kinds, content), "{after_text}");
        }
    }

    #[test]
    fn split_surrogates_of_the_open_text_are_joined() {
        let delta = |text: &str| {
            let data: Raw = serde_json::from_str(&format!(
                r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}"#
            ))
            .unwrap();
            NewEvent::new(kind::ASSISTANT_CHUNK, &data)
        };
        let (_, partial) = recovered(vec![delta(r"a\ud83d"), delta(r"\ude00b\ud83d")]);
        assert_eq!(partial.as_deref(), Some("[{\"type\":\"text\",\"text\":\"a😀b\u{fffd}\"}]"));
    }

    #[test]
    fn a_partial_answer_is_of_the_model_that_was_asked_last() {
        let context = NewEvent::new(kind::REQUEST_CONTEXT, &json!({"provider": "q", "model": "n"}));
        let header = begin().remove(3);
        for (asked, maker) in [
            (vec![context.clone()], Some(("q", "n"))),
            (vec![header.clone(), context.clone()], Some(("q", "n"))),
            (vec![context, header], Some(("p", "m"))),
            (vec![], None),
        ] {
            let events = log([vec![NewEvent::turn_start(1)], asked, vec![text(0, "a")]].concat());
            let recovered: Vec<Event> = log(recovery_of(&events));
            let Source::Model { provider, model, .. } = &history(&recovered)[0].message.source else {
                assert_eq!(maker, None);
                continue;
            };
            assert_eq!(Some((provider.as_str(), model.as_str())), maker);
        }
    }

    #[test]
    fn every_call_without_result_gets_an_error_result() {
        let calls = vec![call("c1"), call("c2"), call("c1")];
        let (kinds, partial) = recovered(vec![answer(calls.clone()), result("c1")]);
        assert_eq!(kinds, [kind::TOOL_RESULT, kind::TOOL_RESULT, kind::STEP_END, kind::TURN_END]);
        assert_eq!(partial, None);
        let events = log([begin(), vec![answer(calls), result("c2"), result("c1"), result("c9")]].concat());
        let added = recovery_of(&events);
        assert_eq!(added.len(), 3);
        assert!(added[0].data.get().contains(r#""callId":"c1""#), "{}", added[0].data);
        let events = log([begin(), vec![answer(vec![call("c2")])]].concat());
        let data = &recovery_of(&events)[0].data;
        for part in [r#""isError":true"#, r#""callId":"c2""#, "may or may not have taken effect", "INTERRUPTED"] {
            assert!(data.get().contains(part), "{part} in {data}");
        }
    }

    #[test]
    fn a_turn_that_was_closed_stays_as_it_is() {
        let close =
            vec![text(0, "lost"), NewEvent::step_end(1, 1), NewEvent::turn_end(1, &json!({"kind":"interrupted"}))];
        let closed = log([begin(), close].concat());
        assert!(recovery_of(&closed).is_empty());
        assert!(recovery_of(&[]).is_empty());
        assert!(recovery_of(&log(vec![NewEvent::new("plugin/thing", &json!({}))])).is_empty());
    }

    #[test]
    fn a_step_that_is_over_is_not_ended_again() {
        assert_eq!(recovered(vec![NewEvent::step_end(1, 1)]).0, [kind::TURN_END]);
    }
}
