//! Gets of a lump from some byte on: verified by the checksums of the chunks that hold what is
//! wanted, with I/O in proportion to it.
//!
//! Needed are the chunks and the last block, which tells the length and holds the checksums. Both
//! are read at once when they are close, else in parallel; when the length is not known yet, the
//! last block of a range goes first. A lump that is opened is read piece by piece: here the
//! beginning, and then, with [`Reads::piece`], what its reader asks for.

use std::ops::Range;
use std::sync::Arc;

use super::{Reads, learn_length, note};
use crate::buffer::{AlignedBuf, Reservation};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::sums::Chunks;
use crate::format::verify::{Misfit, Subject};
use crate::lump::LumpId;
use crate::opened::{Beginning, OpenLump, Pin};
use crate::owner::command::read::{CLOSE, PieceRead, RangePiece, Wanted};
use crate::owner::command::{Stage, TimedReply};
use crate::owner::ctx::Ctx;
use crate::owner::io_table::Tag;
use crate::payload::LumpData;
use crate::units::ByteOffset;

/// The range of a lump that is being read.
pub(super) struct RangeRead {
    request: RequestId,
    portion: Portion,
    subject: Subject,
    /// First byte of the portion in the device.
    start: ByteOffset,
    wanted: Wanted,
    /// Bytes of the lump, once they are known.
    payload_len: Option<u64>,
    /// The bytes of the portion that are read with the body.
    body_at: Range<u64>,
    body: Option<AlignedBuf>,
    /// The last block, when the body does not end with it.
    end: Option<AlignedBuf>,
    in_flight: u8,
    error: Option<Error>,
    reservation: Option<Reservation>,
    reply: TimedReply<Beginning>,
}

/// The bytes `offset..offset + len`, clipped to a lump of `length` bytes.
pub(super) fn clip(id: LumpId, offset: u64, len: u64, length: u64) -> Result<Range<u64>, Error> {
    if offset > length {
        return Err(Error::RangeOutside { id, offset, length });
    }
    Ok(offset..offset.saturating_add(len).min(length))
}

impl RangeRead {
    /// The I/Os that the present knowledge asks for, as bytes of the portion. `unit`: I/Os consist
    /// of whole ones.
    fn plan(&mut self, unit: u64) -> Vec<(RangePiece, Range<u64>)> {
        let total = self.portion.byte_len(self.subject.block_size).0;
        let last = total - self.subject.block_size.bytes();
        let Wanted { offset, len, .. } = self.wanted;
        // A lump from its first byte on has no less than the portion can hold, nearly; a small one
        // is read whole. What is read of any other may lie behind its end.
        let from_first = offset == 0 && len > 0 && (self.wanted.piece.is_some() || len >= total);
        if self.payload_len.is_none() && total > CLOSE && !from_first {
            return vec![(RangePiece::End, last..total)];
        }
        // Chunks of the portion are as long as those of the lump, or as several of them.
        let chunks = Chunks::of(self.payload_len.unwrap_or(total));
        let cover = if self.payload_len.is_some() || total > CLOSE {
            chunks.cover(offset..offset.saturating_add(len))
        } else {
            0..total
        };
        let from = cover.start - cover.start % unit;
        let mut to = cover.end.next_multiple_of(unit).clamp(from, total);
        if let Some(piece) = self.wanted.piece {
            to = piece.end(chunks.chunk_len(), from, to);
        }
        let mut pieces = Vec::with_capacity(2);
        if self.end.is_none() && to + CLOSE >= last {
            to = total;
        } else if self.end.is_none() {
            pieces.push((RangePiece::End, last..total));
        }
        self.body_at = from..to;
        if to > from {
            pieces.insert(0, (RangePiece::Body, from..to));
        }
        pieces
    }

    /// Verifies the bytes and answers the request. `pin` keeps the lump open; `None`: the body has
    /// all that is wanted.
    fn finish(self, ctx: &Ctx, body: AlignedBuf, pin: Option<Pin>) {
        ctx.finisher.run(body.len(), move |counters| {
            let Self {
                portion,
                subject,
                start,
                wanted,
                body_at,
                end,
                reply,
                ..
            } = self;
            let mismatch = |misfit: Misfit| Error::mismatch(subject.id, portion, start.0, &misfit);
            let judged = subject
                .judge_end(end.as_deref().unwrap_or(&body))
                .map_err(mismatch)
                .and_then(|end| {
                    let wanted = clip(subject.id, wanted.offset, wanted.len, end.0)?;
                    let first = wanted.start..wanted.end.min(body_at.end.max(wanted.start));
                    let rest = pin.zip(end.1.clone()).map(|(pin, trailer)| OpenLump {
                        pin,
                        subject,
                        start,
                        payload_len: end.0,
                        trailer,
                    });
                    let judged = subject.judge_part(&body, body_at.start, first, end);
                    judged
                        .map_err(mismatch)
                        .map(|judged| (wanted, judged, rest))
                });
            note(
                counters,
                judged.as_ref().map(|(_, judged, _)| judged.verified),
            );
            let outcome = judged.map(|(wanted, judged, rest)| Beginning {
                first: LumpData::judged(body, &judged),
                wanted,
                total_length: judged.payload_len,
                rest,
            });
            reply.send(outcome, Stage::Data);
        });
    }
}

impl PieceRead {
    /// Verifies the bytes and answers the request.
    fn finish(self, ctx: &Ctx, body: AlignedBuf) {
        ctx.finisher.run(body.len(), move |counters| {
            let judged = self.lump.judge(&body, self.wanted);
            // Before the answer, so that the reader has the last handle.
            drop(self.lump);
            note(counters, judged.as_ref().map(|judged| judged.verified));
            let piece = judged.map(|judged| LumpData::judged(body, &judged));
            self.reply.send(piece, Stage::Data);
        });
    }
}

impl Reads {
    pub(in crate::owner) fn get_range(
        &mut self,
        ctx: &mut Ctx,
        request: RequestId,
        id: LumpId,
        wanted: Wanted,
        mut reply: TimedReply<Beginning>,
    ) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = ctx.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        let Wanted { offset, len, .. } = wanted;
        let Some(portion) = entry.portion() else {
            return self.get_range_embedded(ctx, request, (id, entry), (offset, len), reply);
        };
        let payload_len = entry.payload_len(ctx.storage.geometry.block_size());
        if let Some(Err(error)) = payload_len.map(|length| clip(id, offset, len, length)) {
            return reply.send(Err(error), Stage::Index);
        }
        ctx.storage.data.pin(portion);
        let (start, _) = ctx.storage.extent_of(portion);
        let subject = ctx.subject(id, portion, entry);
        reply.timing.lap(Stage::Index);
        let read = RangeRead {
            request,
            portion,
            subject,
            start,
            wanted: wanted.of(subject.provenance),
            payload_len,
            body_at: 0..0,
            body: None,
            end: None,
            in_flight: 0,
            error: None,
            reservation: ctx.io.reservation.take(),
            reply,
        };
        let key = self.next_range;
        self.next_range += 1;
        self.ranges.insert(key, read);
        self.read_range(ctx, key);
    }

    /// Starts the reads that the present knowledge asks for.
    fn read_range(&mut self, ctx: &mut Ctx, key: u64) {
        let unit = ctx.storage.journal.unit();
        let Some(read) = self.ranges.get_mut(&key) else {
            return;
        };
        let pieces = read.plan(unit);
        read.in_flight = u8::try_from(pieces.len()).unwrap_or(u8::MAX);
        if pieces.is_empty() {
            // The range is empty, and the end has been read.
            return self.finish_range(ctx, key);
        }
        for (piece, bytes) in pieces {
            if piece == RangePiece::Body {
                ctx.io.reservation = read.reservation.take();
            }
            let len = bytes.end - bytes.start;
            let tag = Tag::Range(key, piece);
            ctx.io
                .read(tag, read.start.0 + bytes.start, len, vec![read.request]);
        }
    }

    /// A piece has been read.
    pub(in crate::owner) fn range_read(
        &mut self,
        ctx: &mut Ctx,
        (key, piece): (u64, RangePiece),
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let Some(read) = self.ranges.get_mut(&key) else {
            return;
        };
        read.in_flight -= 1;
        if let Err(error) = result {
            read.error.get_or_insert(error.of_lump(read.subject.id));
        }
        match piece {
            RangePiece::Body => read.body = buf,
            RangePiece::End => read.end = buf,
        }
        if read.in_flight > 0 {
            return;
        }
        let knows_end = read.error.is_none() && read.payload_len.is_none();
        if !knows_end {
            return self.finish_range(ctx, key);
        }
        match self.learn_end(ctx, key) {
            Ok(true) => self.read_range(ctx, key),
            Ok(false) => self.finish_range(ctx, key),
            Err(error) => {
                if matches!(error, Error::ChecksumMismatch { .. }) {
                    ctx.shared.counters.checksum_failures.add(1);
                }
                if let Some(read) = self.ranges.get_mut(&key) {
                    read.error = Some(error);
                }
                self.finish_range(ctx, key);
            }
        }
    }

    /// Takes the length of the lump from its last block. True: the body is still to be read.
    fn learn_end(&mut self, ctx: &mut Ctx, key: u64) -> Result<bool, Error> {
        let Some(read) = self.ranges.get_mut(&key) else {
            return Ok(false);
        };
        let (subject, portion) = (read.subject, read.portion);
        let last = read.end.as_deref().or(read.body.as_deref());
        let (length, _) = subject
            .judge_end(last.unwrap_or_default())
            .map_err(|misfit| Error::mismatch(subject.id, portion, read.start.0, &misfit))?;
        clip(subject.id, read.wanted.offset, read.wanted.len, length)?;
        read.payload_len = Some(length);
        let more = read.body.is_none();
        learn_length(ctx, subject.id, portion, length);
        Ok(more)
    }

    /// Everything has been read: what remains touches the payload.
    fn finish_range(&mut self, ctx: &mut Ctx, key: u64) {
        let Some(mut read) = self.ranges.remove(&key) else {
            return;
        };
        if let Some(error) = read.error {
            ctx.unpin(read.portion);
            return read.reply.send(Err(error), Stage::Data);
        }
        let body = read.body.take().unwrap_or_else(|| ctx.io.pool.zeroed(0));
        let to = read.wanted.offset.saturating_add(read.wanted.len);
        let to = read.payload_len.map_or(to, |length| to.min(length));
        let pin = if read.body_at.end < to {
            Some(ctx.keep_open(read.portion))
        } else {
            ctx.unpin(read.portion);
            None
        };
        read.finish(ctx, body, pin);
    }

    /// Reads a piece of a lump that is open.
    pub(in crate::owner) fn piece(
        &self,
        ctx: &mut Ctx,
        request: RequestId,
        (lump, wanted): (Arc<OpenLump>, Range<u64>),
        mut reply: TimedReply<LumpData>,
    ) {
        reply.timing.lap(Stage::Sched);
        let (offset, len) = lump.extent(&wanted);
        let read = PieceRead {
            lump,
            wanted,
            reply,
        };
        ctx.io
            .read(Tag::Piece(Box::new(read)), offset, len, vec![request]);
    }

    /// A piece of a lump that is open has been read.
    pub(in crate::owner) fn piece_read(
        &self,
        ctx: &mut Ctx,
        read: PieceRead,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        match (result, buf) {
            (Ok(()), Some(body)) => read.finish(ctx, body),
            (Err(error), _) => {
                let error = error.of_lump(read.lump.subject.id);
                read.reply.send(Err(error), Stage::Data);
            }
            (Ok(()), None) => read.reply.send(Err(Error::Closed), Stage::Data),
        }
    }
}
