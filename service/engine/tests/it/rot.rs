//! Metadata that rots: nothing that was acknowledged is lost, no corrupt byte is served, and no
//! check is clean that should not be.

use std::collections::BTreeMap;

use crate::support::sim::SimDisk;
use crate::support::{Shape, content, disk_dir, get, put};
use lumpscope_engine::inspect::{CheckReport, Inspector};
use lumpscope_engine::{LumpId, RequestCtx, Store};

const SHAPE: Shape = Shape {
    block_size: 512,
    ring_blocks: 12,
    data_blocks: 400,
};
const JOURNAL_HEADER: usize = 512;
const RING: usize = 1024;
const RING_LEN: usize = 12 * 512;
const DATA: usize = RING + RING_LEN;
const UUID: usize = 12;

type Lumps = BTreeMap<u128, Vec<u8>>;

/// A closed store whose ring was gone round, with its head amid the ring and its tail before it.
fn wrapped() -> (Vec<u8>, Lumps) {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    let mut lumps = Lumps::new();
    for version in 0.. {
        let id = if version < 100 {
            u128::from(version)
        } else {
            1000
        };
        put(&store, id, &content(id, version, 300));
        lumps.insert(id, content(id, version, 300));
        let head = ring_head(&disk.bytes());
        if version > 400
            && head > 2000
            && store.stats().journal_used_bytes > (RING_LEN - head) as u64
        {
            break;
        }
    }
    store.close().unwrap();
    (disk.bytes(), lumps)
}

fn ring_head(image: &[u8]) -> usize {
    let field = image[JOURNAL_HEADER..].first_chunk().unwrap();
    u64::from_be_bytes(*field) as usize
}

fn state(store: &Store) -> Lumps {
    let ids = store
        .list(lumpscope_engine::LumpRange::ALL, 10_000)
        .unwrap();
    let lump = |id: LumpId| Some((id.0, get(store, id.0)?));
    ids.ids.into_iter().filter_map(lump).collect()
}

fn check(image: &[u8]) -> CheckReport {
    let dir = disk_dir();
    let path = dir.path().join("rotted.lusf");
    std::fs::write(&path, image).unwrap();
    Inspector::open(&path).unwrap().check(|_, _| true)
}

/// Rot that the store gets over by itself: it opens with every lump, sealed, the check tells of
/// it, and what is on the disk afterwards is sound.
fn heals(image: &[u8], lumps: &Lumps, what: &str) {
    let found = check(image);
    assert!(!found.clean, "{what}: a clean check");
    let disk = SimDisk::new(image.to_vec());
    let store = disk
        .open()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(store.info().sealed, "{what}: no seal");
    assert_eq!(state(&store), *lumps, "{what}");
    let any = *lumps.keys().next().unwrap();
    let lump = store.get(RequestCtx::default(), LumpId(any)).unwrap();
    assert!(lump.verified, "{what}: unverified");
    drop(lump);
    store.close().unwrap();
    let found = check(&disk.bytes());
    assert!(found.clean, "{what}: {:?}", found.findings);
    assert_eq!(found.verified_lumps, lumps.len() as u64, "{what}");
}

#[test]
fn a_ring_head_that_rots_loses_nothing() {
    let (image, lumps) = wrapped();
    assert!(check(&image).clean);
    assert!(ring_head(&image) > 2000);
    for (len, what) in [(8, "the head zeroed"), (512, "its sector zeroed")] {
        let mut rotted = image.clone();
        rotted[JOURNAL_HEADER..JOURNAL_HEADER + len].fill(0);
        heals(&rotted, &lumps, what);
    }
    for bit in (0..64).step_by(3) {
        let mut rotted = image.clone();
        rotted[JOURNAL_HEADER + bit / 8] ^= 1 << (bit % 8);
        heals(&rotted, &lumps, &format!("bit {bit} of the ring head"));
    }
}

#[test]
fn a_header_that_rots_loses_nothing() {
    let (image, lumps) = wrapped();
    for bit in (0..44 * 8).step_by(5) {
        let mut rotted = image.clone();
        rotted[bit / 8] ^= 1 << (bit % 8);
        heals(&rotted, &lumps, &format!("bit {bit} of the header"));
    }
}

/// Rot in the UUID, or in the seal, and in a lump: the lump is known to be damaged.
#[test]
fn rot_in_uuid_or_seal_does_not_let_damaged_bytes_pass() {
    let (image, _) = wrapped();
    let seal = RING + find(&image[RING..DATA], b"LsSl");
    for at in [UUID, UUID + 15, seal, seal + 4, seal + 20, seal + 31] {
        let mut rotted = image.clone();
        rotted[at] ^= 0x5a;
        // A byte of every block of the data region.
        for block in rotted[DATA..].chunks_mut(512) {
            block[7] ^= 1;
        }
        let disk = SimDisk::new(rotted.clone());
        let store = disk.open().unwrap();
        for id in 0..100 {
            let got = store.get(RequestCtx::default(), LumpId(id));
            assert!(got.is_err(), "byte {at}: lump {id} was served");
        }
        store.close().unwrap();
        assert_eq!(check(&rotted).damaged_lumps, 101, "byte {at}");
    }
}

#[test]
fn a_seal_that_rots_is_known_and_made_good() {
    let (image, lumps) = wrapped();
    let seal = RING + find(&image[RING..DATA], b"LsSl");
    for bit in (0..32 * 8).step_by(5) {
        let mut rotted = image.clone();
        rotted[seal + bit / 8] ^= 1 << (bit % 8);
        heals(&rotted, &lumps, &format!("bit {bit} of the seal"));
    }
    let mut rotted = image;
    rotted[seal..seal + 32].fill(0);
    heals(&rotted, &lumps, "the seal zeroed");
}

/// The place of the newest seal: the one directly behind the last end of records.
fn find(ring: &[u8], magic: &[u8]) -> usize {
    let log_end = |at: usize| u64::from_be_bytes(*ring[at + 12..].first_chunk().unwrap());
    let places = (5..ring.len() - 32).filter(|&at| ring[at..].starts_with(magic));
    places.max_by_key(|&at| log_end(at)).unwrap()
}
