//! `dsh sessions export`

use std::io::Write;
use std::process::ExitCode;

use dsh_plugin_api::vocab::Message;
use serde::{Deserialize, Serialize};

use super::markdown::Markdown;
use super::{Done, warn_of_damage, write_json};
use crate::session::derive::DerivedMessage;
use crate::session::event::{Header, kind};
use crate::store::{Log, Problem, Store};

/// Forms of the output.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ExportFormat {
    /// One JSON document: header, title, derived messages, and what is marked on them
    Json,
    /// A readable transcript, with whole tool calls and results
    Markdown,
    /// A session log of packed rows: everything
    Dsh,
}

/// Writes a session in another form.
pub(super) fn run(store: &Store, session: &str, format: ExportFormat, out: &mut impl Write) -> Done {
    let log = match format {
        ExportFormat::Json | ExportFormat::Markdown => store.read_without_streams(session)?,
        ExportFormat::Dsh => store.read(session)?,
    };
    warn_of_damage(&log.path, &log.problems, session);
    match format {
        ExportFormat::Json => write_json(&Document::of(&log), out)?,
        ExportFormat::Markdown => Markdown::new(&log).write(out)?,
        ExportFormat::Dsh => out.write_all(log.to_lines().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A session as one JSON document. Positions are those of `messages`, from 0. The events are not in it: a stream has
/// some hundred for each message.
#[derive(Serialize)]
struct Document<'a> {
    header: &'a Header,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    messages: Vec<Message>,
    /// Positions of the answers that were cut off.
    interrupted: Vec<usize>,
    degraded: Vec<Degraded>,
    /// What is wrong with the file, as `sessions verify` gives it.
    problems: &'a [Problem],
}

impl<'a> Document<'a> {
    fn of(log: &'a Log) -> Self {
        let history = log.history();
        let marked = history.iter().enumerate().filter(|(_, entry)| entry.interrupted);
        Self {
            header: &log.header,
            title: log.title(),
            interrupted: marked.map(|(position, _)| position).collect(),
            degraded: Degraded::of(log, &history),
            problems: &log.problems,
            messages: history.into_iter().map(|entry| entry.message).collect(),
        }
    }
}

/// A message that went out without its replay metadata.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Degraded {
    /// Position in the derived history.
    pub message: usize,
    pub code: String,
    pub reason: String,
    /// Route of the request.
    pub provider: String,
    /// Model of the request.
    pub model: String,
}

impl Degraded {
    /// What the log says of messages that are still in the history, in the order of the log.
    pub fn of(log: &Log, history: &[DerivedMessage]) -> Vec<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Data {
            message: usize,
            message_id: String,
            code: String,
            reason: String,
            provider: String,
            model: String,
        }
        let events = log.events.singles().filter(|event| event.kind == kind::LLM_DEGRADE);
        let degraded = events.filter_map(|event| {
            let Data { message, message_id, code, reason, provider, model } = event.parse().ok()?;
            let is_it = |entry: &DerivedMessage| entry.message.id == message_id;
            // Messages before it may have been replaced since.
            let message = match history.get(message) {
                Some(entry) if is_it(entry) => message,
                _ => history.iter().rposition(is_it)?,
            };
            Some(Self { message, code, reason, provider, model })
        });
        degraded.collect()
    }
}

/// For tests of the forms: a log of these lines.
#[cfg(test)]
pub(super) fn log_of(lines: &[&str]) -> Log {
    let dir = tempfile::tempdir().unwrap();
    let header = r#"{"type":"session","version":0,"id":"s","createdAt":0,"cwd":"/p","delegationDepth":0}"#;
    let lines: String = [header].iter().chain(lines).map(|line| format!("{line}\n")).collect();
    std::fs::write(dir.path().join("s.jsonl"), lines).unwrap();
    Store::new(dir.path()).read("s").unwrap()
}

/// For tests of the forms: an answer of a model with this content, as a line.
#[cfg(test)]
pub(super) fn answer(id: &str, content: &serde_json::Value, interrupted: bool) -> String {
    let message = serde_json::json!({
        "id": id, "role": "assistant", "content": content,
        "source": {"kind": "model", "provider": "p", "model": "m_1"},
    });
    let mut data = serde_json::json!({"turn": 1, "step": 1, "message": message});
    if interrupted {
        data["interrupted"] = true.into();
    }
    format!(r#"{{"type":"assistant/message","data":{},"surfaceOp":"append"}}"#, data)
}

/// For tests of the forms: a degradation of the message with this id, as a line.
#[cfg(test)]
pub(super) fn degrade(position: usize, id: &str) -> String {
    format!(
        r#"{{"type":"llm/degrade","data":{{"turn":1,"step":1,"message":{position},"messageId":"{id}","code":"C","reason":"the state is *odd*","provider":"q","model":"n"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_has_the_header_the_messages_and_the_marks_on_them() {
        let text = |text: &str| json!([{"type": "text", "text": text}]);
        let log = log_of(&[
            &answer("a", &text("one"), false),
            &answer("b", &text("two"), true),
            // Where it stood then is not where it stands now; and one that stands nowhere any more.
            &degrade(7, "a"),
            &degrade(1, "gone"),
            &degrade(1, "b"),
            "garbage",
            r#"{"type":"session/title","data":{"title":"T","messageSeqs":[0],"source":"first-prompt"}}"#,
        ]);
        let document = serde_json::to_value(Document::of(&log)).unwrap();
        assert_eq!(document["header"], serde_json::to_value(&log.header).unwrap());
        assert_eq!(document["messages"], serde_json::to_value(log.messages()).unwrap());
        assert_eq!(document["messages"].as_array().unwrap().len(), 2);
        assert_eq!((&document["title"], &document["interrupted"]), (&json!("T"), &json!([1])));
        let degraded = |message| json!({"message": message, "code": "C", "reason": "the state is *odd*", "provider": "q", "model": "n"});
        assert_eq!(document["degraded"], json!([degraded(0), degraded(1)]));
        assert_eq!(document["problems"][0]["kind"], "unreadable");
    }
}
