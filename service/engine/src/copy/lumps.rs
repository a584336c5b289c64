//! The lumps of one open store into another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::CopyError;
use crate::error::Error;
use crate::lump::LumpId;
use crate::request::{LumpRange, PutOptions, RequestCtx};
use crate::store::Store;

/// Lumps under way at a time: the disk of the source reads them in its order.
const AT_ONCE: usize = 64;
/// Ids of a page.
const PAGE: usize = 16_384;

/// Lumps that were copied, and those that cannot be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Lumps that were copied.
    pub lumps: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Lumps that were there already.
    pub there: u64,
    /// Copied lumps without a checksum, by another engine: their bytes are those on the disk.
    pub unverified: u64,
    /// Lumps that cannot be read, in the order of their ids.
    pub unreadable: Vec<Unreadable>,
}

/// A lump that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The lump.
    pub id: LumpId,
    /// Reason: the place on the disk, and what it says.
    pub why: String,
}

/// Copies every lump that `target` does not have, where it lives in `source`, and waits until all of
/// them are on stable storage. `progress` is told the bytes on the disk done and in all.
///
/// # Errors
/// [`CopyError::Source`] and [`CopyError::Target`]: the first error of either store that is not about
/// the bytes of one lump.
pub fn copy_lumps(
    source: &Store,
    target: &Store,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Copied, CopyError> {
    let usage = source.usage(LumpRange::ALL).map_err(CopyError::Source)?;
    let work = Work {
        source,
        target,
        progress,
        total: usage.stored_bytes,
        done: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        ids: Mutex::new(Ids::new(LumpId(0))),
        there: Mutex::new(Ids::new(LumpId(0))),
        copied: Mutex::default(),
    };
    progress(0, work.total);
    let first_error = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| work.run())).collect();
        let ends = threads.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        // All are waited for.
        ends.fold(Ok(()), Result::and)
    });
    first_error?;
    target.sync().map_err(CopyError::Target)?;
    let mut copied = work
        .copied
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    copied.unreadable.sort_by_key(|lump| lump.id);
    Ok(copied)
}

struct Work<'a> {
    source: &'a Store,
    target: &'a Store,
    progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Bytes on the disk of the source.
    total: u64,
    done: AtomicU64,
    /// An error has ended it.
    failed: AtomicBool,
    ids: Mutex<Ids>,
    /// Of the target, as it was.
    there: Mutex<Ids>,
    copied: Mutex<Copied>,
}

/// The ids of a store, page by page, ascending.
struct Ids {
    page: VecDeque<LumpId>,
    next: Option<LumpId>,
}

impl Ids {
    fn new(start: LumpId) -> Self {
        Self {
            page: VecDeque::new(),
            next: Some(start),
        }
    }

    fn peek(&mut self, store: &Store) -> Result<Option<LumpId>, Error> {
        while let (true, Some(start)) = (self.page.is_empty(), self.next) {
            let listed = store.list(LumpRange { start, end: None }, PAGE)?;
            self.page = listed.ids.into();
            self.next = listed.next;
        }
        Ok(self.page.front().copied())
    }

    fn next(&mut self, store: &Store) -> Result<Option<LumpId>, Error> {
        self.peek(store)?;
        Ok(self.page.pop_front())
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Work<'_> {
    /// Copies lumps until there are none.
    fn run(&self) -> Result<(), CopyError> {
        loop {
            let one = match self.next() {
                Ok(Some(id)) if !self.failed.load(Ordering::Relaxed) => self.one(id),
                Ok(_) => return Ok(()),
                Err(error) => Err(error),
            };
            if one.is_err() {
                self.failed.store(true, Ordering::Relaxed);
                return one;
            }
        }
    }

    /// The next lump that the target did not have when this began.
    fn next(&self) -> Result<Option<LumpId>, CopyError> {
        let mut ids = lock(&self.ids);
        while let Some(id) = ids.next(self.source).map_err(CopyError::Source)? {
            let mut there = lock(&self.there);
            loop {
                match there.peek(self.target).map_err(CopyError::Target)? {
                    Some(other) if other < id => {
                        there.page.pop_front();
                    }
                    Some(other) if other == id => {
                        there.page.pop_front();
                        lock(&self.copied).there += 1;
                        break;
                    }
                    _ => return Ok(Some(id)),
                }
            }
        }
        Ok(None)
    }

    fn one(&self, id: LumpId) -> Result<(), CopyError> {
        let ctx = RequestCtx::default();
        let lump = match self.source.get(ctx, id) {
            Ok(lump) => lump,
            Err(error @ (Error::Unreadable { .. } | Error::ChecksumMismatch(_))) => {
                let why = error.to_string();
                lock(&self.copied).unreadable.push(Unreadable { id, why });
                return Ok(());
            }
            Err(error) => return Err(CopyError::Source(error)),
        };
        let put = || {
            let mut buf = self.target.lump_buf_waiting(lump.len() as u64)?;
            buf.extend(&lump)?;
            let options = PutOptions {
                placement: Some(lump.placement),
                ..PutOptions::default()
            };
            self.target.put_with(ctx, id, buf, options)
        };
        put().map_err(CopyError::Target)?;
        let bytes = lump.len() as u64;
        let mut copied = lock(&self.copied);
        copied.lumps += 1;
        copied.bytes += bytes;
        copied.unverified += u64::from(!lump.verified);
        drop(copied);
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(done.min(self.total), self.total);
        Ok(())
    }
}
