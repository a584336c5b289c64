//! From the channel to the start of a request.
//!
//! What needs no I/O of its own is started as soon as it is seen: lists, usage, heads of known
//! size, gets of lumps that are not there; deletes and embedded puts too, in the order of arrival,
//! as long as not too many changes are unfinished. They never wait for the disk's slots. Gets,
//! puts and heads that read wait for one of these in the [`Queue`], gets for memory as well. A
//! flush takes no slot, so nothing that reads waits for one.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::TryRecvError;

use super::Owner;
use super::admission::Admission;
use super::change::Answer;
use super::message::{Arrival, Command, PutBody};
use super::order::curve::Pair;
use super::order::{Kind, Kinds, Moment, Order};
use super::overload::Overload;
use super::pace::Pace;
use super::queue::{Chosen, Place, Queue};
use super::ranges::memory_of_range;
use crate::clock::monotonic_ns;
use crate::device::Wait;
use crate::error::Error;
use crate::lump::LumpId;
use crate::units::RingPosition;

/// Commands taken up before the I/Os they cause are handed out.
const COMMANDS_AT_ONCE: usize = 64;

/// The requests that are let in and not started.
pub(super) struct Waiting {
    queue: Queue<Arrival>,
    /// Changes without data I/O, in the order of arrival.
    changes: VecDeque<Arrival>,
    admission: Arc<Admission>,
    overload: Overload,
    pub(super) pace: Pace,
    /// True: the get that is next finds no memory.
    memory_short: bool,
}

impl Waiting {
    pub(super) fn new(order: Order, overload: Overload, admission: Arc<Admission>) -> Self {
        Self {
            queue: Queue::new(order),
            changes: VecDeque::new(),
            admission,
            overload,
            pace: Pace::default(),
            memory_short: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.changes.is_empty()
    }

    pub(super) fn overtakes(&self) -> u64 {
        self.queue.overtakes()
    }

    pub(super) fn order(&self) -> &Order {
        self.queue.order()
    }

    pub(super) fn chosen(&self) -> Chosen {
        self.queue.chosen()
    }

    /// The disk was observed.
    pub(super) fn learn(&mut self, pair: Pair) {
        self.queue.learn(pair);
    }

    /// A put got these bytes of the device.
    pub(super) fn put_placed(&mut self, start: u64, end: u64) {
        self.queue.put_placed(start, end);
    }

    /// Shortens a wait to the time when a request must be dropped.
    pub(super) fn shorten(&self, wait: Wait) -> Wait {
        let Some(expiry) = self.queue.next_expiry() else {
            return wait;
        };
        let due = expiry.saturating_add(1);
        match wait {
            Wait::No => Wait::No,
            Wait::Forever => Wait::Until(due),
            Wait::Until(other) => Wait::Until(due.min(other)),
        }
    }
}

impl Drop for Waiting {
    /// The owner ends early, perhaps by a panic: whoever waits is told.
    fn drop(&mut self) {
        let changes = self.changes.drain(..);
        let queued = std::iter::from_fn(|| self.queue.take_oldest());
        for arrival in changes.chain(queued) {
            arrival.command.refuse(Error::Closed);
        }
    }
}

impl Owner {
    /// Takes up commands from the channel. True: more may be waiting, and nothing would announce
    /// them.
    pub(super) fn take_commands(&mut self) -> bool {
        for _ in 0..COMMANDS_AT_ONCE {
            if self.closing {
                return false;
            }
            match self.door.commands().try_recv() {
                Ok(arrival) => self.arrive(arrival),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => self.closing = true,
            }
        }
        true
    }

    fn arrive(&mut self, arrival: Arrival) {
        if matches!(arrival.command, Command::Close { .. }) {
            return self.on_command(arrival.command);
        }
        let is_change = arrival.command.is_change();
        if is_change && self.refuses_changes().is_some() {
            return self.start(arrival);
        }
        match self.place(&arrival) {
            Some((place, len)) if self.starts_at_once(place.kind, len) => {
                self.waiting.queue.pass(place);
                self.start(arrival);
                self.io.reservation = None;
            }
            Some((place, _)) => self.waiting.queue.push(place, arrival),
            None if is_change => self.waiting.changes.push_back(arrival),
            None => self.start(arrival),
        }
    }

    /// True: nobody waits and there is all it needs. Memory for `len` bytes is set aside then.
    fn starts_at_once(&mut self, kind: Kind, len: u64) -> bool {
        self.waiting.queue.is_empty()
            && self.io.data_in_flight() < self.limits.data_ios
            && match kind {
                Kind::Get => self.reserve_memory(len),
                Kind::Head => true,
                Kind::Put => self.pending < self.limits.pending,
            }
    }

    /// Where a request does its data I/O, and how many bytes a get reads; `None`: it does none.
    fn place(&self, arrival: &Arrival) -> Option<(Place, u64)> {
        // What is read, and for how many bytes a get needs memory.
        let (kind, position, (len, memory)) = match &arrival.command {
            Command::Get { .. } | Command::GetRange { .. } => {
                let (position, len) = self.to_read(&arrival.command)?;
                (Kind::Get, position, (len, len))
            }
            Command::Head { id, .. } => {
                let block_size = self.storage.geometry.block_size();
                let entry = self.storage.index.get(*id)?;
                if entry.payload_len(block_size).is_some() {
                    return None;
                }
                let (position, len) = self.stored_at(*id)?;
                let block = block_size.bytes();
                (Kind::Head, position + len - block, (block, 0))
            }
            Command::Put {
                body: PutBody::Data(_),
                ..
            }
            | Command::Group { data: Some(_), .. } => (Kind::Put, 0, (0, 0)),
            _ => return None,
        };
        let place = Place {
            kind,
            position,
            len,
            deadline: arrival.ctx.deadline,
            expires: arrival.ctx.drop_when_late,
        };
        Some((place, memory))
    }

    /// Where a get reads first, and the most bytes that it reads at once.
    fn to_read(&self, command: &Command) -> Option<(u64, u64)> {
        match *command {
            Command::Get { id, .. } => self.stored_at(id),
            Command::GetRange { id, len, .. } => {
                let (position, stored) = self.stored_at(id)?;
                Some((position, stored.min(memory_of_range(len, stored))))
            }
            _ => None,
        }
    }

    /// First byte in the device and length of what holds a lump: its portion, or the units of the
    /// ring with its record.
    fn stored_at(&self, id: LumpId) -> Option<(u64, u64)> {
        let entry = self.storage.index.get(id)?;
        if let Some(portion) = entry.portion() {
            let (offset, len) = self.storage.extent_of(portion);
            return Some((offset.0, len));
        }
        let unit = self.storage.journal.unit();
        let position = entry.record().0;
        let start = position - position % unit;
        let end = (position + entry.record_len()).next_multiple_of(unit);
        let offset = self.storage.geometry.ring_byte(RingPosition(start));
        Some((offset.0, end - start))
    }

    /// Starts what can be started, in the order of the policy.
    pub(super) fn start_waiting(&mut self) {
        let before = self.shared.counters.queue_started.get();
        let now_ns = monotonic_ns();
        while let Some((arrival, late_ns)) = self.waiting.queue.expire(now_ns) {
            self.drop_late(arrival, late_ns);
        }
        while self.pending < self.limits.pending
            && let Some(arrival) = self.waiting.changes.pop_front()
        {
            self.start(arrival);
        }
        self.start_data(now_ns);
        let started = self.shared.counters.queue_started.get() - before;
        let Waiting {
            admission,
            overload,
            pace,
            ..
        } = &mut self.waiting;
        let waiting = admission.waiting();
        pace.started(now_ns, started, waiting);
        admission.observe(overload.observe(waiting, now_ns), pace.interval_ns());
    }

    /// Starts requests with data I/O while there are slots.
    fn start_data(&mut self, now_ns: u64) {
        let mut kinds = Kinds::ALL;
        while !self.waiting.queue.is_empty() && self.io.data_in_flight() < self.limits.data_ios {
            if self.pending >= self.limits.pending {
                kinds = kinds.without(Kind::Put);
            }
            let moment = Moment {
                now_ns,
                service_ns: self.waiting.pace.service_ns(),
                kinds,
            };
            let Some((choice, arrival)) = self.waiting.queue.choose(moment) else {
                return;
            };
            // The lump may have been replaced since it was looked up for its place.
            let to_read = self.to_read(&arrival.command).map(|(_, len)| len);
            if to_read.is_some_and(|len| !self.reserve_memory(len)) {
                // A later get might fit, but so would the one after it, for ever.
                kinds = kinds.without(Kind::Get);
                continue;
            }
            if let Some(arrival) = self.waiting.queue.take(choice) {
                self.start(arrival);
            }
            self.io.reservation = None;
        }
    }

    /// Sets memory aside for the next read.
    fn reserve_memory(&mut self, len: u64) -> bool {
        self.io.reservation = self.io.pool.reserve(len);
        let short = self.io.reservation.is_none();
        if short && !self.waiting.memory_short {
            self.shared.counters.buffer_waits.add(1);
        }
        self.waiting.memory_short = short;
        !short
    }

    /// Carries out a request, late or not, unless it wants to be dropped then.
    fn start(&mut self, arrival: Arrival) {
        let now_ns = monotonic_ns();
        if let Some(late_ns) = arrival.ctx.late_ns(now_ns) {
            return self.drop_late(arrival, late_ns);
        }
        let counters = &self.shared.counters;
        let waited = now_ns.saturating_sub(arrival.since_ns);
        counters.queue_started.add(1);
        counters.queue_wait_ns.add(waited);
        if arrival.ctx.deadline.is_some_and(|time| time < now_ns) {
            counters.deadline_missed.add(1);
        }
        self.waiting.admission.leave();
        self.on_command(arrival.command);
    }

    fn drop_late(&mut self, arrival: Arrival, late_ns: u64) {
        self.shared.counters.deadline_dropped.add(1);
        self.waiting.admission.leave();
        arrival.command.refuse(Error::DeadlineExceeded { late_ns });
    }

    /// Learns how long puts take, from the answers of a batch.
    pub(super) fn note_service_times(&mut self, answers: &[Answer]) {
        let now_ns = monotonic_ns();
        for answer in answers {
            if let Answer::Put(reply, _) = answer
                && let Some(took_ns) = reply.timing.data_service_ns(now_ns)
            {
                self.waiting.pace.served(Kind::Put, took_ns);
            }
        }
    }
}

impl Command {
    /// True: it is counted among the unfinished changes once it is started.
    fn is_change(&self) -> bool {
        match self {
            Self::Put { .. }
            | Self::Group { .. }
            | Self::Delete { .. }
            | Self::DeleteRange { .. }
            | Self::DeleteMany { .. }
            | Self::Sync { .. } => true,
            Self::Get { .. }
            | Self::GetRange { .. }
            | Self::Head { .. }
            | Self::List { .. }
            | Self::Usage { .. }
            | Self::Embedded { .. }
            | Self::Collect { .. }
            | Self::Close { .. } => false,
        }
    }
}
