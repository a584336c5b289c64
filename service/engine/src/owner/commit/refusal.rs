//! Changes that get no place in the journal, or whose place is not certain.

use super::change::Change;
use super::runs::moves_only_runs;
use super::{Commit, Phase, Unflushed};
use crate::error::Error;
use crate::owner::command::Stage;
use crate::owner::command::put::{Misplaced, Put};
use crate::owner::ctx::Ctx;
use crate::owner::gc::Gc;
use crate::owner::io_table::RingPiece;
use crate::request::Durability;

impl Commit {
    /// Answers the puts at the front of the ready changes that have lost already, so that they
    /// do not wait for room in the journal. To be called between batches.
    pub(super) fn refuse_beaten_first(&mut self, ctx: &mut Ctx) {
        while let Some(Change::Put(put)) = self.ready.front()
            && let Some(id) = put.absent()
            && ctx.storage.index.get(id).is_some()
            && let Some(Change::Put(put)) = self.ready.pop_front()
        {
            self.beat(ctx, *put);
        }
    }

    /// The collection cannot make room for the first change that is ready.
    pub(super) fn refuse_first_ready(&mut self, ctx: &mut Ctx, gc: &mut Gc) {
        gc.relax();
        let Some(change) = self.ready.pop_front() else {
            return;
        };
        let journal = &ctx.storage.journal;
        if let Change::Delete(delete) = &change
            && let Some(id) = delete.lump()
            && ctx.storage.index.get(id).is_none()
        {
            // Everything applied is durable, so the delete of a lump that is not there needs no
            // record; and no lump gets its position.
            let position = journal.tail();
            let answer = self.apply(ctx, change, position, Durability::Synced);
            self.carried_out(ctx, answer);
            self.send_answers(ctx);
            return;
        }
        let error = Error::JournalFull {
            needed: change.record().len() as u64,
            used: journal.used(),
            capacity: journal.capacity(),
        };
        self.refuse(ctx, change, error, false);
    }

    /// Gives up a change whose record was not written, or failed to be.
    pub(super) fn refuse(
        &mut self,
        ctx: &mut Ctx,
        change: Change,
        error: Error,
        may_be_on_disk: bool,
    ) {
        match change {
            Change::Put(put) => put.refuse(ctx, error, Stage::Journal, may_be_on_disk),
            Change::Delete(delete) => {
                if let Some(key) = delete.refuse(ctx, &mut self.many, error) {
                    let of_it = |change: &Change| matches!(change, Change::Delete(delete) if delete.is_of(key));
                    self.ready.retain(|change| !of_it(change));
                }
            }
        }
    }

    /// A piece of a batch was not written. True: the batch is given up, for it is for want of space,
    /// replay cannot reach the piece yet, and the collection does not depend on it.
    pub(super) fn gives_batch_up(&mut self, ctx: &Ctx, piece: RingPiece, error: &Error) -> bool {
        let moved = self.batch.iter().flat_map(|batch| &batch.relocations);
        let only_runs = moves_only_runs(ctx, moved);
        let is_rest = piece == RingPiece::Rest && matches!(error, Error::NoSpace { .. });
        match self.batch.as_mut().filter(|batch| batch.can_be_undone) {
            Some(batch) if only_runs && is_rest => {
                batch.no_space = Some(error.clone());
                true
            }
            _ => false,
        }
    }

    /// Refuses the changes of a batch that the file system has no space for: the journal ends where
    /// it did, and the next batch is written over it. False: it has space.
    pub(super) fn refuse_without_space(&mut self, ctx: &mut Ctx) -> bool {
        let batch = self.batch.take_if(|batch| batch.no_space.is_some());
        let Some((error, batch)) =
            batch.and_then(|mut batch| Some((batch.no_space.take()?, batch)))
        else {
            return false;
        };
        self.phase = Phase::Idle;
        self.run_batch_undone(ctx);
        for (change, _) in batch.changes {
            self.refuse(ctx, change, error.clone(), false);
        }
        for put in batch.beaten {
            put.refuse(ctx, error.clone(), Stage::Journal, false);
        }
        true
    }

    /// Answers everything that waits for the journal: it takes no records any more.
    pub(in crate::owner) fn refuse_all(&mut self, ctx: &mut Ctx, error: &Error) {
        let batch = self.batch.take();
        let (in_flight, beaten, broken) = batch.map_or_else(Default::default, |batch| {
            (batch.changes, batch.beaten, batch.broken)
        });
        self.misplaced.extend(broken);
        for (change, _) in in_flight {
            self.refuse(ctx, change, error.clone(), true);
        }
        for put in beaten {
            put.refuse(ctx, error.clone(), Stage::Journal, false);
        }
        for change in std::mem::take(&mut self.ready) {
            self.refuse(ctx, change, error.clone(), false);
        }
        self.refuse_run(ctx, error);
        for Misplaced { put, .. } in std::mem::take(&mut self.misplaced) {
            put.refuse(ctx, error.clone(), Stage::Journal, true);
        }
        let mut waiting = std::mem::take(&mut self.flushing);
        waiting.append(&mut self.unflushed);
        for item in waiting {
            item.refuse(ctx, error);
        }
        self.phase = Phase::Idle;
    }

    /// Tells a put that it has lost, after the one that won: answers come in the order of the log.
    pub(super) fn beat(&mut self, ctx: &mut Ctx, put: Put) {
        if let Some(id) = put.absent() {
            self.send_answers(ctx);
            put.refuse(ctx, Error::AlreadyExists { id }, Stage::Journal, false);
        }
    }
}

impl Unflushed {
    /// Answers who waits; gives back what nobody waits for.
    pub(super) fn refuse(self, ctx: &mut Ctx, error: &Error) -> Option<Self> {
        match self {
            Self::Put(put) => put.refuse(ctx, error.clone(), Stage::Journal, false),
            Self::Sync(reply) => {
                ctx.unfinished.end();
                reply.send(Err(error.clone()), Stage::Journal);
            }
            Self::Header(_) | Self::Settled => return Some(self),
        }
        None
    }
}
