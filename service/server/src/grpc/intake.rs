//! Reads the one message of a call before the call is served.
//!
//! The generated services read a message for as long as the client takes, count its memory in no
//! budget, and answer INTERNAL to a malformed one. [`Intake`] refuses a message at its prefix if it is
//! compressed or too large for its method, and later if it is late, incomplete, or without memory. The
//! memory is held until the call is answered, because the decoded message lives that long.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use lumpscope_engine::Payer;
use lumpscope_proto::frame::{PREFIX_LEN, WireError};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};

use crate::refusal::Refusal;
use crate::request::{Budget, Reserved};

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
    2 * (Budget::most(SMALL_MEMORY) + Budget::most(LARGE_MEMORY)) + WAITING_MEMORY as u64;

/// Message of a status for fields that cannot be read.
pub(super) const FIELDS: &str = "its fields cannot be read";

/// Memory and patience for messages. Cheap to clone.
#[derive(Clone)]
pub struct Intake {
    small: Budget,
    large: Budget,
    waiting: Arc<Semaphore>,
    patience: Duration,
}

impl Intake {
    /// Waits at most `patience` for memory, and as long again for the message.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self {
            small: Budget::new(SMALL_MEMORY),
            large: Budget::new(LARGE_MEMORY),
            waiting: Arc::new(Semaphore::new(WAITING_MEMORY as usize)),
            patience,
        }
    }

    /// Calls a service once the only message of the call, of at most `max` bytes, has arrived. `payer`
    /// pays for its memory until the reply. Without `max`, the message is bounded where it is read.
    pub(super) fn call<S>(
        &self,
        service: &mut S,
        request: Request<Body>,
        (max, payer): (Option<usize>, Payer),
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> + Send + use<S>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        // Only the present one has said that it is ready.
        let next = service.clone();
        let mut ready = std::mem::replace(service, next);
        let intake = self.clone();
        async move {
            let Some(max) = max else {
                return ready.call(request).await.map(blame);
            };
            match intake.gather(request, max, payer).await {
                Ok((request, _memory)) => ready.call(request).await.map(blame),
                Err(status) => Ok(status.into_http()),
            }
        }
    }

    /// The request with its whole message, and the memory of the message.
    async fn gather(
        &self,
        request: Request<Body>,
        max: usize,
        payer: Payer,
    ) -> Result<(Request<Body>, Reserved), Status> {
        let (head, mut body) = request.into_parts();
        let waited = self.patience;
        let slow = |_| Refusal::MessageSlow { waited };
        let first = timeout(waited, beginning(&mut body))
            .await
            .map_err(slow)??;
        let len = announced(&first, max)?;
        let memory = self.reserve(payer, len, first.len()).await?;
        let all = timeout(waited, all(&mut body, first, PREFIX_LEN + len)).await;
        let all = Full::new(all.map_err(slow)??);
        Ok((Request::from_parts(head, Body::new(all)), memory))
    }

    /// Reserves memory for a message of `len` bytes, of which `came` bytes wait meanwhile.
    async fn reserve(&self, payer: Payer, len: usize, came: usize) -> Result<Reserved, Refusal> {
        let len = len as u64;
        let budget = if len <= SMALL {
            &self.small
        } else {
            &self.large
        };
        let mut memory = pin!(budget.begin(payer, len));
        let at_once = std::future::poll_fn(|context| Poll::Ready(memory.as_mut().poll(context)));
        if let Poll::Ready(memory) = at_once.await {
            return Ok(memory);
        }
        let came = u32::try_from(came).unwrap_or(u32::MAX);
        let place = self.waiting.try_acquire_many(came);
        let waited = Duration::ZERO;
        let _place = place.map_err(|_| Refusal::NoMemory { waited })?;
        let waited = self.patience;
        let memory = timeout(waited, memory).await;
        memory.map_err(|_| Refusal::NoMemory { waited })
    }
}

/// The first bytes of a message, at least its prefix.
async fn beginning(body: &mut Body) -> Result<Bytes, Status> {
    let mut came = Bytes::new();
    while came.len() < PREFIX_LEN {
        let more = data(body).await?;
        let more = more.ok_or(Refusal::from(WireError::Truncated))?;
        came = if came.is_empty() {
            more
        } else {
            [came, more].concat().into()
        };
    }
    Ok(came)
}

/// Length of the message with this prefix.
fn announced(came: &[u8], max: usize) -> Result<usize, Refusal> {
    let prefix = came.first_chunk().ok_or(WireError::Truncated)?;
    let [flag, len @ ..]: &[u8; PREFIX_LEN] = prefix;
    match *flag {
        0 => {}
        1 => return Err(WireError::Compressed.into()),
        flag => return Err(WireError::Flag { flag }.into()),
    }
    let len = u32::from_be_bytes(*len);
    match usize::try_from(len) {
        Ok(len) if len <= max => Ok(len),
        _ => Err(Refusal::MessageTooLarge {
            len: len.into(),
            max: max as u64,
        }),
    }
}

/// All `len` bytes of a message and its prefix, which begin with `first`. A single frame is not copied.
async fn all(body: &mut Body, mut first: Bytes, len: usize) -> Result<Bytes, Status> {
    let too_many = || Refusal::from(WireError::Malformed("more than one message came"));
    let mut missing = len.checked_sub(first.len()).ok_or_else(too_many)?;
    let mut gathered = BytesMut::new();
    while let Some(bytes) = data(body).await? {
        missing = missing.checked_sub(bytes.len()).ok_or_else(too_many)?;
        if gathered.is_empty() {
            gathered.reserve(len);
            gathered.extend_from_slice(&std::mem::take(&mut first));
        }
        gathered.extend_from_slice(&bytes);
    }
    if missing > 0 {
        return Err(Refusal::from(WireError::Truncated).into());
    }
    if gathered.is_empty() {
        return Ok(first);
    }
    Ok(gathered.freeze())
}

/// The next bytes of a body, in the pieces in which they arrived; `None`: the body has ended. May be
/// dropped and called again.
///
/// # Errors
/// The client has gone away, or breaks the rules of HTTP/2.
pub(super) async fn data(body: &mut Body) -> Result<Option<Bytes>, Status> {
    while let Some(frame) = body.frame().await.transpose()? {
        // Trailers of a request say nothing.
        if let Ok(bytes) = frame.into_data()
            && !bytes.is_empty()
        {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Message of tonic's status INTERNAL for a message that its codec cannot decode.
const UNREADABLE: &str = "failed to decode Protobuf message";

/// The reply, or a refusal if the client's message could not be decoded.
fn blame(reply: Response<Body>) -> Response<Body> {
    // Only a reply that is an error and nothing else has a status in its head.
    let status = Status::from_header_map(reply.headers());
    let unreadable = |status: Status| {
        status.code() == Code::Internal && status.message().starts_with(UNREADABLE)
    };
    if status.is_some_and(unreadable) {
        return Status::from(Refusal::from(WireError::Malformed(FIELDS))).into_http();
    }
    reply
}
