//! The way to a store through `lumpscope-client`, as users go it: with its checksums, without its
//! repetitions.

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use lumpscope_client::{Client, Error, LumpId, PutOptions};
use lumpscope_engine::{Durability, Placement};
use lumpscope_proto::v1;
use tokio_stream::StreamExt as _;

use super::{Answer, Failure, Refusal, StoreClient};

pub(super) struct ServiceClient {
    client: Client,
    store: String,
    durability: v1::Durability,
    /// Id that the service gave the last request.
    last_request: u64,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(Refusal::Service(Box::new(error)))
    }
}

impl ServiceClient {
    pub(super) fn new(
        client: Client,
        store: &str,
        durability: Option<Durability>,
    ) -> ServiceClient {
        ServiceClient {
            client,
            store: store.to_owned(),
            durability: match durability {
                None => v1::Durability::Unspecified,
                Some(Durability::Synced) => v1::Durability::Synced,
                Some(Durability::Journaled) => v1::Durability::Journaled,
            },
            last_request: 0,
        }
    }

    fn remember<T>(&mut self, answer: Answer<(T, u64)>) -> Answer<T> {
        let Answer { latency, value } = answer;
        self.last_request = value.1;
        Answer {
            latency,
            value: value.0,
        }
    }
}

#[async_trait]
impl StoreClient for ServiceClient {
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let options = PutOptions {
            durability: self.durability,
            placement: match placement {
                Placement::Data => v1::Placement::Data,
                Placement::Embedded => v1::Placement::Embedded,
            },
            ..PutOptions::default()
        };
        let put = self.client.put(&self.store, LumpId(id), body, &options);
        timed(put, |reply| (Some(reply.created), reply.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let get = self.client.get(&self.store, LumpId(id), None);
        timed(get, |lump| (vec![lump.bytes], lump.header.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        let delete = self.client.delete(&self.store, LumpId(id), self.durability);
        timed(delete, |reply| (Some(reply.existed), reply.request_id))
            .await
            .map(|answer| self.remember(answer))
    }

    async fn delete_range(&mut self, start: u128, end: u128) -> Result<Answer<u64>, Failure> {
        let request = v1::DeleteRangeRequest {
            store: self.store.clone(),
            start: Some(LumpId(start).into()),
            end: Some(LumpId(end).into()),
            durability: self.durability.into(),
            ..v1::DeleteRangeRequest::default()
        };
        timed(self.client.delete_range(request), |reply| {
            (reply.deleted, reply.request_id)
        })
        .await
        .map(|answer| self.remember(answer))
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        let mut listing = self.client.list(&self.store, None, None);
        let mut ids = Vec::new();
        while let Some(LumpId(id)) = listing.try_next().await? {
            ids.push(id);
        }
        Ok(ids)
    }

    fn last_request(&self) -> Option<u64> {
        Some(self.last_request)
    }
}

async fn timed<R, T>(
    call: impl Future<Output = Result<R, Error>>,
    value: impl FnOnce(R) -> T,
) -> Result<Answer<T>, Failure> {
    let begin = Instant::now();
    let reply = call.await?;
    Ok(Answer::since(begin, value(reply)))
}
