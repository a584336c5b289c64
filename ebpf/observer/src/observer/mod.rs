//! The observer: a handle that is cheap to clone, and the thread behind it.
//!
//! Callers only push to a queue. Every 50 ms the thread drains the ring, takes the queue and
//! feeds both to the [`Correlator`]. The kernel side never wakes anybody up: the wake-up is what
//! observation would cost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Finding, ObserverOptions, StoreObservation, WatchedStore};
use crate::audit::look;
use crate::clock::monotonic_ns;
use crate::correlate::{Declared, EndedRequest, Input};
use crate::report::{AuditReport, StoreReport};
use crate::submission::Submissions;

use state::{DiskCounts, ObservedStore, ObserverState};

mod asking;
mod flight;
mod recording;
mod state;
mod watching;

/// How often the ring is drained. Each time costs a wake-up and cold caches, however little there
/// is; the ring holds what 100,000 requests leave.
const PERIOD: Duration = Duration::from_millis(50);
/// Inputs that callers can queue between two drains; more are dropped and counted.
const MAX_QUEUED: usize = 1 << 20;
/// Watches the disks below the stores. Cheap to clone; every clone is the same observer. When the
/// last is dropped the probes are detached.
#[derive(Debug, Clone)]
pub struct Observer {
    inner: Arc<ObserverShared>,
}

#[derive(Debug)]
struct ObserverShared {
    /// By index; `None`: the store is gone. An index is never given to another store, because
    /// what was told of the one before may still be under way.
    stores: RwLock<Vec<Option<ObservedStore>>>,
    paused: bool,
    stopped: AtomicBool,
    queue: Mutex<Vec<Input>>,
    dropped: AtomicU64,
    submissions: Arc<Submissions>,
    core: Mutex<ObserverState>,
}

impl Observer {
    /// Starts observing. Never fails: what cannot be observed is said by
    /// [`Observer::store_status`].
    #[must_use]
    pub fn start(options: ObserverOptions) -> Observer {
        let mut core = ObserverState::new(&options);
        for (store, watched) in options.stores.iter().enumerate() {
            let name = watched.name.clone();
            core.learn(Input::Added { store, name });
        }
        let stores = core.watch(&options.stores);
        let inner = Arc::new(ObserverShared {
            stores: RwLock::new(stores.into_iter().map(Some).collect()),
            paused: options.tuning.paused,
            stopped: AtomicBool::new(false),
            queue: Mutex::new(Vec::new()),
            dropped: AtomicU64::new(0),
            submissions: Arc::clone(&core.submissions),
            core: Mutex::new(core),
        });
        let weak = Arc::downgrade(&inner);
        let named = thread::Builder::new().name("observer".to_owned());
        if let Err(error) = named.spawn(move || run(&weak)) {
            tracing::warn!(%error, "the observer's thread cannot be started: reports need settle");
        }
        Observer { inner }
    }

    /// Whether and how a store is observed; `None`: no such store.
    #[must_use]
    pub fn store_status(&self, store: &str) -> Option<StoreObservation> {
        self.inner.find(store).map(|(_, found)| found.status)
    }

    /// Watches the disk below one more store; its index, for all later calls. Blocks while the
    /// probes are attached, if they were not before. Never fails: what cannot be observed is said
    /// by [`Observer::store_status`].
    #[must_use]
    pub fn add_store(&self, store: WatchedStore) -> usize {
        let mut core = self.inner.lock_core();
        core.pump(&self.inner);
        let index = self.inner.stores().len();
        core.learn(Input::Added {
            store: index,
            name: store.name.clone(),
        });
        let watched = core.watch_more(index, &store);
        let mut stores = self
            .inner
            .stores
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        stores.push(Some(watched));
        index
    }

    /// Forgets a store and everything known of it. Its disk is no longer watched, unless another
    /// store is on it. What is still told of it is ignored.
    pub fn remove_store(&self, store: usize) {
        let mut core = self.inner.lock_core();
        core.pump(&self.inner);
        let mut stores = self
            .inner
            .stores
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(gone) = stores.get_mut(store).and_then(Option::take) else {
            return;
        };
        let dev_of = |s: &ObservedStore| s.target.as_ref().map(|target| target.placement.dev);
        let shared = stores.iter().flatten().any(|s| dev_of(s) == dev_of(&gone));
        drop(stores);
        core.hurry_flight(store);
        core.learn(Input::Removed { store });
        core.guard.disarm(store);
        if let (Some(dev), false) = (dev_of(&gone), shared) {
            core.release(dev);
        }
    }

    /// Tells of an I/O before its system call. Cheap; any thread.
    pub fn declare(&self, io: Declared) {
        if self.inner.observes(io.store) {
            self.inner.push(Input::Declared(io));
        }
    }

    /// Tells that the I/O's system call has returned. Cheap; any thread.
    pub fn finish(&self, store: usize, token: u64, end_ns: u64, _ok: bool) {
        if self.inner.observes(store) {
            self.inner.push(Input::Finished {
                store,
                token,
                end_ns,
            });
        }
    }

    /// Tells of a request that has ended. Cheap; any thread.
    pub fn request_done(&self, ended: EndedRequest) {
        self.inner.push(Input::Ended(ended));
    }

    /// Waits until everything that ended before this call is in the reports; false: timeout.
    #[must_use]
    pub fn settle(&self, timeout: Duration) -> bool {
        let (wanted, begin) = (monotonic_ns(), Instant::now());
        loop {
            let mut core = self.inner.lock_core();
            core.pump(&self.inner);
            if core.drained_ns >= wanted && !core.correlator.holds_back(wanted) {
                return true;
            }
            drop(core);
            if begin.elapsed() >= timeout {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Everything known of a store; `None`: no such store. Call [`Observer::settle`] before, to
    /// have in it what has just ended.
    ///
    /// Looks for completions that no program was shown and for a moment in which the disk is idle,
    /// which takes up to 40 ms while the disk is busy. Others have their turns meanwhile.
    #[must_use]
    pub fn report(&self, store: &str) -> Option<StoreReport> {
        let (index, store) = self.inner.find(store)?;
        self.find_late(store.dev());
        Some(self.at_rest(store.dev(), |core| self.report_of(core, index, &store)))
    }

    /// Finds the completions of a disk that no program was shown, in short looks.
    fn find_late(&self, dev: Option<u32>) {
        let Some(dev) = dev else { return };
        look(|| {
            let missing = self.inner.lock_core().look_for_late(|disk| disk.dev == dev);
            (!missing).then_some(())
        });
    }

    /// Shows the core at a moment in which the disk is idle, if there is one within 20 ms.
    fn at_rest<T>(&self, dev: Option<u32>, see: impl FnOnce(&ObserverState) -> T) -> T {
        let idle = look(|| {
            let core = self.inner.lock_core();
            dev.is_none_or(|dev| core.is_idle(dev)).then_some(core)
        });
        see(&idle.unwrap_or_else(|| self.inner.lock_core()))
    }

    /// As [`Observer::report`], for those who ask every second: on a busy disk it waits for nothing,
    /// so the two counts of its audit may differ by what is under way. Only when completions are
    /// missing they are looked for, for up to 20 ms.
    #[must_use]
    pub fn glance(&self, store: &str) -> Option<StoreReport> {
        let (index, store) = self.inner.find(store)?;
        let mut core = self.inner.lock_core();
        core.pump(&self.inner);
        if let Some(dev) = store.dev().filter(|dev| core.is_missing(*dev)) {
            drop(core);
            self.find_late(Some(dev));
            core = self.inner.lock_core();
        }
        Some(self.report_of(&core, index, &store))
    }

    /// The audit alone of [`Observer::report`], as thorough; `None`: no such store.
    #[must_use]
    pub fn audit(&self, store: &str) -> Option<AuditReport> {
        let (index, store) = self.inner.find(store)?;
        let dev = store.dev();
        self.find_late(dev);
        Some(self.at_rest(dev, |core| {
            let mut audit = dev
                .and_then(|dev| core.audit(dev))
                .unwrap_or_else(|| not_audited(&store));
            core.correlator.tell_checks(index, &mut audit);
            self.inner.add_limits(core, &mut audit);
            audit
        }))
    }

    fn report_of(&self, core: &ObserverState, index: usize, store: &ObservedStore) -> StoreReport {
        let mut report = StoreReport {
            store: store.name.clone(),
            device: store.status.device.clone().unwrap_or_default(),
            observed: store.status.observed,
            not_observed_because: store.status.why_not.clone(),
            ..StoreReport::default()
        };
        match store.dev().and_then(|dev| core.counted(dev)) {
            Some(counted) => {
                report.heat = counted.cells.heat();
                report.shapes = counted.cells.shapes();
                report.flagged = counted.cells.flagged();
                report.in_flight = counted.in_flight;
                report.audit = counted.audit;
            }
            None => report.audit = not_audited(store),
        }
        core.correlator.fill(index, &mut report);
        self.inner.add_limits(core, &mut report.audit);
        report
    }

    /// Checks kernel and privileges for everything that observation needs.
    #[must_use]
    pub fn doctor() -> Vec<Finding> {
        crate::doctor::findings()
    }

    /// Detaches the probes and ends the background thread. Reports stay readable.
    pub fn shutdown(&self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
        let mut core = self.inner.lock_core();
        core.pump(&self.inner);
        core.audit_all();
        let devs: Vec<u32> = core.disks.iter().map(|disk| disk.dev).collect();
        let kept = devs.into_iter().filter_map(|dev| {
            core.wait_for_rest(dev);
            let counted = core.counted(dev)?;
            let in_flight = Default::default();
            Some((
                dev,
                DiskCounts {
                    in_flight,
                    ..counted
                },
            ))
        });
        let kept: Vec<_> = kept.collect();
        core.kept = kept;
        core.submissions.connect(None);
        core.probes = None;
        core.guard.end();
        core.recording.close();
    }
}

impl ObserverShared {
    fn push(&self, input: Input) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= MAX_QUEUED || self.stopped.load(Ordering::Relaxed) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.push(input);
    }

    fn stores(&self) -> RwLockReadGuard<'_, Vec<Option<ObservedStore>>> {
        self.stores.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn observes(&self, store: usize) -> bool {
        let stores = self.stores();
        let found = stores.get(store).and_then(Option::as_ref);
        found.is_some_and(|s| s.status.observed)
    }

    fn find(&self, name: &str) -> Option<(usize, ObservedStore)> {
        let stores = self.stores();
        let mut known = stores.iter().enumerate();
        known.find_map(|(index, store)| {
            let store = store.as_ref().filter(|s| s.name == name)?;
            Some((index, store.clone()))
        })
    }

    fn lock_core(&self) -> MutexGuard<'_, ObserverState> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops at user space's own bounds make a report incomplete too.
    fn add_limits(&self, core: &ObserverState, audit: &mut AuditReport) {
        let limits = core.correlator.limits();
        if limits.flushes_forgotten > 0 {
            audit.finding = format!(
                "{}; {} flushes and their askers were forgotten too early",
                audit.finding, limits.flushes_forgotten
            );
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        let fallen = dropped + limits.declared_dropped + limits.requests_dropped;
        if fallen > 0 && !self.stopped.load(Ordering::Relaxed) {
            audit.complete = false;
            audit.finding = format!("{}; {fallen} declarations did not fit", audit.finding);
        }
    }
}

/// Of a store whose disk is not watched.
fn not_audited(store: &ObservedStore) -> AuditReport {
    let mut report = AuditReport::default();
    report.told.finding = format!("not observed: {}", store.status.why_not);
    report
}

/// The background thread.
fn run(weak: &Weak<ObserverShared>) {
    loop {
        thread::sleep(PERIOD);
        let Some(inner) = weak.upgrade() else {
            return;
        };
        if inner.stopped.load(Ordering::Relaxed) {
            return;
        }
        if !inner.paused {
            inner.lock_core().pump(&inner);
        }
    }
}
