//! The bytes of a request and of its reply, with the patience the service has for both.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use lumpscope_units::nanoseconds;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Code;

use lumpscope_server::request::{Budget, Reading, Scope, is_slow};

/// Most bytes of a request that wait for being taken: a signed chunk is kept until its signature
/// has been checked, so this is the largest chunk.
pub(super) const MAX_HELD: u64 = 64 << 20;

/// Characters of the signature of a chunk.
const SIGNATURE: usize = 64;
/// Bytes of a body that are kept to see its end: a line end, the last chunk, and two more.
const TAIL: usize = 2 + 18 + SIGNATURE + 4;

/// Bytes of a body that nobody wants, and the time for them: behind either the connection ends.
pub(super) const MAX_DRAINED: usize = 64 << 20;
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Why a body is not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BodyError {
    /// The client sends nothing.
    #[error("nothing of the body came for {} s", .0.as_secs())]
    Silent(Duration),
    /// The client sends too slowly.
    #[error("the body came too slowly: less than {0} bytes a second")]
    Slow(u64),
    /// More than a body may have.
    #[error("the body is larger than {0} bytes")]
    TooLarge(u64),
    /// A chunk that cannot be held until its signature is known.
    #[error("a chunk of the body is larger than {MAX_HELD} bytes")]
    Chunk,
    /// The client has gone away.
    #[error("the body ended before its announced length")]
    Gone,
}

/// State of a body while it comes; shared by its reader and the task that waits for the result.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Bytes that came since some were taken.
    held: AtomicU64,
    /// When `held` is so many, no more are read; 0: there is no such bound.
    allowed: AtomicU64,
    /// Somebody reads, and no more are allowed.
    full: Notify,
    /// Memory that the body has, in bytes.
    memory: AtomicU64,
    waited_ns: AtomicU64,
    /// The last bytes of the body.
    tail: Mutex<Vec<u8>>,
    /// All of the body has come.
    over: AtomicBool,
    /// Time of receiving at the last report, and the wait until then.
    received: Mutex<(Duration, u64)>,
    fault: OnceLock<BodyError>,
}

impl Flow {
    /// Bytes have been taken: no chunk is being held.
    pub(super) fn taken(&self) {
        self.held.store(0, Ordering::Relaxed);
    }

    /// So many bytes may wait for being taken; `None`: as many as a chunk can have.
    pub(super) fn allow(&self, bytes: Option<u64>) {
        self.allowed.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Waits until no more bytes are read because too many wait for being taken.
    pub(super) async fn full(&self) {
        self.full.notified().await;
    }

    fn is_full(&self) -> bool {
        let allowed = self.allowed.load(Ordering::Relaxed);
        allowed > 0 && self.held.load(Ordering::Relaxed) >= allowed
    }

    /// True: the last of what came is a signed chunk without bytes, which ends a body of chunks. Bytes
    /// of an object that look like one count, too: then all bytes of the object have come.
    pub(super) fn has_final_chunk(&self) -> bool {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        // Some clients leave out the last end of a line.
        let end = tail.strip_suffix(b"\r\n\r\n");
        let end = end
            .or_else(|| tail.strip_suffix(b"\r\n"))
            .unwrap_or_default();
        let (line, signature) = end.split_at(end.len().saturating_sub(SIGNATURE));
        // It is all there is, or the line before it has ended.
        let before = line.strip_suffix(b"0;chunk-signature=");
        signature.len() == SIGNATURE
            && before.is_some_and(|it| it.is_empty() || it.ends_with(b"\n"))
    }

    fn keep_tail(&self, bytes: &[u8]) {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL)..]);
        let more = tail.len().saturating_sub(TAIL);
        tail.drain(..more);
    }

    /// True: all of the body has come, so another request can follow on the connection.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The body has memory for so many bytes.
    pub(super) fn has(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }

    /// Receiving has taken so long until now: waits for the client, signature and checksums.
    pub(super) fn received(&self, time: Duration) {
        let waited = self.waited_ns.load(Ordering::Relaxed);
        *self.told() = (time, waited);
    }

    /// Time of receiving in all, in nanoseconds.
    pub(super) fn received_ns(&self) -> u64 {
        let (time, before) = *self.told();
        let since = self
            .waited_ns
            .load(Ordering::Relaxed)
            .saturating_sub(before);
        let told = nanoseconds(time);
        told.saturating_add(since)
    }

    fn told(&self) -> MutexGuard<'_, (Duration, u64)> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it was given up.
    pub(super) fn fault(&self) -> Option<BodyError> {
        self.fault.get().copied()
    }
}

/// Limits of a client for one body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Longest time without a byte.
    pub(super) silence: Duration,
    /// Bytes a second, after that time; 0: no limit. More while others wait for its memory.
    pub(super) min_rate: u64,
    /// Bytes in all, with what frames them.
    pub(super) max: u64,
}

/// The body of a request. Only the time counts in which the service wants bytes.
///
/// A body that is given up is read on for a while: a client that sends all of a request before it
/// reads would otherwise find the connection reset, and never see the answer (RFC 9112, 9.6).
pub(super) struct Patient<B: Received> {
    /// `None`: given up.
    body: Option<B>,
    /// False: the client sends nothing before it is told to go on.
    begun: bool,
    flow: Arc<Flow>,
    patience: Patience,
    memory: Budget,
    timer: Pin<Box<Sleep>>,
    since: Option<Instant>,
    waited: Duration,
    got: u64,
}

/// A body as it comes from a connection.
pub(super) trait Received: Body<Data = Bytes> + Send + Unpin + 'static {}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Received for B {}

/// Reads what still comes of a body, within bounds.
async fn drain(mut body: impl Received) {
    let all = async {
        let mut got = 0;
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            got += frame.data_ref().map_or(0, Bytes::len);
            if got > MAX_DRAINED {
                break;
            }
        }
    };
    // Whichever bound is met first, the connection ends.
    let _ = tokio::time::timeout(DRAIN_TIME, all).await;
}

impl<B: Received> Drop for Patient<B> {
    fn drop(&mut self) {
        let waits = self.begun && !self.flow.is_over() && self.flow.fault().is_none();
        let body = self.body.take().filter(|_| waits);
        if let (Some(body), Ok(runtime)) = (body, Handle::try_current()) {
            runtime.spawn(drain(body));
        }
    }
}

impl<B: Received> Patient<B> {
    /// `memory`: that which bodies share; `expects`: the client waits for `100 Continue`.
    pub(super) fn new(
        body: B,
        (patience, expects): (Patience, bool),
        memory: Budget,
    ) -> (Self, Arc<Flow>) {
        let flow = Arc::<Flow>::default();
        flow.over.store(body.is_end_stream(), Ordering::Relaxed);
        let patient = Self {
            body: Some(body),
            begun: !expects,
            flow: Arc::clone(&flow),
            patience,
            memory,
            timer: Box::pin(tokio::time::sleep(patience.silence)),
            since: None,
            waited: Duration::ZERO,
            got: 0,
        };
        (patient, flow)
    }

    fn failed(&self, fault: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // The first fault is the one to tell.
        let _ = self.flow.fault.set(fault);
        Poll::Ready(Some(Err(fault)))
    }

    fn came(&mut self, bytes: u64) -> Option<BodyError> {
        self.got += bytes;
        let held = self.flow.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let Patience {
            silence,
            min_rate,
            max,
        } = self.patience;
        if self.got > max {
            return Some(BodyError::TooLarge(max));
        }
        if held > MAX_HELD {
            return Some(BodyError::Chunk);
        }
        if self.waited <= silence {
            return None;
        }
        let holds = self.flow.memory.load(Ordering::Relaxed);
        let min_rate = self.memory.least_rate(min_rate, holds);
        is_slow(self.got, self.waited, min_rate).then_some(BodyError::Slow(min_rate))
    }

    fn waited(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
            let ns = nanoseconds(self.waited);
            self.flow.waited_ns.store(ns, Ordering::Relaxed);
        }
    }
}

impl<B: Received> Body for Patient<B> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.flow.is_full() {
            // Whoever reads has more allowed, and asks again.
            self.flow.full.notify_one();
            return Poll::Pending;
        }
        self.begun = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(context);
        let over = body.is_end_stream() || matches!(polled, Poll::Ready(None));
        self.flow.over.store(over, Ordering::Relaxed);
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.waited();
                let bytes = frame.data_ref().map_or(&[][..], |bytes| &bytes[..]);
                self.flow.keep_tail(bytes);
                match self.came(bytes.len() as u64) {
                    Some(fault) => self.failed(fault),
                    None => Poll::Ready(Some(Ok(frame))),
                }
            }
            Poll::Ready(Some(Err(_))) => {
                self.waited();
                self.failed(BodyError::Gone)
            }
            Poll::Ready(None) => {
                self.waited();
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.since.is_none() {
                    let now = Instant::now();
                    self.since = Some(now);
                    let until = now + self.patience.silence;
                    self.timer.as_mut().reset(until);
                }
                if self.timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.waited();
                self.failed(BodyError::Silent(self.patience.silence))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// The body of a reply; ends the scope when the transport takes the last of it.
pub(super) struct ScopedBody {
    body: s3s::Body,
    scope: Arc<Scope>,
    code: Code,
    /// Bytes still to come; `None`: not known.
    left: Option<u64>,
    reading: Option<Arc<Reading>>,
    /// Ends when the request's store cuts it off.
    cut_off: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ScopedBody {
    /// `left`: length of the body, if it is known; 0 ends the scope at once.
    pub(super) fn new(
        body: s3s::Body,
        scope: Arc<Scope>,
        code: Code,
        left: Option<u64>,
        reading: Option<Arc<Reading>>,
    ) -> Self {
        if left == Some(0) {
            scope.end(code);
        }
        let cut_off = scope.cut_off();
        Self {
            body,
            scope,
            code,
            left,
            reading,
            cut_off: cut_off.map(|token: CancellationToken| Box::pin(token.cancelled_owned())),
        }
    }

    fn sent(&mut self, bytes: u64) {
        self.scope.add_bytes(bytes);
        if let Some(reading) = &self.reading {
            reading.took(bytes);
        }
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        if self.left == Some(0) {
            self.scope.end(self.code);
        }
    }
}

impl Body for ScopedBody {
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, s3s::StdError>>> {
        if let Some(cut_off) = &mut self.cut_off
            && cut_off.as_mut().poll(context).is_ready()
        {
            self.cut_off = None;
            self.scope.end(Code::Unavailable);
            let why = std::io::Error::other("the request was cut off");
            return Poll::Ready(Some(Err(why.into())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Some(reading) = &self.reading {
            match &polled {
                Poll::Pending => reading.waits(),
                Poll::Ready(_) => reading.goes_on(),
            }
        }
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.sent(bytes);
            }
            Poll::Ready(Some(Err(error))) => {
                self.scope.end_as(Code::Internal, &error.to_string());
            }
            Poll::Ready(None) => self.scope.end(self.code),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => self.body.size_hint(),
        }
    }
}

impl Drop for ScopedBody {
    fn drop(&mut self) {
        // Only counts when the end was not taken: the client went away in the middle.
        self.scope.end(Code::Cancelled);
    }
}
