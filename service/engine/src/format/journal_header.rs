//! The journal header block (FORMAT.md section 4): where replay begins, and in the bytes that the
//! format does not use, how far the scrubber has come.

use super::bytes::FieldReader;
use super::error::{DecodeError, DecodeErrorKind, Structure};
use crate::crc32c;
use crate::units::{ByteLen, RingPosition};

const RING_HEAD_LEN: usize = 8;

const MARK_MAGIC_LEN: usize = 4;
const MARK_POSITION_LEN: usize = 8;
const MARK_BEGAN_LEN: usize = 8;
const MARK_CRC_LEN: usize = 4;

/// First bytes of a scrub mark.
pub const MARK_MAGIC: [u8; MARK_MAGIC_LEN] = *b"LsSm";
/// Bytes of a scrub mark, which follows the ring head.
pub const SCRUB_MARK_LEN: usize =
    MARK_MAGIC_LEN + MARK_POSITION_LEN + MARK_BEGAN_LEN + MARK_CRC_LEN;

/// Bytes of the block that carry a field of `lusf`. CannyLS writes zeros behind them and does not
/// check them.
pub const JOURNAL_HEADER_LEN: usize = RING_HEAD_LEN;

const _: () = assert!(JOURNAL_HEADER_LEN == 8, "FORMAT.md section 4");

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[("ring head", RING_HEAD_LEN)];

/// Name and length of each field of a scrub mark, for FORMAT.md's test.
pub const SCRUB_MARK_FIELDS: &[(&str, usize)] = &[
    ("magic", MARK_MAGIC_LEN),
    ("position", MARK_POSITION_LEN),
    ("began", MARK_BEGAN_LEN),
    ("CRC32C", MARK_CRC_LEN),
];

/// How far the scrubber has come. Of no consequence for any lump: without it a pass begins anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubMark {
    /// Lumps that lie before this byte, counted from the start of the image, have been read.
    pub position: u64,
    /// When the pass began, in nanoseconds since 1970.
    pub began_ns: u64,
}

impl ScrubMark {
    /// Reads the mark of a journal header block; `None`: there is none that is intact.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let bytes = block.get(JOURNAL_HEADER_LEN..)?;
        let mut fields = FieldReader::new(Structure::JournalHeader, bytes);
        let magic: [u8; MARK_MAGIC_LEN] = fields.array("scrub mark").ok()?;
        let mark = Self {
            position: fields.u64_be("position").ok()?,
            began_ns: fields.u64_be("began").ok()?,
        };
        let crc = fields.u32_be("CRC32C").ok()?;
        (magic == MARK_MAGIC && crc == mark.crc()).then_some(mark)
    }

    /// The mark as bytes, to stand behind the ring head.
    #[must_use]
    pub fn encode(&self) -> [u8; SCRUB_MARK_LEN] {
        let mut bytes = [0; SCRUB_MARK_LEN];
        let crc = self.crc().to_be_bytes();
        let (position, began) = (self.position.to_be_bytes(), self.began_ns.to_be_bytes());
        let fields = [&MARK_MAGIC[..], &position, &began, &crc];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    fn crc(&self) -> u32 {
        let crc = crc32c::of(&self.position.to_be_bytes());
        crc32c::append(crc, &self.began_ns.to_be_bytes())
    }
}

/// The journal header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalHeader {
    /// Ring position of the first record to replay.
    pub ring_head: RingPosition,
}

impl JournalHeader {
    /// Reads the block; `ring_len` bounds the position.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are too few or the position lies outside the ring.
    pub fn decode(bytes: &[u8], ring_len: ByteLen) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::JournalHeader, bytes);
        let found = fields.u64_be("ring head")?;
        if found >= ring_len.0 {
            let kind = DecodeErrorKind::TooLarge {
                max: ring_len.0.saturating_sub(1),
                found,
            };
            return Err(fields.error("ring head", 0, kind));
        }
        Ok(Self {
            ring_head: RingPosition(found),
        })
    }

    /// The field as bytes; the rest of the block is zeros.
    #[must_use]
    pub fn encode(&self) -> [u8; JOURNAL_HEADER_LEN] {
        self.ring_head.0.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_damage_makes_it_none() {
        let mark = ScrubMark {
            position: 1 << 40,
            began_ns: u64::MAX - 1,
        };
        let mut block = vec![0; 512];
        assert_eq!(ScrubMark::decode(&block), None);
        block[JOURNAL_HEADER_LEN..][..SCRUB_MARK_LEN].copy_from_slice(&mark.encode());
        assert_eq!(ScrubMark::decode(&block), Some(mark));
        for at in JOURNAL_HEADER_LEN..JOURNAL_HEADER_LEN + SCRUB_MARK_LEN {
            block[at] ^= 1;
            assert_eq!(ScrubMark::decode(&block), None, "byte {at}");
            block[at] ^= 1;
        }
        assert_eq!(ScrubMark::decode(&block[..20]), None);
    }
}
