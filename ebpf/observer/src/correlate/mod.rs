//! Ties block requests to their owners. Pure: no I/O, no clock, no thread.
//!
//! Everything comes in as an [`Input`], in the order in which the observer learnt it, and a
//! recording of inputs gives the same result anywhere. The join: a block request belongs to the
//! declared I/Os of the same operation on the same disk whose sectors it covers and whose time
//! from begin to end contains it. What the join does not find is said to be unattributed; the
//! kernel side's guess then only gives the class.
//!
//! The effects of a block request on others, and of others on it, are found out when everything that
//! completed up to then has been told ([`Input::Drained`]): completions arrive in any order.
//!
//! Memory is bounded: declared I/Os, open requests and kept block requests have limits, and what
//! falls out is counted.

mod attribute;
mod crosscheck;
mod disk;
mod explain;
mod flushes;
mod found;
mod input;
mod join;
mod kept;
mod lost;
mod moves;
mod owner;
mod processes;
mod recent;
mod requests;
mod settle;
mod stages;
mod taps;
mod totals;

use std::collections::{BTreeMap, VecDeque};

use lumpscope_units::human::counted;

use crate::api::TraceRequest;
use crate::clock::WallClock;
use crate::event::Event;
use crate::extents::Placement;
use crate::live::Watch;
use crate::report::{AuditReport, BlockLine, SlowRequest, StoreReport, TracedRequest};

pub(crate) use input::KINDS;
pub use input::{Declared, EndedRequest, Input};
pub use owner::OWNERS;

use disk::DiskTotals;
use flushes::Flushes;
use join::Joiner;
use kept::ExplainedRequests;
use processes::Cgroups;
use requests::Requests;
use settle::Unsettled;
use taps::Taps;
use totals::StoreTotals;

/// Counts of drops at the correlator's bounds, and of repeated work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Declared I/Os dropped because too many were open, or none ended them.
    pub declared_dropped: u64,
    /// Open requests dropped because too many were open.
    pub requests_dropped: u64,
    /// Own block requests outside every declared I/O, looked up again after the files' places
    /// were read anew.
    pub looked_up_again: u64,
    /// Block requests of which the owner is not certain.
    pub ambiguous: u64,
    /// Explained requests that could not be kept as long as they should be.
    pub kept_dropped: u64,
    /// Flushes and those who asked for them that were forgotten before their time: whose the flushes
    /// around them were is not certain.
    pub flushes_forgotten: u64,
}

/// Ties block requests to their owners.
#[derive(Debug)]
pub struct Correlator {
    placements: BTreeMap<usize, Placement>,
    joiner: Joiner,
    flushes: Flushes,
    disks: BTreeMap<u32, DiskTotals>,
    requests: Requests,
    stores: BTreeMap<usize, StoreTotals>,
    /// Own block requests that wait for a second look-up.
    waiting: Vec<Event>,
    /// Attributed, but what completed before them may not be known yet.
    unsettled: VecDeque<Unsettled>,
    kept: ExplainedRequests,
    taps: Taps,
    cgroups: Cgroups,
    /// Stores whose place should be read again.
    stale: bool,
    limits: Limits,
    /// See [`Input::Clock`].
    since_ns: Option<u64>,
    left_out: u64,
    clock: WallClock,
}

impl Correlator {
    /// For this many stores, whose indices begin at 0. Their names come with [`Input::Added`].
    #[must_use]
    pub fn new(stores: usize) -> Correlator {
        Correlator {
            placements: BTreeMap::new(),
            joiner: Joiner::default(),
            flushes: Flushes::default(),
            disks: BTreeMap::new(),
            requests: Requests::default(),
            stores: (0..stores).map(|s| (s, StoreTotals::default())).collect(),
            waiting: Vec::new(),
            unsettled: VecDeque::new(),
            kept: ExplainedRequests::default(),
            taps: Taps::default(),
            cgroups: Cgroups::default(),
            stale: false,
            limits: Limits::default(),
            since_ns: None,
            left_out: 0,
            clock: WallClock::default(),
        }
    }

    /// Learns.
    pub fn apply(&mut self, input: Input) {
        match input {
            Input::Clock {
                monotonic_ns,
                unix_ns,
                since_ns,
                left_out,
                ..
            } => {
                self.clock = WallClock::of(monotonic_ns, unix_ns);
                (self.since_ns, self.left_out) = (since_ns, left_out);
            }
            Input::Added { store, name } => self.stores.entry(store).or_default().name = name,
            Input::Removed { store } => self.remove(store),
            Input::Placed {
                store,
                placement,
                disk,
            } => self.place(store, placement, disk),
            Input::Audited { dev, report } => {
                if let Some(disk) = self.disks.get_mut(&dev) {
                    disk.audit = Some(report);
                }
            }
            Input::Declared(io) => self.declare(io),
            Input::Finished {
                store,
                token,
                end_ns,
            } => {
                if let Some(io) = self.joiner.finish(store, token, end_ns) {
                    let requests = io.requests.iter();
                    requests.for_each(|request| self.requests.end_io(*request, io, end_ns));
                }
            }
            Input::Ended(ended) => self.requests.end(ended),
            Input::Event(event) => self.event(&event, true),
            Input::Cgroup { id, path } => self.cgroups.learn(id, path),
            Input::Drained { until_ns } => self.drained(until_ns),
        }
    }

    /// The time of day of what is found out from now on. A recording tells it by [`Input::Clock`]; without either,
    /// times count from where the monotonic clock begins.
    pub fn set_clock(&mut self, clock: WallClock) {
        self.clock = clock;
    }

    pub(crate) fn clock(&self) -> WallClock {
        self.clock
    }

    /// True once after a block request of this process fell outside every declared I/O of a file:
    /// the files may lie elsewhere by now. Answer with [`Input::Placed`].
    pub fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// Counts of drops at the bounds.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let mut limits = self.limits;
        limits.declared_dropped += self.joiner.dropped;
        limits.requests_dropped += self.requests.dropped;
        limits.kept_dropped += self.kept.dropped;
        limits.flushes_forgotten = self.flushes.forgotten;
        limits
    }

    /// Fills in what correlation knows of a store: operations, block, slowest, and in the audit
    /// how often place and submission agreed.
    pub fn fill(&self, store: usize, report: &mut StoreReport) {
        let Some(totals) = self.stores.get(&store) else {
            return;
        };
        report.operations = totals.operations();
        report.slowest = totals.slowest();
        if let Some(disk) = self.disk_of(store) {
            report.block = disk.report(&self.cgroups);
            totals.tell_lost(&mut report.block);
            report.audit.tell_untold(&mut report.block);
            report.audit.tell_unread(&report.block.owners);
            disk.checks.tell(&mut report.audit);
        }
    }

    /// Adds to an audit what only this side knows.
    pub(crate) fn tell_checks(&self, store: usize, audit: &mut AuditReport) {
        if let Some(disk) = self.disk_of(store) {
            disk.checks.tell(audit);
        }
    }

    /// A request that has ended, explained; `None`: it is not, or no longer, kept.
    #[must_use]
    pub fn explain(&self, request: u64) -> Option<SlowRequest> {
        let (store, explained) = self.kept.find(request).or_else(|| {
            let mut stores = self.stores.iter();
            stores.find_map(|(index, s)| Some((*index, s.find_slow(request)?)))
        })?;
        Some(self.with_doubt(store, explained.clone()))
    }

    /// How many of the slowest requests to the store of this index are kept.
    #[must_use]
    pub fn kept_of(&self, store: usize) -> usize {
        self.kept.slow_of(store)
    }

    /// The kept requests that ended at or after this time (`CLOCK_MONOTONIC` in nanoseconds),
    /// slowest first, at most `limit`; `store`: of the store of this index only; `failed`: only
    /// those that failed.
    #[must_use]
    pub fn slowest(
        &self,
        store: Option<usize>,
        failed: bool,
        since_ns: u64,
        limit: usize,
    ) -> Vec<SlowRequest> {
        let found = self.kept.slowest((store, failed), since_ns, limit);
        let doubted = found
            .into_iter()
            .map(|(s, e)| self.with_doubt(s, e.clone()));
        doubted.collect()
    }

    /// The last audit of a store's disk; `None`: there was none.
    pub(crate) fn audit_of(&self, store: usize) -> Option<&AuditReport> {
        self.disk_of(store)?.audit.as_deref()
    }

    /// The stores there are: index and name.
    pub(crate) fn stores(&self) -> impl Iterator<Item = (usize, &str)> {
        let all = self.stores.iter();
        all.map(|(index, totals)| (*index, totals.name.as_str()))
    }

    /// Name of a store's disk; `None`: it is not observed.
    pub(crate) fn disk_name(&self, store: usize) -> Option<&str> {
        Some(&self.disk_of(store)?.name)
    }

    /// Inputs from which another correlator can go on: the stores, their places, and the I/Os
    /// under way.
    #[must_use]
    pub fn standing(&self) -> Vec<Input> {
        let mut standing = self.places();
        standing.extend(self.under_way().cloned().map(Input::Declared));
        standing
    }

    /// The stores, where they lie, and the cgroups.
    #[must_use]
    pub fn places(&self) -> Vec<Input> {
        let stores = self.stores.iter().map(|(&store, totals)| Input::Added {
            store,
            name: totals.name.clone(),
        });
        let placed = self.placements.iter().map(|(&store, placement)| {
            let disk = self.disks.get(&placement.dev);
            Input::Placed {
                store,
                placement: placement.clone(),
                disk: disk.map(|disk| disk.name.clone()).unwrap_or_default(),
            }
        });
        let cgroups = self.cgroups.all().map(|(id, path)| Input::Cgroup {
            id,
            path: path.to_owned(),
        });
        stores.chain(placed).chain(cgroups).collect()
    }

    /// The declared I/Os that have not returned.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = &Declared> {
        self.joiner.under_way()
    }

    /// True: requests that ended before this time are not counted yet, for whose the flush was that one of
    /// them may have waited for is not known.
    pub(crate) fn holds_back(&self, before_ns: u64) -> bool {
        let oldest = self.flushes.oldest_waiting_ns();
        oldest.is_some_and(|ns| ns < before_ns)
    }

    /// True: somebody watches traced requests.
    #[must_use]
    pub fn traced_are_watched(&self) -> bool {
        self.taps.want_traced()
    }

    /// Adds what the last audit doubts to what a request's explanation says of itself.
    fn with_doubt(&self, store: usize, mut explained: SlowRequest) -> SlowRequest {
        let audit = self.disk_of(store).and_then(|disk| disk.audit.as_deref());
        let mut doubts = Vec::new();
        if let Some(audit) = audit.filter(|audit| !audit.complete) {
            doubts.push(format!("block requests may be missing ({})", audit.finding));
        }
        if let Some(audit) = audit.filter(|audit| audit.not_sampled > 0) {
            doubts.push(format!(
                "{} of the disk not handed out as events",
                counted(audit.not_sampled, "block request")
            ));
        }
        if self
            .since_ns
            .is_some_and(|since| explained.begin_unix_ns < self.clock.unix_ns(since))
        {
            doubts.push("the recording begins after it".to_owned());
        }
        if self.left_out > 0 {
            doubts.push(format!(
                "the recorder had no room for {}",
                counted(self.left_out, "other record")
            ));
        }
        for doubt in doubts {
            if !explained.incomplete.is_empty() {
                explained.incomplete.push_str("; ");
            }
            explained.incomplete.push_str(&doubt);
        }
        explained
    }

    /// Watches block requests as it is found out whose they are, in the order of the events. At
    /// most `capacity` wait to be taken.
    pub fn watch_blocks(&mut self, filter: TraceRequest, capacity: usize) -> Watch<BlockLine> {
        self.taps.watch_blocks(filter, capacity)
    }

    /// Watches the requests that have a trace, as they are explained.
    pub fn watch_traced(&mut self, capacity: usize) -> Watch<TracedRequest> {
        self.taps.watch_traced(capacity)
    }

    /// Nothing more will come: what waits for more is taken as it is.
    pub fn finish(&mut self) {
        self.conclude(u64::MAX);
    }

    fn disk_of(&self, store: usize) -> Option<&DiskTotals> {
        self.disks.get(&self.placements.get(&store)?.dev)
    }

    fn place(&mut self, store: usize, placement: Placement, name: String) {
        if !self.stores.contains_key(&store) {
            return;
        }
        let disk = self.disks.entry(placement.dev).or_default();
        disk.name = name;
        disk.recent.ranges = placement.ranges();
        self.joiner.replace(store, &placement);
        self.placements.insert(store, placement);
    }

    /// Its I/Os stay with the joiner until they have lingered: their block requests may still
    /// come, and are not those of the next store on that disk.
    fn remove(&mut self, store: usize) {
        self.stores.remove(&store);
        self.kept.forget(store);
        let Some(placement) = self.placements.remove(&store) else {
            return;
        };
        let dev = placement.dev;
        if self.placements.values().all(|other| other.dev != dev) {
            self.disks.remove(&dev);
        }
    }

    fn declare(&mut self, io: Declared) {
        for request in &io.requests {
            self.requests.open(*request, io.begin_ns);
        }
        let Some(placement) = self.placements.get(&io.store) else {
            return;
        };
        let io = self.joiner.declare(io, placement);
        for request in &io.requests {
            self.requests.begin_io(*request, io, io.on_disk);
        }
    }
}
