//! Lumps that are put while they come in.

use std::sync::Arc;

use super::Store;
use crate::error::Error;
use crate::facts::DeviceFacts;
use crate::format::trailer::{LumpShape, max_payload};
use crate::lump::LumpId;
use crate::options::CommitMode;
use crate::owner::command::put::PieceWrite;
use crate::owner::command::{StoreCommand, TimedReply};
use crate::payload::pieces::{Begun, memory_for};
use crate::payload::{LumpBuf, RUN_LIMIT};
use crate::request::{PutCondition, RequestCtx};
use crate::units::to_usize;

/// Pieces that a lump must have at least: fewer would take more memory than all of it.
const LEAST_PIECES: u64 = 4;
/// Share of what is free that lumps may have while they come in, all together: their blocks are taken
/// for as long as their clients send.
const SHARE: u64 = 8;

impl Store {
    /// True: a lump of `len` bytes is better [written while it comes in](Self::lump_buf_in_pieces)
    /// than kept until all of it is there. Not if it is small, if such lumps together would take
    /// more than an eighth of what is free, or if as many requests wait for the disk as it takes at
    /// once. A disk with an arm would have to move it between the pieces of several lumps, so there
    /// only a lone request is, and none that fits a [run](CommitMode::Runs).
    #[must_use]
    pub fn passes(&self, len: u64) -> bool {
        let Some(most) = self.inner.piece_bytes else {
            return false;
        };
        let counters = &self.inner.shared.counters;
        let used = counters.data_used_bytes.get();
        let free = counters.data_capacity_bytes.get().saturating_sub(used);
        let open = self.inner.shared.unused.open();
        let has_room = open + len <= (free + open) / SHARE;
        if len < LEAST_PIECES * most || !has_room || self.failed().is_some() {
            return false;
        }
        let waiting = self.inner.shared.admission.waiting() as u64;
        if DeviceFacts::has_arm(self.inner.info.disk) {
            let others = waiting + counters.in_flight_ios.get() + counters.pending.get();
            let runs = self.inner.info.commit == CommitMode::Runs && len < RUN_LIMIT;
            others == 0 && open == 0 && !runs
        } else {
            waiting < self.inner.queue_depth
        }
    }

    /// Bytes of memory that [`Store::lump_buf_in_pieces`] takes: those of two pieces, 2 MiB, however
    /// large the lump is.
    #[must_use]
    pub fn pieces_memory(&self) -> u64 {
        let pool = &self.inner.pool;
        let most = usize::try_from(self.inner.piece_bytes.unwrap_or(1)).unwrap_or(usize::MAX / 4);
        pool.capacity_of(memory_for(most, pool.alignment()))
    }

    /// A buffer for a lump of exactly `len` bytes that are written to the disk while they come in
    /// ([`LumpBuf::write`]): into fresh blocks, which no record names before the lump is put with
    /// this `id` and `condition` in the data region. Dropped before, it leaves nothing. It takes
    /// little memory ([`Store::pieces_memory`]).
    ///
    /// The pieces wait in the queue with the deadline of `ctx`; only the first may be refused there.
    ///
    /// # Errors
    /// As [`Store::lump_buf`].
    pub fn lump_buf_in_pieces(
        &self,
        ctx: RequestCtx,
        (id, len): (LumpId, u64),
        condition: PutCondition,
    ) -> Result<LumpBuf, Error> {
        let block_size = self.inner.block_size;
        let shape = LumpShape::new(len, block_size).map_err(|_| Error::LumpTooLarge {
            len,
            max: max_payload(block_size),
        })?;
        let begun = Begun::new(
            (id, shape, condition == PutCondition::IfAbsent),
            &self.inner.shared.unused,
            self.inner.waker.clone(),
        );
        let (store, place) = (self.clone(), Arc::clone(&begun));
        let hand_over = Box::new(move |at, buf, on_done| {
            let piece = PieceWrite {
                request: ctx.id,
                begun: Arc::clone(&place),
                at,
                buf: Some(buf),
                reply: TimedReply::new(on_done),
            };
            store.send(ctx, StoreCommand::PutPiece(Box::new(piece)))
        });
        let sizes = (
            to_usize(self.inner.piece_bytes.unwrap_or(0)),
            to_usize(self.inner.info.logical_block_size),
        );
        let pool = &self.inner.pool;
        let buf = LumpBuf::in_pieces((len, block_size), sizes, pool, begun, hand_over);
        buf.map_err(|error| self.out_of_memory(error))
    }
}
