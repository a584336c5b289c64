//! CRC32C, the checksum of lumps, of what describes them on the disk, and of `lumpscope.v1`.

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use crc_fast::{Digest, checksum_combine};

/// Checksum of `bytes`.
#[must_use]
pub fn of(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// Checksum of bytes whose checksum is `crc`, and of `bytes` behind them.
#[must_use]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    low(digest.finalize())
}

/// Checksum of bytes whose checksum is `crc`, and of `len` bytes with the checksum `next` behind
/// them.
#[must_use]
pub fn combine(crc: u32, next: u32, len: u64) -> u32 {
    low(checksum_combine(
        Crc32Iscsi,
        u64::from(crc),
        u64::from(next),
        len,
    ))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a checksum of 32 bits in a type that has room for others"
)]
const fn low(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        // RFC 3720, B.4.
        let ascending: Vec<u8> = (0..32).collect();
        for (bytes, crc) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&ascending, 0x46dd_794e),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(of(bytes), crc, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_sum_is_the_same_in_parts(
            bytes in proptest::collection::vec(any::<u8>(), 0..5000),
            at in any::<proptest::sample::Index>(),
        ) {
            // One bit at a time, as the polynomial says.
            let bit = |crc: u32| (crc >> 1) ^ (crc & 1).wrapping_neg() & 0x82f6_3b78;
            let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc));
            let whole = !bytes.iter().fold(u32::MAX, byte);
            prop_assert_eq!(of(&bytes), whole);
            let (first, next) = bytes.split_at(at.index(bytes.len() + 1));
            prop_assert_eq!(append(of(first), next), whole);
            prop_assert_eq!(combine(of(first), of(next), next.len() as u64), whole);
        }
    }
}
