//! Contents of the drive's memory: sectors that are not on the platters yet, and places where
//! writing them out will lose a revolution.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Streams of writes whose ends are remembered.
const STREAMS: usize = 8;

/// Sets of sectors as stretches that neither touch nor overlap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extents {
    by_start: BTreeMap<u64, u64>,
    sectors: u64,
}

impl Extents {
    /// Sectors in all of them.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The extent that holds `sector`, or ends right at it.
    fn at_or_before(&self, sector: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.by_start.range(..=sector).next_back()?;
        (end >= sector).then_some((start, end))
    }

    /// The first extent that begins at `sector` or later.
    pub(crate) fn next_from(&self, sector: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.by_start.range(sector..).next()?;
        Some((start, end))
    }

    pub(crate) fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((before, until)) = self.at_or_before(start) {
            self.take(before, until);
            start = before;
            end = end.max(until);
        }
        while let Some((next, until)) = self.next_from(start).filter(|(next, _)| *next <= end) {
            self.take(next, until);
            end = end.max(until);
        }
        self.put(start, end);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if let Some((before, until)) = self.at_or_before(start) {
            self.take(before, until);
            self.put(before, start);
            self.put(end, until);
        }
        while let Some((next, until)) = self.next_from(start).filter(|(next, _)| *next < end) {
            self.take(next, until);
            self.put(end, until);
        }
    }

    fn take(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.sectors -= end - start;
    }

    fn put(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.sectors += end - start;
        }
    }

    /// True: all of these are in it.
    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let found = self.at_or_before(start);
        start < end && found.is_some_and(|(_, until)| until >= end)
    }
}

/// Verdict of the overlap rule on a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Append {
    /// It rewrites nothing that the write before has written.
    Clean,
    /// It rewrites the end of the write before, which the drive absorbs.
    Absorbed,
    /// It rewrites the end of the write before, too late.
    Late,
}

/// Where writes that follow each other have come to.
#[derive(Debug, Clone, Copy)]
struct Stream {
    end: u64,
    /// Sectors since it began, or since the last revolution was lost.
    since: u64,
}

/// The overlap rule's memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams {
    latest_first: VecDeque<Stream>,
}

impl Streams {
    /// Judges a write of the sectors from `start` to `end`, with units of `physical` sectors and a
    /// window of so many sectors.
    pub(crate) fn judge(&mut self, start: u64, end: u64, physical: u64, window: u64) -> Append {
        let follows =
            |stream: &Stream| start <= stream.end && stream.end - start <= physical && end > start;
        let Some(found) = self.latest_first.iter().position(follows) else {
            self.remember(Stream {
                end,
                since: end - start,
            });
            return Append::Clean;
        };
        let Some(mut stream) = self.latest_first.remove(found) else {
            return Append::Clean;
        };
        let append = match stream.end - start {
            0 => Append::Clean,
            _ if stream.since < window => Append::Absorbed,
            _ => Append::Late,
        };
        stream.since = match append {
            Append::Late => end - start,
            Append::Clean | Append::Absorbed => stream.since + end.saturating_sub(stream.end),
        };
        stream.end = stream.end.max(end);
        self.remember(stream);
        append
    }

    fn remember(&mut self, stream: Stream) {
        self.latest_first.push_front(stream);
        self.latest_first.truncate(STREAMS);
    }
}

/// Stretches of sectors that were read and are still in memory, latest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments {
    latest_first: VecDeque<(u64, u64)>,
}

impl Segments {
    pub(crate) fn keep(&mut self, start: u64, end: u64, most: usize) {
        if start < end {
            self.latest_first.push_front((start, end));
            self.latest_first.truncate(most);
        }
    }

    pub(crate) fn covers(&self, start: u64, end: u64) -> bool {
        let mut kept = self.latest_first.iter();
        start < end && kept.any(|(first, until)| *first <= start && end <= *until)
    }

    /// Forgets what was overwritten.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        self.latest_first
            .retain(|(first, until)| end <= *first || *until <= start);
    }
}

/// Places where the platters turn once more before the write goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breaks(BTreeSet<u64>);

impl Breaks {
    pub(crate) fn add(&mut self, sector: u64) {
        self.0.insert(sector);
    }

    /// Whether one is right here; it is gone then.
    pub(crate) fn take(&mut self, sector: u64) -> bool {
        self.0.remove(&sector)
    }

    /// The next one after `sector` and before `end`.
    pub(crate) fn after(&self, sector: u64, end: u64) -> Option<u64> {
        let from = sector.saturating_add(1);
        if from >= end {
            return None;
        }
        self.0.range(from..end).next().copied()
    }

    /// Forgets those in a stretch that was written in another way.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        while let Some(&sector) = self.0.range(start..end.max(start)).next() {
            self.0.remove(&sector);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_are_a_set(
            changes in prop::collection::vec((any::<bool>(), 0u64..200, 0u64..40), 1..60),
            probes in prop::collection::vec((0u64..240, 0u64..20), 20),
        ) {
            let (mut extents, mut model) = (Extents::default(), BTreeSet::new());
            for (insert, start, len) in changes {
                if insert {
                    extents.insert(start, start + len);
                    model.extend(start..start + len);
                } else {
                    extents.remove(start, start + len);
                    model.retain(|sector| !(start..start + len).contains(sector));
                }
                prop_assert_eq!(extents.sectors(), model.len() as u64);
                prop_assert_eq!(extents.is_empty(), model.is_empty());
            }
            for (start, len) in probes {
                let all = len > 0 && (start..start + len).all(|sector| model.contains(&sector));
                prop_assert_eq!(extents.covers(start, start + len), all);
            }
            let (mut at, mut seen) = (0, 0);
            while let Some((start, end)) = extents.next_from(at) {
                prop_assert!(start < end && (seen == 0 || start > at));
                seen += end - start;
                at = end;
            }
            prop_assert_eq!(seen, extents.sectors());
        }
    }

    #[test]
    fn an_append_is_absorbed_within_the_window() {
        let mut streams = Streams::default();
        let mut judge = |start, end| streams.judge(start, end, 8, 100);
        assert_eq!(judge(0, 50), Append::Clean);
        assert_eq!(judge(50, 60), Append::Clean);
        assert_eq!(judge(59, 99), Append::Absorbed);
        assert_eq!(judge(98, 120), Append::Absorbed);
        assert_eq!(judge(119, 200), Append::Late);
        assert_eq!(judge(199, 201), Append::Absorbed);
        // Somewhere else, and back: both are remembered.
        assert_eq!(judge(5000, 5100), Append::Clean);
        assert_eq!(judge(5099, 5101), Append::Late);
        assert_eq!(judge(194, 210), Append::Absorbed);
        // Nine sectors back is no end of a write.
        assert_eq!(judge(201, 300), Append::Clean);
    }

    #[test]
    fn what_was_read_is_kept_until_it_is_overwritten() {
        let mut segments = Segments::default();
        segments.keep(0, 10, 2);
        segments.keep(20, 30, 2);
        assert!(segments.covers(0, 10) && segments.covers(21, 22) && !segments.covers(5, 25));
        segments.forget(9, 12);
        assert!(!segments.covers(0, 5));
        segments.keep(40, 50, 2);
        segments.keep(60, 70, 2);
        assert!(!segments.covers(20, 30));
    }
}
