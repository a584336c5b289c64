//! The end of a lump in the data region (FORMAT.md section 7): padding, checksum trailer, padding
//! length.
//!
//! The format gives a lump's size only as "whole blocks minus the padding", and the padding's
//! content is free. Our trailer stands at its very end, directly before the padding length, where
//! CannyLS takes it for padding. A lump without it (written by CannyLS) is served unverified.

use super::bytes::FieldReader;
use super::error::{DecodeError, DecodeErrorKind, Structure};
use crate::lump::LumpId;
use crate::units::{BlockCount, BlockSize};

/// The first bytes of a trailer.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsCk";
/// Version of the trailer that is written; others are treated as absent.
pub const FORMAT: u16 = 1;

const MAGIC_LEN: usize = 4;
const FORMAT_LEN: usize = 2;
const GENERATION_LEN: usize = 8;
const CRC_LEN: usize = 4;
const PADDING_LEN_LEN: usize = 2;

/// Bytes of the trailer, the padding length not counted.
pub const TRAILER_LEN: usize = MAGIC_LEN + FORMAT_LEN + GENERATION_LEN + CRC_LEN;
/// Bytes after the payload that every lump of ours has: trailer and padding length.
pub const OVERHEAD_LEN: usize = TRAILER_LEN + PADDING_LEN_LEN;

const _: () = assert!(TRAILER_LEN == 18, "FORMAT.md section 7");
// The padding of a lump, trailer included, always fits its 16-bit length field.
const _: () = assert!(
    TRAILER_LEN + BlockSize::MAX.get() as usize - 1 <= u16::MAX as usize,
    "section 7"
);
// A trailer never reaches beyond the last block.
const _: () = assert!(
    OVERHEAD_LEN <= BlockSize::MIN.get() as usize,
    "FORMAT.md section 7"
);

/// Name and length of each field from the trailer's start to the lump's end, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("format", FORMAT_LEN),
    ("generation", GENERATION_LEN),
    ("CRC32C", CRC_LEN),
    ("padding length", PADDING_LEN_LEN),
];

/// Most payload bytes of a lump that carries a trailer.
#[must_use]
pub fn max_payload(block_size: BlockSize) -> u64 {
    u64::from(u16::MAX) * block_size.bytes() - OVERHEAD_LEN as u64
}

/// A running CRC32C of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PayloadCrc(u32);

impl PayloadCrc {
    /// The CRC of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(0)
    }

    /// Takes in the next bytes of the payload.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// The checksum to store: the payload's, continued over lump id, payload length and
    /// generation.
    #[must_use]
    pub fn finish(self, id: LumpId, payload_len: u64, generation: u64) -> u32 {
        let crc = crc32c::crc32c_append(self.0, &id.to_be_bytes());
        let crc = crc32c::crc32c_append(crc, &payload_len.to_be_bytes());
        crc32c::crc32c_append(crc, &generation.to_be_bytes())
    }
}

/// A payload that is too large for the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lump of {len} bytes is too large: at most {max} bytes fit with blocks of {block_size}")]
pub struct PayloadTooLarge {
    /// Bytes wanted.
    pub len: u64,
    /// Most bytes possible.
    pub max: u64,
    /// The store's block size.
    pub block_size: BlockSize,
}

/// Where everything of a lump of a given size goes within its portion:
/// payload, padding (zeros), trailer, padding length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LumpShape {
    payload_len: u64,
    blocks: BlockCount,
    block_size: BlockSize,
}

impl LumpShape {
    /// The shape of a lump of `payload_len` bytes with a trailer.
    ///
    /// # Errors
    /// [`PayloadTooLarge`] above [`max_payload`].
    pub fn new(payload_len: u64, block_size: BlockSize) -> Result<Self, PayloadTooLarge> {
        let max = max_payload(block_size);
        let too_large = PayloadTooLarge {
            len: payload_len,
            max,
            block_size,
        };
        if payload_len > max {
            return Err(too_large);
        }
        let blocks = (payload_len + OVERHEAD_LEN as u64).div_ceil(block_size.bytes());
        let blocks = BlockCount(u16::try_from(blocks).map_err(|_| too_large)?);
        Ok(Self {
            payload_len,
            blocks,
            block_size,
        })
    }

    /// Bytes of the payload.
    #[must_use]
    pub fn payload_len(self) -> u64 {
        self.payload_len
    }

    /// Blocks of the portion, at least 1.
    #[must_use]
    pub fn blocks(self) -> BlockCount {
        self.blocks
    }

    /// Bytes of the portion: payload, padding, trailer and padding length.
    #[must_use]
    pub fn total_len(self) -> u64 {
        u64::from(self.blocks.0) * self.block_size.bytes()
    }

    /// Bytes after the payload; at least [`OVERHEAD_LEN`], less than that plus one block.
    #[must_use]
    pub fn tail_len(self) -> u64 {
        self.total_len() - self.payload_len
    }

    /// First byte of the trailer within the portion.
    #[must_use]
    pub fn trailer_offset(self) -> u64 {
        self.total_len() - OVERHEAD_LEN as u64
    }

    /// Fills the bytes after the payload: `tail` must be the last [`Self::tail_len`] bytes of the
    /// portion. Bytes before the trailer become zeros.
    ///
    /// # Panics
    /// When `tail` has another length: the caller would write a lump that cannot be read.
    pub fn write_tail(self, id: LumpId, generation: u64, crc: PayloadCrc, tail: &mut [u8]) {
        assert_eq!(
            u64::try_from(tail.len()),
            Ok(self.tail_len()),
            "the tail of this shape"
        );
        let crc = crc.finish(id, self.payload_len, generation);
        let padding_len = u16::try_from(self.tail_len() - PADDING_LEN_LEN as u64)
            .expect("less than a trailer and a block, which fit 16 bits");
        let (padding, overhead) = tail.split_at_mut(tail.len() - OVERHEAD_LEN);
        padding.fill(0);
        let fields: [&[u8]; 5] = [
            &MAGIC,
            &FORMAT.to_be_bytes(),
            &generation.to_be_bytes(),
            &crc.to_be_bytes(),
            &padding_len.to_be_bytes(),
        ];
        let mut rest = overhead;
        for field in fields {
            let (head, tail) = rest.split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        }
    }
}

/// The checksum stored with a lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Grows with every put of the store: larger is newer.
    pub generation: u64,
    /// CRC32C over payload, lump id, payload length and generation.
    pub crc: u32,
}

/// Result of a comparison of a payload with its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// The payload is what was written for this lump.
    Intact,
    /// There is no trailer of a known format: nothing can be said.
    Unverified,
    /// Payload, id, length or generation are not what was written.
    Mismatch {
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of what was read.
        computed: u32,
    },
}

/// What the last bytes of a portion say about its lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LumpEnd {
    /// Exact bytes of the lump.
    pub payload_len: u64,
    /// Our trailer; `None` when there is none of a known format.
    pub trailer: Option<Trailer>,
}

impl LumpEnd {
    /// Reads the end of a portion of `blocks` blocks. `last` ends where the portion ends and holds
    /// at least the last [`OVERHEAD_LEN`] bytes; the last block always does.
    ///
    /// The padding may be longer than a block: whoever wrote the lump may have aligned it for a
    /// larger block size.
    ///
    /// # Errors
    /// [`DecodeError`] when `last` is too short or the padding is longer than the portion.
    pub fn decode(
        last: &[u8],
        blocks: BlockCount,
        block_size: BlockSize,
    ) -> Result<Self, DecodeError> {
        let structure = Structure::LumpEnd;
        let Some(end) = last.last_chunk::<OVERHEAD_LEN>() else {
            let kind = DecodeErrorKind::TooShort {
                expected: OVERHEAD_LEN,
                found: last.len(),
            };
            return Err(DecodeError::new(structure, "trailer", 0, kind));
        };
        let mut fields = FieldReader::new(structure, end);
        let magic: [u8; MAGIC_LEN] = fields.array("magic")?;
        let format = fields.u16_be("format")?;
        let generation = fields.u64_be("generation")?;
        let crc = fields.u32_be("CRC32C")?;
        let at = fields.position();
        let padding_len = u64::from(fields.u16_be("padding length")?);
        let room =
            (u64::from(blocks.0) * block_size.bytes()).saturating_sub(PADDING_LEN_LEN as u64);
        let Some(payload_len) = room.checked_sub(padding_len) else {
            let kind = DecodeErrorKind::TooLarge {
                max: room,
                found: padding_len,
            };
            return Err(fields.error("padding length", at, kind));
        };
        let ours = magic == MAGIC && format == FORMAT && padding_len >= TRAILER_LEN as u64;
        let trailer = ours.then_some(Trailer { generation, crc });
        Ok(Self {
            payload_len,
            trailer,
        })
    }

    /// Compares a payload that was read with the trailer.
    #[must_use]
    pub fn verify(&self, id: LumpId, payload: &[u8]) -> Verification {
        let Some(trailer) = self.trailer else {
            return Verification::Unverified;
        };
        let mut crc = PayloadCrc::new();
        crc.update(payload);
        let computed = crc.finish(id, self.payload_len, trailer.generation);
        if computed == trailer.crc {
            Verification::Intact
        } else {
            Verification::Mismatch {
                stored: trailer.crc,
                computed,
            }
        }
    }
}
