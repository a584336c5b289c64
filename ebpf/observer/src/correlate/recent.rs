//! The latest block requests of a disk: by the time of sending, and by that of completion. Both are
//! searched from their ends: a disk may do 100,000 block requests a second, and what is asked for
//! is most often among the last.

use std::collections::VecDeque;

use lumpscope_ebpf_common::Ranges;

use crate::event::Event;

use super::owner::Owner;

/// Block requests remembered of one disk; beyond that the oldest are forgotten. What is asked of
/// them lies less than a tenth of a second back, unless the disk is slow and they are few.
pub(super) const MAX_RECENT: usize = 16_384;

/// The latest block requests of a disk.
#[derive(Debug)]
pub(super) struct Recent {
    /// Reads and writes, by the time they were sent.
    sent: VecDeque<Sent>,
    /// Everything whose completion was seen, by the time of it.
    done: VecDeque<CompletedBlock>,
    /// Completions up to this time may have been forgotten, or were not seen.
    forgotten_ns: u64,
    /// The disk's access ranges.
    pub(super) ranges: Ranges,
}

/// A read or write that the disk was sent.
#[derive(Debug)]
struct Sent {
    issue_ns: u64,
    /// Its access range.
    range: usize,
    /// Sector after it.
    end: u64,
    owner: Owner,
}

/// A block request that completed.
#[derive(Debug)]
pub(super) struct CompletedBlock {
    pub(super) issue_ns: u64,
    pub(super) done_ns: u64,
    pub(super) owner: Owner,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent {
            sent: VecDeque::new(),
            done: VecDeque::new(),
            forgotten_ns: 0,
            ranges: Ranges::ONE,
        }
    }
}

impl Recent {
    pub(super) fn add(&mut self, event: &Event, owner: &Owner) {
        let Some(issue_ns) = event.issue_ns else {
            self.forgotten_ns = self.forgotten_ns.max(event.last_ns());
            return;
        };
        if event.op.is_data() {
            let sent = Sent {
                issue_ns,
                range: self.ranges.range(event.sector),
                end: event.end_sector(),
                owner: owner.clone(),
            };
            insert(&mut self.sent, sent, |s| s.issue_ns);
        }
        let Some(done_ns) = event.completed_ns() else {
            self.forgotten_ns = self.forgotten_ns.max(issue_ns);
            return;
        };
        let done = CompletedBlock {
            issue_ns,
            done_ns,
            owner: owner.clone(),
        };
        if let Some(gone) = insert(&mut self.done, done, |d| d.done_ns) {
            self.forgotten_ns = self.forgotten_ns.max(gone.done_ns);
        }
    }

    /// The data request that the disk was sent before this one, if that is certain: the one sent
    /// last before it in its access range, and ending where the seek distance was measured from.
    pub(super) fn previous(&self, event: &Event) -> Option<&Owner> {
        let (issue, seek) = (event.issue_ns?, event.seek?);
        let before = position(&self.sent, |s| s.issue_ns < issue);
        let range = self.ranges.range(event.sector);
        let mut earlier = self.sent.range(..before).rev();
        let last = earlier.find(|sent| sent.range == range)?;
        let from = event.sector.checked_add_signed(seek.checked_neg()?)?;
        (last.end == from).then_some(&last.owner)
    }

    /// Block requests that completed in (from, to], the last first.
    pub(super) fn completed(
        &self,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = &CompletedBlock> {
        let first = position(&self.done, |d| d.done_ns <= from_ns);
        let end = position(&self.done, |d| d.done_ns <= to_ns);
        self.done.range(first..end.max(first)).rev()
    }

    /// True: nothing that completed after this time was forgotten.
    pub(super) fn reaches_back_to(&self, ns: u64) -> bool {
        ns >= self.forgotten_ns
    }
}

/// How many are before a place in the order, of which the first are. As
/// [`VecDeque::partition_point`], but in time for the distance from the end.
fn position<T>(all: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut high, mut step) = (0, all.len(), 1);
    while high > 0 {
        let at = high.saturating_sub(step);
        if is_before(&all[at]) {
            low = at + 1;
            break;
        }
        (high, step) = (at, step * 2);
    }
    while low < high {
        let at = low.midpoint(high);
        if is_before(&all[at]) {
            low = at + 1;
        } else {
            high = at;
        }
    }
    low
}

/// Inserts in the order of a key, mostly at the end; returns what did not fit any more.
fn insert<T>(all: &mut VecDeque<T>, one: T, key: impl Fn(&T) -> u64) -> Option<T> {
    let new = key(&one);
    let at = position(all, |other| key(other) <= new);
    if all.len() < MAX_RECENT {
        all.insert(at, one);
        return None;
    }
    if at == 0 {
        return Some(one);
    }
    let gone = all.pop_front();
    all.insert(at - 1, one);
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_from_the_end_as_from_anywhere() {
        for len in [0, 1, 2, 3, 7, 100, 1000] {
            let mut all: VecDeque<u64> = (0..len).map(|n| n / 3).collect();
            all.rotate_left(usize::try_from(len).expect("small") / 2);
            all.make_contiguous().sort_unstable();
            for ns in 0..=len {
                let before = |n: &u64| *n < ns;
                assert_eq!(position(&all, before), all.partition_point(before));
            }
        }
    }

    #[test]
    fn what_comes_late_finds_its_place_and_the_oldest_goes() {
        let mut all = VecDeque::new();
        for ns in [5, 3, 9, 7, 7, 1] {
            assert_eq!(insert(&mut all, ns, |n| *n), None);
        }
        assert_eq!(all, [1, 3, 5, 7, 7, 9]);
        all.extend((10..).take(MAX_RECENT - 6));
        assert_eq!(insert(&mut all, 0, |n| *n), Some(0));
        assert_eq!(insert(&mut all, 8, |n| *n), Some(1));
        let expected = [3, 5, 7, 7, 8, 9];
        assert_eq!(all.iter().take(6).copied().collect::<Vec<u64>>(), expected);
        assert_eq!(all.len(), MAX_RECENT);
    }
}
