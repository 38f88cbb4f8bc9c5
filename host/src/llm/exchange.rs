//! One attempt: from the request that goes out to the finish chunk.
//!
//! [`ResponseStream`] is a state machine that its reader drives: nothing is read ahead, so a slow reader slows the
//! provider down, and dropping the stream closes the connection. The adapter's decoder runs inline. It gets what has
//! arrived at once, not piece by piece; nothing that has arrived waits for more.
//!
//! Promises towards the reader, whatever provider and adapter do: exactly one finish, and nothing after it; an end
//! within the manifest's timeouts; no text that quotes a secret. The end of a connection is not awaited once the
//! adapter has finished.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use dsh_plugin_api::StreamEnd;
use dsh_plugin_api::abi::Item;
use dsh_plugin_api::abi::calls::{Open, OpenHead};
use dsh_plugin_api::vocab::{Chunk, Exchange, Failure, FailureCode, FinishReason, Target};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::Prepared;
use super::credential::Secret;
use super::registry::Route;
use super::retry;
use super::transport::{Answer, Http, Outgoing, chain, duration, headers_of, redirect_refused, seconds};
use crate::loader::StreamHandle;
use crate::manifest::Transport;

/// What a decoder gets of the body of a refusal, in bytes. Nobody explains an error at greater length.
const ERROR_BODY_LIMIT: usize = 1 << 20;
/// What a decoder gets of an answer, in bytes after decompression. The longest answers of today's models have some ten
/// megabytes of events; a body without end, or a small one that unpacks to a huge one, must not fill memory and disk.
const ANSWER_LIMIT: usize = 256 << 20;
/// How many bytes are gathered for the decoder at most, if that many have arrived.
const GATHER_LIMIT: usize = 64 << 10;
/// How long the body of a refusal is waited for; its status says enough.
const ERROR_BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Pause before a decoder is polled again that had nothing and named no time.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// Chunks of one attempt. The last one is always a finish.
pub struct ResponseStream {
    route: Arc<Route>,
    target: Target,
    state: State,
    clocks: Clocks,
    /// When the body is over, as its decoder has announced.
    over_at: Option<Instant>,
    /// Chunks that the reader has not taken yet.
    due: VecDeque<Chunk>,
    /// Status of the response and the wait that its headers ask for.
    status: Option<u16>,
    retry_after_ms: Option<u64>,
    /// [`ANSWER_LIMIT`].
    answer_limit: usize,
    peer: String,
    secrets: Vec<(String, Secret)>,
}

enum State {
    /// The request is going out.
    Sending(Answer),
    /// The body comes in. `gathered` has arrived and is not decoded yet.
    Receiving { body: reqwest::Response, decoder: Box<dyn StreamHandle>, received: usize, gathered: Vec<u8> },
    /// The adapter makes the answer itself.
    Polling { decoder: Box<dyn StreamHandle>, wake_at: Option<Instant> },
    /// The finish is due or taken.
    Over,
}

/// When the reader began to wait for bytes, and for chunks. Time that it spends elsewhere with a chunk in hand does
/// not count, so a slow reader is no stalled provider; time between a dropped and a new `next` does.
struct Clocks {
    idle: Duration,
    progress: Duration,
    silent_since: Option<Instant>,
    stalled_since: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Limit {
    Idle,
    Progress,
}

impl Clocks {
    fn new(config: &Transport) -> Self {
        Self {
            idle: duration(config.idle_timeout_ms),
            progress: duration(config.progress_timeout_ms),
            silent_since: None,
            stalled_since: None,
        }
    }

    fn next_limit(&mut self) -> (Instant, Limit) {
        let idle = *self.silent_since.get_or_insert_with(Instant::now) + self.idle;
        let progress = self.next_progress_limit();
        if idle <= progress { (idle, Limit::Idle) } else { (progress, Limit::Progress) }
    }

    fn next_progress_limit(&mut self) -> Instant {
        *self.stalled_since.get_or_insert_with(Instant::now) + self.progress
    }

    const fn saw_bytes(&mut self) {
        self.silent_since = None;
    }

    const fn saw_progress(&mut self) {
        self.silent_since = None;
        self.stalled_since = None;
    }
}

impl ResponseStream {
    /// Starts an attempt. Nothing happens on the network before the first `next`.
    pub(super) fn open(http: &Http, config: &Transport, prepared: &Prepared) -> Self {
        let mut stream = Self {
            route: Arc::clone(&prepared.route),
            target: prepared.target.clone(),
            state: State::Over,
            clocks: Clocks::new(config),
            over_at: None,
            due: VecDeque::new(),
            status: None,
            retry_after_ms: None,
            answer_limit: ANSWER_LIMIT,
            peer: String::new(),
            secrets: Vec::new(),
        };
        match &prepared.exchange {
            Exchange::Http(request) => match http.send(&prepared.route, request) {
                Ok(Outgoing { peer, answer, secrets }) => {
                    stream.peer = peer;
                    stream.secrets = secrets;
                    stream.state = State::Sending(answer);
                }
                Err(failure) => stream.fail(failure),
            },
            Exchange::Polled(value) => match stream.open_decoder(OpenHead::Polled(value.clone())) {
                Ok(decoder) => stream.state = State::Polling { decoder, wake_at: None },
                Err(failure) => stream.fail(failure),
            },
        }
        stream
    }

    /// The next chunk; `None` after the finish. Cancel safe: a call that is dropped loses nothing.
    pub async fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some(chunk) = self.due.pop_front() {
                self.clocks.saw_progress();
                return Some(chunk);
            }
            match &mut self.state {
                State::Over => return None,
                State::Sending(_) => self.await_head().await,
                State::Receiving { .. } => self.await_bytes().await,
                State::Polling { .. } => self.poll().await,
            }
        }
    }

    /// The chunks that are there without waiting, behind the one that `next` gave.
    pub fn ready(&mut self) -> impl Iterator<Item = Chunk> {
        self.clocks.saw_progress();
        self.due.drain(..)
    }

    /// Stops the attempt and closes the connection. Returns the chunks that are still due, the last one a finish of
    /// kind `aborted`; nothing when the finish was taken before.
    pub fn cancel(&mut self) -> Vec<Chunk> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Sending(_) => {}
            State::Receiving { mut decoder, body, .. } => {
                drop(body);
                self.take(decoder.cancel());
            }
            State::Polling { mut decoder, .. } => self.take(decoder.cancel()),
            State::Over if self.due.is_empty() => return Vec::new(),
            State::Over => {}
        }
        let mut due: Vec<Chunk> = std::mem::take(&mut self.due).into();
        let last = due.pop_if(|chunk| matches!(chunk, Chunk::Finish { .. }));
        due.push(aborted(last));
        due
    }

    async fn await_head(&mut self) {
        let (deadline, limit) = self.clocks.next_limit();
        let State::Sending(answer) = &mut self.state else { return };
        match timeout_at(deadline, answer).await {
            Ok(Ok(response)) => self.head(response),
            Ok(Err(failure)) => self.fail(failure),
            Err(_) => {
                let waited = if limit == Limit::Idle { self.clocks.idle } else { self.clocks.progress };
                let message = format!("no answer from {} within {}", self.peer, seconds(waited));
                self.fail(Failure::new(FailureCode::Timeout, message));
            }
        }
    }

    fn head(&mut self, response: reqwest::Response) {
        self.clocks.saw_bytes();
        let status = response.status();
        self.status = Some(status.as_u16());
        if let Some(failure) = redirect_refused(&response, &self.peer) {
            return self.fail(failure);
        }
        let headers = headers_of(&response);
        if self.is_refusal() {
            self.retry_after_ms = retry::retry_after_ms(&headers, SystemTime::now());
            self.clocks.saw_progress();
            self.clocks.idle = self.clocks.idle.min(ERROR_BODY_PATIENCE);
            self.clocks.progress = self.clocks.progress.min(ERROR_BODY_PATIENCE);
        }
        match self.open_decoder(OpenHead::Http { status: status.as_u16(), headers }) {
            Ok(decoder) => {
                self.state = State::Receiving { body: response, decoder, received: 0, gathered: Vec::new() };
            }
            Err(failure) => self.fail(failure),
        }
    }

    async fn await_bytes(&mut self) {
        let (deadline, limit) = self.clocks.next_limit();
        let deadline = self.over_at.map_or(deadline, |over_at| over_at.min(deadline));
        let is_refusal = self.is_refusal();
        let limit_of_body = if is_refusal { ERROR_BODY_LIMIT } else { self.answer_limit };
        let State::Receiving { body, received, gathered, .. } = &mut self.state else { return };
        let room = limit_of_body - *received;
        let mut end = match timeout_at(deadline, gather(body, gathered, room.min(GATHER_LIMIT))).await {
            Ok(Ok(Follows::More)) => None,
            Ok(Ok(Follows::Nothing)) => Some(StreamEnd::Complete),
            Ok(Err(error)) => Some(StreamEnd::Cut(chain(&error))),
            Err(_) if !gathered.is_empty() => None,
            Err(_) if self.is_over() => Some(StreamEnd::Complete),
            Err(_) => Some(self.timed_out(limit)),
        };
        if let State::Receiving { decoder, received, gathered, .. } = &mut self.state
            && !gathered.is_empty()
        {
            self.clocks.saw_bytes();
            let bytes = &gathered[..gathered.len().min(room)];
            *received += bytes.len();
            let is_full = bytes.len() == room;
            let items = decoder.feed(bytes);
            gathered.clear();
            self.take(items);
            if (is_full && is_refusal) || self.is_over() {
                end = Some(StreamEnd::Complete);
            } else if is_full && !matches!(self.state, State::Over) {
                return self.overflow();
            } else if end.is_none() && self.due.is_empty() && Instant::now() >= self.clocks.next_progress_limit() {
                // A flood never lets the timer above run out.
                end = Some(self.timed_out(Limit::Progress));
            }
        }
        let Some(end) = end else { return };
        // The status of a refusal is known; a body that breaks off does not make it another failure.
        self.end(if is_refusal { &StreamEnd::Complete } else { &end });
    }

    /// True once the time has come that the decoder announced as the end of the body.
    fn is_over(&self) -> bool {
        self.over_at.is_some_and(|over_at| Instant::now() >= over_at)
    }

    /// The answer has reached its limit. What came is kept; asking again would bring the same flood.
    fn overflow(&mut self) {
        let message =
            format!("{} sent more than {} bytes in one answer; the rest was not read", self.peer, self.answer_limit);
        self.end(&StreamEnd::Cut(message.clone()));
        if let Some(Chunk::Finish { reason: FinishReason::Error { failure }, .. }) = self.due.back_mut() {
            failure.code = FailureCode::Protocol;
            failure.message = message;
        }
    }

    fn timed_out(&self, limit: Limit) -> StreamEnd {
        let Self { peer, clocks, .. } = self;
        StreamEnd::TimedOut(match limit {
            Limit::Idle => format!("{peer} sent nothing for {}", seconds(clocks.idle)),
            Limit::Progress => {
                format!("{peer} keeps the connection busy but has sent nothing new for {}", seconds(clocks.progress))
            }
        })
    }

    async fn poll(&mut self) {
        // A decoder that always has something must not starve other tasks.
        tokio::task::coop::consume_budget().await;
        let State::Polling { decoder, wake_at } = &mut self.state else { return };
        if let Some(at) = *wake_at {
            sleep_until(at).await;
            *wake_at = None;
        }
        let items = decoder.poll();
        let wait = items.iter().rev().find_map(|item| match item {
            Item::Wait(ms) => Some(Duration::from_millis(u64::from(*ms))),
            Item::Chunk(_) | Item::Malformed(_) => None,
        });
        let now = Instant::now();
        if wait.is_some() {
            // A wait that the adapter announces is no stall.
            self.clocks.saw_progress();
        } else if items.is_empty() && now >= self.clocks.next_progress_limit() {
            let waited = seconds(self.clocks.progress);
            let text = format!("the adapter `{}` has had nothing new for {waited}", self.route.adapter);
            return self.end(&StreamEnd::TimedOut(text));
        }
        *wake_at = wait.or_else(|| items.is_empty().then_some(POLL_PAUSE)).map(|pause| now + pause);
        self.take(items);
    }

    /// Tells the decoder that the input is over; whatever it makes of it, there is a finish afterwards.
    fn end(&mut self, end: &StreamEnd) {
        let items = match &mut self.state {
            State::Receiving { decoder, .. } | State::Polling { decoder, .. } => decoder.finish(end),
            State::Sending(_) | State::Over => return,
        };
        self.take(items);
        if let (StreamEnd::TimedOut(_), Some(Chunk::Finish { reason: FinishReason::Error { failure }, .. })) =
            (end, self.due.back_mut())
            && failure.code == FailureCode::Transport
        {
            failure.code = FailureCode::Timeout;
        }
        if !matches!(self.state, State::Over) {
            self.fail(self.unfinished(end));
        }
    }

    /// The failure of a response that its decoder has not finished.
    fn unfinished(&self, end: &StreamEnd) -> Failure {
        let refused = |status: u16| {
            let code = match status {
                401 | 403 => FailureCode::Auth,
                408 => FailureCode::Timeout,
                429 => FailureCode::RateLimit,
                500.. => FailureCode::Server,
                _ => FailureCode::InvalidRequest,
            };
            Failure::new(code, format!("{} answered with status {status}", self.peer))
        };
        match (end, self.status) {
            (StreamEnd::TimedOut(text), _) => Failure::new(FailureCode::Timeout, text.clone()),
            (StreamEnd::Cut(reason), _) => {
                Failure::new(FailureCode::Transport, format!("the connection to {} broke: {reason}", self.peer))
            }
            (StreamEnd::Complete, Some(status)) if self.is_refusal() => refused(status),
            (StreamEnd::Complete, _) => {
                let message = format!("{} ended its answer before the answer was complete", self.peer);
                Failure::new(FailureCode::Transport, message)
            }
        }
    }

    /// True once a status other than 2xx has come.
    fn is_refusal(&self) -> bool {
        self.status.is_some_and(|status| !(200..300).contains(&status))
    }

    fn open_decoder(&self, head: OpenHead) -> Result<Box<dyn StreamHandle>, Failure> {
        self.route.handle.open(&Open { target: self.target.clone(), head })
    }

    /// Queues chunks up to and including the finish, which ends the attempt.
    fn take(&mut self, items: Vec<Item>) {
        for item in items {
            match item {
                Item::Chunk(Chunk::Finish { reason, replay_state }) => return self.finish(reason, replay_state),
                Item::Chunk(chunk) => self.due.push_back(chunk),
                Item::Wait(ms) => {
                    self.over_at.get_or_insert_with(|| Instant::now() + Duration::from_millis(u64::from(ms)));
                }
                Item::Malformed(text) => {
                    let message = format!("the adapter `{}` broke its interface: {text}", self.route.adapter);
                    return self.fail(Failure::new(FailureCode::Protocol, message));
                }
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.finish(FinishReason::Error { failure }, None);
    }

    fn finish(&mut self, mut reason: FinishReason, replay_state: Option<dsh_plugin_api::vocab::ReplayEnvelope>) {
        if let FinishReason::Error { failure } | FinishReason::Aborted { failure } = &mut reason {
            if self.is_refusal() {
                failure.status = failure.status.or(self.status);
                failure.provider_retry_after_ms = failure.provider_retry_after_ms.or(self.retry_after_ms);
            }
            for (reference, secret) in &self.secrets {
                failure.message = secret.redact(&failure.message, reference);
                failure.request_id = failure.request_id.take().map(|id| secret.redact(&id, reference));
            }
        }
        self.due.push_back(Chunk::Finish { reason, replay_state });
        // Drops the connection and the decoder.
        self.state = State::Over;
    }
}

/// What follows the bytes that were gathered.
enum Follows {
    /// More, perhaps.
    More,
    /// The end of the body.
    Nothing,
}

/// Waits for bytes of the body and takes what else has arrived, up to about `limit`. A server sends each event in a piece
/// of its own, and the connection, which is a task of its own, hands over one piece at a time: it gets one chance to
/// run before what is there is taken for all. Cancel safe: what was gathered stays in `into`.
async fn gather(body: &mut reqwest::Response, into: &mut Vec<u8>, limit: usize) -> Result<Follows, reqwest::Error> {
    let mut asked_again = false;
    poll_fn(|context| {
        loop {
            if into.len() >= limit {
                return Poll::Ready(Ok(Follows::More));
            }
            match pin!(body.chunk()).poll(context) {
                Poll::Ready(Ok(Some(bytes))) => {
                    into.extend_from_slice(&bytes);
                    asked_again = false;
                }
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(Follows::Nothing)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if into.is_empty() => return Poll::Pending,
                Poll::Pending if asked_again => return Poll::Ready(Ok(Follows::More)),
                Poll::Pending => {
                    asked_again = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

/// The finish of a stopped attempt. Replay metadata of a finish that was due already is kept unless it says that the
/// answer ended in another way than by the stop.
fn aborted(finish: Option<Chunk>) -> Chunk {
    let failure = |message: &str| Failure::new(FailureCode::Aborted, message);
    let (failure, replay_state) = match finish {
        Some(Chunk::Finish { reason: FinishReason::Aborted { failure }, replay_state }) => (failure, replay_state),
        Some(Chunk::Finish { reason: FinishReason::Error { failure: error }, replay_state }) => {
            (failure(&format!("stopped by the host, after a failure: {}", error.message)), replay_state)
        }
        Some(Chunk::Finish { reason: FinishReason::Stop, replay_state }) => {
            (failure("stopped by the host"), replay_state)
        }
        _ => (failure("stopped by the host"), None),
    };
    Chunk::Finish { reason: FinishReason::Aborted { failure }, replay_state }
}

#[cfg(test)]
mod tests;
