//! The clock that block events carry, and the time of day.

use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds: the same as the kernel side's `bpf_ktime_get_ns`.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Two offsets that are less apart are of the same time of day.
const APART_NS: i64 = 1_000_000;

/// Readings of both clocks, of which the best is taken.
const READINGS: usize = 4;

/// Offset from `CLOCK_MONOTONIC` to the time since 1970; by default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WallClock {
    offset_ns: i64,
}

impl WallClock {
    /// As the two clocks stand to each other now.
    #[must_use]
    pub fn now() -> WallClock {
        let offsets = (0..READINGS).map(|_| offset_now());
        let best = offsets.min_by_key(|offset| offset.end() - offset.start());
        WallClock {
            offset_ns: best.map_or(0, |offset| *offset.end()),
        }
    }

    /// As they stand now, if somebody has set the time of day. Else it stays as it is, for two readings always
    /// differ a little, and a recording is to say what was said live.
    pub(crate) fn renewed(self) -> WallClock {
        if self.is_within(&offset_now()) {
            self
        } else {
            WallClock::now()
        }
    }

    /// False: somebody has set the time of day since. However long a reading took, it alone does not show that.
    fn is_within(self, offset: &RangeInclusive<i64>) -> bool {
        (offset.start() - APART_NS..=offset.end() + APART_NS).contains(&self.offset_ns)
    }

    /// As they stood at a moment of which both times are known.
    pub(crate) fn of(monotonic_ns: u64, unix_ns: u64) -> WallClock {
        WallClock {
            offset_ns: signed(unix_ns).saturating_sub(signed(monotonic_ns)),
        }
    }

    /// Nanoseconds since 1970 at a time of the monotonic clock.
    #[must_use]
    pub fn unix_ns(self, monotonic_ns: u64) -> i64 {
        signed(monotonic_ns).saturating_add(self.offset_ns)
    }

    /// The time of the monotonic clock so many nanoseconds after 1970; 0: it did not run yet.
    #[must_use]
    pub fn monotonic_ns(self, unix_ns: i64) -> u64 {
        let ns = unix_ns.saturating_sub(self.offset_ns);
        u64::try_from(ns).unwrap_or(0)
    }
}

/// The offset is one of these: the monotonic clock is read before and after the time of day, and a thread may be
/// stopped in between.
fn offset_now() -> RangeInclusive<i64> {
    let before = signed(monotonic_ns());
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let after = signed(monotonic_ns());
    let unix_ns = since_1970.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
    unix_ns - after..=unix_ns - before
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_shows_this_year() {
        let now = WallClock::now().unix_ns(monotonic_ns());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("later");
        let wall = i64::try_from(since_1970.as_nanos()).expect("before 2262");
        assert!((wall - now).abs() < 60_000_000_000, "{now} {wall}");
        assert_eq!(WallClock::default().unix_ns(5), 5);
        let recorded = WallClock::of(100, 1_000_000);
        assert_eq!(recorded.unix_ns(105), 1_000_005);
        assert_eq!(recorded.monotonic_ns(1_000_005), 105);
        let set = recorded.renewed();
        assert_ne!(set, recorded);
        assert_eq!(set.renewed(), set);
    }

    #[test]
    fn a_reading_that_was_interrupted_does_not_set_the_clock() {
        let clock = WallClock::of(100, 1_000_100);
        let second = 1_000_000_000;
        assert!(clock.is_within(&(1_000_000 - second..=1_000_000)));
        assert!(clock.is_within(&(1_000_000..=1_000_000 + second)));
        assert!(!clock.is_within(&(3_000_000..=3_000_000)));
        assert!(!clock.is_within(&(-second..=-second)));
    }
}
