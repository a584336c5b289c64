//! The checksums of a whole object of parts, from those of its parts, and the one that its upload
//! was begun with.

use lumpscope_objects::Pairs;
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType, CompletedPart};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::checks::{self, CHECKSUM, KINDS, TYPE, decoded, encoded, kept_as};

/// The attribute of an upload, and of the object made of it, that names its checksum.
pub(super) const ALGORITHM: &str = "x-amz-checksum-algorithm";
/// The attribute of an object with the checksums of its parts, one behind the other.
const OF_PARTS: &str = "lumpscope-part-checksums";
/// Most bytes of that attribute: the tags of the object need room beside it.
pub(super) const MAX_OF_PARTS: usize = 3072;
/// Bytes of a checksum of each of [`KINDS`].
const BYTES: [usize; 5] = [4, 4, 8, 20, 32];

/// The checksum that an upload was begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promised {
    /// One of [`KINDS`].
    pub(super) kind: &'static str,
    /// True: of the checksums of the parts, not of all bytes.
    pub(super) composite: bool,
}

impl Promised {
    /// The one that a client asks for; `None`: none.
    ///
    /// # Errors
    /// `InvalidRequest`: there is no such one.
    pub(super) fn of(algorithm: Option<&str>, wanted: Option<&str>) -> S3Result<Option<Self>> {
        let refused = |why: String| Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        let Some(algorithm) = algorithm else {
            return match wanted {
                None => Ok(None),
                Some(_) => refused(format!("{TYPE} needs {ALGORITHM}")),
            };
        };
        let Some(at) = place(algorithm) else {
            return refused(format!("{ALGORITHM} {algorithm} is not known"));
        };
        // What is no CRC cannot be had of the whole, and nobody asks for the other of CRC64.
        let (full, composite) = (at < 3, at != 2);
        let composite = match wanted {
            None => composite,
            Some(ChecksumType::COMPOSITE) if composite => true,
            Some(ChecksumType::FULL_OBJECT) if full => false,
            Some(other) => return refused(format!("{TYPE} {other} does not go with {algorithm}")),
        };
        let kind = KINDS[at];
        Ok(Some(Self { kind, composite }))
    }

    /// The one that is kept among attributes.
    pub(super) fn kept(attributes: &Pairs) -> Option<Self> {
        Some(Self {
            kind: KINDS[place(kept_as(attributes, ALGORITHM)?)?],
            composite: checks::is_composite(attributes),
        })
    }

    /// As it is kept.
    pub(super) fn attributes(self) -> Pairs {
        let [name, of] = [self.algorithm().as_str(), self.type_().as_str()].map(str::to_owned);
        vec![(ALGORITHM.to_owned(), name), (TYPE.to_owned(), of)]
    }

    pub(super) fn algorithm(self) -> ChecksumAlgorithm {
        let name = self.kind.strip_prefix(CHECKSUM).unwrap_or_default();
        ChecksumAlgorithm::from(name.to_ascii_uppercase())
    }

    pub(super) fn type_(self) -> ChecksumType {
        ChecksumType::from_static(match self.composite {
            true => ChecksumType::COMPOSITE,
            false => ChecksumType::FULL_OBJECT,
        })
    }

    /// The attributes of an object of parts with these sizes and checksums, as far as they are
    /// known and as there is room.
    pub(super) fn of_object(self, parts: &[(u64, Option<&String>)]) -> Pairs {
        let whole = match self.composite {
            true => composite(self.kind, parts),
            false => full(self.kind, parts),
        };
        let each = parts.iter().map(|(_, sum)| decoded(sum.as_ref()?));
        let each = each.collect::<Option<Vec<_>>>();
        let each = each.map(|each| encoded(&each.concat()));
        let each = each.filter(|text| text.len() <= MAX_OF_PARTS);
        let whole = whole.map(|sum| (self.kind.to_owned(), sum));
        let each = each.map(|text| (OF_PARTS.to_owned(), text));
        whole.into_iter().chain(each).collect()
    }

    /// The checksum of a part of an object, counted from 1, if it was kept.
    pub(super) fn of_part(self, attributes: &Pairs, number: i32) -> Option<Checksum> {
        let at = KINDS.into_iter().position(|kind| kind == self.kind)?;
        let all = decoded(kept_as(attributes, OF_PARTS)?)?;
        let part = usize::try_from(number.checked_sub(1)?).ok()?;
        let sum = encoded(all.chunks_exact(BYTES[at]).nth(part)?);
        let mut told = self.attributes();
        told.push((self.kind.to_owned(), sum));
        Some(checks::kept(None, &told))
    }
}

/// The place among [`KINDS`] of an algorithm.
fn place(algorithm: &str) -> Option<usize> {
    let name = CHECKSUM.to_owned() + &algorithm.to_ascii_lowercase();
    KINDS.into_iter().position(|kind| kind == name)
}

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
    let mut hasher = checks::hasher(kind);
    for (_, sum) in parts {
        hasher.update(&decoded(sum.as_ref()?)?);
    }
    let sums = hasher.finalize();
    let sum = checks::of_kind(&sums, kind)?;
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
