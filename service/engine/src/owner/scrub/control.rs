//! State shared by the handles of a store and its scrubber.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scrub::ScrubStatus;

/// Commands and queries of a store's handles to the scrubber.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(super) on: AtomicBool,
    /// True: a pass begins at once, without waiting for its interval.
    pub(super) now: AtomicBool,
    /// Bytes a second; 0: no limit.
    pub(super) rate: AtomicU64,
    status: Mutex<ScrubStatus>,
}

impl Control {
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

    pub(in crate::owner) fn locked(&self) -> MutexGuard<'_, ScrubStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
