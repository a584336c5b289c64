//! The state in memory: the catalogue, readers, and exclusive rights to change.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lumpscope_engine::{Durability, LumpId, RequestCtx, Store};
use tokio::sync::{OwnedMutexGuard, RwLock};

use crate::catalogue::{Catalogue, Entry};
use crate::error::ObjectError;
use crate::id;
use crate::juicefs::Layout;
use crate::options::ObjectOptions;
use crate::record::{Body, PartRecord, UploadRecord};
use crate::types::BucketSetting;

/// State shared by the handles of one store's objects.
pub(crate) struct ObjectsShared {
    pub(crate) store: Store,
    pub(crate) options: ObjectOptions,
    pub(crate) state: Mutex<ObjectsState>,
    /// The next number of an object, part, upload, bucket or record: none is given out twice.
    pub(crate) next: AtomicU64,
}

/// Things that only one task at a time may change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Path {
    /// The bucket of this name.
    Bucket(String),
    /// A key of a bucket.
    Key(u32, String),
    /// A part of an upload.
    Part(u64, u16),
    Volumes,
}

/// A JuiceFS volume, as keys name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeName {
    pub(crate) bucket: u32,
    /// With its `/`, or empty.
    pub(crate) prefix: String,
    pub(crate) layout: Layout,
}

impl VolumeName {
    pub(crate) fn new(bucket: u32, prefix: &str, layout: Layout) -> Self {
        Self {
            bucket,
            prefix: prefix.to_owned(),
            layout,
        }
    }

    /// Whether one of its blocks may have a key that begins so.
    pub(crate) fn may_begin(&self, prefix: &str) -> bool {
        let begin = format!("{}chunks/", self.prefix);
        begin.starts_with(prefix) || prefix.starts_with(&begin)
    }
}

/// A bucket in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketEntry {
    pub(crate) number: u32,
    pub(crate) created_ms: u64,
    /// True: its delete is on the way, nothing may be committed to it.
    pub(crate) going: bool,
    /// Commits on the way.
    pub(crate) commits: u32,
}

/// An upload that was begun.
pub(crate) struct Upload {
    pub(crate) record: UploadRecord,
    pub(crate) parts: BTreeMap<u16, PartRecord>,
    /// Shared by commits of parts; exclusive for completing or aborting.
    pub(crate) gate: Arc<RwLock<()>>,
}

impl Upload {
    pub(crate) fn new(record: UploadRecord) -> Self {
        Self {
            record,
            parts: BTreeMap::new(),
            gate: Arc::default(),
        }
    }
}

/// Readers of an object.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    count: usize,
    /// Data to free when the last reader is gone.
    then_free: Vec<u64>,
}

/// The state in memory.
pub(crate) struct ObjectsState {
    pub(crate) catalogue: Box<dyn Catalogue>,
    pub(crate) buckets: BTreeMap<String, BucketEntry>,
    /// Of buckets, by their numbers.
    pub(crate) settings: BTreeMap<(u32, BucketSetting), Arc<str>>,
    pub(crate) uploads: BTreeMap<u64, Upload>,
    /// By the number of the object.
    readers: HashMap<u64, Readers>,
    locks: HashMap<Path, Arc<tokio::sync::Mutex<()>>>,
    /// Lumps whose delete the store did not accept yet.
    unfreed: Vec<(LumpId, LumpId)>,
    /// Their numbers.
    pub(crate) volumes: BTreeMap<VolumeName, u8>,
    /// The number of the next volume: none is given out twice while this is open.
    pub(crate) next_volume: u16,
    /// Number of look-ups and readers of a block, by the first id that it may have.
    pub(crate) watched: HashMap<LumpId, usize>,
    /// Blocks that an object of the catalogue is about to replace, by bucket and key.
    pub(crate) moving: BTreeMap<(u32, String), LumpId>,
}

impl ObjectsState {
    pub(crate) fn new(catalogue: Box<dyn Catalogue>) -> Self {
        Self {
            catalogue,
            buckets: BTreeMap::new(),
            settings: BTreeMap::new(),
            uploads: BTreeMap::new(),
            readers: HashMap::new(),
            locks: HashMap::new(),
            unfreed: Vec::new(),
            volumes: BTreeMap::new(),
            next_volume: 0,
            watched: HashMap::new(),
            moving: BTreeMap::new(),
        }
    }

    /// The volumes of a bucket, with their numbers.
    pub(crate) fn volumes_of(&self, bucket: u32) -> Vec<(VolumeName, u8)> {
        let first = VolumeName::new(bucket, "", Layout::Plain);
        let volumes = self.volumes.range(first..);
        let volumes = volumes.take_while(|(name, _)| name.bucket == bucket);
        volumes
            .map(|(name, number)| (name.clone(), *number))
            .collect()
    }

    /// The bucket of this name that may be changed.
    pub(crate) fn bucket(&self, name: &str) -> Result<BucketEntry, ObjectError> {
        let found = self.buckets.get(name).filter(|bucket| !bucket.going);
        found.copied().ok_or_else(|| ObjectError::NoSuchBucket {
            bucket: name.to_owned(),
        })
    }

    pub(crate) fn entry(&self, bucket: &str, key: &str) -> Result<Entry, ObjectError> {
        let number = self.bucket(bucket)?.number;
        let found = self.catalogue.get(number, key);
        found.ok_or_else(|| ObjectError::NoSuchKey {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }
}

/// The right to change one thing.
pub(crate) struct ChangeLock {
    inner: Arc<ObjectsShared>,
    path: Path,
    /// `None` only while dropping.
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for ChangeLock {
    fn drop(&mut self) {
        self.guard = None;
        let mut state = self.inner.state();
        let unused = |lock: &Arc<_>| Arc::strong_count(lock) == 1;
        if state.locks.get(&self.path).is_some_and(unused) {
            state.locks.remove(&self.path);
        }
    }
}

/// An object being read: its data stays until this is dropped.
pub(crate) struct ObjectPin {
    pub(crate) inner: Arc<ObjectsShared>,
    number: u64,
}

impl Drop for ObjectPin {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        let Some(readers) = state.readers.get_mut(&self.number) else {
            return;
        };
        readers.count -= 1;
        if readers.count > 0 {
            return;
        }
        let left = state.readers.remove(&self.number).unwrap_or_default();
        drop(state);
        self.inner.free_data(&left.then_free);
    }
}

/// Data that is being written: it is freed when this is dropped, unless it was kept.
pub(crate) struct PendingData {
    inner: Arc<ObjectsShared>,
    pub(crate) number: u64,
    kept: AtomicBool,
}

impl PendingData {
    /// The data belongs to a record now, or may belong to one.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Release);
    }
}

impl Drop for PendingData {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Acquire) {
            self.inner.free_data(&[self.number]);
        }
    }
}

/// A block that an object of the catalogue is about to replace.
pub(crate) struct Moving {
    inner: Arc<ObjectsShared>,
    name: (u32, String),
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.inner.state().moving.remove(&self.name);
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Options of background work, which must not be refused.
pub(crate) fn background() -> RequestCtx {
    RequestCtx {
        prioritized: true,
        ..RequestCtx::default()
    }
}

impl ObjectsShared {
    pub(crate) fn state(&self) -> MutexGuard<'_, ObjectsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits for the exclusive right to change it.
    pub(crate) async fn hold(self: &Arc<Self>, path: Path) -> ChangeLock {
        let lock = Arc::clone(self.state().locks.entry(path.clone()).or_default());
        // Before waiting, so that an abandoned wait is cleaned up too.
        let mut held = ChangeLock {
            inner: Arc::clone(self),
            path,
            guard: None,
        };
        held.guard = Some(lock.lock_owned().await);
        held
    }

    /// Data that is going to be written.
    pub(crate) fn written(self: &Arc<Self>) -> Arc<PendingData> {
        Arc::new(PendingData {
            inner: Arc::clone(self),
            number: self.number(),
            kept: AtomicBool::new(false),
        })
    }

    /// Marks a block that a commit to the catalogue removes, for who holds the key.
    pub(crate) fn moving(self: &Arc<Self>, name: (u32, String), id: LumpId) -> Moving {
        self.state().moving.insert(name.clone(), id);
        Moving {
            inner: Arc::clone(self),
            name,
        }
    }

    /// Begins to read an object of the catalogue.
    pub(crate) fn reading(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
    ) -> Result<(ObjectPin, Body), ObjectError> {
        let mut state = self.state();
        let body = decode(&state.entry(bucket, key)?)?;
        state.readers.entry(body.number).or_default().count += 1;
        drop(state);
        let reading = ObjectPin {
            inner: Arc::clone(self),
            number: body.number,
        };
        Ok((reading, body))
    }

    /// An object is replaced or deleted, durably: frees its data when its last reader is gone.
    pub(crate) fn release(&self, entry: &Entry) {
        let Ok(body) = decode(entry) else { return };
        let numbers: Vec<u64> = body.segments.iter().map(|one| one.number).collect();
        let mut state = self.state();
        if let Some(readers) = state.readers.get_mut(&body.number) {
            readers.then_free = numbers;
            return;
        }
        drop(state);
        self.free_data(&numbers);
    }

    /// Frees the pieces of data.
    pub(crate) fn free_data(&self, numbers: &[u64]) {
        self.free(numbers.iter().map(|&number| id::pieces(number)));
    }

    /// Deletes lumps that no record needs any more, without waiting. Deletes that the store refuses
    /// now are tried again with the next; leftovers of a crash are freed at the next open.
    pub(crate) fn free(&self, ranges: impl IntoIterator<Item = (LumpId, LumpId)>) {
        let mut left = std::mem::take(&mut self.state().unfreed);
        left.extend(ranges);
        left.retain(|&(start, end)| {
            let (context, durability) = (background(), Durability::Journaled);
            let ignore = Box::new(|_: Result<_, _>, _| {});
            self.store
                .submit_delete_range(context, start, end, durability, ignore)
                .is_err()
        });
        if !left.is_empty() {
            self.state().unfreed.append(&mut left);
        }
    }
}

/// The body of an entry. It was checked on arrival.
pub(crate) fn decode(entry: &Entry) -> Result<Body, ObjectError> {
    Body::decode(&entry.body).map_err(|_| ObjectError::Invalid {
        what: "an entry of the catalogue",
        why: "its bytes are not those that were put",
    })
}
