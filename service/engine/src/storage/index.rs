//! The ordered map from lump id to the place of its newest version: the only thing that grows
//! with the number of lumps. 16 bytes an entry beside the id. Memory only; owner thread only.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::format::Portion;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN};
use crate::lump::LumpId;
use crate::request::{LumpRange, Placement, UsageOutcome};
use crate::units::{BlockCount, BlockIndex, BlockSize, RingPosition};

const U40: u64 = (1 << 40) - 1;
const LEN_SHIFT: u32 = 40;
const EMBEDDED_BIT: u64 = 1 << 40;
const SIZE_KNOWN_BIT: u64 = 1 << 41;
const PADDING_SHIFT: u32 = 48;

/// Where a lump lives and where its newest record is. Packed: 16 bytes.
///
/// `place`: bits 0-39 first block, 40-55 length in blocks (data) or bytes (embedded).
/// `journal`: bits 0-39 ring position, 40 embedded, 41 padding known, 48-63 padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    place: u64,
    journal: u64,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    /// A lump in the data region. `padding`: the value of its padding-length field, if known.
    pub(crate) fn data(record: RingPosition, portion: Portion, padding: Option<u16>) -> Self {
        let place = (portion.start().0 & U40) | u64::from(portion.len().0) << LEN_SHIFT;
        let size = padding.map_or(0, |padding| {
            SIZE_KNOWN_BIT | u64::from(padding) << PADDING_SHIFT
        });
        Self {
            place,
            journal: (record.0 & U40) | size,
        }
    }

    /// A lump of `len` bytes in the record at `record`.
    pub(crate) fn embedded(record: RingPosition, len: u16) -> Self {
        Self {
            place: u64::from(len) << LEN_SHIFT,
            journal: (record.0 & U40) | EMBEDDED_BIT,
        }
    }

    /// Where its newest record is in the ring.
    pub(crate) fn record(self) -> RingPosition {
        RingPosition(self.journal & U40)
    }

    /// The same lump after its record moved.
    pub(crate) fn moved_to(self, record: RingPosition) -> Self {
        Self {
            journal: (self.journal & !U40) | (record.0 & U40),
            ..self
        }
    }

    pub(crate) fn placement(self) -> Placement {
        if self.journal & EMBEDDED_BIT == 0 {
            Placement::Data
        } else {
            Placement::Embedded
        }
    }

    /// Its blocks; `None`: embedded.
    pub(crate) fn portion(self) -> Option<Portion> {
        match self.placement() {
            Placement::Data => {
                Portion::new(BlockIndex(self.place & U40), BlockCount(self.len_field())).ok()
            }
            Placement::Embedded => None,
        }
    }

    /// Length in blocks or, embedded, in bytes.
    fn len_field(self) -> u16 {
        u16::try_from(self.place >> LEN_SHIFT & 0xffff).unwrap_or(u16::MAX)
    }

    /// Exact bytes of the lump; `None`: only its last block knows.
    pub(crate) fn payload_len(self, block_size: BlockSize) -> Option<u64> {
        let len = u64::from(self.len_field());
        match self.placement() {
            Placement::Embedded => Some(len),
            Placement::Data if self.journal & SIZE_KNOWN_BIT == 0 => None,
            Placement::Data => {
                (len * block_size.bytes()).checked_sub(2 + (self.journal >> PADDING_SHIFT))
            }
        }
    }

    /// Bytes of its record.
    pub(crate) fn record_len(self) -> u64 {
        match self.placement() {
            Placement::Data => PUT_LEN as u64,
            Placement::Embedded => EMBED_PREFIX_LEN as u64 + u64::from(self.len_field()),
        }
    }

    /// Bytes of disk it takes: whole blocks, or its exact size when embedded.
    fn stored_bytes(self, block_size: BlockSize) -> u64 {
        match self.placement() {
            Placement::Data => u64::from(self.len_field()) * block_size.bytes(),
            Placement::Embedded => u64::from(self.len_field()),
        }
    }
}

/// The map, with the totals that are asked for often.
#[derive(Debug)]
pub(crate) struct Index {
    entries: BTreeMap<LumpId, Entry>,
    block_size: BlockSize,
    stored_bytes: u64,
    record_bytes: u64,
}

impl Index {
    pub(crate) fn new(block_size: BlockSize) -> Self {
        Self {
            entries: BTreeMap::new(),
            block_size,
            stored_bytes: 0,
            record_bytes: 0,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Bytes of all live records.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    pub(crate) fn get(&self, id: LumpId) -> Option<Entry> {
        self.entries.get(&id).copied()
    }

    /// Sets an entry and returns the one before.
    pub(crate) fn insert(&mut self, id: LumpId, entry: Entry) -> Option<Entry> {
        self.stored_bytes += entry.stored_bytes(self.block_size);
        self.record_bytes += entry.record_len();
        let old = self.entries.insert(id, entry);
        self.forget(old)
    }

    pub(crate) fn remove(&mut self, id: LumpId) -> Option<Entry> {
        let old = self.entries.remove(&id);
        self.forget(old)
    }

    fn forget(&mut self, old: Option<Entry>) -> Option<Entry> {
        if let Some(old) = old {
            self.stored_bytes -= old.stored_bytes(self.block_size);
            self.record_bytes -= old.record_len();
        }
        old
    }

    /// Replaces an entry by one of the same size.
    pub(crate) fn update(&mut self, id: LumpId, change: impl FnOnce(Entry) -> Entry) {
        if let Some(entry) = self.entries.get_mut(&id) {
            *entry = change(*entry);
        }
    }

    /// Removes `start <= id < end` and returns what was there.
    pub(crate) fn remove_range(&mut self, start: LumpId, end: LumpId) -> Vec<Entry> {
        let ids: Vec<LumpId> = self
            .range(LumpRange {
                start,
                end: Some(end),
            })
            .map(|(id, _)| id)
            .collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// The entries of a range in ascending order; none when the range is reversed.
    pub(crate) fn range(&self, range: LumpRange) -> impl Iterator<Item = (LumpId, Entry)> + '_ {
        let end = match range.end {
            None => Bound::Unbounded,
            Some(end) => Bound::Excluded(end.max(range.start)),
        };
        let bounds = (Bound::Included(range.start), end);
        // BTreeMap panics on (Included(x), Excluded(y)) only when y < x.
        self.entries.range(bounds).map(|(id, entry)| (*id, *entry))
    }

    /// Lumps and bytes of a range; constant time for all of it.
    pub(crate) fn usage(&self, range: LumpRange) -> UsageOutcome {
        if range == LumpRange::ALL {
            return UsageOutcome {
                lumps: self.len(),
                stored_bytes: self.stored_bytes,
            };
        }
        self.range(range)
            .fold(UsageOutcome::default(), |sum, (_, entry)| UsageOutcome {
                lumps: sum.lumps + 1,
                stored_bytes: sum.stored_bytes + entry.stored_bytes(self.block_size),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_every_field() {
        let portion = Portion::new(BlockIndex(U40 - 65_534), BlockCount(65_535)).unwrap();
        let entry = Entry::data(RingPosition(U40), portion, Some(u16::MAX));
        assert_eq!(entry.portion(), Some(portion));
        assert_eq!(entry.record(), RingPosition(U40));
        let full = 65_535 * 4096;
        assert_eq!(
            entry.payload_len(BlockSize::DEFAULT),
            Some(full - 2 - 65_535)
        );
        let moved = entry.moved_to(RingPosition(5));
        assert_eq!(
            (moved.record(), moved.portion()),
            (RingPosition(5), Some(portion))
        );
        let unknown = Entry::data(RingPosition(0), portion, None);
        assert_eq!(unknown.payload_len(BlockSize::DEFAULT), None);
        let embedded = Entry::embedded(RingPosition(9), 65_535);
        assert_eq!(embedded.portion(), None);
        assert_eq!(embedded.payload_len(BlockSize::DEFAULT), Some(65_535));
        assert_eq!(embedded.record_len(), 65_558);
    }

    #[test]
    fn totals_follow_the_entries() {
        let mut index = Index::new(BlockSize::DEFAULT);
        let portion = Portion::new(BlockIndex(3), BlockCount(2)).unwrap();
        index.insert(LumpId(1), Entry::embedded(RingPosition(0), 10));
        index.insert(LumpId(1), Entry::data(RingPosition(40), portion, None));
        index.insert(LumpId(u128::MAX), Entry::embedded(RingPosition(70), 7));
        assert_eq!(
            index.usage(LumpRange::ALL),
            UsageOutcome {
                lumps: 2,
                stored_bytes: 8199
            }
        );
        assert_eq!(index.record_bytes(), 28 + 30);
        assert_eq!(index.remove_range(LumpId(0), LumpId(u128::MAX)).len(), 1);
        assert_eq!(
            index.usage(LumpRange::ALL),
            UsageOutcome {
                lumps: 1,
                stored_bytes: 7
            }
        );
        assert_eq!(
            index
                .range(LumpRange {
                    start: LumpId(9),
                    end: Some(LumpId(2))
                })
                .count(),
            0
        );
    }
}
