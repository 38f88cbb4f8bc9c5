//! An instance of an adapter in this process: the typed calls over the root's bytes.
//!
//! Whatever an adapter answers, a call returns: what is no answer is a `PROTOCOL` failure that names the adapter and
//! the call, a panic is `PLUGIN_PANIC`.

use std::sync::Arc;

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::calls::{CheckHistory, ConfigRefusal, Convert, Converted, CreatedInfo, Open};
use dsh_plugin_api::abi::{Batch, BatchReader, END_COMPLETE, END_CUT, END_TIMED_OUT, Item, Reply, RootRef, Status};
use dsh_plugin_api::abi_stable::std_types::RSlice;
use dsh_plugin_api::json::{self, Raw};
use dsh_plugin_api::vocab::{Chunk, Failure, FailureCode, FinishReason, InvalidReplay, ReplayDegrade};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{AdapterHandle, CreateError, StreamHandle};

/// Makes an instance.
pub(super) fn create(
    root: RootRef,
    adapter: &str,
    config: &serde_json::Value,
) -> Result<(Arc<dyn AdapterHandle>, CreatedInfo), CreateError> {
    let broken = |what: String| CreateError::Broken(format!("adapter {adapter} answered `create` with {what}"));
    let created = root.create()(RSlice::from_slice(config.to_string().as_bytes()));
    let body = created.body.as_slice();
    match Status::from(created.status) {
        Status::Ok => {
            let instance = Instance { root, handle: created.handle, adapter: adapter.to_owned() };
            let info: CreatedInfo = json::from_slice(body).map_err(|e| broken(format!("what is no answer: {e}")))?;
            if let Some(problem) = problem(&info) {
                return Err(broken(problem));
            }
            Ok((Arc::new(instance), info))
        }
        Status::Failed => Err(match json::from_slice::<ConfigRefusal>(body) {
            Ok(refusal) => CreateError::Config(Box::new(refusal)),
            Err(e) => broken(format!("a refusal that is none: {e}")),
        }),
        Status::Panicked => {
            let message = text(body);
            Err(CreateError::Panicked(message.strip_prefix("panicked ").unwrap_or(&message).to_owned()))
        }
        Status::Unsupported => Err(broken(format!("UNSUPPORTED: {}", text(body)))),
        Status::Unknown(number) => Err(broken(format!("the unknown status {number}"))),
    }
}

/// What is wrong with the routes of an instance.
fn problem(info: &CreatedInfo) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    info.routes.iter().find_map(|route| {
        let name = &route.name;
        if name.is_empty() || name.contains('/') || name.chars().any(char::is_control) {
            Some(format!("a route named {name:?}; a name is not empty and holds no slash"))
        } else if !seen.insert(name) {
            Some(format!("the route {name:?} twice"))
        } else {
            None
        }
    })
}

/// One handle of the library's table. Dropping it destroys the instance; open streams go on.
struct Instance {
    root: RootRef,
    handle: u64,
    adapter: String,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.root.destroy()(self.handle);
    }
}

impl Instance {
    fn cold<T: DeserializeOwned>(
        &self,
        name: &str,
        argument: &impl Serialize,
        entry: extern "C" fn(u64, RSlice<'_, u8>) -> Reply,
    ) -> Result<T, Failure> {
        let argument = json::raw(argument);
        self.read(name, &entry(self.handle, RSlice::from_slice(argument.get().as_bytes())))
    }

    fn read<T: DeserializeOwned>(&self, call: &str, reply: &Reply) -> Result<T, Failure> {
        let body = reply.body.as_slice();
        self.answer(call, reply.status, body)?;
        json::from_slice(body).map_err(|e| self.protocol(call, &format!("what is no answer: {e}")))
    }

    /// Turns every status but `Ok` into its failure.
    fn answer(&self, call: &str, status: u32, body: &[u8]) -> Result<(), Failure> {
        let adapter = &self.adapter;
        Err(match Status::from(status) {
            Status::Ok => return Ok(()),
            Status::Failed => json::from_slice::<Failure>(body)
                .unwrap_or_else(|e| self.protocol(call, &format!("a failure that is none: {e}"))),
            Status::Unsupported => {
                let message = format!("adapter {adapter} does not support `{call}`: {}", text(body));
                Failure::new(FailureCode::Unsupported, message)
            }
            Status::Panicked => panicked(adapter, &format!(" in `{call}`"), &text(body)),
            Status::Unknown(number) => self.protocol(call, &format!("the unknown status {number}")),
        })
    }

    fn protocol(&self, call: &str, what: &str) -> Failure {
        Failure::new(FailureCode::Protocol, format!("adapter {} answered `{call}` with {what}", self.adapter))
    }
}

fn panicked(adapter: &str, place: &str, message: &str) -> Failure {
    // The hook's text begins with the word that stands here already.
    let message = one_line(message);
    let message = message.strip_prefix("panicked ").unwrap_or(&message);
    Failure::new(FailureCode::PluginPanic, format!("adapter {adapter} panicked{place}: {message}"))
}

/// A text in one line; the message of a panic follows its place on a line of its own.
fn text(body: &[u8]) -> String {
    one_line(&String::from_utf8_lossy(body))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

impl AdapterHandle for Instance {
    fn check_history(&self, call: &CheckHistory) -> Result<Vec<Option<InvalidReplay>>, Failure> {
        let verdicts: Vec<_> = self.cold("check_history", call, self.root.check_history())?;
        if verdicts.len() != call.messages.len() {
            let what = format!("{} verdicts for {} messages", verdicts.len(), call.messages.len());
            return Err(self.protocol("check_history", &what));
        }
        Ok(verdicts)
    }

    fn convert(&self, call: &Convert) -> Result<Converted, Failure> {
        self.cold("convert", call, self.root.convert())
    }

    fn on_replay_degrade(&self, event: &ReplayDegrade) -> Result<(), Failure> {
        self.cold("on_replay_degrade", event, self.root.on_replay_degrade())
    }

    fn open(&self, call: &Open) -> Result<Box<dyn StreamHandle>, Failure> {
        let argument = json::raw(call);
        let opened = self.root.open()(self.handle, RSlice::from_slice(argument.get().as_bytes()));
        self.answer("open", opened.status, opened.body.as_slice())?;
        Ok(Box::new(Stream {
            root: self.root,
            stream: opened.stream,
            adapter: self.adapter.clone(),
            reader: BatchReader::new(),
        }))
    }

    fn call(&self, operation: &str, argument: &Raw) -> Result<Raw, Failure> {
        let [name, argument] = [operation.as_bytes(), argument.get().as_bytes()].map(RSlice::from_slice);
        self.read(operation, &self.root.call()(self.handle, name, argument))
    }
}

/// One stream of the library's table. Dropping it closes it.
struct Stream {
    root: RootRef,
    stream: u64,
    adapter: String,
    reader: BatchReader,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.root.close()(self.stream);
    }
}

impl Stream {
    fn items(&mut self, call: &str, batch: &Batch) -> Vec<Item> {
        let mut items = Vec::with_capacity(batch.recs.len());
        self.reader.read(batch, |item| items.push(item));
        for item in &mut items {
            match item {
                Item::Malformed(what) => {
                    *what = format!("adapter {} answered `{call}` with a malformed batch: {what}", self.adapter)
                }
                Item::Chunk(Chunk::Finish { reason: FinishReason::Error { failure }, .. })
                    if failure.code == FailureCode::PluginPanic =>
                {
                    *failure = panicked(&self.adapter, &format!(" in `{call}`"), &failure.message);
                }
                Item::Chunk(_) | Item::Wait(_) => {}
            }
        }
        items
    }
}

impl StreamHandle for Stream {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Item> {
        let batch = self.root.feed()(self.stream, RSlice::from_slice(bytes));
        self.items("feed", &batch)
    }

    fn finish(&mut self, end: &StreamEnd) -> Vec<Item> {
        let (number, detail) = match end {
            StreamEnd::Complete => (END_COMPLETE, ""),
            StreamEnd::Cut(detail) => (END_CUT, detail.as_str()),
            StreamEnd::TimedOut(detail) => (END_TIMED_OUT, detail.as_str()),
        };
        let batch = self.root.finish()(self.stream, number, RSlice::from_slice(detail.as_bytes()));
        self.items("finish", &batch)
    }

    fn poll(&mut self) -> Vec<Item> {
        let batch = self.root.poll()(self.stream);
        self.items("poll", &batch)
    }

    fn cancel(&mut self) -> Vec<Item> {
        let batch = self.root.cancel()(self.stream);
        self.items("cancel", &batch)
    }
}
