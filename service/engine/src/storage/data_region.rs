//! Blocks of the data region with what keeps them from being reused.
//!
//! Blocks that a change freed come back to the allocator only when two things hold: the journal
//! record of that change is on stable storage (else a power cut would bring the old lump back
//! with another lump's bytes), and nobody reads them. A read lasts as long as its I/O; a lump that
//! is open is read as fast as a client takes it, so no put waits for its blocks.

use std::collections::HashMap;

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
    /// Blocks that the device refuses to write. Known until the store is closed.
    bad_blocks: u64,
    /// Portions that these blocks belong to.
    bad_places: u64,
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
            bad_blocks: 0,
            bad_places: 0,
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

    /// Gives back blocks that no record has ever named.
    pub(crate) fn free_unused(&mut self, portion: Portion) {
        self.allocator.free(portion);
    }

    /// Never gives these blocks, which no record has named, to anybody again.
    pub(crate) fn set_aside(&mut self, portion: Portion) {
        self.bad_blocks += u64::from(portion.len().0);
        self.bad_places += 1;
    }

    /// Portions that were set aside.
    pub(crate) fn bad_places(&self) -> u64 {
        self.bad_places
    }

    /// Blocks that were set aside.
    pub(crate) fn bad_blocks(&self) -> u64 {
        self.bad_blocks
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
        assert_eq!(
            (region.allocate(BlockCount(1)), region.deferred_blocks()),
            (None, 4)
        );
        assert!(region.unpin(portion));
        assert_eq!(
            (region.allocate(BlockCount(4)), region.deferred_blocks()),
            (Some(portion), 0)
        );
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
