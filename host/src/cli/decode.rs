//! `dsh decode`: the adapter's decoder over captured response bytes.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{Open, OpenHead};
use dsh_plugin_api::json::{Raw, raw};
use dsh_plugin_api::vocab::{Chunk, Failure, FailureCode, FinishReason, Message, Role, Source, Target, Usage};
use serde::Serialize;

use super::{CommandError, Context};
use crate::llm::assembler::BlockAssembler;
use crate::loader::AdapterHandle;

/// Arguments of `dsh decode`.
#[derive(Debug, Args)]
pub struct DecodeArgs {
    /// Whose decoder to use, as PROVIDER/MODEL
    #[arg(short, long, value_name = "PROVIDER/MODEL")]
    model: String,
    /// HTTP status of the response
    #[arg(long, default_value_t = 200, value_name = "N")]
    status: u16,
    /// Response header; may be given several times
    #[arg(long, value_name = "NAME: VALUE", value_parser = parse_header)]
    header: Vec<(String, String)>,
    /// Feed the bytes in pieces of this many
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    split: Option<u64>,
    /// The connection broke at the end of the bytes
    #[arg(long)]
    cut: bool,
    /// Captured response body
    file: PathBuf,
}

pub(super) fn run(context: &Context, args: DecodeArgs) -> Result<ExitCode, CommandError> {
    let manifest = context.manifest()?;
    let registry = context.registry(&manifest)?;
    let (route, target) = registry
        .resolve(&args.model)
        .map_err(|failure| CommandError::usage_text(failure.message, "`dsh models` lists what the manifest serves"))?;
    let body = std::fs::read(&args.file).map_err(|e| {
        CommandError::usage_text(format!("cannot read {}: {e}", args.file.display()), "name a captured response")
    })?;
    let captured = Captured { status: args.status, headers: args.header, body, split: args.split, cut: args.cut };
    let decoded = decode(&*route.handle, &target, &captured);
    match writeln!(io::stdout().lock(), "{}", raw(&decoded).get()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::failed_text(format!("cannot write to stdout: {e}")))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// `Name: value`; the name as HTTP/2 writes it, in lower case.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written \"Name: value\"")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// A response as it was captured, and how to feed it.
#[derive(Debug)]
struct Captured {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    split: Option<u64>,
    cut: bool,
}

/// The fixed JSON form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Decoded {
    chunks: Vec<Chunk>,
    message: Option<Message>,
    finish: FinishReason,
    usage: Option<Usage>,
    replay_state: Option<Raw>,
}

fn decode(adapter: &dyn AdapterHandle, target: &Target, captured: &Captured) -> Decoded {
    let chunks = chunks(adapter, target, captured);
    let mut assembler = BlockAssembler::new();
    for chunk in &chunks {
        assembler.push(chunk);
    }
    let assembled = assembler.assemble();
    let finish = match chunks.last() {
        Some(Chunk::Finish { reason, .. }) => reason.clone(),
        _ => assembled.finish,
    };
    // An answer of which nothing could be kept is one all the same, such as a call that the output limit cut off.
    let message = (finish.failure().is_none() || !assembled.content.is_empty()).then(|| {
        let source = Source::model(&target.provider, &target.model, assembled.replay_state.clone());
        Message::new(uuid::Uuid::new_v4().to_string(), Role::Assistant, assembled.content, source)
    });
    Decoded { chunks, message, finish, usage: assembled.usage, replay_state: assembled.replay_state }
}

/// The chunks of a response; the last one is a finish, and there is no other.
fn chunks(adapter: &dyn AdapterHandle, target: &Target, captured: &Captured) -> Vec<Chunk> {
    let Captured { status, headers, body, split, cut } = captured;
    let head = OpenHead::Http { status: *status, headers: headers.clone() };
    let mut stream = match adapter.open(&Open { target: target.clone(), head }) {
        Ok(stream) => stream,
        Err(failure) => return vec![error(failure)],
    };
    let size = split.map_or(body.len(), |size| usize::try_from(size).unwrap_or(usize::MAX)).max(1);
    let end = if *cut { StreamEnd::Cut("the captured bytes end here".to_owned()) } else { StreamEnd::Complete };
    let mut chunks = Vec::new();
    for piece in body.chunks(size) {
        if take(stream.feed(piece), &mut chunks) {
            return chunks;
        }
    }
    if !take(stream.finish(&end), &mut chunks) {
        chunks.push(error(Failure::new(FailureCode::Protocol, "the adapter ended the response without a finish")));
    }
    chunks
}

/// Takes what the adapter gave; true after the finish.
fn take(items: Vec<Item>, chunks: &mut Vec<Chunk>) -> bool {
    for item in items {
        let chunk = match item {
            Item::Chunk(chunk) => chunk,
            Item::Malformed(what) => {
                error(Failure::new(FailureCode::Protocol, format!("the adapter's answer is malformed: {what}")))
            }
            Item::Wait(_) => continue,
        };
        let finished = matches!(chunk, Chunk::Finish { .. });
        chunks.push(chunk);
        if finished {
            return true;
        }
    }
    false
}

fn error(failure: Failure) -> Chunk {
    Chunk::Finish { reason: FinishReason::Error { failure }, replay_state: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use dsh_plugin_api::json;
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::testing::{FakeAdapter, target};

    fn items(values: Value) -> Vec<Item> {
        json::from_str::<Vec<Chunk>>(&values.to_string()).unwrap().into_iter().map(Item::Chunk).collect()
    }

    fn captured(split: Option<u64>, cut: bool) -> Captured {
        Captured { status: 200, headers: Vec::new(), body: b"0123456".to_vec(), split, cut }
    }

    fn decoded(on_feed: Vec<Item>, on_finish: Vec<Item>) -> Value {
        let adapter = FakeAdapter { items: Mutex::new(vec![on_feed, on_finish]), ..FakeAdapter::default() };
        serde_json::to_value(decode(&adapter, &target(), &captured(None, false))).unwrap()
    }

    #[test]
    fn the_message_is_assembled_and_the_finish_is_that_of_the_last_chunk() {
        let state = json!({"response": {"kind": "k"}, "blocks": [{"type": "text", "s": 1}, {"type": "tool-call"}]});
        let pruned = json!({"response": {"kind": "k"}, "blocks": [{"type": "text", "s": 1}]});
        let decoded = decoded(
            items(json!([
                {"type": "block-start", "index": 0, "blockType": "text"},
                {"type": "text-delta", "index": 0, "text": "hi"},
                {"type": "block-start", "index": 1, "blockType": "tool-call"},
                {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}},
                {"type": "finish", "reason": {"kind": "max-tokens"}, "replayState": state},
            ])),
            items(json!([{"type": "finish", "reason": {"kind": "stop"}}])),
        );
        assert_eq!(decoded["chunks"].as_array().unwrap().len(), 5);
        assert_eq!(decoded["finish"], json!({"kind": "max-tokens"}));
        assert_eq!(decoded["usage"], json!({"inputTokens": 1, "outputTokens": 2}));
        assert_eq!(decoded["replayState"], pruned);
        assert_eq!(decoded["message"]["content"], json!([{"type": "text", "text": "hi"}]));
        assert_eq!(
            decoded["message"]["source"],
            json!({"kind": "model", "provider": "p", "model": "m", "replayState": pruned})
        );
        assert_ne!(decoded["message"]["id"], "");
    }

    #[test]
    fn an_answer_of_which_nothing_is_kept_is_an_empty_message() {
        let decoded = decoded(
            items(json!([
                {"type": "block-start", "index": 0, "blockType": "tool-call"},
                {"type": "finish", "reason": {"kind": "max-tokens"}},
            ])),
            Vec::new(),
        );
        assert_eq!(decoded["message"]["content"], json!([]));
    }

    #[test]
    fn an_adapter_that_breaks_the_contract_gives_a_protocol_failure() {
        for (on_feed, said) in [
            (vec![Item::Malformed("Usage record".to_owned()), Item::Wait(3)], "malformed: Usage record"),
            (vec![Item::Wait(3)], "without a finish"),
        ] {
            let decoded = decoded(on_feed, Vec::new());
            assert_eq!(decoded["message"], Value::Null);
            assert_eq!(decoded["replayState"], Value::Null);
            assert_eq!(decoded["finish"]["failure"]["code"], "PROTOCOL");
            assert_eq!(decoded["chunks"].as_array().unwrap().len(), 1);
            assert!(decoded["finish"]["failure"]["message"].as_str().unwrap().contains(said));
        }
    }

    #[test]
    fn bytes_are_fed_whole_or_in_pieces_and_the_end_is_told() {
        for (split, pieces) in
            [(None, vec!["0123456"]), (Some(3), vec!["012", "345", "6"]), (Some(99), vec!["0123456"])]
        {
            for cut in [false, true] {
                let adapter = FakeAdapter::default();
                decode(&adapter, &target(), &captured(split, cut));
                assert_eq!(*adapter.fed.lock().unwrap(), pieces);
                let ends = adapter.ends.lock().unwrap();
                assert_eq!(ends.len(), 1);
                assert_eq!(matches!(ends[0], StreamEnd::Cut(_)), cut);
                assert_eq!(matches!(ends[0], StreamEnd::Complete), !cut);
            }
        }
    }

    #[test]
    fn headers_are_split_at_the_first_colon() {
        assert_eq!(parse_header("X-At: 10:30 "), Ok(("x-at".to_owned(), "10:30".to_owned())));
        assert!(parse_header("nothing").is_err());
    }
}
