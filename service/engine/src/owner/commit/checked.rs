//! Puts whose records are written beside their data, and the seal that is settled afterwards
//! (FORMAT.md section 8.1).
//!
//! A put whose data can be checked is ready as soon as that is written: one flush makes data and
//! record durable. If its batch is one unit, that is the last flush, and the seal of the batch is an
//! unsettled one; else it is the flush before the batch becomes visible. The next batch begins after
//! it, so at most the last batch of a journal is unsettled.

use super::{Commit, Phase, Unflushed};
use crate::clock::monotonic_ns;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::seal::Proof;
use crate::mutant::{self, Mutant};
use crate::owner::change::Change;
use crate::owner::ctx::Ctx;
use crate::owner::io_table::Tag;
use crate::owner::put::{BESIDE_LIMIT, CheckedData};
use crate::storage::journal::writer::{Batch, RingWrite};
use crate::storage::unsettled::{proved_puts, records_in};

/// Most bytes of data that opening has to read to check a batch.
const CHECKED_LIMIT: u64 = 64 * 1024 * 1024;
/// How long after the last batch its seal is written anew as that of a settled one.
const SETTLE_AFTER_NS: u64 = 10_000_000;

/// Puts of a batch whose data perhaps no flush has covered.
#[derive(Default)]
pub(super) struct Checked {
    /// The last puts of the batch, from the first of those on; none if the batch is more than one
    /// unit anyway.
    puts: Vec<CheckedData>,
    /// The records from there on.
    records: Vec<u8>,
    /// Bytes of their data, and of what of it is being written.
    bytes: u64,
    beside: u64,
    /// True: the batch must not be visible before a flush, unless it is unsettled.
    pub(super) needs_flush: bool,
}

impl Checked {
    /// False: the batch would be more than one unit with this change, or more than opening is to
    /// check, and is better written without it.
    ///
    /// Data that is being written is beside a batch of nothing else, which can be withdrawn.
    pub(super) fn admits(&self, ctx: &Ctx, batch: &Batch, change: &Change) -> bool {
        if change.is_writing() {
            let is_alone = batch.is_empty() || self.beside > 0;
            let is_small = self.beside + write_len(ctx, change) <= BESIDE_LIMIT;
            let len = change.record().len();
            return is_alone && is_small && batch.joins_unit(&ctx.storage.journal, len);
        }
        if self.beside > 0 {
            return false;
        }
        if self.puts.is_empty() {
            return true;
        }
        let data = match change {
            Change::Put(put) if put.data.is_some() => put.checked_data(),
            _ => return batch.stays_in_unit(&ctx.storage.journal, change.record().len()),
        };
        data.is_some_and(|data| {
            self.bytes + ctx.storage.extent_of(data.portion).1 <= CHECKED_LIMIT
                && batch.stays_in_unit(&ctx.storage.journal, change.record().len())
        })
    }

    /// The change was appended to the batch.
    pub(super) fn note(&mut self, ctx: &Ctx, batch: &Batch, change: &Change) {
        let data = match change {
            Change::Put(put) => put.checked_data(),
            Change::Delete(_) => None,
        };
        let is_durable = |data: &CheckedData| {
            data.written
                .is_some_and(|written| ctx.io.is_durable(written.get()))
        };
        if change.is_writing() {
            self.beside += write_len(ctx, change);
        }
        let data = data.filter(|data| !self.puts.is_empty() || !is_durable(data));
        if let Some(data) = data {
            self.needs_flush = true;
            if batch.stays_in_unit(&ctx.storage.journal, 0) {
                self.bytes += ctx.storage.extent_of(data.portion).1;
                self.puts.push(data);
            }
        }
        if !self.puts.is_empty() {
            self.records.extend_from_slice(change.record());
        }
    }

    /// What the data of these puts must be; `None`: there are none.
    pub(super) fn proof(&self) -> Option<Proof> {
        let puts = u16::try_from(self.puts.len())
            .ok()
            .filter(|&puts| puts > 0)?;
        let proved = proved_puts(&records_in(&self.records), puts)?;
        let token_of = |portion| {
            let data = self.puts.iter().find(|data| data.portion == portion);
            data.map_or(0, |data| data.token)
        };
        let proof = Proof { puts, sum: 0 };
        Some(
            proved
                .into_iter()
                .fold(proof, |proof, put| proof.with(token_of(put.1), put)),
        )
    }
}

fn write_len(ctx: &Ctx, change: &Change) -> u64 {
    match change {
        Change::Put(put) => put.write_len(ctx),
        Change::Delete(_) => 0,
    }
}

impl Commit {
    /// A batch is durable: if no other one follows soon, its seal is settled.
    pub(super) fn settle_later(&mut self) {
        self.settle_ns = monotonic_ns().saturating_add(SETTLE_AFTER_NS);
    }

    /// When there is something to do though nothing happens.
    pub(in crate::owner) fn due_ns(&self, ctx: &Ctx) -> Option<u64> {
        if ctx.writes_nothing() {
            return None;
        }
        if let Some(due_ns) = self.lost_due_ns() {
            return Some(due_ns);
        }
        let waits = self.is_idle() && ctx.storage.journal.is_unsettled() && !self.runs.is_open();
        waits.then_some(self.settle_ns).or(self.run_due_ns())
    }

    /// True: nothing is under way, and the end of the journal is durable as that of a settled one.
    pub(in crate::owner) fn is_at_rest(&self, ctx: &Ctx) -> bool {
        self.is_idle() && !ctx.storage.journal.is_unsettled() && ctx.io.is_durable(self.settled)
    }

    /// Writes the end of the journal anew with the seal of a settled one, if it is time. Everything
    /// is durable: whichever of the two a power cut leaves is right.
    pub(super) fn settle(&mut self, ctx: &mut Ctx) {
        if !ctx.storage.journal.is_unsettled() {
            if ctx.closing && !ctx.io.is_durable(self.settled) {
                self.unflushed.push(Unflushed::Settled);
                self.start_flush(ctx, Phase::DataFlush);
            }
            return;
        }
        let is_time = ctx.closing || (monotonic_ns() >= self.settle_ns && !self.runs.is_open());
        if is_time && self.is_idle() {
            self.runs.close();
            self.write_end(ctx);
        }
    }

    /// Writes the end of the journal as it was after the last batch, which is durable.
    pub(super) fn write_end(&mut self, ctx: &mut Ctx) {
        let (position, bytes) = ctx.storage.journal.end_page();
        let mut buf = ctx.io.pool.get(bytes.len());
        buf.copy_from_slice(&bytes);
        self.phase = Phase::Settle;
        let write = RingWrite { position, buf };
        write_ring(ctx, (Tag::Settle, false), write, Vec::new());
    }

    /// The end of the journal is that of a settled one, if the write went well.
    ///
    /// # Errors
    /// The error of the write, if the store cannot wait until the disk takes it.
    pub(in crate::owner) fn end_settled(
        &mut self,
        ctx: &mut Ctx,
        result: Result<(), Error>,
    ) -> Result<(), Error> {
        match result {
            Err(error) if !mutant::is(Mutant::ForgetsEnd) => return self.lose_end(ctx, error),
            _ => ctx.storage.journal.settled(),
        }
        self.settled = ctx.io.written();
        self.phase = Phase::Idle;
        ctx.end_is_lost = None;
        if self.run_closed() {
            self.start_flush(ctx, Phase::DataFlush);
        }
        Ok(())
    }
}

pub(super) fn write_ring(
    ctx: &mut Ctx,
    how: (Tag, bool),
    write: RingWrite,
    requests: Vec<RequestId>,
) {
    let offset = ctx.storage.geometry.ring_byte(write.position).0;
    ctx.io.write(how, offset, write.buf, requests);
}
