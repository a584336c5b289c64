//! Opening: reads the records, and frees what a crash left behind.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lumpscope_engine::{Durability, Error, LumpId, LumpRange, Store};

use crate::Objects;
use crate::catalogue::{Catalogue, Entry};
use crate::error::ObjectError;
use crate::id::{self, LumpKind};
use crate::juicefs;
use crate::options::{MAX_PIECE_BYTES, ObjectOptions, OpenReport};
use crate::record::{
    Body, BucketRecord, ObjectRecord, PartRecord, RecordError, SettingRecord, UploadRecord,
    VolumeRecord,
};
use crate::state::{BucketEntry, ObjectsShared, ObjectsState, Upload, VolumeName, background};
use crate::types::BucketSetting;

/// Ids of a page of the store's list.
const PAGE: usize = 16_384;

/// The records as read, before they are put in order.
#[derive(Default)]
struct UnorderedRecords {
    buckets: HashMap<u32, BucketRecord>,
    objects: Vec<(u64, ObjectRecord)>,
    uploads: HashMap<u64, UploadRecord>,
    parts: Vec<(u64, u16, PartRecord)>,
    volumes: BTreeMap<u8, VolumeRecord>,
    settings: Vec<(u32, BucketSetting, SettingRecord)>,
    unreadable: u64,
    /// The largest number seen.
    largest: u64,
}

impl UnorderedRecords {
    fn take(&mut self, id: LumpId, bytes: &[u8]) {
        if self.record(id, bytes).is_err() {
            self.unreadable += 1;
        }
    }

    fn record(&mut self, id: LumpId, bytes: &[u8]) -> Result<(), RecordError> {
        let number = id::number_of(id);
        self.largest = self.largest.max(number);
        match LumpKind::of(id) {
            Some(LumpKind::Bucket) => {
                let small =
                    u32::try_from(number).map_err(|_| RecordError("its id is too large"))?;
                self.buckets.insert(small, BucketRecord::decode(bytes)?);
            }
            Some(LumpKind::Object) => self.objects.push((number, ObjectRecord::decode(bytes)?)),
            Some(LumpKind::Upload) => {
                self.uploads.insert(number, UploadRecord::decode(bytes)?);
            }
            Some(LumpKind::Part) => {
                let part = u16::try_from(id::below_of(id))
                    .map_err(|_| RecordError("its id is too large"))?;
                self.parts.push((number, part, PartRecord::decode(bytes)?));
            }
            Some(LumpKind::Volume) => {
                let small = u8::try_from(number).map_err(|_| RecordError("its id is too large"))?;
                self.volumes.insert(small, VolumeRecord::decode(bytes)?);
            }
            Some(LumpKind::Setting) => {
                let small =
                    u32::try_from(number).map_err(|_| RecordError("its id is too large"))?;
                let setting = BucketSetting::of_code(id::below_of(id));
                let setting = setting.ok_or(RecordError("it is no known setting"))?;
                self.settings
                    .push((small, setting, SettingRecord::decode(bytes)?));
            }
            _ => return Err(RecordError("its id is of no kind that has records")),
        }
        Ok(())
    }
}

/// The state that the records make up.
struct Sorted {
    state: ObjectsState,
    /// Numbers of the data that records name.
    named: HashSet<u64>,
    /// Useless records, to be deleted.
    stale: Vec<LumpId>,
    report: OpenReport,
}

impl Sorted {
    fn new(found: UnorderedRecords, catalogue: Box<dyn Catalogue>) -> Self {
        let mut it = Self {
            state: ObjectsState::new(catalogue),
            named: HashSet::new(),
            stale: Vec::new(),
            report: OpenReport {
                unreadable: found.unreadable,
                ..OpenReport::default()
            },
        };
        it.buckets(&found.buckets);
        for (bucket, setting, record) in found.settings {
            let its = found.buckets.get(&bucket);
            if its.is_some_and(|its| its.created_ms == record.created_ms) {
                let text = Arc::from(record.text);
                it.state.settings.insert((bucket, setting), text);
            } else {
                let id = LumpKind::Setting.id(bucket.into(), setting.code().into());
                it.stale.push(id);
            }
        }
        let known = |bucket: u32| found.buckets.contains_key(&bucket);
        for (record, object) in found.objects {
            let there = known(object.bucket);
            it.object(record, object, there);
        }
        for (number, upload) in found.uploads {
            if known(upload.bucket) {
                it.state.uploads.insert(number, Upload::new(upload));
                it.report.uploads += 1;
            } else {
                it.stale.push(LumpKind::Upload.id(number, 0));
            }
        }
        for (number, part, record) in found.parts {
            match it.state.uploads.get_mut(&number) {
                Some(upload) => {
                    it.named.insert(record.segment.number);
                    upload.parts.insert(part, record);
                    it.report.parts += 1;
                }
                None => it.stale.push(LumpKind::Part.id(number, part.into())),
            }
        }
        it.volumes(found.volumes, &known);
        it.report.objects = it.state.catalogue.len() as u64;
        it
    }

    /// Of several volumes of one name, which only foreign writers make, the first one counts.
    fn volumes(&mut self, found: BTreeMap<u8, VolumeRecord>, known: &impl Fn(u32) -> bool) {
        for (number, record) in found {
            self.state.next_volume = u16::from(number) + 1;
            let name = VolumeName::new(record.bucket, &record.prefix, record.layout);
            if known(record.bucket) && !self.state.volumes.contains_key(&name) {
                self.state.volumes.insert(name, number);
            } else {
                self.stale.push(LumpKind::Volume.id(number.into(), 0));
            }
        }
        self.report.volumes = self.state.volumes.len() as u64;
    }

    /// Of buckets of one name the first one counts.
    fn buckets(&mut self, found: &HashMap<u32, BucketRecord>) {
        let mut numbers: Vec<u32> = found.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(record) = found.get(&number) else {
                continue;
            };
            let entry = BucketEntry {
                number,
                created_ms: record.created_ms,
                going: false,
                commits: 0,
            };
            self.state
                .buckets
                .entry(record.name.clone())
                .or_insert(entry);
        }
        self.report.buckets = self.state.buckets.len() as u64;
    }

    /// Of several records of one key, which only foreign writers make, the latest counts.
    fn object(&mut self, record: u64, object: ObjectRecord, bucket_is_there: bool) {
        let ObjectRecord { bucket, key, body } = object;
        let Ok(new) = Body::decode(&body) else { return };
        if !bucket_is_there {
            return self.stale.push(LumpKind::Object.id(record, 0));
        }
        let old = self.state.catalogue.get(bucket, &key);
        let old_number = old
            .as_ref()
            .map(|old| Body::decode_head(&old.body).map_or(0, |it| it.0));
        if old_number.is_some_and(|old| old > new.number) {
            return self.stale.push(LumpKind::Object.id(record, 0));
        }
        self.stale
            .extend(old.map(|old| LumpKind::Object.id(old.record, 0)));
        self.named.extend(new.segments.iter().map(|one| one.number));
        self.state
            .catalogue
            .insert(bucket, &key, Entry { record, body });
    }
}

/// Visits all ids of a range.
fn ids(
    store: &Store,
    mut range: LumpRange,
    mut visit: impl FnMut(LumpId),
) -> Result<(), ObjectError> {
    loop {
        let page = store.list(range, PAGE)?;
        page.ids.into_iter().for_each(&mut visit);
        match page.next {
            Some(next) => range.start = next,
            None => return Ok(()),
        }
    }
}

/// Deletes lumps, without a flush for each.
fn delete(store: &Store, ids: &[LumpId]) -> Result<u64, ObjectError> {
    for some in ids.chunks(Store::MAX_DELETE_IDS) {
        match store.delete_many(background(), some.to_vec(), Durability::Synced) {
            Ok(_) => {}
            Err(Error::ReadOnly { .. }) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ids.len() as u64)
}

fn read_records(store: &Store) -> Result<UnorderedRecords, ObjectError> {
    // A lump can come twice; the last one is the newest.
    let mut lumps = HashMap::new();
    let mut from = 0;
    loop {
        let page = store.embedded(LumpKind::records(), from)?;
        lumps.extend(page.lumps);
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    let mut found = UnorderedRecords::default();
    for (id, bytes) in lumps {
        found.take(id, &bytes);
    }
    Ok(found)
}

impl Objects {
    /// Reads the records of all objects of a store, and deletes what a crash has left behind.
    /// Blocks: to be called where stores are opened. A store that was opened read-only is left as
    /// it is.
    ///
    /// # Errors
    /// [`ObjectError::Engine`], [`ObjectError::Invalid`] for options outside their limits.
    pub fn open(store: Store, options: ObjectOptions) -> Result<(Self, OpenReport), ObjectError> {
        let since = Instant::now();
        let pieces_fit = u64::from(options.piece_bytes) <= store.info().max_lump_bytes;
        if !(1..=MAX_PIECE_BYTES).contains(&options.piece_bytes) || !pieces_fit {
            return Err(ObjectError::Invalid {
                what: "the size of pieces",
                why: "it must be 1 byte to 4 MiB, and fit a lump of the store",
            });
        }
        let found = read_records(&store)?;
        let mut largest = found.largest;
        let Sorted {
            state,
            named,
            stale,
            mut report,
        } = Sorted::new(found, (options.catalogue)());
        largest = largest.max(named.iter().copied().max().unwrap_or(0));
        let mut orphans = Vec::new();
        ids(&store, LumpKind::Piece.range(), |piece| {
            let number = id::number_of(piece);
            largest = largest.max(number);
            if !named.contains(&number) {
                orphans.push(piece);
            }
        })?;
        let volumes: BTreeSet<u8> = state.volumes.values().copied().collect();
        for number in 0..=u8::MAX {
            let mut count = 0;
            ids(&store, juicefs::volume(number), |block| {
                count += 1;
                if !volumes.contains(&number) {
                    orphans.push(block);
                }
            })?;
            if volumes.contains(&number) {
                report.blocks += count;
            }
        }
        if report.unreadable == 0 {
            // Records first: no record may name deleted data.
            report.swept_records = delete(&store, &stale)?;
            report.swept_pieces = delete(&store, &orphans)?;
        }
        report.elapsed_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let inner = ObjectsShared {
            store,
            options,
            state: Mutex::new(state),
            next: AtomicU64::new(largest.saturating_add(1)),
        };
        let objects = Self {
            inner: Arc::new(inner),
        };
        Ok((objects, report))
    }
}
