//! Slots of disks in the kernel side's tables.

use std::collections::VecDeque;

/// The slots. One that was given back is used again as late as possible: what the disk before had
/// in flight should have ended by then.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    limit: u32,
    next: u32,
    free: VecDeque<u32>,
}

/// A slot for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    /// True: another disk had it before, and left its counts there.
    pub(crate) used: bool,
}

impl Slots {
    /// `limit` slots, none of them used yet.
    pub(crate) fn new(limit: u32) -> Slots {
        Slots {
            limit,
            ..Slots::default()
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// A free slot; `None`: there is none.
    pub(crate) fn take(&mut self) -> Option<Slot> {
        if self.next < self.limit {
            let number = self.next;
            self.next += 1;
            return Some(Slot {
                number,
                used: false,
            });
        }
        let number = self.free.pop_front()?;
        Some(Slot { number, used: true })
    }

    pub(crate) fn give_back(&mut self, number: u32) {
        self.free.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_when_no_fresh_one_is_left() {
        let mut slots = Slots::new(2);
        let fresh = |number| {
            Some(Slot {
                number,
                used: false,
            })
        };
        assert_eq!(slots.take(), fresh(0));
        slots.give_back(0);
        assert_eq!(slots.take(), fresh(1));
        let again = Slot {
            number: 0,
            used: true,
        };
        assert_eq!(slots.take(), Some(again));
        assert_eq!(slots.take(), None);
        slots.give_back(1);
        assert_eq!(slots.take().map(|slot| slot.number), Some(1));
    }
}
