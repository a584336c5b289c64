//! The bodies of the lumps: slices of one region of random bytes, which client and peer both make
//! from the same seed. Nothing is copied to have a body, and every byte that comes back is known.

use std::sync::OnceLock;

use bytes::Bytes;

/// Bytes of the region: larger than the caches, or serving from it would be serving from them.
const REGION: usize = 64 << 20;
/// Bodies begin at multiples of this: not aligned to pages, as little of a network is.
const STEP: u64 = 4099;
const SEED: u64 = 0x6c75_6d70;

/// Ids carry the size of their lump, since nothing is kept: 4 MiB when this bit is set.
pub(crate) const LARGE_BIT: u64 = 1 << 40;

/// Size of the lump with this id.
pub(crate) fn size_of(id: u64) -> usize {
    if id & LARGE_BIT == 0 {
        1 << 20
    } else {
        4 << 20
    }
}

fn region() -> &'static Bytes {
    static REGION_BYTES: OnceLock<Bytes> = OnceLock::new();
    REGION_BYTES.get_or_init(|| {
        let mut bytes = vec![0; REGION];
        fastrand::Rng::with_seed(SEED).fill(&mut bytes);
        bytes.into()
    })
}

/// Makes the region, which takes a moment, before anything is timed.
pub(crate) fn prepare() {
    region();
}

/// The body of a lump. `size` is at most 4 MiB.
pub(crate) fn body(id: u64, size: usize) -> Bytes {
    let room = u64::try_from(REGION - size).unwrap_or(0) / STEP;
    let at = usize::try_from(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) % room * STEP).unwrap_or(0);
    region().slice(at..at + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_differ_and_repeat() {
        let size = 4 << 20;
        assert_eq!(body(7, size), body(7, size));
        assert_ne!(body(7, size), body(8, size));
        assert_eq!(body(u64::MAX, size).len(), size);
    }
}
