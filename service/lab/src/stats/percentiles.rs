//! Percentiles of latencies, from HDR histograms.

use std::time::Duration;

use serde::Serialize;

use crate::load::Meter;

/// A set of latencies: percentiles in nanoseconds, to three significant digits, and the histogram
/// they come from. Other than in the published lines, a percentile is the smallest latency that at
/// least so many of a hundred do not exceed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) count: u64,
    pub(crate) mean_ns: f64,
    pub(crate) min_ns: u64,
    /// Half took no longer.
    pub(crate) p50_ns: u64,
    /// 90 % took no longer.
    pub(crate) p90_ns: u64,
    pub(crate) p95_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// The histogram: for each bucket that is not empty its upper end in nanoseconds and how many
    /// are in it, ascending.
    pub(crate) buckets: Vec<(u64, u64)>,
}

impl Percentiles {
    /// Of these latencies; all zero when there is none.
    pub(crate) fn of(latencies: impl IntoIterator<Item = Duration>) -> Percentiles {
        let mut meter = Meter::new();
        for latency in latencies {
            meter.request(0, latency);
        }
        let histogram = meter.latencies();
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p95_ns: at(0.95),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: histogram.max(),
            buckets: histogram
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_buckets_agree_with_what_was_recorded() {
        let all = Percentiles::of((1..=10_000).map(Duration::from_micros));
        let near = |ns: u64, us: u64| ns.abs_diff(us * 1000) <= us * 2;
        assert_eq!(all.count, 10_000);
        assert!(near(all.p50_ns, 5000), "{}", all.p50_ns);
        assert!(near(all.p9999_ns, 9999), "{}", all.p9999_ns);
        assert!(near(all.max_ns, 10_000), "{}", all.max_ns);
        let counted: u64 = all.buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 10_000);
        assert!(all.buckets.is_sorted());
        let none = Percentiles::of([]);
        assert_eq!((none.count, none.max_ns, none.buckets.len()), (0, 0, 0));
    }
}
