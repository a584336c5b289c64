//! A journal whose end the disk refuses to write.
//!
//! A batch that was withdrawn is on the disk, or is not, or in part, until the end of the journal is
//! written as it was before. If the disk refuses that, too, what waits for the journal is told so, no
//! change is taken, and the end is tried again every second. The blocks of that batch may go to others
//! meanwhile: with other data in them it is cut off when the store is opened.

use std::sync::Arc;

use super::{Commit, Phase};
use crate::clock::{duration_ns, monotonic_ns};
use crate::error::Error;
use crate::health::TRIAL_EVERY;
use crate::owner::change::Change;
use crate::owner::ctx::Ctx;
use crate::owner::put::Misplaced;

impl Commit {
    /// The batch could not be written. It is withdrawn if none of its data was written before it.
    ///
    /// # Errors
    /// The error, if it cannot be.
    pub(super) fn note_unwritten(&mut self, ctx: &Ctx, error: Error) -> Result<(), Error> {
        let batch = self.batch.as_mut().filter(|_| !ctx.limits.runs);
        match batch.filter(|batch| batch.beside.is_all) {
            Some(batch) => batch.beside.is_refused = true,
            None => return Err(error),
        }
        Ok(())
    }

    /// The end of the journal could not be written.
    ///
    /// # Errors
    /// The error, if the store does not wait for the disk.
    pub(super) fn lose_end(&mut self, ctx: &mut Ctx, error: Error) -> Result<(), Error> {
        if ctx.closing || ctx.limits.runs {
            return Err(error);
        }
        self.phase = Phase::Lost;
        self.end_due_ns = monotonic_ns().saturating_add(duration_ns(TRIAL_EVERY));
        let reason = format!(
            "the disk refuses the end of the journal ({error}); it is tried again every second"
        );
        ctx.end_is_lost = Some(Arc::from(reason));
        let ready = std::mem::take(&mut self.ready).into_iter();
        let (writing, ready): (Vec<Change>, Vec<Change>) = ready.partition(Change::is_writing);
        self.ready = writing.into();
        let misplaced = std::mem::take(&mut self.misplaced).into_iter();
        let misplaced = misplaced.map(|Misplaced { put, .. }| Change::Put(put));
        for change in ready.into_iter().chain(misplaced) {
            self.refuse(ctx, change, error.clone(), false);
        }
        let unflushed = std::mem::take(&mut self.unflushed).into_iter();
        self.unflushed = unflushed
            .filter_map(|item| item.refuse(ctx, &error))
            .collect();
        Ok(())
    }

    /// When a lost end is tried again; `None`: it is not lost.
    pub(super) fn lost_due_ns(&self) -> Option<u64> {
        (self.phase == Phase::Lost).then_some(self.end_due_ns)
    }

    /// Writes a lost end, if it is time.
    pub(super) fn write_lost_end(&mut self, ctx: &mut Ctx) {
        let due_ns = self.lost_due_ns();
        if due_ns.is_some_and(|due_ns| ctx.closing || monotonic_ns() >= due_ns) {
            self.write_end(ctx);
        }
    }
}
