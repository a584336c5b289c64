//! Changes whose records are ready for the journal, and the answers to those that are applied.

use super::command::{Reply, Timing};
use super::delete::{Delete, Many};
use super::put::Put;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::request::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, PutOutcome,
};

/// A change whose record may go into the next batch.
pub(super) enum Change {
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

/// The answer to an applied change, to be [sent](Ctx::send_answers) when its blocks are free again.
pub(super) enum Answer {
    Put(Reply<PutOutcome>, PutOutcome),
    Delete(Reply<DeleteOutcome>, DeleteOutcome),
    DeleteRange(Reply<DeleteRangeOutcome>, DeleteRangeOutcome),
    DeleteMany(Reply<DeleteManyOutcome>, DeleteManyOutcome),
}

impl Answer {
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
