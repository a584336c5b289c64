//! The state of the lumps while records are replayed.

use super::index::{Batched, Index, IndexEntry};
use super::outside::Outside;
use super::replay::Placed;
use crate::format::Geometry;
use crate::format::mark::Mark;
use crate::format::record::Record;

/// The lumps by the records so far.
pub(crate) struct Lumps {
    /// Without the last changes, until it is [settled](Self::settled).
    pub(crate) index: Index,
    changes: Batched,
    pub(crate) outside: Outside,
    /// Records that put a lump.
    pub(super) puts: u64,
    pub(super) mark_bytes: u64,
}

impl Lumps {
    /// `mark_bytes`: of the records before.
    pub(crate) fn new(index: Index, mark_bytes: u64) -> Self {
        Self {
            index,
            changes: Batched::default(),
            outside: Outside::default(),
            puts: 0,
            mark_bytes,
        }
    }

    /// Applies a record.
    pub(crate) fn apply(&mut self, geometry: &Geometry, placed: &Placed<'_>) {
        let &Placed {
            position,
            record,
            foreign,
            ..
        } = placed;
        let mut set = |id, entry| self.changes.set(&mut self.index, id, entry);
        match record {
            Record::EndOfRecords | Record::GoToFront => {}
            Record::Put { id, portion } => {
                self.puts += 1;
                let outside = self.outside.put(geometry, id, portion, position);
                let entry = IndexEntry::data(position, portion, None).marked(foreign);
                set(id, (!outside).then_some(entry));
            }
            Record::Embed { id, data } => {
                self.puts += 1;
                let len = u16::try_from(data.as_slice().len()).unwrap_or(u16::MAX);
                self.outside.forget(id);
                set(id, Some(IndexEntry::embedded(position, len)));
            }
            Record::Delete { id } => {
                self.outside.forget(id);
                set(id, None);
            }
            Record::DeleteRange { start, end } => {
                if Mark::of(&record).is_some() {
                    self.mark_bytes += record.encoded_len() as u64;
                }
                self.outside.forget_range(start, end);
                self.changes.remove_range(&mut self.index, start, end);
            }
        }
    }

    /// The state with all changes.
    pub(crate) fn settled(mut self) -> Self {
        std::mem::take(&mut self.changes).apply(&mut self.index);
        self
    }
}
