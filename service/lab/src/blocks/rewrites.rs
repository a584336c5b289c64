//! Rewrites: sectors that were written before.

use std::collections::BTreeMap;

/// Sets of sectors as ranges that neither touch nor overlap: begin to end (exclusive).
#[derive(Debug, Default)]
pub(super) struct SectorSet(BTreeMap<u64, u64>);

impl SectorSet {
    /// How many sectors of a range were written before.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        let first = self.0.range(..=from).next_back();
        let begin = first.map_or(from, |(begin, _)| *begin);
        let ranges = self.0.range(begin..to.max(begin));
        ranges
            .map(|(begin, end)| (*end).min(to).saturating_sub((*begin).max(from)))
            .sum()
    }

    /// Remembers a range.
    pub(super) fn add(&mut self, from: u64, to: u64) {
        let (mut from, mut to) = (from, to);
        if let Some((&begin, &end)) = self.0.range(..=from).next_back()
            && end >= from
        {
            (from, to) = (begin, to.max(end));
        }
        let swallowed: Vec<u64> = self.0.range(from..=to).map(|(begin, _)| *begin).collect();
        for begin in swallowed {
            to = self.0.remove(&begin).map_or(to, |end| to.max(end));
        }
        self.0.insert(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_counted() {
        let mut written = SectorSet::default();
        assert_eq!(written.within(0, 100), 0);
        for (from, to) in [(10, 20), (30, 40), (20, 25), (5, 12), (50, 60)] {
            written.add(from, to);
        }
        assert_eq!(written.0, BTreeMap::from([(5, 25), (30, 40), (50, 60)]));
        for (from, to, expected) in [
            (0, 5, 0),
            (0, 6, 1),
            (24, 31, 2),
            (25, 30, 0),
            (0, 100, 40),
            (35, 36, 1),
            (60, 70, 0),
        ] {
            assert_eq!(written.within(from, to), expected, "{from}..{to}");
        }
        written.add(0, 100);
        assert_eq!(written.0, BTreeMap::from([(0, 100)]));
        written.add(3, 4);
        assert_eq!(written.within(0, 1000), 100);
    }
}
