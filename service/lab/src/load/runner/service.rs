//! The way to a store through `lumpscope-client`, as users go it: with its checksums, without its
//! repetitions.

use std::time::Instant;

use bytes::Bytes;
use lumpscope_client::{Client, Error, LumpId, PutOptions};
use lumpscope_proto::v1;
use tokio_stream::StreamExt as _;

use super::door::{Answer, Failure, Region};
use super::{Durability, Refusal, RunError};
use crate::load::grpc;

pub(super) struct ServiceDoor {
    client: Client,
    store: String,
    durability: v1::Durability,
    /// Id that the service gave the last request.
    pub(super) last_request: u64,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(Refusal::Service(Box::new(error)))
    }
}

impl ServiceDoor {
    /// A connection of its own.
    pub(super) async fn connect(
        server: &str,
        store: &str,
        durability: Option<Durability>,
    ) -> Result<ServiceDoor, RunError> {
        let failed = |error: Error| RunError::Connect {
            server: server.to_owned(),
            reason: error.to_string(),
        };
        Ok(ServiceDoor {
            client: grpc::open(server).await.map_err(failed)?,
            store: store.to_owned(),
            durability: match durability {
                None => v1::Durability::Unspecified,
                Some(Durability::Synced) => v1::Durability::Synced,
                Some(Durability::Journaled) => v1::Durability::Journaled,
            },
            last_request: 0,
        })
    }

    pub(super) async fn put(
        &mut self,
        id: u64,
        body: Bytes,
        region: Region,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let options = PutOptions {
            durability: self.durability,
            placement: match region {
                Region::Data => v1::Placement::Data,
                Region::Journal => v1::Placement::Embedded,
            },
            ..PutOptions::default()
        };
        let put = self.client.put(&self.store, lump(id), body, &options);
        timed(put, |reply| (Some(reply.created), reply.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        let get = self.client.get(&self.store, lump(id), None);
        timed(get, |lump| (vec![lump.bytes], lump.header.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    pub(super) async fn delete(&mut self, id: u64) -> Result<Answer<Option<bool>>, Failure> {
        let delete = self.client.delete(&self.store, lump(id), self.durability);
        timed(delete, |reply| (Some(reply.existed), reply.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    pub(super) async fn delete_range(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Answer<u64>, Failure> {
        let request = v1::DeleteRangeRequest {
            store: self.store.clone(),
            start: Some(lump(start).into()),
            end: Some(lump(end).into()),
            durability: self.durability.into(),
            ..v1::DeleteRangeRequest::default()
        };
        timed(self.client.delete_range(request), |reply| {
            (reply.deleted, reply.request_id)
        })
        .await
        .map(|answer| self.remember(answer))
    }

    fn remember<T>(&mut self, answer: Answer<(T, u64)>) -> Answer<T> {
        let Answer { latency, value } = answer;
        self.last_request = value.1;
        Answer {
            latency,
            value: value.0,
        }
    }

    pub(super) async fn list(&self) -> Result<Vec<u128>, Failure> {
        let mut listing = self.client.list(&self.store, None, None);
        let mut ids = Vec::new();
        while let Some(LumpId(id)) = listing.try_next().await? {
            ids.push(id);
        }
        Ok(ids)
    }
}

fn lump(id: u64) -> LumpId {
    LumpId(id.into())
}

async fn timed<R, T>(
    call: impl Future<Output = Result<R, Error>>,
    value: impl FnOnce(R) -> T,
) -> Result<Answer<T>, Failure> {
    let begin = Instant::now();
    let reply = call.await?;
    Ok(Answer {
        latency: begin.elapsed(),
        value: value(reply),
    })
}
