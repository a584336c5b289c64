//! What the service counts itself: requests, their durations and codes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use lumpscope_proto::code_name;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::exponential_buckets;
use tonic::Code;

use crate::grpc::methods;

/// Values of the labels of one series, with the labels' names.
pub type Labels = Vec<(&'static str, String)>;

/// What leads from a bucket to a trace.
type Exemplar = [(&'static str, String); 1];

/// Counts requests.
#[derive(Debug)]
pub struct RequestMetrics {
    in_progress: AtomicI64,
    pub(super) requests: Family<Labels, Counter>,
    pub(super) duration: Family<Labels, HistogramWithExemplars<Exemplar>>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            in_progress: AtomicI64::new(0),
            requests: Family::default(),
            // 100 microseconds to 52 seconds, each twice the one before.
            duration: Family::new_with_constructor(|| {
                HistogramWithExemplars::new(exponential_buckets(1e-4, 2.0, 20))
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
        self.duration
            .get_or_create(&labels)
            .observe(duration.as_secs_f64(), exemplar, when);
        labels.push(("code", code_name(code).to_owned()));
        self.requests.get_or_create(&labels).inc();
    }
}

/// All codes.
const CODES: i32 = 17;

impl RequestMetrics {
    /// Forgets the series of a store that was taken out.
    pub fn forget(&self, store: &str) {
        let known = methods::METHODS.iter().map(|method| method.name);
        for method in known.chain([methods::UNKNOWN]) {
            let mut labels = vec![("store", store.to_owned()), ("method", method.to_owned())];
            self.duration.remove(&labels);
            for code in 0..CODES {
                let name = code_name(Code::from_i32(code)).to_owned();
                labels.truncate(2);
                labels.push(("code", name));
                self.requests.remove(&labels);
            }
        }
    }

    /// Requests that have begun and not ended.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        u64::try_from(self.in_progress.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
