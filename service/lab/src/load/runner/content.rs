//! The bytes of a lump: the same for the same id and version, different for any other.

use bytes::Bytes;

/// The content of a lump that was put `version` times (from 1): bytes that no two lumps share, that
/// do not compress, and that are cheap to make, so that a run is not slowed by them.
#[must_use]
pub fn content(id: u64, version: u64, size: u64) -> Bytes {
    let seed = id.rotate_left(32) ^ version.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
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
        assert_ne!(lump, content(5, 2, 1003));
        assert_ne!(lump, content(6, 1, 1003));
        assert_eq!(content(1, 1, 0).len(), 0);
    }
}
