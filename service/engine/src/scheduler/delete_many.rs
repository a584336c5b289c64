//! Deleting many lumps by one request: a record each, side by side in the journal.
//!
//! The records go into one batch if they fit. A batch becomes visible by the write of one unit, so
//! they then happen together, for readers and for a crash. When they do not fit (the batch has a
//! limit, the ring has an end) they go into several, each of which happens or does not.

use std::collections::HashMap;

use super::Owner;
use super::change::{Answer, Change, Effect};
use super::message::{Reply, Stage};
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::record::Record;
use crate::lump::LumpId;
use crate::request::{DeleteManyOutcome, Durability, PutCondition};

/// A request whose deletes are not all applied.
struct Group {
    outcome: DeleteManyOutcome,
    /// Deletes to come.
    left: usize,
    /// The weakest durability so far.
    reached: Option<Durability>,
    reply: Reply<DeleteManyOutcome>,
}

/// The requests on their way.
#[derive(Default)]
pub(super) struct Groups {
    groups: HashMap<u64, Group>,
    next: u64,
}

impl Owner {
    pub(super) fn delete_many(
        &mut self,
        request: RequestId,
        ids: &[LumpId],
        durability: Durability,
        mut reply: Reply<DeleteManyOutcome>,
    ) {
        reply.timing.lap(Stage::Sched);
        let all_durable = self.commit.all_durable();
        let group = self.groups.next;
        let mut left = 0;
        for (slot, &id) in ids.iter().enumerate() {
            let known = self.storage.index.get(id).is_some() || self.putting.contains_key(&id);
            // As for a single one: "it is gone" must be durable.
            if !known && all_durable {
                continue;
            }
            left += 1;
            self.commit.ready.push_back(Change {
                request,
                durability,
                condition: PutCondition::Always,
                record: Record::Delete { id }.to_bytes(),
                effect: Effect::DeleteOne { id, group, slot },
            });
        }
        let outcome = DeleteManyOutcome {
            existed: vec![false; ids.len()],
            durability,
        };
        if left == 0 {
            return reply.send(Ok(outcome), Stage::Index);
        }
        reply.timing.lap(Stage::Index);
        self.groups.next += 1;
        self.pending += 1;
        self.groups.groups.insert(
            group,
            Group {
                outcome,
                left,
                reached: None,
                reply,
            },
        );
    }

    /// One delete of a group is applied; the group's answer if it was the last.
    pub(super) fn one_deleted(
        &mut self,
        group: u64,
        slot: usize,
        existed: bool,
        durability: Durability,
    ) -> Option<Answer> {
        // One that was refused has been answered.
        let found = self.groups.groups.get_mut(&group)?;
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
        let mut done = self.groups.groups.remove(&group)?;
        self.pending -= 1;
        done.outcome.durability = done.reached.unwrap_or(durability);
        Some(Answer::DeleteMany(done.reply, done.outcome))
    }

    /// A delete of the group cannot be carried out: the whole request is told so, once, and none of
    /// its deletes that still wait is carried out after that.
    pub(super) fn refuse_group(&mut self, group: u64, error: &Error) {
        // Only the first refusal finds the group, so the waiting changes are looked through once.
        if let Some(Group { reply, .. }) = self.groups.groups.remove(&group) {
            let of_group = |change: &Change| matches!(change.effect, Effect::DeleteOne { group: of, .. } if of == group);
            self.commit.ready.retain(|change| !of_group(change));
            self.pending -= 1;
            reply.send(Err(error.clone()), Stage::Journal);
        }
    }
}
