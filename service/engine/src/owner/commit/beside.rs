//! Puts whose data and record are written side by side (FORMAT.md section 8.1).
//!
//! A put joins the log when the write of its data begins, if its data can be checked and is not
//! large. A batch takes such puts if there is nothing else for it, and only as one with an unsettled
//! seal; its flush begins when the record and all of this data are written. If the device refuses
//! some of the data, or the record, the batch is withdrawn: the end of the journal is written as it
//! was, and flushed, and then the put goes elsewhere; its record follows its data then. What was
//! written goes into another batch.

use super::{Commit, InFlight, Phase};
use crate::buffer::AlignedBuf;
use crate::error::Error;
use crate::format::Portion;
use crate::mutant::{self, Mutant};
use crate::owner::change::Change;
use crate::owner::command::Stage;
use crate::owner::ctx::Ctx;
use crate::owner::put::Misplaced;
use crate::units::RingPosition;

/// Data of a batch that is written beside it.
pub(super) struct Beside {
    /// True: all data of the batch was being written when it began, so opening checks all of it.
    pub(super) is_all: bool,
    /// Writes of it that have not ended.
    writing: usize,
    /// Places that the device has refused.
    refused: Vec<(Portion, Option<AlignedBuf>, Error)>,
    /// True: the device has refused the batch itself.
    pub(super) is_refused: bool,
}

impl Beside {
    pub(super) fn of(changes: &[(Change, RingPosition)]) -> Self {
        let writing = changes.iter().filter(|(change, _)| change.is_writing());
        let writing = writing.count();
        Self {
            is_all: writing > 0 && writing == changes.len(),
            writing,
            refused: Vec::new(),
            is_refused: false,
        }
    }
}

impl Commit {
    /// Puts whose data is being written go to the end of the log: what is written need not wait for
    /// them. True: there is nothing else.
    pub(super) fn sort_ready(&mut self) -> bool {
        if self.ready.iter().any(Change::is_writing) {
            self.ready.make_contiguous().sort_by_key(Change::is_writing);
        }
        self.ready.front().is_some_and(Change::is_writing)
    }

    /// The write of data beside its record has ended. Returns the put if it has to go elsewhere now.
    pub(in crate::owner) fn data_written(
        &mut self,
        ctx: &mut Ctx,
        place: Portion,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) -> Option<Misplaced> {
        let behind = self.in_flight();
        let waiting = (0..).zip(&mut self.ready);
        let mut waiting = waiting.filter_map(|(at, it)| Some((at, it.writing_to(place)?)));
        if let Some((at, put)) = waiting.next() {
            put.data_written(ctx);
            return match result {
                Ok(()) => {
                    put.reply.timing.wait_behind(behind);
                    None
                }
                Err(error) => misplaced(self.ready.remove(at)?, buf, error),
            };
        }
        let batch = self.batch.as_mut()?;
        let mut taken = batch.changes.iter_mut();
        let put = taken.find_map(|(change, _)| change.writing_to(place))?;
        put.data_written(ctx);
        batch.beside.writing -= 1;
        if let Err(error) = result {
            batch.beside.refused.push((place, buf, error));
        }
        if batch.beside.writing == 0 && self.phase == Phase::Data {
            self.lap_batch(Stage::Write);
            self.whole(ctx);
        }
        None
    }

    /// True: data of the batch is still being written.
    pub(super) fn awaits_data(&self) -> bool {
        let writing = self.batch.as_ref().map_or(0, |it| it.beside.writing);
        writing > 0 && !mutant::is(Mutant::FlushesEarly)
    }

    /// Takes the batch back if it or some of its data could not be written. False: all of it was.
    pub(super) fn withdraw(&mut self, ctx: &mut Ctx) -> bool {
        let is_refused = |it: &mut InFlight| it.beside.is_refused || !it.beside.refused.is_empty();
        let Some(mut batch) = self.batch.take_if(is_refused) else {
            return false;
        };
        // They lose to the next batch.
        for put in batch.beaten.into_iter().rev() {
            self.ready.push_front(Change::Put(Box::new(put)));
        }
        for (change, _) in batch.changes.into_iter().rev() {
            let mut refused = batch.beside.refused.iter();
            match refused.position(|(place, ..)| change.is_at(*place)) {
                Some(at) => {
                    let (_, buf, error) = batch.beside.refused.swap_remove(at);
                    self.misplaced.extend(misplaced(change, buf, error));
                }
                None => self.ready.push_front(change),
            }
        }
        if mutant::is(Mutant::LeavesBatch) {
            self.start_flush(ctx, Phase::DataFlush);
        } else {
            self.write_end(ctx);
        }
        true
    }

    /// The puts of a batch that was withdrawn, or of a run that is no more, once nothing of it is
    /// left.
    pub(in crate::owner) fn take_misplaced(&mut self) -> Vec<Misplaced> {
        if self.phase != Phase::Idle {
            return Vec::new();
        }
        std::mem::take(&mut self.misplaced)
    }
}

/// The put without the record of its data.
fn misplaced(change: Change, buf: Option<AlignedBuf>, error: Error) -> Option<Misplaced> {
    let Change::Put(mut put) = change else {
        return None;
    };
    put.unrecorded();
    Some(Misplaced { put, buf, error })
}
