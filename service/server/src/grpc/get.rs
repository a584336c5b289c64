//! Sending a lump: the reply's chunks are slices of the buffer the device wrote to.

use std::sync::Arc;

use bytes::Bytes;
use lumpscope_engine::{LumpId, LumpRange};
use lumpscope_proto::v1;
use tonic::Status;

use super::convert;
use super::lump_store::LumpStoreService;
use super::memory::Reservation;
use super::scope::Scope;
use super::status::Refusal;
use crate::stores::NamedStore;

/// Bytes of a chunk: with its framing it fits into one HTTP/2 frame of the size the service asks
/// for, and every gRPC library accepts it (the usual limit is 4 MiB).
pub const CHUNK: usize = (1 << 20) - 64;

/// The reply of a get.
pub type GetStream = tokio_stream::Iter<Parts>;

/// Serves one get.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn get(
    service: &LumpStoreService,
    scope: &Arc<Scope>,
    request: v1::GetRequest,
) -> Result<GetStream, Status> {
    let named = &service.store(scope, &request.store)?;
    let id = convert::lump_id("id", request.id.as_ref())?;
    let refuse = |error| Refusal::Engine {
        store: named.name.clone(),
        error,
    };
    let size = stored_bytes(scope, named, id).await?;
    let memory = service.get_memory.reserve(size).await?;
    let data = scope
        .ask((), |ctx, on_done| named.store.submit_get(ctx, id, on_done))
        .await
        .map_err(refuse)?;
    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
    let (from, to) = window(request.range, length)?;
    let header = v1::GetHeader {
        request_id: scope.id(),
        lump_length: length,
        offset: from,
        length: to - from,
        verified: data.verified,
        ..Default::default()
    };
    let cut = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    let whole = Bytes::from_owner(Body {
        data: data.into_bytes_owner(),
        _memory: memory,
    });
    Ok(tokio_stream::iter(Parts {
        header: Some(header),
        rest: whole.slice(cut(from)..cut(to)),
        scope: Arc::clone(scope),
    }))
}

/// Disk space of the lump, which bounds the memory its bytes will need; 0 when there is none.
/// The index knows it, the exact size only the disk.
async fn stored_bytes(scope: &Scope, named: &NamedStore, id: LumpId) -> Result<u64, Refusal> {
    let only = LumpRange {
        start: id,
        end: id.0.checked_add(1).map(LumpId),
    };
    scope
        .ask((), |ctx, on_done| {
            named.store.submit_usage(ctx, only, on_done)
        })
        .await
        .map(|usage| usage.stored_bytes)
        .map_err(|error| Refusal::Engine {
            store: named.name.clone(),
            error,
        })
}

/// First byte and end of what is asked for, inside a lump of `length` bytes.
fn window(range: Option<v1::ByteRange>, length: u64) -> Result<(u64, u64), Refusal> {
    let Some(range) = range else {
        return Ok((0, length));
    };
    if range.offset > length {
        return Err(Refusal::RangeStart {
            offset: range.offset,
            length,
        });
    }
    let wanted = range.length.unwrap_or(u64::MAX);
    Ok((
        range.offset,
        range.offset.saturating_add(wanted).min(length),
    ))
}

/// The bytes of a lump with the memory reserved for them: both go when the last slice goes.
struct Body<T> {
    data: T,
    _memory: Reservation,
}

impl<T: AsRef<[u8]>> AsRef<[u8]> for Body<T> {
    fn as_ref(&self) -> &[u8] {
        self.data.as_ref()
    }
}

/// Header, then chunks.
pub struct Parts {
    header: Option<v1::GetHeader>,
    rest: Bytes,
    scope: Arc<Scope>,
}

impl Iterator for Parts {
    type Item = Result<v1::GetResponse, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        use v1::get_response::Part;
        let part = match self.header.take() {
            Some(header) => Part::Header(header),
            None if self.rest.is_empty() => return None,
            None => {
                let chunk = self.rest.split_to(CHUNK.min(self.rest.len()));
                self.scope
                    .add_bytes(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
                Part::Chunk(chunk)
            }
        };
        Some(Ok(v1::GetResponse { part: Some(part) }))
    }
}
