//! Trial writes: whether a disk that has refused some writes takes any.
//!
//! Without them a store whose disk reads well and refuses every write would be degraded for ever: it
//! has no write of its own until a put comes, and puts fail. A block is written that is free, so no
//! record names it and no reader has it; never the headers or the journal, because a write that
//! fails may leave its sectors unreadable. One block a second at most, in another part of the data
//! region each time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Ctx;
use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::format::Portion;
use crate::health::FROZEN;
use crate::owner::command::StoreCommand;
use crate::owner::io_table::Tag;
use crate::units::to_usize;

/// For a message.
pub(super) fn reason(why: &str) -> Arc<str> {
    format!("the disk refuses every write ({why}); it is tried again every second").into()
}

impl Ctx {
    /// Begins a trial write, if one is due.
    pub(in crate::owner) fn try_write(&mut self, now_ns: u64) {
        let due_ns = self.io.judge.trial_write_due_ns();
        if due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return;
        }
        let writable = !self.closing && !self.writes_nothing();
        let portion = writable.then(|| self.storage.data.allocate_anywhere(now_ns));
        let portion = portion.flatten();
        self.io.judge.trial_write_begins(portion.is_some());
        let Some(portion) = portion else { return };
        let (offset, len) = self.storage.extent_of(portion);
        let mut zeros = self.io.pool.get(to_usize(len));
        zeros.fill(0);
        self.io.write(
            (Tag::TrialWrite(portion), false),
            offset.0,
            zeros,
            Vec::new(),
        );
    }

    /// A trial write has ended: nothing was put there.
    pub(in crate::owner) fn tried_write(&mut self, portion: Portion, result: &Result<(), Error>) {
        self.storage.data.free_unused(portion);
        self.io.judge.trial_write_ended(result, monotonic_ns());
    }

    /// When the state of the store may change though nothing happens.
    pub(in crate::owner) fn judged_ns(&self) -> Option<u64> {
        let hangs = self.io.hangs_at_ns();
        // Once it is told that an I/O hangs, its end is waited for.
        let hangs = hangs.filter(|_| !self.health.state.is_out());
        let judge = &self.io.judge;
        let trials = [judge.trial_due_ns(), judge.trial_write_due_ns()];
        let trials = trials.into_iter().flatten();
        hangs
            .into_iter()
            .chain(trials)
            .chain(self.target_due_ns())
            .min()
    }

    /// Why this change is not taken now. Deletes are, while the disk refuses writes: they may free
    /// what a nearly full store has outside a bad spot.
    pub(in crate::owner) fn refuses(&self, change: &StoreCommand) -> Option<Error> {
        self.refuses_changes().or_else(|| {
            let is_put = matches!(change, StoreCommand::Put(_) | StoreCommand::PutPiece(_));
            if (is_put || change.is_delete()) && self.shared.frozen.load(Ordering::SeqCst) {
                return Some(Error::ReadOnly { reason: FROZEN });
            }
            let why = self.io.judge.refuses_writes().filter(|_| is_put)?;
            Some(Error::OutOfService {
                reason: reason(why),
            })
        })
    }
}
