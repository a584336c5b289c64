//! Proof that the data of a put is where its record says, all of it (FORMAT.md section 8.1).
//!
//! Checksums alone do not say so: an older lump of this id may lie whole in these blocks, or bytes
//! that a client has made up. So a put stores a random number with its data, the *nonce*. And they
//! do not tell a write that was lost in part from a bit that has flipped since: so the first bytes
//! of each sector of the payload are summed up beside them, the *samples*. A lost write leaves old
//! sectors, which differ there from the new ones.

use crate::format::Portion;
use crate::lump::LumpId;
use crate::units::SECTOR_LEN;

/// Multiplier of all the numbers here: odd, so that multiplying by it is one to one.
pub const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bytes of a sample.
const SAMPLE_LEN: usize = 8;
/// CRC32C of a last bit that is set, among bits that are not, begun with 0.
const LAST_BIT: u32 = 0x82F6_3B78;

/// The number that a sector of the payload adds to the sum; [`words`] has its number and first bytes.
fn term(number: u64, word: u64) -> u64 {
    (word ^ number.wrapping_mul(FACTOR)).wrapping_mul(FACTOR)
}

/// The sum of the samples of these sectors, modulo 2^64.
pub fn sum(words: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let terms = words.into_iter().map(|(number, word)| term(number, word));
    terms.fold(0, u64::wrapping_add)
}

/// The sum of the samples of a payload, or of the bytes from its sector `first` on.
#[must_use]
pub fn samples(first: u64, bytes: &[u8]) -> u64 {
    sum(words(first, bytes))
}

const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == SECTOR_LEN);

/// Nonce and samples of a put in one number.
#[must_use]
pub fn token(nonce: u64, samples: u64) -> u64 {
    nonce.wrapping_add(samples)
}

/// A number for a lump's id and place.
#[must_use]
pub fn hash(id: LumpId, portion: Portion) -> u64 {
    let bytes = id.to_be_bytes();
    let (high, low) = bytes.split_at(8);
    let place = portion.start().0 << 16 | u64::from(portion.len().0);
    [number_of(high), number_of(low), place]
        .into_iter()
        .fold(0, |hash: u64, word| {
            (hash ^ word).wrapping_mul(FACTOR).rotate_left(29)
        })
}

/// True: numbers whose sum is too large by `excess` add up if one bit of a nonce is flipped back.
#[must_use]
pub fn is_nonce_bit(excess: u64) -> bool {
    (0..64).any(|bit| excess == 1 << bit || excess.wrapping_neg() == 1 << bit)
}

/// Flips bits of byte `at` of a payload of `len` bytes in its [`words`].
pub fn flip(words: &mut [(u64, u64)], (at, mask): (u64, u8), len: u64) {
    let (sector, in_sector) = (at / SECTOR_LEN, at % SECTOR_LEN);
    let sampled = (len - sector * SECTOR_LEN).min(SAMPLE_LEN as u64);
    let word = usize::try_from(sector)
        .ok()
        .and_then(|at| words.get_mut(at));
    if let (Some((_, word)), true) = (word, in_sector < sampled) {
        *word ^= u64::from(mask) << (8 * (sampled - 1 - in_sector));
    }
}

/// Number and first bytes of each sector of `bytes`.
pub fn words(first: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let sectors = bytes.chunks(SECTOR);
    (first..).zip(sectors.map(|sector| number_of(sector.get(..SAMPLE_LEN).unwrap_or(sector))))
}

/// Up to 8 bytes as a number.
fn number_of(bytes: &[u8]) -> u64 {
    let append = |word, &byte: &u8| word << 8 | u64::from(byte);
    bytes.iter().fold(0, append)
}

/// The bit by which `len` bytes differ whose CRC32Cs differ like this: its byte, and its mask. Any
/// other change looks as if there were one, once in 2^32 / (8 * len) times.
#[must_use]
pub fn one_bit(difference: u32, len: u64) -> Option<(u64, u8)> {
    let mut crc = LAST_BIT;
    let from_end = (0..len.saturating_mul(8)).find(|_| {
        let found = crc == difference;
        crc = crc >> 1 ^ if crc & 1 == 1 { LAST_BIT } else { 0 };
        found
    })?;
    Some((len - 1 - from_end / 8, 0x80 >> (from_end % 8)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c;

    #[test]
    fn every_flipped_bit_is_known_by_its_checksum() {
        let bytes: Vec<u8> = (0..200_u8).collect();
        let whole = crc32c::of(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let difference = whole ^ crc32c::of(&flipped);
            let place = (bit as u64 / 8, 1 << (bit % 8));
            assert_eq!(one_bit(difference, 200), Some(place), "bit {bit}");
            flipped[(bit / 8 + 3) % 200] ^= 1;
            let difference = whole ^ crc32c::of(&flipped);
            assert_eq!(one_bit(difference, 200), None, "bit {bit} and another one");
        }
        assert_eq!(one_bit(0, 200), None);
    }

    #[test]
    fn a_bit_that_is_flipped_back_gives_the_sum_again() {
        let bytes: Vec<u8> = (0..1541_u32).map(|at| at.to_be_bytes()[3]).collect();
        let whole = samples(0, &bytes);
        for at in [0, 7, 8, 512, 519, 1535, 1536, 1540] {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let mut words: Vec<_> = words(0, &flipped).collect();
                flip(&mut words, (at as u64, 1 << bit), 1541);
                assert_eq!(sum(words), whole, "byte {at}, bit {bit}");
            }
        }
        assert!(is_nonce_bit(1 << 63) && is_nonce_bit(u64::MAX) && !is_nonce_bit(3));
        let (mut swapped, sector) = (bytes.clone(), 512);
        swapped[..2 * sector].rotate_left(sector);
        swapped[0] = 9;
        assert_ne!(samples(0, &swapped), whole);
        assert_eq!(
            samples(0, &bytes[..1024]).wrapping_add(samples(2, &bytes[1024..])),
            whole
        );
    }
}
