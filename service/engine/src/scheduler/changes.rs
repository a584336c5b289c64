//! Puts and deletes from their arrival until their record is ready for the journal, and their
//! effect on the index when it is durable.
//!
//! A put always goes to fresh blocks (copy on write), so a failed or cut put never harms the lump
//! it would have replaced. The order of records in the journal decides between concurrent changes
//! of one id.

use super::Owner;
use super::change::{Answer, Change, Effect, PendingPut};
use super::group::{Group, Placed};
use super::io_table::Tag;
use super::message::{Command, PutBody, Reply, Stage};
use crate::buffer::AlignedBuf;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN, Record};
use crate::format::trailer::max_payload_in;
use crate::lump::LumpId;
use crate::payload::SealedLump;
use crate::request::{
    DeleteOutcome, DeleteRangeOutcome, Durability, LumpRange, PutCondition, PutOutcome,
};
use crate::storage::Storage;
use crate::storage::index::Entry;
use crate::units::RingPosition;

impl Owner {
    /// Accepts a command that changes the store, or a sync.
    pub(super) fn on_change(&mut self, command: Command) {
        match command {
            Command::Put {
                request,
                id,
                body,
                durability,
                condition,
                mut reply,
            } => {
                reply.timing.lap(Stage::Sched);
                match body {
                    PutBody::Data(lump) => {
                        self.put_data(request, id, lump, (durability, condition), reply);
                    }
                    PutBody::Embedded { record, len } => {
                        let effect = Effect::Embed { id, len, reply };
                        let change = Change {
                            request,
                            durability,
                            condition,
                            record,
                            effect,
                        };
                        self.put_embedded(change, len);
                    }
                }
            }
            Command::Group {
                request,
                data,
                group,
                durability,
                mut reply,
            } => {
                reply.timing.lap(Stage::Sched);
                self.put_group(request, (data, group), durability, reply);
            }
            Command::Delete {
                request,
                id,
                durability,
                reply,
            } => {
                self.delete(request, id, durability, reply);
            }
            Command::DeleteRange {
                request,
                start,
                end,
                durability,
                reply,
            } => {
                self.delete_range(request, (start, end), durability, reply);
            }
            Command::DeleteMany {
                request,
                ids,
                durability,
                reply,
            } => {
                self.delete_many(request, &ids, durability, reply);
            }
            Command::Sync { mut reply } => {
                reply.timing.lap(Stage::Sched);
                self.pending += 1;
                self.commit.await_flush_for_sync(reply);
            }
            other => other.refuse(Error::Closed),
        }
    }

    fn put_data(
        &mut self,
        request: RequestId,
        id: LumpId,
        lump: SealedLump,
        (durability, condition): (Durability, PutCondition),
        reply: Reply<PutOutcome>,
    ) {
        // Saves the write. What is applied and durable was there before this put.
        if condition == PutCondition::IfAbsent
            && self.commit.all_durable()
            && self.storage.index.get(id).is_some()
        {
            return reply.send(Err(Error::AlreadyExists { id }), Stage::Index);
        }
        let mut put = PendingPut::new(request, id, durability, reply);
        put.condition = condition;
        self.put_data_of(put, lump, None);
    }

    /// Starts the write of a put; `group`: what it is one change with, counted already.
    pub(super) fn put_data_of(
        &mut self,
        mut put: PendingPut,
        lump: SealedLump,
        group: Option<Group>,
    ) {
        let refuse = |owner: &mut Self, put: PendingPut, error| {
            if let Some(group) = &group {
                owner.end_group(None, group, false);
            }
            put.reply.send(Err(error), Stage::Index);
        };
        let SealedLump { buf, blocks, len } = lump;
        let data_blocks = self.storage.geometry.data_blocks();
        if u64::from(blocks.0) > data_blocks {
            let block_size = self.storage.geometry.block_size();
            let max = max_payload_in(data_blocks, block_size);
            return refuse(self, put, Error::LumpTooLarge { len, max });
        }
        if let Err(error) = self.reserve_record(PUT_LEN as u64) {
            return refuse(self, put, error);
        }
        put.padding = u16::try_from((buf.len() as u64).saturating_sub(len + 2)).ok();
        put.blocks = blocks;
        put.group = group;
        self.begin_put(put.id);
        self.place_put(Box::new(put), buf);
    }

    /// Finds blocks for a put and starts its write.
    fn place_put(&mut self, mut put: Box<PendingPut>, buf: AlignedBuf) {
        let Some(portion) = self.storage.data.allocate(put.blocks) else {
            if self.storage.data.deferred_blocks() > 0 {
                return self.waiting_for_space.push_back((put, buf));
            }
            let allocator = self.storage.data.allocator();
            let block_size = self.storage.geometry.block_size().bytes();
            let error = Error::StoreFull {
                needed: u64::from(put.blocks.0) * block_size,
                free: allocator.free_blocks() * block_size,
                largest: allocator.largest() * block_size,
            };
            return self.refuse_put(*put, error, Stage::Index);
        };
        put.portion = Some(portion);
        put.reply.timing.lap(Stage::Index);
        let (offset, len) = self.storage.extent_of(portion);
        self.waiting.put_placed(offset.0, offset.0 + len);
        let request = put.request;
        self.io
            .write(Tag::PutData(put), offset.0, buf, vec![request]);
    }

    /// Blocks became free: puts that waited for them try again.
    pub(super) fn retry_waiting_puts(&mut self) {
        for (mut put, buf) in std::mem::take(&mut self.waiting_for_space) {
            put.reply.timing.lap(Stage::Sched);
            self.place_put(put, buf);
        }
    }

    /// The data of a put is on the device, but perhaps only in its cache.
    pub(super) fn put_written(&mut self, mut put: Box<PendingPut>, result: Result<(), Error>) {
        put.reply.timing.lap(Stage::Data);
        match result.and_then(|()| self.failure().map_or(Ok(()), Err)) {
            Ok(()) => self.commit.await_flush_for_put(put),
            Err(error) => self.refuse_put(*put, error, Stage::Data),
        }
    }

    /// Gives up a put whose record was never written.
    pub(super) fn refuse_put(&mut self, put: PendingPut, error: Error, stage: Stage) {
        if let Some(portion) = put.portion {
            self.storage.data.free_unused(portion);
        }
        self.end_put(put.id, PUT_LEN as u64);
        if let Some(group) = &put.group {
            self.end_group(None, group, false);
        }
        put.reply.send(Err(error), stage);
    }

    /// The data of a put is on stable storage: its record may be written.
    pub(super) fn put_durable(&mut self, put: PendingPut) {
        let PendingPut {
            request,
            id,
            durability,
            condition,
            padding,
            portion,
            reply,
            group,
            ..
        } = put;
        let Some(portion) = portion else { return };
        if let Some(group) = group {
            let placed = Placed {
                id,
                portion,
                padding,
            };
            return self.group_ready((request, durability), Some(placed), group, reply);
        }
        let record = Record::Put { id, portion }.to_bytes();
        let effect = Effect::Put {
            id,
            portion,
            padding,
            reply,
        };
        self.commit.ready.push_back(Change {
            request,
            durability,
            condition,
            record,
            effect,
        });
    }

    fn put_embedded(&mut self, change: Change, len: u16) {
        let record_len = change.record.len() as u64;
        let limit = self.storage.journal.live_limit(record_len);
        if record_len > limit {
            // Not even into an empty store. A smaller record needs a smaller reserve too.
            let max = (EMBED_PREFIX_LEN as u64..record_len)
                .rev()
                .find(|&len| len <= self.storage.journal.live_limit(len))
                .map_or(0, |len| len - EMBED_PREFIX_LEN as u64);
            return change.refuse(Error::LumpTooLarge {
                len: u64::from(len),
                max,
            });
        }
        if let Err(error) = self.reserve_record(record_len) {
            return change.refuse(error);
        }
        if let Effect::Embed { id, .. } = &change.effect {
            self.begin_put(*id);
        }
        self.commit.ready.push_back(change);
    }

    /// Sets aside room in the journal for the record of a put.
    pub(super) fn reserve_record(&mut self, record_len: u64) -> Result<(), Error> {
        let journal = &mut self.storage.journal;
        let live = self.storage.index.record_bytes() + self.pending_record_bytes;
        if live + record_len > journal.live_limit(record_len) {
            let capacity = journal.capacity();
            let reserve = capacity - journal.live_limit(record_len).min(capacity);
            let used = (live + reserve).min(capacity);
            return Err(Error::JournalFull {
                needed: record_len,
                used,
                capacity,
            });
        }
        journal.note_record(record_len);
        self.pending_record_bytes += record_len;
        Ok(())
    }

    pub(super) fn begin_put(&mut self, id: LumpId) {
        self.pending += 1;
        *self.putting.entry(id).or_default() += 1;
    }

    pub(super) fn end_put(&mut self, id: LumpId, record_len: u64) {
        self.pending -= 1;
        self.pending_record_bytes -= record_len;
        if let Some(count) = self.putting.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.putting.remove(&id);
            }
        }
    }

    fn delete(
        &mut self,
        request: RequestId,
        id: LumpId,
        durability: Durability,
        mut reply: Reply<DeleteOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        let known = self.storage.index.get(id).is_some() || self.putting.contains_key(&id);
        // While an applied delete of it may not be durable, "it is gone" must wait for the flush.
        if !known && self.commit.all_durable() {
            return reply.send(
                Ok(DeleteOutcome {
                    existed: false,
                    durability,
                }),
                Stage::Index,
            );
        }
        reply.timing.lap(Stage::Index);
        let record = Record::Delete { id }.to_bytes();
        let effect = Effect::Delete { id, reply };
        self.pending += 1;
        self.commit.ready.push_back(Change {
            request,
            durability,
            condition: PutCondition::Always,
            record,
            effect,
        });
    }

    fn delete_range(
        &mut self,
        request: RequestId,
        (start, end): (LumpId, LumpId),
        durability: Durability,
        mut reply: Reply<DeleteRangeOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        if start > end {
            return reply.send(Err(Error::ReversedRange { start, end }), Stage::Index);
        }
        let range = LumpRange {
            start,
            end: Some(end),
        };
        let known = self.storage.index.range(range).next().is_some()
            || self.putting.range(start..end).next().is_some();
        if start == end || (!known && self.commit.all_durable()) {
            return reply.send(
                Ok(DeleteRangeOutcome {
                    deleted: 0,
                    durability,
                }),
                Stage::Index,
            );
        }
        reply.timing.lap(Stage::Index);
        let record = Record::DeleteRange { start, end }.to_bytes();
        let effect = Effect::DeleteRange { start, end, reply };
        self.pending += 1;
        self.commit.ready.push_back(Change {
            request,
            durability,
            condition: PutCondition::Always,
            record,
            effect,
        });
    }

    /// Gives up a change whose record was not written, or failed to be.
    pub(super) fn refuse_change(&mut self, change: Change, error: Error, may_be_on_disk: bool) {
        match &change.effect {
            Effect::Put { id, portion, .. } => {
                // Blocks that a record on the disk may name are never given to another lump.
                if !may_be_on_disk {
                    self.storage.data.free_unused(*portion);
                }
                self.end_put(*id, change.record.len() as u64);
            }
            Effect::Embed { id, .. } => self.end_put(*id, change.record.len() as u64),
            Effect::Group { data, group, .. } => self.end_group(*data, group, may_be_on_disk),
            Effect::Delete { .. } | Effect::DeleteRange { .. } => self.pending -= 1,
            Effect::DeleteOne { group, .. } => self.refuse_group(*group, &error),
        }
        change.refuse(error);
    }

    /// Carries out a change whose record is in the journal at `position`. The answer, unless it
    /// has to wait for others.
    pub(super) fn apply(
        &mut self,
        change: Change,
        position: RingPosition,
        durability: Durability,
    ) -> Option<Answer> {
        let record_len = change.record.len() as u64;
        let answer = match change.effect {
            Effect::Put {
                id,
                portion,
                padding,
                reply,
            } => {
                let entry = Entry::data(position, portion, padding);
                self.apply_put(id, entry, record_len, reply, durability)
            }
            Effect::Embed { id, len, reply } => {
                let entry = Entry::embedded(position, len);
                self.apply_put(id, entry, record_len, reply, durability)
            }
            Effect::Group { data, group, reply } => {
                self.apply_group((data, &group), position, reply, durability)
            }
            Effect::Delete { id, reply } => {
                let old = self.storage.index.remove(id);
                self.release(old);
                self.pending -= 1;
                Answer::Delete(
                    reply,
                    DeleteOutcome {
                        existed: old.is_some(),
                        durability,
                    },
                )
            }
            Effect::DeleteRange { start, end, reply } => {
                let Storage { index, data, .. } = &mut self.storage;
                let deleted = index.remove_range(start, end, |old| {
                    if let Some(portion) = old.portion() {
                        data.defer(portion);
                    }
                });
                self.pending -= 1;
                Answer::DeleteRange(
                    reply,
                    DeleteRangeOutcome {
                        deleted,
                        durability,
                    },
                )
            }
            Effect::DeleteOne { id, group, slot } => {
                let old = self.storage.index.remove(id);
                self.release(old);
                return self.one_deleted(group, slot, old.is_some(), durability);
            }
        };
        Some(answer)
    }

    pub(super) fn apply_put(
        &mut self,
        id: LumpId,
        entry: Entry,
        record_len: u64,
        reply: Reply<PutOutcome>,
        durability: Durability,
    ) -> Answer {
        let old = self.storage.index.insert(id, entry);
        self.release(old);
        self.end_put(id, record_len);
        Answer::Put(
            reply,
            PutOutcome {
                created: old.is_none(),
                durability,
            },
        )
    }

    /// The blocks of a lump that is no more come back when that is durable.
    pub(super) fn release(&mut self, old: Option<Entry>) {
        if let Some(portion) = old.and_then(Entry::portion) {
            self.storage.data.defer(portion);
        }
    }
}
