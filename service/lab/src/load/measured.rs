//! The result of one run: requests, bytes, seconds, percentiles.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency told apart: one hour, in nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Latencies of single requests in nanoseconds, to three significant digits. Other than in the
/// published lines, a percentile is the smallest latency that at least so many of a hundred do not
/// exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half took no longer.
    pub p50_ns: u64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 95 % took no longer.
    pub p95_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// 99.99 % took no longer.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// The mean.
    pub mean_ns: f64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(latencies: &Histogram<u64>) -> Latency {
        let at = |quantile| latencies.value_at_quantile(quantile);
        Latency {
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: latencies.max(),
            mean_ns: latencies.mean(),
        }
    }
}

/// Requests of one kind, the time they took together, and each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Requests that ended well in the timed part.
    pub requests: u64,
    /// Payload bytes of these.
    pub bytes: u64,
    /// Requests that failed in the timed part; of these nothing else is counted.
    #[serde(default)]
    pub errors: u64,
    /// Length of the timed part in seconds.
    pub seconds: f64,
    /// Latencies of the requests.
    pub latency: Latency,
}

impl Measured {
    /// Payload bytes a second; 0 when nothing was measured.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            crate::human::as_float(self.bytes) / self.seconds
        } else {
            0.0
        }
    }
}

/// Collects the requests of one run.
#[derive(Clone, Debug)]
pub struct Meter {
    latencies: Histogram<u64>,
    bytes: u64,
    errors: u64,
    timed: Duration,
}

impl Meter {
    /// Nothing yet.
    ///
    /// # Panics
    /// Never: the bounds are constants.
    #[must_use]
    pub fn new() -> Meter {
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS)
            .expect("constant bounds with 1 < longest and at most 5 digits");
        Meter {
            latencies,
            bytes: 0,
            errors: 0,
            timed: Duration::ZERO,
        }
    }

    /// Adds one request.
    pub fn request(&mut self, bytes: u64, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(LONGEST_NS);
        self.latencies.saturating_record(ns.max(1));
        self.bytes += bytes;
    }

    /// Adds a request that failed.
    pub fn error(&mut self) {
        self.errors += 1;
    }

    /// Adds all that another one has collected.
    ///
    /// # Panics
    /// Never: all have the same bounds.
    pub fn merge(&mut self, other: &Meter) {
        let added = self.latencies.add(&other.latencies);
        added.expect("all have the same bounds");
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.timed += other.timed;
    }

    /// Adds a part of the run that is timed, from `begin` until now.
    pub fn timed_since(&mut self, begin: Instant) {
        self.timed += begin.elapsed();
    }

    /// Adds a part of the run that is timed, of a length that is known.
    pub fn add_time(&mut self, time: Duration) {
        self.timed += time;
    }

    /// Length of the timed parts.
    #[must_use]
    pub fn timed(&self) -> Duration {
        self.timed
    }

    /// Latencies so far, in nanoseconds.
    #[must_use]
    pub fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    /// The sum.
    #[must_use]
    pub fn finish(&self) -> Measured {
        Measured {
            requests: self.latencies.len(),
            bytes: self.bytes,
            errors: self.errors,
            seconds: self.timed.as_secs_f64(),
            latency: Latency::from(&self.latencies),
        }
    }
}

impl Default for Meter {
    fn default() -> Self {
        Meter::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_adds_up() {
        let mut meter = Meter::new();
        assert_eq!(meter.finish().latency, Latency::default());
        for us in 1..=1000 {
            meter.request(4096, Duration::from_micros(us));
        }
        meter.error();
        let measured = meter.finish();
        let counted = (measured.requests, measured.bytes, measured.errors);
        assert_eq!(counted, (1000, 4_096_000, 1));
        let near = |ns: u64, us: u64| ns.abs_diff(us * 1000) <= us * 2;
        assert!(near(measured.latency.p50_ns, 500), "{measured:?}");
        assert!(near(measured.latency.p99_ns, 990), "{measured:?}");
        assert!(near(measured.latency.p9999_ns, 1000), "{measured:?}");
        assert!(near(measured.latency.max_ns, 1000), "{measured:?}");
        assert!(measured.bytes_per_second().abs() < f64::EPSILON);

        let mut twice = meter.clone();
        twice.merge(&meter);
        let twice = twice.finish();
        assert_eq!((twice.requests, twice.errors), (2000, 2));
        assert_eq!(twice.latency, measured.latency);
    }
}
