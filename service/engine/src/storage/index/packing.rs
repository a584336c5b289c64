//! Entries in as few bits as the store's geometry allows.
//!
//! From the most significant bit: first block (as many bits as the data region's blocks need),
//! length (16), ring position (as many as the ring's bytes need), flags (bits 40-47 of
//! `IndexEntry::journal`, all eight), padding (as many as twice the block size needs, at least 11).

use super::entry::IndexEntry;
use crate::format::Geometry;

const U40: u64 = (1 << 40) - 1;
const LEN_BITS: u32 = 16;
const LEN_SHIFT: u32 = 40;
const FLAG_BITS: u32 = 8;
const FLAG_SHIFT: u32 = 40;
const PADDING_SHIFT: u32 = 48;
/// A padding of CannyLS and all that this engine adds to it, for the smallest blocks.
const MIN_PADDING_BITS: u32 = 11;

/// The widths of one store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packing {
    block_bits: u32,
    ring_bits: u32,
    padding_bits: u32,
}

/// Bits that hold every value up to `max`.
fn bits_for(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

impl Packing {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let padding_bits = bits_for(2 * geometry.block_size().bytes() - 1);
        Self {
            block_bits: bits_for(geometry.data_blocks().saturating_sub(1)).min(40),
            ring_bits: bits_for(geometry.ring_len().0.saturating_sub(1)).min(40),
            padding_bits: padding_bits.clamp(MIN_PADDING_BITS, 16),
        }
    }

    /// Bits of a packed entry, at most 120.
    pub(super) fn entry_bits(self) -> u32 {
        self.block_bits + LEN_BITS + self.ring_bits + FLAG_BITS + self.padding_bits
    }

    /// The entry as the low bits of a number. A padding that is too large for its field (only a
    /// foreign writer leaves such) is forgotten: the lump's last block knows it.
    pub(super) fn pack(self, entry: IndexEntry) -> u128 {
        let flags = entry.journal >> FLAG_SHIFT & 0xff;
        let padding = entry.journal >> PADDING_SHIFT;
        let (flags, padding) = if padding >> self.padding_bits == 0 {
            (flags, padding)
        } else {
            (flags & !IndexEntry::SIZE_KNOWN_FLAG, 0)
        };
        let (block, ring) = (entry.place & U40, entry.journal & U40);
        debug_assert!(block >> self.block_bits == 0 && ring >> self.ring_bits == 0);
        let mut packed = u128::from(block);
        packed = packed << LEN_BITS | u128::from(entry.place >> LEN_SHIFT & 0xffff);
        packed = packed << self.ring_bits | u128::from(ring);
        packed = packed << FLAG_BITS | u128::from(flags);
        packed << self.padding_bits | u128::from(padding)
    }

    /// The entry of a number made by [`Packing::pack`].
    pub(super) fn unpack(self, packed: u128) -> IndexEntry {
        let mut rest = packed;
        let mut take = |bits: u32| {
            // At most 40 bits.
            let field = u64::try_from(rest & ((1 << bits) - 1)).unwrap_or(0);
            rest >>= bits;
            field
        };
        let padding = take(self.padding_bits);
        let flags = take(FLAG_BITS);
        let ring = take(self.ring_bits);
        let len = take(LEN_BITS);
        let block = take(self.block_bits);
        IndexEntry {
            place: block | len << LEN_SHIFT,
            journal: ring | flags << FLAG_SHIFT | padding << PADDING_SHIFT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Portion;
    use crate::format::header::Header;
    use crate::units::{BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset, RingPosition};

    fn geometry(block_size: u16, journal_len: u64, data_len: u64) -> Geometry {
        let header = Header {
            minor: 1,
            block_size: BlockSize::new(block_size).unwrap(),
            uuid: [7; 16],
            journal_len: ByteLen(journal_len),
            data_len: ByteLen(data_len),
        };
        Geometry::new(ByteOffset(0), &header)
    }

    #[test]
    fn every_field_survives_at_its_largest() {
        for (block_size, blocks, ring) in [
            (512, 1, 512),
            (4096, 1 << 34, 1 << 31),
            (65_024, 1 << 33, (1 << 40) - 1),
        ] {
            let bytes = u64::from(block_size);
            let packing = Packing::new(&geometry(block_size, ring + bytes, blocks * bytes));
            assert!(packing.entry_bits() <= 120);
            for padding in [None, Some(0), Some(2 * block_size.min(32_000) - 1)] {
                let portion = Portion::new(BlockIndex(blocks - 1), BlockCount(u16::MAX)).unwrap();
                let mut entry = IndexEntry::data(RingPosition(ring - 1), portion, padding);
                entry.journal |= 0xff << FLAG_SHIFT;
                assert_eq!(packing.unpack(packing.pack(entry)), entry);
            }
            let embedded = IndexEntry::embedded(RingPosition(0), u16::MAX);
            assert_eq!(packing.unpack(packing.pack(embedded)), embedded);
        }
    }

    #[test]
    fn a_padding_that_does_not_fit_is_forgotten() {
        let packing = Packing::new(&geometry(512, 4096, 51_200));
        let portion = Portion::new(BlockIndex(3), BlockCount(9)).unwrap();
        let entry = IndexEntry::data(RingPosition(5), portion, Some(4000));
        let unknown = IndexEntry::data(RingPosition(5), portion, None);
        assert_eq!(packing.unpack(packing.pack(entry)), unknown);
    }
}
