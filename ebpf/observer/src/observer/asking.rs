//! Questions to the observer other than a store's report.

use std::time::Duration;

use lumpscope_ebpf_common::control;

use crate::api::{EVERY_EVENT, EventPolicy, PuntedIos, TraceRequest};
use crate::clock::monotonic_ns;
use crate::live::Watch;
use crate::probes::Probes;
use crate::report::{BlockLine, GuardReport, ProbeProgram, SlowRequest, TracedRequest};
use crate::submission::PUNTED;

use super::{Observer, ObserverState};

const NOT_ATTACHED: &str = "the probes are not attached";

impl Observer {
    /// Explains a request that has ended; `None`: it is not, or no longer, known. The slowest
    /// requests of the last minutes are kept, and all traced ones for a short while. Call
    /// [`Observer::settle`] before.
    #[must_use]
    pub fn explain(&self, request: u64) -> Option<SlowRequest> {
        let mut core = self.inner.lock_core();
        let store = core.correlator.explain(request)?.store;
        self.audit_now(&mut core, &store);
        core.correlator.explain(request)
    }

    /// How many of the slowest requests to this store are kept; 0: no such store.
    #[must_use]
    pub fn kept(&self, store: &str) -> usize {
        let found = self.inner.find(store);
        found.map_or(0, |(index, _)| {
            self.inner.lock_core().correlator.kept_of(index)
        })
    }

    /// The slowest requests that ended within this time, slowest first; `store`: of this one only;
    /// `failed`: only those that failed.
    #[must_use]
    pub fn slowest(
        &self,
        store: Option<&str>,
        failed: bool,
        within: Duration,
        limit: usize,
    ) -> Vec<SlowRequest> {
        let index = match store {
            None => None,
            Some(name) => match self.inner.find(name) {
                Some((index, _)) => Some(index),
                None => return Vec::new(),
            },
        };
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        let since_ns = monotonic_ns().saturating_sub(within_ns);
        let mut core = self.inner.lock_core();
        match store {
            Some(store) => self.audit_now(&mut core, store),
            None => core.audit_all(),
        }
        core.correlator.slowest(index, failed, since_ns, limit)
    }

    /// Watches completed block requests as they become known. At most `capacity` wait to be taken.
    #[must_use]
    pub fn watch_blocks(&self, filter: TraceRequest, capacity: usize) -> Watch<BlockLine> {
        let mut core = self.inner.lock_core();
        core.correlator.watch_blocks(filter, capacity)
    }

    /// Watches the requests that were given a [`crate::TraceContext`], once their block requests
    /// are known.
    #[must_use]
    pub fn watch_traced(&self, capacity: usize) -> Watch<TracedRequest> {
        self.inner.lock_core().correlator.watch_traced(capacity)
    }

    /// Watches everything that the correlator learns, one JSON object each (see
    /// [`crate::Input`]), beginning with the stores, where they lie now and the I/Os under way:
    /// what is needed to replay. Meanwhile the audits are told every five seconds.
    #[must_use]
    pub fn watch_inputs(&self, capacity: usize) -> Watch<String> {
        self.inner.lock_core().watch_inputs(capacity)
    }

    /// Has the flight recorder, if there is one, write the last minute to a file. `cause`: a word for
    /// its name.
    pub fn keep_last_minute(&self, cause: &str) {
        if let Some(flight) = &mut self.inner.lock_core().flight {
            flight.happened(cause.to_owned(), monotonic_ns());
        }
    }

    /// Changes which block requests the kernel side hands out as events. Attribution, spans and
    /// live views know of no others; histograms and counters go on counting all.
    ///
    /// # Errors
    /// Why not, in words: the probes are not attached, or the kernel refused.
    pub fn set_events(&self, policy: EventPolicy) -> Result<(), String> {
        let core = self.inner.lock_core();
        let probes = core.probes.as_ref().ok_or(NOT_ATTACHED)?;
        probes.set_events(policy);
        Ok(())
    }

    /// The event policy in force.
    #[must_use]
    pub fn events(&self) -> EventPolicy {
        let core = self.inner.lock_core();
        let probes = core.probes.as_ref();
        probes.map_or(EVERY_EVENT, Probes::events)
    }

    /// The observer's programs: attached or not, and what they cost.
    #[must_use]
    pub fn programs(&self) -> Vec<ProbeProgram> {
        let core = self.inner.lock_core();
        core.probes.as_ref().map_or_else(Vec::new, Probes::programs)
    }

    /// State and counts of a store's guard; `None`: no such store.
    #[must_use]
    pub fn guard(&self, store: &str) -> Option<GuardReport> {
        let (index, _) = self.inner.find(store)?;
        let mut core = self.inner.lock_core();
        Some(core.guard.report(index).unwrap_or_default())
    }

    /// Tells that this thread is about to hand exactly this I/O to the kernel, in a system call of
    /// its own (a thread of the pread/pwrite pool). What the kernel then does in this thread's name
    /// is checked against it. Cheap; only for threads of this process.
    pub fn entering(&self, store: usize, token: u64) {
        self.inner.submissions.entering(store, token);
    }

    /// Tells that this thread is about to hand I/Os of this store to an io_uring, or to wait for
    /// them, and that the user data of each of its entries is the token. Cheap; only for threads of
    /// this process.
    pub fn drives_ring(&self, store: usize) {
        self.inner.submissions.drives_ring(store);
    }

    /// Tells that the system call has returned. Cheap; the same thread.
    pub fn left(&self) {
        self.inner.submissions.left();
    }

    /// How often a thread could not say for which I/O it entered the kernel, because another one
    /// that was there had the same entry of the table: such an I/O is attributed by its place alone.
    #[must_use]
    pub fn submissions_refused(&self) -> u64 {
        self.inner.submissions.refused()
    }

    /// I/Os that the service's io_urings handed to workers of the kernel; `None`: they are not counted.
    #[must_use]
    pub fn punted(&self) -> Option<PuntedIos> {
        let core = self.inner.lock_core();
        let probes = core
            .probes
            .as_ref()
            .filter(|p| p.sees(|hook| hook.tracepoint == PUNTED))?;
        Some(PuntedIos {
            flushes: probes.control.get(control::PUNTED_FLUSHES),
            data: probes.control.get(control::PUNTED_DATA),
            unknown: probes.control.get(control::PUNTED_UNKNOWN),
        })
    }

    /// Has the correlator know how far the events of a store's disk can be trusted now.
    fn audit_now(&self, core: &mut ObserverState, store: &str) {
        let found = self.inner.find(store);
        if let Some(target) = found.and_then(|(_, store)| store.target) {
            core.audit_one(target.placement.dev);
        }
    }
}
