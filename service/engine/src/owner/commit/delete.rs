//! Deletes that are ready for the journal, and those of one request that are its parts.

use std::collections::HashMap;

use super::change::ChangeAnswer;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::lump::LumpId;
use crate::owner::command::{Stage, TimedReply, Timing};
use crate::owner::ctx::Ctx;
use crate::request::{DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability};
use crate::storage::Storage;

/// A delete whose record is ready for the journal.
pub(in crate::owner) struct Delete {
    pub(in crate::owner) request: RequestId,
    pub(in crate::owner) durability: Durability,
    /// Its bytes in the journal.
    pub(in crate::owner) record: Vec<u8>,
    pub(in crate::owner) what: What,
}

/// Lumps that a delete removes, and the reply.
pub(in crate::owner) enum What {
    One {
        id: LumpId,
        reply: TimedReply<DeleteOutcome>,
    },
    Range {
        start: LumpId,
        end: LumpId,
        reply: TimedReply<DeleteRangeOutcome>,
    },
    OneOfMany {
        id: LumpId,
        /// Key of the request in [`Many`].
        key: u64,
        /// Its place among the ids asked for.
        slot: usize,
    },
}

/// A delete of many that is not applied as a whole.
struct ManyRequest {
    outcome: DeleteManyOutcome,
    /// Deletes that are not applied yet.
    left: usize,
    /// The weakest durability so far.
    reached: Option<Durability>,
    reply: TimedReply<DeleteManyOutcome>,
}

/// Deletes of many on their way.
#[derive(Default)]
pub(super) struct Many {
    requests: HashMap<u64, ManyRequest>,
    next: u64,
}

impl Many {
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn begin(
        &mut self,
        outcome: DeleteManyOutcome,
        left: usize,
        reply: TimedReply<DeleteManyOutcome>,
    ) {
        let request = ManyRequest {
            outcome,
            left,
            reached: None,
            reply,
        };
        self.requests.insert(self.next, request);
        self.next += 1;
    }

    /// One delete is applied. The answer to the request, if it was the last.
    fn one_deleted(
        &mut self,
        ctx: &mut Ctx,
        (key, slot): (u64, usize),
        existed: bool,
        durability: Durability,
    ) -> Option<ChangeAnswer> {
        // A request that was refused has been answered.
        let found = self.requests.get_mut(&key)?;
        if let Some(outcome) = found.outcome.existed.get_mut(slot) {
            *outcome = existed;
        }
        if found.reached != Some(Durability::Journaled) {
            found.reached = Some(durability);
        }
        found.left -= 1;
        if found.left > 0 {
            return None;
        }
        let mut done = self.requests.remove(&key)?;
        ctx.unfinished.end();
        done.outcome.durability = done.reached.unwrap_or(durability);
        Some(ChangeAnswer::DeleteMany(done.reply, done.outcome))
    }
}

impl Delete {
    /// The clock of its request; `None`: that has been answered.
    pub(super) fn timing<'a>(&'a mut self, many: &'a mut Many) -> Option<&'a mut Timing> {
        match &mut self.what {
            What::One { reply, .. } => Some(&mut reply.timing),
            What::Range { reply, .. } => Some(&mut reply.timing),
            What::OneOfMany { key, .. } => {
                let request = many.requests.get_mut(key)?;
                Some(&mut request.reply.timing)
            }
        }
    }

    /// The one lump it names.
    pub(super) fn lump(&self) -> Option<LumpId> {
        match self.what {
            What::One { id, .. } | What::OneOfMany { id, .. } => Some(id),
            What::Range { .. } => None,
        }
    }

    /// True: it belongs to this delete of many.
    pub(super) fn is_of(&self, request: u64) -> bool {
        matches!(self.what, What::OneOfMany { key, .. } if key == request)
    }

    /// Carries it out: its record is in the journal. The answer, unless it has to wait for others.
    pub(super) fn apply(
        self,
        ctx: &mut Ctx,
        many: &mut Many,
        durability: Durability,
    ) -> Option<ChangeAnswer> {
        match self.what {
            What::One { id, reply } => {
                let existed = remove(ctx, id);
                ctx.unfinished.end();
                let outcome = DeleteOutcome {
                    existed,
                    durability,
                };
                Some(ChangeAnswer::Delete(reply, outcome))
            }
            What::Range { start, end, reply } => {
                let Storage { index, data, .. } = &mut ctx.storage;
                let deleted = index.remove_range(start, end, |old| {
                    if let Some(portion) = old.portion() {
                        data.defer(portion);
                    }
                });
                ctx.unfinished.end();
                let outcome = DeleteRangeOutcome {
                    deleted,
                    durability,
                };
                Some(ChangeAnswer::DeleteRange(reply, outcome))
            }
            What::OneOfMany { id, key, slot } => {
                let existed = remove(ctx, id);
                many.one_deleted(ctx, (key, slot), existed, durability)
            }
        }
    }

    /// Tells who waits for it of an error, though it may still come about.
    pub(super) fn answer_early(&mut self, many: &mut Many, error: &Error) {
        match &mut self.what {
            What::One { reply, .. } => reply.answer_early(error),
            What::Range { reply, .. } => reply.answer_early(error),
            What::OneOfMany { key, .. } => {
                if let Some(request) = many.requests.get_mut(key) {
                    request.reply.answer_early(error);
                }
            }
        }
    }

    /// Gives it up. One of many: the whole request is told so, once; its key is returned then,
    /// because its deletes that still wait must not be carried out.
    pub(super) fn refuse(self, ctx: &mut Ctx, many: &mut Many, error: Error) -> Option<u64> {
        match self.what {
            What::One { reply, .. } => {
                ctx.unfinished.end();
                reply.send(Err(error), Stage::Journal);
                None
            }
            What::Range { reply, .. } => {
                ctx.unfinished.end();
                reply.send(Err(error), Stage::Journal);
                None
            }
            What::OneOfMany { key, .. } => {
                // Only the first refusal finds the request.
                let request = many.requests.remove(&key)?;
                ctx.unfinished.end();
                request.reply.send(Err(error), Stage::Journal);
                Some(key)
            }
        }
    }
}

/// True: the lump was there.
fn remove(ctx: &mut Ctx, id: LumpId) -> bool {
    let old = ctx.storage.index.remove(id);
    ctx.release(old);
    old.is_some()
}
