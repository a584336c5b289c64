//! A store as the runner sees it, whichever way leads to it.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::engine::EngineDoor;
use super::files::FilesDoor;
use super::s3::S3Door;
use super::service::ServiceDoor;
use super::{Mismatch, Refusal};

/// Where the bytes of a put go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    Data,
    Journal,
}

/// An answer, and how long the call took that it came from.
pub(super) struct Answer<T> {
    pub(super) value: T,
    pub(super) latency: Duration,
}

/// Why one command failed; the command is added by who knows it.
pub(super) enum Failure {
    Refused(Refusal),
    Wrong(Mismatch),
}

impl From<Mismatch> for Failure {
    fn from(what: Mismatch) -> Failure {
        Failure::Wrong(what)
    }
}

/// One client's way to the store.
pub(super) enum Door {
    Service(ServiceDoor),
    Engine(EngineDoor),
    Files(FilesDoor),
    S3(S3Door),
}

impl Door {
    /// Id of the last request in the service; `None`: this way knows no ids.
    pub(super) fn last_request(&self) -> Option<u64> {
        match self {
            Door::Service(door) => Some(door.last_request),
            Door::Engine(_) | Door::Files(_) | Door::S3(_) => None,
        }
    }

    /// True: there was no such lump before; `None`: it is not said.
    pub(super) async fn put(
        &mut self,
        id: u64,
        body: Bytes,
        region: Region,
    ) -> Result<Answer<Option<bool>>, Failure> {
        match self {
            Door::Service(door) => door.put(id, body, region).await,
            Door::Engine(door) => door.put(id, &body, region).await,
            Door::Files(door) => door.put(id, body).await,
            Door::S3(door) => door.put(id, body).await,
        }
    }

    /// The lump in pieces.
    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        match self {
            Door::Service(door) => door.get(id).await,
            Door::Engine(door) => door.get(id).await,
            Door::Files(door) => door.get(id).await,
            Door::S3(door) => door.get(id).await,
        }
    }

    /// True: the lump was there; `None`: it is not said.
    pub(super) async fn delete(&mut self, id: u64) -> Result<Answer<Option<bool>>, Failure> {
        match self {
            Door::Service(door) => door.delete(id).await,
            Door::Engine(door) => door.delete(id).await,
            Door::Files(door) => door.delete(id).await,
            Door::S3(door) => door.delete(id).await,
        }
    }

    /// How many lumps went.
    pub(super) async fn delete_range(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Answer<u64>, Failure> {
        match self {
            Door::Service(door) => door.delete_range(start, end).await,
            Door::Engine(door) => door.delete_range(start, end).await,
            Door::Files(_) | Door::S3(_) => self.delete_one_by_one(start, end).await,
        }
    }

    /// Deletes a range on a target without ranges: a list, then a delete of each.
    async fn delete_one_by_one(&mut self, start: u64, end: u64) -> Result<Answer<u64>, Failure> {
        let begin = Instant::now();
        let range = u128::from(start)..u128::from(end);
        let mut deleted = 0;
        let found = Box::pin(self.list()).await?;
        for id in found.into_iter().filter(|id| range.contains(id)) {
            self.delete(u64::try_from(id).unwrap_or(u64::MAX)).await?;
            deleted += 1;
        }
        Ok(Answer {
            value: deleted,
            latency: begin.elapsed(),
        })
    }

    /// All ids in ascending order.
    pub(super) async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        match self {
            Door::Service(door) => door.list().await,
            Door::Engine(door) => door.list().await,
            Door::Files(door) => door.list().await,
            Door::S3(door) => door.list().await,
        }
    }
}
