//! What one store's requests added up to.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::api::STAGES;
use crate::report::{Explained, OperationReport, StageTime};

use super::Ended;
use super::requests::Open;

/// Slowest requests kept.
const SLOWEST: usize = 5;
/// Longer requests count as this long: one hour.
const MAX_REQUEST_NS: u64 = 3_600_000_000_000;

/// What one store's requests added up to.
#[derive(Debug, Default)]
pub(super) struct StoreTotals {
    /// Its name; empty: unknown.
    pub(super) name: String,
    methods: BTreeMap<String, MethodTotals>,
    /// Slowest first.
    slowest: Vec<Explained>,
}

#[derive(Debug)]
struct MethodTotals {
    count: u64,
    errors: u64,
    bytes: u64,
    total_ns: u64,
    block_requests: u64,
    stages: [u64; 8],
    latency: Histogram<u64>,
}

impl StoreTotals {
    pub(super) fn add(&mut self, ended: &Ended, open: &Open, stages: &[u64; 8]) {
        let method = self
            .methods
            .entry(ended.method.clone())
            .or_insert_with(|| MethodTotals {
                count: 0,
                errors: 0,
                bytes: 0,
                total_ns: 0,
                block_requests: 0,
                stages: [0; 8],
                latency: histogram(MAX_REQUEST_NS),
            });
        let total_ns = ended.total_ns();
        method.count += 1;
        method.errors += u64::from(!ended.ok);
        method.bytes = method.bytes.saturating_add(ended.bytes);
        method.total_ns = method.total_ns.saturating_add(total_ns);
        method.block_requests += u64::from(open.count);
        method.latency.saturating_record(total_ns);
        for (sum, stage) in method.stages.iter_mut().zip(stages) {
            *sum = sum.saturating_add(*stage);
        }
    }

    pub(super) fn is_slow(&self, ended: &Ended) -> bool {
        let total_ns = ended.total_ns();
        self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|s| s.total_ns < total_ns)
    }

    pub(super) fn add_slow(&mut self, slow: Explained) {
        let at = self
            .slowest
            .partition_point(|s| s.total_ns >= slow.total_ns);
        self.slowest.insert(at, slow);
        self.slowest.truncate(SLOWEST);
    }

    pub(super) fn slowest(&self) -> Vec<Explained> {
        self.slowest.clone()
    }

    pub(super) fn find_slow(&self, request: u64) -> Option<&Explained> {
        let mut all = self.slowest.iter();
        all.find(|slow| slow.request_id == request)
    }

    pub(super) fn operations(&self) -> Vec<OperationReport> {
        let report = |(name, m): (&String, &MethodTotals)| OperationReport {
            method: name.clone(),
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
        };
        self.methods.iter().map(report).collect()
    }
}

/// Stage times by name.
pub(super) fn stage_times(stages: &[u64; 8]) -> Vec<StageTime> {
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
