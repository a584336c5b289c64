//! The bytes of a lump: the same for the same id and version, different for any other.

use bytes::Bytes;
use rand07::rngs::StdRng;
use rand07::{RngCore, SeedableRng};

/// Which bytes lumps have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ContentRule {
    /// Bytes that are cheap to make, so that a run is not slowed by them.
    #[default]
    Fast,
    /// Those of the original benchmark's verification: rand 0.7's `StdRng`, seeded with 16 zero
    /// bytes and the id, big-endian. The original gives an overwritten lump the same bytes again,
    /// so it cannot see an overwrite that was lost; here the first 8 bytes of the seed count the
    /// overwrites, and are zero before the first.
    Published,
}

/// The content of a lump that was put `version` times (from 1).
#[must_use]
pub fn content(rule: ContentRule, id: u64, version: u64, size: u64) -> Bytes {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    match rule {
        ContentRule::Fast => fast(id, version, size),
        ContentRule::Published => published(id, version, size),
    }
}

fn published(id: u64, version: u64, size: usize) -> Bytes {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&version.saturating_sub(1).to_be_bytes());
    seed[24..].copy_from_slice(&id.to_be_bytes());
    let mut bytes = vec![0; size];
    StdRng::from_seed(seed).fill_bytes(&mut bytes);
    Bytes::from(bytes)
}

/// Bytes that no two lumps share and that do not compress.
fn fast(id: u64, version: u64, size: usize) -> Bytes {
    let seed = id.rotate_left(32) ^ version.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let mut bytes = vec![0; size];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    Bytes::from(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_id_and_version_and_has_the_size() {
        for rule in [ContentRule::Fast, ContentRule::Published] {
            let lump = content(rule, 5, 1, 1003);
            assert_eq!(lump.len(), 1003);
            assert_eq!(lump, content(rule, 5, 1, 1003));
            assert_eq!(lump[..100], content(rule, 5, 1, 100));
            assert_ne!(lump, content(rule, 5, 2, 1003));
            assert_ne!(lump, content(rule, 6, 1, 1003));
            assert_eq!(content(rule, 1, 1, 0).len(), 0);
        }
    }

    #[test]
    fn the_published_content_is_that_of_the_published_seed() {
        let mut seed = [0; 32];
        seed[16..].copy_from_slice(&u128::from(0x0102_u64).to_be_bytes());
        let mut expected = [0; 77];
        StdRng::from_seed(seed).fill_bytes(&mut expected);
        assert_eq!(content(ContentRule::Published, 0x0102, 1, 77)[..], expected);
    }
}
