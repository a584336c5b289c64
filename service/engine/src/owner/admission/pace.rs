//! How fast requests are served, from what was observed lately. Pure: no clock, no I/O.

/// Kinds of requests that wait for a slot at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Needs a buffer before it can start.
    Get,
    Head,
    Put,
    /// A get that may have the memory kept for small ones.
    Small,
}

impl RequestKind {
    pub(crate) const ALL: [Self; 4] = [Self::Get, Self::Head, Self::Put, Self::Small];

    pub(in crate::owner) fn index(self) -> usize {
        self as usize
    }

    /// True: it needs memory for what it reads.
    pub(in crate::owner) fn is_get(self) -> bool {
        matches!(self, Self::Get | Self::Small)
    }

    /// Index of its times: gets of all sizes are timed together.
    pub(in crate::owner) fn timed(self) -> usize {
        match self {
            Self::Small => Self::Get.index(),
            other => other.index(),
        }
    }
}

/// Mean and mean deviation of a series in which the latest counts most, as RFC 6298 keeps them
/// for round trips: weights 1/8 and 1/4.
#[derive(Clone, Copy, Debug, Default)]
struct Smoothed {
    mean: u64,
    deviation: u64,
    any: bool,
}

impl Smoothed {
    fn add(&mut self, sample: u64) {
        if !self.any {
            (self.mean, self.deviation, self.any) = (sample, sample / 2, true);
            return;
        }
        let off = self.mean.abs_diff(sample);
        self.deviation = self.deviation - self.deviation / 4 + off / 4;
        self.mean = self.mean - self.mean / 8 + sample / 8;
    }

    /// A value that few samples exceed.
    fn high(self) -> u64 {
        self.mean.saturating_add(self.deviation.saturating_mul(4))
    }
}

/// Service times by kind, and the rate at which requests leave the queue.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    service: [Smoothed; 3],
    interval: Smoothed,
    /// When a request was started last and left others waiting.
    started_ns: Option<u64>,
}

impl Pace {
    /// A request took so long from its start to its answer.
    pub(crate) fn served(&mut self, kind: RequestKind, took_ns: u64) {
        self.service[kind.timed()].add(took_ns);
    }

    /// How long a request of each kind will probably take at most, in nanoseconds; 0 while
    /// nothing is known.
    pub(crate) fn service_ns(&self) -> [u64; 3] {
        self.service.map(Smoothed::high)
    }

    /// `started` requests were started at one time, and `waiting` still wait.
    pub(crate) fn started(&mut self, now_ns: u64, started: u64, waiting: usize) {
        if started == 0 {
            return;
        }
        if let Some(before) = self.started_ns {
            self.interval.add(now_ns.saturating_sub(before) / started);
        }
        // The time in which nothing waits says nothing of the rate.
        self.started_ns = (waiting > 0).then_some(now_ns);
    }

    /// Nanoseconds from one start to the next while requests wait; 0 while nothing is known.
    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_covers_what_was_seen_and_follows_changes() {
        let mut pace = Pace::default();
        assert_eq!(pace.service_ns(), [0; 3]);
        for _ in 0..100 {
            pace.served(RequestKind::Get, 1_000_000);
            pace.served(RequestKind::Get, 2_000_000);
        }
        let [get, head, _] = pace.service_ns();
        assert!((2_000_000..8_000_000).contains(&get), "{get}");
        assert_eq!(head, 0);
        for _ in 0..100 {
            pace.served(RequestKind::Get, 10_000);
        }
        assert!(pace.service_ns()[0] < 20_000, "{:?}", pace.service_ns());
        pace.served(RequestKind::Put, u64::MAX);
        pace.served(RequestKind::Put, u64::MAX);
        assert_eq!(pace.service_ns()[2], u64::MAX);
    }

    #[test]
    fn the_rate_is_that_of_busy_times() {
        let mut pace = Pace::default();
        pace.started(1_000, 1, 5);
        for turn in 1..50 {
            pace.started(1_000 + turn * 200, 2, 5);
        }
        assert_eq!(pace.interval_ns(), 100);
        pace.started(20_000, 1, 0);
        let before = pace.interval_ns();
        // Idle for a long time, then two more.
        pace.started(9_000_000_000, 1, 1);
        assert_eq!(pace.interval_ns(), before);
        pace.started(9_000_000_000, 0, 1);
        assert_eq!(pace.interval_ns(), before);
    }
}
