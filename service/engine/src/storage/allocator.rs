//! Free blocks of the data region: best fit over coalesced extents. Memory only.

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
}

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
        let mut allocator = Self::default();
        let mut next = 0;
        for portion in used {
            let start = portion.start().0;
            if start < next {
                return Err(Overlap { block: start });
            }
            allocator.insert(next, start - next);
            next = portion.end().0;
        }
        allocator.insert(next, blocks.saturating_sub(next));
        Ok(allocator)
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

    /// Takes blocks from the smallest extent that has enough, the first one of these.
    pub(crate) fn allocate(&mut self, blocks: BlockCount) -> Option<Portion> {
        let wanted = u64::from(blocks.0);
        let &(len, start) = self.by_len.range((wanted, 0)..).next()?;
        let portion = Portion::new(BlockIndex(start), blocks).ok()?;
        self.remove(start, len);
        self.insert(start + wanted, len - wanted);
        Some(portion)
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
    fn best_fit_takes_the_smallest_extent_that_is_large_enough() {
        let used = [portion(10, 5), portion(18, 2), portion(30, 1)];
        let mut allocator = Allocator::around(100, used).unwrap();
        assert_eq!((allocator.free_blocks(), allocator.extents()), (92, 4));
        assert_eq!(allocator.allocate(BlockCount(3)), Some(portion(15, 3)));
        assert_eq!(allocator.allocate(BlockCount(10)), Some(portion(0, 10)));
        assert_eq!(allocator.allocate(BlockCount(10)), Some(portion(20, 10)));
        assert_eq!(allocator.allocate(BlockCount(70)), None);
        assert_eq!(allocator.largest(), 69);
        allocator.free(portion(30, 1));
        assert_eq!((allocator.largest(), allocator.extents()), (70, 1));
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
        fn no_block_is_lost_or_handed_out_twice(steps in prop::collection::vec((0_u16..2, 1_u16..9), 1..200)) {
            let mut allocator = Allocator::around(64, []).unwrap();
            let mut held: Vec<Portion> = Vec::new();
            for (kind, len) in steps {
                if kind == 0 {
                    if let Some(got) = allocator.allocate(BlockCount(len)) {
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
