//! Parts of the engine without a store around them, for the examples that measure them. Not an
//! interface for anybody else.

use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::options::QueuePolicy;
use crate::owner::admission::pace::RequestKind;
use crate::owner::waiting::order::{Kinds, Moment, Order};
use crate::owner::waiting::queue::{Queue, QueuePlace};
use crate::storage::index::{Filler, Index, IndexEntry};
use crate::units::{BlockCount, BlockIndex, RingPosition};

/// An index without a store around it, for benches.
#[derive(Debug)]
pub struct IndexProbe(Index);

fn entry(n: u64) -> IndexEntry {
    let portion = Portion::new(BlockIndex(n), BlockCount(1)).ok();
    let record = RingPosition(n);
    portion.map_or_else(
        || IndexEntry::embedded(record, 1),
        |portion| IndexEntry::data(record, portion, Some(20)),
    )
}

impl IndexProbe {
    /// An empty index of a store with this geometry.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        Self(Index::new(geometry))
    }

    /// An index of ascending ids, filled in one go. Ids out of order are left out.
    #[must_use]
    pub fn fill(geometry: &Geometry, ids: impl Iterator<Item = LumpId>) -> Self {
        let mut filler = Filler::new(Index::new(geometry));
        for (n, id) in (0..).zip(ids) {
            filler.push(id, entry(n));
        }
        Self(filler.finish())
    }

    /// Sets a lump of one block, the `n`-th of the data region, with its record at byte `n`.
    pub fn insert(&mut self, id: LumpId, n: u64) {
        self.0.insert(id, entry(n));
    }

    /// True: the lump is there.
    #[must_use]
    pub fn contains(&self, id: LumpId) -> bool {
        self.0.get(id).is_some()
    }

    /// Bytes that the index says it takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }
}

/// The waiting requests alone, with the order of a policy.
#[derive(Debug)]
pub struct QueueProbe(Queue<u64>);

impl QueueProbe {
    /// An empty queue.
    #[must_use]
    pub fn new(policy: QueuePolicy, max_overtakes: u32) -> Self {
        Self(Queue::new(Order::new(policy, max_overtakes)))
    }

    /// A get at byte `position` of the device waits.
    pub fn push(&mut self, position: u64) {
        let place = QueuePlace {
            kind: RequestKind::Get,
            position,
            deadline: None,
            expires: false,
        };
        self.0.push(place, position);
    }

    /// Takes out the one that is next: its position.
    pub fn pop(&mut self) -> Option<u64> {
        let moment = Moment {
            now_ns: 0,
            service_ns: [0; 3],
            kinds: Kinds::ALL,
        };
        let (number, _) = self.0.choose(moment)?;
        self.0.take(number)
    }
}
