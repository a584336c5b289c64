//! The bytes of a lump: the same for the same id and version, different for any other.

use bytes::Bytes;

/// Bytes that no two lumps share and that do not compress.
pub(super) fn content(id: u64, version: u64, size: u64) -> Bytes {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(size.next_multiple_of(8));
    // SplitMix64: https://prng.di.unimi.it/splitmix64.c
    let mut state = id.rotate_left(32) ^ version.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    while bytes.len() < size {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bytes.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_id_and_version_and_has_the_size() {
        let lump = content(5, 1, 1003);
        assert_eq!(lump.len(), 1003);
        assert_eq!(lump, content(5, 1, 1003));
        assert_eq!(lump[..100], content(5, 1, 100));
        assert_ne!(lump, content(5, 2, 1003));
        assert_ne!(lump, content(6, 1, 1003));
        assert_eq!(content(1, 1, 0).len(), 0);
    }
}
