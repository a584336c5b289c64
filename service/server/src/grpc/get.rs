//! Sending a lump: the chunks of the reply are slices of the buffers the device wrote to, and the
//! socket is written from them. A large lump is read piece by piece, the next piece while one is
//! sent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_engine::{LumpData, LumpId, Rest};
use lumpscope_proto::{frame, v1};
use tokio_stream::Stream;
use tonic::Status;

use super::convert;
use super::lump_store::LumpStoreService;
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::{CHUNK, Reading, Scope, with_owner};
use crate::stores::NamedStore;
use crate::usdt::LumpOp;

/// Reads what a get asks for.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn get(
    service: &LumpStoreService,
    scope: &Scope,
    asked: &v1::GetRequest,
) -> Result<Fetched, Refusal> {
    scope.wait_as(asked.options.as_ref());
    let named = service.store(scope, &asked.store)?;
    let id = convert::lump_id("id", asked.id.as_ref())?;
    let range = asked.range.unwrap_or_default();
    let length = range.length.unwrap_or(u64::MAX);
    Fetched::open(scope, &named, id, (range.offset, length)).await
}

/// A lump in one message of at most so many bytes is copied behind its header: one frame costs less
/// than two, and it holds no memory for gets while its client takes it.
const COPIED: u64 = 16 << 10;

/// The bytes of a whole lump.
pub(super) const WHOLE: (u64, u64) = (0, u64::MAX);

/// A lump of which the beginning has been read: its header, and the bytes in the engine's buffer.
pub(super) struct Fetched {
    pub(super) header: v1::GetHeader,
    pub(super) first: LumpData,
    rest: Option<Rest>,
    store: String,
}

impl Fetched {
    /// Opens a lump to read so many bytes from an offset on; the disk reads only what is needed to
    /// verify them.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) async fn open(
        scope: &Scope,
        named: &NamedStore,
        id: LumpId,
        bytes: (u64, u64),
    ) -> Result<Self, Refusal> {
        scope.lump(id, LumpOp::Get);
        let read = scope.ask(named, (), |store, ctx, on_done| {
            store.submit_open(ctx, id, bytes, on_done)
        });
        let opened = read.await?;
        Ok(Self {
            header: v1::GetHeader {
                request_id: scope.id(),
                lump_length: opened.total_length,
                offset: opened.offset,
                length: opened.length,
                verified: opened.first.verified,
                crc32c: opened.crc32c,
            },
            first: opened.first,
            rest: opened.rest,
            store: named.name.clone(),
        })
    }

    /// Reads a few bytes at once.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) async fn read(
        scope: &Scope,
        named: &NamedStore,
        id: LumpId,
        (offset, length): (u64, u64),
    ) -> Result<Self, Refusal> {
        scope.lump(id, LumpOp::Get);
        let read = scope.ask(named, (), |store, ctx, on_done| {
            store.submit_get_range(ctx, id, offset, length, on_done)
        });
        let part = read.await?;
        let length = part.data.len() as u64;
        let known = part.data.verified && length == part.total_length;
        let header = v1::GetHeader {
            request_id: scope.id(),
            lump_length: part.total_length,
            offset: part.offset,
            length,
            verified: part.data.verified,
            crc32c: known.then(|| part.data.crc32c()),
        };
        Ok(Self {
            header,
            first: part.data,
            rest: None,
            store: named.name.clone(),
        })
    }
}

/// The reply in which a lump is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// That of a Get: header and chunks, each a message.
    Get,
    /// That of a GetMany, with the lump's position in it.
    Many(u64),
    /// That of a GetSmall: header and bytes in one message.
    Small,
}

/// The frames of one lump: header, then chunks.
pub(super) struct LumpFrames {
    form: ReplyShape,
    ready: VecDeque<Bytes>,
    /// Of the piece at hand.
    bytes: Bytes,
    rest: Option<Rest>,
    store: String,
    /// Since when the transport waits for a piece.
    since_ns: Option<u64>,
    scope: Arc<Scope>,
    reading: Arc<Reading>,
}

impl LumpFrames {
    /// Begins to send `fetched` on `connection`.
    pub(super) fn new(
        service: &LumpStoreService,
        scope: &Arc<Scope>,
        connection: Option<&Connection>,
        form: ReplyShape,
        fetched: Fetched,
    ) -> Self {
        let Fetched {
            header,
            first: data,
            rest,
            store,
        } = fetched;
        let length = header.length;
        let first = match form {
            ReplyShape::Small => frame::small_head(header, data.len()),
            ReplyShape::Get => frame::message(&v1::GetResponse {
                part: Some(v1::get_response::Part::Header(header)),
            }),
            ReplyShape::Many(index) => frame::message(&v1::GetManyResponse {
                index,
                part: Some(v1::get_many_response::Part::Header(header)),
            }),
        };
        let reading = service.readers.watch(connection, length);
        let mut frames = Self {
            form,
            ready: VecDeque::from([first]),
            bytes: Bytes::new(),
            rest,
            store,
            since_ns: None,
            scope: Arc::clone(scope),
            reading,
        };
        frames.take(data);
        if form == ReplyShape::Small && length <= COPIED {
            frames.join();
        }
        frames
    }

    /// Makes all that is at hand one frame.
    fn join(&mut self) {
        self.split();
        let all: Vec<Bytes> = self.ready.drain(..).collect();
        self.ready.push_back(all.concat().into());
    }

    /// A piece is to be sent, and its client is watched until it is.
    fn take(&mut self, data: LumpData) {
        self.bytes = with_owner(data, Arc::clone(&self.reading));
    }

    /// True: no more is to be read.
    pub(super) fn is_read(&self) -> bool {
        self.rest.as_ref().is_none_or(Rest::is_read)
    }

    /// The next piece; `None`: that was all. The request waits for the engine only while this is
    /// pending: what is read while another piece is sent costs it nothing.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<LumpData, Refusal>>> {
        let Some(rest) = &mut self.rest else {
            return Poll::Ready(None);
        };
        let Poll::Ready(piece) = rest.poll_next(context) else {
            self.since_ns.get_or_insert_with(monotonic_ns);
            return Poll::Pending;
        };
        Poll::Ready(piece.map(|(result, times)| {
            if let Some(since_ns) = self.since_ns.take() {
                let waited_ns = monotonic_ns().saturating_sub(since_ns);
                self.scope.waited(times, waited_ns);
            }
            result.map_err(|error| Refusal::Engine {
                store: self.store.clone(),
                error,
            })
        }))
    }

    /// Makes frames of the next chunk of the piece at hand.
    fn split(&mut self) {
        let chunk = self.bytes.split_to(CHUNK.min(self.bytes.len()));
        let bytes = chunk.len() as u64;
        self.scope.add_bytes(bytes);
        self.reading.took(bytes);
        match self.form {
            ReplyShape::Get => self.ready.extend(frame::chunk(chunk)),
            ReplyShape::Many(index) => self.ready.extend(frame::many_chunk(index, chunk)),
            ReplyShape::Small => self.ready.push_back(chunk),
        }
    }

    /// The next frame of the piece at hand.
    fn next_frame(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() && !self.bytes.is_empty() {
            self.split();
        }
        self.ready.pop_front()
    }

    /// The next frame; a piece that cannot be read is the end.
    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Refusal>>> {
        loop {
            if let Some(frame) = self.next_frame() {
                return Poll::Ready(Some(Ok(frame)));
            }
            let Poll::Ready(piece) = self.poll_piece(context) else {
                self.reading.waits();
                return Poll::Pending;
            };
            self.reading.goes_on();
            match piece {
                Some(Ok(data)) => self.take(data),
                Some(Err(refusal)) => {
                    self.rest = None;
                    return Poll::Ready(Some(Err(refusal)));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Stream for LumpFrames {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frame = ready!(self.poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map_err(Status::from)))
    }
}
