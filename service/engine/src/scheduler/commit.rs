//! Group commit: makes data and records durable, many requests at a time.
//!
//! One batch of records and one flush are in flight at most. The phases of a batch:
//!
//! ```text
//! Idle ─▶ Rest (all but the first unit) ─▶ RestFlush ─▶ First (makes it visible) ─▶ LastFlush ─▶ Idle
//!   └──────────── batch of one unit ─────────────────────▲
//!   └─▶ DataFlush ─▶ Idle        no record is ready, but data waits for a flush
//! ```
//!
//! Every flush also serves the data writes that were complete when it began: their records are
//! ready for the next batch. So with many puts in flight each flush is shared, and a put costs two
//! of them in time: one for its data, one for its record. Changes are applied to the index in the
//! order of their records, after the last flush; or after the visible write, when every change of
//! the batch asked for no more (`Journaled`).

use std::collections::VecDeque;

use super::Owner;
use super::change::{Answer, Change, Effect, PendingPut};
use super::message::{Reply, Stage};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::request::Durability;
use crate::storage::Storage;
use crate::storage::journal::gc::{Relocation, Taken};
use crate::storage::journal::writer::{Batch, BatchWrites, NewTail, RingWrite};
use crate::units::RingPosition;

use super::io_table::Tag;

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
}

/// Something that is written and waits for a flush that begins after now.
enum Unflushed {
    Put(Box<PendingPut>),
    Header(RingPosition),
    Sync(Reply<()>),
}

/// A batch between its first write and its last flush.
struct InFlight {
    relocations: Vec<Relocation>,
    /// Empty once applied.
    changes: Vec<(Change, RingPosition)>,
    /// Puts that a change of this batch has beaten: told when that one is durable.
    beaten: Vec<Change>,
    durability: Durability,
    requests: Vec<RequestId>,
    /// Taken when written.
    first: Option<RingWrite>,
    new_tail: Option<NewTail>,
    records: u64,
}

/// State of the group commit.
#[derive(Default)]
pub(super) struct Commit {
    phase: Phase,
    /// Changes for the next batch, in the order of the log.
    pub(super) ready: VecDeque<Change>,
    /// Written, and no flush has begun since.
    unflushed: Vec<Unflushed>,
    /// Served by the flush in flight.
    flushing: Vec<Unflushed>,
    batch: Option<InFlight>,
}

impl Commit {
    pub(super) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.ready.is_empty() && self.unflushed.is_empty()
    }

    /// True: the index knows every record in the journal.
    pub(super) fn is_between_batches(&self) -> bool {
        self.batch.is_none()
    }

    /// True: everything that is applied is on stable storage.
    pub(super) fn all_durable(&self) -> bool {
        self.phase != Phase::LastFlush
    }

    pub(super) fn await_flush_for_put(&mut self, put: Box<PendingPut>) {
        self.unflushed.push(Unflushed::Put(put));
    }

    pub(super) fn await_flush_for_sync(&mut self, reply: Reply<()>) {
        self.unflushed.push(Unflushed::Sync(reply));
    }

    pub(super) fn await_flush_for_header(&mut self, head: RingPosition) {
        self.unflushed.push(Unflushed::Header(head));
    }
}

impl Owner {
    /// Starts a batch, or else a flush, when none is in flight.
    pub(super) fn start_commit(&mut self) {
        if self.commit.phase != Phase::Idle {
            return;
        }
        // All phases have ended, so everything the collection has passed is durable.
        self.move_head();
        loop {
            self.refuse_beaten_first();
            let mut batch = Batch::new(&self.storage.journal);
            let blocked = self.is_blocked(&batch);
            if blocked && self.collection.press(&self.storage) {
                self.refuse_first_ready();
                continue;
            }
            let taken = self.relocate(&mut batch, blocked);
            let (changes, beaten) = self.take_ready(&mut batch);
            if !changes.is_empty() || self.commit.ready.is_empty() {
                self.collection.relax();
            } else if !blocked {
                // Relocated records took the room: next time the change goes first.
                self.collection.press(&self.storage);
            }
            if !batch.is_empty() {
                return self.start_batch(batch, taken, changes, beaten);
            }
            if !blocked || !self.collection.is_stuck(&self.storage) {
                break;
            }
            self.refuse_first_ready();
        }
        self.end_stuck_collects();
        if self.commit.unflushed.is_empty() {
            self.move_head();
        } else {
            self.start_flush(Phase::DataFlush);
        }
    }

    /// True: the first change that is ready finds no room, not even in an empty batch.
    fn is_blocked(&self, batch: &Batch) -> bool {
        let journal = &self.storage.journal;
        self.commit
            .ready
            .front()
            .is_some_and(|change| !batch.has_room(journal, change.record.len(), self.kept_room()))
    }

    /// Bytes that the next change must leave free. Where another engine has used the reserve too,
    /// or the end of a ring of a few blocks takes what a whole round of the collection has won, a
    /// delete may take of the last room: it makes more than it takes.
    pub(super) fn kept_room(&self) -> u64 {
        let Storage { journal, index, .. } = &self.storage;
        let is_delete = self.commit.ready.front().is_some_and(Change::is_delete);
        let in_need = index.record_bytes() > journal.live_limit(0)
            || self.collection.has_gone_round(&self.storage);
        if is_delete && in_need {
            journal.last_room()
        } else {
            journal.gc_reserve()
        }
    }

    /// Answers the delete of a lump that is not there, for which there is no room: everything
    /// applied is durable, so it needs no record. Any other change is given back.
    fn end_without_effect(&mut self, change: Change) -> Option<Change> {
        let (Effect::Delete { id, .. } | Effect::DeleteOne { id, .. }) = &change.effect else {
            return Some(change);
        };
        if self.storage.index.get(*id).is_some() {
            return Some(change);
        }
        // No lump gets this position: a delete only takes away.
        let position = self.storage.journal.tail();
        if let Some(answer) = self.apply(change, position, Durability::Synced) {
            answer.send();
        }
        None
    }

    /// The collection cannot make room for the first change that is ready.
    fn refuse_first_ready(&mut self) {
        self.collection.relax();
        if let Some(change) = self.commit.ready.pop_front() {
            let Some(change) = self.end_without_effect(change) else {
                return;
            };
            let journal = &self.storage.journal;
            let needed = change.record.len() as u64;
            let (used, capacity) = (journal.used(), journal.capacity());
            let error = Error::JournalFull {
                needed,
                used,
                capacity,
            };
            self.refuse_change(change, error, false);
        }
    }

    fn start_batch(
        &mut self,
        batch: Batch,
        taken: Taken,
        changes: Vec<(Change, RingPosition)>,
        beaten: Vec<Change>,
    ) {
        let BatchWrites {
            rest,
            first,
            new_tail,
            records,
        } = batch.finish(&self.storage.journal, &self.io.pool);
        let journaled = !changes.is_empty()
            && taken.relocations.is_empty()
            && changes
                .iter()
                .all(|(change, _)| change.durability == Durability::Journaled);
        let durability = if journaled {
            Durability::Journaled
        } else {
            Durability::Synced
        };
        let mut requests: Vec<RequestId> =
            changes.iter().map(|(change, _)| change.request).collect();
        // The records of one request lie side by side.
        requests.dedup();
        for write in rest.iter() {
            debug_assert!(write.position.0.is_multiple_of(self.storage.journal.unit()));
        }
        self.commit.phase = Phase::Rest(rest.len());
        self.commit.batch = Some(InFlight {
            relocations: taken.relocations,
            changes,
            beaten,
            durability,
            requests: requests.clone(),
            first: Some(first),
            new_tail: Some(new_tail),
            records,
        });
        if rest.is_empty() {
            return self.write_first();
        }
        for write in rest {
            self.write_ring(Tag::BatchRest, write, requests.clone());
        }
    }

    fn write_ring(&mut self, tag: Tag, write: RingWrite, requests: Vec<RequestId>) {
        let offset = self.storage.geometry.ring_byte(write.position).0;
        self.io.write(tag, offset, write.buf, requests);
    }

    fn write_first(&mut self) {
        let Some(batch) = self.commit.batch.as_mut() else {
            return;
        };
        let Some(first) = batch.first.take() else {
            return;
        };
        let requests = batch.requests.clone();
        self.commit.phase = Phase::First;
        self.write_ring(Tag::BatchFirst, first, requests);
    }

    /// A piece of the batch that replay cannot reach yet is written.
    pub(super) fn batch_rest_written(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            return self.fail(&error);
        }
        let Phase::Rest(left) = self.commit.phase else {
            return;
        };
        self.commit.phase = Phase::Rest(left - 1);
        if left == 1 {
            self.start_flush(Phase::RestFlush);
        }
    }

    /// The batch is in the journal, but perhaps only in the device's cache.
    pub(super) fn batch_visible(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            return self.fail(&error);
        }
        let Some(batch) = self.commit.batch.as_mut() else {
            return;
        };
        if let Some(new_tail) = batch.new_tail.take() {
            self.storage.journal.advance(new_tail);
        }
        let answers = match batch.durability {
            Durability::Journaled => self.apply_batch(),
            Durability::Synced => Vec::new(),
        };
        self.start_flush(Phase::LastFlush);
        answers.into_iter().for_each(Answer::send);
    }

    fn start_flush(&mut self, phase: Phase) {
        self.commit.phase = phase;
        self.commit.flushing = std::mem::take(&mut self.commit.unflushed);
        let mut requests = self
            .commit
            .batch
            .as_ref()
            .map_or_else(Vec::new, |batch| batch.requests.clone());
        requests.extend(self.commit.flushing.iter().filter_map(|item| match item {
            Unflushed::Put(put) => Some(put.request),
            Unflushed::Header(_) | Unflushed::Sync(_) => None,
        }));
        self.io.flush(requests);
    }

    /// A flush has ended.
    pub(super) fn flushed(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            return self.fail(&error);
        }
        self.shared.counters.flushes.add(1);
        for item in std::mem::take(&mut self.commit.flushing) {
            match item {
                Unflushed::Put(put) => self.put_durable(*put),
                Unflushed::Header(head) => self.head_durable(head),
                Unflushed::Sync(reply) => {
                    self.pending -= 1;
                    reply.send(Ok(()), Stage::Journal);
                }
            }
        }
        match self.commit.phase {
            Phase::RestFlush => self.write_first(),
            Phase::LastFlush => self.batch_durable(),
            _ => self.commit.phase = Phase::Idle,
        }
    }

    fn batch_durable(&mut self) {
        let answers = self.apply_batch();
        self.commit.phase = Phase::Idle;
        let mut beaten = Vec::new();
        if let Some(batch) = self.commit.batch.take() {
            self.shared.counters.commits.add(1);
            self.shared.counters.commit_records.add(batch.records);
            self.checkpoint.appended(batch.records);
            beaten = batch.beaten;
        }
        let freed = self.storage.data.all_durable();
        self.note_service_times(&answers);
        answers.into_iter().for_each(Answer::send);
        // Who lost is told after who won: answers come in the order of the log.
        beaten.into_iter().for_each(|put| self.beat(put));
        if freed {
            self.retry_waiting_puts();
        }
    }

    /// Applies the changes of the batch, relocated records first, as they are in the log.
    fn apply_batch(&mut self) -> Vec<Answer> {
        let Some(batch) = self.commit.batch.as_mut() else {
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
            self.storage.index.update(id, |entry| {
                if entry.record() == from {
                    entry.moved_to(to, marked)
                } else {
                    entry
                }
            });
        }
        changes
            .into_iter()
            .filter_map(|(change, position)| self.apply(change, position, durability))
            .collect()
    }

    /// Answers everything that waits for the journal.
    pub(super) fn fail_commit(&mut self, error: &Error) {
        let (in_flight, beaten) = self
            .commit
            .batch
            .take()
            .map_or_else(Default::default, |batch| (batch.changes, batch.beaten));
        for (change, _) in in_flight {
            self.refuse_change(change, error.clone(), true);
        }
        for put in beaten {
            self.refuse_change(put, error.clone(), false);
        }
        for change in std::mem::take(&mut self.commit.ready) {
            self.refuse_change(change, error.clone(), false);
        }
        let mut waiting = std::mem::take(&mut self.commit.flushing);
        waiting.append(&mut self.commit.unflushed);
        for item in waiting {
            match item {
                Unflushed::Put(put) => self.refuse_put(*put, error.clone(), Stage::Journal),
                Unflushed::Header(_) => {}
                Unflushed::Sync(reply) => {
                    self.pending -= 1;
                    reply.send(Err(error.clone()), Stage::Journal);
                }
            }
        }
        self.commit.phase = Phase::Idle;
    }
}
