//! The checkpoint of the index, behind the end of the image (FORMAT.md section 12): a copy of what
//! replay would find, so that opening need not replay everything.

use super::bytes::{FieldReader, join};
use super::error::{DecodeError, DecodeErrorKind, Structure};
use super::geometry::Geometry;
use super::record::{EMBED_PREFIX_LEN, PUT_LEN};
use crate::crc32c;
use crate::lump::LumpId;
use crate::units::{RingPosition, to_usize};

/// The first bytes of a checkpoint's header.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsCp";
/// The format that is written.
pub const FORMAT: u16 = 2;
/// The one without a sum of the log: of versions before 0.3.
pub const OLD_FORMAT: u16 = 1;

const MAGIC_LEN: usize = 4;
const FORMAT_LEN: usize = 2;
const UUID_LEN: usize = 16;
const NUMBER_LEN: usize = 8;
const CRC_LEN: usize = 4;
const COUNT_LEN: usize = 4;
const BLOCK_LEN: usize = 5;
const LEN_LEN: usize = 2;
const RING_LEN: usize = 5;
const FLAGS_LEN: usize = 1;
const PADDING_LEN: usize = 2;

/// Bytes of a header.
pub const HEADER_LEN: usize = MAGIC_LEN + FORMAT_LEN + UUID_LEN + 5 * NUMBER_LEN + 3 * CRC_LEN;
/// Bytes that a header takes on the disk, and the unit of everything in the area.
pub const HEADER_SPACE: u64 = 4096;
/// Bytes of a chunk.
pub const CHUNK_LEN: usize = 256 * 1024;
/// Bytes of a chunk before its rows.
pub const CHUNK_PREFIX_LEN: usize = CRC_LEN + NUMBER_LEN + 2 * COUNT_LEN;
/// Bytes of a lump in a chunk.
pub const ROW_LEN: usize = LumpId::LEN + BLOCK_LEN + LEN_LEN + RING_LEN + FLAGS_LEN + PADDING_LEN;
/// Lumps of a full chunk.
pub const ROWS_PER_CHUNK: usize = (CHUNK_LEN - CHUNK_PREFIX_LEN) / ROW_LEN;
/// A device gets an area for as many lumps as if they had this many bytes on average.
pub const RESERVED_LUMP_LEN: u64 = 16 * 1024;

const _: () = assert!(HEADER_LEN == 74, "FORMAT.md section 12");
const _: () = assert!(ROW_LEN == 31, "FORMAT.md section 12");
const _: () = assert!(CHUNK_PREFIX_LEN == 20, "FORMAT.md section 12");

/// Name and length of each field of a header, for FORMAT.md's test.
pub const HEADER_FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("format", FORMAT_LEN),
    ("instance UUID", UUID_LEN),
    ("sequence", NUMBER_LEN),
    ("epoch", NUMBER_LEN),
    ("log begin", NUMBER_LEN),
    ("log end", NUMBER_LEN),
    ("lumps", NUMBER_LEN),
    ("CRC32C of the chunks", CRC_LEN),
    ("log sum", CRC_LEN),
    ("CRC32C", CRC_LEN),
];

/// Name and length of each field of a chunk before its rows, for FORMAT.md's test.
pub const CHUNK_FIELDS: &[(&str, usize)] = &[
    ("CRC32C", CRC_LEN),
    ("sequence", NUMBER_LEN),
    ("number", COUNT_LEN),
    ("rows", COUNT_LEN),
];

/// Name and length of each field of a row, for FORMAT.md's test.
pub const ROW_FIELDS: &[(&str, usize)] = &[
    ("lump id", LumpId::LEN),
    ("start block", BLOCK_LEN),
    ("length", LEN_LEN),
    ("ring position", RING_LEN),
    ("flags", FLAGS_LEN),
    ("padding", PADDING_LEN),
];

/// Where the two slots lie, in bytes from the start of the device or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte of the first slot; the second follows it.
    pub start: u64,
    /// Bytes of a slot, a multiple of [`HEADER_SPACE`].
    pub slot_len: u64,
}

impl Area {
    /// The area behind an image that lies on `len` bytes of a block device or of a file. What
    /// begins behind a minfs in a file is the copy of a device, and its area is that of the device.
    #[must_use]
    pub fn of(geometry: &Geometry, is_block_device: bool, len: u64) -> Option<Self> {
        if is_block_device || geometry.base().0 > 0 {
            Self::of_device(geometry, len)
        } else {
            Some(Self::of_file(geometry))
        }
    }

    /// The area of a file: behind the image, each slot with room for every lump that the journal
    /// can hold. Nothing of it is taken before it is written.
    #[must_use]
    pub fn of_file(geometry: &Geometry) -> Self {
        Self {
            start: Self::start(geometry),
            slot_len: slot_len(geometry.ring_len().0 / EMBED_PREFIX_LEN as u64),
        }
    }

    /// The area of a block device of `device_len` bytes: what lies behind the image. `None`: not
    /// even one chunk has room.
    #[must_use]
    pub fn of_device(geometry: &Geometry, device_len: u64) -> Option<Self> {
        let start = Self::start(geometry);
        let half = device_len.saturating_sub(start) / 2;
        let slot_len = half - half % HEADER_SPACE;
        (slot_len >= slot_len_of(1)).then_some(Self { start, slot_len })
    }

    fn start(geometry: &Geometry) -> u64 {
        geometry.end().0.next_multiple_of(HEADER_SPACE)
    }

    /// First byte of the slot that a checkpoint with this sequence number takes.
    #[must_use]
    pub fn slot(&self, sequence: u64) -> u64 {
        self.start + sequence % 2 * self.slot_len
    }

    /// True: a slot has room for this many lumps.
    #[must_use]
    pub fn has_room(&self, lumps: u64) -> bool {
        slot_len(lumps) <= self.slot_len
    }
}

/// Bytes of a slot for so many lumps.
fn slot_len(lumps: u64) -> u64 {
    slot_len_of(lumps.div_ceil(ROWS_PER_CHUNK as u64).max(1))
}

fn slot_len_of(chunks: u64) -> u64 {
    chunks
        .saturating_mul(CHUNK_LEN as u64)
        .saturating_add(HEADER_SPACE)
}

/// Bytes that creation leaves free behind an image on a block device: room for the lumps that the
/// journal can hold, but for no more than one per [`RESERVED_LUMP_LEN`] bytes of data.
#[must_use]
pub fn reserved_len(ring_len: u64, data_len: u64) -> u64 {
    let by_journal = ring_len / 8 * 7 / PUT_LEN as u64;
    let lumps = by_journal.min(data_len / RESERVED_LUMP_LEN);
    2 * slot_len(lumps) + HEADER_SPACE
}

/// Header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// Instance UUID of the store.
    pub uuid: [u8; UUID_LEN],
    /// Grows by one from checkpoint to checkpoint. 0: a slot that is reserved and empty.
    pub sequence: u64,
    /// Epoch of the journal's seal when it was written.
    pub epoch: u64,
    /// Log offset from which on records must be replayed.
    pub log_begin: u64,
    /// Log offset up to which the journal must reach.
    pub log_end: u64,
    /// Lumps in the chunks.
    pub lumps: u64,
    /// CRC32C of the chunks' CRC32Cs, in order.
    pub chunks_crc: u32,
    /// The [sum of the log](super::seal::LogSum) at `log_begin`; `None`: an older version has written
    /// the checkpoint.
    pub log_sum: Option<u32>,
}

impl CheckpointHeader {
    /// The header of a slot in which there is nothing yet.
    #[must_use]
    pub fn empty(uuid: [u8; UUID_LEN]) -> Self {
        Self {
            uuid,
            sequence: 0,
            epoch: 0,
            log_begin: 0,
            log_end: 0,
            lumps: 0,
            chunks_crc: 0,
            log_sum: Some(0),
        }
    }

    /// Chunks behind the header.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.lumps.div_ceil(ROWS_PER_CHUNK as u64)
    }

    /// All bytes of a slot before its chunks.
    #[must_use]
    pub fn block(&self) -> Vec<u8> {
        let mut block = self.encode();
        block.resize(to_usize(HEADER_SPACE), 0);
        block
    }

    /// The encoded header.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend_from_slice(&MAGIC);
        let format = self.log_sum.map_or(OLD_FORMAT, |_| FORMAT);
        bytes.extend_from_slice(&format.to_be_bytes());
        bytes.extend_from_slice(&self.uuid);
        let numbers = [
            self.sequence,
            self.epoch,
            self.log_begin,
            self.log_end,
            self.lumps,
        ];
        for number in numbers {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.chunks_crc.to_be_bytes());
        bytes.extend(self.log_sum.iter().flat_map(|sum| sum.to_be_bytes()));
        bytes.extend_from_slice(&crc32c::of(&bytes).to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`DecodeError`]: wrong magic, format or checksum, or too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::Checkpoint, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic")?;
        if magic != MAGIC {
            let kind = DecodeErrorKind::Constant {
                expected: super::bytes::hex(&MAGIC),
                found: super::bytes::hex(&magic),
            };
            return Err(fields.error("magic", 0, kind));
        }
        let format = fields.u16_be("format")?;
        if ![FORMAT, OLD_FORMAT].contains(&format) {
            let kind = DecodeErrorKind::Version {
                expected: "format 1 or 2",
                found: format.into(),
            };
            return Err(fields.error("format", MAGIC_LEN, kind));
        }
        let mut header = Self {
            uuid: fields.array("instance UUID")?,
            sequence: fields.u64_be("sequence")?,
            epoch: fields.u64_be("epoch")?,
            log_begin: fields.u64_be("log begin")?,
            log_end: fields.u64_be("log end")?,
            lumps: fields.u64_be("lumps")?,
            chunks_crc: fields.u32_be("CRC32C of the chunks")?,
            log_sum: None,
        };
        if format == FORMAT {
            header.log_sum = Some(fields.u32_be("log sum")?);
        }
        let at = fields.position();
        let stored = fields.u32_be("CRC32C")?;
        let computed = crc32c::of(bytes.get(..at).unwrap_or_default());
        if stored != computed {
            let kind = DecodeErrorKind::Checksum { computed, stored };
            return Err(fields.error("CRC32C", at, kind));
        }
        Ok(header)
    }
}

/// One lump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The lump.
    pub id: LumpId,
    /// First block, 40 bits; 0 when embedded.
    pub block: u64,
    /// Blocks, or bytes when embedded.
    pub len: u16,
    /// Its record.
    pub record: RingPosition,
    /// Bit 0: embedded; 1: the padding is known; the rest as the engine's index has them.
    pub flags: u8,
    /// Value of the padding-length field, if known.
    pub padding: u16,
}

impl Row {
    fn encode(&self) -> [u8; ROW_LEN] {
        let [_, _, _, block @ ..] = self.block.to_be_bytes();
        let [_, _, _, record @ ..] = self.record.0.to_be_bytes();
        join(&[
            &self.id.to_be_bytes(),
            &block,
            &self.len.to_be_bytes(),
            &record,
            &[self.flags],
            &self.padding.to_be_bytes(),
        ])
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::Checkpoint, bytes);
        Ok(Self {
            id: LumpId(fields.u128_be("lump id")?),
            block: fields.u40_be("start block")?,
            len: fields.u16_be("length")?,
            record: RingPosition(fields.u40_be("ring position")?),
            flags: fields.array::<1>("flags")?[0],
            padding: fields.u16_be("padding")?,
        })
    }
}

/// Writes the `row`-th row of a chunk; `chunk` has [`CHUNK_LEN`] bytes.
pub fn put_row(chunk: &mut [u8], row: usize, lump: &Row) {
    let at = CHUNK_PREFIX_LEN + row * ROW_LEN;
    if let Some(place) = chunk.get_mut(at..at + ROW_LEN) {
        place.copy_from_slice(&lump.encode());
    }
}

/// Completes a chunk whose rows are written and whose rest is zeros; returns its CRC32C.
pub fn seal_chunk(chunk: &mut [u8], sequence: u64, number: u32, rows: usize) -> u32 {
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    let mut prefix = Vec::with_capacity(CHUNK_PREFIX_LEN);
    prefix.extend_from_slice(&sequence.to_be_bytes());
    prefix.extend_from_slice(&number.to_be_bytes());
    prefix.extend_from_slice(&rows.to_be_bytes());
    if let Some(place) = chunk.get_mut(CRC_LEN..CHUNK_PREFIX_LEN) {
        place.copy_from_slice(&prefix);
    }
    let crc = crc32c::of(chunk.get(CRC_LEN..).unwrap_or_default());
    if let Some(place) = chunk.first_chunk_mut() {
        *place = crc.to_be_bytes();
    }
    crc
}

/// The rows of a chunk, and its CRC32C.
///
/// # Errors
/// [`DecodeError`]: wrong checksum, or not this chunk of this checkpoint.
pub fn read_chunk(
    chunk: &[u8],
    sequence: u64,
    number: u32,
) -> Result<(u32, impl Iterator<Item = Result<Row, DecodeError>> + '_), DecodeError> {
    let mut fields = FieldReader::new(Structure::Checkpoint, chunk);
    let stored = fields.u32_be("CRC32C")?;
    let computed = crc32c::of(chunk.get(CRC_LEN..).unwrap_or_default());
    if stored != computed {
        let kind = DecodeErrorKind::Checksum { computed, stored };
        return Err(fields.error("CRC32C", 0, kind));
    }
    for (field, expected) in [("sequence", sequence), ("number", number.into())] {
        let at = fields.position();
        let found = match field {
            "sequence" => fields.u64_be(field)?,
            _ => fields.u32_be(field)?.into(),
        };
        if found != expected {
            let kind = DecodeErrorKind::Range {
                expected: "that of this place",
                found,
            };
            return Err(fields.error(field, at, kind));
        }
    }
    let at = fields.position();
    let rows = fields.u32_be("rows")?;
    let len = to_usize(rows).saturating_mul(ROW_LEN);
    let Some(rows) = chunk
        .get(CHUNK_PREFIX_LEN..)
        .and_then(|rest| rest.get(..len))
    else {
        let kind = DecodeErrorKind::TooLarge {
            max: ROWS_PER_CHUNK as u64,
            found: rows.into(),
        };
        return Err(fields.error("rows", at, kind));
    };
    Ok((stored, rows.chunks_exact(ROW_LEN).map(Row::decode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: CheckpointHeader = CheckpointHeader {
        uuid: [7; UUID_LEN],
        sequence: 3,
        epoch: 0x0102_0304_0506_0708,
        log_begin: 1 << 41,
        log_end: (1 << 41) + 5,
        lumps: 9000,
        chunks_crc: 0xdead_beef,
        log_sum: Some(77),
    };

    #[test]
    fn every_flipped_bit_of_a_header_is_found() {
        let good = HEADER.encode();
        assert_eq!(CheckpointHeader::decode(&good), Ok(HEADER));
        for at in 0..HEADER_LEN {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                assert!(CheckpointHeader::decode(&bytes).is_err(), "byte {at}");
            }
            assert!(CheckpointHeader::decode(&good[..at]).is_err());
        }
    }

    #[test]
    fn chunks_keep_their_rows_and_their_place() {
        let row = |n: u16| Row {
            id: LumpId(u128::MAX - u128::from(n)),
            block: (1 << 40) - 1 - u64::from(n),
            len: n,
            record: RingPosition((1 << 40) - 1 - u64::from(n)),
            flags: u8::try_from(n % 256).unwrap(),
            padding: u16::MAX - n,
        };
        let mut chunk = vec![0; CHUNK_LEN];
        let rows = u16::try_from(ROWS_PER_CHUNK).unwrap();
        for n in 0..rows {
            put_row(&mut chunk, usize::from(n), &row(n));
        }
        let crc = seal_chunk(&mut chunk, 5, 2, ROWS_PER_CHUNK);
        let (found, read) = read_chunk(&chunk, 5, 2).unwrap();
        assert_eq!(found, crc);
        let read: Vec<Row> = read.map(Result::unwrap).collect();
        assert_eq!(read, (0..rows).map(row).collect::<Vec<_>>());
        assert!(read_chunk(&chunk, 5, 3).is_err());
        assert!(read_chunk(&chunk, 4, 2).is_err());
        for at in [0, 4, 12, 16, 19, 20, 999, CHUNK_LEN - 1] {
            chunk[at] ^= 0x10;
            assert!(read_chunk(&chunk, 5, 2).is_err(), "byte {at}");
            chunk[at] ^= 0x10;
        }
        // Too many rows, under a checksum that fits.
        seal_chunk(&mut chunk, 5, 2, ROWS_PER_CHUNK + 1);
        assert!(read_chunk(&chunk, 5, 2).is_err());
        assert!(read_chunk(&[], 5, 2).is_err());
    }
}
