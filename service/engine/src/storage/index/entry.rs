//! Entry of one lump in the index.

use crate::format::checkpoint::Row;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN};
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::request::Placement;
use crate::units::{BlockCount, BlockIndex, BlockSize, RingPosition};

const U40: u64 = (1 << 40) - 1;
const LEN_SHIFT: u32 = 40;
const EMBEDDED_BIT: u64 = 1 << 40;
const SIZE_KNOWN_BIT: u64 = 1 << 41;
const FOREIGN_BIT: u64 = 1 << 42;
const FLAGS_SHIFT: u32 = 40;
const PADDING_SHIFT: u32 = 48;

/// Where a lump lives and where its newest record is. The index keeps it in fewer bytes than
/// these 16: [`super::packing`].
///
/// `place`: bits 0-39 first block, 40-55 length in blocks (data) or bytes (embedded).
/// `journal`: bits 0-39 ring position, 40 embedded, 41 padding known, 42 marked as foreign, 48-63
/// padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(super) place: u64,
    pub(super) journal: u64,
}

const _: () = assert!(size_of::<IndexEntry>() == 16);

impl IndexEntry {
    /// The bit that says the padding is known, counted from the first of the flags.
    pub(super) const SIZE_KNOWN_FLAG: u64 = SIZE_KNOWN_BIT >> 40;

    /// A lump in the data region. `padding`: the value of its padding-length field, if known.
    pub(crate) fn data(record: RingPosition, portion: Portion, padding: Option<u16>) -> Self {
        let place = (portion.start().0 & U40) | u64::from(portion.len().0) << LEN_SHIFT;
        let journal = record.0 & U40;
        Self { place, journal }.with_padding(padding)
    }

    /// A lump of `len` bytes in the record at `record`.
    pub(crate) fn embedded(record: RingPosition, len: u16) -> Self {
        Self {
            place: u64::from(len) << LEN_SHIFT,
            journal: (record.0 & U40) | EMBEDDED_BIT,
        }
    }

    /// As a checkpoint keeps it.
    pub(crate) fn to_row(self, id: LumpId) -> Row {
        Row {
            id,
            block: self.place & U40,
            len: self.len_field(),
            record: self.record(),
            // Eight bits and sixteen.
            flags: u8::try_from(self.journal >> FLAGS_SHIFT & 0xff).unwrap_or(0),
            padding: u16::try_from(self.journal >> PADDING_SHIFT).unwrap_or(0),
        }
    }

    /// Entry from a row of a checkpoint; `None`: impossible for this store.
    pub(crate) fn of_row(row: &Row, geometry: &Geometry) -> Option<Self> {
        let entry = Self {
            place: (row.block & U40) | u64::from(row.len) << LEN_SHIFT,
            journal: (row.record.0 & U40)
                | u64::from(row.flags) << FLAGS_SHIFT
                | u64::from(row.padding) << PADDING_SHIFT,
        };
        let fits = match entry.placement() {
            Placement::Embedded => row.block == 0,
            Placement::Data => entry
                .portion()
                .is_some_and(|portion| portion.check_within(geometry.data_blocks()).is_ok()),
        };
        (fits && row.record.0 < geometry.ring_len().0).then_some(entry)
    }

    /// Where its newest record is in the ring.
    pub(crate) fn record(self) -> RingPosition {
        RingPosition(self.journal & U40)
    }

    /// The entry after its record moved, behind a mark of foreign lumps or not.
    pub(crate) fn moved_to(self, record: RingPosition, foreign: bool) -> Self {
        Self {
            journal: (self.journal & !U40) | (record.0 & U40),
            ..self
        }
        .marked(foreign)
    }

    /// The entry with a record that a mark calls foreign, or that none does.
    pub(crate) fn marked(self, foreign: bool) -> Self {
        let bit = if foreign { FOREIGN_BIT } else { 0 };
        Self {
            journal: (self.journal & !FOREIGN_BIT) | bit,
            ..self
        }
    }

    /// True: a mark before its record says that another engine may have written the lump.
    pub(crate) fn is_marked(self) -> bool {
        self.journal & FOREIGN_BIT != 0
    }

    /// The entry with the value of its padding-length field.
    pub(crate) fn with_padding(self, padding: Option<u16>) -> Self {
        let size = padding.map_or(0, |padding| {
            SIZE_KNOWN_BIT | u64::from(padding) << PADDING_SHIFT
        });
        let others = self.journal & !(SIZE_KNOWN_BIT | u64::from(u16::MAX) << PADDING_SHIFT);
        Self {
            journal: others | size,
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
    pub(super) fn stored_bytes(self, block_size: BlockSize) -> u64 {
        match self.placement() {
            Placement::Data => u64::from(self.len_field()) * block_size.bytes(),
            Placement::Embedded => u64::from(self.len_field()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_every_field() {
        let portion = Portion::new(BlockIndex(U40 - 65_534), BlockCount(65_535)).unwrap();
        let entry = IndexEntry::data(RingPosition(U40), portion, Some(u16::MAX));
        assert_eq!(entry.portion(), Some(portion));
        assert_eq!(entry.record(), RingPosition(U40));
        let full = 65_535 * 4096;
        let expected = Some(full - 2 - 65_535);
        assert_eq!(entry.payload_len(BlockSize::DEFAULT), expected);
        let moved = entry.moved_to(RingPosition(5), true);
        assert!(moved.is_marked() && !entry.is_marked());
        let expected = entry.payload_len(BlockSize::DEFAULT);
        assert_eq!(moved.payload_len(BlockSize::DEFAULT), expected);
        assert_eq!(moved.moved_to(RingPosition(U40), false), entry);
        assert_eq!(moved.record(), RingPosition(5));
        assert_eq!(moved.portion(), Some(portion));
        let unknown = IndexEntry::data(RingPosition(0), portion, None);
        assert_eq!(unknown.payload_len(BlockSize::DEFAULT), None);
        let embedded = IndexEntry::embedded(RingPosition(9), 65_535);
        assert_eq!(embedded.portion(), None);
        assert_eq!(embedded.payload_len(BlockSize::DEFAULT), Some(65_535));
        assert_eq!(embedded.record_len(), 65_558);
    }
}
