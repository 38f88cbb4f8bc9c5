//! The thread that appends to one log: group commit, and nothing is acknowledged before it is durable. It is there
//! while there is something to write; an open session that nobody uses has none.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use super::bytes::Form;
use super::disk::DiskFile;
use super::encode::{Encoder, window};
use super::lock::Lock;
use super::{OnDurable, StoreError};
use crate::session::batch::{Durable, NewEvents, PlacedEvents};

/// How long a thread without work waits for more. Tests come and go by it all the time.
const LINGER: Duration = Duration::from_millis(if cfg!(test) { 5 } else { 1_000 });

enum Order {
    /// Events from this seq on, with this time.
    Append {
        first: u64,
        time: u64,
        events: Vec<NewEvents>,
    },
    Checkpoint(oneshot::Sender<Result<(), StoreError>>),
}

/// Appends to one session. Dropping it flushes and unlocks.
pub struct Writer {
    path: PathBuf,
    queue: Arc<Mutex<Queue>>,
    _lock: Lock,
}

struct Queue {
    next_seq: u64,
    last_time: u64,
    log: LogState,
}

/// Who has the log.
enum LogState {
    /// Nobody: nothing waits to be written.
    Idle(Box<LogThread>),
    /// A thread.
    Busy { orders: Sender<Order>, thread: JoinHandle<()> },
    /// Nobody will have it any more, with the reason.
    Gone(StoreError),
}

/// Where a writer starts.
pub(super) struct Start {
    pub path: PathBuf,
    pub file: DiskFile,
    pub form: Form,
    pub lock: Lock,
    /// Length of the file in bytes; everything up to it is durable.
    pub length: u64,
    /// Seq of the next event in memory.
    pub next_seq: u64,
    /// What a seq in the file has above that in memory.
    pub offset: i64,
    /// Time of the last event; times never run backwards.
    pub last_time: u64,
}

impl Writer {
    pub(super) fn start(start: Start, on_durable: OnDurable) -> Self {
        let Start { path, file, form, lock, length, next_seq, offset, last_time } = start;
        let encoder = Encoder::new(form, offset);
        let log = LogThread { path: path.clone(), file, encoder, length, on_durable, failed: None };
        let queue = Queue { next_seq, last_time, log: LogState::Idle(Box::new(log)) };
        Self { path, queue: Arc::new(Mutex::new(queue)), _lock: lock }
    }

    /// The file that is written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues events; returns the seq of the first. They become durable within the batching window, or at the next
    /// checkpoint. Never blocks on the file.
    pub fn append<E: Into<NewEvents>>(&self, events: impl IntoIterator<Item = E>) -> u64 {
        let events: Vec<NewEvents> = events.into_iter().map(Into::into).collect();
        let mut queue = self.queue();
        let first = queue.next_seq;
        queue.last_time = queue.last_time.max(now());
        let time = queue.last_time;
        queue.next_seq += events.iter().map(NewEvents::count).sum::<u64>();
        if queue.next_seq > first {
            self.wake(&mut queue);
            if let LogState::Busy { orders, .. } = &queue.log {
                // A thread that is gone is reported by the next checkpoint.
                let _ = orders.send(Order::Append { first, time, events });
            }
        }
        first
    }

    /// Asks for everything that was appended so far to be made durable, at once; the future waits until it is.
    ///
    /// # Errors
    ///
    /// The first error that writing met, with its path. The events that it concerns were not acknowledged, and nothing
    /// is written after it: open the session again.
    pub fn checkpoint(&self) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let (done, answer) = oneshot::channel();
        // Whoever asks waits for the answer below.
        match &self.queue().log {
            LogState::Idle(log) => drop(done.send(log.result())),
            LogState::Busy { orders, .. } => drop(orders.send(Order::Checkpoint(done))),
            LogState::Gone(error) => drop(done.send(Err(error.clone()))),
        }
        let path = self.path.clone();
        async move { answer.await.unwrap_or(Err(StoreError::WriterStopped(path))) }
    }

    /// Starts the thread where there is none.
    fn wake(&self, queue: &mut Queue) {
        if !matches!(queue.log, LogState::Idle(_)) {
            return;
        }
        let gone = LogState::Gone(StoreError::WriterStopped(self.path.clone()));
        let LogState::Idle(log) = std::mem::replace(&mut queue.log, gone) else { return };
        let (orders, inbox) = mpsc::channel();
        let shared = Arc::clone(&self.queue);
        let thread = std::thread::Builder::new()
            .name("session-log".to_owned())
            .spawn(move || log.run(&inbox, &shared))
            .map_err(StoreError::io("start the writer of", &self.path));
        queue.log = match thread {
            Ok(thread) => LogState::Busy { orders, thread },
            Err(error) => LogState::Gone(error),
        };
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        locked(&self.queue)
    }
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // Nothing that runs under the lock panics; if it did, the numbers would still be right.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let gone = LogState::Gone(StoreError::WriterStopped(self.path.clone()));
        let log = std::mem::replace(&mut self.queue().log, gone);
        match log {
            LogState::Idle(mut log) => log.close(),
            LogState::Busy { orders, thread } => {
                drop(orders);
                // Its panic has been reported, and whoever waited at a checkpoint has been told.
                let _ = thread.join();
            }
            LogState::Gone(_) => {}
        }
    }
}

/// Unix time in milliseconds; 0 on a clock before 1970.
pub(crate) fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// What the thread owns.
struct LogThread {
    path: PathBuf,
    file: DiskFile,
    encoder: Encoder,
    /// Length of the durable part.
    length: u64,
    on_durable: OnDurable,
    failed: Option<StoreError>,
}

impl LogThread {
    fn run(mut self: Box<Self>, inbox: &Receiver<Order>, queue: &Mutex<Queue>) {
        let mut last: Option<Instant> = None;
        loop {
            let order = match inbox.recv_timeout(LINGER) {
                Ok(order) => order,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let mut queue = locked(queue);
                    // Orders are sent under the lock. A writer that is being dropped takes nothing back.
                    match inbox.try_recv() {
                        Ok(order) => order,
                        Err(TryRecvError::Disconnected) => break,
                        Err(TryRecvError::Empty) if matches!(queue.log, LogState::Gone(_)) => continue,
                        Err(TryRecvError::Empty) => {
                            queue.log = LogState::Idle(self);
                            return;
                        }
                    }
                }
            };
            let quiet = last.map_or(Duration::MAX, |last| last.elapsed());
            let Batch { events, waiting } = Batch::collect(order, inbox, window(quiet));
            last = Some(Instant::now());
            self.commit(events);
            for done in waiting {
                // Whoever asked may have been cancelled.
                let _ = done.send(self.result());
            }
        }
        self.close();
    }

    fn result(&self) -> Result<(), StoreError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Ends the frame that is being written. Every event is durable already, and a frame that stays unfinished can be
    /// read, so a failure costs nothing.
    fn close(&mut self) {
        let closing = self.encoder.close();
        if closing.is_empty() || self.failed.is_some() {
            return;
        }
        if let Err(error) = self.file.append(closing).and_then(|()| self.file.sync()) {
            tracing::debug!(path = %self.path.display(), %error, "the last frame of the log stays unfinished");
            let _ = self.file.cut(self.length);
        }
    }

    fn commit(&mut self, events: Vec<PlacedEvents>) {
        if events.is_empty() || self.failed.is_some() {
            return;
        }
        let packed = self.encoder.batch(&events).map_err(StoreError::io("compress", &self.path));
        let written = packed.and_then(|bytes| {
            self.file.append(&bytes).map_err(StoreError::io("write", &self.path))?;
            self.file.sync().map_err(StoreError::io("sync", &self.path))?;
            Ok(bytes.len() as u64)
        });
        match written {
            Ok(length) => {
                self.length += length;
                (self.on_durable)(&Durable::from(events));
            }
            Err(error) => {
                // What is left of the batch was not acknowledged. If it cannot be cut, recovery reads or cuts it.
                if let Err(cut) = self.file.cut(self.length).and_then(|()| self.file.sync()) {
                    tracing::warn!(path = %self.path.display(), %cut, "an incomplete batch stays at the end of the log");
                }
                tracing::error!(%error, "the session log cannot be written");
                self.failed = Some(error);
            }
        }
    }
}

/// Events that are made durable together, and who waits for them.
struct Batch {
    events: Vec<PlacedEvents>,
    waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

impl Batch {
    /// Everything that arrives within the window, or up to a checkpoint and what is queued by then.
    fn collect(first: Order, inbox: &Receiver<Order>, window: Duration) -> Self {
        let mut batch = Self { events: Vec::new(), waiting: Vec::new() };
        let deadline = Instant::now() + window;
        batch.add(first);
        loop {
            let wait = match batch.waiting.is_empty() {
                true => deadline.saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            match inbox.recv_timeout(wait) {
                Ok(order) => batch.add(order),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return batch,
            }
        }
    }

    fn add(&mut self, order: Order) {
        match order {
            Order::Append { mut first, time, events } => {
                for events in events {
                    let count = events.count();
                    self.events.push(events.at(first, time));
                    first += count;
                }
            }
            Order::Checkpoint(done) => self.waiting.push(done),
        }
    }
}

#[cfg(test)]
impl Writer {
    /// Waits until there is no thread.
    pub(super) fn rest(&self) {
        while !matches!(self.queue().log, LogState::Idle(_)) {
            std::thread::sleep(LINGER);
        }
    }

    /// A writer for tests of its users: nothing can be written any more.
    pub(crate) fn on_a_full_disk(path: &Path) -> Self {
        use super::disk::Disk;
        use super::disk::probe::{Failure, How};
        let how = How::Error(std::io::ErrorKind::StorageFull);
        let disk = Disk::failing(Failure { at: 2, times: usize::MAX, how });
        let file = disk.create_new(path).unwrap();
        let lock = Lock::take(path).unwrap();
        let start = Start {
            path: path.to_owned(),
            file,
            form: Form::Plain,
            lock,
            length: 0,
            next_seq: 0,
            offset: 0,
            last_time: 0,
        };
        Self::start(start, Box::new(|_| panic!("nothing is durable on a full disk")))
    }
}
