//! Writes of the journal that the disk refuses.
//!
//! Such a piece is written again every second until the disk takes it: what it says is as right then
//! as it was. Meanwhile no change is taken, and those that wait are told of the error. Those of the
//! batch, and those of a run that the disk refused, may still come about, as after a power cut.

use std::sync::Arc;

use super::{Commit, end::write_ring};
use crate::clock::{duration_ns, monotonic_ns};
use crate::error::Error;
use crate::health::TRIAL_EVERY;
use crate::owner::ctx::Ctx;
use crate::owner::io_table::RingPiece;
use crate::storage::journal::writer::RingWrite;

/// Pieces that the disk has refused, and when they are written again.
#[derive(Default)]
pub(super) struct RefusedPieces {
    pieces: Vec<(RingPiece, RingWrite)>,
    due_ns: u64,
}

impl Commit {
    /// A piece of the ring is written.
    pub(in crate::owner) fn ring_written(&mut self, ctx: &mut Ctx, piece: RingPiece) {
        if self.refused.pieces.is_empty() {
            ctx.journal_refused = None;
        }
        match piece {
            RingPiece::Rest => self.rest_written(ctx),
            RingPiece::First => self.visible(ctx),
            RingPiece::End => self.end_settled(ctx),
        }
    }

    /// The disk has refused a piece of the ring.
    ///
    /// # Errors
    /// The error, if the store does not wait for the disk because it is being closed.
    pub(in crate::owner) fn ring_refused(
        &mut self,
        ctx: &mut Ctx,
        piece: (RingPiece, RingWrite),
        error: Error,
    ) -> Result<(), Error> {
        if self.gives_batch_up(ctx, piece.0, &error) {
            self.rest_written(ctx);
            return Ok(());
        }
        if ctx.closing {
            return Err(error);
        }
        self.refused.pieces.push(piece);
        self.refused.due_ns = monotonic_ns().saturating_add(duration_ns(TRIAL_EVERY));
        let reason =
            format!("the disk refuses the journal ({error}); it is tried again every second");
        ctx.journal_refused = Some(Arc::from(reason));
        self.refuse_waiting(ctx, &error);
        Ok(())
    }

    /// When refused pieces are written again; `None`: there are none.
    pub(super) fn refused_due_ns(&self) -> Option<u64> {
        (!self.refused.pieces.is_empty()).then_some(self.refused.due_ns)
    }

    /// Writes refused pieces again, if it is time.
    pub(super) fn write_refused(&mut self, ctx: &mut Ctx) {
        let due_ns = self.refused_due_ns();
        if due_ns.is_some_and(|due_ns| ctx.closing || monotonic_ns() >= due_ns) {
            let requests = self
                .batch
                .as_ref()
                .map_or(Vec::new(), |it| it.requests.clone());
            for (piece, write) in std::mem::take(&mut self.refused.pieces) {
                write_ring(ctx, piece, write, requests.clone());
            }
        }
    }

    /// Tells the changes that wait for the journal.
    fn refuse_waiting(&mut self, ctx: &mut Ctx, error: &Error) {
        for change in std::mem::take(&mut self.ready) {
            self.refuse(ctx, change, error.clone(), false);
        }
        let unflushed = std::mem::take(&mut self.unflushed).into_iter();
        let left = unflushed.filter_map(|item| item.refuse(ctx, error));
        self.unflushed = left.collect();
        let uncertain = &error.clone().of_unknown_outcome();
        let Self {
            batch,
            many,
            misplaced,
            runs,
            ..
        } = self;
        for (change, _) in batch.iter_mut().flat_map(|batch| &mut batch.changes) {
            change.answer_early(many, uncertain);
        }
        let beaten = batch.iter_mut().flat_map(|batch| &mut batch.beaten);
        beaten.for_each(|put| put.reply.answer_early(error));
        runs.answer_early(uncertain);
        // Else they would go elsewhere, once the journal names their run no more.
        let broken = batch.iter_mut().flat_map(|batch| &mut batch.broken);
        for it in broken.chain(misplaced).chain(&mut runs.broken) {
            it.put.reply.answer_early(uncertain);
            it.buf = None;
        }
    }
}
