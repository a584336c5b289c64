//! The way to a store in this process: the engine without a network.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lumpscope_engine::{
    Durability as EngineDurability, Error, LumpBuf, LumpId, LumpRange, Placement, RequestCtx, Store,
};
use tokio::sync::oneshot;

use super::door::{Answer, Failure, Region};
use super::{Durability, Refusal};

/// Pause before memory for a lump is asked for again.
const NO_MEMORY: Duration = Duration::from_millis(1);
/// Ids a page of a list.
const PAGE: usize = 10_000;

pub(super) struct EngineDoor {
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

impl EngineDoor {
    fn durability(&self) -> EngineDurability {
        match self.durability {
            Durability::Synced => EngineDurability::Synced,
            Durability::Journaled => EngineDurability::Journaled,
        }
    }

    pub(super) async fn put(
        &mut self,
        id: u64,
        body: &[u8],
        region: Region,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let mut lump = self.memory(body.len()).await?;
        lump.extend(body)?;
        let placement = match region {
            Region::Data => Placement::Data,
            Region::Journal => Placement::Embedded,
        };
        let (ctx, durability) = (RequestCtx::default(), self.durability());
        called(|sender| {
            let done = Box::new(move |result: Result<_, _>, _| {
                tell(
                    sender,
                    result.map(|put: lumpscope_engine::PutOutcome| Some(put.created)),
                );
            });
            self.store
                .submit_put(ctx, lump_id(id), lump, placement, durability, done)
        })
        .await
    }

    async fn memory(&self, len: usize) -> Result<LumpBuf, Failure> {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        loop {
            match self.store.lump_buf(len) {
                Err(Error::BuffersExhausted { .. }) => tokio::time::sleep(NO_MEMORY).await,
                other => return Ok(other?),
            }
        }
    }

    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        let answer = called(|sender| {
            let done = Box::new(move |result, _| tell(sender, result));
            self.store
                .submit_get(RequestCtx::default(), lump_id(id), done)
        })
        .await?;
        Ok(Answer {
            latency: answer.latency,
            value: vec![Bytes::from_owner(answer.value.into_bytes_owner())],
        })
    }

    pub(super) async fn delete(&mut self, id: u64) -> Result<Answer<Option<bool>>, Failure> {
        let durability = self.durability();
        called(|sender| {
            let done = Box::new(move |result: Result<_, _>, _| {
                tell(
                    sender,
                    result.map(|gone: lumpscope_engine::DeleteOutcome| Some(gone.existed)),
                );
            });
            self.store
                .submit_delete(RequestCtx::default(), lump_id(id), durability, done)
        })
        .await
    }

    pub(super) async fn delete_range(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Answer<u64>, Failure> {
        let durability = self.durability();
        let (ctx, start, end) = (RequestCtx::default(), lump_id(start), lump_id(end));
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

    pub(super) async fn list(&mut self) -> Result<Vec<u128>, Failure> {
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

fn lump_id(id: u64) -> LumpId {
    LumpId(id.into())
}
