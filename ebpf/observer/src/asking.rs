//! What can be asked of the observer beside a store's report.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::{BlockFilter, EventPolicy};
use crate::clock::monotonic_ns;
use crate::live::{self, Watch};
use crate::observer::{Core, Observer};
use crate::report::{BlockLine, Explained, GuardReport, ProgramReport};

impl Observer {
    /// Explains a request that has ended; `None`: it is not, or no longer, known. The slowest
    /// requests of the last minutes are kept, and all traced ones for a short while. Call
    /// [`Observer::settle`] before.
    #[must_use]
    pub fn explain(&self, request: u64) -> Option<Explained> {
        let core = self.inner.lock_core();
        let mut explained = core.correlator.explain(request)?;
        let doubt = self.doubt(&core, &explained.store);
        add_doubt(&mut explained, &doubt);
        Some(explained)
    }

    /// The slowest requests that ended within this time, slowest first; `store`: of this one only.
    #[must_use]
    pub fn slowest(&self, store: Option<&str>, within: Duration, limit: usize) -> Vec<Explained> {
        let index = match store {
            None => None,
            Some(name) => match self.inner.find(name) {
                Some((index, _)) => Some(index),
                None => return Vec::new(),
            },
        };
        let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
        let since_ns = monotonic_ns().saturating_sub(within_ns);
        let core = self.inner.lock_core();
        let mut found = core.correlator.slowest(index, since_ns, limit);
        let mut doubts = BTreeMap::new();
        for explained in &mut found {
            let store = explained.store.clone();
            let doubt = doubts
                .entry(store)
                .or_insert_with_key(|store| self.doubt(&core, store));
            add_doubt(explained, doubt);
        }
        found
    }

    /// Watches completed block requests as they become known. At most `capacity` wait to be taken.
    #[must_use]
    pub fn watch_blocks(&self, filter: BlockFilter, capacity: usize) -> Watch<BlockLine> {
        let _ = filter;
        live::watch(capacity).0
    }

    /// Watches the requests that were given a [`crate::TraceContext`], once their block requests
    /// are known.
    #[must_use]
    pub fn watch_traced(&self, capacity: usize) -> Watch<Explained> {
        live::watch(capacity).0
    }

    /// Watches everything that the correlator learns, one JSON object each (see
    /// [`crate::Input`]), beginning with where the stores lie now: what is needed to replay.
    #[must_use]
    pub fn watch_inputs(&self, capacity: usize) -> Watch<String> {
        live::watch(capacity).0
    }

    /// Changes which block requests the kernel side hands out as events. Attribution, spans and
    /// live views know of no others; histograms and counters go on counting all.
    ///
    /// # Errors
    /// Why not, in words: the probes are not attached, or the kernel refused.
    pub fn set_events(&self, policy: EventPolicy) -> Result<(), String> {
        let _ = policy;
        Err("the probes are not attached".to_owned())
    }

    /// The event policy in force.
    #[must_use]
    pub fn events(&self) -> EventPolicy {
        EventPolicy::default()
    }

    /// The observer's programs: attached or not, and what they cost.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramReport> {
        Vec::new()
    }

    /// What the guard of a store does and has done; `None`: no such store.
    #[must_use]
    pub fn guard(&self, store: &str) -> Option<GuardReport> {
        self.store_status(store).map(|_| GuardReport::default())
    }

    /// Tells that this thread is about to hand exactly this I/O to the kernel, in a system call of
    /// its own (a thread of the pread/pwrite pool). What the kernel then does in this thread's name
    /// is checked against it. Cheap; only for threads of this process.
    pub fn entering(&self, store: usize, token: u64) {
        let _ = (store, token);
    }

    /// Tells that the system call has returned.
    pub fn left(&self) {}

    /// Why block requests of a store's disk may be missing, in words; empty: none is, as far as
    /// the audit knows.
    fn doubt(&self, core: &Core, store: &str) -> String {
        let found = self.inner.find(store);
        let target = found.and_then(|(_, store)| store.target);
        let audited = target.and_then(|target| core.audit_and_heat(target.placement.dev));
        match audited {
            Some((audit, _)) if !audit.complete => audit.finding,
            _ => String::new(),
        }
    }
}

/// Adds a doubt to what a request's explanation says of itself.
fn add_doubt(explained: &mut Explained, doubt: &str) {
    if doubt.is_empty() {
        return;
    }
    if !explained.incomplete.is_empty() {
        explained.incomplete.push_str("; ");
    }
    explained.incomplete.push_str(doubt);
}
