//! The checksums of a whole object of parts, from those of its parts.

use s3s::dto::{Checksum, CompletedPart};

use super::checks::{KINDS, decoded, encoded};

/// A CRC whose bits run backwards, which begins and ends with all ones.
struct Crc {
    bits: u32,
    polynomial: u64,
}

/// That of a kind; `None`: it is no CRC.
fn crc(kind: &str) -> Option<Crc> {
    let (bits, polynomial) = match KINDS.into_iter().position(|known| known == kind)? {
        0 => (32, 0xedb8_8320),
        1 => (32, 0x82f6_3b78),
        2 => (64, 0x9a6c_9329_ac4b_c9b5),
        _ => return None,
    };
    Some(Crc { bits, polynomial })
}

impl Crc {
    /// The product of two polynomials, modulo that of the CRC.
    fn times(&self, a: u64, mut b: u64) -> u64 {
        let mut product = 0;
        for bit in (0..self.bits).rev() {
            if a >> bit & 1 == 1 {
                product ^= b;
            }
            b = (b >> 1) ^ (self.polynomial * (b & 1));
        }
        product
    }

    /// The CRC of `first` followed by `len` bytes with the CRC `second`.
    fn combined(&self, first: u64, second: u64, len: u64) -> u64 {
        let one = 1 << (self.bits - 1);
        let (mut shift, mut square) = (one, one >> 1);
        let mut bits = u128::from(len) * 8;
        while bits > 0 {
            if bits & 1 == 1 {
                shift = self.times(square, shift);
            }
            square = self.times(square, square);
            bits >>= 1;
        }
        self.times(shift, first) ^ second
    }

    fn number(&self, text: &str) -> Option<u64> {
        let bytes = decoded(text)?;
        let right = bytes.len() * 8 == self.bits as usize;
        right.then(|| {
            bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        })
    }

    fn text(&self, number: u64) -> String {
        let bytes = number.to_be_bytes();
        encoded(&bytes[bytes.len() - self.bits as usize / 8..])
    }
}

/// The checksum of this kind of all bytes of parts, whose sizes and checksums are given; `None`:
/// it cannot be known.
pub(super) fn full(kind: &str, parts: &[(u64, Option<&String>)]) -> Option<String> {
    let crc = crc(kind)?;
    let mut whole = 0;
    for (size, sum) in parts {
        whole = crc.combined(whole, crc.number(sum.as_ref()?)?, *size);
    }
    Some(crc.text(whole))
}

/// The checksum of the checksums of parts, and how many they are; `None`: one is not known.
pub(super) fn composite(kind: &str, parts: &[(u64, Option<&String>)]) -> Option<String> {
    use s3s::checksum::ChecksumHasher;
    use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
    let is = |at: usize| kind == KINDS[at];
    let mut hasher = ChecksumHasher {
        crc32: is(0).then(Crc32::new),
        crc32c: is(1).then(Crc32c::new),
        crc64nvme: is(2).then(Crc64Nvme::new),
        sha1: is(3).then(Sha1::new),
        sha256: is(4).then(Sha256::new),
    };
    for (_, sum) in parts {
        hasher.update(&decoded(sum.as_ref()?)?);
    }
    let sums = hasher.finalize();
    let sum = super::checks::of_kind(&sums, kind)?;
    Some(format!("{sum}-{}", parts.len()))
}

/// Checksums that a client has of a part, as others are.
pub(super) fn announced(part: &CompletedPart) -> Checksum {
    Checksum {
        checksum_crc32: part.checksum_crc32.clone(),
        checksum_crc32c: part.checksum_crc32c.clone(),
        checksum_crc64nvme: part.checksum_crc64nvme.clone(),
        checksum_sha1: part.checksum_sha1.clone(),
        checksum_sha256: part.checksum_sha256.clone(),
        ..Checksum::default()
    }
}

#[cfg(test)]
mod tests {
    use s3s::checksum::ChecksumHasher;
    use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme};

    use super::super::checks::of_kind;
    use super::*;

    fn sums(bytes: &[u8]) -> Checksum {
        let mut hasher = ChecksumHasher {
            crc32: Some(Crc32::new()),
            crc32c: Some(Crc32c::new()),
            crc64nvme: Some(Crc64Nvme::new()),
            ..ChecksumHasher::default()
        };
        hasher.update(bytes);
        hasher.finalize()
    }

    proptest::proptest! {
        #[test]
        fn the_sum_of_the_whole_is_that_of_its_bytes(parts: Vec<Vec<u8>>) {
            let all: Vec<Checksum> = parts.iter().map(|part| sums(part)).collect();
            let whole = sums(&parts.concat());
            for kind in &KINDS[..3] {
                let each = parts.iter().zip(&all);
                let each = each.map(|(part, sums)| (part.len() as u64, of_kind(sums, kind)));
                let each: Vec<_> = each.collect();
                assert_eq!(full(kind, &each).as_ref(), of_kind(&whole, kind));
            }
        }
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let sum = sums(b"x").checksum_crc32;
        assert_eq!(full(KINDS[0], &[(1, sum.as_ref()), (1, None)]), None);
        assert_eq!(full(KINDS[3], &[(1, sum.as_ref())]), None);
        assert_eq!(full(KINDS[2], &[(1, sum.as_ref())]), None);
        assert_eq!(composite(KINDS[0], &[(1, None)]), None);
        // A checksum of one checksum.
        let one = composite(KINDS[0], &[(1, sum.as_ref())]).unwrap();
        let inner = sums(&decoded(&sum.unwrap()).unwrap())
            .checksum_crc32
            .unwrap();
        assert_eq!(one, format!("{inner}-1"));
    }
}
