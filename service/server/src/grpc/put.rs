//! Receiving a lump: the body goes chunk by chunk into the engine's aligned buffer, checksummed on
//! the way, and nothing is handed to the engine before the stream has ended as announced.

use std::sync::Arc;

use lumpscope_engine::{Durability, LumpBuf, LumpId, Placement};
use lumpscope_proto::v1;
use tonic::{Code, Status, Streaming};

use super::convert;
use super::lump_store::LumpStoreService;
use super::scope::Scope;
use super::status::Refusal;
use crate::stores::NamedStore;

/// A put's header, understood.
struct Header {
    store: Arc<NamedStore>,
    id: LumpId,
    length: u64,
    durability: Durability,
    placement: Placement,
}

/// Serves one put.
///
/// # Errors
/// As documented in the .proto.
pub(super) async fn put(
    service: &LumpStoreService,
    scope: &Arc<Scope>,
    mut stream: Streaming<v1::PutRequest>,
) -> Result<v1::PutResponse, Status> {
    let header = receive_header(service, scope, &mut stream).await?;
    let refuse = |error| Refusal::Engine {
        store: header.store.name.clone(),
        error,
    };
    let max = header.store.store.info().max_lump_bytes;
    if header.length > max {
        let len = header.length;
        return Err(refuse(lumpscope_engine::Error::LumpTooLarge { len, max }).into());
    }
    let memory = service.put_memory.reserve(header.length).await?;
    let mut buf = header.store.store.lump_buf(header.length).map_err(refuse)?;
    receive_body(service, &mut stream, header.length, &mut buf).await?;
    scope.add_bytes(header.length);
    let Header {
        ref store,
        id,
        durability,
        placement,
        ..
    } = header;
    let outcome = scope
        .ask(memory, |ctx, on_done| {
            store
                .store
                .submit_put(ctx, id, buf, placement, durability, on_done)
        })
        .await
        .map_err(|error| Refusal::Engine {
            store: store.name.clone(),
            error,
        })?;
    Ok(v1::PutResponse {
        request_id: scope.id(),
        created: outcome.created,
        durability: convert::durability_reply(outcome.durability),
        ..Default::default()
    })
}

async fn receive_header(
    service: &LumpStoreService,
    scope: &Scope,
    stream: &mut Streaming<v1::PutRequest>,
) -> Result<Header, Status> {
    let announced = 0;
    let first = next(service, stream, announced, 0).await?;
    let Some(v1::put_request::Part::Header(header)) = first.and_then(|message| message.part) else {
        return Err(Refusal::HeaderMissing.into());
    };
    let store = service.store(scope, &header.store)?;
    Ok(Header {
        store,
        id: convert::lump_id("id", header.id.as_ref())?,
        length: header.length,
        durability: convert::durability(header.durability, service.durability)?,
        placement: convert::placement(header.placement)?,
    })
}

async fn receive_body(
    service: &LumpStoreService,
    stream: &mut Streaming<v1::PutRequest>,
    announced: u64,
    buf: &mut LumpBuf,
) -> Result<(), Status> {
    loop {
        let left = buf.remaining();
        let got = announced - u64::try_from(left).unwrap_or(announced);
        let Some(message) = next(service, stream, announced, got).await? else {
            if left > 0 {
                return Err(Refusal::StreamShort { announced, got }.into());
            }
            return Ok(());
        };
        match message.part {
            Some(v1::put_request::Part::Chunk(chunk)) if chunk.len() <= left => {
                buf.extend(&chunk)
                    .map_err(|_| Refusal::StreamLong { announced })?;
            }
            Some(v1::put_request::Part::Chunk(_)) => {
                return Err(Refusal::StreamLong { announced }.into());
            }
            Some(v1::put_request::Part::Header(_)) => return Err(Refusal::SecondHeader.into()),
            None => return Err(Refusal::EmptyMessage.into()),
        }
    }
}

/// The next message of a put, within the time a client may be silent.
async fn next(
    service: &LumpStoreService,
    stream: &mut Streaming<v1::PutRequest>,
    announced: u64,
    got: u64,
) -> Result<Option<v1::PutRequest>, Status> {
    let silence = service.body_timeout;
    match tokio::time::timeout(silence, stream.message()).await {
        Ok(Ok(message)) => Ok(message),
        Ok(Err(status)) if status.code() == Code::OutOfRange => Err(Status::out_of_range(format!(
            "a message of the put is too large: send chunks of at most {} bytes, any number of \
             them ({})",
            service.max_message - CHUNK_OVERHEAD,
            status.message()
        ))),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Refusal::StreamStalled {
            announced,
            got,
            silence,
        }
        .into()),
    }
}

/// Most bytes a chunk's tag and length take in front of it.
const CHUNK_OVERHEAD: usize = 16;
