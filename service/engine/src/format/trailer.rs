//! The end of a lump in the data region (FORMAT.md section 7): padding, table of chunk checksums,
//! trailer, padding length.
//!
//! The format gives a lump's size only as "whole blocks minus the padding", and the padding's
//! content is free. Our table and trailer stand at its very end, directly before the padding
//! length, where CannyLS takes them for padding. [`verify`](super::verify) judges what was read.

use super::bytes::FieldReader;
use super::error::{DecodeError, DecodeErrorKind, Structure};
use super::sums::{CRC_LEN, Chunks, MAX_CHUNKS, PayloadSums};
use crate::crc32c;
use crate::lump::LumpId;
use crate::units::{BlockCount, BlockSize};

/// The first bytes of a trailer.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsCk";
/// Version of the trailer that is written, and the only one that is known.
pub const FORMAT: u16 = 2;

/// Bytes of a payload that has room behind it for a link and an annex with records, and of that room.
const ROOMY: u64 = 64 * 1024;
const ROOM: u64 = 1024;
/// Largest blocks with which there is such room.
const ROOMY_BLOCKS: u64 = 32 * 1024;

const MAGIC_LEN: usize = 4;
const FORMAT_LEN: usize = 2;
const GENERATION_LEN: usize = 8;
const PADDING_LEN_LEN: usize = 2;
/// Bytes of a nonce, which stands before the chunk table in lumps that versions before 0.3 put.
pub const NONCE_LEN: usize = 8;

/// Bytes of the trailer, table and padding length not counted.
pub const TRAILER_LEN: usize = MAGIC_LEN + FORMAT_LEN + GENERATION_LEN + 2 * CRC_LEN;
/// Bytes after the payload that every lump of ours has: trailer and padding length.
pub const OVERHEAD_LEN: usize = TRAILER_LEN + PADDING_LEN_LEN;
/// Most bytes of table, trailer and padding length together.
pub const MAX_OVERHEAD_LEN: usize = OVERHEAD_LEN + max_table_len();

const fn max_table_len() -> usize {
    let mut len = 0;
    let mut chunk = 0;
    while chunk < MAX_CHUNKS {
        len += CRC_LEN;
        chunk += 1;
    }
    len
}

const _: () = assert!(TRAILER_LEN == 22, "FORMAT.md section 7");
// The padding of a lump, table and trailer included, always fits its 16-bit length field.
const _: () = assert!(
    MAX_OVERHEAD_LEN + BlockSize::MAX.get() as usize <= u16::MAX as usize
        && MAX_OVERHEAD_LEN as u64 + ROOM + ROOMY_BLOCKS <= u16::MAX as u64,
    "FORMAT.md section 7"
);
// Nonce, table and trailer never reach beyond the last block.
const _: () = assert!(
    NONCE_LEN + MAX_OVERHEAD_LEN <= BlockSize::MIN.get() as usize,
    "FORMAT.md section 7"
);

/// Name and length of each field from the trailer's start to the lump's end, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("format", FORMAT_LEN),
    ("generation", GENERATION_LEN),
    ("payload CRC32C", CRC_LEN),
    ("trailer CRC32C", CRC_LEN),
    ("padding length", PADDING_LEN_LEN),
];

/// Bytes after a payload of this length: table, trailer and padding length.
#[must_use]
pub fn overhead_len(payload_len: u64) -> u64 {
    (OVERHEAD_LEN + Chunks::of(payload_len).table_len()) as u64
}

/// The nonce of a lump with a payload of this length, if its put has stored one: the bytes directly
/// before the table. `last` ends where the portion ends and holds at least 512 bytes.
#[must_use]
pub fn nonce_in(last: &[u8], payload_len: u64) -> Option<u64> {
    let end = last
        .len()
        .checked_sub(usize::try_from(overhead_len(payload_len)).ok()?)?;
    let bytes = last.get(..end)?.last_chunk::<NONCE_LEN>()?;
    Some(u64::from_be_bytes(*bytes))
}

/// Most payload bytes of a lump that carries a trailer, in `blocks` blocks.
#[must_use]
pub fn max_payload_in(blocks: u64, block_size: BlockSize) -> u64 {
    let total = blocks.saturating_mul(block_size.bytes());
    total.saturating_sub(overhead_len(total))
}

/// Most payload bytes of a lump that carries a trailer.
#[must_use]
pub fn max_payload(block_size: BlockSize) -> u64 {
    max_payload_in(u16::MAX.into(), block_size)
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
/// payload, padding (zeros), table, trailer, padding length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LumpShape {
    payload_len: u64,
    blocks: BlockCount,
    block_size: BlockSize,
}

impl LumpShape {
    /// The shape of a lump of `payload_len` bytes with a trailer, and from 64 KiB on with room for a
    /// [link](super::run::Link) and for what a put has beside its data.
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
        let needed = payload_len + overhead_len(payload_len);
        let has_room = payload_len >= ROOMY && block_size.bytes() <= ROOMY_BLOCKS;
        let room = if has_room { ROOM } else { 0 };
        let blocks = |len: u64| u16::try_from(len.div_ceil(block_size.bytes()));
        let blocks = blocks(needed + room).or_else(|_| blocks(needed));
        let blocks = BlockCount(blocks.map_err(|_| too_large)?);
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

    /// Bytes of the portion: payload and all that follows it.
    #[must_use]
    pub fn total_len(self) -> u64 {
        u64::from(self.blocks.0) * self.block_size.bytes()
    }

    /// Bytes after the payload; at least [`overhead_len`], less than that plus one block and the room
    /// that a large lump has.
    #[must_use]
    pub fn tail_len(self) -> u64 {
        self.total_len() - self.payload_len
    }

    /// Fills the bytes after the payload: `tail` must be the last [`Self::tail_len`] bytes of the
    /// portion, and `sums` those of the whole payload. Bytes before the table become zeros.
    ///
    /// # Panics
    /// When `tail` has another length: the caller would write a lump that cannot be read.
    pub fn write_tail(self, id: LumpId, generation: u64, sums: PayloadSums, tail: &mut [u8]) {
        assert_eq!(
            u64::try_from(tail.len()),
            Ok(self.tail_len()),
            "the tail of this shape"
        );
        let padding_len = u16::try_from(self.tail_len() - PADDING_LEN_LEN as u64)
            .expect("less than table, trailer, room and a block, which fit 16 bits");
        let (payload_crc, chunk_crcs) = sums.finish();
        let mut end = Vec::with_capacity(MAX_OVERHEAD_LEN);
        for crc in chunk_crcs {
            end.extend_from_slice(&crc.to_be_bytes());
        }
        end.extend_from_slice(&MAGIC);
        end.extend_from_slice(&FORMAT.to_be_bytes());
        end.extend_from_slice(&generation.to_be_bytes());
        end.extend_from_slice(&payload_crc.to_be_bytes());
        let crc = trailer_crc(&end, id, self.payload_len);
        end.extend_from_slice(&crc.to_be_bytes());
        end.extend_from_slice(&padding_len.to_be_bytes());
        let (padding, place) = tail.split_at_mut(tail.len() - end.len());
        padding.fill(0);
        place.copy_from_slice(&end);
    }
}

/// CRC32C of table and trailer up to the payload's checksum, lump id and payload length.
fn trailer_crc(covered: &[u8], id: LumpId, payload_len: u64) -> u32 {
    let crc = crc32c::of(covered);
    let crc = crc32c::append(crc, &id.to_be_bytes());
    crc32c::append(crc, &payload_len.to_be_bytes())
}

/// The checksums stored with a lump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Grows with every put of the store: larger is newer.
    pub generation: u64,
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// CRC32C of each chunk; none when the payload is short.
    pub chunk_crcs: Vec<u32>,
}

/// Content of the place of a trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrailerState {
    /// A trailer that was written for this lump and this length.
    Fits(Trailer),
    /// No trailer.
    Missing,
    /// A trailer of a version that is not known.
    OtherFormat {
        /// Its version.
        format: u16,
    },
    /// A trailer that is damaged, or was written for another lump or another length.
    Misfit {
        /// Checksum that is stored.
        stored: u32,
        /// Checksum of what was read, for this lump.
        computed: u32,
    },
}

/// The last bytes of a portion, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LumpEnd {
    /// Exact bytes of the lump, if nothing is damaged.
    pub payload_len: u64,
    /// Our trailer, or what is there in its place.
    pub trailer: TrailerState,
}

impl LumpEnd {
    /// Reads the end of a portion of `blocks` blocks as that of lump `id`. `last` ends where the
    /// portion ends and holds at least the last block, or [`MAX_OVERHEAD_LEN`] bytes.
    ///
    /// The padding may be longer than a block: whoever wrote the lump may have aligned it for a
    /// larger block size.
    ///
    /// # Errors
    /// [`DecodeError`] when `last` is too short or the padding is longer than the portion.
    pub fn decode(
        last: &[u8],
        id: LumpId,
        blocks: BlockCount,
        block_size: BlockSize,
    ) -> Result<Self, DecodeError> {
        let structure = Structure::LumpEnd;
        let needed = MAX_OVERHEAD_LEN;
        let Some(last) = last.len().checked_sub(needed).map(|from| &last[from..]) else {
            let kind = DecodeErrorKind::TooShort {
                expected: needed,
                found: last.len(),
            };
            return Err(DecodeError::new(structure, "trailer", 0, kind));
        };
        let (tables, end) = last.split_at(needed - OVERHEAD_LEN);
        let mut fields = FieldReader::new(structure, end);
        let magic: [u8; MAGIC_LEN] = fields.array("magic")?;
        let format = fields.u16_be("format")?;
        let generation = fields.u64_be("generation")?;
        let payload_crc = fields.u32_be("payload CRC32C")?;
        let covered = fields.position();
        let stored = fields.u32_be("trailer CRC32C")?;
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
        let space = padding_len + PADDING_LEN_LEN as u64;
        let trailer = if magic != MAGIC || space < overhead_len(payload_len) {
            TrailerState::Missing
        } else if format != FORMAT {
            TrailerState::OtherFormat { format }
        } else {
            let table = &tables[tables.len() - Chunks::of(payload_len).table_len()..];
            let covered = &last[tables.len() - table.len()..tables.len() + covered];
            let computed = trailer_crc(covered, id, payload_len);
            if stored == computed {
                let (crcs, _) = table.as_chunks::<CRC_LEN>();
                TrailerState::Fits(Trailer {
                    generation,
                    payload_crc,
                    chunk_crcs: crcs.iter().map(|crc| u32::from_be_bytes(*crc)).collect(),
                })
            } else {
                TrailerState::Misfit { stored, computed }
            }
        };
        Ok(Self {
            payload_len,
            trailer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_payload_fits_at_every_block_size() {
        for units in 1..=127 {
            let block_size = BlockSize::new(units * 512).unwrap();
            let max = max_payload(block_size);
            let shape = LumpShape::new(max, block_size).unwrap();
            assert_eq!(shape.blocks(), BlockCount(u16::MAX), "{block_size}");
            assert_eq!(shape.tail_len(), overhead_len(max), "{block_size}");
            assert!(LumpShape::new(max + 1, block_size).is_err());
        }
    }

    #[test]
    fn no_shape_has_too_little_room() {
        for len in [0, 488, 489, 65_536, 65_537, 7 << 20, (7 << 20) + 1] {
            let shape = LumpShape::new(len, BlockSize::MIN).unwrap();
            assert!(shape.tail_len() >= overhead_len(len), "{len}");
            let room = if len < ROOMY { 0 } else { ROOM };
            let spare = shape.tail_len() - overhead_len(len);
            assert!((room..room + 512).contains(&spare), "{len}: {spare}");
        }
        assert_eq!(max_payload_in(0, BlockSize::MIN), 0);
        assert_eq!(max_payload_in(1, BlockSize::MIN), 488);
    }
}
