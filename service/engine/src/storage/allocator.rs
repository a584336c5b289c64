//! Free blocks of the data region. Memory only.
//!
//! A put gets the blocks behind those of the put before it, so that what is written together lies
//! together, as long as the free extent there has room. Otherwise it begins a new run: in the
//! smallest extent that has room for one ([`RUN_BLOCKS`]), else in the smallest that is large
//! enough, as best fit does. Lumps of 1 to 4 MiB and of some KiB, put and deleted at random in a
//! region that is 90 % full, so never fail for fragmentation (`measured` in the tests); always
//! taking the largest extent would fail more than half of them.
//!
//! With n free extents, every operation takes O(log n) steps; there are no scans.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::Portion;
use crate::units::{BlockCount, BlockIndex};

/// The free extents, by place and by length.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    /// First block -> number of blocks. No two extents touch.
    by_start: BTreeMap<u64, u64>,
    /// (number of blocks, first block).
    by_len: BTreeSet<(u64, u64)>,
    free_blocks: u64,
    /// First block behind what was handed out last.
    cursor: u64,
}

/// Blocks of an extent in which a new run may begin, if there is one: 16 MiB with the default
/// block size, so that a disk seldom has to seek. Extents below that are left for what fits them.
const RUN_BLOCKS: u64 = 4096;

/// Extents that are looked at for one behind a certain block.
const EXTENTS_LOOKED_AT: usize = 64;

/// Two portions that share a block, or one that is already free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// A block that is claimed twice.
    pub(crate) block: u64,
}

impl Allocator {
    /// Everything free that `used` (in ascending order of its start) leaves of `blocks` blocks.
    pub(crate) fn around(
        blocks: u64,
        used: impl IntoIterator<Item = Portion>,
    ) -> Result<Self, Overlap> {
        let mut extents = Vec::new();
        let mut next = 0;
        for portion in used {
            let start = portion.start().0;
            if start < next {
                return Err(Overlap { block: start });
            }
            extents.push((next, start - next));
            next = portion.end().0;
        }
        extents.push((next, blocks.saturating_sub(next)));
        extents.retain(|&(_, len)| len > 0);
        Ok(Self::of_extents(extents))
    }

    /// `extents`: first block and number of blocks, ascending, none empty, none touching another.
    pub(crate) fn of_extents(extents: Vec<(u64, u64)>) -> Self {
        let free_blocks = extents.iter().map(|&(_, len)| len).sum();
        let by_len = extents.iter().map(|&(start, len)| (len, start)).collect();
        Self {
            by_start: extents.into_iter().collect(),
            by_len,
            free_blocks,
            cursor: 0,
        }
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Blocks of the largest extent.
    pub(crate) fn largest(&self) -> u64 {
        self.by_len.last().map_or(0, |&(len, _)| len)
    }

    pub(crate) fn extents(&self) -> u64 {
        self.by_start.len() as u64
    }

    /// How scattered the free blocks are: the share of them outside the largest extent, in parts
    /// per million. 0 when all are in one extent, or none is free.
    pub(crate) fn fragmentation_ppm(&self) -> u64 {
        let outside = u128::from(self.free_blocks - self.largest()) * 1_000_000;
        let share = outside.checked_div(self.free_blocks.into()).unwrap_or(0);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Takes blocks, behind those taken last if possible. `None`: no extent has as many.
    pub(crate) fn allocate(&mut self, blocks: BlockCount) -> Option<Portion> {
        let wanted = u64::from(blocks.0);
        let (start, len) = self
            .at_cursor(wanted)
            .or_else(|| self.smallest(wanted.max(RUN_BLOCKS)))
            .or_else(|| self.smallest(wanted))?;
        let portion = Portion::new(BlockIndex(start), blocks).ok()?;
        self.remove(start, len);
        self.insert(start + wanted, len - wanted);
        self.cursor = start + wanted;
        Some(portion)
    }

    /// Takes blocks from block `from` on, or the first that are behind it. `None`: none of the
    /// extents there that are looked at has as many.
    pub(crate) fn allocate_from(&mut self, blocks: BlockCount, from: u64) -> Option<Portion> {
        let wanted = u64::from(blocks.0);
        let holds = self.by_start.range(..=from).next_back();
        let holds = holds.map(|(&start, &len)| (start, len, from));
        let behind = self.by_start.range(from..).take(EXTENTS_LOOKED_AT);
        let behind = behind.map(|(&start, &len)| (start, len, start));
        let mut found = holds.into_iter().chain(behind);
        let (start, len, at) = found.find(|(start, len, at)| at + wanted <= start + len)?;
        let portion = Portion::new(BlockIndex(at), blocks).ok()?;
        self.remove(start, len);
        self.insert(start, at - start);
        self.insert(at + wanted, start + len - at - wanted);
        self.cursor = at + wanted;
        Some(portion)
    }

    /// Takes those of the blocks from `start` to before `end` that are free.
    pub(crate) fn take(&mut self, start: u64, end: u64) {
        while let Some((&before, &len)) = self.by_start.range(..end).next_back()
            && before + len > start
        {
            self.remove(before, len);
            self.insert(before, start.saturating_sub(before));
            self.insert(end, (before + len).saturating_sub(end));
        }
    }

    /// The extent that the cursor is in, if it has room.
    fn at_cursor(&self, wanted: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.by_start.range(..=self.cursor).next_back()?;
        (self.cursor < start + len && len >= wanted).then_some((start, len))
    }

    /// The smallest extent that has room, the first one of these.
    fn smallest(&self, wanted: u64) -> Option<(u64, u64)> {
        let &(len, start) = self.by_len.range((wanted, 0)..).next()?;
        Some((start, len))
    }

    /// Gives blocks back.
    ///
    /// # Panics
    /// When one of them is free already: that would hand it out twice and destroy a lump.
    pub(crate) fn free(&mut self, portion: Portion) {
        let (mut start, mut end) = (portion.start().0, portion.end().0);
        if let Some((&before, &len)) = self.by_start.range(..=start).next_back() {
            assert!(
                before + len <= start,
                "blocks {start}..{end} are freed twice"
            );
            if before + len == start {
                self.remove(before, len);
                start = before;
            }
        }
        if let Some((&after, &len)) = self.by_start.range(start..).next() {
            assert!(end <= after, "blocks {start}..{end} are freed twice");
            if after == end {
                self.remove(after, len);
                end = after + len;
            }
        }
        self.insert(start, end - start);
    }

    /// First block and number of blocks of every free extent.
    #[cfg(test)]
    pub(super) fn all_extents(&self) -> Vec<(u64, u64)> {
        self.by_start
            .iter()
            .map(|(&start, &len)| (start, len))
            .collect()
    }

    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
            self.free_blocks += len;
        }
    }

    fn remove(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
        self.free_blocks -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn portion(start: u64, len: u16) -> Portion {
        Portion::new(BlockIndex(start), BlockCount(len)).unwrap()
    }

    #[test]
    fn puts_go_one_behind_the_other() {
        let used = [portion(0, 15), portion(18, 2), portion(9000, 1)];
        let mut allocator = Allocator::around(20_000, used).unwrap();
        assert_eq!((allocator.free_blocks(), allocator.extents()), (19_982, 3));
        // Extents with room for a run first, the smallest of them; then on from there.
        assert_eq!(allocator.allocate(BlockCount(3)), Some(portion(20, 3)));
        assert_eq!(allocator.allocate(BlockCount(10)), Some(portion(23, 10)));
        let expected = Some(portion(33, 8967));
        assert_eq!(allocator.allocate(BlockCount(8967)), expected);
        let expected = Some(portion(9001, 7000));
        assert_eq!(allocator.allocate(BlockCount(7000)), expected);
        assert_eq!(allocator.allocate(BlockCount(4000)), None);
        let expected = Some(portion(16_001, 3999));
        assert_eq!(allocator.allocate(BlockCount(3999)), expected);
        // No room for a run any more: best fit.
        assert_eq!(allocator.allocate(BlockCount(2)), Some(portion(15, 2)));
        // What lies before the cursor became free and took it in.
        allocator.free(portion(0, 15));
        assert_eq!(allocator.fragmentation_ppm(), 62_500);
        assert_eq!(allocator.allocate(BlockCount(1)), Some(portion(17, 1)));
        allocator.free(portion(15, 3));
        assert_eq!((allocator.largest(), allocator.extents()), (18, 1));
        assert_eq!(allocator.fragmentation_ppm(), 0);
        assert_eq!(allocator.allocate(BlockCount(18)), Some(portion(0, 18)));
        assert_eq!(allocator.fragmentation_ppm(), 0);
    }

    /// Lumps of 1 to 4 MiB and small ones, put and deleted at random in 8 GiB that are 90 % full:
    /// the numbers behind the choice of the policy.
    #[test]
    fn measured_churn_never_fails_for_fragmentation() {
        const BLOCKS: u64 = 1 << 21;
        let mut allocator = Allocator::around(BLOCKS, []).unwrap();
        let mut seed = 88_172_645_463_325_252_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let (mut live, mut written): (Vec<Portion>, u64) = (Vec::new(), 0);
        let mut in_a_row = 0;
        while written < BLOCKS * 8 {
            let small = random(5) == 0;
            let len = if small {
                1 + random(16)
            } else {
                257 + random(768)
            };
            while (BLOCKS - allocator.free_blocks() + len) * 10 > BLOCKS * 9 {
                let at = usize::try_from(random(live.len() as u64)).unwrap();
                allocator.free(live.swap_remove(at));
            }
            let len = BlockCount(u16::try_from(len).unwrap());
            let got = allocator.allocate(len).expect("a tenth is free");
            let behind = live.last().is_some_and(|last| last.end() == got.start());
            in_a_row += u64::from(behind && written < BLOCKS / 2);
            written += u64::from(len.0);
            live.push(got);
        }
        assert!(in_a_row > 1500, "{in_a_row} consecutive puts while filling");
        assert!(
            allocator.extents() < 3000,
            "{} extents",
            allocator.extents()
        );
    }

    #[test]
    fn blocks_that_are_taken_are_handed_out_no_more() {
        let used = [portion(10, 5), portion(30, 5)];
        let mut allocator = Allocator::around(40, used).unwrap();
        allocator.take(8, 32);
        assert_eq!(allocator.all_extents(), [(0, 8), (35, 5)]);
        allocator.take(2, 4);
        allocator.take(39, 90);
        assert_eq!(allocator.all_extents(), [(0, 2), (4, 4), (35, 4)]);
        assert_eq!(allocator.free_blocks(), 10);
        let expected = Some(portion(5, 2));
        assert_eq!(allocator.allocate_from(BlockCount(2), 5), expected);
        let expected = Some(portion(35, 4));
        assert_eq!(allocator.allocate_from(BlockCount(4), 6), expected);
        assert_eq!(allocator.allocate_from(BlockCount(4), 0), None);
    }

    #[test]
    fn overlapping_portions_are_found() {
        let used = [portion(0, 5), portion(4, 1)];
        assert_eq!(
            Allocator::around(10, used).unwrap_err(),
            Overlap { block: 4 }
        );
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_a_bug() {
        Allocator::around(10, []).unwrap().free(portion(3, 1));
    }

    proptest! {
        #[test]
        fn no_block_is_lost_or_handed_out_twice(steps in prop::collection::vec((0_u16..3, 1_u16..9), 1..200)) {
            let mut allocator = Allocator::around(64, []).unwrap();
            let mut held: Vec<Portion> = Vec::new();
            for (kind, len) in steps {
                if kind < 2 {
                    let from = (held.len() as u64 * 37) % 64;
                    let got = match kind {
                        0 => allocator.allocate(BlockCount(len)),
                        _ => allocator.allocate_from(BlockCount(len), from),
                    };
                    if let Some(got) = got {
                        prop_assert!(held.iter().all(|other| !other.overlaps(got)));
                        held.push(got);
                    }
                } else if !held.is_empty() {
                    allocator.free(held.swap_remove(usize::from(len) % held.len()));
                }
                let used: u64 = held.iter().map(|portion| u64::from(portion.len().0)).sum();
                prop_assert_eq!(allocator.free_blocks(), 64 - used);
            }
            for portion in held {
                allocator.free(portion);
            }
            prop_assert_eq!((allocator.largest(), allocator.extents()), (64, 1));
        }
    }
}
