//! The way to a store through gRPC.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_proto::v1::{
    self as pb, DeleteRangeRequest, DeleteRequest, GetRequest, ListRequest, LumpId, Placement,
    PutHeader, PutRequest, get_response, lump_id, put_request,
};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::door::{Answer, Failure, Region};
use super::{Durability, Mismatch, Refusal, RunError};

/// A whole lump of the usual sizes is under way without waiting for window updates.
const WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES: u32 = 1 << 20;
/// Size of one message of a put.
const CHUNK_BYTES: usize = 1 << 20;
const MESSAGE_LIMIT: usize = 16 << 20;
/// Ids a page of a list: the most there can be.
const PAGE: u32 = 10_000;

pub(super) struct ServiceDoor {
    grpc: LumpStoreClient<Channel>,
    store: String,
    durability: pb::Durability,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Refused(Refusal::Service(Box::new(status)))
    }
}

impl ServiceDoor {
    /// A connection of its own.
    pub(super) async fn connect(
        server: &str,
        store: &str,
        durability: Option<Durability>,
    ) -> Result<ServiceDoor, RunError> {
        let failed = |error: tonic::transport::Error| RunError::Connect {
            server: server.to_owned(),
            reason: chain(&error),
        };
        let channel = Endpoint::from_shared(server.to_owned())
            .map_err(failed)?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .tcp_nodelay(true)
            .connect_timeout(Duration::from_secs(10))
            .connect()
            .await
            .map_err(failed)?;
        let grpc = LumpStoreClient::new(channel)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        Ok(ServiceDoor {
            grpc,
            store: store.to_owned(),
            durability: match durability {
                None => pb::Durability::Unspecified,
                Some(Durability::Synced) => pb::Durability::Synced,
                Some(Durability::Journaled) => pb::Durability::Journaled,
            },
        })
    }

    pub(super) async fn put(
        &mut self,
        id: u64,
        body: Bytes,
        region: Region,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let placement = match region {
            Region::Data => Placement::Data,
            Region::Journal => Placement::Embedded,
        };
        let header = PutHeader {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            length: u64::try_from(body.len()).unwrap_or(u64::MAX),
            placement: placement.into(),
            durability: self.durability.into(),
            ..PutHeader::default()
        };
        let mut messages = vec![PutRequest {
            part: Some(put_request::Part::Header(header)),
        }];
        let mut rest = body;
        while !rest.is_empty() {
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            messages.push(PutRequest {
                part: Some(put_request::Part::Chunk(chunk)),
            });
        }
        let begin = Instant::now();
        let reply = self.grpc.put(tokio_stream::iter(messages)).await?;
        Ok(Answer {
            latency: begin.elapsed(),
            value: Some(reply.into_inner().created),
        })
    }

    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        let request = GetRequest {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            range: None,
            ..Default::default()
        };
        let mut chunks: Vec<Bytes> = Vec::new();
        let begin = Instant::now();
        let mut reply = self.grpc.get(request).await?.into_inner();
        let first = reply.message().await?.and_then(|message| message.part);
        let Some(get_response::Part::Header(_)) = first else {
            return Err(Mismatch::NoHeader.into());
        };
        while let Some(message) = reply.message().await? {
            if let Some(get_response::Part::Chunk(chunk)) = message.part {
                chunks.push(chunk);
            }
        }
        Ok(Answer {
            latency: begin.elapsed(),
            value: chunks,
        })
    }

    pub(super) async fn delete(&mut self, id: u64) -> Result<Answer<Option<bool>>, Failure> {
        let request = DeleteRequest {
            store: self.store.clone(),
            id: Some(lump_id(id)),
            durability: self.durability.into(),
            ..DeleteRequest::default()
        };
        let begin = Instant::now();
        let reply = self.grpc.delete(request).await?;
        Ok(Answer {
            latency: begin.elapsed(),
            value: Some(reply.into_inner().existed),
        })
    }

    pub(super) async fn delete_range(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Answer<u64>, Failure> {
        let request = DeleteRangeRequest {
            store: self.store.clone(),
            start: Some(lump_id(start)),
            end: Some(lump_id(end)),
            durability: self.durability.into(),
            ..DeleteRangeRequest::default()
        };
        let begin = Instant::now();
        let reply = self.grpc.delete_range(request).await?;
        Ok(Answer {
            latency: begin.elapsed(),
            value: reply.into_inner().deleted,
        })
    }

    pub(super) async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        let mut ids = Vec::new();
        let mut page_token = Bytes::new();
        loop {
            let request = ListRequest {
                store: self.store.clone(),
                page_size: PAGE,
                page_token,
                ..ListRequest::default()
            };
            let page = self.grpc.list(request).await?.into_inner();
            for id in &page.ids {
                let raw = <[u8; 16]>::try_from(&id[..])
                    .map_err(|_| Status::data_loss("the service listed an id that is none"))?;
                ids.push(u128::from_be_bytes(raw));
            }
            if page.next_page_token.is_empty() {
                return Ok(ids);
            }
            page_token = page.next_page_token;
        }
    }
}

fn lump_id(id: u64) -> LumpId {
    let raw = Bytes::copy_from_slice(&u128::from(id).to_be_bytes());
    LumpId {
        form: Some(lump_id::Form::Raw(raw)),
    }
}

/// tonic hides the reason behind "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
