//! Effect of the changes of a batch on the lumps they name: together with the index, the state that
//! decides a put which must not replace. The decision is made when its record joins the batch.

use std::collections::BTreeMap;

use super::change::Change;
use super::delete::What;
use crate::lump::LumpId;

/// Effect of a batch's changes on the lumps they name.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// True: there is one after the batch.
    lumps: BTreeMap<LumpId, bool>,
    /// `start <= id < end` are gone, unless `lumps` says otherwise.
    ranges: Vec<(LumpId, LumpId)>,
}

impl Overlay {
    pub(super) fn note(&mut self, change: &Change) {
        match change {
            Change::Put(put) => {
                self.lumps.extend(put.lumps().map(|id| (id, true)));
                self.lumps.extend(put.deletes.iter().map(|&id| (id, false)));
            }
            Change::Delete(delete) => match delete.what {
                What::One { id, .. } | What::OneOfMany { id, .. } => {
                    self.lumps.insert(id, false);
                }
                What::Range { start, end, .. } => {
                    for (_, there) in self.lumps.range_mut(start..end) {
                        *there = false;
                    }
                    self.ranges.push((start, end));
                }
            },
        }
    }

    /// State of a lump after the batch; `None`: the batch does not name it.
    pub(super) fn find(&self, id: LumpId) -> Option<bool> {
        let named = self.lumps.get(&id).copied();
        let in_range = |&(start, end): &(LumpId, LumpId)| start <= id && id < end;
        named.or_else(|| self.ranges.iter().any(in_range).then_some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::RequestId;
    use crate::owner::command::TimedReply;
    use crate::owner::command::put::Put;
    use crate::owner::commit::delete::Delete;
    use crate::request::{Durability, PutCondition};

    fn change(what: What) -> Change {
        Change::Delete(Delete {
            request: RequestId(1),
            durability: Durability::Synced,
            record: Vec::new(),
            what,
        })
    }

    fn delete(id: u128) -> Change {
        change(What::One {
            id: LumpId(id),
            reply: TimedReply::new(Box::new(|_, _| {})),
        })
    }

    fn delete_range(start: u128, end: u128) -> Change {
        change(What::Range {
            start: LumpId(start),
            end: LumpId(end),
            reply: TimedReply::new(Box::new(|_, _| {})),
        })
    }

    fn embed(id: u128) -> Change {
        Change::Put(Box::new(Put {
            request: RequestId(1),
            durability: Durability::Synced,
            condition: PutCondition::Always,
            data: None,
            embedded: Some((LumpId(id), 0)),
            deletes: Vec::new(),
            records: Vec::new(),
            reply: TimedReply::new(Box::new(|_, _| {})),
        }))
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
        let expected = [Some(false), Some(false), Some(false), None];
        assert_eq!(found(&overlay), expected);
        overlay.note(&embed(3));
        let expected = [Some(false), Some(false), Some(true), None];
        assert_eq!(found(&overlay), expected);
    }
}
