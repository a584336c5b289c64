//! The handle to an open store. Its verbs are in [`submit`] and [`waiting`].

mod pieces;
mod rest;
mod submit;
mod waiting;

pub use rest::{Opened, Piece, Rest};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::buffer::BufferPool;
use crate::error::Error;
use crate::format::record::{EmbeddedData, MAX_EMBEDDED_LEN, MAX_RECORD_LEN, PUT_LEN, Record};
use crate::health::Health;
use crate::lump::{LumpId, Placement};
use crate::options::{CommitMode, StoreInfo};
use crate::owner::command::put::{DataLump, Put};
use crate::owner::command::{Arrival, StoreCommand, TimedReply};
use crate::owner::{OwnerShared, on_engine_thread};
use crate::payload::LumpBuf;
use crate::request::{
    CollectOutcome, Durability, PutCondition, PutGroup, PutOptions, PutOutcome, RequestCtx,
};
use crate::scrub::ScrubStatus;
use crate::stats::StoreStats;
use crate::times::OnDone;
use crate::units::BlockSize;
use crate::waker::Waker;

/// Lumps go there by themselves while the live records are no more than this part of the ring, so
/// the collection copies a byte for every three that are written at most.
pub const LIVE_SHARE: u64 = 4;

/// An open store: a cheap handle, to be cloned and shared between threads. The store closes when
/// the last handle is dropped, or at [`Store::close`].
///
/// `submit_*` hands a request to the owner thread and returns at once; `Err` means it was not
/// accepted and the callback is not called. The other verbs wait for the result, and must not be
/// called in a callback. Callbacks are called on a thread of the engine, and must be quick.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

/// State shared by the handles of one store.
pub(crate) struct StoreInner {
    pub(crate) info: StoreInfo,
    pub(crate) block_size: BlockSize,
    pub(crate) pool: Arc<BufferPool>,
    /// `None` only while dropping.
    pub(crate) commands: Option<Sender<Arrival>>,
    /// Tells the owner thread that there is a command.
    pub(crate) waker: Waker,
    /// Most data I/Os in flight.
    pub(crate) queue_depth: u64,
    /// Most bytes of a piece of a lump that comes in; `None`: lumps are written whole.
    pub(crate) piece_bytes: Option<u64>,
    pub(crate) shared: Arc<OwnerShared>,
    /// Generation of the next put; starts at the wall clock, so it grows from open to open.
    pub(crate) generation: AtomicU64,
    pub(crate) owner: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        // The owner thread finishes what it has and ends.
        self.commands = None;
        self.waker.wake();
        let owner = self
            .owner
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // In a callback the last handle may go on the owner's own thread, or on one it waits for.
        if let Some(owner) = owner
            && !on_engine_thread()
        {
            let _ = owner.join();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("info", &self.inner.info)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Most ids of one [`Store::delete_many`]: what the owner thread does in some milliseconds.
    pub const MAX_DELETE_IDS: usize = 16_384;

    /// Hands a command over if the store lets it in now.
    fn send(&self, ctx: RequestCtx, command: StoreCommand) -> Result<(), Error> {
        self.check_disk(&command)?;
        let admission = &self.inner.shared.admission;
        if command.goes_on() {
            admission.join();
        } else {
            admission.try_enter(&ctx)?;
        }
        self.hand_over(ctx, command)
    }

    /// Refuses what needs the disk while there is none. Here and not only in the owner thread, which
    /// a disk that hangs may hold up.
    fn check_disk(&self, command: &StoreCommand) -> Result<(), Error> {
        let refusal = self.inner.shared.condition.refusal();
        match refusal.filter(|_| command.needs_disk()) {
            Some(error) => {
                // It may have something to tell to those who wait.
                self.inner.waker.wake();
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// For a command that was let in. If the store is closing, nobody counts any more.
    fn hand_over(&self, ctx: RequestCtx, command: StoreCommand) -> Result<(), Error> {
        let commands = self.inner.commands.as_ref().ok_or(Error::Closed)?;
        let _inside = self.inner.shared.gate.enter()?;
        commands
            .send(Arrival::new(ctx, command))
            .map_err(|_| Error::Closed)?;
        self.inner.waker.wake();
        Ok(())
    }

    /// Sends a command when the queue has room, and waits for its answer.
    fn call<T: Send + 'static>(
        &self,
        ctx: RequestCtx,
        command: impl FnOnce(TimedReply<T>) -> StoreCommand,
    ) -> Result<T, Error> {
        self.try_call(ctx, |reply| Ok(command(reply)))
    }

    /// As [`call`](Self::call), for a command that may be refused before it is sent.
    fn try_call<T: Send + 'static>(
        &self,
        ctx: RequestCtx,
        command: impl FnOnce(TimedReply<T>) -> Result<StoreCommand, Error>,
    ) -> Result<T, Error> {
        let (sender, answer): (_, Receiver<Result<T, Error>>) = bounded(1);
        let reply = TimedReply::new(Box::new(move |result, _| {
            let _ = sender.send(result);
        }));
        let command = command(reply)?;
        self.check_disk(&command)?;
        let admission = &self.inner.shared.admission;
        if command.goes_on() {
            admission.join();
        } else {
            admission.enter(&ctx)?;
        }
        self.hand_over(ctx, command)?;
        // A command that is dropped unanswered was still queued when the store closed.
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// A put with its lump sealed, on the caller's thread.
    fn put_command(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        options: PutOptions,
        reply: TimedReply<PutOutcome>,
    ) -> Result<StoreCommand, Error> {
        let mut put = Put {
            request: ctx.id,
            durability: options.durability,
            condition: options.condition,
            data: None,
            embedded: None,
            deletes: Vec::new(),
            records: Vec::new(),
            reply,
        };
        let placement = match options.placement {
            Some(placement) => placement,
            None if buf.has_pieces() => Placement::Data,
            None => self.chosen_placement(buf.len() as u64),
        };
        match placement {
            Placement::Data => put.data = Some(self.seal(id, buf)?),
            Placement::Embedded => {
                let (record, len) = embed(id, &buf)?;
                put.embedded = Some((id, len));
                put.records = record;
            }
        }
        Ok(StoreCommand::Put(Box::new(put)))
    }

    /// Where a lump of `len` bytes goes that may go anywhere: into the journal if it is
    /// [small](CommitMode::max_small) and live records take no more than a [`LIVE_SHARE`]th of the
    /// ring.
    #[must_use]
    pub fn chosen_placement(&self, len: u64) -> Placement {
        let counters = &self.inner.shared.counters;
        let live = counters.journal_live_bytes.get() + len;
        let has_room = live <= counters.journal_capacity_bytes.get() / LIVE_SHARE;
        if has_room && len <= self.inner.info.commit.max_small() {
            Placement::Embedded
        } else {
            Placement::Data
        }
    }

    /// A put with the lumps and records of a group, sealed on the caller's thread.
    fn group_command(
        &self,
        ctx: RequestCtx,
        group: PutGroup,
        durability: Durability,
        reply: TimedReply<PutOutcome>,
    ) -> Result<StoreCommand, Error> {
        let (id, buf) = group.embedded;
        let (mut records, len) = embed(id, &buf)?;
        for &id in &group.deletes {
            records.extend_from_slice(&Record::Delete { id }.to_bytes());
        }
        let whole = records.len() + group.data.as_ref().map_or(0, |_| PUT_LEN);
        if whole > MAX_RECORD_LEN {
            return Err(Error::LumpTooLarge {
                len: whole as u64,
                max: MAX_RECORD_LEN as u64,
            });
        }
        let data = group.data.map(|(id, buf)| self.seal(id, buf));
        Ok(StoreCommand::Put(Box::new(Put {
            request: ctx.id,
            durability,
            condition: PutCondition::Always,
            data: data.transpose()?,
            embedded: Some((id, len)),
            deletes: group.deletes,
            records,
            reply,
        })))
    }

    fn seal(&self, id: LumpId, buf: LumpBuf) -> Result<DataLump, Error> {
        let generation = self.inner.generation.fetch_add(1, Ordering::Relaxed);
        if buf.has_pieces() {
            self.inner.shared.counters.puts_passed.add(1);
        }
        let linked = self.inner.info.commit == CommitMode::Runs && buf.can_be_linked();
        Ok(DataLump::new(id, buf.seal(id, generation, linked)?))
    }

    /// Fixed properties of this store.
    #[must_use]
    pub fn info(&self) -> &StoreInfo {
        &self.inner.info
    }

    /// Bytes of memory that [`Store::lump_buf`] takes for a lump of `len` bytes: with its trailer,
    /// rounded up to 4 KiB, above 64 KiB to 64 KiB, from 1 MiB on to 2 MiB unless a quarter of
    /// that or less would be in use behind whole 2 MiB.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn lump_memory(&self, len: u64) -> Result<u64, Error> {
        LumpBuf::memory(len, self.inner.block_size, &self.inner.pool)
    }

    /// A buffer for a lump of exactly `len` bytes.
    ///
    /// It counts against [`buffer_budget`](crate::StoreOptions::buffer_budget) with what it takes
    /// ([`Store::lump_memory`]), until its put has written it or it is dropped. So does a [`LumpData`](crate::LumpData) that a get returned, until it is dropped. Puts may use
    /// three quarters of the budget; gets wait in the queue while it is used up. Who keeps the
    /// lumps it gets must therefore keep less than the budget: a get that waits for memory which
    /// its own caller holds would wait for ever.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`], [`Error::BuffersExhausted`].
    pub fn lump_buf(&self, len: u64) -> Result<LumpBuf, Error> {
        let buf = LumpBuf::new(len, self.inner.block_size, &self.inner.pool);
        buf.map_err(|error| self.out_of_memory(error))
    }

    /// Says when to try again, and counts it, if there is no memory.
    fn out_of_memory(&self, mut error: Error) -> Error {
        if let Error::BuffersExhausted { retry_after, .. } = &mut error {
            self.inner.shared.counters.buffer_refused.add(1);
            *retry_after = self.inner.shared.admission.retry_memory();
        }
        error
    }

    /// As [`Store::lump_buf`], of memory that takes room only as it is filled, and that the budget
    /// does not count: the caller bounds it.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn lump_buf_untouched(&self, len: u64) -> Result<LumpBuf, Error> {
        LumpBuf::untouched(len, self.inner.block_size, &self.inner.pool)
    }

    /// Waiting form of [`Store::lump_buf`]: returns when there is memory. Not to be called by who
    /// holds the lumps whose memory it waits for.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn lump_buf_waiting(&self, len: u64) -> Result<LumpBuf, Error> {
        loop {
            let seen = self.inner.pool.releases();
            match LumpBuf::new(len, self.inner.block_size, &self.inner.pool) {
                Err(Error::BuffersExhausted { .. }) => self.inner.pool.wait_for_release(seen),
                other => return other,
            }
        }
    }

    /// Lets the garbage collection go round the journal once. Returns at once when there is nothing
    /// to gain. Requests are served between its steps.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Failed`], [`Error::Closed`].
    pub fn collect(&self) -> Result<CollectOutcome, Error> {
        self.call(RequestCtx::default(), |reply| StoreCommand::Collect {
            reply,
        })
    }

    /// Runs the collection without waiting, for a stepped store.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also those of [`Store::collect`].
    pub fn submit_collect(&self, on_done: OnDone<CollectOutcome>) -> Result<(), Error> {
        let reply = TimedReply::new(on_done);
        self.send(RequestCtx::default(), StoreCommand::Collect { reply })
    }

    /// Has the scrubber begin a pass at once, or go on with the one it has begun, at `rate` bytes a
    /// second; `None`: as fast as the disk is left to it. Passes are repeated in the interval the
    /// store was opened with.
    pub fn scrub_start(&self, rate: Option<u64>) {
        self.inner.shared.scrub.start(rate.unwrap_or(0), true);
        self.inner.waker.wake();
    }

    /// Has the scrubber rest. It keeps its place.
    pub fn scrub_stop(&self) {
        self.inner.shared.scrub.stop();
        self.inner.waker.wake();
    }

    /// State and findings of the scrubber.
    #[must_use]
    pub fn scrub_status(&self) -> ScrubStatus {
        self.inner.shared.scrub.status()
    }

    /// State of the store, and why it is in it. Never blocks, also while the disk does.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.shared.condition.health()
    }

    /// Why the store takes no changes any more; `None` while it does.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        self.inner
            .shared
            .failed
            .get()
            .map(|reason| reason.to_string())
    }

    /// Numbers about the store, now.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats {
            queue_length: self.inner.shared.admission.waiting() as u64,
            buffer_used_bytes: self.inner.pool.used(),
            buffer_get_bytes: self.inner.pool.used_by_gets(),
            buffer_budget_bytes: self.inner.pool.budget(),
            ..self.inner.shared.counters.snapshot()
        }
    }

    /// Finishes what was accepted, flushes, and closes the store for all handles.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn close(self) -> Result<(), Error> {
        let (sender, closed) = bounded(1);
        // Nobody has to make room for the end.
        self.hand_over(
            RequestCtx::default(),
            StoreCommand::Close { closed: sender },
        )?;
        closed.recv().unwrap_or(Err(Error::Closed))
    }
}

/// The encoded record of an embedded lump, and the bytes of the lump.
fn embed(id: LumpId, buf: &LumpBuf) -> Result<(Vec<u8>, u16), Error> {
    let payload = buf.payload()?;
    let too_large = Error::LumpTooLarge {
        len: payload.len() as u64,
        max: MAX_EMBEDDED_LEN as u64,
    };
    let len = u16::try_from(payload.len()).map_err(|_| too_large.clone())?;
    let data = EmbeddedData::new(payload).map_err(|_| too_large)?;
    Ok((Record::Embed { id, data }.to_bytes(), len))
}

fn check_count(ids: &[LumpId]) -> Result<(), Error> {
    let (got, max) = (ids.len(), Store::MAX_DELETE_IDS);
    if got > max {
        return Err(Error::TooManyIds { got, max });
    }
    Ok(())
}
