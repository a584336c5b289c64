//! Small reproducible random numbers.

/// `SplitMix64`: the same seed gives the same numbers on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed; neighbouring seeds give unrelated numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that depends on this seed and on what it is for, and on nothing else: so that
    /// one decision can be made again without all decisions before it.
    #[must_use]
    pub fn derive(seed: u64, purpose: &[u64]) -> Self {
        let mut random = Self(seed);
        for part in purpose {
            random.0 = random.next() ^ part.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        }
        random
    }

    /// The next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit - 1`; 0 when `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// An index into something of `len` elements; 0 when there are none.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True `per_mille` times of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_never_change() {
        let mut random = Random::new(0);
        // The reference implementation's first outputs for seed 0.
        assert_eq!(random.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(Random::new(1).below(0), 0);
        assert_ne!(
            Random::derive(7, &[1, 2]).next(),
            Random::derive(7, &[2, 1]).next()
        );
    }
}
