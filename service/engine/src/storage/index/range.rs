//! The lumps of a range of ids, in order.

use std::collections::{BTreeMap, btree_map};

use super::entry::IndexEntry;
use super::leaf::Leaf;
use super::lower_bound;
use super::packing::Packing;
use crate::lump::LumpId;
use crate::request::LumpRange;

/// Walks over leaves and their rows.
pub(super) struct Range<'a> {
    leaves: btree_map::Range<'a, u128, Leaf>,
    leaf: Option<&'a Leaf>,
    row: usize,
    /// First id after the range.
    end: Option<u128>,
    packing: Packing,
}

impl<'a> Range<'a> {
    pub(super) fn new(
        leaves: &'a BTreeMap<u128, Leaf>,
        packing: Packing,
        range: LumpRange,
    ) -> Self {
        let start = range.start.0;
        let key = leaves
            .range(..=start)
            .next_back()
            .map_or(0, |(&key, _)| key);
        let mut leaves = leaves.range(key..);
        let leaf = leaves.next().map(|(_, leaf)| leaf);
        Self {
            leaves,
            leaf,
            row: leaf.map_or(0, |leaf| lower_bound(leaf, start)),
            end: range.end.map(|end| end.0),
            packing,
        }
    }
}

impl Iterator for Range<'_> {
    type Item = (LumpId, IndexEntry);

    fn next(&mut self) -> Option<Self::Item> {
        let leaf = loop {
            let leaf = self.leaf?;
            if self.row < leaf.len() {
                break leaf;
            }
            self.leaf = self.leaves.next().map(|(_, leaf)| leaf);
            self.row = 0;
        };
        let id = leaf.id(self.row);
        if self.end.is_some_and(|end| id >= end) {
            self.leaf = None;
            return None;
        }
        let entry = self.packing.unpack(leaf.entry(self.row, self.packing));
        self.row += 1;
        Some((LumpId(id), entry))
    }
}
