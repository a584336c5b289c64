//! Changes of the index, many at a time.

use super::{Index, IndexEntry};
use crate::lump::LumpId;

/// Changes that are collected: 12 MiB of memory. Few in tests.
const MOST: usize = if cfg!(test) { 37 } else { 1 << 18 };

/// Changes that an index takes up in the order of ids, some hundred thousand at a time: ids come
/// from a journal without order, and each by itself would wait for memory several times.
#[derive(Default)]
pub(crate) struct Batched {
    /// Id, number of the change, and the lump's entry; `None`: it is gone.
    changes: Vec<(LumpId, u32, Option<IndexEntry>)>,
}

impl Batched {
    /// Sets an entry, or removes it.
    pub(crate) fn set(&mut self, index: &mut Index, id: LumpId, entry: Option<IndexEntry>) {
        // Far below 2^32.
        let number = u32::try_from(self.changes.len()).unwrap_or(u32::MAX);
        self.changes.push((id, number, entry));
        if self.changes.len() >= MOST {
            self.apply(index);
        }
    }

    /// Removes `start <= id < end`.
    pub(crate) fn remove_range(&mut self, index: &mut Index, start: LumpId, end: LumpId) {
        if start < end {
            self.apply(index);
            index.remove_range(start, end, |_| {});
        }
    }

    /// Carries the changes out that are collected.
    pub(crate) fn apply(&mut self, index: &mut Index) {
        self.changes
            .sort_unstable_by_key(|&(id, number, _)| (id, number));
        let mut changes = self.changes.drain(..).peekable();
        while let Some((id, _, entry)) = changes.next() {
            // The last change of an id decides.
            if changes.peek().is_some_and(|next| next.0 == id) {
                continue;
            }
            match entry {
                Some(entry) => index.insert(id, entry),
                None => index.remove(id),
            };
        }
    }
}
