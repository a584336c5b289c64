//! Gets, heads, lists and usage: what does not change the store.
//!
//! A get sees the newest applied state. Its blocks, or its record in the ring, are pinned while
//! the read is in flight, so an overwrite or delete in between cannot make it see other bytes.

use super::Owner;
use super::finisher::{Finish, FinishKind};
use super::io_table::{HeadRead, Tag};
use super::message::{Reply, Stage};
use super::ranges::clip;
use crate::buffer::AlignedBuf;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::record::EMBED_PREFIX_LEN;
use crate::format::verify::Subject;
use crate::lump::LumpId;
use crate::payload::LumpData;
use crate::request::{
    EngineTimes, HeadOutcome, ListOutcome, LumpRange, Placement, RangeOutcome, UsageOutcome,
};
use crate::storage::Storage;
use crate::storage::index::Entry;
use crate::units::{ByteOffset, RingPosition};

/// A get whose read is in flight.
pub(crate) struct ReadLump {
    id: LumpId,
    place: ReadPlace,
    offset: ByteOffset,
    reply: Reply<LumpData>,
}

/// What is pinned, and how to find the lump in the bytes.
#[derive(Clone, Copy, Debug)]
enum ReadPlace {
    Portion(Portion, Subject),
    Record { position: RingPosition, at: usize },
}

impl Owner {
    pub(super) fn get(&mut self, request: RequestId, id: LumpId, mut reply: Reply<LumpData>) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = self.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        let (place, offset, len) = match entry.portion() {
            Some(portion) => {
                self.storage.data.pin(portion);
                let (offset, len) = self.storage.extent_of(portion);
                let subject = self.subject(id, portion, entry);
                (ReadPlace::Portion(portion, subject), offset, len)
            }
            None => self.record_extent(entry),
        };
        reply.timing.lap(Stage::Index);
        let read = ReadLump {
            id,
            place,
            offset,
            reply,
        };
        self.io.read(Tag::Get(read), offset.0, len, vec![request]);
    }

    /// What is expected of a portion that is going to be read.
    pub(super) fn subject(&self, id: LumpId, portion: Portion, entry: Entry) -> Subject {
        let Storage {
            geometry, journal, ..
        } = &self.storage;
        let block_size = geometry.block_size();
        Subject {
            id,
            blocks: portion.len(),
            block_size,
            provenance: journal.provenance(entry),
            expected_len: entry.payload_len(block_size),
        }
    }

    /// Pins the record of an embedded lump; the units of the ring that hold it.
    fn record_extent(&mut self, entry: Entry) -> (ReadPlace, ByteOffset, u64) {
        let journal = &mut self.storage.journal;
        let position = entry.record();
        journal.pin(position);
        let start = position.0 - position.0 % journal.unit();
        let end = (position.0 + entry.record_len()).next_multiple_of(journal.unit());
        let at = usize::try_from(position.0 - start).unwrap_or(usize::MAX);
        let offset = self.storage.geometry.ring_byte(RingPosition(start));
        (ReadPlace::Record { position, at }, offset, end - start)
    }

    pub(super) fn get_read(
        &mut self,
        read: ReadLump,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let ReadLump {
            id,
            place,
            offset,
            reply,
        } = read;
        let kind = match place {
            ReadPlace::Portion(portion, subject) => {
                self.unpin(portion);
                FinishKind::Portion { portion, subject }
            }
            ReadPlace::Record { position, at } => {
                self.storage.journal.unpin(position);
                FinishKind::Record { at }
            }
        };
        match (result, buf) {
            (Ok(()), Some(buf)) => self.finisher.finish(Finish {
                id,
                buf,
                offset,
                kind,
                reply,
            }),
            (Err(error), _) => reply.send(Err(error), Stage::Data),
            (Ok(()), None) => reply.send(Err(Error::Closed), Stage::Data),
        }
    }

    pub(super) fn unpin(&mut self, portion: Portion) {
        if self.storage.data.unpin(portion) {
            self.retry_waiting_puts();
        }
    }

    pub(super) fn head(&mut self, request: RequestId, id: LumpId, mut reply: Reply<HeadOutcome>) {
        reply.timing.lap(Stage::Sched);
        let Some(entry) = self.storage.index.get(id) else {
            return reply.send(Err(Error::NotFound { id }), Stage::Index);
        };
        let block_size = self.storage.geometry.block_size();
        let (Some(portion), None) = (entry.portion(), entry.payload_len(block_size)) else {
            let length = entry.payload_len(block_size).unwrap_or(0);
            let outcome = HeadOutcome {
                length,
                placement: entry.placement(),
            };
            return reply.send(Ok(outcome), Stage::Index);
        };
        self.storage.data.pin(portion);
        let (offset, len) = self.storage.extent_of(portion);
        let last_block = offset.0 + len - block_size.bytes();
        reply.timing.lap(Stage::Index);
        let tag = Tag::Head {
            lump: HeadRead {
                portion,
                subject: self.subject(id, portion, entry),
            },
            reply,
        };
        self.io
            .read(tag, last_block, block_size.bytes(), vec![request]);
    }

    pub(super) fn head_read(
        &mut self,
        lump: HeadRead,
        reply: Reply<HeadOutcome>,
        buf: Option<AlignedBuf>,
        result: Result<(), Error>,
    ) {
        let HeadRead { portion, subject } = lump;
        self.unpin(portion);
        let id = subject.id;
        let (offset, _) = self.storage.extent_of(portion);
        let length = result.and_then(|()| {
            let judged = subject.judge_end(buf.as_deref().unwrap_or_default());
            let mismatch = |misfit| Error::mismatch(id, portion, offset.0, &misfit);
            judged.map(|(length, _)| length).map_err(mismatch)
        });
        if matches!(length, Err(Error::ChecksumMismatch { .. })) {
            self.shared.counters.checksum_failures.add(1);
        }
        if let Ok(length) = length {
            self.learn_length(id, portion, length);
        }
        let outcome = length.map(|length| HeadOutcome {
            length,
            placement: Placement::Data,
        });
        reply.send(outcome, Stage::Data);
    }

    /// The last block of a portion has told how long its lump is.
    pub(super) fn learn_length(&mut self, id: LumpId, portion: Portion, length: u64) {
        let total = portion.byte_len(self.storage.geometry.block_size()).0;
        let padding = total.checked_sub(length + 2);
        let padding = padding.and_then(|padding| u16::try_from(padding).ok());
        self.storage
            .index
            .update(id, |entry| match entry.portion() {
                // The lump may have been replaced meanwhile.
                Some(now) if now == portion => entry.with_padding(padding),
                _ => entry,
            });
    }

    /// A range of an embedded lump: its record is short, and read whole.
    pub(super) fn get_range_embedded(
        &mut self,
        request: RequestId,
        (id, entry): (LumpId, Entry),
        (offset, len): (u64, u64),
        mut reply: Reply<RangeOutcome>,
    ) {
        let length = entry.record_len().saturating_sub(EMBED_PREFIX_LEN as u64);
        let range = match clip(id, offset, len, length) {
            Ok(range) => range,
            Err(error) => return reply.send(Err(error), Stage::Index),
        };
        reply.timing.lap(Stage::Index);
        let on_done = Box::new(move |result: Result<LumpData, Error>, _: EngineTimes| {
            let outcome = result.map(|lump| RangeOutcome {
                data: lump.narrowed(&range),
                offset,
                total_length: length,
            });
            reply.send(outcome, Stage::Data);
        });
        self.get(request, id, Reply::new(on_done));
    }

    pub(super) fn list(&self, range: LumpRange, limit: usize, mut reply: Reply<ListOutcome>) {
        reply.timing.lap(Stage::Sched);
        let mut entries = self.storage.index.range(range);
        let ids = entries.by_ref().take(limit).map(|(id, _)| id).collect();
        let next = entries.next().map(|(id, _)| id);
        reply.send(Ok(ListOutcome { ids, next }), Stage::Index);
    }

    pub(super) fn usage(&self, range: LumpRange, mut reply: Reply<UsageOutcome>) {
        reply.timing.lap(Stage::Sched);
        reply.send(Ok(self.storage.index.usage(range)), Stage::Index);
    }
}
