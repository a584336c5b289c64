//! The end of the journal, written anew when no batch does it: without the name of a run that is over.

use super::{Commit, Phase, Unflushed};
use crate::clock::monotonic_ns;
use crate::declaration::RequestId;
use crate::owner::command::put::Misplaced;
use crate::owner::ctx::Ctx;
use crate::owner::io_table::{RingPiece, Tag};
use crate::storage::journal::writer::RingWrite;

/// How long after the last batch the end is written anew.
const SETTLE_AFTER_NS: u64 = 10_000_000;

impl Commit {
    /// A batch is durable: if no other one follows soon, the end is written without a run that is over.
    pub(super) fn settle_later(&mut self) {
        self.settle_ns = monotonic_ns().saturating_add(SETTLE_AFTER_NS);
    }

    /// When there is something to do though nothing happens.
    pub(in crate::owner) fn due_ns(&self, ctx: &Ctx) -> Option<u64> {
        if ctx.writes_nothing() {
            return None;
        }
        if let Some(due_ns) = self.refused_due_ns() {
            return Some(due_ns);
        }
        let waits = self.is_idle(ctx) && ctx.storage.journal.names_run() && !self.runs.is_open();
        waits.then_some(self.settle_ns).or(self.run_due_ns(ctx))
    }

    /// True: nothing is under way, and the end of the journal is durable and names no run.
    pub(in crate::owner) fn is_at_rest(&self, ctx: &Ctx) -> bool {
        self.is_idle(ctx) && !ctx.storage.journal.names_run() && ctx.io.is_durable(self.settled)
    }

    /// Writes the end of the journal without a run, if it is time. Everything is durable: whichever
    /// of the two ends a power cut leaves is right.
    pub(super) fn settle(&mut self, ctx: &mut Ctx) {
        if !ctx.storage.journal.names_run() {
            if ctx.closing && !ctx.io.is_durable(self.settled) {
                self.unflushed.push(Unflushed::Settled);
                self.start_flush(ctx, Phase::DataFlush);
            }
            return;
        }
        let is_time = ctx.closing || (monotonic_ns() >= self.settle_ns && !self.runs.is_open());
        if is_time && self.is_idle(ctx) {
            self.runs.close();
            self.write_end(ctx);
        }
    }

    /// Writes the end of the journal as it was after the last batch, which is durable.
    pub(super) fn write_end(&mut self, ctx: &mut Ctx) {
        let (position, bytes) = ctx.storage.journal.end_page();
        let buf = ctx.io.pool.copy_of(&bytes);
        self.phase = Phase::Settle;
        let write = RingWrite { position, buf };
        write_ring(ctx, RingPiece::End, write, Vec::new());
    }

    /// The end of the journal names no run any more.
    pub(super) fn end_settled(&mut self, ctx: &mut Ctx) {
        ctx.storage.journal.settled();
        self.settled = ctx.io.written();
        self.phase = Phase::Idle;
        if self.run_closed() {
            self.start_flush(ctx, Phase::EndFlush);
        }
    }

    /// The puts of a run that is no more, once the journal does not name it.
    pub(in crate::owner) fn take_misplaced(&mut self) -> Vec<Misplaced> {
        if self.phase != Phase::Idle {
            return Vec::new();
        }
        std::mem::take(&mut self.misplaced)
    }
}

pub(super) fn write_ring(
    ctx: &mut Ctx,
    piece: RingPiece,
    write: RingWrite,
    requests: Vec<RequestId>,
) {
    let offset = ctx.storage.geometry.ring_byte(write.position).0;
    let tag = Tag::Ring(piece, write.position);
    ctx.io.write((tag, false), offset, write.buf, requests);
}
