//! The mark of an unfinished copy (FORMAT.md section 4.3): earlier versions wrote it into the header
//! block of a store that was being made as the copy of another.

use super::bytes::FieldReader;
use super::error::Structure;
use crate::crc32c;

const MAGIC: [u8; MAGIC_LEN] = *b"LsCy";
/// Where a mark begins in the header block: behind the bad places.
pub(crate) const MARK_OFFSET: usize = 400;

const MAGIC_LEN: usize = 4;
const SOURCE_LEN: usize = 32;
const CRC_LEN: usize = 4;

/// Bytes of a mark.
pub(crate) const MARK_LEN: usize = MAGIC_LEN + SOURCE_LEN + CRC_LEN;

const _: () = assert!(MARK_LEN == 40, "FORMAT.md section 4.3");
const _: () = assert!(
    super::bad_places::LIST_OFFSET + super::bad_places::LIST_LEN <= MARK_OFFSET
        && MARK_OFFSET + MARK_LEN <= 510,
    "behind the bad places, and no signature of others there"
);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("source", SOURCE_LEN),
    ("CRC32C", CRC_LEN),
];

/// Why nobody may use such a store.
pub(crate) const WHY: &str = "it is an unfinished copy of another store, made by an earlier \
                              version, and lumps are missing: format it anew";

/// True: the header block has the mark. A damaged mark still is one: of magic and checksum one is
/// enough.
pub(crate) fn is_marked(block: &[u8]) -> bool {
    decode(block).unwrap_or(false)
}

fn decode(block: &[u8]) -> Option<bool> {
    let mut fields = FieldReader::new(Structure::Header, block.get(MARK_OFFSET..)?);
    let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
    let source: [u8; SOURCE_LEN] = fields.array("source").ok()?;
    let crc = fields.u32_be("CRC32C").ok()?;
    Some(magic == MAGIC || crc == crc32c::of(&source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_whichever_bit_has_flipped() {
        let mut block = vec![0; 512];
        assert!(!is_marked(&block) && !is_marked(&block[..420]));
        let source = [9; SOURCE_LEN];
        let crc = crc32c::of(&source).to_be_bytes();
        let mark = [&MAGIC[..], &source, &crc].concat();
        block[MARK_OFFSET..MARK_OFFSET + MARK_LEN].copy_from_slice(&mark);
        for at in MARK_OFFSET..MARK_OFFSET + MARK_LEN {
            for bit in 0..8 {
                block[at] ^= 1 << bit;
                assert!(is_marked(&block), "byte {at}, bit {bit}");
                block[at] ^= 1 << bit;
            }
        }
    }
}
