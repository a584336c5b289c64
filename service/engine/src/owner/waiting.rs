//! The requests that are let in and not started, and the choice of the next one.
//!
//! Requests without I/O of their own start as soon as they are seen: lists, usage, heads of known
//! size, gets of absent lumps; deletes and embedded puts too, in the order of arrival, as long as
//! not too many changes are unfinished. They never wait for the disk's slots. Gets, puts and heads
//! that read wait for one of these in the [`Queue`], gets for memory as well. Gets whose payer has
//! its share of memory wait beside the queue ([`HeldGets`]), and small gets have a reserve, so whoever
//! does not take what it asked for keeps nobody else waiting. A flush takes no slot, so nothing that
//! reads waits for one.

mod held;
pub(crate) mod order;
pub(crate) mod queue;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use held::HeldGets;
use order::{Kinds, Moment, Order};
use queue::{Queue, QueuePlace};

use super::admission::Admission;
use super::admission::overload::Overload;
use super::admission::pace::RequestKind;
use super::command::{Arrival, StoreCommand};
use super::ctx::Ctx;
use crate::buffer::{Reservation, Short};
use crate::clock::monotonic_ns;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::lump::LumpId;

/// While so many bytes of gets are being read, no other large get begins: what 8 GB/s move in half a
/// millisecond.
const GET_BYTES: u64 = 4 << 20;
/// The same for puts: more, because those that are written together share a flush.
const PUT_BYTES: u64 = 2 * GET_BYTES;
/// What is under way for longer does not count: the disk answers late and may do others meanwhile, or
/// it hangs.
const LATE_NS: u64 = 10_000_000;

/// The queue before the disk, and the changes that need no slot there.
pub(super) struct WaitingRequests {
    queue: Queue<Arrival>,
    /// Gets whose payers have enough memory.
    held: HeldGets,
    /// Changes without data I/O, in the order of arrival.
    changes: VecDeque<Arrival>,
    admission: Arc<Admission>,
    overload: Overload,
    /// True: the get that is next finds no memory.
    memory_short: bool,
    /// When more of what waits may begin though no I/O ends.
    enough_until_ns: Option<u64>,
}

/// One look at the waiting requests: [`WaitingRequests::begin`], [`WaitingRequests::next`] until
/// there is none, [`WaitingRequests::end`].
pub(super) struct Round {
    now_ns: u64,
    /// Requests started before it since open.
    started: u64,
    /// Kinds of requests that could still be started.
    kinds: Kinds,
    changes_done: bool,
}

impl WaitingRequests {
    pub(super) fn new(order: Order, overload: Overload, admission: Arc<Admission>) -> Self {
        Self {
            queue: Queue::new(order),
            held: HeldGets::default(),
            changes: VecDeque::new(),
            admission,
            overload,
            memory_short: false,
            enough_until_ns: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.changes.is_empty() && self.held.is_empty()
    }

    /// A put is written to these bytes of the device.
    pub(super) fn put_placed(&mut self, bytes: &Range<u64>) {
        self.queue.put_placed(bytes.start, bytes.end);
    }

    /// When a request must be dropped, or may begin.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let expiries = [self.queue.next_expiry(), self.held.next_expiry()];
        let expiry = expiries.into_iter().flatten().min();
        let dues = [expiry.map(|at| at.saturating_add(1)), self.enough_until_ns];
        dues.into_iter().flatten().min()
    }

    /// Takes in a request; given back, it is to be started now.
    pub(super) fn arrive(&mut self, ctx: &mut Ctx, arrival: Arrival) -> Option<Arrival> {
        let is_change = arrival.command.is_change();
        if is_change && ctx.refuses_changes().is_some() {
            return Some(arrival);
        }
        match place(ctx, &arrival) {
            Some((place, _)) if place.kind.is_get() && self.held.has(arrival.ctx.payer) => {
                self.hold(arrival);
            }
            Some((place, len)) if self.starts_at_once(ctx, &arrival, place.kind, len) => {
                self.queue.pass(place);
                return Some(arrival);
            }
            Some((place, _)) => self.queue.push(place, arrival),
            None if is_change => self.changes.push_back(arrival),
            None => return Some(arrival),
        }
        None
    }

    /// True: nobody waits and there is all it needs. Memory for `len` bytes is set aside then.
    fn starts_at_once(
        &mut self,
        ctx: &mut Ctx,
        arrival: &Arrival,
        kind: RequestKind,
        len: u64,
    ) -> bool {
        self.queue.is_empty()
            && ctx.io.data_in_flight() < ctx.limits.data_ios
            && match kind {
                _ if enough_until(ctx, kind, monotonic_ns()).is_some() => false,
                RequestKind::Get | RequestKind::Small => {
                    let memory = ctx.io.pool.reserve(arrival.ctx.payer, len);
                    self.reserved(ctx, memory).is_ok()
                }
                RequestKind::Head => true,
                RequestKind::Put => ctx.unfinished.count() < ctx.limits.pending,
            }
    }

    /// Drops requests that are late and want to be dropped then.
    pub(super) fn begin(&mut self, ctx: &Ctx) -> Round {
        let now_ns = monotonic_ns();
        self.enough_until_ns = None;
        let started = ctx.shared.counters.queue_started.get();
        while let Some((arrival, late_ns)) = self.queue.expire(now_ns) {
            self.drop_late(ctx, arrival, late_ns);
        }
        if !self.held.is_empty() {
            self.release_held(ctx, now_ns);
        }
        Round {
            now_ns,
            started,
            kinds: Kinds::ALL,
            changes_done: false,
        }
    }

    /// The next request to be started: changes without data I/O first, then, while there are
    /// slots, the others in the order of the policy.
    pub(super) fn next(&mut self, ctx: &mut Ctx, round: &mut Round) -> Option<Arrival> {
        let changes_wait = ctx.unfinished.count() >= ctx.limits.pending;
        if !round.changes_done
            && !changes_wait
            && let Some(arrival) = self.changes.pop_front()
        {
            return Some(arrival);
        }
        round.changes_done = true;
        while !self.queue.is_empty() && ctx.io.data_in_flight() < ctx.limits.data_ios {
            if changes_wait {
                round.kinds = round.kinds.without(RequestKind::Put);
            }
            let moment = Moment {
                now_ns: round.now_ns,
                service_ns: ctx.pace.service_ns(),
                kinds: self.kinds_now(ctx, round),
            };
            let (number, arrival) = self.queue.choose(moment)?;
            // The lump may have been replaced since it was looked up for its place.
            let to_read = to_read(ctx, &arrival.command).map(|(_, len)| len);
            let payer = arrival.ctx.payer;
            let memory = to_read.map(|len| {
                if round.kinds.has(RequestKind::Get) {
                    ctx.io.pool.reserve(payer, len)
                } else {
                    // What comes free is for those that wait for more.
                    ctx.io.pool.reserve_small(len).ok_or(Short::Memory)
                }
            });
            match memory.map_or(Ok(()), |memory| self.reserved(ctx, memory)) {
                Ok(()) => return self.queue.take(number),
                // A later one might fit, but so would the one after it, for ever.
                Err(Short::Memory) => {
                    let kind = self.queue.kind(number)?;
                    round.kinds = round.kinds.without(kind);
                }
                Err(Short::Share) => {
                    let arrival = self.queue.set_aside(number)?;
                    self.hold(arrival);
                }
            }
        }
        None
    }

    /// Those of the kinds of a round of which the disk has not enough.
    fn kinds_now(&mut self, ctx: &Ctx, round: &Round) -> Kinds {
        let mut kinds = round.kinds;
        self.enough_until_ns = None;
        for kind in [RequestKind::Get, RequestKind::Put] {
            if self.queue.has(kind)
                && let Some(until_ns) = enough_until(ctx, kind, round.now_ns)
            {
                kinds = kinds.without(kind);
                let sooner = self.enough_until_ns.map_or(until_ns, |at| at.min(until_ns));
                self.enough_until_ns = Some(sooner);
            }
        }
        kinds
    }

    /// The payer of a get has its share of memory.
    fn hold(&mut self, arrival: Arrival) {
        // A piece is a part of a get that was let in, perhaps of one whose beginning was sent.
        let refused = match arrival.command {
            StoreCommand::GetPiece { .. } => None,
            _ => self.admission.check_held(self.held.len()).err(),
        };
        match refused {
            None => self.held.push(arrival),
            Some(busy) => {
                self.admission.leave();
                arrival.command.refuse(busy);
            }
        }
    }

    /// Lets those into the queue again whose payers have given memory back.
    fn release_held(&mut self, ctx: &Ctx, now_ns: u64) {
        while let Some((arrival, late_ns)) = self.held.expire(now_ns) {
            self.drop_late(ctx, arrival, late_ns);
        }
        let bytes = |arrival: &Arrival| to_read(ctx, &arrival.command).map_or(0, |(_, len)| len);
        let may = |payer, bytes| ctx.io.pool.has_share(payer, bytes);
        for arrival in self.held.ready(bytes, may) {
            match place(ctx, &arrival) {
                Some((place, _)) => self.queue.push(place, arrival),
                // Its lump is gone: that is answered without the disk.
                None => self.changes.push_back(arrival),
            }
        }
    }

    /// Judges the load by what was started and what still waits.
    pub(super) fn end(&mut self, ctx: &mut Ctx, round: &Round) {
        let started = ctx.shared.counters.queue_started.get() - round.started;
        let waiting = self.admission.waiting().saturating_sub(self.held.len());
        ctx.pace.started(round.now_ns, started, waiting);
        let overloaded = self.overload.observe(waiting, round.now_ns);
        self.admission.observe(overloaded, ctx.pace.interval_ns());
    }

    /// Sets memory aside for the next read.
    fn reserved(&mut self, ctx: &mut Ctx, memory: Result<Reservation, Short>) -> Result<(), Short> {
        let short = memory.as_ref().err().copied();
        ctx.io.reservation = memory.ok();
        if short.is_some() && !self.memory_short {
            ctx.shared.counters.buffer_waits.add(1);
        }
        self.memory_short = short.is_some();
        short.map_or(Ok(()), Err)
    }

    /// Counts a request that starts, late or not. `None`: it wants to be dropped when late.
    pub(super) fn started(&self, ctx: &Ctx, arrival: Arrival) -> Option<(RequestId, StoreCommand)> {
        let now_ns = monotonic_ns();
        if let Some(late_ns) = arrival.ctx.late_ns(now_ns) {
            self.drop_late(ctx, arrival, late_ns);
            return None;
        }
        let counters = &ctx.shared.counters;
        let waited = now_ns.saturating_sub(arrival.since_ns);
        counters.queue_started.add(1);
        counters.queue_wait_ns.add(waited);
        if arrival.ctx.deadline.is_some_and(|time| time < now_ns) {
            counters.deadline_missed.add(1);
        }
        self.admission.leave();
        Some((arrival.ctx.id, arrival.command))
    }

    /// Nothing that waits can be done.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        for arrival in self.take_all() {
            self.admission.leave();
            arrival.command.refuse(error.clone());
        }
    }

    fn take_all(&mut self) -> Vec<Arrival> {
        let waiting = self.changes.drain(..).chain(self.held.take_all());
        let queued = std::iter::from_fn(|| self.queue.take_oldest());
        waiting.chain(queued).collect()
    }

    fn drop_late(&self, ctx: &Ctx, arrival: Arrival, late_ns: u64) {
        ctx.shared.counters.deadline_dropped.add(1);
        self.admission.leave();
        arrival.command.refuse(Error::DeadlineExceeded { late_ns });
    }

    /// Shows the present numbers to other threads.
    pub(super) fn publish(&self, ctx: &Ctx) {
        ctx.shared.counters.overtakes.set(self.queue.overtakes());
    }
}

impl Drop for WaitingRequests {
    /// The owner ends early, perhaps by a panic: whoever waits is told.
    fn drop(&mut self) {
        for arrival in self.take_all() {
            arrival.command.refuse(Error::Closed);
        }
    }
}

/// Until when the disk has enough of this kind, unless an I/O ends; `None`: it has not. More at a
/// time would end later and all at once, and what is done with them then would wait, where it could
/// be done beside the next.
fn enough_until(ctx: &Ctx, kind: RequestKind, now_ns: u64) -> Option<u64> {
    let enough = match kind {
        RequestKind::Get if !ctx.limits.has_arm => GET_BYTES,
        RequestKind::Put if !ctx.limits.has_arm => PUT_BYTES,
        _ => return None,
    };
    let (bytes, first_ns) = ctx.io.begun_since(now_ns.saturating_sub(LATE_NS), kind);
    (bytes >= enough).then(|| first_ns.saturating_add(LATE_NS))
}

/// Where a request does its data I/O, and how many bytes a get reads; `None`: it does none.
fn place(ctx: &Ctx, arrival: &Arrival) -> Option<(QueuePlace, u64)> {
    let (kind, position, memory) = match &arrival.command {
        StoreCommand::Get { .. }
        | StoreCommand::GetRange { .. }
        | StoreCommand::GetPiece { .. } => {
            let (position, len) = to_read(ctx, &arrival.command)?;
            let small = ctx.io.pool.is_small(len);
            let kind = if small {
                RequestKind::Small
            } else {
                RequestKind::Get
            };
            (kind, position, len)
        }
        StoreCommand::Head { id, sum, .. } => {
            let block_size = ctx.storage.geometry.block_size();
            let entry = ctx.storage.index.get(*id)?;
            let by_sum = *sum && entry.portion().is_some();
            if entry.payload_len(block_size).is_some() && !by_sum {
                return None;
            }
            let (position, len) = stored_at(ctx, *id)?;
            let block = block_size.bytes();
            (RequestKind::Head, position + len - block, 0)
        }
        StoreCommand::Put(put) if put.data.is_some() => (RequestKind::Put, 0, 0),
        StoreCommand::PutPiece(_) => (RequestKind::Put, 0, 0),
        _ => return None,
    };
    let place = QueuePlace {
        kind,
        position,
        deadline: arrival.ctx.deadline,
        expires: arrival.ctx.drop_when_late,
    };
    Some((place, memory))
}

/// Where a get reads first, and the most bytes that it reads at once.
fn to_read(ctx: &Ctx, command: &StoreCommand) -> Option<(u64, u64)> {
    match command {
        StoreCommand::Get { id, .. } => stored_at(ctx, *id),
        StoreCommand::GetRange { id, wanted, .. } => {
            let (position, stored) = stored_at(ctx, *id)?;
            let entry = ctx.storage.index.get(*id)?;
            let wanted = wanted.of(ctx.storage.journal.provenance(entry));
            Some((position, wanted.memory(stored)))
        }
        StoreCommand::GetPiece { lump, wanted, .. } => Some(lump.extent(wanted)),
        _ => None,
    }
}

/// First byte in the device and length of what holds a lump: its portion, or the units of the
/// ring with its record.
fn stored_at(ctx: &Ctx, id: LumpId) -> Option<(u64, u64)> {
    let entry = ctx.storage.index.get(id)?;
    if let Some(portion) = entry.portion() {
        let (offset, len) = ctx.storage.extent_of(portion);
        return Some((offset.0, len));
    }
    let position = entry.record();
    let (start, len) = (ctx.storage.journal).units(position, position.0 + entry.record_len());
    Some((ctx.storage.geometry.ring_byte(start).0, len))
}

impl StoreCommand {
    /// True: it changes the store.
    fn is_change(&self) -> bool {
        let is_put = matches!(self, Self::Put(_) | Self::PutPiece(_));
        is_put || self.is_delete() || matches!(self, Self::Sync { .. })
    }
}
