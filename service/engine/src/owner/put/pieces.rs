//! Lumps that are written while they come in: their blocks are chosen with the first piece, and the
//! put takes them over with the last.
//!
//! The bytes of a piece are gone once it is written, so a place that the device refuses cannot be
//! left for another one: the lump is refused, and its caller may try again. Such a place is a
//! suspect. It is kept from others until the device writes elsewhere, which shows that the place is
//! bad, or refuses so many that the device must be.

use std::ops::Range;
use std::sync::Arc;

use super::{Homeless, PLACES, Puts, allocate, full};
use crate::buffer::AlignedBuf;
use crate::error::Error;
use crate::format::Portion;
use crate::lump::LumpId;
use crate::owner::command::Stage;
use crate::owner::command::put::PieceWrite;
use crate::owner::commit::Commit;
use crate::owner::ctx::Ctx;
use crate::owner::io_table::Tag;
use crate::payload::pieces::Begun;

/// A place that the device has refused to write.
pub(super) struct Suspect {
    id: LumpId,
    portion: Portion,
    error: Error,
    /// Frees the blocks when its last piece has ended; `None`: nothing is written there any more.
    begun: Option<Arc<Begun>>,
}

impl Puts {
    /// Writes a piece. Returns the bytes of the device that its lump gets, if they are chosen now.
    pub(in crate::owner) fn piece(
        &mut self,
        ctx: &mut Ctx,
        commit: &mut Commit,
        mut piece: Box<PieceWrite>,
    ) -> Option<Range<u64>> {
        piece.reply.timing.lap(Stage::Sched);
        let begun = &piece.begun;
        if begun.if_absent
            && begun.place().is_none()
            && commit.all_durable()
            && ctx.storage.index.get(begun.id).is_some()
        {
            let id = begun.id;
            piece
                .reply
                .send(Err(Error::AlreadyExists { id }), Stage::Index);
            return None;
        }
        // Of a lump that is not wanted any more, this piece is all that is left.
        if Arc::strong_count(&piece.begun) == 1 {
            piece.reply.send(Err(Error::Closed), Stage::Index);
            return None;
        }
        let (chosen, blocks) = (piece.begun.place(), piece.begun.blocks);
        let in_run = |commit: &mut Commit, ctx: &mut Ctx| {
            let fits = ctx.limits.runs && piece.begun.fits_run;
            fits.then(|| commit.take_blocks(ctx, blocks)).flatten()
        };
        let portion = chosen.or_else(|| in_run(commit, ctx));
        let portion = portion.or_else(|| allocate(ctx, commit, blocks));
        let Some(portion) = portion else {
            if ctx.storage.data.deferred_blocks() > 0 {
                self.waiting_for_space.push_back(Homeless::Piece(piece));
            } else {
                let error = full(ctx, blocks);
                piece.reply.send(Err(error), Stage::Index);
            }
            return None;
        };
        piece.begun.choose(portion);
        let buf = piece.buf.take()?;
        piece.reply.timing.lap(Stage::Index);
        let (offset, len) = ctx.storage.extent_of(portion);
        let (at, request) = (offset.0 + piece.at, piece.request);
        ctx.io
            .write((Tag::PutPiece(piece), false), at, buf, vec![request]);
        chosen.is_none().then_some(offset.0..offset.0 + len)
    }

    /// The write of a piece has ended.
    pub(in crate::owner) fn piece_written(
        &mut self,
        ctx: &mut Ctx,
        piece: PieceWrite,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let PieceWrite { begun, reply, .. } = piece;
        let result = match (result, begun.place()) {
            (Err(error), Some(portion)) if error.is_bad_spot() => {
                self.suspect(ctx, (begun.id, portion), error, Some(begun))
            }
            (Err(error), _) => error,
            (Ok(()), place) => {
                self.convict(ctx, place);
                let buf = ctx.failure().map_or(buf.ok_or(Error::Closed), Err);
                // Before the answer: who has it may free the blocks.
                drop(begun);
                return reply.send(buf, Stage::Data);
            }
        };
        reply.send(Err(result), Stage::Data);
    }

    /// The device has refused this place of a lump whose bytes are gone. Returns what its put is
    /// told.
    pub(super) fn suspect(
        &mut self,
        ctx: &mut Ctx,
        (id, portion): (LumpId, Portion),
        error: Error,
        begun: Option<Arc<Begun>>,
    ) -> Error {
        let (offset, len) = ctx.storage.extent_of(portion);
        let refused = Error::PlaceRefused {
            offset: offset.0,
            len,
            why: error.to_string(),
        };
        if self
            .suspects
            .iter()
            .any(|suspect| suspect.portion == portion)
        {
            return refused;
        }
        if let Some(begun) = &begun {
            begun.keep();
        }
        self.suspects.push(Suspect {
            id,
            portion,
            error,
            begun,
        });
        if self.suspects.len() as u64 >= PLACES {
            for Suspect { portion, begun, .. } in std::mem::take(&mut self.suspects) {
                match begun {
                    Some(begun) => begun.give_back(),
                    None => ctx.storage.data.free_unused(portion),
                }
            }
        }
        refused
    }

    /// The device has written elsewhere, to `place`: those that it refused are bad.
    pub(super) fn convict(&mut self, ctx: &mut Ctx, place: Option<Portion>) {
        if self.suspects.is_empty() || self.suspects.iter().any(|it| Some(it.portion) == place) {
            return;
        }
        for Suspect {
            id, portion, error, ..
        } in std::mem::take(&mut self.suspects)
        {
            ctx.set_aside(portion, id, &error);
        }
    }
}
