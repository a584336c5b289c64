//! The declared I/Os that a block request was made of.

use smallvec::SmallVec;

/// Requests or I/Os: mostly one or two.
pub(super) type Ids = SmallVec<[u64; 2]>;
/// Ranges of sectors: first, and the one after the last.
pub(super) type Ranges = SmallVec<[(u64, u64); 2]>;

/// The I/Os that a block request was made for, with the bytes of each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) parts: SmallVec<[MatchPart; 2]>,
    /// Bytes that no declared I/O asked for.
    pub(super) rest: u64,
    /// Declared I/Os that it may have been made for, but was not given to.
    pub(super) doubted: Vec<u64>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct MatchPart {
    /// Serial number of the I/O.
    pub(super) io: u64,
    /// Bytes of the block request that it asked for; 0 for a flush.
    pub(super) bytes: u64,
    /// That it is this one's follows from place and time alone, which also suit another.
    pub(super) uncertain: bool,
}

impl Match {
    pub(super) fn add(&mut self, io: u64, bytes: u64, uncertain: bool) {
        match self.parts.iter_mut().find(|part| part.io == io) {
            Some(part) => {
                part.bytes += bytes;
                part.uncertain |= uncertain;
            }
            None => self.parts.push(MatchPart {
                io,
                bytes,
                uncertain,
            }),
        }
    }

    /// True: whose it is, is not certain.
    pub(super) fn is_ambiguous(&self) -> bool {
        !self.doubted.is_empty() || self.parts.iter().any(|part| part.uncertain)
    }
}

/// Takes [start, end) out of the free ranges; returns how much of it was free.
pub(super) fn take_range(free: &mut Ranges, start: u64, end: u64) -> u64 {
    let mut taken = 0;
    let mut left = Ranges::new();
    for &(low, high) in free.iter() {
        let (from, to) = (low.max(start), high.min(end));
        if from >= to {
            left.push((low, high));
            continue;
        }
        taken += to - from;
        left.extend([(low, from), (to, high)].into_iter().filter(|(a, b)| a < b));
    }
    *free = left;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_taken_once() {
        let mut free = Ranges::from_slice(&[(0, 100)]);
        assert_eq!(take_range(&mut free, 10, 20), 10);
        assert_eq!(take_range(&mut free, 15, 30), 10);
        assert_eq!(free.as_slice(), [(0, 10), (30, 100)]);
        assert_eq!(take_range(&mut free, 0, 200), 80);
        assert!(free.is_empty());
    }
}
