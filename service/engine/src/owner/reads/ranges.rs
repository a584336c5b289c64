//! Gets of a part of a lump: verified by the checksums of the chunks that hold it, with I/O in
//! proportion to the part.
//!
//! Needed are the chunks and the last block, which tells the length and holds the checksums. Both
//! are read at once when they are close, else in parallel; when the length is not known yet, the
//! last block goes first.

use std::ops::Range;

use super::{Reads, learn_length};
use crate::buffer::{AlignedBuf, Reservation};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::sums::Chunks;
use crate::format::verify::Subject;
use crate::lump::LumpId;
use crate::owner::command::{Reply, Stage};
use crate::owner::ctx::Ctx;
use crate::owner::finisher::FinishRange;
use crate::owner::io_table::Tag;
use crate::request::RangeOutcome;
use crate::units::ByteOffset;

/// Bytes that are rather read in vain than with a second I/O.
const CLOSE: u64 = 128 * 1024;

/// The range of a lump that is being read.
pub(crate) struct RangeRead {
    request: RequestId,
    portion: Portion,
    subject: Subject,
    /// First byte of the portion in the device.
    start: ByteOffset,
    offset: u64,
    len: u64,
    /// Bytes of the lump, once they are known.
    payload_len: Option<u64>,
    /// Offset of the bytes read in the portion.
    body_at: u64,
    body: Option<AlignedBuf>,
    /// The last block, when the body does not end with it.
    end: Option<AlignedBuf>,
    in_flight: u8,
    error: Option<Error>,
    reservation: Option<Reservation>,
    reply: Reply<RangeOutcome>,
}

/// Which piece of a range an I/O reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Body,
    End,
}

/// The bytes `offset..offset + len`, clipped to a lump of `length` bytes.
pub(crate) fn clip(id: LumpId, offset: u64, len: u64, length: u64) -> Result<Range<u64>, Error> {
    if offset > length {
        return Err(Error::RangeOutside { id, offset, length });
    }
    Ok(offset..offset.saturating_add(len).min(length))
}

/// Most bytes that are read at once for `len` bytes of a lump that takes `stored` bytes of disk.
pub(crate) fn memory_of_range(len: u64, stored: u64) -> u64 {
    let chunk = Chunks::of(stored).chunk_len();
    len.saturating_add(2 * chunk + 2 * CLOSE)
}

impl Reads {
    pub(in crate::owner) fn get_range(
        &mut self,
        ctx: &mut Ctx,
        request: RequestId,
        id: LumpId,
        (offset, len): (u64, u64),
        mut reply: Reply<RangeOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = ctx.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        let Some(portion) = entry.portion() else {
            return self.get_range_embedded(ctx, request, (id, entry), (offset, len), reply);
        };
        let payload_len = entry.payload_len(ctx.storage.geometry.block_size());
        if let Some(Err(error)) = payload_len.map(|length| clip(id, offset, len, length)) {
            return reply.send(Err(error), Stage::Index);
        }
        ctx.storage.data.pin(portion);
        let (start, _) = ctx.storage.extent_of(portion);
        reply.timing.lap(Stage::Index);
        let read = RangeRead {
            request,
            portion,
            subject: ctx.subject(id, portion, entry),
            start,
            offset,
            len,
            payload_len,
            body_at: 0,
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
        let block = ctx.storage.geometry.block_size().bytes();
        let unit = ctx.storage.journal.unit();
        let Some(read) = self.ranges.get_mut(&key) else {
            return;
        };
        let total = read.portion.byte_len(read.subject.block_size).0;
        let last = total - block;
        let mut pieces = Vec::with_capacity(2);
        match read.payload_len {
            // A small lump is read whole rather than in two steps.
            None if total > CLOSE => pieces.push((Piece::End, last..total)),
            known => {
                let length = known.unwrap_or(total);
                let wanted = read.offset..read.offset.saturating_add(read.len);
                let cover = if known.is_some() {
                    Chunks::of(length).cover(wanted)
                } else {
                    0..total
                };
                let from = cover.start - cover.start % unit;
                let to = cover.end.next_multiple_of(unit).clamp(from, total);
                read.body_at = from;
                if read.end.is_none() && to + CLOSE >= last {
                    pieces.push((Piece::Body, from..total));
                } else {
                    if to > from {
                        pieces.push((Piece::Body, from..to));
                    }
                    if read.end.is_none() {
                        pieces.push((Piece::End, last..total));
                    }
                }
            }
        }
        let (start, request) = (read.start.0, read.request);
        read.in_flight = u8::try_from(pieces.len()).unwrap_or(u8::MAX);
        for (piece, bytes) in pieces {
            if piece == Piece::Body {
                let reservation = self.ranges.get_mut(&key);
                ctx.io.reservation = reservation.and_then(|read| read.reservation.take());
            }
            let len = bytes.end - bytes.start;
            let tag = Tag::Range(key, piece);
            ctx.io.read(tag, start + bytes.start, len, vec![request]);
        }
        let nothing = self
            .ranges
            .get(&key)
            .is_some_and(|read| read.in_flight == 0);
        if nothing {
            // The range is empty, and the end has been read.
            self.finish_range(ctx, key);
        }
    }

    /// A piece has been read.
    pub(in crate::owner) fn range_read(
        &mut self,
        ctx: &mut Ctx,
        (key, piece): (u64, Piece),
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let Some(read) = self.ranges.get_mut(&key) else {
            return;
        };
        read.in_flight -= 1;
        if let Err(error) = result {
            read.error.get_or_insert(error);
        }
        match piece {
            Piece::Body => read.body = buf,
            Piece::End => read.end = buf,
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
        clip(subject.id, read.offset, read.len, length)?;
        read.payload_len = Some(length);
        let more = read.body.is_none();
        learn_length(ctx, subject.id, portion, length);
        Ok(more)
    }

    /// Everything has been read: what remains touches the payload.
    fn finish_range(&mut self, ctx: &mut Ctx, key: u64) {
        let Some(read) = self.ranges.remove(&key) else {
            return;
        };
        ctx.unpin(read.portion);
        if let Some(error) = read.error {
            return read.reply.send(Err(error), Stage::Data);
        }
        let body = read.body.unwrap_or_else(|| ctx.io.pool.zeroed(0));
        ctx.finisher.finish_range(FinishRange {
            portion: read.portion,
            subject: read.subject,
            start: read.start,
            offset: read.offset,
            len: read.len,
            body_at: read.body_at,
            body,
            end: read.end,
            reply: read.reply,
        });
    }
}
