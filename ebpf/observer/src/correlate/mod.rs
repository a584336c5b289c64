//! Ties block requests to their owners. Pure: no I/O, no clock, no thread.
//!
//! Everything comes in as an [`Input`], in the order in which the observer learnt it, and a
//! recording of inputs gives the same result anywhere. The join: a block request belongs to the
//! declared I/Os of the same operation on the same disk whose sectors it covers and whose time
//! from begin to end contains it. What the join does not find is said to be unattributed; the
//! kernel side's guess then only gives the class.
//!
//! Memory is bounded: declared I/Os, open requests and kept block requests have limits, and what
//! falls out is counted.

mod disk;
mod explain;
mod join;
mod requests;
mod totals;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::{Op, Purpose, RequestSummary};
use crate::event::{BlockOp, Class, Event};
use crate::extents::Placement;
use crate::report::StoreReport;

use disk::Disk;
use join::{Joiner, Match};
use requests::{Block, Requests};
use totals::StoreTotals;

/// What the observer learns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// There is a store more.
    Added {
        /// Its index, which no store had before.
        store: usize,
    },
    /// A store is gone, and everything known of it.
    Removed {
        /// Its index, which no store will have again.
        store: usize,
    },
    /// Where a store lies. Again whenever it changes.
    Placed {
        /// Index of the store.
        store: usize,
        /// Its place.
        placement: Placement,
    },
    /// An I/O is about to be done.
    Declared(Declared),
    /// Its system call has returned.
    Finished {
        /// Index of the store.
        store: usize,
        /// Token of the I/O.
        token: u64,
        /// When.
        end_ns: u64,
    },
    /// A request has ended.
    Ended(Ended),
    /// A block request has completed.
    Event(Event),
    /// Everything that completed up to this time has been told.
    Drained {
        /// Time.
        until_ns: u64,
    },
}

/// An owned [`crate::DeclaredIo`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declared {
    /// Index of the store.
    pub store: usize,
    /// Unique among the store's I/Os in flight.
    pub token: u64,
    /// Requests it is done for.
    pub requests: Vec<u64>,
    /// What it is for.
    pub purpose: Purpose,
    /// Kind.
    pub op: Op,
    /// Byte offset in the store.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Before the system call.
    pub begin_ns: u64,
}

/// An owned [`RequestSummary`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Id of the request.
    pub request: u64,
    /// Index of its store.
    pub store: usize,
    /// `put`, `get`, ...
    pub method: String,
    /// Body bytes moved.
    pub bytes: u64,
    /// Accepted.
    pub begin_ns: u64,
    /// Last byte handed over.
    pub end_ns: u64,
    /// False: it failed.
    pub ok: bool,
    /// Stages as the service measured them: recv, sched, index, data, journal, reply.
    pub stages_ns: [u64; 6],
}

impl From<RequestSummary> for Ended {
    fn from(s: RequestSummary) -> Ended {
        Ended {
            request: s.request,
            store: s.store,
            method: s.method.to_owned(),
            bytes: s.bytes,
            begin_ns: s.begin_ns,
            end_ns: s.end_ns,
            ok: s.ok,
            stages_ns: [
                s.recv_ns,
                s.sched_ns,
                s.index_ns,
                s.data_ns,
                s.journal_ns,
                s.reply_ns,
            ],
        }
    }
}

/// Who a block request was made for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// Exactly this request.
    Request(u64),
    /// Several requests; the first of them.
    Requests(u64),
    /// The store itself.
    Store,
    FsJournal,
    FsMetadata,
    Writeback,
    /// Another process, by name.
    Other(String),
}

impl Owner {
    /// Name of the class.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Owner::Request(_) | Owner::Requests(_) => "request",
            Owner::Store => "store",
            Owner::FsJournal => "fs-journal",
            Owner::FsMetadata => "fs-metadata",
            Owner::Writeback => "writeback",
            Owner::Other(_) => "other",
        }
    }

    fn guess(event: &Event) -> Owner {
        match event.class {
            Class::Own => Owner::Store,
            Class::FsJournal => Owner::FsJournal,
            Class::FsMetadata => Owner::FsMetadata,
            Class::Writeback => Owner::Writeback,
            Class::Other => Owner::Other(event.comm.clone()),
        }
    }
}

/// What fell out of the correlator's bounds, and what it had to do twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Declared I/Os dropped because too many were open, or none ended them.
    pub declared_dropped: u64,
    /// Open requests dropped because too many were open.
    pub requests_dropped: u64,
    /// Own block requests outside every declared I/O, looked up again after the files' places
    /// were read anew.
    pub looked_up_again: u64,
    /// Block requests whose sectors several declared I/Os asked for at the same time.
    pub ambiguous: u64,
}

/// Own block requests that wait for a second look-up.
const MAX_WAITING: usize = 4096;

/// Ties block requests to their owners.
#[derive(Debug)]
pub struct Correlator {
    placements: BTreeMap<usize, Placement>,
    joiner: Joiner,
    disks: BTreeMap<u32, Disk>,
    requests: Requests,
    stores: BTreeMap<usize, StoreTotals>,
    waiting: Vec<Event>,
    /// Stores whose place should be read again.
    stale: bool,
    limits: Limits,
}

impl Correlator {
    /// For this many stores, whose indices begin at 0.
    #[must_use]
    pub fn new(stores: usize) -> Correlator {
        Correlator {
            placements: BTreeMap::new(),
            joiner: Joiner::default(),
            disks: BTreeMap::new(),
            requests: Requests::default(),
            stores: (0..stores).map(|s| (s, StoreTotals::default())).collect(),
            waiting: Vec::new(),
            stale: false,
            limits: Limits::default(),
        }
    }

    /// Learns.
    pub fn apply(&mut self, input: Input) {
        match input {
            Input::Added { store } => {
                self.stores.entry(store).or_default();
            }
            Input::Removed { store } => self.remove(store),
            Input::Placed { store, placement } => self.place(store, placement),
            Input::Declared(io) => self.declare(io),
            Input::Finished {
                store,
                token,
                end_ns,
            } => self.joiner.finish(store, token, end_ns),
            Input::Ended(ended) => self.requests.end(ended),
            Input::Event(event) => self.event(event, true),
            Input::Drained { until_ns } => self.drained(until_ns),
        }
    }

    /// True once after a block request of this process fell outside every declared I/O of a file:
    /// the files may lie elsewhere by now. Answer with [`Input::Placed`].
    pub fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale)
    }

    /// What fell out of the bounds.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let mut limits = self.limits;
        limits.declared_dropped += self.joiner.dropped;
        limits.ambiguous += self.joiner.ambiguous;
        limits.requests_dropped += self.requests.dropped;
        limits
    }

    /// Fills in what correlation knows of a store: operations, block, slowest.
    pub fn fill(&self, store: usize, report: &mut StoreReport) {
        let Some(totals) = self.stores.get(&store) else {
            return;
        };
        report.operations = totals.operations();
        report.slowest = totals.slowest();
        if let Some(disk) = self.disk_of(store) {
            report.block = disk.report();
        }
    }

    fn disk_of(&self, store: usize) -> Option<&Disk> {
        self.disks.get(&self.placements.get(&store)?.dev)
    }

    fn place(&mut self, store: usize, placement: Placement) {
        if !self.stores.contains_key(&store) {
            return;
        }
        self.disks.entry(placement.dev).or_default();
        self.joiner.replace(store, &placement);
        self.placements.insert(store, placement);
    }

    /// Its I/Os stay with the joiner until they have lingered: their block requests may still
    /// come, and are not those of the next store on that disk.
    fn remove(&mut self, store: usize) {
        self.stores.remove(&store);
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
        if let Some(placement) = self.placements.get(&io.store) {
            self.joiner.declare(io, placement);
        }
    }

    fn event(&mut self, event: Event, may_wait: bool) {
        if event.flush_parent || !self.disks.contains_key(&event.dev) {
            return;
        }
        let found = self.joiner.find(&event);
        let data = event.op.is_data();
        if data && found.parts.is_empty() && event.class == Class::Own && may_wait {
            self.limits.looked_up_again += 1;
            self.stale |= self.any_file_on(event.dev);
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push(event);
                return;
            }
        }
        let (owner, sharers) = (self.owner_of(&event, &found), self.joiner.owners_in(&found));
        let disk = self.disks.entry(event.dev).or_default();
        disk.add(&event, &owner, &found, sharers);
        self.hand_out(&event, &found);
    }

    fn any_file_on(&self, dev: u32) -> bool {
        let mut placed = self.placements.values();
        placed.any(|p| p.dev == dev && !p.file_system.is_empty())
    }

    fn owner_of(&self, event: &Event, found: &Match) -> Owner {
        let ids = self.joiner.requests_of(found);
        match ids.as_slice() {
            [] if found.parts.is_empty() => Owner::guess(event),
            [] => Owner::Store,
            [one] => Owner::Request(*one),
            [first, ..] => Owner::Requests(*first),
        }
    }

    /// Gives the block request to every request it was made for.
    fn hand_out(&mut self, event: &Event, found: &Match) {
        let shared = self.joiner.requests_of(found).len() > 1;
        for part in &found.parts {
            let Some(io) = self.joiner.io(part.io) else {
                continue;
            };
            let heads = u64::try_from(io.requests.len()).unwrap_or(u64::MAX).max(1);
            for (position, request) in io.requests.iter().enumerate() {
                // The division's remainder goes to the first.
                let rest = if position == 0 { part.bytes % heads } else { 0 };
                let block = Block {
                    event: event.clone(),
                    purpose: io.purpose,
                    own_bytes: part.bytes / heads + rest,
                    shared,
                };
                self.requests.add(*request, block);
            }
        }
    }

    fn drained(&mut self, until_ns: u64) {
        for event in std::mem::take(&mut self.waiting) {
            self.event(event, false);
        }
        for (ended, open) in self.requests.take_ended(until_ns) {
            let at = self.placements.get(&ended.store).cloned();
            self.add_request(&ended, &open, at);
        }
        self.joiner.expire(until_ns);
        self.requests.expire(until_ns);
    }

    fn add_request(&mut self, ended: &Ended, open: &requests::Open, at: Option<Placement>) {
        let stages = requests::split_stages(ended, open);
        let Some(totals) = self.stores.get_mut(&ended.store) else {
            return;
        };
        totals.add(ended, open, &stages);
        if totals.is_slow(ended) {
            let disk = at.as_ref().and_then(|at| self.disks.get(&at.dev));
            let file_system = at.as_ref().map_or("", |at| at.file_system.as_str());
            totals.add_slow(explain::explain(ended, open, &stages, disk, file_system));
        }
    }
}

/// The block operation that a declared operation makes.
fn block_op(op: Op) -> BlockOp {
    match op {
        Op::Read => BlockOp::Read,
        Op::Write => BlockOp::Write,
        Op::Flush => BlockOp::Flush,
    }
}
