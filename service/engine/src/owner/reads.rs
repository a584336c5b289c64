//! Gets, heads, lists and usage: what does not change the store.
//!
//! A get sees the newest applied state. Its blocks, or its record in the ring, are pinned while
//! the read is in flight, so an overwrite or delete in between cannot make it see other bytes.

mod embedded;
mod ranges;

use std::collections::HashMap;
use std::ops::Range;

use super::command::read::{HeadRead, LumpRead, ReadPlace};
use super::command::{Stage, TimedReply};
use super::ctx::Ctx;
use super::io_table::Tag;
use crate::buffer::AlignedBuf;
use crate::declaration::RequestId;
use crate::error::{Error, LumpDamage};
use crate::format::Portion;
use crate::format::mend::mend;
use crate::format::record::{Decoded, EMBED_PREFIX_LEN, Record};
use crate::format::verify::Damage;
use crate::lump::LumpId;
use crate::opened::Beginning;
use crate::payload::LumpData;
use crate::request::{HeadOutcome, ListOutcome, LumpRange, Placement, UsageOutcome};
use crate::stats::Counters;
use crate::storage::index::IndexEntry;
use crate::times::EngineTimes;
use crate::units::{ByteOffset, to_usize};

use ranges::clip;

/// Ranges whose reads are in flight.
#[derive(Default)]
pub(super) struct Reads {
    ranges: HashMap<u64, ranges::RangeRead>,
    next_range: u64,
}

impl Reads {
    pub(super) fn get(
        &self,
        ctx: &mut Ctx,
        request: RequestId,
        id: LumpId,
        mut reply: TimedReply<LumpData>,
    ) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = ctx.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        if let Some(record) = ctx.storage.unrecorded.embedded(id, entry) {
            let buf = ctx.io.pool.copy_of(record);
            let place = ReadPlace::Record {
                position: entry.record(),
                bytes: 0..record.len(),
            };
            let read = LumpRead {
                id,
                place,
                offset: ByteOffset(0),
                reply,
            };
            return read.finish(ctx, buf);
        }
        let (place, offset, len) = match entry.portion() {
            Some(portion) => {
                ctx.storage.data.pin(portion);
                let (offset, len) = ctx.storage.extent_of(portion);
                let subject = ctx.subject(id, portion, entry);
                (ReadPlace::Portion(portion, subject), offset, len)
            }
            None => record_extent(ctx, entry),
        };
        reply.timing.lap(Stage::Index);
        let read = LumpRead {
            id,
            place,
            offset,
            reply,
        };
        ctx.io.read(Tag::Get(read), offset.0, len, vec![request]);
    }

    pub(super) fn get_read(
        &self,
        ctx: &mut Ctx,
        read: LumpRead,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        match read.place {
            ReadPlace::Portion(portion, _) => ctx.unpin(portion),
            ReadPlace::Record { position, .. } => ctx.storage.journal.unpin(position),
        }
        match (result, buf) {
            (Ok(()), Some(buf)) => read.finish(ctx, buf),
            (Err(error), _) => read.reply.send(Err(error.of_lump(read.id)), Stage::Data),
            (Ok(()), None) => read.reply.send(Err(Error::Closed), Stage::Data),
        }
    }

    pub(super) fn head(
        &self,
        ctx: &mut Ctx,
        request: RequestId,
        (id, sum): (LumpId, bool),
        mut reply: TimedReply<HeadOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = ctx.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        let block_size = ctx.storage.geometry.block_size();
        let known = entry.payload_len(block_size);
        let Some(portion) = entry.portion().filter(|_| sum || known.is_none()) else {
            let outcome = HeadOutcome {
                length: known.unwrap_or(0),
                placement: entry.placement(),
                crc32c: None,
            };
            return reply.send(Ok(outcome), Stage::Index);
        };
        ctx.storage.data.pin(portion);
        let (offset, len) = ctx.storage.extent_of(portion);
        let last_block = offset.0 + len - block_size.bytes();
        reply.timing.lap(Stage::Index);
        let tag = Tag::Head {
            lump: HeadRead {
                portion,
                subject: ctx.subject(id, portion, entry),
                sum,
            },
            reply,
        };
        ctx.io
            .read(tag, last_block, block_size.bytes(), vec![request]);
    }

    pub(super) fn head_read(
        &self,
        ctx: &mut Ctx,
        lump: HeadRead,
        reply: TimedReply<HeadOutcome>,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let HeadRead {
            portion,
            subject,
            sum,
        } = lump;
        ctx.unpin(portion);
        let id = subject.id;
        let (offset, _) = ctx.storage.extent_of(portion);
        let end = result.map_err(|error| error.of_lump(id)).and_then(|()| {
            let judged = subject.judge_end(buf.as_deref().unwrap_or_default());
            judged.map_err(|misfit| Error::mismatch(id, portion, offset.0, &misfit))
        });
        if matches!(end, Err(Error::ChecksumMismatch { .. })) {
            ctx.shared.counters.checksum_failures.add(1);
        }
        if let Ok((length, _)) = end {
            learn_length(ctx, id, portion, length);
        }
        let outcome = end.map(|(length, trailer)| HeadOutcome {
            length,
            placement: Placement::Data,
            crc32c: trailer.filter(|_| sum).map(|trailer| trailer.payload_crc),
        });
        reply.send(outcome, Stage::Data);
    }

    /// A range of an embedded lump: its record is short, and read whole.
    pub(super) fn get_range_embedded(
        &self,
        ctx: &mut Ctx,
        request: RequestId,
        (id, entry): (LumpId, IndexEntry),
        (offset, len): (u64, u64),
        mut reply: TimedReply<Beginning>,
    ) {
        let length = entry.record_len().saturating_sub(EMBED_PREFIX_LEN as u64);
        let range = match clip(id, offset, len, length) {
            Ok(range) => range,
            Err(error) => return reply.send(Err(error), Stage::Index),
        };
        reply.timing.lap(Stage::Index);
        let on_done = Box::new(move |result: Result<LumpData, Error>, _: EngineTimes| {
            let outcome = result.map(|lump| Beginning {
                first: lump.narrowed(&range),
                wanted: range,
                total_length: length,
                rest: None,
            });
            reply.send(outcome, Stage::Data);
        });
        self.get(ctx, request, id, TimedReply::new(on_done));
    }

    pub(super) fn list(
        &self,
        ctx: &Ctx,
        range: LumpRange,
        limit: usize,
        mut reply: TimedReply<ListOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        let mut entries = ctx.storage.index.range(range);
        let ids = entries.by_ref().take(limit).map(|(id, _)| id).collect();
        let next = entries.next().map(|(id, _)| id);
        reply.send(Ok(ListOutcome { ids, next }), Stage::Index);
    }

    pub(super) fn usage(&self, ctx: &Ctx, range: LumpRange, mut reply: TimedReply<UsageOutcome>) {
        reply.timing.lap(Stage::Sched);
        let usage = UsageOutcome {
            changes: ctx.storage.index.changes(),
            ..ctx.storage.index.usage(range)
        };
        reply.send(Ok(usage), Stage::Index);
    }
}

impl LumpRead {
    /// Verifies the bytes and answers the request.
    fn finish(self, ctx: &Ctx, buf: AlignedBuf) {
        ctx.finisher.run(buf.len(), move |counters| {
            let result = match self.place {
                ReadPlace::Portion(portion, subject) => match subject.judge(&buf) {
                    Ok(judged) => Ok(LumpData::judged(buf, &judged)),
                    Err(misfit) => Err(Error::mismatch(self.id, portion, self.offset.0, &misfit)),
                },
                ReadPlace::Record { bytes, .. } => embedded(buf, self.id, self.offset, bytes),
            };
            note(counters, result.as_ref().map(|lump| lump.verified));
            self.reply.send(result, Stage::Data);
        });
    }
}

/// Pins the record of an embedded lump; the units of the ring that hold it.
fn record_extent(ctx: &mut Ctx, entry: IndexEntry) -> (ReadPlace, ByteOffset, u64) {
    let journal = &mut ctx.storage.journal;
    let position = entry.record();
    journal.pin(position);
    let (start, len) = journal.units(position, position.0 + entry.record_len());
    let at = to_usize(position.0 - start.0);
    let bytes = at..at.saturating_add(to_usize(entry.record_len()));
    let offset = ctx.storage.geometry.ring_byte(start);
    (ReadPlace::Record { position, bytes }, offset, len)
}

/// The last block of a portion has told how long its lump is.
fn learn_length(ctx: &mut Ctx, id: LumpId, portion: Portion, length: u64) {
    let total = portion.byte_len(ctx.storage.geometry.block_size()).0;
    let padding = total.checked_sub(length + 2);
    let padding = padding.and_then(|padding| u16::try_from(padding).ok());
    ctx.storage.index.update(id, |entry| match entry.portion() {
        // The lump may have been replaced meanwhile.
        Some(now) if now == portion => entry.with_padding(padding),
        _ => entry,
    });
}

/// Counts what could not be verified.
fn note(counters: &Counters, verified: Result<bool, &Error>) {
    match verified {
        Ok(false) => counters.unverified_gets.add(1),
        Err(Error::ChecksumMismatch { .. }) => counters.checksum_failures.add(1),
        _ => {}
    }
}

/// The lump in a journal record; the record's own checksum verifies it.
fn embedded(
    buf: AlignedBuf,
    id: LumpId,
    offset: ByteOffset,
    within: Range<usize>,
) -> Result<LumpData, Error> {
    let at = within.start;
    let bytes = buf.get(within).unwrap_or_default();
    let whole = bytes.len();
    let len_of = |bytes: &[u8]| match Record::decode(bytes) {
        Ok(Decoded::Record {
            record: Record::Embed { id: found, .. },
            len,
        }) if found == id && len == whole => Some(len),
        _ => None,
    };
    // A flipped bit before the data is known, and the data is as the checksum says.
    let mended = || mend(bytes).filter(|mended| mended.flipped.is_some());
    let found = len_of(bytes).or_else(|| len_of(&mended()?.record));
    match found {
        Some(len) => Ok(LumpData::embedded(buf, at + EMBED_PREFIX_LEN, at + len)),
        None => {
            let len = buf.len().saturating_sub(at) as u64;
            Err(Error::ChecksumMismatch(Box::new(LumpDamage {
                id,
                portion: None,
                damage: Damage::Record,
                offset: offset.0 + at as u64,
                len,
            })))
        }
    }
}
