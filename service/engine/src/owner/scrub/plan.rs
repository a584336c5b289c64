//! Which lump comes next, in the order of the disk.
//!
//! The index is ordered by id, and an order by place of all lumps would cost as much memory as the
//! index. So the lumps are taken in windows: the index is gone through, a slice at a time, and the
//! lumps that lie next after the last window are kept. A store of n lumps is gone through n / window
//! times in a pass.

use std::collections::{BinaryHeap, VecDeque};

use crate::format::Geometry;
use crate::lump::LumpId;
use crate::request::LumpRange;
use crate::storage::index::{Index, IndexEntry};
use crate::units::to_usize;

/// Fewest lumps of a window.
const SMALLEST_WINDOW: u64 = 64 * 1024;
/// Most lumps of a window: 32 MiB.
const LARGEST_WINDOW: u64 = 1024 * 1024;
/// A large store is gone through this many times in a pass, as long as windows can grow.
const WINDOWS: u64 = 32;

/// A lump and where it begins in the device or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScrubTarget {
    pub(super) offset: u64,
    pub(super) id: LumpId,
}

/// The windows of one pass.
#[derive(Debug, Default)]
pub(super) struct ScrubPlan {
    /// The present window, in order.
    ready: VecDeque<ScrubTarget>,
    /// Everything before this is in the present window or in those before it.
    from: u64,
    /// The next window, as far as the index has been gone through: the last one on top.
    next: BinaryHeap<ScrubTarget>,
    /// The first lump not gone through; `None`: the next window is complete.
    scan_from: Option<LumpId>,
    /// True: lumps lie behind the next window.
    more: bool,
    most: usize,
}

/// Result of [`ScrubPlan::scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// There is a window, or there will be after more slices.
    Going,
    /// No lump lies behind the last window.
    PassEnds,
}

/// Where a lump begins.
pub(super) fn place(geometry: &Geometry, entry: IndexEntry) -> u64 {
    match entry.portion() {
        Some(portion) => geometry.portion_offset(portion).0,
        None => geometry.ring_byte(entry.record()).0,
    }
}

impl ScrubPlan {
    /// A pass over what lies at `from` and behind it.
    pub(super) fn new(from: u64, lumps: u64) -> Self {
        let most = (lumps / WINDOWS).clamp(SMALLEST_WINDOW, LARGEST_WINDOW);
        Self::with_window(from, to_usize(most))
    }

    fn with_window(from: u64, most: usize) -> Self {
        Self {
            from,
            scan_from: Some(LumpId::MIN),
            most: most.max(1),
            ..Self::default()
        }
    }

    pub(super) fn pop(&mut self) -> Option<ScrubTarget> {
        self.ready.pop_front()
    }

    pub(super) fn put_back(&mut self, target: ScrubTarget) {
        self.ready.push_front(target);
    }

    /// Goes through `slice` more entries of the index when the present window is used up.
    pub(super) fn scan(&mut self, index: &Index, geometry: &Geometry, slice: usize) -> Scanned {
        if !self.ready.is_empty() {
            return Scanned::Going;
        }
        if let Some(start) = self.scan_from {
            self.take_slice(index, geometry, start, slice);
            if self.scan_from.is_some() {
                return Scanned::Going;
            }
        }
        let window = std::mem::take(&mut self.next).into_sorted_vec();
        let Some(last) = window.last() else {
            return Scanned::PassEnds;
        };
        self.from = last.offset + 1;
        self.ready = window.into();
        self.scan_from = self.more.then_some(LumpId::MIN);
        self.more = false;
        Scanned::Going
    }

    fn take_slice(&mut self, index: &Index, geometry: &Geometry, start: LumpId, slice: usize) {
        let mut entries = index.range(LumpRange { start, end: None });
        for (id, entry) in entries.by_ref().take(slice) {
            let offset = place(geometry, entry);
            if offset < self.from {
                continue;
            }
            self.next.push(ScrubTarget { offset, id });
            if self.next.len() > self.most {
                self.next.pop();
                self.more = true;
            }
        }
        self.scan_from = entries.next().map(|(id, _)| id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Header, Portion};
    use crate::units::{BlockCount, BlockIndex, BlockSize, ByteLen, ByteOffset, RingPosition};

    fn geometry() -> Geometry {
        let header = Header {
            minor: 1,
            block_size: BlockSize::MIN,
            uuid: [0; 16],
            journal_len: ByteLen(16 * 512),
            data_len: ByteLen(1_000_000 * 512),
        };
        Geometry::new(ByteOffset(0), &header)
    }

    fn pass(index: &Index, mut plan: ScrubPlan) -> (Vec<LumpId>, u32) {
        let (mut order, mut scans) = (Vec::new(), 0);
        while plan.scan(index, &geometry(), 7) == Scanned::Going {
            scans += 1;
            order.extend(std::iter::from_fn(|| plan.pop()).map(|target| target.id));
        }
        (order, scans)
    }

    #[test]
    fn windows_visit_every_lump_once_in_the_order_of_the_disk() {
        let mut index = Index::new(&geometry());
        let mut places = Vec::new();
        for number in 0_u64..100 {
            let start = number * 37 % 101 * 3;
            let portion = Portion::new(BlockIndex(start), BlockCount(2)).unwrap();
            let id = LumpId(number.into());
            index.insert(id, IndexEntry::data(RingPosition(0), portion, None));
            places.push((start, id));
        }
        index.insert(LumpId(1000), IndexEntry::embedded(RingPosition(50), 5));
        places.sort_unstable();
        let mut want = vec![LumpId(1000)];
        want.extend(places.iter().map(|(_, id)| *id));
        for window in [1, 10, 100, 101, 1000] {
            let (order, _) = pass(&index, ScrubPlan::with_window(0, window));
            assert_eq!(order, want, "windows of {window}");
        }
        let from = geometry().data_offset().0 + places[60].0 * 512;
        let (order, scans) = pass(&index, ScrubPlan::with_window(from, 1000));
        assert_eq!(order, want[61..]);
        assert!(scans >= 101 / 7, "a slice at a time");
    }

    #[test]
    fn an_empty_store_ends_the_pass_at_once() {
        let index = Index::new(&geometry());
        assert_eq!(pass(&index, ScrubPlan::new(0, 0)), (Vec::new(), 0));
    }
}
