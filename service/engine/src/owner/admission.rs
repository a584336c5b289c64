//! Admission to the owner thread: counts the waiting requests and refuses early.
//!
//! A request counts from here until the owner thread starts, answers or drops it, so the channel
//! and the queue behind it together hold at most `queue_limit` requests.

pub(crate) mod overload;
pub(crate) mod pace;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Error;
use crate::request::RequestCtx;
use crate::stats::Counters;
use crate::units::to_usize;

/// A refused request is told to come back not earlier and not later than this.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(30));
/// Gets whose payers have their share of memory are at most this part of the queue.
const HELD_PART: usize = 4;
/// Nanoseconds a request is taken to need while nothing was observed.
const UNKNOWN_INTERVAL_NS: u64 = 1_000_000;

/// The count and the limits; any thread.
#[derive(Debug)]
pub(crate) struct Admission {
    limits: AdmissionLimits,
    counters: Arc<Counters>,
    waiting: AtomicUsize,
    overloaded: AtomicBool,
    /// Nanoseconds from the start of one request to that of the next; 0: unknown.
    interval_ns: AtomicU64,
    /// Callers that wait for room.
    sleepers: AtomicUsize,
    closed: Mutex<bool>,
    room: Condvar,
}

/// Lengths of the queue, in requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionLimits {
    /// More are never let in.
    pub(crate) hard: usize,
    /// From here on the store may be overloaded.
    pub(crate) threshold: usize,
    /// Here it has recovered.
    pub(crate) recovers_at: usize,
}

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits, counters: Arc<Counters>) -> Self {
        Self {
            limits,
            counters,
            waiting: AtomicUsize::new(0),
            overloaded: AtomicBool::new(false),
            interval_ns: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            closed: Mutex::new(false),
            room: Condvar::new(),
        }
    }

    /// Requests let in and not started yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// Lets a request in or refuses it with [`Error::Busy`].
    pub(crate) fn try_enter(&self, ctx: &RequestCtx) -> Result<(), Error> {
        self.check_own_limit(ctx)?;
        if self.spares(ctx) {
            self.counters.overload_refused.add(1);
            return Err(self.busy(self.limits.threshold, self.limits.recovers_at));
        }
        if self.take_place() {
            return Ok(());
        }
        self.counters.queue_refused.add(1);
        Err(self.busy(self.limits.hard, self.limits.hard / 2))
    }

    /// Lets a request in whatever the limits: it is a part of one that was let in before.
    pub(crate) fn join(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    /// Waits until the request is let in. Only its own limit refuses it.
    pub(crate) fn enter(&self, ctx: &RequestCtx) -> Result<(), Error> {
        self.check_own_limit(ctx)?;
        let admit = || !self.spares(ctx) && self.take_place();
        if admit() {
            return Ok(());
        }
        let mut closed = self.lock();
        self.sleepers.fetch_add(1, SeqCst);
        // Who makes room after this looks at `sleepers` and takes the lock before it notifies.
        let result = loop {
            if *closed {
                break Err(Error::Closed);
            }
            if admit() {
                break Ok(());
            }
            closed = self
                .room
                .wait(closed)
                .unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, SeqCst);
        result
    }

    /// A request that was let in waits no more.
    pub(crate) fn leave(&self) {
        self.waiting.fetch_sub(1, SeqCst);
        self.wake();
    }

    /// The state of the store as its owner thread sees it.
    pub(crate) fn observe(&self, overloaded: bool, interval_ns: u64) {
        self.interval_ns.store(interval_ns, SeqCst);
        if self.overloaded.swap(overloaded, SeqCst) != overloaded {
            self.counters.overloaded.set(u64::from(overloaded));
            self.counters.overloads.add(u64::from(overloaded));
            self.wake();
        }
    }

    /// Nobody is let in any more; who waits is told.
    pub(crate) fn close(&self) {
        *self.lock() = true;
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            drop(self.lock());
            // All: those that wait for the end of an overload cannot use a place, others can.
            self.room.notify_all();
        }
    }

    /// True: the store is spared this request.
    fn spares(&self, ctx: &RequestCtx) -> bool {
        !ctx.prioritized && self.overloaded.load(SeqCst)
    }

    fn take_place(&self) -> bool {
        self.waiting
            .fetch_update(SeqCst, SeqCst, |waiting| {
                (waiting < self.limits.hard).then_some(waiting + 1)
            })
            .is_ok()
    }

    fn check_own_limit(&self, ctx: &RequestCtx) -> Result<(), Error> {
        let Some(max) = ctx.max_queue_len else {
            return Ok(());
        };
        let max = to_usize(max);
        if self.waiting() <= max {
            return Ok(());
        }
        self.counters.queue_refused_own_limit.add(1);
        Err(self.busy(max, max))
    }

    /// Refused by `limit`; come back when `until` requests wait.
    fn busy(&self, limit: usize, until: usize) -> Error {
        Error::Busy {
            limit,
            retry_after: self.retry_after(self.waiting().saturating_sub(until)),
        }
    }

    /// Refuses one more get whose payer has its share of memory, when `held` of them wait already:
    /// they must not fill the queue that others need.
    pub(crate) fn check_held(&self, held: usize) -> Result<(), Error> {
        let most = self.limits.hard / HELD_PART;
        if held < most {
            return Ok(());
        }
        self.counters.queue_refused.add(1);
        Err(self.busy(most, most / 2))
    }

    /// The time in which `requests` will probably be started.
    fn retry_after(&self, requests: usize) -> Duration {
        let interval = match self.interval_ns.load(SeqCst) {
            0 => UNKNOWN_INTERVAL_NS,
            known => known,
        };
        let time = Duration::from_nanos(interval.saturating_mul(requests as u64));
        time.clamp(RETRY_AFTER.0, RETRY_AFTER.1)
    }

    /// When memory for lumps will probably be free again: when a few requests were served.
    pub(crate) fn retry_memory(&self) -> Duration {
        self.retry_after(self.waiting().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        let limits = AdmissionLimits {
            hard: 4,
            threshold: 3,
            recovers_at: 1,
        };
        Admission::new(limits, Arc::default())
    }

    fn refused(result: Result<(), Error>) -> (usize, u64) {
        match result {
            Err(Error::Busy { limit, retry_after }) => {
                (limit, u64::try_from(retry_after.as_micros()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_limit_refuses_whom_it_should_and_says_for_how_long() {
        let admission = admission();
        let plain = RequestCtx::default();
        let prioritized = RequestCtx {
            prioritized: true,
            ..plain
        };
        let modest = RequestCtx {
            max_queue_len: Some(1),
            ..prioritized
        };
        admission.try_enter(&modest).unwrap();
        admission.try_enter(&modest).unwrap();
        assert_eq!(refused(admission.try_enter(&modest)), (1, 1000));
        assert_eq!(refused(admission.enter(&modest)), (1, 1000));
        admission.try_enter(&plain).unwrap();
        admission.observe(true, 5_000_000);
        assert_eq!(refused(admission.try_enter(&plain)), (3, 10_000));
        admission.try_enter(&prioritized).unwrap();
        assert_eq!(refused(admission.try_enter(&prioritized)), (4, 10_000));
        admission.leave();
        admission.observe(false, u64::MAX);
        admission.try_enter(&plain).unwrap();
        assert_eq!(refused(admission.try_enter(&plain)), (4, 30_000_000));
        let stats = admission.counters.snapshot();
        assert_eq!(stats.queue_refused, 2);
        assert_eq!(stats.queue_refused_own_limit, 2);
        assert_eq!(stats.overload_refused, 1);
        assert_eq!((stats.overloads, stats.overloaded), (1, 0));
    }

    #[test]
    fn whoever_waits_for_room_gets_it() {
        let admission = Arc::new(admission());
        let ctx = RequestCtx::default();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let admission = Arc::clone(&admission);
                std::thread::spawn(move || {
                    for _ in 0..200 {
                        admission.enter(&ctx).unwrap();
                    }
                })
            })
            .collect();
        for left in 0..1600 {
            while admission.waiting() == 0 {
                std::thread::yield_now();
            }
            assert!(admission.waiting() <= 4);
            admission.observe(left % 7 < 3, 0);
            admission.observe(false, 0);
            admission.leave();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(admission.waiting(), 0);
    }

    #[test]
    fn whoever_waits_for_room_is_told_of_the_end() {
        let admission = Arc::new(admission());
        let ctx = RequestCtx::default();
        (0..4).for_each(|_| admission.enter(&ctx).unwrap());
        let waiter = {
            let admission = Arc::clone(&admission);
            std::thread::spawn(move || admission.enter(&ctx))
        };
        while admission.sleepers.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        admission.close();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed)));
    }
}
