//! Deletes: of a lump, of a range, of many lumps by one request.
//!
//! The records of a delete of many go into one batch if they fit. A batch becomes visible by the
//! write of one unit, so they then happen together, for readers and for a crash. When they do not
//! fit (the batch has a limit, the ring has an end) they go into several, each of which happens or
//! does not.

use super::command::{Stage, TimedReply};
use super::commit::Commit;
use super::commit::change::Change;
use super::commit::delete::{Delete, What};
use super::ctx::Ctx;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::record::Record;
use crate::lump::LumpId;
use crate::request::{DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, LumpRange};

/// Takes up the delete of one lump.
pub(super) fn one(
    ctx: &mut Ctx,
    commit: &mut Commit,
    (request, durability): (RequestId, Durability),
    id: LumpId,
    mut reply: TimedReply<DeleteOutcome>,
) {
    reply.timing.lap(Stage::Sched);
    if is_gone(ctx, commit, id) {
        let outcome = DeleteOutcome {
            existed: false,
            durability,
        };
        return reply.send(Ok(outcome), Stage::Index);
    }
    reply.timing.lap(Stage::Index);
    ctx.unfinished.begin();
    commit.add(Change::Delete(Delete {
        request,
        durability,
        record: Record::Delete { id }.to_bytes(),
        what: What::One { id, reply },
    }));
}

/// True: there is no such lump, and that is durable. While an applied delete of it may not be,
/// "it is gone" must wait for the flush.
fn is_gone(ctx: &Ctx, commit: &Commit, id: LumpId) -> bool {
    let known = ctx.storage.index.get(id).is_some() || ctx.unfinished.puts(id);
    !known && commit.all_durable()
}

/// Takes up the delete of a range.
pub(super) fn range(
    ctx: &mut Ctx,
    commit: &mut Commit,
    (request, durability): (RequestId, Durability),
    (start, end): (LumpId, LumpId),
    mut reply: TimedReply<DeleteRangeOutcome>,
) {
    reply.timing.lap(Stage::Sched);
    if start > end {
        return reply.send(Err(Error::ReversedRange { start, end }), Stage::Index);
    }
    let range = LumpRange {
        start,
        end: Some(end),
    };
    let known =
        ctx.storage.index.range(range).next().is_some() || ctx.unfinished.puts_any(start, end);
    if start == end || (!known && commit.all_durable()) {
        let outcome = DeleteRangeOutcome {
            deleted: 0,
            durability,
        };
        return reply.send(Ok(outcome), Stage::Index);
    }
    reply.timing.lap(Stage::Index);
    ctx.unfinished.begin();
    commit.add(Change::Delete(Delete {
        request,
        durability,
        record: Record::DeleteRange { start, end }.to_bytes(),
        what: What::Range { start, end, reply },
    }));
}

/// Takes up the delete of many lumps.
pub(super) fn many(
    ctx: &mut Ctx,
    commit: &mut Commit,
    (request, durability): (RequestId, Durability),
    ids: &[LumpId],
    mut reply: TimedReply<DeleteManyOutcome>,
) {
    reply.timing.lap(Stage::Sched);
    let key = commit.next_many();
    let mut left = 0;
    for (slot, &id) in ids.iter().enumerate() {
        if is_gone(ctx, commit, id) {
            continue;
        }
        left += 1;
        commit.add(Change::Delete(Delete {
            request,
            durability,
            record: Record::Delete { id }.to_bytes(),
            what: What::OneOfMany { id, key, slot },
        }));
    }
    let outcome = DeleteManyOutcome {
        existed: vec![false; ids.len()],
        durability,
    };
    if left == 0 {
        return reply.send(Ok(outcome), Stage::Index);
    }
    reply.timing.lap(Stage::Index);
    ctx.unfinished.begin();
    commit.begin_many(outcome, left, reply);
}
