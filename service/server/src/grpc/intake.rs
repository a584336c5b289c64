//! Bounds the one message of a call before it is gathered.
//!
//! The generated services gather a message whole, for as long as the client takes, and no budget
//! knows of it; and they call what is wrong with it INTERNAL. A [`Bounded`] body ends at the prefix
//! of a message that is compressed or too large for its method, when the message does not come in
//! time or whole, and when there is no memory for it. [`blame`] finds what cannot be read. Memory is
//! held until the call is answered, because what the message was decoded into lives that long. Nobody
//! holds all of it: a payer has a share (see [`Bodies`]).

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use lumpscope_engine::Payer;
use lumpscope_proto::frame::{PREFIX_LEN, WireError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use super::wire::FIELDS;
use crate::refusal::Refusal;
use crate::request::Bodies;
use crate::request::BodyMemory;

/// Messages of at most so many bytes have a budget of their own, so that large ones do not keep
/// them waiting.
const SMALL: u64 = 16 << 10;
/// Memory for small messages: 4096 calls at a time.
const SMALL_MEMORY: u64 = 16 << 20;
/// Memory for larger ones.
const LARGE_MEMORY: u64 = 64 << 20;
/// Bytes of the first frames of messages that wait for their memory.
const WAITING_MEMORY: u32 = 32 << 20;

/// All memory of messages, each twice: as it came, and gathered.
pub(crate) const MESSAGES: u64 =
    2 * (Bodies::most(SMALL_MEMORY) + Bodies::most(LARGE_MEMORY)) + WAITING_MEMORY as u64;

/// Memory and patience for messages. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    small: Bodies,
    large: Bodies,
    waiting: Arc<Semaphore>,
    patience: Duration,
}

impl Intake {
    /// Waits at most `patience` for memory, and as long again for the message.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            small: Bodies::new(SMALL_MEMORY),
            large: Bodies::new(LARGE_MEMORY),
            waiting: Arc::new(Semaphore::new(WAITING_MEMORY as usize)),
            patience,
        }
    }

    /// `body` as one message of at most `max` bytes, whose memory is `payer`'s. Keep [`MessageMemory`] until
    /// the call is answered.
    pub(super) fn bound(&self, body: Body, max: usize, payer: Payer) -> (Body, MessageMemory) {
        let held = MessageMemory::default();
        let bounded = Bounded {
            body,
            max,
            payer,
            prefix: [0; PREFIX_LEN],
            seen: 0,
            announced: None,
            waiting: None,
            held: Arc::clone(&held),
            timer: Box::pin(tokio::time::sleep(self.patience)),
            intake: self.clone(),
        };
        (Body::new(bounded), held)
    }

    /// Memory for a message of so many bytes, once it can be had.
    fn reserve(&self, payer: Payer, bytes: u64) -> Reserving {
        let memory = if bytes <= SMALL {
            self.small.clone()
        } else {
            self.large.clone()
        };
        Box::pin(async move { memory.begin(payer, bytes).await })
    }
}

/// What tonic says of a message that its codec cannot read, which it blames on the service.
const UNREADABLE: &str = "failed to decode Protobuf message";

/// The reply, or a refusal where the client's message could not be read.
pub(super) fn blame(reply: Response<Body>) -> Response<Body> {
    // Only a reply that is an error and nothing else has a status in its head.
    let status = Status::from_header_map(reply.headers());
    let unreadable = |status: Status| {
        status.code() == Code::Internal && status.message().starts_with(UNREADABLE)
    };
    match status.is_some_and(unreadable) {
        true => Status::from(Refusal::from(WireError::Malformed(FIELDS))).into_http(),
        false => reply,
    }
}

/// The memory of a message, once it has been announced.
pub(super) type MessageMemory = Arc<OnceLock<BodyMemory>>;

type Reserving = Pin<Box<dyn Future<Output = BodyMemory> + Send>>;

/// A frame, and the memory that its message waits for.
struct WaitingFrame {
    frame: Frame<Bytes>,
    _place: OwnedSemaphorePermit,
    memory: Reserving,
}

/// A body of one message.
struct Bounded {
    body: Body,
    max: usize,
    payer: Payer,
    prefix: [u8; PREFIX_LEN],
    /// Bytes that have come, with the prefix.
    seen: usize,
    /// Bytes of the message, once its prefix has come.
    announced: Option<u64>,
    waiting: Option<WaitingFrame>,
    held: MessageMemory,
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
        let [flag, len @ ..] = self.prefix;
        match flag {
            0 => {}
            1 => return Err(WireError::Compressed.into()),
            flag => return Err(WireError::Flag { flag }.into()),
        }
        let len = u64::from(u32::from_be_bytes(len));
        let max = self.max as u64;
        if len > max {
            return Err(Refusal::MessageTooLarge { len, max });
        }
        if (self.seen - PREFIX_LEN) as u64 > len {
            return Err(WireError::Malformed("more than one message came").into());
        }
        self.announced = Some(len);
        Ok((before < PREFIX_LEN).then_some(len))
    }

    /// True: all of the message has come.
    fn is_whole(&self) -> bool {
        let announced = |len| (self.seen - PREFIX_LEN) as u64 == len;
        self.announced.is_some_and(announced)
    }

    /// The next frame, or why there is none.
    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.waiting.is_none() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                None if !self.is_whole() => {
                    return Poll::Ready(Some(Err(Refusal::from(WireError::Truncated).into())));
                }
                other => return Poll::Ready(other),
            };
            let announced = match frame.data_ref() {
                Some(data) => self.count(&data.clone())?,
                None => None,
            };
            let Some(len) = announced else {
                return Poll::Ready(Some(Ok(frame)));
            };
            let mut memory = self.intake.reserve(self.payer, len);
            if let Poll::Ready(reserved) = memory.as_mut().poll(context) {
                self.hold(reserved);
                return Poll::Ready(Some(Ok(frame)));
            }
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            let Some(place) = self.place(bytes) else {
                let waited = Duration::ZERO;
                return Poll::Ready(Some(Err(Refusal::NoMemory { waited }.into())));
            };
            self.waiting = Some(WaitingFrame {
                frame,
                _place: place,
                memory,
            });
        }
        let Some(mut waiting) = self.waiting.take() else {
            return Poll::Ready(None);
        };
        let Poll::Ready(memory) = waiting.memory.as_mut().poll(context) else {
            self.waiting = Some(waiting);
            return Poll::Pending;
        };
        self.hold(memory);
        Poll::Ready(Some(Ok(waiting.frame)))
    }

    /// Room for a frame whose message waits for memory.
    fn place(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let waiting = Arc::clone(&self.intake.waiting);
        waiting
            .try_acquire_many_owned(u32::try_from(bytes).ok()?)
            .ok()
    }

    /// There is memory: the time of the message begins.
    fn hold(&mut self, memory: BodyMemory) {
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
        self.waiting.is_none() && self.is_whole() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
