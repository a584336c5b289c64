//! The handle to an open store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use crate::buffer::BufferPool;
use crate::device::Waker;
use crate::error::Error;
use crate::format::record::{EmbeddedData, MAX_EMBEDDED_LEN, Record};
use crate::lump::LumpId;
use crate::options::{StoreInfo, StoreStats};
use crate::payload::{LumpBuf, LumpData};
use crate::request::{
    DeleteOutcome, DeleteRangeOutcome, Durability, EngineTimes, HeadOutcome, ListOutcome,
    LumpRange, Placement, PutOutcome, RequestCtx, UsageOutcome,
};
use crate::scheduler::message::{Command, PutBody, Reply};
use crate::scheduler::{Shared, on_engine_thread};
use crate::units::BlockSize;

/// Time to wait before a refused request is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Called once with the result of a request, on an engine thread: it must not block.
pub type OnDone<T> = Box<dyn FnOnce(Result<T, Error>, EngineTimes) + Send>;

/// An open store: a cheap handle, to be cloned and shared between threads. The store closes when
/// the last handle is dropped, or at [`Store::close`].
///
/// `submit_*` hands a request to the owner thread and returns at once; `Err` means it was not
/// accepted and the callback is not called. The other verbs wait for the result; they must not be
/// called in a callback.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What the handles of one store share.
pub(crate) struct Inner {
    pub(crate) info: StoreInfo,
    pub(crate) block_size: BlockSize,
    pub(crate) pool: Arc<BufferPool>,
    pub(crate) queue_limit: usize,
    /// `None` only while dropping.
    pub(crate) commands: Option<Sender<Command>>,
    /// Tells the owner thread that there is a command.
    pub(crate) waker: Waker,
    pub(crate) shared: Arc<Shared>,
    /// Generation of the next put; starts at the wall clock, so it grows from open to open.
    pub(crate) generation: AtomicU64,
    pub(crate) owner: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
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
    fn send(&self, command: Command) -> Result<(), Error> {
        let commands = self.inner.commands.as_ref().ok_or(Error::Closed)?;
        let _inside = self.inner.shared.gate.enter()?;
        commands.try_send(command).map_err(|error| match error {
            TrySendError::Full(_) => Error::Busy {
                limit: self.inner.queue_limit,
                retry_after: RETRY_AFTER,
            },
            TrySendError::Disconnected(_) => Error::Closed,
        })?;
        self.inner.waker.wake();
        Ok(())
    }

    /// Sends a command when the queue has room.
    fn send_waiting(&self, command: Command) -> Result<(), Error> {
        let commands = self.inner.commands.as_ref().ok_or(Error::Closed)?;
        let _inside = self.inner.shared.gate.enter()?;
        commands.send(command).map_err(|_| Error::Closed)?;
        self.inner.waker.wake();
        Ok(())
    }

    /// Sends a command when the queue has room, and waits for its answer.
    fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Error> {
        let (sender, answer): (_, Receiver<Result<T, Error>>) = bounded(1);
        let reply = Reply::new(Box::new(move |result, _| {
            let _ = sender.send(result);
        }));
        self.send_waiting(command(reply))?;
        // A command that is dropped unanswered was still queued when the store closed.
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// Seals a lump on the caller's thread.
    fn put_command(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        placement: Placement,
        durability: Durability,
        reply: Reply<PutOutcome>,
    ) -> Result<Command, Error> {
        let body = match placement {
            Placement::Data => {
                let generation = self.inner.generation.fetch_add(1, Ordering::Relaxed);
                PutBody::Data(buf.seal(id, generation)?)
            }
            Placement::Embedded => embedded_body(id, &buf)?,
        };
        Ok(Command::Put {
            request: ctx.id,
            id,
            body,
            durability,
            reply,
        })
    }

    /// What is fixed for this store.
    #[must_use]
    pub fn info(&self) -> &StoreInfo {
        &self.inner.info
    }

    /// A buffer for a lump of exactly `len` bytes.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn lump_buf(&self, len: u64) -> Result<LumpBuf, Error> {
        LumpBuf::new(len, self.inner.block_size, &self.inner.pool)
    }

    /// Stores a lump; an older one with this id is replaced atomically.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::StoreFull`],
    /// [`Error::JournalFull`], [`Error::Failed`], [`Error::Io`], [`Error::LengthMismatch`].
    pub fn submit_put(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        placement: Placement,
        durability: Durability,
        on_done: OnDone<PutOutcome>,
    ) -> Result<(), Error> {
        let reply = Reply::new(on_done);
        self.send(self.put_command(ctx, id, buf, placement, durability, reply)?)
    }

    /// Reads a whole lump and verifies its checksum.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::NotFound`],
    /// [`Error::ChecksumMismatch`], [`Error::Io`].
    pub fn submit_get(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        on_done: OnDone<LumpData>,
    ) -> Result<(), Error> {
        self.send(Command::Get {
            request: ctx.id,
            id,
            reply: Reply::new(on_done),
        })
    }

    /// The exact size of a lump.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::NotFound`],
    /// [`Error::Io`].
    pub fn submit_head(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        on_done: OnDone<HeadOutcome>,
    ) -> Result<(), Error> {
        self.send(Command::Head {
            request: ctx.id,
            id,
            reply: Reply::new(on_done),
        })
    }

    /// Removes a lump; removing one that is not there succeeds and says so.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::Failed`].
    pub fn submit_delete(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        durability: Durability,
        on_done: OnDone<DeleteOutcome>,
    ) -> Result<(), Error> {
        let reply = Reply::new(on_done);
        self.send(Command::Delete {
            request: ctx.id,
            id,
            durability,
            reply,
        })
    }

    /// Removes all lumps with `start <= id < end`, atomically.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`]; in the callback also
    /// [`Error::Failed`].
    pub fn submit_delete_range(
        &self,
        ctx: RequestCtx,
        start: LumpId,
        end: LumpId,
        durability: Durability,
        on_done: OnDone<DeleteRangeOutcome>,
    ) -> Result<(), Error> {
        LumpRange {
            start,
            end: Some(end),
        }
        .check()?;
        let reply = Reply::new(on_done);
        self.send(Command::DeleteRange {
            request: ctx.id,
            start,
            end,
            durability,
            reply,
        })
    }

    /// The first `limit` ids of a range, ascending.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`].
    pub fn submit_list(
        &self,
        ctx: RequestCtx,
        range: LumpRange,
        limit: usize,
        on_done: OnDone<ListOutcome>,
    ) -> Result<(), Error> {
        let (range, _) = (range.check()?, ctx);
        self.send(Command::List {
            range,
            limit,
            reply: Reply::new(on_done),
        })
    }

    /// The space the lumps of a range take.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`].
    pub fn submit_usage(
        &self,
        ctx: RequestCtx,
        range: LumpRange,
        on_done: OnDone<UsageOutcome>,
    ) -> Result<(), Error> {
        let (range, _) = (range.check()?, ctx);
        self.send(Command::Usage {
            range,
            reply: Reply::new(on_done),
        })
    }

    /// Calls back when everything acknowledged before the call is on stable storage.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::Failed`].
    pub fn submit_sync(&self, on_done: OnDone<()>) -> Result<(), Error> {
        self.send(Command::Sync {
            reply: Reply::new(on_done),
        })
    }

    /// Waiting form of [`Store::submit_put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        placement: Placement,
        durability: Durability,
    ) -> Result<PutOutcome, Error> {
        let (sender, answer) = bounded(1);
        let reply = Reply::new(Box::new(move |result, _| {
            let _ = sender.send(result);
        }));
        let command = self.put_command(ctx, id, buf, placement, durability, reply)?;
        self.send_waiting(command)?;
        answer.recv().unwrap_or(Err(Error::Closed))
    }

    /// Waiting form of [`Store::submit_get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, ctx: RequestCtx, id: LumpId) -> Result<LumpData, Error> {
        self.call(|reply| Command::Get {
            request: ctx.id,
            id,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_head`].
    ///
    /// # Errors
    /// As there.
    pub fn head(&self, ctx: RequestCtx, id: LumpId) -> Result<HeadOutcome, Error> {
        self.call(|reply| Command::Head {
            request: ctx.id,
            id,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_delete`].
    ///
    /// # Errors
    /// As there.
    pub fn delete(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        durability: Durability,
    ) -> Result<DeleteOutcome, Error> {
        self.call(|reply| Command::Delete {
            request: ctx.id,
            id,
            durability,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_delete_range`].
    ///
    /// # Errors
    /// As there.
    pub fn delete_range(
        &self,
        ctx: RequestCtx,
        start: LumpId,
        end: LumpId,
        durability: Durability,
    ) -> Result<DeleteRangeOutcome, Error> {
        LumpRange {
            start,
            end: Some(end),
        }
        .check()?;
        let request = ctx.id;
        self.call(|reply| Command::DeleteRange {
            request,
            start,
            end,
            durability,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, range: LumpRange, limit: usize) -> Result<ListOutcome, Error> {
        let range = range.check()?;
        self.call(|reply| Command::List {
            range,
            limit,
            reply,
        })
    }

    /// Waiting form of [`Store::submit_usage`].
    ///
    /// # Errors
    /// As there.
    pub fn usage(&self, range: LumpRange) -> Result<UsageOutcome, Error> {
        let range = range.check()?;
        self.call(|reply| Command::Usage { range, reply })
    }

    /// Waiting form of [`Store::submit_sync`].
    ///
    /// # Errors
    /// As there.
    pub fn sync(&self) -> Result<(), Error> {
        self.call(|reply| Command::Sync { reply })
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
        self.inner.shared.counters.snapshot()
    }

    /// Finishes what was accepted, flushes, and closes the store for all handles.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn close(self) -> Result<(), Error> {
        let (sender, closed) = bounded(1);
        self.send_waiting(Command::Close { closed: sender })?;
        closed.recv().unwrap_or(Err(Error::Closed))
    }
}

/// The record of an embedded lump, encoded on the caller's thread.
fn embedded_body(id: LumpId, buf: &LumpBuf) -> Result<PutBody, Error> {
    let payload = buf.payload()?;
    let too_large = Error::LumpTooLarge {
        len: payload.len() as u64,
        max: MAX_EMBEDDED_LEN as u64,
    };
    let len = u16::try_from(payload.len()).map_err(|_| too_large.clone())?;
    let data = EmbeddedData::new(payload).map_err(|_| too_large)?;
    Ok(PutBody::Embedded {
        record: Record::Embed { id, data }.to_bytes(),
        len,
    })
}
