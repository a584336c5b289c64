//! Virtual time, and when it is in the real one.

use std::time::{Duration, Instant};

/// Virtual time runs `scale` times as fast as real time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    start: Instant,
    scale: u64,
}

impl Clock {
    /// Virtual time begins now.
    pub(super) fn start(scale: u32) -> Clock {
        Clock {
            start: Instant::now(),
            scale: u64::from(scale.max(1)),
        }
    }

    /// Real time since the begin.
    pub(super) fn age(self) -> Duration {
        self.start.elapsed()
    }

    /// Virtual nanoseconds at a moment.
    pub(super) fn virtual_at(self, moment: Instant) -> u64 {
        let passed = moment.saturating_duration_since(self.start).as_nanos();
        // Five centuries fit.
        u64::try_from(passed)
            .unwrap_or(u64::MAX)
            .saturating_mul(self.scale)
    }

    /// Virtual nanoseconds of a length of real time.
    pub(super) fn virtual_of(self, real: Duration) -> u64 {
        let real = u64::try_from(real.as_nanos()).unwrap_or(u64::MAX);
        real.saturating_mul(self.scale)
    }

    /// The moment of a virtual time, never before it.
    pub(super) fn moment_of(self, virtual_ns: u64) -> Instant {
        self.start + Duration::from_nanos(virtual_ns.div_ceil(self.scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_before_its_virtual_time() {
        for scale in 1..=5 {
            let clock = Clock::start(scale);
            for virtual_ns in [0, 1, 7, 1_000_003] {
                let there = clock.virtual_at(clock.moment_of(virtual_ns));
                assert!(
                    (virtual_ns..virtual_ns + 5).contains(&there),
                    "{scale} {there}"
                );
            }
        }
    }
}
