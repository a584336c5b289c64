//! The one place where the engine reads time, or draws a random number.
//!
//! A simulator replaces it on its own thread ([`virtual_time`]): what the engine does then is a
//! function of what it is told.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, SystemTime};

use crate::random::Random;

/// Wall-clock time at virtual time zero: 2020-01-01, in nanoseconds since 1970.
const VIRTUAL_EPOCH_NS: u64 = 1_577_836_800_000_000_000;

thread_local! {
    static VIRTUAL: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the clock of the kernel's block tracepoints.
#[must_use]
pub fn monotonic_ns() -> u64 {
    if let Some(now_ns) = VIRTUAL.get() {
        return now_ns;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Nanoseconds since 1970 by the wall clock, which may jump.
#[must_use]
pub fn wall_ns() -> u64 {
    match VIRTUAL.get() {
        Some(now_ns) => VIRTUAL_EPOCH_NS.saturating_add(now_ns),
        None => duration_ns(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()),
    }
}

/// 64 random bits; in virtual time a function of that time.
#[must_use]
pub fn random_u64() -> u64 {
    if let Some(now_ns) = VIRTUAL.get() {
        return Random::new(now_ns).next();
    }
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    // Version and variant bits are constant, at different places of the halves.
    high ^ low
}

/// Nanoseconds of `duration`, saturating after 584 years.
#[must_use]
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// For the calling thread, until the value is dropped, the time is `now_ns`. For simulators.
#[must_use = "time is real again when it is dropped"]
pub fn virtual_time(now_ns: u64) -> VirtualTime {
    VirtualTime {
        before: VIRTUAL.replace(Some(now_ns)),
        thread: PhantomData,
    }
}

/// Time stands still on this thread while this lives.
#[derive(Debug)]
pub struct VirtualTime {
    before: Option<u64>,
    /// It belongs to the thread that made it.
    thread: PhantomData<*const ()>,
}

impl Drop for VirtualTime {
    fn drop(&mut self) {
        VIRTUAL.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_is_of_one_thread_and_ends() {
        let real = monotonic_ns();
        {
            let _outer = virtual_time(5);
            {
                let _inner = virtual_time(7);
                assert_eq!((monotonic_ns(), wall_ns()), (7, VIRTUAL_EPOCH_NS + 7));
            }
            assert_eq!(monotonic_ns(), 5);
            let other = std::thread::spawn(monotonic_ns).join().unwrap();
            assert!(other >= real);
        }
        assert!(monotonic_ns() >= real);
    }
}
