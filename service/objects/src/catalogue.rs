//! The catalogue: objects by bucket and key.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// An object in memory: the number of its record, and the rest of the record as
/// it was encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number in the id of its record; it stays the same when the object is overwritten.
    pub record: u64,
    /// An encoded [`Body`](crate::record::Body).
    pub body: Arc<[u8]>,
}

/// An ordered map from bucket and key to entry. It learns of every change when that is durable,
/// and filled anew from the store's records at open, so it need not keep anything itself.
pub trait Catalogue: Send {
    /// The entry of a key.
    fn get(&self, bucket: u32, key: &str) -> Option<Entry>;
    /// Inserts or replaces an entry and returns the one before.
    fn insert(&mut self, bucket: u32, key: &str, entry: Entry) -> Option<Entry>;
    /// Removes an entry and returns it.
    fn remove(&mut self, bucket: u32, key: &str) -> Option<Entry>;
    /// Calls `visit` with the entries of a bucket from `from` on, in the order of the bytes of
    /// their keys, until it returns false.
    fn visit(&self, bucket: u32, from: Bound<&str>, visit: &mut dyn FnMut(&str, &Entry) -> bool);
    /// Number of entries.
    fn len(&self) -> usize;
    /// True: there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The catalogue in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    buckets: HashMap<u32, BTreeMap<Box<str>, Entry>>,
    len: usize,
}

impl Catalogue for InMemory {
    fn get(&self, bucket: u32, key: &str) -> Option<Entry> {
        self.buckets.get(&bucket)?.get(key).cloned()
    }

    fn insert(&mut self, bucket: u32, key: &str, entry: Entry) -> Option<Entry> {
        let old = self
            .buckets
            .entry(bucket)
            .or_default()
            .insert(Box::from(key), entry);
        self.len += usize::from(old.is_none());
        old
    }

    fn remove(&mut self, bucket: u32, key: &str) -> Option<Entry> {
        let keys = self.buckets.get_mut(&bucket)?;
        let old = keys.remove(key)?;
        if keys.is_empty() {
            self.buckets.remove(&bucket);
        }
        self.len -= 1;
        Some(old)
    }

    fn visit(&self, bucket: u32, from: Bound<&str>, visit: &mut dyn FnMut(&str, &Entry) -> bool) {
        let Some(keys) = self.buckets.get(&bucket) else {
            return;
        };
        for (key, entry) in keys.range::<str, _>((from, Bound::Unbounded)) {
            if !visit(key, entry) {
                return;
            }
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}
