//! Many lumps through one stream.
//!
//! A PutMany receives one body while those before it are written. A GetMany opens one lump while the
//! last piece of the one before is sent. Its reads are asked for one after the other: if later ones
//! could overtake, streams could hold all memory for gets with lumps that none of them may send yet,
//! and wait for each other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lumpscope_engine::{Error, LumpId, Store};
use lumpscope_proto::frame::Event;
use lumpscope_proto::{frame, v1};
use tokio::sync::mpsc::error::SendTimeoutError;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;

use super::convert;
use super::get::{Fetched, LumpFrames, ReplyShape, WHOLE};
use super::lump_store::LumpStoreService;
use super::put::{BodyBuffer, Incoming, Wanted, decode_header};
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::Scope;
use crate::stores::NamedStore;

/// Lumps of one PutMany that are written at a time.
const PUTS_IN_FLIGHT: u32 = 16;
/// Replies of a PutMany that wait for the client.
const REPLIES: usize = 64;

/// Result for one lump, or for the stream.
type StatusResult<T> = Result<T, Status>;

/// Serves a PutMany: its replies, each as a frame. The stream is read by a task that ends with what
/// is returned.
pub(super) fn put_many(
    service: &LumpStoreService,
    scope: &Arc<Scope>,
    connection: Option<Connection>,
    body: Body,
) -> impl Stream<Item = StatusResult<Bytes>> + Unpin + Send + 'static {
    let (replies, receiver) = mpsc::channel(REPLIES);
    let puts = Puts {
        service: service.clone(),
        scope: Arc::clone(scope),
        connection,
        replies,
        in_flight: Arc::new(Semaphore::new(PUTS_IN_FLIGHT as usize)),
    };
    let incoming = Incoming::new(service, body);
    let task = AbortOnDropHandle::new(tokio::spawn(puts.run(incoming)));
    ReceiverStream::new(receiver).map(move |reply| {
        let _ends_with_the_replies = &task;
        reply
    })
}

/// One stream of puts.
#[derive(Clone)]
struct Puts {
    service: LumpStoreService,
    scope: Arc<Scope>,
    connection: Option<Connection>,
    replies: mpsc::Sender<StatusResult<Bytes>>,
    in_flight: Arc<Semaphore>,
}

/// A lump of the stream whose body comes in.
enum Receiving {
    /// It is going to be stored.
    Good(Box<Accepted>),
    /// It was refused; its body is skipped.
    Refused,
}

/// A lump that is going to be stored.
struct Accepted {
    wanted: Wanted,
    room: BodyBuffer,
}

impl Puts {
    async fn run(self, mut incoming: Incoming) {
        let received = self.receive(&mut incoming).await;
        // All that was received is answered before the stream ends.
        let _ = self.in_flight.acquire_many(PUTS_IN_FLIGHT).await;
        if let Err(status) = received {
            self.reply(Err(status)).await;
        }
    }

    /// Receives lump after lump.
    async fn receive(&self, incoming: &mut Incoming) -> Result<(), Status> {
        let mut begun: u64 = 0;
        let mut current = None;
        while let Some(event) = incoming.next().await? {
            match event {
                Event::Header(header) if current.is_none() => {
                    current = Some(self.begin(incoming, begun, header).await?);
                    begun += 1;
                }
                // The lump before is not complete.
                Event::Header(_) => return Err(incoming.short().into()),
                Event::Chunk(bytes) => match &mut current {
                    Some(Receiving::Good(lump)) => {
                        let Accepted { wanted, room } = lump.as_mut();
                        match incoming.fill(wanted, room, &bytes).await {
                            // Its store does not take it; those behind it may be well.
                            Err(refusal @ Refusal::Engine { .. }) => {
                                self.reply(Ok(put_reply(begun - 1, Err(refusal)))).await;
                                current = Some(Receiving::Refused);
                            }
                            filled => filled?,
                        }
                    }
                    Some(Receiving::Refused) => incoming.count(bytes.len())?,
                    None if begun == 0 => return Err(Refusal::HeaderMissing.into()),
                    None => return Err(incoming.long().into()),
                },
                Event::End { part: true } if begun == 0 => {
                    return Err(Refusal::HeaderMissing.into());
                }
                Event::End { part: true } => {}
                Event::End { part: false } => return Err(Refusal::EmptyMessage.into()),
            }
            if incoming.missing() == 0
                && let Some(Receiving::Good(lump)) = current.take()
            {
                self.store(begun - 1, *lump).await?;
            }
        }
        if current.is_some() {
            return Err(incoming.short().into());
        }
        Ok(())
    }

    /// A header has come. A lump that its store cannot take is answered, and its body skipped.
    async fn begin(
        &self,
        incoming: &mut Incoming,
        index: u64,
        header: Bytes,
    ) -> Result<Receiving, Status> {
        let header = decode_header(header)?;
        let length = header.length;
        let wanted = match Wanted::of(&self.service, &self.scope, header) {
            Ok(wanted) => wanted,
            Err(refusal) => return self.refuse(incoming, index, length, refusal).await,
        };
        match wanted.room(&self.service, &self.scope).await {
            Ok(room) => {
                incoming.begin(length);
                Ok(Receiving::Good(Box::new(Accepted { wanted, room })))
            }
            Err(refusal) => self.refuse(incoming, index, length, refusal).await,
        }
    }

    async fn refuse(
        &self,
        incoming: &mut Incoming,
        index: u64,
        length: u64,
        refusal: Refusal,
    ) -> Result<Receiving, Status> {
        self.reply(Ok(put_reply(index, Err(refusal)))).await;
        incoming.begin(length);
        Ok(Receiving::Refused)
    }

    /// Stores a lump beside the stream.
    async fn store(&self, index: u64, lump: Accepted) -> Result<(), Status> {
        let permit = Arc::clone(&self.in_flight).acquire_owned().await;
        let permit = permit.map_err(|_| Refusal::ShuttingDown)?;
        let puts = self.clone();
        tokio::spawn(async move {
            let stored = lump.wanted.store(&puts.scope, lump.room).await;
            puts.reply(Ok(put_reply(index, stored))).await;
            drop(permit);
        });
        Ok(())
    }

    /// Answers. A client that does not read its answers is cut off.
    async fn reply(&self, reply: StatusResult<Bytes>) {
        let patience = self.service.body_timeout;
        match self.replies.send_timeout(reply, patience).await {
            // Closed: the client has gone away.
            Ok(()) | Err(SendTimeoutError::Closed(_)) => {}
            Err(SendTimeoutError::Timeout(_)) => {
                if let Some(connection) = &self.connection {
                    connection.close("a client does not read the answers to its puts");
                }
            }
        }
    }
}

fn put_reply(index: u64, stored: Result<v1::PutResponse, Refusal>) -> Bytes {
    use v1::put_many_response::Outcome;
    frame::message(&v1::PutManyResponse {
        index,
        outcome: Some(match stored {
            Ok(stored) => Outcome::Stored(stored),
            Err(refusal) => Outcome::Failed(failure(&refusal)),
        }),
    })
}

fn failure(refusal: &Refusal) -> v1::LumpFailure {
    v1::LumpFailure {
        code: refusal.code().into(),
        message: refusal.to_string(),
        reason: refusal.reason().to_owned(),
    }
}

/// Serves a GetMany: its reply, frame by frame.
///
/// # Errors
/// The request as a whole is malformed, too large, or not allowed.
pub(super) fn get_many(
    service: &LumpStoreService,
    scope: &Arc<Scope>,
    connection: Option<Connection>,
    asked: &v1::GetManyRequest,
) -> Result<impl Stream<Item = StatusResult<Bytes>> + Unpin + Send + 'static, Refusal> {
    scope.wait_as(asked.options.as_ref());
    let named = service.store(scope, &asked.store)?;
    let (got, max) = (asked.ids.len(), Store::MAX_DELETE_IDS);
    if got > max {
        return Err(named.refusal(Error::TooManyIds { got, max }));
    }
    let ids = convert::lump_ids("ids", &asked.ids)?;
    Ok(Gets {
        service: service.clone(),
        scope: Arc::clone(scope),
        connection,
        named,
        ids: ids.into_iter(),
        ahead: None,
        index: 0,
        current: None,
    })
}

/// The reply of a GetMany.
struct Gets {
    service: LumpStoreService,
    scope: Arc<Scope>,
    connection: Option<Connection>,
    named: Arc<NamedStore>,
    ids: std::vec::IntoIter<LumpId>,
    /// The lump that comes next.
    ahead: Option<Ahead>,
    index: u64,
    current: Option<LumpFrames>,
}

/// A lump that is being opened, or has been.
enum Ahead {
    Opening(Opening),
    Open(Box<Result<Fetched, Refusal>>),
}

type Opening = Pin<Box<dyn Future<Output = Result<Fetched, Refusal>> + Send>>;

impl Gets {
    /// Has the next lump opened. Ready: it is, or there is none.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.ahead.is_none() {
            let Some(id) = self.ids.next() else {
                return Poll::Ready(());
            };
            let (scope, named) = (Arc::clone(&self.scope), Arc::clone(&self.named));
            let opening = async move { Fetched::open(&scope, &named, id, WHOLE).await };
            self.ahead = Some(Ahead::Opening(Box::pin(opening)));
        }
        if let Some(Ahead::Opening(opening)) = &mut self.ahead {
            let opened = ready!(opening.as_mut().poll(context));
            self.ahead = Some(Ahead::Open(Box::new(opened)));
        }
        Poll::Ready(())
    }

    fn failed(index: u64, refusal: &Refusal) -> Bytes {
        frame::message(&v1::GetManyResponse {
            index,
            part: Some(v1::get_many_response::Part::Failed(failure(refusal))),
        })
    }
}

impl Stream for Gets {
    type Item = StatusResult<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(current) = &mut self.current {
                let frame = current.poll_frame(context);
                // All memory that this one needs it has: now the next one may have some.
                if current.is_read() {
                    let _ = self.poll_ahead(context);
                }
                match ready!(frame) {
                    Some(Ok(frame)) => return Poll::Ready(Some(Ok(frame))),
                    // Its header has been sent, and perhaps some of it.
                    Some(Err(refusal)) => {
                        self.current = None;
                        let index = self.index - 1;
                        return Poll::Ready(Some(Ok(Self::failed(index, &refusal))));
                    }
                    None => self.current = None,
                }
            }
            ready!(self.poll_ahead(context));
            let Some(Ahead::Open(fetched)) = self.ahead.take() else {
                return Poll::Ready(None);
            };
            let index = self.index;
            self.index += 1;
            match *fetched {
                Ok(fetched) => {
                    let (service, scope) = (&self.service, &self.scope);
                    let connection = self.connection.as_ref();
                    let frames = LumpFrames::new(
                        service,
                        scope,
                        connection,
                        ReplyShape::Many(index),
                        fetched,
                    );
                    self.current = Some(frames);
                }
                Err(refusal) => return Poll::Ready(Some(Ok(Self::failed(index, &refusal)))),
            }
        }
    }
}
