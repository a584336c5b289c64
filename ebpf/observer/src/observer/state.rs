//! State of the observer's thread: attached probes, watched disks, the correlator.

use std::sync::{Arc, PoisonError};

use crate::api::{ObserverOptions, StoreObservation};
use crate::audit::{WatchedDisk, look};
use crate::cgroup::Finder;
use crate::clock::{WallClock, monotonic_ns};
use crate::correlate::{Correlator, Input};
use crate::device::{self, StoreDisk};
use crate::event::Event;
use crate::guard::Guard;
use crate::heat::Cells;
use crate::probes::Probes;
use crate::report::{AuditReport, InFlightReport};
use crate::slots::Slots;
use crate::submission::Submissions;

use super::ObserverShared;
use super::flight::Flight;
use super::recording::Recording;
use super::watching::Loading;

/// A program that is just running has taken its time already but not yet handed out its event.
const MARGIN_NS: u64 = 1_000_000;
/// Events taken in one go, so that reports are not kept waiting.
const MAX_BATCH: usize = 1 << 18;
/// Events and inputs whose room is kept from one go to the next: what 50 ms of a fast disk are, and
/// more.
const KEPT_BATCH: usize = 8192;
/// How often completions that no program was shown are looked for.
const LATE_NS: u64 = 500_000_000;
/// Kernel-side entries without an end are forgotten after this time; looked for this often.
const FORGET_NS: u64 = 60_000_000_000;
/// Requests sent to the disk without a completion seen are kept longer: once the disk is idle they
/// are known to have completed.
const FORGET_SENT_NS: u64 = 600_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct ObservedStore {
    pub(super) name: String,
    pub(super) path: std::path::PathBuf,
    pub(super) status: StoreObservation,
    pub(super) target: Option<StoreDisk>,
}

impl ObservedStore {
    /// Its disk; `None`: that is not known.
    pub(super) fn dev(&self) -> Option<u32> {
        self.target.as_ref().map(|target| target.placement.dev)
    }
}

/// A disk's audit and counts.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskCounts {
    pub(super) audit: AuditReport,
    pub(super) cells: Cells,
    pub(super) in_flight: InFlightReport,
}

/// State of the observer's thread.
#[derive(Debug)]
pub(super) struct ObserverState {
    pub(super) loading: Loading,
    pub(super) probes: Option<Probes>,
    pub(super) submissions: Arc<Submissions>,
    pub(super) slots: Slots,
    pub(super) disks: Vec<WatchedDisk>,
    pub(super) guard: Guard,
    pub(super) correlator: Correlator,
    pub(super) recording: Recording,
    pub(super) flight: Option<Flight>,
    pub(super) cgroups: Finder,
    /// When the audits were last told to the correlator.
    pub(super) audited_ns: u64,
    pub(super) drained_ns: u64,
    pub(super) forgot_ns: u64,
    pub(super) looked_ns: u64,
    /// Room for the events of one go; empty between them.
    pub(super) batch: Vec<Event>,
    /// Room for the inputs of one go; empty between them.
    pub(super) told: Vec<Input>,
    /// Last audit and counts of each disk, kept after the probes were detached.
    pub(super) kept: Vec<(u32, DiskCounts)>,
}

impl ObserverState {
    pub(super) fn new(options: &ObserverOptions) -> ObserverState {
        let clock = WallClock::now();
        let mut correlator = Correlator::new(options.stores.len());
        correlator.set_clock(clock);
        ObserverState {
            loading: Loading::new(options),
            probes: None,
            submissions: Arc::default(),
            slots: Slots::default(),
            disks: Vec::new(),
            guard: Guard::new(),
            correlator,
            recording: Recording::to_file(options.tuning.record.as_deref(), clock),
            flight: options.tuning.flight.clone().map(Flight::new),
            cgroups: Finder::new(),
            audited_ns: 0,
            drained_ns: 0,
            forgot_ns: monotonic_ns(),
            looked_ns: monotonic_ns(),
            batch: Vec::new(),
            told: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Takes everything there is and correlates it.
    pub(super) fn pump(&mut self, inner: &ObserverShared) {
        let until_ns = monotonic_ns().saturating_sub(MARGIN_NS);
        self.correlator.set_clock(self.correlator.clock().renewed());
        let mut events = std::mem::take(&mut self.batch);
        if let Some(probes) = &mut self.probes {
            while events.len() < MAX_BATCH
                && let Some(event) = probes.next_event()
            {
                events.push(Event::from(&event));
            }
        }
        // After the events: an I/O is declared before its block requests are made.
        let mut told = std::mem::take(&mut self.told);
        std::mem::swap(
            &mut *inner.queue.lock().unwrap_or_else(PoisonError::into_inner),
            &mut told,
        );
        let all = events.len() < MAX_BATCH;
        for input in told.drain(..) {
            self.learn(input);
        }
        told.shrink_to(KEPT_BATCH);
        self.told = told;
        for event in events.drain(..) {
            self.learn_event(event);
        }
        events.shrink_to(KEPT_BATCH);
        self.batch = events;
        if self.correlator.take_stale() {
            self.place_files(&inner.stores());
        }
        if until_ns.saturating_sub(self.looked_ns) >= LATE_NS {
            self.looked_ns = until_ns;
            self.look_for_late(|_| true);
            self.write_flight(until_ns);
        }
        if all {
            self.learn(Input::Drained { until_ns });
            self.drained_ns = until_ns;
        }
        self.forget(until_ns);
        self.audit_now_and_then(until_ns);
        self.guard.tend();
    }

    pub(super) fn learn(&mut self, input: Input) {
        self.recording.tell(&input);
        if let Some(flight) = &mut self.flight {
            flight.keep(input.clone(), monotonic_ns());
        }
        self.correlator.apply(input);
    }

    /// As [`ObserverState::learn`], without a copy: there may be 100,000 events a second.
    fn learn_event(&mut self, event: Event) {
        self.learn_cgroup(&event);
        if self.recording.is_wanted() {
            self.recording.tell(&Input::Event(event));
        }
        if let Some(flight) = &mut self.flight {
            flight.keep(Input::Event(event), self.drained_ns);
        }
        self.correlator.event(&event, true);
    }

    /// Finds the path of the cgroup of an event, when it is seen for the first time.
    fn learn_cgroup(&mut self, event: &Event) {
        let (id, pid) = (event.cgroup, event.tgid);
        if let Some(path) = self.cgroups.first_seen(id, pid, self.drained_ns) {
            self.learn(Input::Cgroup { id, path });
        }
    }

    /// Asks the file systems again where the files lie.
    fn place_files(&mut self, stores: &[Option<ObservedStore>]) {
        for (index, store) in stores.iter().enumerate() {
            let Some(store) = store else { continue };
            let Some(target) = store.target.as_ref().filter(|target| target.file.is_some()) else {
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
                        disk: target.disk.clone(),
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
            let gone = probes.take_in_flight(usize::MAX, |entry| {
                let keep = if entry.completes() {
                    FORGET_SENT_NS
                } else {
                    FORGET_NS
                };
                entry.queue_ns.max(entry.issue_ns) < now_ns.saturating_sub(keep)
            });
            tracing::debug!(gone = gone.len(), "forgot requests without an end");
        }
    }

    /// Finds the completions of a disk that no program was shown. Takes up to 20 ms when some are
    /// missing; who does not want to hold up the observer calls [`ObserverState::look_for_late`] instead.
    pub(super) fn find_late(&mut self, dev: u32) {
        look(|| (!self.look_for_late(|disk| disk.dev == dev)).then_some(()));
    }

    /// Waits for a moment in which the disk is idle, for up to 20 ms.
    pub(super) fn wait_for_rest(&self, dev: u32) {
        look(|| self.is_idle(dev).then_some(()));
    }

    /// True: the kernel has counted more on the disk than was seen.
    pub(super) fn is_missing(&self, dev: u32) -> bool {
        self.watched(dev, WatchedDisk::is_missing)
    }

    /// True: the disk is idle, or nobody watches it.
    pub(super) fn is_idle(&self, dev: u32) -> bool {
        !self.watched(dev, |disk, probes| !disk.is_idle(probes))
    }

    fn watched(&self, dev: u32, is: impl Fn(&WatchedDisk, &Probes) -> bool) -> bool {
        let Some(probes) = &self.probes else {
            return false;
        };
        let mut disks = self.disks.iter().filter(|disk| disk.dev == dev);
        disks.any(|disk| is(disk, probes))
    }

    /// Looks once for completions that no program was shown. True: some were missing.
    pub(super) fn look_for_late(&mut self, of: impl Fn(&WatchedDisk) -> bool) -> bool {
        let Some(probes) = &mut self.probes else {
            return false;
        };
        let disks = self.disks.iter_mut().filter(|disk| of(disk));
        let found: Vec<_> = disks.filter_map(|disk| disk.find_late(probes)).collect();
        let missing = !found.is_empty();
        let found: Vec<Event> = found.into_iter().flatten().collect();
        if found.is_empty() {
            return missing;
        }
        for event in found {
            self.learn_event(event);
        }
        let until_ns = self.drained_ns;
        self.learn(Input::Drained { until_ns });
        missing
    }

    /// The audit and counts of a disk, now.
    pub(super) fn counted(&self, dev: u32) -> Option<DiskCounts> {
        let Some(probes) = &self.probes else {
            return self.kept_of(dev).cloned();
        };
        let disk = self.disks.iter().find(|disk| disk.dev == dev)?;
        Some(DiskCounts {
            audit: disk.audit(probes),
            cells: disk.cells(probes),
            in_flight: disk.in_flight(probes),
        })
    }

    fn kept_of(&self, dev: u32) -> Option<&DiskCounts> {
        let kept = self.kept.iter().find(|(kept, _)| *kept == dev)?;
        Some(&kept.1)
    }

    /// The audit alone.
    pub(super) fn audit(&self, dev: u32) -> Option<AuditReport> {
        let Some(probes) = &self.probes else {
            return Some(self.kept_of(dev)?.audit.clone());
        };
        let disk = self.disks.iter().find(|disk| disk.dev == dev)?;
        Some(disk.audit(probes))
    }
}
