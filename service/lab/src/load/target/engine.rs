//! The way to a store in this process: the engine without a network.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use lumpscope_engine::{
    Durability, Error, LumpBuf, LumpId, LumpRange, Placement, RequestCtx, Store,
};
use tokio::sync::oneshot;

use super::{Answer, Failure, Refusal, StoreClient};

/// Pause before memory for a lump is asked for again.
const NO_MEMORY: Duration = Duration::from_millis(1);
/// Ids a page of a list.
const PAGE: usize = 10_000;

pub(super) struct EngineClient {
    pub(super) store: Store,
    pub(super) durability: Durability,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Refused(Refusal::Engine(Box::new(error)))
    }
}

/// Result of a callback, and the time of its call.
type Told<T> = (Result<T, Error>, Instant);

/// Hands a request over and waits for its callback. The latency ends with the call of the
/// callback: what it takes to wake this task is not the engine's.
async fn called<T: Send + 'static>(
    submit: impl FnOnce(oneshot::Sender<Told<T>>) -> Result<(), Error>,
) -> Result<Answer<T>, Failure> {
    let (sender, told) = oneshot::channel();
    let begin = Instant::now();
    submit(sender)?;
    let Ok((result, end)) = told.await else {
        return Err(Error::Closed.into());
    };
    Ok(Answer {
        value: result?,
        latency: end - begin,
    })
}

fn tell<T>(sender: oneshot::Sender<Told<T>>, result: Result<T, Error>) {
    // Nobody listens any more when the run has failed.
    let _ = sender.send((result, Instant::now()));
}

impl EngineClient {
    async fn memory(&self, len: usize) -> Result<LumpBuf, Failure> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        loop {
            match self.store.lump_buf(len) {
                Err(Error::BuffersExhausted { .. }) => tokio::time::sleep(NO_MEMORY).await,
                other => return Ok(other?),
            }
        }
    }
}

#[async_trait]
impl StoreClient for EngineClient {
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let mut lump = self.memory(body.len()).await?;
        lump.extend(&body)?;
        let (ctx, durability) = (RequestCtx::default(), self.durability);
        called(|sender| {
            let done = Box::new(move |result: Result<_, _>, _| {
                tell(
                    sender,
                    result.map(|put: lumpscope_engine::PutOutcome| Some(put.created)),
                );
            });
            self.store
                .submit_put(ctx, LumpId(id), lump, placement, durability, done)
        })
        .await
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let answer = called(|sender| {
            let done = Box::new(move |result, _| tell(sender, result));
            self.store
                .submit_get(RequestCtx::default(), LumpId(id), done)
        })
        .await?;
        Ok(Answer {
            latency: answer.latency,
            value: vec![Bytes::from_owner(answer.value.into_bytes_owner())],
        })
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        let durability = self.durability;
        called(|sender| {
            let done = Box::new(move |result: Result<_, _>, _| {
                tell(
                    sender,
                    result.map(|gone: lumpscope_engine::DeleteOutcome| Some(gone.existed)),
                );
            });
            self.store
                .submit_delete(RequestCtx::default(), LumpId(id), durability, done)
        })
        .await
    }

    async fn delete_range(&mut self, start: u128, end: u128) -> Result<Answer<u64>, Failure> {
        let durability = self.durability;
        let (ctx, start, end) = (RequestCtx::default(), LumpId(start), LumpId(end));
        called(|sender| {
            let done = Box::new(move |result: Result<_, _>, _| {
                tell(
                    sender,
                    result.map(|gone: lumpscope_engine::DeleteRangeOutcome| gone.deleted),
                );
            });
            self.store
                .submit_delete_range(ctx, start, end, durability, done)
        })
        .await
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        let mut ids = Vec::new();
        let mut range = LumpRange::ALL;
        loop {
            let page = called(|sender| {
                let done = Box::new(move |result, _| tell(sender, result));
                self.store
                    .submit_list(RequestCtx::default(), range, PAGE, done)
            })
            .await?
            .value;
            ids.extend(page.ids.iter().map(|id| id.0));
            match page.next {
                Some(next) => range.start = next,
                None => return Ok(ids),
            }
        }
    }
}
