//! The observer: a handle that is cheap to clone.

use std::sync::Arc;
use std::time::Duration;

use crate::api::{DeclaredIo, Finding, ObserverOptions, RequestSummary, StoreObservation};
use crate::report::StoreReport;

/// Watches the disks below the stores. Cheap to clone; every clone is the same observer.
#[derive(Debug, Clone)]
pub struct Observer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: ObserverOptions,
}

impl Observer {
    /// Starts observing. Never fails: what cannot be observed is said by
    /// [`Observer::store_status`].
    #[must_use]
    pub fn start(options: ObserverOptions) -> Observer {
        Observer {
            inner: Arc::new(Inner { options }),
        }
    }

    /// Whether and how a store is observed; `None`: no such store.
    #[must_use]
    pub fn store_status(&self, store: &str) -> Option<StoreObservation> {
        self.inner
            .options
            .stores
            .iter()
            .find(|s| s.name == store)
            .map(|_| StoreObservation {
                why_not: "the probes are not loaded".to_owned(),
                mode: "none".to_owned(),
                ..StoreObservation::default()
            })
    }

    /// Tells of an I/O before its system call. Cheap; any thread.
    pub fn declare(&self, _store: usize, _io: &DeclaredIo<'_>) {}

    /// Tells that the I/O's system call has returned. Cheap; any thread.
    pub fn finish(&self, _store: usize, _token: u64, _end_ns: u64, _ok: bool) {}

    /// Tells of a request that has ended. Cheap; any thread.
    pub fn request_done(&self, _summary: RequestSummary) {}

    /// Waits until everything that ended before this call is in the reports; false: timeout.
    #[must_use]
    pub fn settle(&self, _timeout: Duration) -> bool {
        true
    }

    /// Everything known of a store; `None`: no such store.
    #[must_use]
    pub fn report(&self, store: &str) -> Option<StoreReport> {
        let status = self.store_status(store)?;
        Some(StoreReport {
            store: store.to_owned(),
            not_observed_because: status.why_not,
            ..StoreReport::default()
        })
    }

    /// What of kernel and privileges is there for observing, and what is missing.
    #[must_use]
    pub fn doctor() -> Vec<Finding> {
        Vec::new()
    }

    /// Detaches the probes and ends the background thread. Reports stay readable.
    pub fn shutdown(&self) {}
}
