//! The observer: a handle that is cheap to clone, and the thread behind it.
//!
//! Callers only push to a queue. Every 10 ms the thread drains the ring, takes the queue and
//! feeds both to the [`Correlator`]. The kernel side never wakes anybody up: the wake-up is what
//! observation would cost.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use lumpscope_ebpf_common::MAX_DEVICES;

use crate::api::{DeclaredIo, Finding, ObserverOptions, RequestSummary, StoreObservation};
use crate::audit::WatchedDisk;
use crate::clock::monotonic_ns;
use crate::correlate::{Correlator, Declared, Input};
use crate::device::{self, Target};
use crate::event::Event;
use crate::heat;
use crate::probes::Probes;
use crate::report::{AuditReport, HeatCell, StoreReport};

/// How often the ring is drained.
const PERIOD: Duration = Duration::from_millis(10);
/// A program that is just running has taken its time already but not yet handed out its event.
const MARGIN_NS: u64 = 1_000_000;
/// What callers can queue while nobody takes it; more is dropped and counted.
const MAX_QUEUED: usize = 1 << 20;
/// Events taken in one go, so that reports are not kept waiting.
const MAX_BATCH: usize = 1 << 18;
/// Kernel-side entries without an end are forgotten after this time; looked for this often.
const FORGET_NS: u64 = 60_000_000_000;

/// Watches the disks below the stores. Cheap to clone; every clone is the same observer. When the
/// last is dropped the probes are detached.
#[derive(Debug, Clone)]
pub struct Observer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    stores: Vec<Store>,
    paused: bool,
    stopped: AtomicBool,
    queue: Mutex<Vec<Input>>,
    dropped: AtomicU64,
    core: Mutex<Core>,
}

#[derive(Debug)]
struct Store {
    name: String,
    path: std::path::PathBuf,
    status: StoreObservation,
    target: Option<Target>,
}

/// What the thread works on.
#[derive(Debug)]
struct Core {
    probes: Option<Probes>,
    disks: Vec<WatchedDisk>,
    correlator: Correlator,
    recorder: Option<BufWriter<File>>,
    drained_ns: u64,
    forgot_ns: u64,
    /// Last audit and heat of each disk, kept after the probes were detached.
    kept: Vec<(u32, AuditReport, Vec<HeatCell>)>,
}

impl Observer {
    /// Starts observing. Never fails: what cannot be observed is said by
    /// [`Observer::store_status`].
    #[must_use]
    pub fn start(options: ObserverOptions) -> Observer {
        let mut core = Core {
            probes: None,
            disks: Vec::new(),
            correlator: Correlator::new(options.stores.len()),
            recorder: options.tuning.record.as_deref().and_then(open_recorder),
            drained_ns: 0,
            forgot_ns: monotonic_ns(),
            kept: Vec::new(),
        };
        let stores = core.watch(&options);
        let inner = Arc::new(Inner {
            stores,
            paused: options.tuning.paused,
            stopped: AtomicBool::new(false),
            queue: Mutex::new(Vec::new()),
            dropped: AtomicU64::new(0),
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
        self.inner
            .stores
            .iter()
            .find(|s| s.name == store)
            .map(|s| s.status.clone())
    }

    /// Tells of an I/O before its system call. Cheap; any thread.
    pub fn declare(&self, store: usize, io: &DeclaredIo<'_>) {
        if !self
            .inner
            .stores
            .get(store)
            .is_some_and(|s| s.status.observed)
        {
            return;
        }
        self.inner.push(Input::Declared(Declared {
            store,
            token: io.token,
            requests: io.requests.to_vec(),
            purpose: io.purpose,
            op: io.op,
            offset: io.offset,
            len: io.len,
            begin_ns: io.begin_ns,
        }));
    }

    /// Tells that the I/O's system call has returned. Cheap; any thread.
    pub fn finish(&self, store: usize, token: u64, end_ns: u64, _ok: bool) {
        if self
            .inner
            .stores
            .get(store)
            .is_some_and(|s| s.status.observed)
        {
            self.inner.push(Input::Finished {
                store,
                token,
                end_ns,
            });
        }
    }

    /// Tells of a request that has ended. Cheap; any thread.
    pub fn request_done(&self, summary: RequestSummary) {
        self.inner.push(Input::Ended(summary.into()));
    }

    /// Waits until everything that ended before this call is in the reports; false: timeout.
    #[must_use]
    pub fn settle(&self, timeout: Duration) -> bool {
        let (wanted, begin) = (monotonic_ns(), Instant::now());
        loop {
            let mut core = self.inner.lock_core();
            core.pump(&self.inner);
            if core.drained_ns >= wanted {
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
    #[must_use]
    pub fn report(&self, store: &str) -> Option<StoreReport> {
        let index = self.inner.stores.iter().position(|s| s.name == store)?;
        let store = &self.inner.stores[index];
        let mut report = StoreReport {
            store: store.name.clone(),
            device: store.status.device.clone().unwrap_or_default(),
            observed: store.status.observed,
            not_observed_because: store.status.why_not.clone(),
            ..StoreReport::default()
        };
        let core = self.inner.lock_core();
        core.correlator.fill(index, &mut report);
        let dev = store.target.as_ref().map(|target| target.placement.dev);
        match dev.and_then(|dev| core.audit_and_heat(dev)) {
            Some((audit, heat)) => (report.audit, report.heat) = (audit, heat),
            None => report.audit.finding = format!("not observed: {}", store.status.why_not),
        }
        self.inner.add_limits(&core, &mut report.audit);
        Some(report)
    }

    /// What of kernel and privileges is there for observing, and what is missing.
    #[must_use]
    pub fn doctor() -> Vec<Finding> {
        crate::doctor::findings()
    }

    /// Detaches the probes and ends the background thread. Reports stay readable.
    pub fn shutdown(&self) {
        self.inner.stopped.store(true, Ordering::Relaxed);
        let mut core = self.inner.lock_core();
        core.pump(&self.inner);
        let devs: Vec<u32> = core.disks.iter().map(|disk| disk.dev).collect();
        let kept = devs.into_iter().filter_map(|dev| {
            let (audit, heat) = core.audit_and_heat(dev)?;
            Some((dev, audit, heat))
        });
        let kept: Vec<_> = kept.collect();
        core.kept = kept;
        core.probes = None;
        if let Some(mut recorder) = core.recorder.take()
            && let Err(error) = recorder.flush()
        {
            tracing::warn!(%error, "the recording is incomplete");
        }
    }
}

impl Inner {
    fn push(&self, input: Input) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= MAX_QUEUED || self.stopped.load(Ordering::Relaxed) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.push(input);
    }

    fn lock_core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What fell out of user space's own bounds makes a report incomplete too.
    fn add_limits(&self, core: &Core, audit: &mut AuditReport) {
        let limits = core.correlator.limits();
        let dropped = self.dropped.load(Ordering::Relaxed);
        let fallen = dropped + limits.declared_dropped + limits.requests_dropped;
        if fallen > 0 && !self.stopped.load(Ordering::Relaxed) {
            audit.complete = false;
            audit.finding = format!("{}; {fallen} declarations did not fit", audit.finding);
        }
    }
}

impl Core {
    /// Finds the stores' disks, attaches the probes and arms the disks.
    fn watch(&mut self, options: &ObserverOptions) -> Vec<Store> {
        let resolved: Vec<_> = options
            .stores
            .iter()
            .map(|s| device::resolve(&s.path).map_err(|e| e.to_string()))
            .collect();
        let why_no_probes = if !options.enabled {
            Some("the probes are switched off".to_owned())
        } else if resolved.iter().all(Result::is_err) {
            None
        } else {
            self.attach(options, resolved.iter().flatten())
        };
        let mode = self
            .probes
            .as_ref()
            .map_or("none", |probes| probes.flavour.name());
        let mut stores = Vec::new();
        for (index, (watched, target)) in options.stores.iter().zip(resolved).enumerate() {
            let mut status = StoreObservation {
                mode: mode.to_owned(),
                ..Default::default()
            };
            if let Ok(target) = &target {
                status.device = Some(target.disk.clone());
                status.devno = Some(target.devno);
            }
            status.why_not = match (&why_no_probes, &target) {
                (Some(why), _) => why.clone(),
                (None, Err(why)) => why.clone(),
                (None, Ok(target)) => self.arm(target).err().unwrap_or_default(),
            };
            status.observed = status.why_not.is_empty();
            if !status.observed {
                status.mode = "none".to_owned();
                // Whoever started the observer says so, with what follows from it.
                tracing::debug!(store = watched.name, why = status.why_not, "not observed");
            }
            let target = target.ok();
            if let (true, Some(target)) = (status.observed, &target) {
                self.learn(Input::Placed {
                    store: index,
                    placement: target.placement.clone(),
                });
            }
            stores.push(Store {
                name: watched.name.clone(),
                path: watched.path.clone(),
                status,
                target,
            });
        }
        stores
    }

    /// Attaches the probes; returns why not.
    fn attach<'a>(
        &mut self,
        options: &ObserverOptions,
        targets: impl Iterator<Item = &'a Target>,
    ) -> Option<String> {
        let mut devs: Vec<u32> = targets.map(|target| target.placement.dev).collect();
        devs.sort_unstable();
        devs.dedup();
        let count = u32::try_from(devs.len()).unwrap_or(u32::MAX);
        match Probes::attach(&options.object, &options.tuning, count) {
            Ok(probes) => {
                self.probes = Some(probes);
                None
            }
            Err(error) => Some(format!("{error}; `lumpscope doctor` says how to get it")),
        }
    }

    /// Watches a store's disk, once; an error says why not.
    fn arm(&mut self, target: &Target) -> Result<(), String> {
        let dev = target.placement.dev;
        if self.disks.iter().any(|disk| disk.dev == dev) {
            return Ok(());
        }
        let slot = u32::try_from(self.disks.len()).unwrap_or(u32::MAX);
        if slot >= MAX_DEVICES {
            return Err(format!("more than {MAX_DEVICES} disks are watched already"));
        }
        let probes = self.probes.as_mut().ok_or("the probes are not attached")?;
        let disk = WatchedDisk::arm(probes, &target.disk, dev, slot)
            .map_err(|error| format!("cannot watch {}: {error}", target.disk))?;
        self.disks.push(disk);
        Ok(())
    }

    /// Takes everything there is and correlates it.
    fn pump(&mut self, inner: &Inner) {
        let until_ns = monotonic_ns().saturating_sub(MARGIN_NS);
        let mut events = Vec::new();
        if let Some(probes) = &mut self.probes {
            while events.len() < MAX_BATCH
                && let Some(event) = probes.next_event()
            {
                events.push(Event::from(&event));
            }
        }
        // After the events: an I/O is declared before its block requests are made.
        let told = std::mem::take(&mut *inner.queue.lock().unwrap_or_else(PoisonError::into_inner));
        let all = events.len() < MAX_BATCH;
        for input in told {
            self.learn(input);
        }
        for event in events {
            self.learn(Input::Event(event));
        }
        if self.correlator.take_stale() {
            self.place_files(&inner.stores);
        }
        if all {
            self.learn(Input::Drained { until_ns });
            self.drained_ns = until_ns;
        }
        self.forget(until_ns);
    }

    fn learn(&mut self, input: Input) {
        let marks_time = matches!(input, Input::Drained { .. });
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = write_line(recorder, &input, marks_time)
        {
            tracing::warn!(%error, "recording ends here");
            self.recorder = None;
        }
        self.correlator.apply(input);
    }

    /// Asks the file systems again where the files lie.
    fn place_files(&mut self, stores: &[Store]) {
        for (index, store) in stores.iter().enumerate() {
            let Some(target) = store.target.as_ref().filter(|target| target.is_file) else {
                continue;
            };
            if !store.status.observed {
                continue;
            }
            match device::place(&store.path, target) {
                Ok(extents) => {
                    let placement = crate::extents::Placement {
                        extents,
                        ..target.placement.clone()
                    };
                    self.learn(Input::Placed {
                        store: index,
                        placement,
                    });
                }
                Err(error) => tracing::warn!(%error, "the file's place cannot be read again"),
            }
        }
    }

    /// Cleans the kernel side's table of requests that were merged away or whose completion was
    /// missed.
    fn forget(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.forgot_ns) < FORGET_NS {
            return;
        }
        self.forgot_ns = now_ns;
        if let Some(probes) = &mut self.probes {
            let gone = probes.forget_older(now_ns.saturating_sub(FORGET_NS));
            tracing::debug!(gone, "forgot requests without an end");
        }
    }

    fn audit_and_heat(&self, dev: u32) -> Option<(AuditReport, Vec<HeatCell>)> {
        let Some(probes) = &self.probes else {
            let kept = self.kept.iter().find(|(kept, ..)| *kept == dev)?;
            return Some((kept.1.clone(), kept.2.clone()));
        };
        let disk = self.disks.iter().find(|disk| disk.dev == dev)?;
        let heat = heat::cells(disk.slot, |index| probes.cell(index));
        Some((disk.audit(probes), heat))
    }
}

/// The background thread.
fn run(weak: &Weak<Inner>) {
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

fn open_recorder(path: &std::path::Path) -> Option<BufWriter<File>> {
    match File::create(path) {
        Ok(file) => Some(BufWriter::new(file)),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "nothing is recorded");
            None
        }
    }
}

fn write_line(to: &mut BufWriter<File>, input: &Input, flush: bool) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, input)?;
    to.write_all(b"\n")?;
    if flush { to.flush() } else { Ok(()) }
}
