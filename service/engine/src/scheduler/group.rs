//! Changes that are one: a put, an embedded put and deletes whose records are appended as one
//! piece of the journal. A batch becomes visible by one write, and a piece is never divided among
//! batches, so all of it survives a crash or nothing.

use super::Owner;
use super::change::{Answer, Change, Effect, PendingPut};
use super::message::Reply;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN, Record};
use crate::lump::LumpId;
use crate::payload::SealedLump;
use crate::request::{Durability, PutCondition, PutOutcome};
use crate::storage::index::Entry;
use crate::units::RingPosition;

/// The records of a group behind that of its data, and what they say.
pub(crate) struct Group {
    /// Encoded, one behind the other: the embedded lump, the deletes.
    pub(crate) records: Vec<u8>,
    /// The embedded lump and its bytes.
    pub(crate) embedded: (LumpId, u16),
    pub(crate) deletes: Vec<LumpId>,
}

impl Group {
    /// Bytes of the record that the embedded lump leaves.
    pub(super) fn embedded_len(&self) -> u64 {
        EMBED_PREFIX_LEN as u64 + u64::from(self.embedded.1)
    }
}

/// The lump of a group that lies in the data region.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) id: LumpId,
    pub(super) portion: Portion,
    pub(super) padding: Option<u16>,
}

impl Owner {
    /// Accepts a group.
    pub(super) fn put_group(
        &mut self,
        request: RequestId,
        (data, group): (Option<(LumpId, SealedLump)>, Group),
        durability: Durability,
        reply: Reply<PutOutcome>,
    ) {
        let embedded = group.embedded.0;
        // Of the whole piece, so that the reserve knows how long it is.
        if let Err(error) = self.reserve_group(data.is_some(), &group) {
            return reply.send(Err(error), super::Stage::Index);
        }
        self.begin_put(embedded);
        let Some((id, lump)) = data else {
            return self.group_ready((request, durability), None, group, reply);
        };
        let put = PendingPut::new(request, id, durability, reply);
        self.put_data_of(put, lump, Some(group));
    }

    fn reserve_group(&mut self, has_data: bool, group: &Group) -> Result<(), Error> {
        let data = if has_data { PUT_LEN as u64 } else { 0 };
        let embedded = group.embedded_len();
        self.reserve_record(embedded)?;
        let whole = data + group.records.len() as u64;
        self.storage.journal.note_record(whole);
        Ok(())
    }

    /// The data of a group, if it has any, is on stable storage: its records may be written.
    pub(super) fn group_ready(
        &mut self,
        (request, durability): (RequestId, Durability),
        data: Option<Placed>,
        group: Group,
        reply: Reply<PutOutcome>,
    ) {
        let mut record = data.map_or_else(Vec::new, |Placed { id, portion, .. }| {
            Record::Put { id, portion }.to_bytes()
        });
        record.extend_from_slice(&group.records);
        self.commit.ready.push_back(Change {
            request,
            durability,
            condition: PutCondition::Always,
            record,
            effect: Effect::Group { data, group, reply },
        });
    }

    /// Gives up a group: nothing of it was written, or nobody knows.
    pub(super) fn end_group(&mut self, data: Option<Placed>, group: &Group, may_be_on_disk: bool) {
        if let Some(Placed { id, portion, .. }) = data {
            if !may_be_on_disk {
                self.storage.data.free_unused(portion);
            }
            self.end_put(id, PUT_LEN as u64);
        }
        self.end_put(group.embedded.0, group.embedded_len());
    }

    /// Carries out a group whose records begin at `position`.
    pub(super) fn apply_group(
        &mut self,
        (data, group): (Option<Placed>, &Group),
        position: RingPosition,
        reply: Reply<PutOutcome>,
        durability: Durability,
    ) -> Answer {
        let mut at = position;
        if let Some(Placed {
            id,
            portion,
            padding,
        }) = data
        {
            let old = self
                .storage
                .index
                .insert(id, Entry::data(at, portion, padding));
            self.release(old);
            self.end_put(id, PUT_LEN as u64);
            at.0 += PUT_LEN as u64;
        }
        let (id, len) = group.embedded;
        let entry = Entry::embedded(at, len);
        let answer = self.apply_put(id, entry, group.embedded_len(), reply, durability);
        for &id in &group.deletes {
            let old = self.storage.index.remove(id);
            self.release(old);
        }
        answer
    }
}
