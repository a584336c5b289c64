//! Blocks of the data region with what keeps them from being reused.
//!
//! Blocks that a change freed come back to the allocator only when two things hold: the journal
//! record of that change is on stable storage (else a power cut would bring the old lump back
//! with another lump's bytes), and nobody reads them. A read lasts as long as its I/O; a lump that
//! is open is read as fast as a client takes it, so no put waits for its blocks.

use std::collections::{BTreeMap, HashMap};

use super::allocator::Allocator;
use crate::format::Portion;
use crate::units::BlockCount;

#[derive(Debug)]
pub(crate) struct DataRegion {
    allocator: Allocator,
    blocks: u64,
    /// Freed by records that are not durable yet.
    not_durable: Vec<Portion>,
    /// First block -> readers, and whether the blocks are to be freed after the last one.
    pinned: HashMap<u64, Pin>,
    /// Blocks in `not_durable` and in pins to be freed, without those of lumps that are open.
    deferred_blocks: u64,
    /// Blocks that the device refuses to write: first block and how many. No two places touch.
    bad: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Pin {
    readers: u32,
    /// How many of them have the lump open.
    open: u32,
    free_after: Option<Portion>,
}

impl DataRegion {
    /// A region of `blocks` blocks, of which `allocator` knows the free ones.
    pub(crate) fn new(blocks: u64, allocator: Allocator) -> Self {
        Self {
            allocator,
            blocks,
            not_durable: Vec::new(),
            pinned: HashMap::new(),
            deferred_blocks: 0,
            bad: BTreeMap::new(),
        }
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// Blocks in use, those about to be freed included.
    pub(crate) fn used_blocks(&self) -> u64 {
        self.blocks - self.allocator.free_blocks()
    }

    /// Blocks that will soon be free without anybody deleting anything.
    pub(crate) fn deferred_blocks(&self) -> u64 {
        self.deferred_blocks
    }

    pub(crate) fn allocate(&mut self, blocks: BlockCount) -> Option<Portion> {
        self.allocator.allocate(blocks)
    }

    /// A free block in a part of the region that `random` chooses, or else any. `None`: there is none.
    pub(crate) fn allocate_anywhere(&mut self, random: u64) -> Option<Portion> {
        let one = BlockCount(1);
        let from = random.checked_rem(self.blocks)?;
        let portion = self.allocator.allocate_from(one, from);
        portion.or_else(|| self.allocator.allocate(one))
    }

    /// Gives back blocks that no record has ever named.
    pub(crate) fn free_unused(&mut self, portion: Portion) {
        self.allocator.free(portion);
    }

    /// Blocks far from those that the device has refused, if there are any; `places`: how many
    /// places are tried all over the region.
    pub(crate) fn allocate_away(
        &mut self,
        blocks: BlockCount,
        refused: Portion,
        places: u64,
    ) -> Option<Portion> {
        // A part of the region away, else a part of that: what is free far away may lie behind.
        let parts = |&distance: &u64| Some(distance / places).filter(|&distance| distance > 0);
        let mut distances = std::iter::successors(Some(self.blocks / places), parts);
        let away = distances.find_map(|distance| {
            let from = (refused.end().0 + distance) % self.blocks;
            self.allocator.allocate_from(blocks, from)
        });
        away.or_else(|| self.allocator.allocate(blocks))
    }

    /// Never gives these blocks, which no record has named, to anybody again.
    pub(crate) fn set_aside(&mut self, portion: Portion) {
        self.note_bad(portion.start().0, portion.end().0);
    }

    /// Blocks that the device refused to write before the store was opened are given to nobody.
    /// Those that a lump has stay its own.
    pub(crate) fn remembering(mut self, places: &[(u64, u64)]) -> Self {
        for &(start, len) in places {
            let end = start.saturating_add(len).min(self.blocks);
            if start < end {
                self.allocator.take(start, end);
                self.note_bad(start, end);
            }
        }
        self
    }

    fn note_bad(&mut self, mut start: u64, mut end: u64) {
        while let Some((&before, &len)) = self.bad.range(..=end).next_back()
            && before + len >= start
        {
            self.bad.remove(&before);
            start = start.min(before);
            end = end.max(before + len);
        }
        self.bad.insert(start, end - start);
    }

    /// The places that were set aside: first block and number of blocks.
    pub(crate) fn bad_places(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.bad.iter().map(|(&start, &len)| (start, len))
    }

    /// Blocks that were set aside.
    pub(crate) fn bad_blocks(&self) -> u64 {
        self.bad.values().sum()
    }

    /// Notes blocks that an applied record has freed.
    pub(crate) fn defer(&mut self, portion: Portion) {
        self.deferred_blocks += u64::from(portion.len().0);
        self.not_durable.push(portion);
    }

    /// Everything applied so far is durable now. True: blocks became free, or are not to be waited
    /// for any more.
    pub(crate) fn all_durable(&mut self) -> bool {
        let portions = std::mem::take(&mut self.not_durable);
        let mut settled = false;
        for portion in portions {
            match self.pinned.get_mut(&portion.start().0) {
                Some(pin) => {
                    pin.free_after = Some(portion);
                    if pin.open > 0 {
                        self.deferred_blocks -= u64::from(portion.len().0);
                        settled = true;
                    }
                }
                None => {
                    self.deferred_blocks -= u64::from(portion.len().0);
                    self.allocator.free(portion);
                    settled = true;
                }
            }
        }
        settled
    }

    /// A read of this portion begins.
    pub(crate) fn pin(&mut self, portion: Portion) {
        self.pinned.entry(portion.start().0).or_default().readers += 1;
    }

    /// A read of this portion has ended. True: blocks became free.
    pub(crate) fn unpin(&mut self, portion: Portion) -> bool {
        let start = portion.start().0;
        let Some(pin) = self.pinned.get_mut(&start) else {
            return false;
        };
        pin.readers -= 1;
        if pin.readers > 0 {
            return false;
        }
        let Some(portion) = self.pinned.remove(&start).and_then(|pin| pin.free_after) else {
            return false;
        };
        self.deferred_blocks -= u64::from(portion.len().0);
        self.allocator.free(portion);
        true
    }

    /// A read of this portion goes on for as long as the lump is open.
    pub(crate) fn keep_open(&mut self, portion: Portion) {
        if let Some(pin) = self.pinned.get_mut(&portion.start().0) {
            pin.open += 1;
            if pin.open == 1 && pin.free_after.is_some() {
                self.deferred_blocks -= u64::from(portion.len().0);
            }
        }
    }

    /// A lump that was kept open is read no more. True: blocks became free.
    pub(crate) fn closed(&mut self, portion: Portion) -> bool {
        if let Some(pin) = self.pinned.get_mut(&portion.start().0) {
            pin.open -= 1;
            if pin.open == 0 && pin.free_after.is_some() {
                self.deferred_blocks += u64::from(portion.len().0);
            }
        }
        self.unpin(portion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BlockIndex;

    #[test]
    fn freed_blocks_wait_for_durability_and_for_readers() {
        let portion = Portion::new(BlockIndex(0), BlockCount(4)).unwrap();
        let mut region = DataRegion::new(4, Allocator::around(4, [portion]).unwrap());
        region.pin(portion);
        region.pin(portion);
        region.defer(portion);
        assert_eq!(region.allocate(BlockCount(1)), None);
        assert!(!region.all_durable());
        assert!(!region.unpin(portion));
        assert_eq!(region.allocate(BlockCount(1)), None);
        assert_eq!(region.deferred_blocks(), 4);
        assert!(region.unpin(portion));
        assert_eq!(region.allocate(BlockCount(4)), Some(portion));
        assert_eq!(region.deferred_blocks(), 0);
    }

    #[test]
    fn bad_places_that_touch_are_one_and_none_is_handed_out() {
        let lump = Portion::new(BlockIndex(20), BlockCount(4)).unwrap();
        let region = DataRegion::new(40, Allocator::around(40, [lump]).unwrap());
        let mut region = region.remembering(&[(2, 2), (18, 4), (39, 90), (50, 1)]);
        let places = |region: &DataRegion| region.bad_places().collect::<Vec<_>>();
        assert_eq!(places(&region), [(2, 2), (18, 4), (39, 1)]);
        assert_eq!(region.used_blocks(), 2 + 2 + 4 + 1);
        let refused = region.allocate(BlockCount(2)).unwrap();
        assert_eq!(refused.start(), BlockIndex(0), "best fit");
        let away = region.allocate_away(BlockCount(2), refused, 4).unwrap();
        assert_eq!(away.start(), BlockIndex(2 + 40 / 4));
        region.set_aside(refused);
        assert_eq!(places(&region), [(0, 4), (18, 4), (39, 1)]);
        assert_eq!(region.bad_blocks(), 9);
    }

    #[test]
    fn nobody_waits_for_the_blocks_of_a_lump_that_is_open() {
        let portion = Portion::new(BlockIndex(0), BlockCount(4)).unwrap();
        for opened_after in [false, true] {
            let mut region = DataRegion::new(4, Allocator::around(4, [portion]).unwrap());
            region.pin(portion);
            region.pin(portion);
            if opened_after {
                region.defer(portion);
                assert!(!region.all_durable());
                assert_eq!(region.deferred_blocks(), 4);
                region.keep_open(portion);
            } else {
                region.keep_open(portion);
                region.defer(portion);
                assert!(region.all_durable(), "who waits is to look again");
            }
            assert_eq!(region.deferred_blocks(), 0);
            assert!(!region.closed(portion));
            assert_eq!(region.deferred_blocks(), 4, "the other read will soon end");
            assert_eq!(region.allocate(BlockCount(1)), None);
            assert!(region.unpin(portion));
            assert_eq!(region.allocate(BlockCount(4)), Some(portion));
            assert_eq!(region.deferred_blocks(), 0);
        }
    }
}
