//! A change of the store on its way from its arrival to its answer.

use super::group::{Group, Placed};
use super::message::{Reply, Stage};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::lump::LumpId;
use crate::request::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, PutCondition, PutOutcome,
};
use crate::units::BlockCount;

/// A put of a data lump whose record is not ready yet.
pub(crate) struct PendingPut {
    pub(super) request: RequestId,
    pub(super) id: LumpId,
    pub(super) durability: Durability,
    pub(super) condition: PutCondition,
    pub(super) blocks: BlockCount,
    /// Value of the padding-length field.
    pub(super) padding: Option<u16>,
    /// Its blocks, once it has got them.
    pub(super) portion: Option<Portion>,
    pub(super) reply: Reply<PutOutcome>,
    /// What its record is one change with.
    pub(super) group: Option<Group>,
}

impl PendingPut {
    /// One that has no blocks yet.
    pub(super) fn new(
        request: RequestId,
        id: LumpId,
        durability: Durability,
        reply: Reply<PutOutcome>,
    ) -> Self {
        Self {
            request,
            id,
            durability,
            condition: PutCondition::Always,
            blocks: BlockCount(0),
            padding: None,
            portion: None,
            reply,
            group: None,
        }
    }
}

/// A change whose record may go into the next batch.
pub(super) struct Change {
    pub(super) request: RequestId,
    pub(super) durability: Durability,
    /// Of a put.
    pub(super) condition: PutCondition,
    /// The encoded record.
    pub(super) record: Vec<u8>,
    pub(super) effect: Effect,
}

/// What a change does to the index, and who is told.
pub(super) enum Effect {
    Put {
        id: LumpId,
        portion: Portion,
        padding: Option<u16>,
        reply: Reply<PutOutcome>,
    },
    Embed {
        id: LumpId,
        len: u16,
        reply: Reply<PutOutcome>,
    },
    /// See [`super::group`].
    Group {
        data: Option<Placed>,
        group: Group,
        reply: Reply<PutOutcome>,
    },
    Delete {
        id: LumpId,
        reply: Reply<DeleteOutcome>,
    },
    DeleteRange {
        start: LumpId,
        end: LumpId,
        reply: Reply<DeleteRangeOutcome>,
    },
    /// One of many; see [`super::delete_many`].
    DeleteOne {
        id: LumpId,
        group: u64,
        /// Its place among the ids asked for.
        slot: usize,
    },
}

impl Change {
    /// True: it makes room.
    pub(super) fn is_delete(&self) -> bool {
        match self.effect {
            Effect::Put { .. } | Effect::Embed { .. } | Effect::Group { .. } => false,
            Effect::Delete { .. } | Effect::DeleteRange { .. } | Effect::DeleteOne { .. } => true,
        }
    }

    /// Answers with an error instead of doing it.
    pub(super) fn refuse(self, error: Error) {
        match self.effect {
            Effect::Put { reply, .. }
            | Effect::Embed { reply, .. }
            | Effect::Group { reply, .. } => {
                reply.send(Err(error), Stage::Journal);
            }
            Effect::Delete { reply, .. } => reply.send(Err(error), Stage::Journal),
            Effect::DeleteRange { reply, .. } => reply.send(Err(error), Stage::Journal),
            // Its group is told by whoever refuses it.
            Effect::DeleteOne { .. } => {}
        }
    }
}

/// The answer to an applied change, to be sent when its blocks are free again.
pub(super) enum Answer {
    Put(Reply<PutOutcome>, PutOutcome),
    Delete(Reply<DeleteOutcome>, DeleteOutcome),
    DeleteRange(Reply<DeleteRangeOutcome>, DeleteRangeOutcome),
    DeleteMany(Reply<DeleteManyOutcome>, DeleteManyOutcome),
}

impl Answer {
    pub(super) fn send(self) {
        match self {
            Self::Put(reply, outcome) => reply.send(Ok(outcome), Stage::Journal),
            Self::Delete(reply, outcome) => reply.send(Ok(outcome), Stage::Journal),
            Self::DeleteRange(reply, outcome) => reply.send(Ok(outcome), Stage::Journal),
            Self::DeleteMany(reply, outcome) => reply.send(Ok(outcome), Stage::Journal),
        }
    }
}
