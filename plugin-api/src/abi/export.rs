//! What [`export_adapter!`](crate::export_adapter) expands to: the tables of handles and the entries behind the root.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use abi_stable::std_types::RVec;
use serde::Serialize;

use super::calls::{
    CheckHistory, ConfigProblem, ConfigRefusal, Convert, Converted, CreatedInfo, Descriptor, MODELS_REQUEST,
    MODELS_RESPONSE, ModelsRequest, ModelsResponse, Open, OpenHead,
};
use super::config;
use super::{Batch, Created, END_COMPLETE, END_TIMED_OUT, Opened, RecKind, Reply, Status};
use crate::adapter::{Adapter, ConfigError, Decoder, Encoded, Poll, ResponseHead, StreamEnd};
use crate::chunks::Chunks;
use crate::json::{self, raw};
use crate::vocab::{
    Failure, FailureCode, InvalidReplay, Message, ReplayDegrade, ReplayEnvelope, Routing, Source, Target,
};

#[doc(hidden)]
pub use super::meta::section;

/// The handles of one library. The macro keeps one value per adapter type.
#[derive(Debug)]
pub struct Instances<A: Adapter> {
    adapters: Mutex<BTreeMap<u64, Arc<A>>>,
    streams: Mutex<BTreeMap<u64, SharedStream<A::Decoder>>>,
    next: AtomicU64,
}

type SharedStream<D> = Arc<Mutex<Stream<D>>>;

#[derive(Debug)]
struct Stream<D> {
    decoder: D,
    chunks: Chunks,
}

impl<A: Adapter> Instances<A> {
    /// Empty tables.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "only the macro makes one, in a static")]
    pub const fn new() -> Self {
        Self { adapters: Mutex::new(BTreeMap::new()), streams: Mutex::new(BTreeMap::new()), next: AtomicU64::new(1) }
    }

    /// `describe`
    pub fn describe(&self, version: &str) -> Reply {
        cold(|| {
            Ok(Descriptor {
                name: A::NAME.to_owned(),
                version: version.to_owned(),
                api: crate::API_VERSION.to_owned(),
                envelope: A::envelope(),
                config_schema: raw(&schemars::schema_for!(A::Config)),
            })
        })
    }

    /// `create`
    pub fn create(&self, config: &[u8]) -> Created {
        capture_panics();
        let text = String::from_utf8_lossy(config);
        let made = guard(|| {
            // From a value and not from the text: its places would be told, which nobody has seen.
            let value: serde_json::Value = json::from_str(&text).map_err(|e| ConfigRefusal {
                path: String::new(),
                message: e.to_string(),
                problem: ConfigProblem::Other,
            })?;
            let adapter = A::new(config::read(value)?)
                .map_err(|ConfigError { path, message, problem }| ConfigRefusal { path, message, problem })?;
            let info = CreatedInfo { routes: adapter.routes() };
            Ok::<_, ConfigRefusal>((adapter, info))
        });
        match made {
            Ok(Ok((adapter, info))) => {
                let handle = self.next.fetch_add(1, Ordering::Relaxed);
                lock(&self.adapters).insert(handle, Arc::new(adapter));
                Created { status: Status::Ok.number(), handle, body: body(&info) }
            }
            Ok(Err(refusal)) => Created { status: Status::Failed.number(), handle: 0, body: body(&refusal) },
            Err(panic) => Created { status: Status::Panicked.number(), handle: 0, body: panic.into_bytes().into() },
        }
    }

    /// `destroy`
    pub fn destroy(&self, handle: u64) {
        let adapter = lock(&self.adapters).remove(&handle);
        // A panic in the adapter's own `Drop` has nobody to be told to.
        drop(guard(|| drop(adapter)));
    }

    /// `check_history`
    pub fn check_history(&self, handle: u64, argument: &[u8]) -> Reply {
        self.with(handle, |adapter| {
            let CheckHistory { target, messages } = parse(argument)?;
            Ok(messages.iter().map(|message| restore(adapter, message, &target).err()).collect::<Vec<_>>())
        })
    }

    /// `convert`
    pub fn convert(&self, handle: u64, argument: &[u8]) -> Reply {
        self.with(handle, |adapter| {
            let Convert { target, request, routing } = parse(argument)?;
            if routing.len() != request.messages.len() {
                return Err(invalid("routing does not have one element per message".to_owned()));
            }
            let mut history = Vec::with_capacity(routing.len());
            for (position, (message, routing)) in request.messages.iter().zip(&routing).enumerate() {
                history.push(match routing {
                    Routing::Foreign => adapter.foreign(message, &target)?,
                    Routing::Native => restore(adapter, message, &target).map_err(|e| {
                        invalid(format!("message {position} was checked as native, yet cannot be restored: {e}"))
                    })?,
                });
            }
            let Encoded { exchange, repairs } = adapter.encode(&request, history, &target)?;
            Ok(Converted { exchange, repairs })
        })
    }

    /// `on_replay_degrade`
    pub fn on_replay_degrade(&self, handle: u64, argument: &[u8]) -> Reply {
        self.with(handle, |adapter| {
            adapter.on_replay_degrade(&parse::<ReplayDegrade>(argument)?);
            Ok(())
        })
    }

    /// `open`
    pub fn open(&self, handle: u64, argument: &[u8]) -> Opened {
        let Some(adapter) = lock(&self.adapters).get(&handle).cloned() else {
            return Opened { status: Status::Unsupported.number(), stream: 0, body: no_handle(handle) };
        };
        let made = guard(|| {
            let Open { target, head } = parse(argument)?;
            let head = match head {
                OpenHead::Http { status, headers } => ResponseHead::Http { status, headers },
                OpenHead::Polled(value) => ResponseHead::Polled(value),
            };
            adapter.decoder(&head, &target)
        });
        match made {
            Ok(Ok(decoder)) => {
                let stream = self.next.fetch_add(1, Ordering::Relaxed);
                lock(&self.streams).insert(stream, Arc::new(Mutex::new(Stream { decoder, chunks: Chunks::new() })));
                Opened { status: Status::Ok.number(), stream, body: RVec::new() }
            }
            Ok(Err(failure)) => Opened { status: Status::Failed.number(), stream: 0, body: body(&failure) },
            Err(panic) => Opened { status: Status::Panicked.number(), stream: 0, body: panic.into_bytes().into() },
        }
    }

    /// `feed`
    pub fn feed(&self, stream: u64, bytes: &[u8]) -> Batch {
        self.stream(stream, |decoder, chunks| decoder.feed(bytes, chunks))
    }

    /// `finish`
    pub fn finish(&self, stream: u64, end: u32, detail: &[u8]) -> Batch {
        let detail = String::from_utf8_lossy(detail).into_owned();
        let end = match end {
            END_COMPLETE => StreamEnd::Complete,
            END_TIMED_OUT => StreamEnd::TimedOut(detail),
            _ => StreamEnd::Cut(detail),
        };
        self.stream(stream, |decoder, chunks| {
            decoder.finish(&end, chunks);
            if !chunks.is_finished() {
                let (code, text) = match end {
                    StreamEnd::Complete => {
                        (FailureCode::Transport, "the stream ended without its terminal event".to_owned())
                    }
                    StreamEnd::Cut(detail) => (FailureCode::Transport, format!("the connection broke: {detail}")),
                    StreamEnd::TimedOut(detail) => (FailureCode::Timeout, detail),
                };
                chunks.fail(Failure::new(code, text), None);
            }
        })
    }

    /// `poll`
    pub fn poll(&self, stream: u64) -> Batch {
        self.stream(stream, |decoder, chunks| {
            if let Poll::After(ms) = decoder.poll(chunks) {
                chunks.batch_mut().push(RecKind::Wait, ms, &[]);
            }
        })
    }

    /// `cancel`
    pub fn cancel(&self, stream: u64) -> Batch {
        self.stream(stream, |decoder, chunks| {
            decoder.cancel(chunks);
            chunks.fail_as_aborted(None);
        })
    }

    /// `close`
    pub fn close(&self, stream: u64) {
        let stream = lock(&self.streams).remove(&stream);
        drop(guard(|| drop(stream)));
    }

    /// `call`
    pub fn call(&self, handle: u64, operation: &[u8], argument: &[u8]) -> Reply {
        let operation = String::from_utf8_lossy(operation);
        match operation.as_ref() {
            MODELS_REQUEST => self.with(handle, |adapter| {
                let ModelsRequest { route } = parse(argument)?;
                adapter.models_request(&route)
            }),
            MODELS_RESPONSE => self.with(handle, |adapter| {
                let ModelsResponse { route, status, headers, body } = parse(argument)?;
                adapter.models_response(&route, &ResponseHead::Http { status, headers }, &body)
            }),
            _ => {
                let text = format!("operation {operation:?} is not known to this adapter");
                Reply { status: Status::Unsupported.number(), body: text.into_bytes().into() }
            }
        }
    }

    fn with<T: Serialize>(&self, handle: u64, work: impl FnOnce(&A) -> Result<T, Failure>) -> Reply {
        match lock(&self.adapters).get(&handle).cloned() {
            Some(adapter) => cold(|| work(&adapter)),
            None => Reply { status: Status::Unsupported.number(), body: no_handle(handle) },
        }
    }

    fn stream(&self, stream: u64, work: impl FnOnce(&mut A::Decoder, &mut Chunks)) -> Batch {
        let Some(entry) = lock(&self.streams).get(&stream).cloned() else {
            let mut chunks = Chunks::new();
            chunks.fail(Failure::new(FailureCode::Unsupported, format!("stream {stream} is not open")), None);
            return chunks.take_batch();
        };
        let mut entry = lock(&entry);
        let Stream { decoder, chunks } = &mut *entry;
        if !chunks.is_finished()
            && let Err(panic) = guard(|| work(decoder, chunks))
        {
            chunks.fail(Failure::new(FailureCode::PluginPanic, panic), None);
        }
        chunks.take_batch()
    }
}

fn restore<A: Adapter>(adapter: &A, message: &Message, target: &Target) -> Result<A::Native, InvalidReplay> {
    let Source::Model { replay_state: Some(state), .. } = &message.source else {
        return Err(InvalidReplay::Invalid("the message has no replay state".to_owned()));
    };
    adapter.restore(message, &ReplayEnvelope::parse(state)?, target)
}

fn parse<T: serde::de::DeserializeOwned>(argument: &[u8]) -> Result<T, Failure> {
    json::from_slice(argument).map_err(|e| invalid(format!("the host's call does not parse: {e}")))
}

fn invalid(message: String) -> Failure {
    Failure::new(FailureCode::InvalidRequest, message)
}

fn no_handle(handle: u64) -> RVec<u8> {
    format!("adapter handle {handle} is not open").into_bytes().into()
}

fn body<T: Serialize>(value: &T) -> RVec<u8> {
    raw(value).get().as_bytes().to_vec().into()
}

fn cold<T: Serialize>(work: impl FnOnce() -> Result<T, Failure>) -> Reply {
    match guard(work) {
        Ok(Ok(value)) => Reply { status: Status::Ok.number(), body: body(&value) },
        Ok(Err(failure)) => Reply { status: Status::Failed.number(), body: body(&failure) },
        Err(panic) => Reply { status: Status::Panicked.number(), body: panic.into_bytes().into() },
    }
}

/// A poisoned lock means a panic that was reported when it happened; the tables themselves stay consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// How many calls of [`guard`] this thread is in.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
}

/// Keeps the message and place of a panic for [`guard`]. The hook is that of the library's own copy of `std`; a panic
/// that no guard stops, on a thread of the adapter or in its tests, is told as it always was.
fn capture_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told_before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if GUARDS.get() == 0 {
                told_before(info);
            } else {
                LAST_PANIC.with_borrow_mut(|last| *last = Some(info.to_string()));
            }
        }));
    });
}

/// Runs adapter code; a panic comes back as its message.
fn guard<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    GUARDS.set(GUARDS.get() + 1);
    let done = catch_unwind(AssertUnwindSafe(work));
    GUARDS.set(GUARDS.get() - 1);
    done.map_err(|payload: Box<dyn Any + Send>| {
        LAST_PANIC.take().unwrap_or_else(|| match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => payload.downcast::<&str>().map_or_else(|_| "panic".to_owned(), |text| (*text).to_owned()),
        })
    })
}

/// Exports a type that implements [`Adapter`](crate::Adapter) from a cdylib, and emits its metadata section.
///
/// Use it once, at the root of the adapter's crate. Name and version are the crate's own.
#[macro_export]
macro_rules! export_adapter {
    ($adapter:ty) => {
        #[allow(unsafe_code)]
        const _: () = {
            use $crate::abi::export::Instances;
            use $crate::abi::{Batch, Created, Opened, Reply, Root, RootRef};
            use $crate::abi_stable::library::{
                __call_root_module_loader, CheckTypeLayout, LibHeader, RootModuleResult,
            };
            use $crate::abi_stable::prefix_type::PrefixTypeTrait;
            use $crate::abi_stable::std_types::RSlice;

            static INSTANCES: Instances<$adapter> = Instances::new();

            extern "C" fn describe() -> Reply {
                INSTANCES.describe(env!("CARGO_PKG_VERSION"))
            }
            extern "C" fn create(config: RSlice<'_, u8>) -> Created {
                INSTANCES.create(config.as_slice())
            }
            extern "C" fn destroy(handle: u64) {
                INSTANCES.destroy(handle);
            }
            extern "C" fn check_history(handle: u64, argument: RSlice<'_, u8>) -> Reply {
                INSTANCES.check_history(handle, argument.as_slice())
            }
            extern "C" fn convert(handle: u64, argument: RSlice<'_, u8>) -> Reply {
                INSTANCES.convert(handle, argument.as_slice())
            }
            extern "C" fn on_replay_degrade(handle: u64, argument: RSlice<'_, u8>) -> Reply {
                INSTANCES.on_replay_degrade(handle, argument.as_slice())
            }
            extern "C" fn open(handle: u64, argument: RSlice<'_, u8>) -> Opened {
                INSTANCES.open(handle, argument.as_slice())
            }
            extern "C" fn feed(stream: u64, bytes: RSlice<'_, u8>) -> Batch {
                INSTANCES.feed(stream, bytes.as_slice())
            }
            extern "C" fn finish(stream: u64, end: u32, detail: RSlice<'_, u8>) -> Batch {
                INSTANCES.finish(stream, end, detail.as_slice())
            }
            extern "C" fn poll(stream: u64) -> Batch {
                INSTANCES.poll(stream)
            }
            extern "C" fn cancel(stream: u64) -> Batch {
                INSTANCES.cancel(stream)
            }
            extern "C" fn close(stream: u64) {
                INSTANCES.close(stream);
            }
            extern "C" fn call(handle: u64, operation: RSlice<'_, u8>, argument: RSlice<'_, u8>) -> Reply {
                INSTANCES.call(handle, operation.as_slice(), argument.as_slice())
            }

            fn root() -> RootRef {
                Root {
                    describe,
                    create,
                    destroy,
                    check_history,
                    convert,
                    on_replay_degrade,
                    open,
                    feed,
                    finish,
                    poll,
                    cancel,
                    close,
                    call,
                }
                .leak_into_prefix()
            }

            extern "C" fn erased_root() -> RootModuleResult {
                __call_root_module_loader(root)
            }

            // SAFETY: `erased_root` returns the root module of the type that the constructor is told.
            // The name is that of `abi_stable::library::ROOT_MODULE_LOADER_NAME`; a test of this crate compares them.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            pub static HEADER: LibHeader =
                unsafe { LibHeader::from_constructor::<RootRef>(erased_root, CheckTypeLayout::Yes) };

            // SAFETY: the section is this crate's own; it holds plain bytes that nothing runs or relocates.
            #[used]
            #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__dshmeta"))]
            #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".dshmeta"))]
            static METADATA: [u8; $crate::abi::META_CAPACITY] = $crate::abi::export::section(
                <$adapter as $crate::Adapter>::NAME,
                env!("CARGO_PKG_VERSION"),
                <$adapter as $crate::Adapter>::ENVELOPE_KIND,
                <$adapter as $crate::Adapter>::ENVELOPE_VERSION,
            );
        };
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_exported_name_is_the_one_that_abi_stable_looks_up() {
        assert_eq!(abi_stable::library::ROOT_MODULE_LOADER_NAME, "_1as_0lib_1header_0root_bmodule_bloader");
    }
}
