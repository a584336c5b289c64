//! A put, from its arrival to its answer. The steps stand in their order:
//!
//! ```text
//! seal      caller's thread: padding, trailer and records; StoreCommand::Put
//! accept    room in the journal is reserved for its records
//! place     fresh blocks; data, padding and trailer are one write,      embedded lumps go
//!           or the last: pieces.rs wrote the others as they came
//! written   waits for a flush that begins now or later;                 straight to ready
//!           a place that refuses the write is left for another
//! recorded  in a run (commit/runs.rs): applied, and its record follows;
//!           else the record of the data joins the others: ready
//!           (commit.rs) its records join a batch, or an older put of the id has beaten it
//! apply     (commit/change.rs) in the order of the log: index, blocks of the old lump
//! answer    when the batch is as durable as it was asked to be
//! ```
//!
//! A put goes to fresh blocks, so a failed or cut one never harms the lump it would have replaced.
//! Its records (data, embedded, deletes) are one piece of the journal, which is never divided among
//! batches: after a crash all of it has happened, or nothing.

mod pieces;

use std::collections::VecDeque;
use std::ops::Range;

use super::command::Stage;
use super::command::put::{DataLump, Misplaced, PieceWrite, Put, Refused, embedded_len};
use super::commit::Commit;
use super::commit::change::Change;
use super::ctx::Ctx;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::error::Error;
use crate::format::Portion;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN};
use crate::format::trailer::max_payload_in;
use crate::units::BlockCount;
use pieces::Suspect;

/// Places that a put tries when the device refuses to write.
const PLACES: u64 = 4;

/// Puts that are not in the commit.
#[derive(Default)]
pub(super) struct Puts {
    /// They wait for blocks which are about to be freed.
    waiting_for_space: VecDeque<Homeless>,
    /// Fewer than [`PLACES`].
    suspects: Vec<Suspect>,
}

/// A write that has no place.
enum Homeless {
    Put(Box<Put>),
    /// The first of a lump.
    Piece(Box<PieceWrite>),
}

impl Puts {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting_for_space.is_empty()
    }

    /// Takes a put up. Returns the bytes of the device that it is written to, if it is now.
    pub(super) fn accept(
        &mut self,
        ctx: &mut Ctx,
        commit: &mut Commit,
        mut put: Box<Put>,
    ) -> Option<Range<u64>> {
        put.reply.timing.lap(Stage::Sched);
        // Saves the write. What is applied and durable was there before this put.
        if put.data.is_some()
            && let Some(id) = put.absent()
            && commit.all_durable()
            && ctx.storage.index.get(id).is_some()
        {
            put.reply
                .send(Err(Error::AlreadyExists { id }), Stage::Index);
            return None;
        }
        if let Err(error) = put.reserve(ctx) {
            put.reply.send(Err(error), Stage::Index);
            return None;
        }
        if put.data.is_some() {
            return self.place(ctx, commit, put);
        }
        commit.add(Change::Put(put));
        None
    }

    /// Finds blocks and starts the write.
    fn place(
        &mut self,
        ctx: &mut Ctx,
        commit: &mut Commit,
        mut put: Box<Put>,
    ) -> Option<Range<u64>> {
        let portion = commit.place_in_run(ctx, &mut put);
        let data = put.data.as_mut()?;
        let begun = data.begun.take().and_then(|begun| begun.keep());
        let (blocks, refused) = (data.blocks, data.refused.as_ref().map(|it| it.portion));
        let portion = portion.or(begun).or_else(|| match refused {
            None => allocate(ctx, commit, blocks),
            // A bad spot is seldom a single block: the next place is far away.
            Some(refused) => with_all_blocks(ctx, commit, |ctx| {
                ctx.storage.data.allocate_away(blocks, refused, PLACES)
            }),
        });
        let Some(portion) = portion else {
            if ctx.storage.data.deferred_blocks() > 0 {
                self.waiting_for_space.push_back(Homeless::Put(put));
                return None;
            }
            let full = full(ctx, data.blocks);
            let refused = data.refused.as_ref();
            let error = refused.map_or(full, |refused| refused.error.clone());
            put.refuse(ctx, error, Stage::Index, false);
            return None;
        };
        data.portion = Some(portion);
        let buf = data.buf.take()?;
        put.reply.timing.lap(Stage::Index);
        let (offset, len) = ctx.storage.extent_of(portion);
        let (request, at) = (put.request, offset.0 + data.start);
        let forced = put.is_forced();
        let tag = Tag::PutData(put);
        ctx.io.write((tag, forced), at, buf, vec![request]);
        Some(offset.0..offset.0 + len)
    }

    /// The write of the data has ended: it is on the device, but perhaps only in its cache. Or the
    /// device refused that place: then another one is tried, as [`accept`](Self::accept) says.
    pub(super) fn written(
        &mut self,
        ctx: &mut Ctx,
        commit: &mut Commit,
        mut put: Box<Put>,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) -> Option<Range<u64>> {
        put.reply.timing.lap(Stage::Data);
        match result.and_then(|()| ctx.failure().map_or(Ok(()), Err)) {
            Ok(()) => {
                self.convict(ctx, put.place());
                put.leave_bad_spots(ctx);
                if put.is_linked() {
                    commit.linked_written(ctx, put);
                } else {
                    commit.await_flush_for_put(put);
                }
                None
            }
            Err(error) if put.is_linked() => {
                commit.linked_refused(ctx, Misplaced { put, buf, error });
                None
            }
            Err(error) => self.misplaced(ctx, commit, Misplaced { put, buf, error }),
        }
    }

    /// The device refused the place of a put: another one is tried, as [`accept`](Self::accept)
    /// says, if there is one to try.
    pub(super) fn misplaced(
        &mut self,
        ctx: &mut Ctx,
        commit: &mut Commit,
        misplaced: Misplaced,
    ) -> Option<Range<u64>> {
        let Misplaced {
            mut put,
            buf,
            error,
        } = misplaced;
        // No blocks come free any more.
        let error = ctx.failure().unwrap_or(error);
        match &mut put.data {
            Some(data) if data.may_try_elsewhere(&error) && buf.is_some() => {
                if let Some(portion) = data.portion.take() {
                    let before = data.refused.take();
                    data.refused = Some(Box::new(Refused {
                        portion,
                        error,
                        before,
                    }));
                }
                data.buf = buf;
                data.slot = None;
                self.place(ctx, commit, put)
            }
            Some(data) if data.start > 0 && error.is_bad_spot() => {
                let id = data.id;
                let error = match data.portion.take() {
                    Some(portion) => self.suspect(ctx, (id, portion), error, None),
                    None => error,
                };
                put.refuse(ctx, error, Stage::Data, false);
                None
            }
            _ => {
                put.refuse(ctx, error, Stage::Data, false);
                None
            }
        }
    }

    /// Blocks came free. Returns as [`accept`](Self::accept), for the last put that is written.
    pub(super) fn retry(&mut self, ctx: &mut Ctx, commit: &mut Commit) -> Option<Range<u64>> {
        let mut last = None;
        for homeless in std::mem::take(&mut self.waiting_for_space) {
            let placed = match homeless {
                Homeless::Put(mut put) => {
                    put.reply.timing.lap(Stage::Sched);
                    self.place(ctx, commit, put)
                }
                Homeless::Piece(piece) => self.piece(ctx, commit, piece),
            };
            last = placed.or(last);
        }
        last
    }

    /// The store takes no changes any more.
    pub(super) fn refuse_all(&mut self, ctx: &mut Ctx, error: &Error) {
        for homeless in std::mem::take(&mut self.waiting_for_space) {
            let error = error.clone();
            match homeless {
                Homeless::Put(put) => put.refuse(ctx, error, Stage::Sched, false),
                Homeless::Piece(piece) => piece.reply.send(Err(error), Stage::Sched),
            }
        }
    }
}

impl DataLump {
    /// True: the device refused this place, and there are others to try.
    fn may_try_elsewhere(&self, error: &Error) -> bool {
        let refused = Refused::all(self.refused.as_deref()).count() as u64;
        error.is_bad_spot() && self.start == 0 && refused + 1 < PLACES
    }
}

impl Put {
    /// Sets room in the journal aside for the records that stay.
    fn reserve(&self, ctx: &mut Ctx) -> Result<(), Error> {
        self.check_size(ctx)?;
        let embedded = self.embedded.map_or(0, |(_, len)| embedded_len(len));
        if self.embedded.is_some() {
            ctx.reserve_record(embedded)?;
            let data = if self.data.is_some() { PUT_LEN } else { 0 };
            // The journal's own reserve must hold the piece as a whole.
            let whole = data + self.records.len();
            ctx.storage.journal.note_record(whole as u64);
        }
        if self.data.is_some()
            && let Err(error) = ctx.reserve_record(PUT_LEN as u64)
        {
            ctx.unfinished.unreserve(embedded);
            return Err(error);
        }
        self.lumps().for_each(|id| ctx.unfinished.begin_put(id));
        Ok(())
    }

    /// Refuses a lump that would not even fit into the store if it were empty.
    fn check_size(&self, ctx: &Ctx) -> Result<(), Error> {
        let (geometry, journal) = (&ctx.storage.geometry, &ctx.storage.journal);
        if let Some(data) = &self.data {
            let data_blocks = geometry.data_blocks();
            let max = max_payload_in(data_blocks, geometry.block_size());
            let fits = u64::from(data.blocks.0) <= data_blocks;
            return fits
                .then_some(())
                .ok_or(Error::LumpTooLarge { len: data.len, max });
        }
        let record_len = self.records.len() as u64;
        let (Some((_, len)), true) = (self.embedded, self.deletes.is_empty()) else {
            return Ok(());
        };
        if record_len <= journal.live_limit(record_len) {
            return Ok(());
        }
        // A smaller record needs a smaller reserve too.
        let max = (EMBED_PREFIX_LEN as u64..record_len)
            .rev()
            .find(|&len| len <= journal.live_limit(len))
            .map_or(0, |len| len - EMBED_PREFIX_LEN as u64);
        let len = u64::from(len);
        Err(Error::LumpTooLarge { len, max })
    }

    /// Another place took the data, so it is the places that are bad, not the device: nothing is
    /// put there any more.
    fn leave_bad_spots(&mut self, ctx: &mut Ctx) {
        let Some(data) = &mut self.data else {
            return;
        };
        let refused = data.refused.take();
        for Refused { portion, error, .. } in Refused::all(refused.as_deref()) {
            ctx.set_aside(*portion, data.id, error);
        }
    }
}

/// Fresh blocks, in one extent.
fn allocate(ctx: &mut Ctx, commit: &mut Commit, blocks: BlockCount) -> Option<Portion> {
    with_all_blocks(ctx, commit, |ctx| ctx.storage.data.allocate(blocks))
}

/// Finds blocks, if need be among those that runs keep for themselves.
fn with_all_blocks(
    ctx: &mut Ctx,
    commit: &mut Commit,
    find: impl Fn(&mut Ctx) -> Option<Portion>,
) -> Option<Portion> {
    find(ctx).or_else(|| {
        commit.give_blocks_back(ctx);
        find(ctx)
    })
}

/// There is no room for so many blocks in one extent.
fn full(ctx: &Ctx, blocks: BlockCount) -> Error {
    let allocator = ctx.storage.data.allocator();
    let block_size = ctx.storage.geometry.block_size().bytes();
    Error::StoreFull {
        needed: u64::from(blocks.0) * block_size,
        free: allocator.free_blocks() * block_size,
        largest: allocator.largest() * block_size,
    }
}
