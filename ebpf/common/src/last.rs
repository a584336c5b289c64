//! What a disk was sent last, for each of its actuators.

use core::mem::size_of;

/// Access ranges of a disk that are told apart. Those beyond count as one with the last of these.
pub const MAX_RANGES: usize = 8;

/// The parts of a disk that have an actuator each: their first sectors, ascending. All but the first
/// are [`Ranges::NONE`] where there is none; what lies before the first is the first's, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Ranges(pub [u64; MAX_RANGES]);

/// What one disk was sent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Last {
    /// Of each range, the sector after its last data request; [`Ranges::NONE`]: none was sent yet.
    pub ends: [u64; MAX_RANGES],
    /// Where the ranges begin.
    pub ranges: Ranges,
    /// Class of the last request that asked for a flush: a guess whose the next flush is.
    pub flush_class: u64,
}

const _: () = assert!(size_of::<Last>() == Last::WORDS * 8);

impl Ranges {
    /// No sector.
    pub const NONE: u64 = u64::MAX;
    /// A disk with one.
    pub const ONE: Ranges = Ranges::of(&[]);

    /// Of their first sectors, in ascending order.
    #[must_use]
    pub const fn of(starts: &[u64]) -> Ranges {
        let mut all = [Ranges::NONE; MAX_RANGES];
        all[0] = 0;
        let mut i = 1;
        while i < MAX_RANGES && i < starts.len() {
            all[i] = starts[i];
            i += 1;
        }
        Ranges(all)
    }

    /// The range of a block request, by its first sector.
    #[inline(always)]
    #[must_use]
    pub const fn range(&self, sector: u64) -> usize {
        let mut next = 1;
        while next < MAX_RANGES && sector >= self.0[next] {
            next += 1;
        }
        next - 1
    }
}

impl Last {
    /// Its size in the map, in words of 8 bytes.
    pub const WORDS: usize = 2 * MAX_RANGES + 1;

    /// Of a disk that was sent nothing yet, as it is in the map.
    #[must_use]
    pub fn nothing(ranges: &Ranges) -> [u64; Last::WORDS] {
        let mut words = [Ranges::NONE; Last::WORDS];
        words[MAX_RANGES..2 * MAX_RANGES].copy_from_slice(&ranges.0);
        words[2 * MAX_RANGES] = 0;
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_in_the_range_that_begins_last_before_it() {
        let ranges = Ranges::of(&[0, 100, 200]);
        let of = [0, 99, 100, 199, 200, u64::MAX - 1].map(|sector| ranges.range(sector));
        assert_eq!(of, [0, 0, 1, 1, 2, 2]);
        assert_eq!(Ranges::ONE.range(u64::MAX - 1), 0);
    }

    #[test]
    fn ranges_beyond_the_bound_count_as_the_last() {
        let ranges = Ranges::of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(
            [6, 7, 8, 9].map(|sector| ranges.range(sector)),
            [6, 7, 7, 7]
        );
    }

    #[test]
    fn a_disk_that_was_sent_nothing_has_its_ranges() {
        let words = Last::nothing(&Ranges::of(&[0, 100]));
        assert_eq!(words[..MAX_RANGES], [Ranges::NONE; MAX_RANGES]);
        assert_eq!(words[MAX_RANGES..][..3], [0, 100, Ranges::NONE]);
        assert_eq!(words[2 * MAX_RANGES], 0);
    }
}
