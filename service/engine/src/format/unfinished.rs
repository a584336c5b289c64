//! The mark of a copy that is not finished (FORMAT.md section 4.3), in bytes of the header block that
//! CannyLS leaves alone.

use super::bytes::FieldReader;
use super::error::Structure;
use crate::crc32c;

/// The first bytes of a mark.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsCy";
/// Where a mark begins in the header block: behind the bad places.
pub const MARK_OFFSET: usize = 400;

const MAGIC_LEN: usize = 4;
const UUID_LEN: usize = 16;
const NUMBER_LEN: usize = 8;
const CRC_LEN: usize = 4;

/// Bytes of a mark.
pub const MARK_LEN: usize = MAGIC_LEN + UUID_LEN + 2 * NUMBER_LEN + CRC_LEN;

const _: () = assert!(MARK_LEN == 40, "FORMAT.md section 4.3");
const _: () = assert!(
    super::bad_places::LIST_OFFSET + super::bad_places::LIST_LEN <= MARK_OFFSET
        && MARK_OFFSET + MARK_LEN <= 510,
    "behind the bad places, and no signature of others there"
);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("source", UUID_LEN),
    ("epoch", NUMBER_LEN),
    ("log end", NUMBER_LEN),
    ("CRC32C", CRC_LEN),
];

/// The store whose copy is not finished, as it was when copying began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// Its instance UUID.
    pub source: [u8; UUID_LEN],
    /// Epoch of the seal at the end of its journal; 0: it had none.
    pub epoch: u64,
    /// Log offset of the end of its journal.
    pub log_end: u64,
}

impl Unfinished {
    /// Reads the mark of a header block; `None`: there is none. A mark that is damaged still is one: of
    /// magic and checksum one is enough.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let bytes = block.get(MARK_OFFSET..)?;
        let mut fields = FieldReader::new(Structure::Header, bytes);
        let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
        let begin = fields.position();
        let mark = Self {
            source: fields.array("source").ok()?,
            epoch: fields.u64_be("epoch").ok()?,
            log_end: fields.u64_be("log end").ok()?,
        };
        let covered = bytes.get(begin..fields.position())?;
        let intact = fields.u32_be("CRC32C").ok()? == crc32c::of(covered);
        (magic == MAGIC || intact).then_some(mark)
    }

    /// For a message: why nobody may use the store yet.
    pub(crate) fn why(&self) -> String {
        let source = uuid::Uuid::from_bytes(self.source);
        format!(
            "it is a copy of the store {source} that is not finished: `lumpscope copy` from there \
             goes on with it"
        )
    }

    /// Writes the mark to its place in a header block.
    pub fn put_into(&self, block: &mut [u8]) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.source);
        bytes.extend_from_slice(&self.epoch.to_be_bytes());
        bytes.extend_from_slice(&self.log_end.to_be_bytes());
        let crc = crc32c::of(bytes.get(MAGIC_LEN..).unwrap_or_default());
        bytes.extend_from_slice(&crc.to_be_bytes());
        if let Some(mark) = block.get_mut(MARK_OFFSET..MARK_OFFSET + MARK_LEN) {
            mark.copy_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_no_flipped_bit_makes_it_none() {
        let mut block = vec![0; 512];
        assert_eq!(Unfinished::decode(&block), None);
        assert_eq!(Unfinished::decode(&block[..420]), None);
        let mark = Unfinished {
            source: [9; 16],
            epoch: 3,
            log_end: 1 << 50,
        };
        mark.put_into(&mut block);
        assert_eq!(Unfinished::decode(&block), Some(mark));
        for at in MARK_OFFSET..MARK_OFFSET + MARK_LEN {
            for bit in 0..8 {
                block[at] ^= 1 << bit;
                assert!(Unfinished::decode(&block).is_some(), "byte {at}, bit {bit}");
                block[at] ^= 1 << bit;
            }
        }
    }
}
