//! Bounds the one message of a call before it is gathered.
//!
//! The generated services gather a message whole, for as long as the client takes, and no budget
//! knows of it. A [`Bounded`] body ends at the prefix of a message that is too large for its
//! method, when the message does not come in time, and when there is no memory for it. Memory is
//! held until the call is answered, because what the message was decoded into lives that long.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;
use tonic::body::Body;

use super::wire::{PREFIX_LEN, WireError};
use crate::refusal::Refusal;
use crate::request::{Memory, Reservation};

/// Messages of at most so many bytes have a budget of their own, so that large ones do not keep
/// them waiting.
const SMALL: u64 = 16 << 10;
/// Memory for small messages: 4096 calls at a time.
const SMALL_MEMORY: u64 = 16 << 20;
/// Memory for larger ones.
const LARGE_MEMORY: u64 = 64 << 20;
/// Memory for the first frames of messages that wait for theirs.
const WAITING_MEMORY: u64 = 32 << 20;

/// All memory of messages, each twice: as it came, and gathered.
pub(crate) const MESSAGES: u64 = 2 * (SMALL_MEMORY + LARGE_MEMORY) + WAITING_MEMORY;

/// Memory and patience for messages. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    small: Memory,
    large: Memory,
    waiting: Memory,
    patience: Duration,
}

impl Intake {
    /// Waits at most `patience` for memory, and as long again for the message.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            small: Memory::new(SMALL_MEMORY),
            large: Memory::new(LARGE_MEMORY),
            waiting: Memory::new(WAITING_MEMORY),
            patience,
        }
    }

    /// `body` as one message of at most `max` bytes. Keep [`Held`] until the call is answered.
    pub(super) fn bound(&self, body: Body, max: usize) -> (Body, Held) {
        let held = Held::default();
        let bounded = Bounded {
            body,
            max,
            prefix: [0; PREFIX_LEN],
            seen: 0,
            waiting: None,
            held: Arc::clone(&held),
            timer: Box::pin(tokio::time::sleep(self.patience)),
            intake: self.clone(),
        };
        (Body::new(bounded), held)
    }

    fn memory(&self, bytes: u64) -> &Memory {
        if bytes <= SMALL {
            &self.small
        } else {
            &self.large
        }
    }
}

/// The memory of a message, once it has been announced.
pub(super) type Held = Arc<OnceLock<Reservation>>;

/// A frame, and the memory that its message waits for.
struct Waiting {
    frame: Frame<Bytes>,
    _place: Reservation,
    memory: Pin<Box<dyn Future<Output = Result<Reservation, Refusal>> + Send>>,
}

/// A body of one message.
struct Bounded {
    body: Body,
    max: usize,
    prefix: [u8; PREFIX_LEN],
    /// Bytes that have come, with the prefix.
    seen: usize,
    waiting: Option<Waiting>,
    held: Held,
    timer: Pin<Box<Sleep>>,
    intake: Intake,
}

impl Bounded {
    /// Takes note of more bytes. `Some`: the prefix is complete with them, and announces so many.
    fn count(&mut self, data: &[u8]) -> Result<Option<u64>, Refusal> {
        let before = self.seen;
        self.seen += data.len();
        let rest = self.prefix.iter_mut().skip(before);
        for (place, byte) in rest.zip(data) {
            *place = *byte;
        }
        if self.seen < PREFIX_LEN {
            return Ok(None);
        }
        let [_, len @ ..] = self.prefix;
        let len = u64::from(u32::from_be_bytes(len));
        let max = self.max as u64;
        if len > max {
            return Err(Refusal::MessageTooLarge { len, max });
        }
        if (self.seen - PREFIX_LEN) as u64 > len {
            return Err(WireError::Malformed("more than one message came").into());
        }
        Ok((before < PREFIX_LEN).then_some(len))
    }

    /// The next frame, or why there is none.
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.waiting.is_none() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            let announced = match frame.data_ref() {
                Some(data) => self.count(&data.clone())?,
                None => None,
            };
            let Some(len) = announced else {
                return Poll::Ready(Some(Ok(frame)));
            };
            let memory = self.intake.memory(len).clone();
            if let Some(reserved) = memory.try_reserve(len) {
                self.hold(reserved);
                return Poll::Ready(Some(Ok(frame)));
            }
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(place) = self.intake.waiting.try_reserve(bytes as u64) else {
                let waited = Duration::ZERO;
                return Poll::Ready(Some(Err(Refusal::NoMemory { waited }.into())));
            };
            self.waiting = Some(Waiting {
                frame,
                _place: place,
                memory: Box::pin(async move { memory.reserve(len).await }),
            });
        }
        let Some(mut waiting) = self.waiting.take() else {
            return Poll::Ready(None);
        };
        let Poll::Ready(memory) = waiting.memory.as_mut().poll(context) else {
            self.waiting = Some(waiting);
            return Poll::Pending;
        };
        self.hold(memory?);
        Poll::Ready(Some(Ok(waiting.frame)))
    }

    /// There is memory: the time of the message begins.
    fn hold(&mut self, memory: Reservation) {
        // A message has one prefix.
        let _ = self.held.set(memory);
        let patience = self.intake.patience;
        self.timer.as_mut().reset(Instant::now() + patience);
    }
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = self.next(context);
        if frame.is_pending() && self.timer.as_mut().poll(context).is_ready() {
            let waited = self.intake.patience;
            let late = match self.waiting.take() {
                Some(_) => Refusal::NoMemory { waited },
                None => Refusal::MessageSlow { waited },
            };
            return Poll::Ready(Some(Err(late.into())));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
