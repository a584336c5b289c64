//! The ordered map from lump id to the place of its newest version: the only thing that grows
//! with the number of lumps. Memory only; owner thread only.
//!
//! Two levels: a small map from first ids to leaves of up to 384 lumps, each one packed buffer
//! ([`leaf`]). With random ids a lump costs less than 32 bytes with everything (the holes in the
//! heap included), with ascending ids 17; `examples/index_memory.rs` measures it. Lookups and changes cost O(log n) comparisons
//! and at most a few KiB of memory moved.

mod batched;
mod entry;
mod leaf;
mod packing;
mod range;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use batched::Batched;
pub(crate) use entry::IndexEntry;
use leaf::{Leaf, MAX_ROWS, Row};
pub(crate) use packing::Packing;
use range::Range;

use crate::clock::random_u64;
use crate::format::Geometry;
use crate::lump::LumpId;
use crate::request::{LumpRange, UsageOutcome};
use crate::units::BlockSize;

/// A leaf with fewer rows is joined with a neighbour if one has room.
const FEW_ROWS: usize = MAX_ROWS / 4;
/// Rows of a leaf after joining, at most, so that it is not split again at once.
const JOINED_ROWS: usize = MAX_ROWS * 3 / 4;
/// Bytes of a leaf beside its buffer: its slot in a node of the map (nodes are about two thirds
/// full), and the allocator's header of the buffer.
const LEAF_COST: usize = (size_of::<(u128, Leaf)>() * 3).div_ceil(2) + 16;

/// The map, with the totals that are asked for often.
#[derive(Debug)]
pub(crate) struct Index {
    /// Lower bound of its ids -> leaf, never empty. The first bound is 0.
    leaves: BTreeMap<u128, Leaf>,
    packing: Packing,
    block_size: BlockSize,
    lumps: u64,
    stored_bytes: u64,
    record_bytes: u64,
    /// Lumps put and removed, from a random number on.
    changes: u64,
    /// Bytes of all buffers.
    buffer_bytes: usize,
    /// Rows on their way from old leaves to new ones. Kept, because buffers that come and go
    /// between the leaves' would leave holes among them.
    scratch: Vec<Row>,
}

impl Index {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            leaves: BTreeMap::new(),
            packing: Packing::new(geometry),
            block_size: geometry.block_size(),
            lumps: 0,
            stored_bytes: 0,
            record_bytes: 0,
            changes: random_u64(),
            buffer_bytes: 0,
            scratch: Vec::with_capacity(MAX_ROWS + 1),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.lumps
    }

    /// Bytes of all live records.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes
    }

    /// Rises by one with each lump that is put or removed. It begins anywhere, so an equal number
    /// tells of the same index in the same life of the store.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Bytes of memory it takes; the share of the upper level is an estimate (less than 1 %).
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.buffer_bytes + self.leaves.len() * LEAF_COST) as u64
    }

    pub(crate) fn get(&self, id: LumpId) -> Option<IndexEntry> {
        let (_, leaf) = self.leaves.range(..=id.0).next_back()?;
        let at = leaf.find(id.0).ok()?;
        Some(self.packing.unpack(leaf.entry(at, self.packing)))
    }

    /// Sets an entry and returns the one before.
    pub(crate) fn insert(&mut self, id: LumpId, entry: IndexEntry) -> Option<IndexEntry> {
        self.count(entry);
        self.changes = self.changes.wrapping_add(1);
        let packing = self.packing;
        let packed = packing.pack(entry);
        let Some((&key, leaf)) = self.leaves.range_mut(..=id.0).next_back() else {
            self.add_leaf(0, Leaf::build(&[(id.0, packed)], packing));
            return None;
        };
        match leaf.find(id.0) {
            Ok(at) => {
                let old = packing.unpack(leaf.entry(at, packing));
                leaf.set_entry(at, packed);
                self.uncount(old);
                Some(old)
            }
            Err(at) if leaf.is_full() => {
                self.insert_into_full(key, at, (id.0, packed));
                None
            }
            Err(at) if leaf.takes(id.0) => {
                let before = leaf.capacity();
                leaf.insert(at, id.0, packed);
                self.buffer_bytes = self.buffer_bytes + leaf.capacity() - before;
                None
            }
            Err(at) => {
                self.rebuild(key, key, at, (id.0, packed), 1);
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, id: LumpId) -> Option<IndexEntry> {
        let packing = self.packing;
        let (&key, leaf) = self.leaves.range_mut(..=id.0).next_back()?;
        let at = leaf.find(id.0).ok()?;
        let old = packing.unpack(leaf.entry(at, packing));
        self.remove_rows(key, at, at + 1);
        self.uncount(old);
        self.changes = self.changes.wrapping_add(1);
        self.join_if_small(key);
        Some(old)
    }

    /// Replaces an entry by one of the same size.
    pub(crate) fn update(&mut self, id: LumpId, change: impl FnOnce(IndexEntry) -> IndexEntry) {
        let packing = self.packing;
        if let Some((_, leaf)) = self.leaves.range_mut(..=id.0).next_back()
            && let Ok(at) = leaf.find(id.0)
        {
            let entry = change(packing.unpack(leaf.entry(at, packing)));
            leaf.set_entry(at, packing.pack(entry));
        }
    }

    /// Removes `start <= id < end`, hands out what was there, and returns how many that were.
    pub(crate) fn remove_range(
        &mut self,
        start: LumpId,
        end: LumpId,
        mut removed: impl FnMut(IndexEntry),
    ) -> u64 {
        let packing = self.packing;
        let before = self.lumps;
        let mut at = start.0;
        let mut cut = [None; 2];
        while at < end.0
            && let Some((&key, leaf)) = self.leaves.range(..=at).next_back()
        {
            let (from, to) = (lower_bound(leaf, at), lower_bound(leaf, end.0));
            let whole = from == 0 && to == leaf.len();
            let entries: Vec<u128> = (from..to).map(|row| leaf.entry(row, packing)).collect();
            for entry in entries {
                let entry = packing.unpack(entry);
                self.uncount(entry);
                removed(entry);
            }
            let next = self.leaves.range(at..).find(|&(&next, _)| next > key);
            let next = next.map(|(&next, _)| next);
            self.remove_rows(key, from, to);
            if !whole {
                cut = [cut[1], Some(key)];
            }
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        cut.into_iter()
            .flatten()
            .for_each(|key| self.join_if_small(key));
        let removed = before - self.lumps;
        self.changes = self.changes.wrapping_add(removed);
        removed
    }

    /// The entries of a range in ascending order; none when the range is reversed.
    pub(crate) fn range(
        &self,
        range: LumpRange,
    ) -> impl Iterator<Item = (LumpId, IndexEntry)> + '_ {
        Range::new(&self.leaves, self.packing, range)
    }

    /// Lumps and bytes of a range; constant time for all of it.
    pub(crate) fn usage(&self, range: LumpRange) -> UsageOutcome {
        if range == LumpRange::ALL {
            return UsageOutcome {
                lumps: self.len(),
                stored_bytes: self.stored_bytes,
                ..UsageOutcome::default()
            };
        }
        self.range(range)
            .fold(UsageOutcome::default(), |sum, (_, entry)| UsageOutcome {
                lumps: sum.lumps + 1,
                stored_bytes: sum.stored_bytes + entry.stored_bytes(self.block_size),
                ..sum
            })
    }

    fn count(&mut self, entry: IndexEntry) {
        self.lumps += 1;
        self.stored_bytes += entry.stored_bytes(self.block_size);
        self.record_bytes += entry.record_len();
    }

    fn uncount(&mut self, entry: IndexEntry) {
        self.lumps -= 1;
        self.stored_bytes -= entry.stored_bytes(self.block_size);
        self.record_bytes -= entry.record_len();
    }

    fn add_leaf(&mut self, key: u128, leaf: Leaf) {
        self.buffer_bytes += leaf.capacity();
        self.leaves.insert(key, leaf);
    }

    fn take_leaf(&mut self, key: u128) -> Option<Leaf> {
        let leaf = self.leaves.remove(&key)?;
        self.buffer_bytes -= leaf.capacity();
        Some(leaf)
    }

    /// Adds a row whose place is row `at` of the full leaf at `key`.
    fn insert_into_full(&mut self, key: u128, at: usize, row: Row) {
        let packing = self.packing;
        if at == MAX_ROWS {
            // Ascending ids fill one leaf after the other.
            let next = self.leaves.range(row.0..).next();
            match next.map(|(&next, leaf)| (next, leaf.is_full())) {
                Some((next, false)) => self.rebuild(next, row.0, 0, row, 1),
                _ => self.add_leaf(row.0, Leaf::build(&[row], packing)),
            }
        } else if at == 0 {
            // Descending ids too.
            if let Some(leaf) = self.take_leaf(key) {
                self.add_leaf(leaf.id(0), leaf);
            }
            self.add_leaf(key, Leaf::build(&[row], packing));
        } else {
            self.rebuild(key, key, at, row, 2);
        }
    }

    /// Replaces the leaf at `key` by `leaves` leaves from `new_key` on with one row more.
    fn rebuild(&mut self, key: u128, new_key: u128, at: usize, row: Row, leaves: usize) {
        let mut rows = std::mem::take(&mut self.scratch);
        rows.clear();
        if let Some(leaf) = self.take_leaf(key) {
            // Its buffer is gone before the new ones are made, which then fit into its place.
            leaf.copy_to(&mut rows, self.packing);
        }
        rows.insert(at, row);
        for (number, rows) in rows.chunks(rows.len().div_ceil(leaves)).enumerate() {
            let first = rows.first().map_or(new_key, |row| row.0);
            let key = if number == 0 { new_key } else { first };
            self.add_leaf(key, Leaf::build(rows, self.packing));
        }
        self.scratch = rows;
    }

    /// Removes rows of the leaf at `key`, and the leaf when none is left.
    fn remove_rows(&mut self, key: u128, from: usize, to: usize) {
        let Some(leaf) = self.leaves.get_mut(&key) else {
            return;
        };
        if from == 0 && to == leaf.len() {
            self.take_leaf(key);
            if key == 0
                && let Some((_, next)) = self.leaves.pop_first()
            {
                self.leaves.insert(0, next);
            }
            return;
        }
        let before = leaf.capacity();
        leaf.remove(from, to);
        self.buffer_bytes = self.buffer_bytes + leaf.capacity() - before;
    }

    /// Joins the leaf at `key` with a neighbour when it has become small.
    fn join_if_small(&mut self, key: u128) {
        let Some(leaf) = self.leaves.get(&key) else {
            return;
        };
        let len = leaf.len();
        if len >= FEW_ROWS {
            return;
        }
        let has_room =
            |(&other, leaf): (&u128, &Leaf)| (len + leaf.len() <= JOINED_ROWS).then_some(other);
        let left = self.leaves.range(..key).next_back().and_then(has_room);
        let right = || {
            let mut after = self.leaves.range(key..);
            after.nth(1).and_then(has_room)
        };
        let pair = left
            .map(|left| (left, key))
            .or_else(|| right().map(|right| (key, right)));
        let Some((left, right)) = pair else { return };
        let mut rows = std::mem::take(&mut self.scratch);
        rows.clear();
        for key in [left, right] {
            if let Some(leaf) = self.take_leaf(key) {
                leaf.copy_to(&mut rows, self.packing);
            }
        }
        self.add_leaf(left, Leaf::build(&rows, self.packing));
        self.scratch = rows;
    }
}

fn lower_bound(leaf: &Leaf, id: u128) -> usize {
    leaf.find(id).unwrap_or_else(|at| at)
}

/// Fills an empty index with ascending ids, every leaf to the brim.
pub(crate) struct Filler {
    index: Index,
    rows: Vec<Row>,
}

impl Filler {
    pub(crate) fn new(index: Index) -> Self {
        Self {
            index,
            rows: Vec::with_capacity(MAX_ROWS),
        }
    }

    /// Adds a lump whose id is larger than all before. False: it is not, and nothing was added.
    pub(crate) fn push(&mut self, id: LumpId, entry: IndexEntry) -> bool {
        let last = match self.rows.last() {
            Some(row) => Some(row.0),
            None => self
                .index
                .leaves
                .last_key_value()
                .map(|(_, leaf)| leaf.id(leaf.len() - 1)),
        };
        if last.is_some_and(|last| last >= id.0) {
            return false;
        }
        self.index.count(entry);
        self.rows.push((id.0, self.index.packing.pack(entry)));
        if self.rows.len() == MAX_ROWS {
            self.end_leaf();
        }
        true
    }

    fn end_leaf(&mut self) {
        let Some(first) = self.rows.first() else {
            return;
        };
        let is_first = self.index.leaves.is_empty();
        let key = if is_first { 0 } else { first.0 };
        let leaf = Leaf::build(&self.rows, self.index.packing);
        self.index.add_leaf(key, leaf);
        self.rows.clear();
    }

    /// The index with everything that was added.
    pub(crate) fn finish(mut self) -> Index {
        self.end_leaf();
        self.index
    }
}
