//! The state of the lumps while records are replayed.

use super::index::{Batched, IndexEntry};
use super::outside::Outside;
use crate::format::Geometry;
use crate::format::mark::Mark;
use crate::format::record::Record;
use crate::units::RingPosition;

/// The lumps by the records so far.
pub(super) struct Lumps {
    pub(super) index: Batched,
    pub(super) outside: Outside,
    pub(super) puts: u64,
    pub(super) mark_bytes: u64,
}

impl Lumps {
    /// Applies the record at a position; `foreign`: a mark calls its lump so.
    pub(super) fn apply(
        &mut self,
        geometry: &Geometry,
        position: RingPosition,
        record: &Record<'_>,
        foreign: bool,
    ) {
        match *record {
            Record::EndOfRecords | Record::GoToFront => {}
            Record::Put { id, portion } => {
                self.puts += 1;
                let outside = self.outside.put(geometry, id, portion, position);
                let entry = IndexEntry::data(position, portion, None).marked(foreign);
                self.index.set(id, (!outside).then_some(entry));
            }
            Record::Embed { id, data } => {
                self.puts += 1;
                let len = u16::try_from(data.as_slice().len()).unwrap_or(u16::MAX);
                self.outside.forget(id);
                self.index
                    .set(id, Some(IndexEntry::embedded(position, len)));
            }
            Record::Delete { id } => {
                self.outside.forget(id);
                self.index.set(id, None);
            }
            Record::DeleteRange { start, end } => {
                if Mark::of(record).is_some() {
                    self.mark_bytes += record.encoded_len() as u64;
                }
                self.outside.forget_range(start, end);
                self.index.remove_range(start, end);
            }
        }
    }
}
