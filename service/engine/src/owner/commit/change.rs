//! Changes whose records are ready for the journal, and the answers to those that are applied.

use super::delete::{Delete, Many};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::record::{PUT_LEN, Record};
use crate::lump::LumpId;
use crate::owner::command::put::{Put, Refused, embedded_len};
use crate::owner::command::{Stage, TimedReply, Timing};
use crate::owner::ctx::Ctx;
use crate::request::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, Placement, PutOutcome,
};
use crate::storage::index::IndexEntry;
use crate::units::RingPosition;

/// A change whose record may go into the next batch.
pub(in crate::owner) enum Change {
    Put(Box<Put>),
    Delete(Delete),
}

impl Change {
    pub(super) fn request(&self) -> RequestId {
        match self {
            Self::Put(put) => put.request,
            Self::Delete(delete) => delete.request,
        }
    }

    pub(super) fn durability(&self) -> Durability {
        match self {
            Self::Put(put) => put.durability,
            Self::Delete(delete) => delete.durability,
        }
    }

    /// Bytes of its records in the journal.
    pub(super) fn record(&self) -> &[u8] {
        match self {
            Self::Put(put) => &put.records,
            Self::Delete(delete) => &delete.record,
        }
    }

    /// The clock of its request, which several deletes of one request share.
    pub(super) fn timing<'a>(&'a mut self, many: &'a mut Many) -> Option<&'a mut Timing> {
        match self {
            Self::Put(put) => Some(&mut put.reply.timing),
            Self::Delete(delete) => delete.timing(many),
        }
    }

    /// Tells who waits for it of an error, though it may still come about.
    pub(super) fn answer_early(&mut self, many: &mut Many, error: &Error) {
        match self {
            Self::Put(put) => put.reply.answer_early(error),
            Self::Delete(delete) => delete.answer_early(many, error),
        }
    }

    /// True: it makes room.
    pub(super) fn is_delete(&self) -> bool {
        matches!(self, Self::Delete(_))
    }
}

/// The answer to an applied change, to be [sent](super::Commit::send_answers) when its blocks are
/// free again.
pub(super) enum ChangeAnswer {
    Put(TimedReply<PutOutcome>, PutOutcome),
    Delete(TimedReply<DeleteOutcome>, DeleteOutcome),
    DeleteRange(TimedReply<DeleteRangeOutcome>, DeleteRangeOutcome),
    DeleteMany(TimedReply<DeleteManyOutcome>, DeleteManyOutcome),
}

impl ChangeAnswer {
    pub(super) fn timing(&mut self) -> &mut Timing {
        match self {
            Self::Put(reply, _) => &mut reply.timing,
            Self::Delete(reply, _) => &mut reply.timing,
            Self::DeleteRange(reply, _) => &mut reply.timing,
            Self::DeleteMany(reply, _) => &mut reply.timing,
        }
    }

    pub(super) fn send(self) {
        match self {
            Self::Put(reply, outcome) => reply.answer(Ok(outcome)),
            Self::Delete(reply, outcome) => reply.answer(Ok(outcome)),
            Self::DeleteRange(reply, outcome) => reply.answer(Ok(outcome)),
            Self::DeleteMany(reply, outcome) => reply.answer(Ok(outcome)),
        }
    }
}

impl Put {
    /// The data is on stable storage: its record may be written.
    pub(super) fn recorded(mut self: Box<Self>) -> Change {
        if let Some(data) = &self.data
            && let Some(portion) = data.portion
        {
            let id = data.id;
            let mut records = Record::Put { id, portion }.to_bytes();
            records.extend_from_slice(&self.records);
            self.records = records;
        }
        Change::Put(self)
    }

    /// Carries it out: its records stand in the journal at `position`, or will follow there if they
    /// are not `recorded`.
    pub(super) fn apply(
        self,
        ctx: &mut Ctx,
        (position, recorded): (RingPosition, bool),
        durability: Durability,
    ) -> ChangeAnswer {
        let (mut at, mut created) = (position, false);
        if let Some(data) = &self.data
            && let Some(portion) = data.portion
        {
            let entry = IndexEntry::data(at, portion, data.padding);
            created = insert(ctx, data.id, entry, PUT_LEN as u64);
            at.0 += if recorded { PUT_LEN as u64 } else { 0 };
        }
        if let Some((id, len)) = self.embedded {
            created = insert(ctx, id, IndexEntry::embedded(at, len), embedded_len(len));
        }
        for &id in &self.deletes {
            let old = ctx.storage.index.remove(id);
            ctx.release(old);
        }
        let placement = match self.data {
            Some(_) => Placement::Data,
            None => Placement::Embedded,
        };
        let outcome = PutOutcome {
            created,
            durability,
            placement,
        };
        ChangeAnswer::Put(self.reply, outcome)
    }

    /// Gives it up after it was accepted.
    pub(in crate::owner) fn refuse(
        self,
        ctx: &mut Ctx,
        error: Error,
        stage: Stage,
        may_be_on_disk: bool,
    ) {
        if let Some(data) = &self.data {
            for refused in Refused::all(data.refused.as_deref()) {
                ctx.storage.data.free_unused(refused.portion);
            }
            // Blocks that a record on the disk may name are never given to another lump.
            if let (Some(portion), false) = (data.portion, may_be_on_disk) {
                ctx.storage.data.free_unused(portion);
            }
            ctx.unfinished.end_put(data.id, PUT_LEN as u64);
        }
        if let Some((id, len)) = self.embedded {
            ctx.unfinished.end_put(id, embedded_len(len));
        }
        self.reply.send(Err(error), stage);
    }
}

/// True: the lump was not there before.
fn insert(ctx: &mut Ctx, id: LumpId, entry: IndexEntry, record_len: u64) -> bool {
    let old = ctx.storage.index.insert(id, entry);
    ctx.release(old);
    ctx.unfinished.end_put(id, record_len);
    old.is_none()
}
