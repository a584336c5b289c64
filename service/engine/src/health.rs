//! The state of a store, as far as its disk decides it. This table is the one place where it is
//! defined; `owner/judge.rs` carries it out.
//!
//! | state | begins | takes | ends |
//! |---|---|---|---|
//! | serving | at open | everything | |
//! | degraded | the last read, or the last write or flush, failed; or the disk has refused to write [`BAD_PLACES`](crate::health::BAD_PLACES) places or more | everything | with the next one that succeeds; for bad places, never: replace the disk |
//! | read-only | opened so, or the device is read-only; or a write or flush of the store's own failed, so what is on the disk is uncertain; or [`ERRORS`](crate::health::ERRORS) writes in a row failed, a trial read succeeded and a trial write failed | reads; in the last case also deletes | when the store is opened again; in the last case when a trial write or any other succeeds |
//! | failed | a read for a request failed twice, or [`ERRORS`](crate::health::ERRORS) reads or writes in a row failed, and then a trial read failed, too; or an I/O has been in flight for longer than [`io_timeout`](crate::StoreOptions::io_timeout) | lists | when a trial read succeeds; when the I/O has ended |
//! | gone | the kernel says that there is no such device (ENODEV, ENXIO, ENOMEDIUM) | lists | when a trial read succeeds |
//!
//! A store that its caller has [frozen](crate::Store::submit_freeze) refuses puts and deletes whatever
//! its state is.
//!
//! The last state that applies counts. A store that is failed or gone reads its first block once in
//! [`TRIAL_EVERY`](crate::health::TRIAL_EVERY): without requests it would never see that the disk is
//! well again. A store whose disk refuses writes writes zeros to one free block as often, in another
//! part of the data region each time (`owner/ctx/trial.rs`): never to the headers or the journal, because a
//! write that fails may leave its sectors unreadable. What waits in its queue is refused at once, and so is what comes; what is in flight
//! is answered when the kernel gives it back; what the store would write for itself, such as records of
//! puts that are durable without them, waits until the disk is back. A full file system is no error of the disk. A lump that
//! cannot be read while the trial read succeeds is lost alone ([`Error::Unreadable`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{duration_ns, monotonic_ns};
use crate::error::Error;
use crate::format::bad_places;

/// Errors of one kind in a row (reads, or writes and flushes) after which a trial read decides.
pub(crate) const ERRORS: u32 = 3;
/// From one trial read to the next while the store is failed or gone.
pub(crate) const TRIAL_EVERY: Duration = Duration::from_secs(1);
/// Refused places with which the disk is failing: as many as the header block remembers.
pub(crate) const BAD_PLACES: usize = bad_places::MOST;

/// Why a store that was frozen refuses puts and deletes.
pub const FROZEN: &str =
    "it was set to refuse changes; `lumpscope admin resume`, or a restart, ends that";

/// State of a store, from the best to the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreState {
    /// It takes everything, and its disk does what it is asked for.
    #[default]
    Serving,
    /// It takes everything, and its disk has errors.
    Degraded,
    /// Lumps can be read, nothing can be changed until it is opened again.
    ReadOnly,
    /// Its disk fails every I/O, or does not answer. Lumps can only be listed.
    Failed,
    /// Its disk is no more. Lumps can only be listed.
    Gone,
}

impl StoreState {
    /// Every state, from the best to the worst.
    pub const ALL: [Self; 5] = [
        Self::Serving,
        Self::Degraded,
        Self::ReadOnly,
        Self::Failed,
        Self::Gone,
    ];

    /// Short lower-case name, for messages and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Degraded => "degraded",
            Self::ReadOnly => "read-only",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }

    /// True: every request is taken.
    #[must_use]
    pub const fn takes_everything(self) -> bool {
        matches!(self, Self::Serving | Self::Degraded)
    }

    /// True: no request that needs the disk is taken.
    #[must_use]
    pub const fn is_out(self) -> bool {
        matches!(self, Self::Failed | Self::Gone)
    }
}

/// State of a store, and why it is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The state.
    pub state: StoreState,
    /// What the disk has said or done; empty while the store is serving.
    pub reason: Arc<str>,
}

impl Health {
    pub(crate) fn new(state: StoreState, reason: &Arc<str>) -> Self {
        Self {
            state,
            reason: Arc::clone(reason),
        }
    }

    /// Why requests that need the disk are refused; `None`: they are not.
    pub(crate) fn refusal(&self) -> Option<Error> {
        let Self { state, reason } = self;
        let reason = Arc::clone(reason);
        state.is_out().then_some(Error::OutOfService { reason })
    }
}

/// The state as any thread sees it. The owner thread tells it; an I/O that hangs may hold up that
/// thread too, so others find it by themselves.
#[derive(Debug)]
pub(crate) struct Condition {
    told: Mutex<Health>,
    /// True: `told` refuses requests.
    out: AtomicBool,
    /// When the oldest I/O in flight began, in nanoseconds of the monotonic clock; 0: none is.
    oldest_ns: AtomicU64,
    /// An I/O that takes longer hangs; `u64::MAX`: none does, or only the owner looks.
    bound_ns: AtomicU64,
}

impl Condition {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            told: Mutex::default(),
            out: AtomicBool::new(false),
            oldest_ns: AtomicU64::new(0),
            bound_ns: AtomicU64::new(bound_ns(bound)),
        }
    }

    /// The owner lives in virtual time, other threads do not.
    pub(crate) fn leave_to_owner(&self) {
        self.bound_ns.store(u64::MAX, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the state is now.
    pub(crate) fn tell(&self, health: Health) {
        self.out.store(health.state.is_out(), Ordering::Relaxed);
        *self.lock() = health;
    }

    /// Says when the oldest I/O in flight began.
    pub(crate) fn tell_oldest(&self, began_ns: Option<u64>) {
        self.oldest_ns
            .store(began_ns.unwrap_or(0), Ordering::Relaxed);
    }

    fn hangs(&self) -> bool {
        let began_ns = self.oldest_ns.load(Ordering::Relaxed);
        let bound_ns = self.bound_ns.load(Ordering::Relaxed);
        began_ns > 0 && monotonic_ns().saturating_sub(began_ns) > bound_ns
    }

    /// The state now.
    pub(crate) fn health(&self) -> Health {
        let told = self.lock().clone();
        if told.state.is_out() || !self.hangs() {
            return told;
        }
        let bound = Duration::from_nanos(self.bound_ns.load(Ordering::Relaxed));
        Health {
            state: StoreState::Failed,
            reason: hang_reason("an I/O", bound).into(),
        }
    }

    /// Why requests that need the disk are refused; `None`: they are not.
    pub(crate) fn refusal(&self) -> Option<Error> {
        if !self.out.load(Ordering::Relaxed) && !self.hangs() {
            return None;
        }
        self.health().refusal()
    }
}

/// Nanoseconds after which an I/O hangs; a bound of zero is none.
pub(crate) fn bound_ns(bound: Duration) -> u64 {
    if bound.is_zero() {
        return u64::MAX;
    }
    duration_ns(bound)
}

/// Says that an I/O has not ended in time.
pub(crate) fn hang_reason(io: &str, bound: Duration) -> String {
    format!("{io} has not ended within {} s", bound.as_secs_f64())
}
