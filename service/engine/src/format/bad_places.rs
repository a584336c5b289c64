//! The places that the disk has refused to write (FORMAT.md section 4.2), in bytes of the header
//! block that CannyLS leaves alone.

use super::bytes::FieldReader;
use super::error::Structure;
use crate::crc32c;

/// The first bytes of a list.
pub const MAGIC: [u8; MAGIC_LEN] = *b"LsBd";
/// Where a list begins in the header block: behind the checked copy.
pub const LIST_OFFSET: usize = 256;
/// Most places of a list.
pub const MOST: usize = 16;

const MAGIC_LEN: usize = 4;
const PLACE_LEN: usize = 8;
const CRC_LEN: usize = 4;
/// Bits of a place that count its blocks.
const BLOCKS_BITS: u32 = 24;
const MOST_BLOCKS: u64 = (1 << BLOCKS_BITS) - 1;

/// Bytes of a list.
pub const LIST_LEN: usize = MAGIC_LEN + MOST * PLACE_LEN + CRC_LEN;

const _: () = assert!(LIST_LEN == 136, "FORMAT.md section 4.2");
const _: () = assert!(
    LIST_OFFSET + LIST_LEN <= 510,
    "no signature of others there"
);

/// Name and length of each field, for FORMAT.md's test.
pub const FIELDS: &[(&str, usize)] = &[
    ("magic", MAGIC_LEN),
    ("places", MOST * PLACE_LEN),
    ("CRC32C", CRC_LEN),
];

/// First block and number of blocks of each place.
pub type Places = Vec<(u64, u64)>;

/// Reads the list of a header block. Empty: there is none, or none that is intact.
#[must_use]
pub fn decode(block: &[u8]) -> Places {
    let bytes = block.get(LIST_OFFSET..).unwrap_or_default();
    read(bytes).unwrap_or_default()
}

fn read(bytes: &[u8]) -> Option<Places> {
    let mut fields = FieldReader::new(Structure::Header, bytes);
    let magic: [u8; MAGIC_LEN] = fields.array("magic").ok()?;
    let mut places = Vec::new();
    for _ in 0..MOST {
        let place = fields.u64_be("places").ok()?;
        places.push((place >> BLOCKS_BITS, place & MOST_BLOCKS));
    }
    let covered = bytes.get(..fields.position())?;
    let intact = magic == MAGIC && fields.u32_be("CRC32C").ok()? == crc32c::of(covered);
    places.retain(|&(_, blocks)| blocks > 0);
    intact.then_some(places)
}

/// Writes the first [`MOST`] places to their place in a header block; without any, nothing.
pub fn put_into(block: &mut [u8], places: impl IntoIterator<Item = (u64, u64)>) {
    let mut bytes = MAGIC.to_vec();
    for (start, blocks) in places.into_iter().take(MOST) {
        let place = start << BLOCKS_BITS | blocks.min(MOST_BLOCKS);
        bytes.extend_from_slice(&place.to_be_bytes());
    }
    if bytes.len() == MAGIC_LEN {
        return;
    }
    bytes.resize(LIST_LEN - CRC_LEN, 0);
    bytes.extend_from_slice(&crc32c::of(&bytes).to_be_bytes());
    if let Some(list) = block.get_mut(LIST_OFFSET..LIST_OFFSET + LIST_LEN) {
        list.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_and_damage_makes_it_none() {
        let mut block = vec![0; 512];
        put_into(&mut block, []);
        assert_eq!(block, vec![0; 512]);
        let places: Vec<(u64, u64)> = (0..20).map(|at| ((1 << 40) - 30 + at, at + 1)).collect();
        put_into(&mut block, places.clone());
        assert_eq!(decode(&block), &places[..MOST]);
        for at in LIST_OFFSET..LIST_OFFSET + LIST_LEN {
            block[at] ^= 1;
            assert_eq!(decode(&block), [], "byte {at}");
            block[at] ^= 1;
        }
        put_into(&mut block, [(7, u64::MAX)]);
        assert_eq!(decode(&block), [(7, MOST_BLOCKS)]);
        assert_eq!(decode(&block[..300]), []);
    }
}
