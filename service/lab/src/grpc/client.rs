//! The client, the same for the service and its peer.

use anyhow::Context as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::{
    GetRequest, LumpId, PutHeader, PutRequest, get_response, lump_id, put_request,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Several of the largest lumps are under way on a connection without waiting for the window.
const WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;
/// Size of one message of a put.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
const MESSAGE_LIMIT: usize = 16 << 20;
/// Longest that one call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Name of the store in requests.
pub(crate) const STORE: &str = "bench";

pub(crate) type Client = LumpStoreClient<Channel>;

/// A connection of its own.
pub(crate) async fn connect(who: &'static str, url: &str) -> anyhow::Result<Client> {
    let failed = || format!("{who} cannot be connected to");
    let channel = Endpoint::from_shared(url.to_owned())
        .with_context(failed)?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .tcp_nodelay(true)
        .timeout(PATIENCE)
        .connect_timeout(PATIENCE)
        .connect()
        .await
        .with_context(failed)?;
    Ok(LumpStoreClient::new(channel)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT))
}

pub(crate) fn lump_id(id: u64) -> LumpId {
    let raw = Bytes::copy_from_slice(&u128::from(id).to_be_bytes());
    LumpId {
        form: Some(lump_id::Form::Raw(raw)),
    }
}

/// Header of a put.
pub(crate) fn header(id: u64, length: usize) -> PutRequest {
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
pub(crate) fn chunk(bytes: Bytes) -> PutRequest {
    PutRequest {
        part: Some(put_request::Part::Chunk(bytes)),
    }
}

/// Puts one lump and says how long that took.
pub(crate) async fn put(client: &mut Client, id: u64, body: Bytes) -> Result<Duration, Status> {
    let mut messages = vec![header(id, body.len())];
    let mut rest = body;
    while !rest.is_empty() {
        messages.push(chunk(rest.split_to(rest.len().min(CHUNK_BYTES))));
    }
    let begin = Instant::now();
    client.put(tokio_stream::iter(messages)).await?;
    Ok(begin.elapsed())
}

/// Gets one lump: how long that took until the last byte, and the pieces of it.
pub(crate) async fn get(client: &mut Client, id: u64) -> Result<(Duration, Vec<Bytes>), Status> {
    let request = GetRequest {
        store: STORE.to_owned(),
        id: Some(lump_id(id)),
        ..GetRequest::default()
    };
    let mut pieces = Vec::with_capacity(8);
    let begin = Instant::now();
    let mut reply = client.get(request).await?.into_inner();
    while let Some(message) = reply.message().await? {
        if let Some(get_response::Part::Chunk(piece)) = message.part {
            pieces.push(piece);
        }
    }
    Ok((begin.elapsed(), pieces))
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
