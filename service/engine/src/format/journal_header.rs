//! The journal header block (FORMAT.md section 4): where replay begins.

use super::bytes::FieldReader;
use super::error::{DecodeError, DecodeErrorKind, Structure};
use crate::units::{ByteLen, RingPosition};

const RING_HEAD_LEN: usize = 8;

/// Bytes of the block that carry a field; the rest is zeros, and not checked when read.
pub const JOURNAL_HEADER_LEN: usize = RING_HEAD_LEN;

const _: () = assert!(JOURNAL_HEADER_LEN == 8, "FORMAT.md section 4");

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[("ring head", RING_HEAD_LEN)];

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
