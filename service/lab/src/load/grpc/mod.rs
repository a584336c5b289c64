//! Calls through gRPC, on connections as `lumpscope-client` makes them.
//!
//! The generated client makes the calls here, because the service is compared with a peer that
//! knows no checksums: the measured time begins with the first message and ends with the last byte.
//! [`super::runner`] calls through [`lumpscope_client::Client`] itself, as users do.

pub(crate) mod content;
mod timed;

use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use lumpscope_client::{Connections, Options, Retry};
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::{
    GetRequest, LumpId, PutHeader, PutRequest, get_response, lump_id, put_request,
};
use tokio::runtime::Runtime;
use tonic::Status;

use crate::failure::cannot_do;
use crate::process::STORE;
pub(crate) use timed::{Call, Clients, Length, Outcome, Room, Setting};

/// Bytes of one message of a put.
const CHUNK_BYTES: usize = 1 << 20;
/// Longest time of one call.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Client = LumpStoreClient<Connections>;

/// A connection of its own; `who` is named in the error.
pub(crate) async fn connect(who: &'static str, url: &str) -> anyhow::Result<Client> {
    let options = Options {
        retry: Retry::never(),
        connections: 1,
        ..Options::new(url)
    };
    let opened = lumpscope_client::Client::connect(options).await;
    let opened = opened.map(|client| client.lump_store());
    opened.with_context(|| format!("{who} cannot be connected to"))
}

pub(crate) fn lump_id(id: u64) -> LumpId {
    let raw = Bytes::copy_from_slice(&u128::from(id).to_be_bytes());
    LumpId {
        form: Some(lump_id::Form::Raw(raw)),
    }
}

fn header(id: u64, length: usize) -> PutRequest {
    let header = PutHeader {
        store: STORE.to_owned(),
        id: Some(lump_id(id)),
        length: length as u64,
        ..PutHeader::default()
    };
    PutRequest {
        part: Some(put_request::Part::Header(header)),
    }
}

/// A part of the body of a put.
fn chunk(bytes: Bytes) -> PutRequest {
    PutRequest {
        part: Some(put_request::Part::Chunk(bytes)),
    }
}

/// Puts one lump into [`STORE`]: the time from the first message to the answer.
pub(crate) async fn put(client: &mut Client, id: u64, body: Bytes) -> Result<Duration, Status> {
    let mut messages = vec![header(id, body.len())];
    let mut rest = body;
    while !rest.is_empty() {
        messages.push(chunk(rest.split_to(rest.len().min(CHUNK_BYTES))));
    }
    let begin = Instant::now();
    in_time(client.put(tokio_stream::iter(messages))).await?;
    Ok(begin.elapsed())
}

/// Gets one lump of [`STORE`]: the time until the last byte, and the chunks.
pub(crate) async fn get(client: &mut Client, id: u64) -> Result<(Duration, Vec<Bytes>), Status> {
    let request = GetRequest {
        store: STORE.to_owned(),
        id: Some(lump_id(id)),
        ..GetRequest::default()
    };
    let mut chunks = Vec::with_capacity(8);
    let begin = Instant::now();
    let read = async {
        let mut reply = client.get(request).await?.into_inner();
        while let Some(message) = reply.message().await? {
            if let Some(get_response::Part::Chunk(chunk)) = message.part {
                chunks.push(chunk);
            }
        }
        Ok(())
    };
    in_time(read).await?;
    Ok((begin.elapsed(), chunks))
}

async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late = |_| Status::deadline_exceeded(format!("no answer within {} s", PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, call).await.map_err(late)?
}

/// A runtime for calls, with a thread for each processor.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(cannot_do("start the runtime"))
}

/// True: the pieces are exactly `body`.
pub(crate) fn same(pieces: &[Bytes], body: &[u8]) -> bool {
    let mut rest = body;
    for piece in pieces {
        let Some((front, back)) = rest.split_at_checked(piece.len()) else {
            return false;
        };
        if front != piece {
            return false;
        }
        rest = back;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_compared_to_the_last_byte() {
        let pieces = |parts: &[&'static [u8]]| -> Vec<Bytes> {
            parts.iter().map(|part| Bytes::from_static(part)).collect()
        };
        assert!(same(&pieces(&[b"ab", b"c"]), b"abc"));
        for wrong in [&pieces(&[b"ab"]), &pieces(&[b"ab", b"cd"])] {
            assert!(!same(wrong, b"abc"));
        }
        assert!(!same(&pieces(&[b"ab", b"d"]), b"abc"));
    }
}
