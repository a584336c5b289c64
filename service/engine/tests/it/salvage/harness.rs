//! Checks that hold for every damaged image.

use std::collections::BTreeMap;

use lumpscope_engine::{Error, LumpId, LumpRange, Placement, SalvageReport, Store, StoreOptions};

use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{DiskEvent, Random, SECTOR, SimDisk};
use crate::support::{Shape, content, delete, get, try_put};

pub const SHAPE: Shape = Shape::new(512, 12, 200);
pub const RING: usize = 1024;
pub const DATA: usize = 1024 + 12 * 512;

pub type State = BTreeMap<u128, Vec<u8>>;

/// More damage than opening gets over by itself.
pub fn ruin(image: &mut [u8], at: usize) {
    for (byte, mask) in image[at..].iter_mut().zip([0x5a, 0xc3, 0x11]) {
        *byte ^= mask;
    }
}

pub fn salvaging(disk: &SimDisk, read_only: bool) -> Result<Store, Error> {
    let mut options = StoreOptions::new("salvage");
    options.salvage = true;
    options.read_only = read_only;
    Store::open_on(disk.device(), options)
}

pub fn state(store: &Store) -> State {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
    let lump = |id: LumpId| (id.0, get(store, id.0).unwrap());
    ids.into_iter().map(lump).collect()
}

pub fn report(store: &Store) -> SalvageReport {
    store.info().salvage.clone().unwrap()
}

/// All that holds for every damaged image. Returns what normal mode says, what salvage found, and
/// the lumps it serves.
pub fn salvage(image: &[u8]) -> (String, SalvageReport, State) {
    let refused = SimDisk::new(image.to_vec()).open().unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Corrupt { .. } | Error::CorruptJournal { .. }
        ),
        "{refused:?}"
    );
    let refused = refused.to_string();
    assert!(refused.contains("--salvage"), "{refused}");

    let disk = SimDisk::recording(image.to_vec());
    let store = salvaging(&disk, true).unwrap();
    let (found, lumps) = (report(&store), state(&store));
    assert!(!found.is_clean() && !found.repaired, "{found:?}");
    assert_eq!(found.lumps, lumps.len() as u64);
    let expected = found.dropped_lumps + found.gaps + u64::from(found.cut.is_some());
    assert_eq!(found.total, expected);
    store.close().unwrap();
    assert_eq!(disk.bytes(), image, "read-only salvage has written");
    assert!(disk.events().is_empty());

    repair_and_cut(image, &found, &lumps);
    (refused, found, lumps)
}

/// Repairs, cuts the power at every write and flush of that, and repairs what is left then.
pub fn repair_and_cut(image: &[u8], found: &SalvageReport, lumps: &State) {
    let disk = SimDisk::recording(image.to_vec());
    let store = salvaging(&disk, false).unwrap();
    let repair = disk.events();
    let repaired = SalvageReport {
        repaired: true,
        ..found.clone()
    };
    assert_eq!(report(&store), repaired);
    assert_eq!(state(&store), *lumps);
    drop(store);
    opens_everywhere(disk.bytes(), lumps);

    let mut random = Random(1);
    let (mut all, mut durable) = (image.to_vec(), image.to_vec());
    let mut unflushed: Vec<(usize, Vec<u8>)> = Vec::new();
    for event in &repair {
        match event {
            DiskEvent::Write { offset, bytes } => {
                let end = offset + bytes.len();
                all.resize(all.len().max(end), 0);
                all[*offset..end].copy_from_slice(bytes);
                unflushed.push((*offset, bytes.clone()));
            }
            DiskEvent::Flush => {
                durable.clone_from(&all);
                unflushed.clear();
            }
        }
        for _ in 0..4 {
            let mut torn = durable.clone();
            torn.resize(all.len(), 0);
            for (offset, bytes) in &unflushed {
                for (at, sector) in (*offset..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                    if random.below(2) == 0 {
                        torn[at..at + SECTOR].copy_from_slice(sector);
                    }
                }
            }
            again(torn, lumps);
        }
        again(all.clone(), lumps);
    }
    let writes = |event: &&DiskEvent| matches!(event, DiskEvent::Write { .. });
    assert!(repair.iter().filter(writes).count() >= 1);
    assert!(matches!(repair.last(), Some(DiskEvent::Flush)));
}

/// A repair that was cut is begun anew.
pub fn again(image: Vec<u8>, lumps: &State) {
    let disk = SimDisk::new(image);
    let store = salvaging(&disk, false).unwrap();
    assert_eq!(state(&store), *lumps);
    drop(store);
    assert_eq!(state(&disk.open().unwrap()), *lumps);
}

/// Normal mode and CannyLS open it, and it can be used.
pub fn opens_everywhere(image: Vec<u8>, lumps: &State) {
    let original = CannylsImage::new(image.clone());
    let mut store = original.open();
    let ids: Vec<u128> = store.list().iter().map(|id| id.as_u128()).collect();
    assert_eq!(ids, lumps.keys().copied().collect::<Vec<_>>());
    for (id, bytes) in lumps {
        assert_eq!(peer::get(&mut store, *id).as_ref(), Some(bytes));
    }
    drop(store);

    let disk = SimDisk::new(image);
    let store = disk.open().unwrap();
    assert!(store.info().sealed && store.info().salvage.is_none());
    assert_eq!(state(&store), *lumps);
    let mut lumps = lumps.clone();
    if let Some(id) = lumps.keys().next().copied() {
        assert!(delete(&store, id));
        lumps.remove(&id);
    }
    for version in 0..40 {
        let bytes = content(1_000, version, 700);
        match try_put(&store, 1_000, &bytes, Placement::Data) {
            Ok(_) => drop(lumps.insert(1_000, bytes)),
            // CannyLS fills more of the ring with live records than this engine does.
            Err(Error::JournalFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    store.close().unwrap();
    // Nothing is left to be salvaged.
    let store = salvaging(&disk, false).unwrap();
    assert!(report(&store).is_clean(), "{:?}", report(&store));
    assert_eq!(state(&store), lumps);
}
