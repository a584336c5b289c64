//! Group commit: makes data and records durable, many requests at a time.
//!
//! One batch of records and one flush are in flight at most. The phases of a batch:
//!
//! ```text
//! Idle ─▶ Rest (all but the first unit) ─▶ RestFlush ─▶ First (makes it visible) ─▶ LastFlush ─▶ Idle
//!   └──────────── batch of one unit ─────────────────────▲
//!   ├─▶ DataFlush ─▶ Idle        no record is ready, but data waits for a flush
//!   └─▶ Settle ─▶ Idle           nothing happens, and the last batch is not settled
//! ```
//!
//! Every flush also serves the data writes that were complete when it began: their records are
//! ready for the next batch. So with many puts in flight each flush is shared, and a put costs two
//! of them in time: one for its data, one for its record. Changes are applied to the index in the
//! order of their records, after the last flush; or after the visible write, when every change of
//! the batch asked for no more (`Journaled`).
//!
//! A put in a [run](runs) is durable before its record, which follows.

pub(super) mod change;
pub(super) mod delete;
mod end;
mod lost;
mod overlay;
mod refusal;
mod runs;
mod times;

use std::collections::VecDeque;

use change::{Change, ChangeAnswer};
use delete::Many;
use end::write_ring;
use lost::RefusedPieces;
use overlay::Overlay;
use runs::{Runs, record};

use super::command::put::{Misplaced, Put};
use super::command::{Stage, TimedReply};
use super::ctx::Ctx;
use super::gc::Gc;
use super::io_table::RingPiece;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::mutant::{self, Mutant};
use crate::request::{DeleteManyOutcome, Durability};
use crate::storage::Storage;
use crate::storage::journal::gc::{Relocation, Taken};
use crate::storage::journal::writer::{Batch, BatchWrites, NewTail, RingWrite};
use crate::units::RingPosition;

/// Bytes after which a batch takes no more records.
const BATCH_LIMIT: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    DataFlush,
    /// Pieces still being written.
    Rest(usize),
    RestFlush,
    First,
    LastFlush,
    /// The old end of the journal is written anew, without a run.
    Settle,
    EndFlush,
}

/// Something that is written and waits for a flush that begins after now.
enum Unflushed {
    Put(Box<Put>),
    Header(RingPosition),
    Sync(TimedReply<()>),
    Settled,
}

/// A batch between its first write and its last flush.
struct InFlight {
    relocations: Vec<Relocation>,
    /// Empty once applied.
    changes: Vec<(Change, RingPosition)>,
    /// Puts that a change of this batch has beaten: told when that one is durable.
    beaten: Vec<Put>,
    /// Puts that go elsewhere once the batch does not name their run any more.
    broken: Vec<Misplaced>,
    durability: Durability,
    requests: Vec<RequestId>,
    /// Taken when written.
    first: Option<RingWrite>,
    /// True: it can be given up as long as replay cannot reach it.
    can_be_undone: bool,
    /// The file system has no space for a piece that replay cannot reach yet.
    no_space: Option<Error>,
    new_tail: Option<NewTail>,
    records: u64,
}

/// State of the group commit.
#[derive(Default)]
pub(super) struct Commit {
    phase: Phase,
    /// Changes for the next batch, in the order of the log.
    ready: VecDeque<Change>,
    /// Written, and no flush has begun since.
    unflushed: Vec<Unflushed>,
    /// Served by the flush in flight.
    flushing: Vec<Unflushed>,
    batch: Option<InFlight>,
    /// When the seal of the last batch is to be settled.
    settle_ns: u64,
    /// Writes that had ended when one was settled last.
    settled: u64,
    /// Deletes of many that are not applied as a whole.
    many: Many,
    /// Puts of a run that is being given up.
    misplaced: Vec<Misplaced>,
    runs: Runs,
    refused: RefusedPieces,
    /// To changes that were carried out in this round.
    answers: Vec<ChangeAnswer>,
}

impl Commit {
    pub(super) fn is_idle(&self, ctx: &Ctx) -> bool {
        self.phase == Phase::Idle
            && self.ready.is_empty()
            && self.unflushed.is_empty()
            && ctx.storage.unrecorded.is_empty()
            && !self.runs.are_waited_for()
    }

    /// True: the index knows every record in the journal.
    pub(super) fn is_between_batches(&self) -> bool {
        self.batch.is_none()
    }

    /// True: everything that is applied is on stable storage.
    pub(super) fn all_durable(&self) -> bool {
        self.phase != Phase::LastFlush
    }

    /// The change goes into the log behind all that were added before.
    pub(super) fn add(&mut self, mut change: Change) {
        let behind = self.in_flight();
        if let Some(timing) = change.timing(&mut self.many) {
            timing.wait_behind(behind);
        }
        self.ready.push_back(change);
    }

    /// The key of the next [`begin_many`](Self::begin_many).
    pub(super) fn next_many(&self) -> u64 {
        self.many.next()
    }

    /// A delete of many, of which `left` deletes were added under the key.
    pub(super) fn begin_many(
        &mut self,
        outcome: DeleteManyOutcome,
        left: usize,
        mut reply: TimedReply<DeleteManyOutcome>,
    ) {
        reply.timing.wait_behind(self.in_flight());
        self.many.begin(outcome, left, reply);
    }

    pub(super) fn await_flush_for_put(&mut self, mut put: Box<Put>) {
        put.reply.timing.wait_behind(self.in_flight());
        self.unflushed.push(Unflushed::Put(put));
    }

    pub(super) fn await_flush_for_sync(&mut self, mut reply: TimedReply<()>) {
        reply.timing.wait_behind(self.in_flight());
        self.unflushed.push(Unflushed::Sync(reply));
    }

    pub(super) fn await_flush_for_header(&mut self, head: RingPosition) {
        self.unflushed.push(Unflushed::Header(head));
    }

    /// Starts a batch, or else a flush, when none is in flight.
    pub(super) fn start(&mut self, ctx: &mut Ctx, gc: &mut Gc) {
        if self.phase != Phase::Idle {
            return self.write_refused(ctx);
        }
        // All phases have ended, so everything the collection has passed is durable.
        gc.move_head(ctx);
        if self.close_abandoned(ctx) {
            return;
        }
        loop {
            self.refuse_beaten_first(ctx);
            // Making the records of runs takes time that every put would pay.
            if self.ready.is_empty() && !self.runs.must_record(ctx) && !gc.has_work(ctx) {
                gc.relax();
                break;
            }
            let mut batch = Batch::new(&ctx.storage.journal);
            let Some(recorded) = record(ctx, &mut batch) else {
                break;
            };
            let blocked = self.is_blocked(ctx, gc, &batch);
            if blocked && gc.press(&ctx.storage) {
                self.refuse_first_ready(ctx, gc);
                continue;
            }
            let mut taken = gc.relocate(ctx, &mut batch, blocked);
            let (changes, beaten) = self.take_ready(ctx, gc, &mut batch);
            if !changes.is_empty() || self.ready.is_empty() {
                gc.relax();
            } else if !blocked {
                // Relocated records took the room: next time the change goes first.
                gc.press(&ctx.storage);
            }
            let only_recorded = changes.is_empty() && taken.relocations.is_empty();
            let waits = only_recorded && !self.runs.must_record(ctx);
            if !batch.is_empty() && !waits {
                taken.relocations.splice(0..0, recorded);
                return self.start_batch(ctx, batch, taken, (changes, beaten));
            }
            if !blocked || !gc.is_stuck(ctx) {
                break;
            }
            self.refuse_first_ready(ctx, gc);
        }
        gc.end_stuck(ctx);
        if !self.awaits_flush() {
            gc.move_head(ctx);
            self.settle(ctx);
        } else {
            self.start_flush(ctx, Phase::DataFlush);
        }
    }

    /// True: something is written and waits for a flush.
    fn awaits_flush(&self) -> bool {
        !self.unflushed.is_empty() || self.runs.awaits_flush()
    }

    /// True: the first change that is ready finds no room, not even in an empty batch.
    fn is_blocked(&self, ctx: &Ctx, gc: &Gc, batch: &Batch) -> bool {
        let journal = &ctx.storage.journal;
        self.ready.front().is_some_and(|change| {
            !batch.has_room(journal, change.record().len(), self.kept_room(ctx, gc))
        })
    }

    /// Bytes that the next change must leave free. Where another engine has used the reserve too,
    /// or the end of a ring of a few blocks takes what a whole round of the collection has won, a
    /// delete may take of the last room: it makes more than it takes.
    fn kept_room(&self, ctx: &Ctx, gc: &Gc) -> u64 {
        let Storage { journal, index, .. } = &ctx.storage;
        let is_delete = self.ready.front().is_some_and(Change::is_delete);
        let in_need =
            index.record_bytes() > journal.live_limit(0) || gc.has_gone_round(&ctx.storage);
        if is_delete && in_need {
            journal.last_room()
        } else {
            journal.gc_reserve()
        }
    }

    /// Moves changes that are ready into the batch, in order, while there is room. Beside them:
    /// the puts that one of them has beaten.
    ///
    /// One batch is in flight at a time, so the index holds exactly what the journal says, and all
    /// of it is durable. Index and batch together are the state that a put meets. A put that loses
    /// leaves no record: its blocks are free again and nothing of it survives a crash.
    fn take_ready(
        &mut self,
        ctx: &mut Ctx,
        gc: &Gc,
        batch: &mut Batch,
    ) -> (Vec<(Change, RingPosition)>, Vec<Put>) {
        let (mut taken, mut beaten) = (Vec::new(), Vec::new());
        let keep = self.kept_room(ctx, gc);
        let absent = |change: &Change| match change {
            Change::Put(put) => put.absent(),
            Change::Delete(_) => None,
        };
        let conditional = self.ready.iter().any(|change| absent(change).is_some());
        let mut overlay = conditional.then(Overlay::default);
        while batch.len() < BATCH_LIMIT
            && let Some(change) = self.ready.pop_front()
        {
            let change = match (change, &overlay) {
                (Change::Put(put), Some(overlay)) => match put.absent() {
                    Some(id) if overlay.find(id) == Some(true) => {
                        beaten.push(*put);
                        continue;
                    }
                    Some(id)
                        if overlay.find(id).is_none() && ctx.storage.index.get(id).is_some() =>
                    {
                        self.beat(ctx, *put);
                        continue;
                    }
                    _ => Change::Put(put),
                },
                (change, _) => change,
            };
            let Some(position) = batch.append(&ctx.storage.journal, change.record(), keep) else {
                self.ready.push_front(change);
                break;
            };
            if let Some(overlay) = &mut overlay {
                overlay.note(&change);
            }
            taken.push((change, position));
        }
        (taken, beaten)
    }

    /// Carries out a change whose record is in the journal at `position`. The answer, unless it
    /// has to wait for others.
    fn apply(
        &mut self,
        ctx: &mut Ctx,
        change: Change,
        position: RingPosition,
        durability: Durability,
    ) -> Option<ChangeAnswer> {
        match change {
            Change::Put(put) => Some(put.apply(ctx, (position, true), durability)),
            Change::Delete(delete) => delete.apply(ctx, &mut self.many, durability),
        }
    }

    fn start_batch(
        &mut self,
        ctx: &mut Ctx,
        batch: Batch,
        taken: Taken,
        (mut changes, beaten): (Vec<(Change, RingPosition)>, Vec<Put>),
    ) {
        self.end_waits(changes.iter_mut().map(|(change, _)| change));
        let run = self.runs.ending(ctx);
        let BatchWrites {
            rest,
            first,
            new_tail,
            records,
        } = batch.finish(&ctx.storage.journal, &ctx.io.pool, run);
        let can_be_undone = self.run_batch_begun(ctx, &new_tail);
        let journaled = !changes.is_empty()
            && taken.relocations.is_empty()
            && changes
                .iter()
                .all(|(change, _)| change.durability() == Durability::Journaled);
        let durability = if journaled {
            Durability::Journaled
        } else {
            Durability::Synced
        };
        let mut requests: Vec<RequestId> =
            changes.iter().map(|(change, _)| change.request()).collect();
        // The records of one request lie side by side.
        requests.dedup();
        let unit = ctx.storage.journal.unit();
        debug_assert!(rest.iter().all(|it| it.position.0.is_multiple_of(unit)));
        self.phase = Phase::Rest(rest.len());
        self.batch = Some(InFlight {
            relocations: taken.relocations,
            changes,
            beaten,
            broken: std::mem::take(&mut self.runs.broken),
            durability,
            requests: requests.clone(),
            first: Some(first),
            can_be_undone,
            no_space: None,
            new_tail: Some(new_tail),
            records,
        });
        self.leave_behind();
        if rest.is_empty() {
            return self.write_first(ctx);
        }
        for write in rest {
            write_ring(ctx, RingPiece::Rest, write, requests.clone());
        }
    }

    fn write_first(&mut self, ctx: &mut Ctx) {
        let Some(batch) = self.batch.as_mut() else {
            return;
        };
        let Some(first) = batch.first.take() else {
            return;
        };
        let requests = batch.requests.clone();
        self.phase = Phase::First;
        write_ring(ctx, RingPiece::First, first, requests);
    }

    /// A piece of the batch that replay cannot reach yet is written, or is given up.
    fn rest_written(&mut self, ctx: &mut Ctx) {
        let Phase::Rest(left) = self.phase else {
            return;
        };
        self.phase = Phase::Rest(left - 1);
        if left == 1 && !self.refuse_without_space(ctx) {
            self.lap_batch(Stage::Write);
            self.start_flush(ctx, Phase::RestFlush);
        }
    }

    /// The batch is in the journal, but perhaps only in the device's cache.
    fn visible(&mut self, ctx: &mut Ctx) {
        self.lap_batch(Stage::Write);
        let Some(batch) = self.batch.as_mut() else {
            return;
        };
        if let Some(new_tail) = batch.new_tail.take() {
            ctx.storage.journal.advance(new_tail);
            ctx.end_written();
        }
        let answers = match batch.durability {
            Durability::Journaled => self.apply_batch(ctx),
            Durability::Synced => Vec::new(),
        };
        if mutant::is(Mutant::ReusesEarly) {
            ctx.freed |= ctx.storage.data.all_durable();
        }
        self.start_flush(ctx, Phase::LastFlush);
        self.carried_out(ctx, answers);
    }

    fn start_flush(&mut self, ctx: &mut Ctx, phase: Phase) {
        self.phase = phase;
        self.flushing = std::mem::take(&mut self.unflushed);
        self.run_flush_began();
        self.flush_began();
        let mut requests = self
            .batch
            .as_ref()
            .map_or_else(Vec::new, |batch| batch.requests.clone());
        requests.extend(self.flushing.iter().filter_map(|item| match item {
            Unflushed::Put(put) => Some(put.request),
            Unflushed::Header(_) | Unflushed::Sync(_) | Unflushed::Settled => None,
        }));
        requests.extend(self.runs.flushed_puts().map(|put| put.request));
        ctx.io.flush(requests);
    }

    /// A flush has ended. Returns the records of the batch that it was the last one of.
    pub(super) fn flushed(
        &mut self,
        ctx: &mut Ctx,
        gc: &mut Gc,
        result: Result<(), Error>,
    ) -> Result<u64, Error> {
        result?;
        self.lap_batch(Stage::Flush);
        self.run_flush_ended();
        let goes_on = self.phase == Phase::RestFlush;
        for mut item in std::mem::take(&mut self.flushing) {
            if let Some(timing) = item.timing() {
                timing.lap(Stage::Flush);
            }
            match item {
                Unflushed::Put(put) if goes_on => self.add(put.recorded()),
                Unflushed::Put(put) => self.ready.push_back(put.recorded()),
                Unflushed::Settled => {}
                Unflushed::Header(head) => gc.head_durable(ctx, head),
                Unflushed::Sync(reply) => {
                    ctx.unfinished.end();
                    reply.send(Ok(()), Stage::Journal);
                }
            }
        }
        match self.phase {
            Phase::RestFlush => self.write_first(ctx),
            Phase::LastFlush => return Ok(self.batch_durable(ctx)),
            Phase::EndFlush => {
                self.phase = Phase::Idle;
                self.runs.forget_beaten(ctx);
            }
            _ => self.phase = Phase::Idle,
        }
        self.apply_run(ctx);
        Ok(0)
    }

    fn batch_durable(&mut self, ctx: &mut Ctx) -> u64 {
        let answers = self.apply_batch(ctx);
        self.phase = Phase::Idle;
        self.settle_later();
        let (mut beaten, mut records) = (Vec::new(), 0);
        if let Some(batch) = self.batch.take() {
            ctx.shared.counters.commits.add(1);
            ctx.shared.counters.commit_records.add(batch.records);
            (beaten, records) = (batch.beaten, batch.records);
            self.misplaced.extend(batch.broken);
        }
        ctx.storage.unrecorded.recorded();
        self.runs.forget_beaten(ctx);
        ctx.freed |= ctx.storage.data.all_durable();
        self.carried_out(ctx, answers);
        beaten.into_iter().for_each(|put| self.beat(ctx, put));
        self.apply_run(ctx);
        records
    }

    /// Applies the changes of the batch, relocated records first, as they are in the log.
    fn apply_batch(&mut self, ctx: &mut Ctx) -> Vec<ChangeAnswer> {
        let Some(batch) = self.batch.as_mut() else {
            return Vec::new();
        };
        let durability = batch.durability;
        let relocations = std::mem::take(&mut batch.relocations);
        let changes = std::mem::take(&mut batch.changes);
        for Relocation {
            id,
            from,
            to,
            marked,
        } in relocations
        {
            ctx.storage.index.update(id, |entry| {
                if entry.record() == from {
                    entry.moved_to(to, marked)
                } else {
                    entry
                }
            });
        }
        changes
            .into_iter()
            .filter_map(|(change, position)| self.apply(ctx, change, position, durability))
            .collect()
    }
}
