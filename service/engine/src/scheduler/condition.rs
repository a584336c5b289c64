//! Puts that are carried out only if there is no such lump: decided when the record would join
//! the journal.
//!
//! One batch is in flight at a time, so when the next one is put together the index holds exactly
//! what the journal says, and all of it is durable. The index and the changes that are already in
//! the new batch ([`Overlay`]) together are the state that the put would meet. A put that loses
//! leaves no record: its blocks are free again and nothing of it survives a crash.

use std::collections::BTreeMap;

use super::Owner;
use super::change::{Change, Effect};
use crate::error::Error;
use crate::lump::LumpId;
use crate::request::PutCondition;
use crate::storage::journal::writer::Batch;
use crate::units::RingPosition;

/// Bytes after which a batch takes no more records.
const BATCH_LIMIT: usize = 1024 * 1024;

/// What the changes of a batch do to the lumps they name.
#[derive(Debug, Default)]
struct Overlay {
    /// True: there is one after the batch.
    lumps: BTreeMap<LumpId, bool>,
    /// `start <= id < end` are gone, unless `lumps` says otherwise.
    ranges: Vec<(LumpId, LumpId)>,
}

impl Overlay {
    fn note(&mut self, effect: &Effect) {
        match *effect {
            Effect::Put { id, .. } | Effect::Embed { id, .. } => {
                self.lumps.insert(id, true);
            }
            Effect::Group {
                ref data,
                ref group,
                ..
            } => {
                let data = data.as_ref().map(|data| data.id);
                for id in data.into_iter().chain([group.embedded.0]) {
                    self.lumps.insert(id, true);
                }
                for &id in &group.deletes {
                    self.lumps.insert(id, false);
                }
            }
            Effect::Delete { id, .. } | Effect::DeleteOne { id, .. } => {
                self.lumps.insert(id, false);
            }
            Effect::DeleteRange { start, end, .. } => {
                for (_, there) in self.lumps.range_mut(start..end) {
                    *there = false;
                }
                self.ranges.push((start, end));
            }
        }
    }

    /// What the batch makes of a lump; `None`: it says nothing about it.
    fn find(&self, id: LumpId) -> Option<bool> {
        let named = self.lumps.get(&id).copied();
        let in_range = |&(start, end): &(LumpId, LumpId)| start <= id && id < end;
        named.or_else(|| self.ranges.iter().any(in_range).then_some(false))
    }
}

impl Change {
    /// The lump that must not be there.
    fn absent(&self) -> Option<LumpId> {
        match self.effect {
            Effect::Put { id, .. } | Effect::Embed { id, .. }
                if self.condition == PutCondition::IfAbsent =>
            {
                Some(id)
            }
            _ => None,
        }
    }
}

impl Owner {
    /// Answers the puts at the front of the ready changes that have lost already, so that they
    /// do not wait for room in the journal. To be called between batches.
    pub(super) fn refuse_beaten_first(&mut self) {
        while let Some(change) = self.commit.ready.front()
            && let Some(id) = change.absent()
            && self.storage.index.get(id).is_some()
            && let Some(change) = self.commit.ready.pop_front()
        {
            self.beat(change);
        }
    }

    /// Moves changes that are ready into the batch, in order, while there is room. Beside them:
    /// the puts that one of them has beaten.
    pub(super) fn take_ready(
        &mut self,
        batch: &mut Batch,
    ) -> (Vec<(Change, RingPosition)>, Vec<Change>) {
        let (mut taken, mut beaten) = (Vec::new(), Vec::new());
        let keep = self.kept_room();
        let conditional = self.commit.ready.iter().any(|one| one.absent().is_some());
        let mut overlay = conditional.then(Overlay::default);
        while batch.len() < BATCH_LIMIT
            && let Some(change) = self.commit.ready.pop_front()
        {
            if let (Some(id), Some(overlay)) = (change.absent(), &overlay) {
                match overlay.find(id) {
                    Some(true) => {
                        beaten.push(change);
                        continue;
                    }
                    None if self.storage.index.get(id).is_some() => {
                        self.beat(change);
                        continue;
                    }
                    Some(false) | None => {}
                }
            }
            let Some(position) = batch.append(&self.storage.journal, &change.record, keep) else {
                self.commit.ready.push_front(change);
                break;
            };
            if let Some(overlay) = &mut overlay {
                overlay.note(&change.effect);
            }
            taken.push((change, position));
        }
        (taken, beaten)
    }

    /// Tells a put that it has lost.
    pub(super) fn beat(&mut self, change: Change) {
        if let Some(id) = change.absent() {
            self.refuse_change(change, Error::AlreadyExists { id }, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::message::Reply;

    fn delete(id: u128) -> Effect {
        Effect::Delete {
            id: LumpId(id),
            reply: Reply::new(Box::new(|_, _| {})),
        }
    }

    fn embed(id: u128) -> Effect {
        Effect::Embed {
            id: LumpId(id),
            len: 0,
            reply: Reply::new(Box::new(|_, _| {})),
        }
    }

    fn delete_range(start: u128, end: u128) -> Effect {
        Effect::DeleteRange {
            start: LumpId(start),
            end: LumpId(end),
            reply: Reply::new(Box::new(|_, _| {})),
        }
    }

    #[test]
    fn the_last_change_of_a_batch_decides() {
        let mut overlay = Overlay::default();
        let found = |overlay: &Overlay| [1, 2, 3, 4].map(|id| overlay.find(LumpId(id)));
        assert_eq!(found(&overlay), [None; 4]);
        overlay.note(&embed(1));
        overlay.note(&delete(2));
        assert_eq!(found(&overlay), [Some(true), Some(false), None, None]);
        overlay.note(&delete_range(1, 4));
        assert_eq!(
            found(&overlay),
            [Some(false), Some(false), Some(false), None]
        );
        overlay.note(&embed(3));
        assert_eq!(
            found(&overlay),
            [Some(false), Some(false), Some(true), None]
        );
    }
}
