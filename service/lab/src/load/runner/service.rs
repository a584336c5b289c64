//! The way to a store through gRPC.

use std::time::Instant;

use bytes::Bytes;
use lumpscope_proto::v1::{
    self as pb, DeleteRangeRequest, DeleteRequest, ListRequest, Placement, PutHeader,
};
use tonic::Status;

use super::door::{Answer, Failure, Region};
use super::{Durability, Mismatch, Refusal, RunError};
use crate::load::grpc::{self, Client, lump_id};

/// Ids a page of a list: the most there can be.
const PAGE: u32 = 10_000;

pub(super) struct ServiceDoor {
    grpc: Client,
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
        let failed = |error: lumpscope_client::Error| RunError::Connect {
            server: server.to_owned(),
            reason: chain(&error),
        };
        let grpc = grpc::open(server).await.map_err(failed)?;
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
        let (latency, reply) = grpc::put_with(&mut self.grpc, header, body).await?;
        Ok(Answer {
            latency,
            value: Some(reply.created),
        })
    }

    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        let (latency, headed, chunks) = grpc::get_of(&mut self.grpc, &self.store, id).await?;
        if !headed {
            return Err(Mismatch::NoHeader.into());
        }
        Ok(Answer {
            latency,
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
