//! Status of the scrubber of an open store.
//!
//! The scrubber reads every lump in the order of the disk, in the background, and compares it
//! with its checksum. So latent sector errors and rotted bytes are found while a copy of the lump
//! may still exist, and not when it is needed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::finding::Findings;

/// Findings listed; more are only counted.
pub(crate) const FINDINGS: usize = 256;

/// A complete pass over a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubPass {
    /// Lumps verified.
    pub lumps: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Lumps found damaged, or not readable.
    pub damaged: u64,
    /// When it ended, in nanoseconds since 1970.
    pub ended_ns: u64,
}

/// Work and findings of the scrubber since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubStatus {
    /// True: a pass is under way, or was asked for.
    pub running: bool,
    /// Its budget in bytes a second.
    pub rate: u64,
    /// Lumps before this byte of the device or file have been dealt with in this pass.
    pub position: u64,
    /// First byte after the last place where a lump can be.
    pub end: u64,
    /// Passes completed.
    pub passes: u64,
    /// The pass under way, or the last one when none is. After an open it is the rest of a pass
    /// that was begun before.
    pub this_pass: ScrubPass,
    /// The last complete pass.
    pub last_pass: Option<ScrubPass>,
    /// Lumps that fitted their checksum.
    pub verified_lumps: u64,
    /// Lumps without a checksum: they could be read, no more is known.
    pub unverified_lumps: u64,
    /// Lumps whose bytes are not those that were written.
    pub corrupt_lumps: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Damage; at most 256 findings are listed, all are counted. A lump that was overwritten or
    /// deleted meanwhile is not among them.
    pub findings: Findings,
}

/// Commands and queries of a store's handles to the scrubber.
#[derive(Debug, Default)]
pub(crate) struct ScrubControl {
    pub(crate) on: AtomicBool,
    /// True: a pass begins at once, without waiting for its interval.
    pub(crate) now: AtomicBool,
    /// Bytes a second; 0: no limit.
    pub(crate) rate: AtomicU64,
    status: Mutex<ScrubStatus>,
}

impl ScrubControl {
    pub(crate) fn start(&self, rate: u64, now: bool) {
        self.rate.store(rate, Ordering::Relaxed);
        self.now.store(now, Ordering::Relaxed);
        self.on.store(true, Ordering::Release);
    }

    pub(crate) fn stop(&self) {
        self.on.store(false, Ordering::Release);
    }

    pub(crate) fn status(&self) -> ScrubStatus {
        let mut status = self.locked().clone();
        status.running |= self.now.load(Ordering::Relaxed);
        status.running &= self.on.load(Ordering::Acquire);
        status.rate = self.rate.load(Ordering::Relaxed);
        status
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, ScrubStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
