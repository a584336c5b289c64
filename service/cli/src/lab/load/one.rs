//! One client of `lumpscope load`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use lumpscope_client::{Client, Code, Error, LumpId, PutOptions, v1};
use lumpscope_units::human;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::Done;
use crate::output::complain;

/// Bytes beyond one lump, so that lumps differ: each is a window into one buffer.
const SPREAD: usize = 1 << 20;
/// One in so many changes is a delete.
const DELETES: u32 = 20;
/// Wait after a request that failed, so that a service that is away is not hammered.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Bytes that do not compress, enough for lumps of `size`.
pub(super) fn content(size: usize) -> Bytes {
    let mut bytes = vec![0; size + SPREAD];
    fastrand::fill(&mut bytes);
    bytes.into()
}

/// One connection with one request at a time, to one store.
pub(super) struct Worker {
    pub(super) client: Client,
    pub(super) store: String,
    /// Nobody else uses these.
    pub(super) ids: Vec<LumpId>,
    /// Bytes of each lump.
    pub(super) size: usize,
    /// From [`content`].
    pub(super) content: Bytes,
    /// Share of gets, 0 to 1.
    pub(super) gets: f64,
    /// From the begin of one request to that of the next; `None`: no pause.
    pub(super) every: Option<Duration>,
    /// Leave the lumps at the end.
    pub(super) keep: bool,
    pub(super) done: Arc<Done>,
    pub(super) over: CancellationToken,
}

/// Known state of one lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// The window into the content that begins here.
    Put(usize),
    /// A change failed: the old state, the new, or none.
    Unknown,
}

impl Worker {
    /// Works until it is over.
    ///
    /// # Errors
    /// The service refuses in a way that no repetition changes.
    pub(super) async fn run(self) -> Result<()> {
        let mut pace = self.every.map(|every| {
            // Not all at once.
            let mut pace = interval_at(Instant::now() + every.mul_f64(fastrand::f64()), every);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            pace
        });
        let mut states = vec![State::Absent; self.ids.len()];
        let mut well = true;
        while !self.over.is_cancelled() {
            if !self.wait(&mut pace).await {
                break;
            }
            let slot = fastrand::usize(..self.ids.len());
            let Err(error) = self.step(slot, &mut states[slot]).await else {
                well = true;
                continue;
            };
            if hopeless(&error) {
                return Err(error.into());
            }
            Done::count(&self.done.failed, 1);
            if well {
                complain(&format!("lumpscope: store {}: {error}", self.store));
            }
            well = false;
            tokio::select! {
                () = tokio::time::sleep(AFTER_FAILURE) => {}
                () = self.over.cancelled() => {}
            }
        }
        self.clear(&states).await;
        Ok(())
    }

    /// False: it is over.
    async fn wait(&self, pace: &mut Option<Interval>) -> bool {
        let Some(pace) = pace else { return true };
        tokio::select! {
            _ = pace.tick() => true,
            () = self.over.cancelled() => false,
        }
    }

    /// One request.
    async fn step(&self, slot: usize, state: &mut State) -> Result<(), Error> {
        let id = self.ids[slot];
        if let State::Put(from) = *state {
            if fastrand::f64() < self.gets {
                return self.get(id, from).await;
            }
            if fastrand::u32(..DELETES) == 0 {
                *state = State::Unknown;
                self.client
                    .delete(&self.store, id, v1::Durability::Unspecified)
                    .await?;
                *state = State::Absent;
                Done::count(&self.done.deletes, 1);
                return Ok(());
            }
        }
        let from = fastrand::usize(..SPREAD);
        *state = State::Unknown;
        let body = self.window(from);
        let how = PutOptions::default();
        self.client.put(&self.store, id, body, &how).await?;
        *state = State::Put(from);
        Done::count(&self.done.puts, 1);
        self.moved();
        Ok(())
    }

    async fn get(&self, id: LumpId, from: usize) -> Result<(), Error> {
        let got = match self.client.get(&self.store, id, None).await {
            Ok(lump) => Some(lump.bytes),
            Err(error) if error.code() == Some(Code::NotFound) => None,
            Err(error) => return Err(error),
        };
        Done::count(&self.done.gets, 1);
        self.moved();
        if got != Some(self.window(from)) {
            let what = got.map_or("gone", |_| "not what was put");
            Done::count(&self.done.wrong, 1);
            complain(&format!(
                "lumpscope: store {}: lump {id} is {what}",
                self.store
            ));
        }
        Ok(())
    }

    fn window(&self, from: usize) -> Bytes {
        self.content.slice(from..from + self.size)
    }

    fn moved(&self) {
        let bytes = u64::try_from(self.size).unwrap_or(u64::MAX);
        Done::count(&self.done.bytes, bytes);
    }

    /// Removes what is there, unless it is to be left.
    async fn clear(&self, states: &[State]) {
        if self.keep {
            return;
        }
        let slots = states.iter().zip(&self.ids);
        let there = slots.filter(|(state, _)| **state != State::Absent);
        let ids: Vec<LumpId> = there.map(|(_, id)| *id).collect();
        for ids in ids.chunks(lumpscope_client::MANY) {
            if let Err(error) = self.client.delete_many(&self.store, ids).await {
                Done::count(&self.done.failed, 1);
                complain(&format!(
                    "lumpscope: store {}: {} left: {error}",
                    self.store,
                    human::counted(ids.len() as u64, "lump")
                ));
            }
        }
    }
}

/// No repetition helps: who asks, or what is asked for, is wrong.
fn hopeless(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            Code::InvalidArgument
                | Code::NotFound
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
                | Code::OutOfRange
        )
    )
}
