//! Totals of one store's requests.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::api::STAGES;
use crate::report::{BlockReport, Bucket, OperationReport, SlowRequest, StageTime};

use super::EndedRequest;
use super::kept::{FOUND_LATER, note};
use super::lost;
use super::owner::CLASSES;
use super::requests::Open;

/// Slowest requests kept.
const SLOWEST: usize = 5;
/// Name of all methods beyond the limit.
const OTHER_METHODS: &str = "other";
/// Methods told apart; the requests of more count as `other`.
const MAX_METHODS: usize = 64;
/// The smallest latency bucket ends at 2^this nanoseconds...
const FIRST_BUCKET: u32 = 10;
/// ...each doubling from there on is divided into 2^this, so that a quantile is off by 6 % at
/// most...
const PARTS: u32 = 4;
/// ...and the largest begins at 2^this: it is for more than half an hour.
const LAST_BUCKET: u32 = 41;
const BUCKETS: usize = 2 + (((LAST_BUCKET - FIRST_BUCKET) as usize) << PARTS);
/// Longer requests count as this long: one hour.
const MAX_REQUEST_NS: u64 = 3_600_000_000_000;

/// Totals of one store's requests.
#[derive(Debug, Default)]
pub(super) struct StoreTotals {
    /// Its name; empty: unknown.
    pub(super) name: String,
    methods: BTreeMap<Cow<'static, str>, MethodTotals>,
    /// Slowest first.
    slowest: Vec<SlowRequest>,
    /// Nanoseconds that its requests lost, by class of the others.
    lost: [u64; CLASSES],
    /// Requests that may have lost more.
    lost_at_least: u64,
}

#[derive(Debug)]
struct MethodTotals {
    count: u64,
    errors: u64,
    bytes: u64,
    total_ns: u64,
    block_requests: u64,
    stages: [u64; STAGES.len()],
    latency: Histogram<u64>,
    buckets: Box<[u64; BUCKETS]>,
}

impl Default for MethodTotals {
    fn default() -> MethodTotals {
        MethodTotals {
            count: 0,
            errors: 0,
            bytes: 0,
            total_ns: 0,
            block_requests: 0,
            stages: [0; STAGES.len()],
            latency: histogram(MAX_REQUEST_NS),
            buckets: Box::new([0; BUCKETS]),
        }
    }
}

impl StoreTotals {
    pub(super) fn add(&mut self, ended: &EndedRequest, open: &Open, stages: &[u64; STAGES.len()]) {
        let known = self.methods.contains_key(&ended.method);
        let method = if known || self.methods.len() < MAX_METHODS {
            ended.method.clone()
        } else {
            OTHER_METHODS.into()
        };
        let method = self.methods.entry(method).or_default();
        let total_ns = ended.total_ns();
        method.count += 1;
        method.errors += u64::from(!ended.ok);
        method.bytes = method.bytes.saturating_add(ended.bytes);
        method.total_ns = method.total_ns.saturating_add(total_ns);
        method.block_requests += u64::from(open.count);
        method.latency.saturating_record(total_ns);
        method.buckets[bucket_of(total_ns)] += 1;
        for (sum, stage) in method.stages.iter_mut().zip(stages) {
            *sum = sum.saturating_add(*stage);
        }
    }

    /// Counts what one request lost. `at_least`: it may be more.
    pub(super) fn add_lost(&mut self, by_class: &[u64; CLASSES], at_least: bool) {
        self.lost_at_least += u64::from(at_least);
        for (sum, ns) in self.lost.iter_mut().zip(by_class) {
            *sum = sum.saturating_add(*ns);
        }
    }

    /// Adds what its requests lost.
    pub(super) fn tell_lost(&self, block: &mut BlockReport) {
        block.lost = lost::report(&self.lost);
        block.lost_gaps = self.lost_at_least;
    }

    pub(super) fn is_slow(&self, ended: &EndedRequest) -> bool {
        let total_ns = ended.total_ns();
        self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|s| s.total_ns < total_ns)
    }

    pub(super) fn add_slow(&mut self, slow: SlowRequest) {
        let at = self
            .slowest
            .partition_point(|s| s.total_ns >= slow.total_ns);
        self.slowest.insert(at, slow);
        self.slowest.truncate(SLOWEST);
    }

    pub(super) fn slowest(&self) -> Vec<SlowRequest> {
        self.slowest.clone()
    }

    pub(super) fn find_slow(&self, request: u64) -> Option<&SlowRequest> {
        let mut all = self.slowest.iter();
        all.find(|slow| slow.request_id == request)
    }

    /// As [`ExplainedRequests::add_gap`](super::kept::ExplainedRequests::add_gap).
    pub(super) fn add_gap(&mut self, request: u64) {
        let mut all = self.slowest.iter_mut();
        if let Some(slow) = all.find(|slow| slow.request_id == request) {
            note(slow, FOUND_LATER);
        }
    }

    pub(super) fn operations(&self) -> Vec<OperationReport> {
        let report = |(name, m): (&Cow<str>, &MethodTotals)| OperationReport {
            method: name.to_string(),
            count: m.count,
            errors: m.errors,
            bytes: m.bytes,
            total_ns: m.total_ns,
            p50_ns: m.latency.value_at_quantile(0.5),
            p90_ns: m.latency.value_at_quantile(0.9),
            p95_ns: m.latency.value_at_quantile(0.95),
            p99_ns: m.latency.value_at_quantile(0.99),
            stages: stage_times(&m.stages),
            block_requests: m.block_requests,
            latency: m.latency_buckets(),
        };
        self.methods.iter().map(report).collect()
    }
}

impl MethodTotals {
    fn latency_buckets(&self) -> Vec<Bucket> {
        let all = (0..BUCKETS).zip(*self.buckets);
        let filled = all.filter(|(_, count)| *count > 0);
        filled
            .map(|(number, count)| Bucket {
                from: if number == 0 { 0 } else { edge(number - 1) },
                to: if number + 1 == BUCKETS {
                    u64::MAX
                } else {
                    edge(number)
                },
                count,
            })
            .collect()
    }
}

/// Nanoseconds at which a latency bucket ends and the next begins.
fn edge(number: usize) -> u64 {
    let (doubling, part) = (number >> PARTS, number & ((1 << PARTS) - 1));
    let begin = (1 << FIRST_BUCKET) << doubling;
    begin + (begin >> PARTS) * u64::try_from(part).unwrap_or(0)
}

/// Number of the latency bucket of a time.
fn bucket_of(ns: u64) -> usize {
    let Some(doubling) = ns.checked_ilog2().and_then(|n| n.checked_sub(FIRST_BUCKET)) else {
        return 0;
    };
    let part = (ns >> (doubling + FIRST_BUCKET - PARTS)) & ((1 << PARTS) - 1);
    let number = 1 + (u64::from(doubling) << PARTS) + part;
    usize::try_from(number).map_or(BUCKETS - 1, |number| number.min(BUCKETS - 1))
}

pub(super) fn stage_times(stages: &[u64; STAGES.len()]) -> Vec<StageTime> {
    let pairs = STAGES.iter().zip(stages);
    pairs
        .map(|(stage, ns)| StageTime {
            stage: (*stage).to_owned(),
            total_ns: *ns,
        })
        .collect()
}

/// A histogram of three significant digits up to `max`.
pub(super) fn histogram(max: u64) -> Histogram<u64> {
    Histogram::new_with_bounds(1, max, 3).expect("constant bounds and digits are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_whose_edges_hold_it() {
        let all = [0, 1, 1023, 1024, 2047, 2048, 1 << 41, 1 << 42, u64::MAX - 1];
        for ns in all {
            let mut method = MethodTotals::default();
            method.buckets[bucket_of(ns)] += 1;
            let found = method.latency_buckets();
            assert_eq!(found.len(), 1);
            assert!(
                (found[0].from..found[0].to).contains(&ns),
                "{ns}: {found:?}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!((edge(0), edge(BUCKETS - 2)), (1024, 1 << 41));
        for number in 1..BUCKETS - 1 {
            let (from, to) = (edge(number - 1), edge(number));
            assert!((to - from) * 16 <= from, "{from} to {to}");
            assert_eq!((bucket_of(from), bucket_of(to - 1)), (number, number));
        }
    }
}
