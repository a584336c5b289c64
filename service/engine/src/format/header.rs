//! The header region (FORMAT.md section 3): what the store is and how large its regions are.

use super::bytes::{FieldReader, hex, join};
use super::error::{DecodeError, DecodeErrorKind, Structure};
use super::portion::MAX_BLOCK_INDEX;
use crate::units::{BlockSize, ByteLen};

/// The first bytes of every lusf image.
pub const MAGIC: [u8; MAGIC_LEN] = *b"lusf";
/// Value of the header size field: the bytes after that field, padding not counted.
pub const HEADER_SIZE: u16 = 38;
/// The major version that is read and written.
pub const MAJOR_VERSION: u16 = 1;
/// The minor version that is written; 0 is read too.
pub const MINOR_VERSION: u16 = 1;
/// Largest journal region in bytes.
pub const MAX_JOURNAL_LEN: u64 = (1 << 40) - 1;
/// Largest data region in bytes, whatever the block size is.
pub const MAX_DATA_LEN: u64 = MAX_BLOCK_INDEX * 512;

const MAGIC_LEN: usize = 4;
const HEADER_SIZE_LEN: usize = 2;
const MAJOR_LEN: usize = 2;
const MINOR_LEN: usize = 2;
const BLOCK_SIZE_LEN: usize = 2;
const UUID_LEN: usize = 16;
const JOURNAL_SIZE_LEN: usize = 8;
const DATA_SIZE_LEN: usize = 8;

/// Bytes of the header that carry fields; the rest of the first block is padding.
pub const HEADER_LEN: usize = MAGIC_LEN
    + HEADER_SIZE_LEN
    + MAJOR_LEN
    + MINOR_LEN
    + BLOCK_SIZE_LEN
    + UUID_LEN
    + JOURNAL_SIZE_LEN
    + DATA_SIZE_LEN;

const _: () = assert!(HEADER_LEN == 44, "FORMAT.md section 3");
const _: () = assert!(
    HEADER_LEN - MAGIC_LEN - HEADER_SIZE_LEN == HEADER_SIZE as usize,
    "FORMAT.md section 3"
);

/// Name, offset and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("header size", HEADER_SIZE_LEN),
    ("major version", MAJOR_LEN),
    ("minor version", MINOR_LEN),
    ("block size", BLOCK_SIZE_LEN),
    ("instance UUID", UUID_LEN),
    ("journal region size", JOURNAL_SIZE_LEN),
    ("data region size", DATA_SIZE_LEN),
];

/// The header of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Minor version found: 0 or 1.
    pub minor: u16,
    /// Block size.
    pub block_size: BlockSize,
    /// Instance UUID, bytes in the order of its text form.
    pub uuid: [u8; 16],
    /// Journal region in bytes: journal header block and ring. Whole blocks.
    pub journal_len: ByteLen,
    /// Data region in bytes. Whole blocks.
    pub data_len: ByteLen,
}

impl Header {
    /// Reads the first [`HEADER_LEN`] bytes of an image.
    ///
    /// # Errors
    /// [`DecodeError`] that names the first field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = FieldReader::new(Structure::Header, bytes);
        expect_constant(&mut fields, "magic", MAGIC)?;
        expect_constant(&mut fields, "header size", HEADER_SIZE.to_be_bytes())?;
        expect_version(
            &mut fields,
            "major version",
            MAJOR_VERSION..=MAJOR_VERSION,
            "1",
        )?;
        let minor = expect_version(&mut fields, "minor version", 0..=MINOR_VERSION, "0 or 1")?;
        let at = fields.position();
        let block_size = BlockSize::new(fields.u16_be("block size")?).map_err(|invalid| {
            let expected = "a multiple of 512 from 512 to 65024";
            let kind = DecodeErrorKind::Range {
                expected,
                found: u64::from(invalid.0),
            };
            fields.error("block size", at, kind)
        })?;
        let uuid = fields.array("instance UUID")?;
        let journal_len = region_len(
            &mut fields,
            "journal region size",
            block_size,
            MAX_JOURNAL_LEN,
        )?;
        // One block for the journal header and one for the ring are the least that works.
        if journal_len < 2 * block_size.bytes() {
            let kind = DecodeErrorKind::Range {
                expected: "at least two blocks",
                found: journal_len,
            };
            return Err(fields.error(
                "journal region size",
                fields.position() - JOURNAL_SIZE_LEN,
                kind,
            ));
        }
        let data_len = region_len(&mut fields, "data region size", block_size, MAX_DATA_LEN)?;
        Ok(Self {
            minor,
            block_size,
            uuid,
            journal_len: ByteLen(journal_len),
            data_len: ByteLen(data_len),
        })
    }

    /// The fields as bytes; the rest of the block is zeros.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        join(&[
            &MAGIC,
            &HEADER_SIZE.to_be_bytes(),
            &MAJOR_VERSION.to_be_bytes(),
            &self.minor.to_be_bytes(),
            &self.block_size.get().to_be_bytes(),
            &self.uuid,
            &self.journal_len.0.to_be_bytes(),
            &self.data_len.0.to_be_bytes(),
        ])
    }
}

fn expect_constant<const N: usize>(
    fields: &mut FieldReader<'_>,
    name: &'static str,
    expected: [u8; N],
) -> Result<(), DecodeError> {
    let at = fields.position();
    let found: [u8; N] = fields.array(name)?;
    if found == expected {
        return Ok(());
    }
    let kind = DecodeErrorKind::Constant {
        expected: hex(&expected),
        found: hex(&found),
    };
    Err(fields.error(name, at, kind))
}

fn expect_version(
    fields: &mut FieldReader<'_>,
    name: &'static str,
    known: std::ops::RangeInclusive<u16>,
    expected: &'static str,
) -> Result<u16, DecodeError> {
    let at = fields.position();
    let found = fields.u16_be(name)?;
    if known.contains(&found) {
        return Ok(found);
    }
    Err(fields.error(
        name,
        at,
        DecodeErrorKind::Version {
            expected,
            found: u64::from(found),
        },
    ))
}

fn region_len(
    fields: &mut FieldReader<'_>,
    name: &'static str,
    block_size: BlockSize,
    max: u64,
) -> Result<u64, DecodeError> {
    let at = fields.position();
    let found = fields.u64_be(name)?;
    if found > max {
        return Err(fields.error(name, at, DecodeErrorKind::TooLarge { max, found }));
    }
    if !found.is_multiple_of(block_size.bytes()) {
        let kind = DecodeErrorKind::Range {
            expected: "a multiple of the block size",
            found,
        };
        return Err(fields.error(name, at, kind));
    }
    Ok(found)
}
