//! Extents of the data region (FORMAT.md section 6).

use crate::units::{BlockCount, BlockIndex, BlockSize, ByteLen};

/// Largest block number that fits into the 40 bits of a record.
pub const MAX_BLOCK_INDEX: u64 = (1 << 40) - 1;

/// Contiguous blocks of the data region: 1 to 65,535 of them, none beyond block 2^40 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Portion {
    start: BlockIndex,
    len: BlockCount,
}

/// Blocks that cannot be a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPortion {
    /// No blocks.
    #[error("a portion of 0 blocks: at least 1 is needed")]
    Empty,
    /// A block number of more than 40 bits.
    #[error("a portion of {len} blocks from block {start} ends after block 2^40 - 1")]
    OutOfRange {
        /// First block.
        start: u64,
        /// Number of blocks.
        len: u16,
    },
    /// Blocks after the end of the data region.
    #[error(
        "a portion of {len} blocks from block {start} ends after the data region's {data_blocks} \
         blocks"
    )]
    OutsideData {
        /// First block.
        start: u64,
        /// Number of blocks.
        len: u16,
        /// Blocks of the data region.
        data_blocks: u64,
    },
}

impl Portion {
    /// `len` blocks from `start`.
    ///
    /// # Errors
    /// [`InvalidPortion`] when `len` is 0 or a block number needs more than 40 bits.
    pub fn new(start: BlockIndex, len: BlockCount) -> Result<Self, InvalidPortion> {
        if len.0 == 0 {
            return Err(InvalidPortion::Empty);
        }
        let last = start.0.checked_add(u64::from(len.0) - 1);
        if last.is_none_or(|last| last > MAX_BLOCK_INDEX) {
            return Err(InvalidPortion::OutOfRange {
                start: start.0,
                len: len.0,
            });
        }
        Ok(Self { start, len })
    }

    /// First block.
    #[must_use]
    pub fn start(self) -> BlockIndex {
        self.start
    }

    /// Number of blocks, at least 1.
    #[must_use]
    pub fn len(self) -> BlockCount {
        self.len
    }

    /// Never: a portion has at least one block.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// First block after the portion; at most 2^40.
    #[must_use]
    pub fn end(self) -> BlockIndex {
        BlockIndex(self.start.0 + u64::from(self.len.0))
    }

    /// Bytes of the portion.
    #[must_use]
    pub fn byte_len(self, block_size: BlockSize) -> ByteLen {
        ByteLen(u64::from(self.len.0) * block_size.bytes())
    }

    /// True when the two share a block.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Refuses a portion that ends after a data region of `data_blocks` blocks.
    ///
    /// # Errors
    /// [`InvalidPortion::OutsideData`].
    pub fn check_within(self, data_blocks: u64) -> Result<Self, InvalidPortion> {
        if self.end().0 > data_blocks {
            let (start, len) = (self.start.0, self.len.0);
            return Err(InvalidPortion::OutsideData {
                start,
                len,
                data_blocks,
            });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_checked() {
        let new = |start, len| Portion::new(BlockIndex(start), BlockCount(len));
        assert_eq!(new(0, 0), Err(InvalidPortion::Empty));
        assert!(new(MAX_BLOCK_INDEX, 1).is_ok());
        assert_eq!(
            new(MAX_BLOCK_INDEX, 2),
            Err(InvalidPortion::OutOfRange {
                start: MAX_BLOCK_INDEX,
                len: 2
            })
        );
        assert!(new(u64::MAX, 65_535).is_err());
        let portion = new(8, 2).expect("valid");
        assert!(portion.check_within(10).is_ok());
        assert_eq!(
            portion.check_within(9),
            Err(InvalidPortion::OutsideData {
                start: 8,
                len: 2,
                data_blocks: 9
            })
        );
        assert!(portion.overlaps(new(9, 1).expect("valid")));
        assert!(!portion.overlaps(new(10, 1).expect("valid")));
        assert!(!portion.overlaps(new(7, 1).expect("valid")));
    }
}
