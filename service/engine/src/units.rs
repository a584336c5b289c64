//! Quantities that must not be mixed up, each as a type of its own.
//!
//! The format counts in three ways: bytes, blocks of the store, bytes of the journal's ring.
//! Arithmetic that may leave the range is checked at the place that knows what the result means.

use std::fmt;

/// Bytes from the start of a device or file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteOffset(pub u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteLen(pub u64);

/// A block of the data region, counted from the region's start, in units of the store's block
/// size. On disk it has 40 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u64);

/// A number of blocks of one portion, in units of the store's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCount(pub u16);

/// A byte position in the journal's ring: 0 is the byte after the journal header block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingPosition(pub u64);

impl RingPosition {
    /// Bytes forward from here to `to`, round the end of the ring if need be.
    pub(crate) fn distance_to(self, to: Self, ring_len: ByteLen) -> u64 {
        match to.0.checked_sub(self.0) {
            Some(distance) => distance,
            None => ring_len.0 - self.0 + to.0,
        }
    }
}

/// A number of bytes in memory; more than there can be is as many as there can be.
pub(crate) fn to_usize(bytes: impl TryInto<usize>) -> usize {
    bytes.try_into().unwrap_or(usize::MAX)
}

/// Bytes of a sector of the block layer.
pub const SECTOR_LEN: u64 = 512;

impl fmt::Display for ByteOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ByteLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The block size of a store: a multiple of 512 from 512 to 65,024 bytes, not necessarily a power
/// of two (FORMAT.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize(u16);

/// A number of bytes that cannot be a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no block size: a multiple of 512 from 512 to 65024 is needed")]
pub struct InvalidBlockSize(pub u16);

impl BlockSize {
    /// The smallest block size, and the unit of all others.
    pub const MIN: Self = Self(512);
    /// The default: no block starts inside a page or a file-system block.
    pub const DEFAULT: Self = Self(4096);
    /// The largest multiple of 512 that the header's 16-bit field holds.
    pub const MAX: Self = Self(65_024);

    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`InvalidBlockSize`] when it is zero, not a multiple of 512, or more than 65,024.
    pub const fn new(bytes: u16) -> Result<Self, InvalidBlockSize> {
        if bytes == 0 || !bytes.is_multiple_of(Self::MIN.0) || bytes > Self::MAX.0 {
            Err(InvalidBlockSize(bytes))
        } else {
            Ok(Self(bytes))
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Bytes of one block.
    #[must_use]
    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// `len` rounded down to whole blocks, in bytes.
    #[must_use]
    pub fn floor(self, len: u64) -> u64 {
        len - len % self.bytes()
    }

    /// `len` rounded up to whole blocks, in bytes; `None` when that is more than a `u64` holds.
    #[must_use]
    pub fn ceil(self, len: u64) -> Option<u64> {
        len.checked_next_multiple_of(self.bytes())
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u16> for BlockSize {
    type Error = InvalidBlockSize;

    fn try_from(bytes: u16) -> Result<Self, InvalidBlockSize> {
        Self::new(bytes)
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_multiples_of_512_up_to_65024() {
        for bad in [0, 1, 511, 513, 4095, 65_025, 65_535] {
            assert_eq!(BlockSize::new(bad), Err(InvalidBlockSize(bad)));
        }
        for good in [512, 1024, 1536, 4096, 65_024] {
            assert_eq!(BlockSize::new(good).map(BlockSize::get), Ok(good));
        }
    }

    #[test]
    fn rounding_up_reports_overflow() {
        assert_eq!(BlockSize::DEFAULT.ceil(1), Some(4096));
        assert_eq!(BlockSize::DEFAULT.ceil(4096), Some(4096));
        assert_eq!(BlockSize::DEFAULT.ceil(u64::MAX), None);
        assert_eq!(BlockSize::DEFAULT.floor(8191), 4096);
    }
}
