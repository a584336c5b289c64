//! Writes that the disk acknowledged and lost: one sector holds what it held before. What was
//! acknowledged is there, or the store says that it is not.

use std::collections::BTreeMap;

use crate::support::sim::SimDisk;
use crate::support::{Shape, content, delete, disk_dir, get, put};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{CommitMode, LumpRange, Store};

const SECTOR: usize = 512;
const SHAPE: Shape = Shape::new(512, 40, 800);

type Lumps = BTreeMap<u128, Vec<u8>>;

fn lumps_of(store: &Store) -> Lumps {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
    let lump = |id: u128| Some((id, get(store, id)?));
    ids.into_iter().filter_map(|id| lump(id.0)).collect()
}

fn is_clean(image: &[u8]) -> bool {
    let dir = disk_dir();
    let path = dir.path().join("stale.lusf");
    std::fs::write(&path, image).unwrap();
    Inspector::open(&path).unwrap().check(|_, _| true).clean
}

/// Images of a store each time it was closed, and its lumps at the end.
fn closed_often(commit: CommitMode, rounds: u64, changes: u128) -> (Vec<Vec<u8>>, Lumps) {
    let disk = SimDisk::new(SHAPE.image());
    let (mut images, mut lumps) = (vec![disk.bytes()], Lumps::new());
    for round in 0..rounds {
        let store = disk.open_as(commit).unwrap();
        for id in 0..changes {
            let bytes = content(id, round, 700);
            put(&store, id, &bytes);
            lumps.insert(id, bytes);
        }
        let gone = u128::from(round) % changes;
        assert!(delete(&store, gone));
        lumps.remove(&gone);
        store.close().unwrap();
        images.push(disk.bytes());
    }
    (images, lumps)
}

/// Each sector of header and ring with what it held at each earlier close.
fn stale_sectors(commit: CommitMode, rounds: u64, changes: u128) {
    let (mut images, lumps) = closed_often(commit, rounds, changes);
    let last = images.pop().unwrap();
    assert!(is_clean(&last));
    let metadata = (2 + SHAPE.ring_blocks as usize) * SECTOR;
    let (mut tried, mut refused) = (0, 0);
    for (close, image) in images.iter().enumerate() {
        for at in (0..metadata).step_by(SECTOR) {
            let sector = at..at + SECTOR;
            if image[sector.clone()] == last[sector.clone()] {
                continue;
            }
            tried += 1;
            let what = format!("{commit:?}, sector {} as at close {close}", at / SECTOR);
            let mut stale = last.clone();
            stale[sector.clone()].copy_from_slice(&image[sector]);
            let disk = SimDisk::new(stale.clone());
            match disk.open() {
                Ok(store) => assert_eq!(lumps_of(&store), lumps, "{what}"),
                Err(_) => {
                    assert!(!is_clean(&stale), "{what}: a clean check");
                    refused += 1;
                }
            }
        }
    }
    assert!(tried >= 4, "{tried} tried, {refused} refused");
    assert!(refused > 0, "{tried} tried, {refused} refused");
}

#[test]
fn a_sector_with_older_bytes_is_never_believed() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        stale_sectors(commit, 5, 12);
        // The ring goes round between two closes, and often.
        stale_sectors(commit, 9, 200);
    }
}
