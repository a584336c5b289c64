//! The service's own counts: requests, their durations and codes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lumpscope_proto::code_name;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{
    Histogram, NativeHistogramConfig, exponential_buckets,
};
use tonic::Code;

/// Values of the labels of one series, with the labels' names.
type Labels = Vec<(&'static str, String)>;

/// Link from a bucket to a trace.
type Exemplar = [(&'static str, String); 1];

/// Classic buckets of durations: 100 microseconds to 52 seconds, each twice the one before.
fn classic() -> impl Iterator<Item = f64> {
    exponential_buckets(1e-4, 2.0, 20)
}

/// Most native buckets of a series; the resolution is halved when more would be needed. They reach
/// over 20 doublings: from microseconds to seconds.
const NATIVE_BUCKETS: usize = 160;

/// Native buckets of durations: each ends 9 % above the one before.
fn native() -> NativeHistogramConfig {
    NativeHistogramConfig::with_schema(3).max_buckets(NATIVE_BUCKETS)
}

/// Counts requests.
///
/// Durations are counted twice, because the library has exemplars only without native buckets: the
/// text form shows `duration`, the protobuf form `native` with the exemplars of `duration`. Each is
/// complete and consistent in itself.
#[derive(Debug)]
pub struct RequestMetrics {
    in_progress: AtomicI64,
    /// Methods that have a series: those of gRPC and of every other protocol served.
    methods: Mutex<BTreeSet<&'static str>>,
    pub(super) requests: Family<Labels, Counter>,
    pub(super) duration: Family<Labels, HistogramWithExemplars<Exemplar>>,
    pub(super) native: Family<Labels, Histogram>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            in_progress: AtomicI64::new(0),
            methods: Mutex::default(),
            requests: Family::default(),
            duration: Family::new_with_constructor(|| HistogramWithExemplars::new(classic())),
            native: Family::new_with_constructor(|| {
                Histogram::new_classic_and_native(classic(), native())
            }),
        }
    }
}

impl RequestMetrics {
    /// A request has begun.
    pub fn begun(&self) {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
    }

    /// A request has ended. `store` is absent when it named none that exists, `trace` when it is
    /// not exported.
    pub fn ended(
        &self,
        store: Option<&str>,
        method: &'static str,
        code: Code,
        duration: Duration,
        trace: Option<u128>,
    ) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        let mut labels = vec![
            ("store", store.unwrap_or_default().to_owned()),
            ("method", method.to_owned()),
        ];
        let exemplar = trace.map(|trace| [("trace_id", format!("{trace:032x}"))]);
        let when = exemplar.is_some().then(SystemTime::now);
        let took = duration.as_secs_f64();
        if self.native.get(&labels).is_none() {
            self.methods().insert(method);
        }
        self.duration
            .get_or_create(&labels)
            .observe(took, exemplar, when);
        self.native.get_or_create(&labels).observe(took);
        labels.push(("code", code_name(code).to_owned()));
        self.requests.get_or_create(&labels).inc();
    }
}

/// All codes.
const CODES: i32 = 17;

impl RequestMetrics {
    /// Forgets the series of a store that was taken out.
    pub fn forget(&self, store: &str) {
        for method in self.methods().iter() {
            let mut labels = vec![
                ("store", store.to_owned()),
                ("method", (*method).to_owned()),
            ];
            self.duration.remove(&labels);
            self.native.remove(&labels);
            for code in 0..CODES {
                let name = code_name(Code::from_i32(code)).to_owned();
                labels.truncate(2);
                labels.push(("code", name));
                self.requests.remove(&labels);
            }
        }
    }

    fn methods(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.methods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that have begun and not ended.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        u64::try_from(self.in_progress.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_was_taken_out_leaves_no_series_of_any_protocol() {
        let metrics = RequestMetrics::default();
        let series = [("a", "put"), ("a", "s3_get_object"), ("b", "s3_get_object")];
        for (store, method) in series {
            metrics.begun();
            metrics.ended(
                Some(store),
                method,
                Code::Ok,
                Duration::from_millis(1),
                None,
            );
        }
        let kept = || {
            series.map(|(store, method)| {
                let mut labels = vec![("store", store.to_owned()), ("method", method.to_owned())];
                let durations = [
                    metrics.duration.get(&labels).is_some(),
                    metrics.native.get(&labels).is_some(),
                ];
                labels.push(("code", code_name(Code::Ok).to_owned()));
                (durations, metrics.requests.get(&labels).is_some())
            })
        };
        assert_eq!(kept(), [([true; 2], true); 3]);
        metrics.forget("a");
        let gone = ([false; 2], false);
        assert_eq!(kept(), [gone, gone, ([true; 2], true)]);
    }
}
