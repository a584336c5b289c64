//! The handle to an open store.

use std::path::Path;

use crate::buffer::{LumpBuf, LumpData};
use crate::error::Error;
use crate::lump::LumpId;
use crate::options::{StoreInfo, StoreOptions, StoreStats};
use crate::request::{
    DeleteOutcome, DeleteRangeOutcome, Durability, EngineTimes, HeadOutcome, ListOutcome,
    LumpRange, Placement, PutOutcome, RequestCtx, UsageOutcome,
};

/// Called once with the result of a request, on an engine thread: it must not block.
pub type OnDone<T> = Box<dyn FnOnce(Result<T, Error>, EngineTimes) + Send>;

/// An open store: a cheap handle, to be cloned and shared between threads. The store closes when
/// the last handle is dropped, or at [`Store::close`].
///
/// `submit_*` hands a request to the owner thread and returns at once; `Err` means it was not
/// accepted and the callback is not called. The other verbs wait for the result.
#[derive(Clone)]
pub struct Store {}

impl Store {
    /// Opens the store on the device or file `path` and replays its journal.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::InUse`], [`Error::Unsupported`], [`Error::Corrupt`],
    /// [`Error::CorruptJournal`], [`Error::System`], [`Error::Io`].
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self, Error> {
        let _ = (path, options);
        Err(Error::Closed)
    }
    /// What is fixed for this store.
    #[must_use]
    pub fn info(&self) -> &StoreInfo {
        unreachable!()
    }
    /// A buffer for a lump of exactly `len` bytes.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`].
    pub fn lump_buf(&self, len: u64) -> Result<LumpBuf, Error> {
        Err(Error::LumpTooLarge { len, max: 0 })
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
        let _ = (ctx, id, buf, placement, durability, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, id, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, id, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, id, durability, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, start, end, durability, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, range, limit, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, range, on_done);
        Err(Error::Closed)
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
        let _ = (ctx, id, buf, placement, durability);
        Err(Error::Closed)
    }
    /// Waiting form of [`Store::submit_get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, ctx: RequestCtx, id: LumpId) -> Result<LumpData, Error> {
        let _ = (ctx, id);
        Err(Error::Closed)
    }
    /// Waiting form of [`Store::submit_head`].
    ///
    /// # Errors
    /// As there.
    pub fn head(&self, ctx: RequestCtx, id: LumpId) -> Result<HeadOutcome, Error> {
        let _ = (ctx, id);
        Err(Error::Closed)
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
        let _ = (ctx, id, durability);
        Err(Error::Closed)
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
        let _ = (ctx, start, end, durability);
        Err(Error::Closed)
    }
    /// Waiting form of [`Store::submit_list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(&self, range: LumpRange, limit: usize) -> Result<ListOutcome, Error> {
        let _ = (range, limit);
        Err(Error::Closed)
    }
    /// Waiting form of [`Store::submit_usage`].
    ///
    /// # Errors
    /// As there.
    pub fn usage(&self, range: LumpRange) -> Result<UsageOutcome, Error> {
        let _ = range;
        Err(Error::Closed)
    }
    /// Waits until everything acknowledged before the call is on stable storage.
    ///
    /// # Errors
    /// [`Error::Failed`], [`Error::Closed`].
    pub fn sync(&self) -> Result<(), Error> {
        Err(Error::Closed)
    }
    /// Why the store takes no changes any more; `None` while it does.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        None
    }
    /// Numbers about the store, now.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        StoreStats::default()
    }
    /// Finishes what was accepted, flushes, and closes the store for all handles.
    ///
    /// # Errors
    /// [`Error::Failed`].
    pub fn close(self) -> Result<(), Error> {
        let _ = EngineTimes::default();
        Err(Error::Closed)
    }
}
