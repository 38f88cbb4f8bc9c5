//! Conversations as they happen: prompts, answers as providers write them, tools, truncations, broken connections.

use dsh_host::llm::assembler::BlockAssembler;
use dsh_host::llm::registry::Registry;
use dsh_host::llm::view::HistoryMessage;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{Open, OpenHead};
use dsh_plugin_api::vocab::{Block, Chunk, FinishReason, Message, Role, Source};

use crate::answers::{Answer, Wire};
use crate::dice::Dice;
use crate::requests::{image, input};
use crate::targets::DESTINATIONS;
use crate::{Out, requests};

/// One conversation.
pub struct Conversation<'a> {
    registry: &'a Registry,
    dice: Dice,
    history: Vec<HistoryMessage>,
    /// Counts messages and answers, for ids.
    count: u64,
}

/// Writes the requests of `count` conversations.
pub fn write(registry: &Registry, count: u64, seed: u64, out: &mut Out) -> Result<(), Box<dyn std::error::Error>> {
    for number in 0..count {
        let mut talk = Conversation {
            registry,
            dice: Dice::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(number)),
            history: Vec::new(),
            count: number << 16,
        };
        let mut step = 0;
        for _ in 0..2 + talk.dice.below(5) {
            talk.prompt();
            loop {
                let to = talk.dice.pick(&DESTINATIONS);
                let sent = input(&mut talk.dice, &talk.history);
                let prepared = requests::prepared(registry, to.model, &sent)?;
                out.line(number, step, to, &requests::body(to.model, &prepared)?)?;
                step += 1;
                if !talk.answer(to.model, to.answers)? || step > 24 {
                    break;
                }
            }
        }
    }
    Ok(())
}

impl Conversation<'_> {
    fn id(&mut self) -> String {
        self.count += 1;
        format!("m{}", self.count)
    }

    fn push(&mut self, role: Role, content: Vec<Block>, source: Source, interrupted: bool) {
        let id = self.id();
        self.history.push(HistoryMessage { message: Message::new(id, role, content, source), interrupted });
    }

    fn prompt(&mut self) {
        let mut content = vec![Block::Text(format!("question {}", self.count))];
        if self.dice.chance(15) {
            content.push(image());
        }
        self.push(Role::User, content, Source::User, false);
    }

    /// Lets the provider answer; true when the model waits for the results that were given.
    fn answer(&mut self, model: &str, wire: Wire) -> Result<bool, String> {
        let (route, target) = self.registry.resolve(model).map_err(|e| e.message)?;
        self.count += 1;
        let body = Answer::roll(&mut self.dice, self.count).body(wire, &mut self.dice);
        let cut = self.dice.chance(12);
        let length = if cut { self.dice.below(body.len()) } else { body.len() };
        let end = if cut { StreamEnd::Cut("reset".to_owned()) } else { StreamEnd::Complete };
        let head = OpenHead::Http { status: 200, headers: vec![("content-type".into(), "text/event-stream".into())] };
        let mut stream = route.handle.open(&Open { target: target.clone(), head }).map_err(|e| e.message)?;
        let size = 1 + self.dice.below(400);
        let mut items = Vec::new();
        for piece in body.as_bytes()[..length].chunks(size) {
            items.extend(stream.feed(piece));
        }
        items.extend(stream.finish(&end));
        let mut assembler = BlockAssembler::new();
        for item in &items {
            if let Item::Chunk(chunk) = item {
                assembler.push(chunk);
            }
        }
        let finished = items.iter().any(|item| matches!(item, Item::Chunk(Chunk::Finish { .. })));
        if !finished {
            return Err(format!("{model} did not finish: {body}"));
        }
        let answer = assembler.assemble();
        let interrupted = match &answer.finish {
            FinishReason::Error { .. } | FinishReason::Aborted { .. } => true,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::MaxTokens => false,
        };
        if let FinishReason::Error { failure } = &answer.finish
            && !cut
        {
            return Err(format!("{model} failed on a sound answer: {failure}\n{body}"));
        }
        let calls: Vec<String> = answer
            .content
            .iter()
            .filter_map(|block| if let Block::ToolCall { id, .. } = block { Some(id.clone()) } else { None })
            .collect();
        let source = Source::model(&target.provider, &target.model, answer.replay_state);
        if !answer.content.is_empty() {
            self.push(Role::Assistant, answer.content, source, interrupted);
        }
        let died = self.dice.chance(8);
        for call in &calls {
            // A process that died leaves calls without results.
            if died && self.dice.chance(60) {
                continue;
            }
            let content = match self.dice.below(5) {
                0 => Vec::new(),
                1 => vec![Block::Text("lines\nof output".into()), image()],
                2 => vec![image()],
                _ => vec![Block::Text(format!("output of {call}"))],
            };
            let is_error = Some(self.dice.chance(20));
            let result = Block::ToolResult { tool_call_id: call.clone(), content, is_error };
            self.push(Role::User, vec![result], Source::Tool { call_id: call.clone() }, false);
        }
        Ok(!calls.is_empty() && !died)
    }
}
