//! Where the regions of a store lie on its device or file (FORMAT.md section 2).

use super::header::{HEADER_LEN, Header, MAX_DATA_LEN, MAX_JOURNAL_LEN};
use super::portion::Portion;
use crate::units::{BlockSize, ByteLen, ByteOffset, RingPosition};

const _: () = assert!(
    HEADER_LEN <= BlockSize::MIN.get() as usize,
    "the header fits one block"
);

/// The regions of one store. All offsets count from the start of the device or file: the base
/// offset of the lusf image is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    base: ByteOffset,
    block_size: BlockSize,
    journal_len: ByteLen,
    data_len: ByteLen,
}

impl Geometry {
    /// The geometry of an image with `header` at byte `base` (0, or 61,440 inside a minfs).
    #[must_use]
    pub fn new(base: ByteOffset, header: &Header) -> Self {
        let Header {
            block_size,
            journal_len,
            data_len,
            ..
        } = *header;
        Self {
            base,
            block_size,
            journal_len,
            data_len,
        }
    }

    /// First byte of the image.
    #[must_use]
    pub fn base(&self) -> ByteOffset {
        self.base
    }

    /// Block size of the store.
    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Bytes of the header region: one block.
    #[must_use]
    pub fn header_len(&self) -> ByteLen {
        ByteLen(self.block_size.bytes())
    }

    /// Bytes of the journal region: journal header block and ring.
    #[must_use]
    pub fn journal_len(&self) -> ByteLen {
        self.journal_len
    }

    /// Bytes of the data region.
    #[must_use]
    pub fn data_len(&self) -> ByteLen {
        self.data_len
    }

    /// Blocks of the data region.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.data_len.0 / self.block_size.bytes()
    }

    /// Bytes of the ring: the journal region without its header block.
    #[must_use]
    pub fn ring_len(&self) -> ByteLen {
        ByteLen(self.journal_len.0.saturating_sub(self.block_size.bytes()))
    }

    /// Bytes of the whole image. Bytes after it belong to nobody.
    #[must_use]
    pub fn image_len(&self) -> ByteLen {
        ByteLen(self.header_len().0 + self.journal_len.0 + self.data_len.0)
    }

    /// First byte after the image.
    #[must_use]
    pub fn end(&self) -> ByteOffset {
        ByteOffset(self.base.0 + self.image_len().0)
    }

    /// First byte of the journal header block.
    #[must_use]
    pub fn journal_header_offset(&self) -> ByteOffset {
        ByteOffset(self.base.0 + self.header_len().0)
    }

    /// First byte of the ring.
    #[must_use]
    pub fn ring_offset(&self) -> ByteOffset {
        ByteOffset(self.journal_header_offset().0 + self.block_size.bytes())
    }

    /// The byte at a ring position (which must lie in the ring).
    #[must_use]
    pub fn ring_byte(&self, position: RingPosition) -> ByteOffset {
        ByteOffset(self.ring_offset().0.saturating_add(position.0))
    }

    /// First byte of the data region.
    #[must_use]
    pub fn data_offset(&self) -> ByteOffset {
        ByteOffset(self.journal_header_offset().0 + self.journal_len.0)
    }

    /// First byte of a portion (which must lie in the data region).
    #[must_use]
    pub fn portion_offset(&self, portion: Portion) -> ByteOffset {
        let from_data = portion.start().0.saturating_mul(self.block_size.bytes());
        ByteOffset(self.data_offset().0.saturating_add(from_data))
    }
}

/// Region sizes that cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SizingError {
    /// Header, journal header, ring and data need a block each.
    #[error(
        "{capacity} bytes are too few: at least {min} are needed with blocks of {block_size} \
         (header, two blocks of journal, one block of data)"
    )]
    TooSmall {
        /// Bytes given.
        capacity: u64,
        /// Fewest bytes that work.
        min: u64,
        /// Block size wanted.
        block_size: BlockSize,
    },
    /// The journal takes everything.
    #[error("a journal ratio of {ratio} leaves no block of {capacity} bytes for data; lower it")]
    NoData {
        /// Bytes given.
        capacity: u64,
        /// Ratio given.
        ratio: f64,
    },
    /// The share of the journal is not a number from 0 to 1.
    #[error("the journal ratio {0} is not between 0 and 1")]
    Ratio(f64),
    /// The journal would be too large.
    #[error("a journal of {len} bytes is too large: at most {MAX_JOURNAL_LEN}; lower the ratio")]
    JournalTooLarge {
        /// Bytes it would have.
        len: u64,
    },
    /// The data region would be too large.
    #[error("a data region of {len} bytes is too large: at most {MAX_DATA_LEN}")]
    DataTooLarge {
        /// Bytes it would have.
        len: u64,
    },
}

/// Sizes of the regions of a new store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionSizes {
    /// Journal region: header block and ring.
    pub journal_len: ByteLen,
    /// Data region.
    pub data_len: ByteLen,
}

impl RegionSizes {
    /// Divides `capacity` bytes as CannyLS does (FORMAT.md section 2.1): of the bytes after the
    /// header block, the share `journal_ratio` rounded up to whole blocks is journal, the rest
    /// rounded down is data.
    ///
    /// # Errors
    /// [`SizingError`] when a region would have less than its minimum or more than its maximum.
    pub fn divide(
        capacity: ByteLen,
        block_size: BlockSize,
        journal_ratio: f64,
    ) -> Result<Self, SizingError> {
        if !(0.0..=1.0).contains(&journal_ratio) {
            return Err(SizingError::Ratio(journal_ratio));
        }
        let min = MIN_BLOCKS * block_size.bytes();
        if capacity.0 < min {
            let capacity = capacity.0;
            return Err(SizingError::TooSmall {
                capacity,
                min,
                block_size,
            });
        }
        let available = capacity.0 - block_size.bytes();
        let share = scaled(available, journal_ratio);
        // CannyLS refuses to create a journal of less than two blocks; two are what it needs.
        let journal_len = block_size
            .ceil(share)
            .unwrap_or(u64::MAX)
            .max(MIN_JOURNAL_BLOCKS * block_size.bytes());
        if journal_len > MAX_JOURNAL_LEN {
            return Err(SizingError::JournalTooLarge { len: journal_len });
        }
        let data_len = block_size.floor(available.saturating_sub(journal_len));
        if data_len == 0 {
            return Err(SizingError::NoData {
                capacity: capacity.0,
                ratio: journal_ratio,
            });
        }
        if data_len > MAX_DATA_LEN {
            return Err(SizingError::DataTooLarge { len: data_len });
        }
        Ok(Self {
            journal_len: ByteLen(journal_len),
            data_len: ByteLen(data_len),
        })
    }
}

const MIN_JOURNAL_BLOCKS: u64 = 2;
const MIN_BLOCKS: u64 = 1 + MIN_JOURNAL_BLOCKS + 1;

/// `value * ratio`, truncated, in the floating-point arithmetic that CannyLS uses.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the original's rounding is part of the format's sizes; the ratio is 0 to 1"
)]
fn scaled(value: u64, ratio: f64) -> u64 {
    (value as f64 * ratio) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide(capacity: u64, ratio: f64) -> Result<(u64, u64), SizingError> {
        RegionSizes::divide(ByteLen(capacity), BlockSize::DEFAULT, ratio)
            .map(|sizes| (sizes.journal_len.0, sizes.data_len.0))
    }

    #[test]
    fn each_bound_has_its_own_error() {
        assert_eq!(divide(16_384, 0.01), Ok((8192, 4096)));
        assert!(matches!(
            divide(16_383, 0.01),
            Err(SizingError::TooSmall { min: 16_384, .. })
        ));
        assert!(matches!(
            divide(1 << 20, 1.0),
            Err(SizingError::NoData { .. })
        ));
        assert!(matches!(divide(1 << 20, 1.5), Err(SizingError::Ratio(_))));
        assert!(matches!(
            divide(1 << 48, 0.5),
            Err(SizingError::JournalTooLarge { .. })
        ));
        assert!(matches!(
            divide(1 << 51, 0.0),
            Err(SizingError::DataTooLarge { .. })
        ));
        assert!(matches!(
            divide(u64::MAX, 0.0),
            Err(SizingError::DataTooLarge { .. })
        ));
    }
}
