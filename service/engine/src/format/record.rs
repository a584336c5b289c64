//! Journal records (FORMAT.md section 5): packed back to back in the ring, unaligned, each with a
//! checksum of its own.

use adler2::Adler32;

use super::bytes::{FieldReader, hex};
use super::error::{DecodeError, DecodeErrorKind, Structure};
use super::portion::{InvalidPortion, MAX_BLOCK_INDEX, Portion};
use crate::lump::LumpId;
use crate::units::{BlockCount, BlockIndex};

pub(super) const CHECKSUM_LEN: usize = 4;
const TAG_LEN: usize = 1;
const ID_LEN: usize = LumpId::LEN;
const PORTION_LEN_LEN: usize = 2;
const PORTION_START_LEN: usize = 5;
const EMBED_SIZE_LEN: usize = 2;

/// Bytes in front of each record's body: checksum and tag.
pub const PREFIX_LEN: usize = CHECKSUM_LEN + TAG_LEN;
/// Bytes of an `EndOfRecords`.
pub const END_OF_RECORDS_LEN: usize = PREFIX_LEN;
/// Bytes of a `GoToFront`.
pub const GO_TO_FRONT_LEN: usize = PREFIX_LEN;
/// Bytes of a `Put`.
pub const PUT_LEN: usize = PREFIX_LEN + ID_LEN + PORTION_LEN_LEN + PORTION_START_LEN;
/// Bytes of an `Embed` before its data.
pub const EMBED_PREFIX_LEN: usize = PREFIX_LEN + ID_LEN + EMBED_SIZE_LEN;
/// Bytes of a `Delete`.
pub const DELETE_LEN: usize = PREFIX_LEN + ID_LEN;
/// Bytes of a `DeleteRange`.
pub const DELETE_RANGE_LEN: usize = PREFIX_LEN + 2 * ID_LEN;
/// Most bytes a lump embedded in a record can have.
pub const MAX_EMBEDDED_LEN: usize = u16::MAX as usize;
/// Bytes of the longest record.
pub const MAX_RECORD_LEN: usize = EMBED_PREFIX_LEN + MAX_EMBEDDED_LEN;

const _: () = assert!(PREFIX_LEN == 5, "FORMAT.md section 5");
const _: () = assert!(PUT_LEN == 28, "FORMAT.md section 5");
const _: () = assert!(EMBED_PREFIX_LEN == 23, "FORMAT.md section 5");
const _: () = assert!(DELETE_LEN == 21, "FORMAT.md section 5");
const _: () = assert!(DELETE_RANGE_LEN == 37, "FORMAT.md section 5");

/// Tag byte of `EndOfRecords`.
pub const TAG_END_OF_RECORDS: u8 = 0;
/// Tag byte of `GoToFront`.
pub const TAG_GO_TO_FRONT: u8 = 1;
/// Tag byte of `Put`. Tag 2 was never used.
pub const TAG_PUT: u8 = 3;
/// Tag byte of `Embed`.
pub const TAG_EMBED: u8 = 4;
/// Tag byte of `Delete`.
pub const TAG_DELETE: u8 = 5;
/// Tag byte of `DeleteRange`.
pub const TAG_DELETE_RANGE: u8 = 6;

/// Name, tag and length (an `Embed`'s without data) of each record, for FORMAT.md's test.
pub const RECORDS: &[(&str, u8, usize)] = &[
    ("EndOfRecords", TAG_END_OF_RECORDS, END_OF_RECORDS_LEN),
    ("GoToFront", TAG_GO_TO_FRONT, GO_TO_FRONT_LEN),
    ("Put", TAG_PUT, PUT_LEN),
    ("Embed", TAG_EMBED, EMBED_PREFIX_LEN),
    ("Delete", TAG_DELETE, DELETE_LEN),
    ("DeleteRange", TAG_DELETE_RANGE, DELETE_RANGE_LEN),
];

/// Data small enough to live in a record: at most [`MAX_EMBEDDED_LEN`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddedData<'a>(&'a [u8]);

/// Too many bytes for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are too many to embed: at most {MAX_EMBEDDED_LEN} fit into a record")]
pub struct EmbeddedTooLarge {
    /// Bytes given.
    pub len: usize,
}

impl<'a> EmbeddedData<'a> {
    /// Checks the length.
    ///
    /// # Errors
    /// [`EmbeddedTooLarge`].
    pub fn new(data: &'a [u8]) -> Result<Self, EmbeddedTooLarge> {
        if data.len() > MAX_EMBEDDED_LEN {
            return Err(EmbeddedTooLarge { len: data.len() });
        }
        Ok(Self(data))
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(self) -> &'a [u8] {
        self.0
    }

    fn size_field(self) -> [u8; EMBED_SIZE_LEN] {
        // The constructor admits no more than 16 bits.
        u16::try_from(self.0.len())
            .unwrap_or(u16::MAX)
            .to_be_bytes()
    }
}

/// One record. `Embed` borrows its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The journal ends here; the next record overwrites this one.
    EndOfRecords,
    /// The next record is at ring position 0.
    GoToFront,
    /// The lump lives in this portion of the data region, whatever was there before.
    Put {
        /// The lump.
        id: LumpId,
        /// Its blocks; its exact size stands in their last bytes.
        portion: Portion,
    },
    /// The lump lives in this record.
    Embed {
        /// The lump.
        id: LumpId,
        /// Its bytes.
        data: EmbeddedData<'a>,
    },
    /// The lump is gone; no effect when there is none.
    Delete {
        /// The lump.
        id: LumpId,
    },
    /// The lumps `start <= id < end` are gone. `start == end` is legal and has no effect.
    DeleteRange {
        /// First id.
        start: LumpId,
        /// First id after the range, not less than `start`.
        end: LumpId,
    },
}

/// Content of the first bytes of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole, intact record.
    Record {
        /// The record.
        record: Record<'a>,
        /// Bytes it takes; the next one begins after them.
        len: usize,
    },
    /// The bytes are a proper beginning, but too few. Call again with at least `total` bytes from
    /// the same start; the answer may then ask for more once again (an `Embed`).
    NeedMore {
        /// Bytes needed, counted from the start of the record; more than were given.
        total: usize,
    },
}

impl<'a> Record<'a> {
    /// Reads one record from the front of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`] for an unknown tag, a wrong checksum, a portion of no blocks or beyond 40
    /// bits, or a reversed range. Too few bytes are no error: see [`Decoded::NeedMore`].
    pub fn decode(bytes: &'a [u8]) -> Result<Decoded<'a>, DecodeError> {
        let Some(len) = whole_len(bytes)? else {
            let total = if bytes.len() < PREFIX_LEN {
                PREFIX_LEN
            } else {
                EMBED_PREFIX_LEN
            };
            return Ok(Decoded::NeedMore { total });
        };
        let Some(bytes) = bytes.get(..len) else {
            return Ok(Decoded::NeedMore { total: len });
        };
        let mut fields = FieldReader::new(Structure::Record, bytes);
        let stored = fields.u32_be("checksum")?;
        let computed = checksum(bytes);
        if stored != computed {
            let kind = DecodeErrorKind::Checksum { computed, stored };
            return Err(fields.error("checksum", 0, kind));
        }
        let [tag] = fields.array("tag")?;
        let record = match tag {
            TAG_END_OF_RECORDS => Self::EndOfRecords,
            TAG_GO_TO_FRONT => Self::GoToFront,
            TAG_PUT => decode_put(&mut fields)?,
            TAG_EMBED => {
                let id = LumpId(fields.u128_be("lump id")?);
                let data = bytes.get(EMBED_PREFIX_LEN..).unwrap_or_default();
                Self::Embed {
                    id,
                    data: EmbeddedData(data),
                }
            }
            TAG_DELETE => Self::Delete {
                id: LumpId(fields.u128_be("lump id")?),
            },
            TAG_DELETE_RANGE => decode_delete_range(&mut fields)?,
            unknown => return Err(unknown_tag(unknown)),
        };
        Ok(Decoded::Record { record, len })
    }

    /// Bytes of the encoded record.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::EndOfRecords => END_OF_RECORDS_LEN,
            Self::GoToFront => GO_TO_FRONT_LEN,
            Self::Put { .. } => PUT_LEN,
            Self::Embed { data, .. } => EMBED_PREFIX_LEN + data.0.len(),
            Self::Delete { .. } => DELETE_LEN,
            Self::DeleteRange { .. } => DELETE_RANGE_LEN,
        }
    }

    /// Appends the encoded record to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(self.encoded_len());
        out.extend_from_slice(&[0; CHECKSUM_LEN]);
        match self {
            Self::EndOfRecords => out.push(TAG_END_OF_RECORDS),
            Self::GoToFront => out.push(TAG_GO_TO_FRONT),
            Self::Put { id, portion } => {
                out.push(TAG_PUT);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&portion.len().0.to_be_bytes());
                let [_, _, _, start @ ..] = portion.start().0.to_be_bytes();
                out.extend_from_slice(&start);
            }
            Self::Embed { id, data } => {
                out.push(TAG_EMBED);
                out.extend_from_slice(&id.to_be_bytes());
                out.extend_from_slice(&data.size_field());
                out.extend_from_slice(data.0);
            }
            Self::Delete { id } => {
                out.push(TAG_DELETE);
                out.extend_from_slice(&id.to_be_bytes());
            }
            Self::DeleteRange { start, end } => {
                out.push(TAG_DELETE_RANGE);
                out.extend_from_slice(&start.to_be_bytes());
                out.extend_from_slice(&end.to_be_bytes());
            }
        }
        let record = out.get_mut(start..).unwrap_or_default();
        let sum = checksum(record).to_be_bytes();
        if let Some(field) = record.first_chunk_mut::<CHECKSUM_LEN>() {
            *field = sum;
        }
    }

    /// The encoded record.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        self.encode_into(&mut bytes);
        bytes
    }
}

/// Bytes of the record that `bytes` begins with; `None` when too few bytes are there to tell.
fn whole_len(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(tag) = bytes.get(CHECKSUM_LEN) else {
        return Ok(None);
    };
    Ok(match *tag {
        TAG_END_OF_RECORDS => Some(END_OF_RECORDS_LEN),
        TAG_GO_TO_FRONT => Some(GO_TO_FRONT_LEN),
        TAG_PUT => Some(PUT_LEN),
        TAG_DELETE => Some(DELETE_LEN),
        TAG_DELETE_RANGE => Some(DELETE_RANGE_LEN),
        TAG_EMBED => bytes
            .get(EMBED_PREFIX_LEN - EMBED_SIZE_LEN..)
            .and_then(|size| size.first_chunk())
            .map(|size| EMBED_PREFIX_LEN + usize::from(u16::from_be_bytes(*size))),
        unknown => return Err(unknown_tag(unknown)),
    })
}

/// Bytes of the record that `bytes` begins with, as its tag says, intact or not.
pub(crate) fn claimed_len(bytes: &[u8]) -> Option<usize> {
    whole_len(bytes).ok().flatten()
}

/// Adler-32 of everything after the checksum field.
pub(super) fn checksum(record: &[u8]) -> u32 {
    let mut adler = Adler32::new();
    adler.write_slice(record.get(CHECKSUM_LEN..).unwrap_or_default());
    adler.checksum()
}

fn unknown_tag(tag: u8) -> DecodeError {
    let kind = DecodeErrorKind::Constant {
        expected: "tag 00, 01, 03, 04, 05 or 06".to_owned(),
        found: hex(&[tag]),
    };
    DecodeError::new(Structure::Record, "tag", CHECKSUM_LEN, kind)
}

fn decode_put<'a>(fields: &mut FieldReader<'_>) -> Result<Record<'a>, DecodeError> {
    let id = LumpId(fields.u128_be("lump id")?);
    let len_at = fields.position();
    let len = fields.u16_be("length in blocks")?;
    let start_at = fields.position();
    let start = fields.u40_be("start block")?;
    let portion = Portion::new(BlockIndex(start), BlockCount(len)).map_err(|e| match e {
        InvalidPortion::Empty => {
            let kind = DecodeErrorKind::Range {
                expected: "at least 1 block",
                found: 0,
            };
            fields.error("length in blocks", len_at, kind)
        }
        InvalidPortion::OutOfRange { .. } | InvalidPortion::OutsideData { .. } => {
            let max = MAX_BLOCK_INDEX
                .saturating_sub(u64::from(len))
                .saturating_add(1);
            fields.error(
                "start block",
                start_at,
                DecodeErrorKind::TooLarge { max, found: start },
            )
        }
    })?;
    Ok(Record::Put { id, portion })
}

fn decode_delete_range<'a>(fields: &mut FieldReader<'_>) -> Result<Record<'a>, DecodeError> {
    let start = LumpId(fields.u128_be("start id")?);
    let end_at = fields.position();
    let end = LumpId(fields.u128_be("end id")?);
    if start > end {
        let kind = DecodeErrorKind::Constant {
            expected: format!("an id not less than the start {start}"),
            found: end.to_string(),
        };
        return Err(fields.error("end id", end_at, kind));
    }
    Ok(Record::DeleteRange { start, end })
}
