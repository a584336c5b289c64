//! Sending a lump: the chunks of the reply are slices of the buffer the device wrote to, and the
//! socket is written from it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lumpscope_engine::{LumpData, LumpId};
use lumpscope_proto::v1;
use tokio_stream::Stream;
use tonic::Status;

use super::convert;
use super::lump_store::LumpStoreService;
use super::wire::{chunk_frames, get_many_frames, message_frame};
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::{CHUNK, Reading, Scope};
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
    match asked.range {
        None => Fetched::whole(scope, &named, id).await,
        Some(range) => {
            let length = range.length.unwrap_or(u64::MAX);
            Fetched::range(scope, &named, id, range.offset, length).await
        }
    }
}

/// A lump as read: its header, and the bytes in the engine's buffer.
pub(super) struct Fetched {
    pub(super) header: v1::GetHeader,
    pub(super) data: LumpData,
}

impl Fetched {
    /// Reads a whole lump.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) async fn whole(
        scope: &Scope,
        named: &NamedStore,
        id: LumpId,
    ) -> Result<Self, Refusal> {
        scope.lump(id, LumpOp::Get);
        let read = scope.ask((), |ctx, on_done| named.store.submit_get(ctx, id, on_done));
        let data = read.await.map_err(engine(named))?;
        let length = data.len() as u64;
        Ok(Self::new(scope, data, 0, length))
    }

    /// Reads a part of one; the disk reads only what is needed to verify it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) async fn range(
        scope: &Scope,
        named: &NamedStore,
        id: LumpId,
        offset: u64,
        length: u64,
    ) -> Result<Self, Refusal> {
        scope.lump(id, LumpOp::Get);
        let store = &named.store;
        let read = scope.ask((), |ctx, on_done| {
            store.submit_get_range(ctx, id, offset, length, on_done)
        });
        let part = read.await.map_err(engine(named))?;
        Ok(Self::new(scope, part.data, part.offset, part.total_length))
    }

    fn new(scope: &Scope, data: LumpData, offset: u64, lump_length: u64) -> Self {
        let length = data.len() as u64;
        let known = data.verified && length == lump_length;
        Self {
            header: v1::GetHeader {
                request_id: scope.id(),
                lump_length,
                offset,
                length,
                verified: data.verified,
                crc32c: known.then(|| data.crc32c()),
            },
            data,
        }
    }
}

fn engine(named: &NamedStore) -> impl FnOnce(lumpscope_engine::Error) -> Refusal {
    let store = named.name.clone();
    move |error| Refusal::Engine { store, error }
}

/// The bytes of a lump, and the watch over who takes them: both go when HTTP/2 has sent the last
/// of them, or given them up.
struct Held {
    data: LumpData,
    _reading: Arc<Reading>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// The frames of one lump: header, then chunks.
pub(super) struct LumpFrames {
    /// Position in a reply to GetMany; `None`: a reply to Get.
    index: Option<u64>,
    ready: VecDeque<Bytes>,
    rest: Bytes,
    scope: Arc<Scope>,
    reading: Arc<Reading>,
}

impl LumpFrames {
    /// Begins to send `fetched` on `connection`.
    pub(super) fn new(
        service: &LumpStoreService,
        scope: &Arc<Scope>,
        connection: Option<&Connection>,
        index: Option<u64>,
        fetched: Fetched,
    ) -> Self {
        let Fetched { header, data } = fetched;
        let first = match index {
            None => message_frame(&v1::GetResponse {
                part: Some(v1::get_response::Part::Header(header)),
            }),
            Some(index) => message_frame(&v1::GetManyResponse {
                index,
                part: Some(v1::get_many_response::Part::Header(header)),
            }),
        };
        let reading = service.readers.watch(connection, data.len() as u64);
        Self {
            index,
            ready: VecDeque::from([first]),
            rest: Bytes::from_owner(Held {
                data,
                _reading: Arc::clone(&reading),
            }),
            scope: Arc::clone(scope),
            reading,
        }
    }
}

impl Iterator for LumpFrames {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ready.is_empty() && !self.rest.is_empty() {
            let chunk = self.rest.split_to(CHUNK.min(self.rest.len()));
            let bytes = chunk.len() as u64;
            self.scope.add_bytes(bytes);
            self.reading.took(bytes);
            self.ready.extend(match self.index {
                None => chunk_frames(chunk),
                Some(index) => get_many_frames(index, chunk),
            });
        }
        self.ready.pop_front()
    }
}

impl Stream for LumpFrames {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.next().map(Ok))
    }
}
