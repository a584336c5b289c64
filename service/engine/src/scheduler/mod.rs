//! The owner thread: one loop that holds index, journal and allocator and never waits for the
//! disk.
//!
//! It receives commands and the ends of I/Os, advances the state machines, and hands out new
//! I/Os. [`reads`] answers gets, [`changes`] accepts puts and deletes, [`commit`] makes them
//! durable in groups, [`collect`] reclaims the journal. Nothing here touches payload bytes.

pub(crate) mod admission;
mod budget;
mod change;
mod changes;
mod checkpoint;
mod collect;
mod commit;
mod condition;
mod delete_many;
mod dispatch;
pub(crate) mod door;
mod embedded;
pub(crate) mod finisher;
pub(crate) mod group;
pub(crate) mod io_table;
mod learning;
pub(crate) mod message;
pub(crate) mod order;
mod order_stats;
pub(crate) mod overload;
mod pace;
mod pairs;
pub(crate) mod queue;
mod ranges;
mod reads;
pub(crate) mod scrub;
mod stepped;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, OnceLock};

use admission::{Admission, AdmissionLimits};
use crossbeam_channel::{Receiver, Sender};
use delete_many::Groups;
use dispatch::Waiting;
use door::{Door, Gate};

pub(crate) use change::PendingPut;
pub(crate) use checkpoint::Checkpointer;
use collect::Collection;
use commit::Commit;
pub(crate) use embedded::ReadEmbedded;
use finisher::Finisher;
use io_table::{IoTable, Tag};
use learning::Learning;
use message::{Arrival, Command, Stage};
use order::Order;
pub use order_stats::{LearnedStats, OrderStats};
use overload::Overload;
pub(crate) use reads::ReadLump;
use scrub::Scrub;
pub use stepped::Driver;

use crate::buffer::AlignedBuf;
use crate::clock::duration_ns;
use crate::device::{Completion, Wait};
use crate::error::Error;
use crate::lump::LumpId;
use crate::options::StoreOptions;
use crate::stats::Counters;
use crate::storage::Storage;

thread_local! {
    static ENGINE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that must not wait for the engine.
pub(crate) fn mark_engine_thread() {
    ENGINE_THREAD.set(true);
}

/// True: the calling thread belongs to an engine.
pub(crate) fn on_engine_thread() -> bool {
    ENGINE_THREAD.get()
}

/// What the handles and the owner thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) counters: Arc<Counters>,
    /// Who may come in.
    pub(crate) admission: Arc<Admission>,
    /// Where commands come in.
    pub(crate) gate: Arc<Gate>,
    /// Why the store takes no changes any more.
    pub(crate) failed: OnceLock<Arc<str>>,
    pub(crate) scrub: scrub::Control,
    /// What the order has done, and what it is told of the disk.
    pub(crate) order: order_stats::OrderShared,
}

impl Shared {
    pub(crate) fn new(options: &StoreOptions) -> Self {
        let counters = Arc::<Counters>::default();
        let limits = AdmissionLimits {
            hard: options.queue_limit.max(1),
            threshold: options.overload_threshold.max(1),
            recovers_at: overload(options).recovers_at(),
        };
        Self {
            admission: Arc::new(Admission::new(limits, Arc::clone(&counters))),
            counters,
            gate: Arc::default(),
            failed: OnceLock::new(),
            scrub: scrub::Control::default(),
            order: order_stats::OrderShared::new(options.queue_policy),
        }
    }
}

fn overload(options: &StoreOptions) -> Overload {
    Overload::new(
        options.overload_threshold,
        duration_ns(options.overload_after),
    )
}

/// Limits of the owner thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Data I/Os in flight.
    pub(crate) data_ios: usize,
    /// Requests started and not finished.
    pub(crate) pending: usize,
    pub(crate) read_only: bool,
    /// Budget of the collection in bytes a second; 0: no limit.
    pub(crate) gc_rate: u64,
}

/// Everything the owner thread holds.
pub(crate) struct Owner {
    storage: Storage,
    io: IoTable,
    finisher: Finisher,
    door: Door,
    waiting: Waiting,
    learning: Learning,
    groups: Groups,
    shared: Arc<Shared>,
    limits: Limits,
    commit: Commit,
    collection: Collection,
    scrub: Scrub,
    /// Ranges of lumps that are being read.
    ranges: HashMap<u64, ranges::RangeRead>,
    next_range: u64,
    checkpoint: Checkpointer,
    /// Puts that wait for blocks which are about to be freed.
    waiting_for_space: VecDeque<(Box<PendingPut>, AlignedBuf)>,
    /// Bytes of records of puts that are accepted and not applied.
    pending_record_bytes: u64,
    /// Ids with puts that are accepted and not applied, and how many.
    putting: BTreeMap<LumpId, u32>,
    /// Requests started and not finished, reads excepted.
    pending: usize,
    closing: bool,
    closed: Vec<Sender<Result<(), Error>>>,
    /// True: the last round left commands in the channel.
    more_commands: bool,
    /// Empty; keeps its memory from round to round.
    ended: Vec<Completion>,
}

impl Owner {
    pub(crate) fn new(
        (storage, scrub, checkpoint): (Storage, Scrub, Checkpointer),
        mut io: IoTable,
        finisher: Finisher,
        commands: Receiver<Arrival>,
        shared: Arc<Shared>,
        limits: Limits,
        options: &StoreOptions,
    ) -> Self {
        let admission = &shared.admission;
        let order = Order::new(options.queue_policy, options.max_overtakes);
        if order.curve().is_some() {
            io.make_pairs();
        }
        let collection = Collection::new(storage.journal.head(), limits.gc_rate);
        Self {
            storage,
            io,
            finisher,
            door: Door::new(commands, Arc::clone(&shared.gate), Arc::clone(admission)),
            waiting: Waiting::new(order, overload(options), Arc::clone(admission)),
            learning: Learning::default(),
            groups: Groups::default(),
            shared,
            limits,
            commit: Commit::default(),
            collection,
            scrub,
            ranges: HashMap::new(),
            next_range: 0,
            checkpoint,
            waiting_for_space: VecDeque::new(),
            pending_record_bytes: 0,
            putting: BTreeMap::new(),
            pending: 0,
            closing: false,
            closed: Vec::new(),
            more_commands: true,
            ended: Vec::new(),
        }
    }

    /// Runs until the store is closed.
    pub(crate) fn run(mut self) {
        mark_engine_thread();
        while self.turn(Wait::Forever) {}
        self.end();
    }

    /// One round: hands out I/Os, waits, deals with what has ended and with new commands. False:
    /// the store is closed and everything is done.
    fn turn(&mut self, wait: Wait) -> bool {
        self.publish();
        self.publish_order();
        if self.closing && self.is_idle() {
            return false;
        }
        let wait = match (self.waiting.shorten(wait), self.due_ns()) {
            _ if self.more_commands => Wait::No,
            (Wait::Forever, Some(due_ns)) => Wait::Until(due_ns),
            (Wait::Until(time), Some(due_ns)) => Wait::Until(time.min(due_ns)),
            (wait, _) => wait,
        };
        let mut ended = std::mem::take(&mut self.ended);
        self.io.device.backend.wait(&mut ended, wait);
        let alone = ended.len() == 1;
        for completion in ended.drain(..) {
            self.on_completion(completion, alone);
        }
        self.learn_told();
        self.ended = ended;
        self.more_commands = self.take_commands();
        self.start_waiting();
        self.pump();
        self.scrub();
        true
    }

    /// When there is something to do though nothing happens: the work in the background has a
    /// budget to wait for.
    fn due_ns(&self) -> Option<u64> {
        let due = [
            self.scrub.due_ns(),
            self.collection.due_ns(),
            self.checkpoint.due_ns(),
        ];
        due.into_iter().flatten().min()
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Get { request, id, reply } => self.get(request, id, reply),
            Command::GetRange {
                request,
                id,
                offset,
                len,
                reply,
            } => self.get_range(request, id, (offset, len), reply),
            Command::Head { request, id, reply } => self.head(request, id, reply),
            Command::List {
                range,
                limit,
                reply,
            } => self.list(range, limit, reply),
            Command::Usage { range, reply } => self.usage(range, reply),
            Command::Embedded { range, from, reply } => self.embedded(range, from, reply),
            Command::Close { closed } => {
                self.closing = true;
                self.closed.push(closed);
            }
            Command::Collect { reply } => match self.refuses_changes() {
                Some(error) => reply.send(Err(error), Stage::Sched),
                None => self.collect(reply),
            },
            change => match self.refuses_changes() {
                Some(error) => change.refuse(error),
                None => self.on_change(change),
            },
        }
    }

    fn refuses_changes(&self) -> Option<Error> {
        if self.limits.read_only {
            return Some(Error::ReadOnly);
        }
        self.failure()
    }

    fn failure(&self) -> Option<Error> {
        let reason = self.shared.failed.get()?;
        Some(Error::Failed {
            reason: Arc::clone(reason),
        })
    }

    /// An I/O has ended; `alone`: and no other one was seen to.
    fn on_completion(&mut self, completion: Completion, alone: bool) {
        if let Some(pair) = self.io.pair(&completion, alone) {
            self.learn_own(pair);
        }
        if let Some((kind, took_ns)) = self.io.read_time(completion.token) {
            self.waiting.pace.served(kind, took_ns);
        }
        let Some((tag, buf, result)) = self.io.ended(completion) else {
            return;
        };
        if result.is_err() {
            self.shared.counters.io_errors.add(1);
        }
        match tag {
            Tag::Get(read) => self.get_read(read, buf, result),
            Tag::Range(key, piece) => self.range_read((key, piece), buf, result),
            Tag::Head { lump, reply } => self.head_read(lump, reply, buf, result),
            Tag::PutData(put) => self.put_written(put, result),
            Tag::BatchRest => self.batch_rest_written(result),
            Tag::BatchFirst => self.batch_visible(result),
            Tag::Flush => self.flushed(result),
            Tag::Header(head) => self.header_written(head, result),
            Tag::ScrubMark => self.header_rewritten(result),
            Tag::Embedded(read) => self.embedded_read(*read, buf, result),
            Tag::Collect(start) => self.chunk_read(start, buf, result),
            Tag::Checkpoint => self.checkpoint_written(buf, result),
            Tag::CheckpointFlush => self.checkpoint_flushed(result),
            Tag::Scrub(read) => self.scrub_ended(*read, buf, result),
        }
    }

    /// Starts whatever can be started now.
    fn pump(&mut self) {
        if self.limits.read_only || self.shared.failed.get().is_some() {
            return;
        }
        self.start_checkpoint();
        self.start_commit();
        self.start_collecting();
    }

    /// True: nothing is in flight and nothing waits.
    fn is_idle(&self) -> bool {
        let changes_nothing = self.limits.read_only || self.shared.failed.get().is_some();
        self.is_quiet() && (changes_nothing || self.checkpoint.rests(self.closing, &self.storage))
    }

    /// True: nothing is in flight and no request waits.
    fn is_quiet(&self) -> bool {
        self.io.len() == 0
            && self.waiting.is_empty()
            && self.waiting_for_space.is_empty()
            && self.scrub.is_idle()
            && (self.shared.failed.get().is_some() || self.commit.is_idle())
    }

    /// Takes no changes any more: what is on the disk is uncertain. Everything that waits for the
    /// journal is answered with the reason.
    fn fail(&mut self, error: &Error) {
        let reason = self
            .shared
            .failed
            .get_or_init(|| Arc::from(error.to_string()));
        let error = Error::Failed {
            reason: Arc::clone(reason),
        };
        self.fail_commit(&error);
        self.collection.refuse_all(&error);
        for (put, _) in std::mem::take(&mut self.waiting_for_space) {
            self.refuse_put(*put, error.clone(), Stage::Sched);
        }
    }

    /// Shows the present numbers to other threads.
    fn publish(&self) {
        let (counters, storage) = (&self.shared.counters, &self.storage);
        let block_size = storage.geometry.block_size().bytes();
        let allocator = storage.data.allocator();
        counters.lumps.set(storage.index.len());
        counters
            .data_capacity_bytes
            .set(storage.geometry.data_len().0);
        counters
            .data_used_bytes
            .set(storage.data.used_blocks() * block_size);
        counters
            .largest_free_bytes
            .set(allocator.largest() * block_size);
        counters.free_extents.set(allocator.extents());
        counters
            .fragmentation_ppm
            .set(allocator.fragmentation_ppm());
        counters
            .index_memory_bytes
            .set(storage.index.memory_bytes());
        counters
            .journal_capacity_bytes
            .set(storage.journal.capacity());
        counters.journal_used_bytes.set(storage.journal.used());
        counters
            .journal_live_bytes
            .set(storage.index.record_bytes());
        counters.overtakes.set(self.waiting.overtakes());
        counters.pending.set(self.pending as u64);
        counters.in_flight_ios.set(self.io.len() as u64);
        counters
            .checkpoint_lag_records
            .set(self.checkpoint.lag_records());
        counters
            .checkpoint_lag_bytes
            .set(self.checkpoint.lag_bytes(storage));
    }

    /// Everything is flushed: ends the threads below and tells who waits.
    fn end(self) {
        let result = self.failure().map_or(Ok(()), Err);
        let Self {
            io,
            finisher,
            door,
            closed,
            mut collection,
            ..
        } = self;
        collection.refuse_all(&Error::Closed);
        // The device first: who waits for the end may open it again at once.
        drop(io);
        drop(finisher);
        drop(door);
        for closed in closed {
            let _ = closed.send(result.clone());
        }
    }
}
