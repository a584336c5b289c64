//! Groups (puts and deletes that are one change) and reading all embedded lumps in bulk.

use std::collections::BTreeMap;

use crate::support;
use crate::support::sim::{DiskEvent, Random, SimDisk};
use crate::support::{Shape, buf, content, ctx, embedded_if, get, try_put};
use lumpscope_engine::device::sim;
use lumpscope_engine::{Durability, Error, LumpId, LumpRange, Placement, PutGroup, Store};

fn disk(ring_blocks: u64) -> SimDisk {
    SimDisk::recording(Shape::new(512, ring_blocks, 400).image())
}

fn put_group(store: &Store, version: u64, deletes: Vec<LumpId>) -> Result<bool, Error> {
    let group = PutGroup {
        data: Some((LumpId(1), buf(store, &content(1, version, 3000)))),
        embedded: (LumpId(2), buf(store, &content(2, version, 200))),
        deletes,
    };
    store
        .put_group(ctx(), group, Durability::Synced)
        .map(|done| done.created)
}

#[test]
fn a_group_costs_what_its_data_costs() {
    let disk = disk(40);
    let store = disk.open().unwrap();
    let flushes = |store: &Store| store.stats().flushes;
    try_put(&store, 7, &[1; 3000], Placement::Data).unwrap();
    let before = flushes(&store);
    try_put(&store, 8, &[1; 3000], Placement::Data).unwrap();
    let alone = flushes(&store) - before;
    let before = flushes(&store);
    let is_write = |event: &&DiskEvent| matches!(event, DiskEvent::Write { .. });
    let writes = |disk: &SimDisk| disk.events().iter().filter(is_write).count();
    let written = writes(&disk);
    assert!(put_group(&store, 1, vec![LumpId(7), LumpId(9)]).unwrap());
    let (flushed, written) = (flushes(&store) - before, writes(&disk) - written);
    assert!(flushed <= alone + 1, "{flushed} flushes, {written} writes");
    assert!(written <= 3, "{flushed} flushes, {written} writes");
    assert!(!put_group(&store, 2, Vec::new()).unwrap());
    assert_eq!(get(&store, 1), Some(content(1, 2, 3000)));
    assert_eq!(get(&store, 2), Some(content(2, 2, 200)));
    assert_eq!((get(&store, 7), get(&store, 8).is_some()), (None, true));
    store.close().unwrap();
    let store = disk.open().unwrap();
    assert_eq!(get(&store, 1), Some(content(1, 2, 3000)));
    assert_eq!(get(&store, 2), Some(content(2, 2, 200)));
    assert_eq!(get(&store, 7), None);
}

/// The disk fails after every I/O of a row of groups: all of one is there, or nothing.
#[test]
fn a_group_is_never_divided() {
    for io in 0..60 {
        let shape = Shape::new(512, 6, 60);
        let disk = sim::SimDisk::new(&shape.image(), sim::SimOptions::default());
        disk.die_after(io);
        let open = |disk: &sim::SimDisk| Store::open_on(disk.device(), support::options());
        let mut acknowledged = 0;
        if let Ok(store) = open(&disk) {
            for version in 1..=12 {
                match put_group(&store, version, vec![LumpId(3)]) {
                    Ok(_) => acknowledged = version,
                    Err(_) => break,
                }
            }
        }
        let mut random = sim::Random::derive(io, &[]);
        let survivors = sim::Survivors::ALL;
        let survivors = survivors[random.index(survivors.len())];
        let store = open(&disk.power_cut(survivors, &mut random)).unwrap();
        let pair = (get(&store, 1), get(&store, 2));
        let lump = |id, version, len| (version > 0).then(|| content(id, version, len));
        let fits = |version| pair == (lump(1, version, 3000), lump(2, version, 200));
        let fits = fits(acknowledged) || fits(acknowledged + 1);
        assert!(fits, "after {io} I/Os, {acknowledged}");
    }
}

#[test]
fn a_group_that_cannot_be_leaves_nothing() {
    let disk = disk(40);
    let store = disk.open().unwrap();
    let used = store.stats().data_used_bytes;
    let refused = |data: Option<usize>, embedded: usize, deletes| {
        let group = PutGroup {
            data: data.map(|len| (LumpId(1), buf(&store, &vec![1; len]))),
            embedded: (LumpId(2), buf(&store, &vec![2; embedded])),
            deletes: vec![LumpId(3); deletes],
        };
        store
            .put_group(ctx(), group, Durability::Synced)
            .unwrap_err()
    };
    match refused(Some(300_000), 10, 0) {
        Error::LumpTooLarge { .. } | Error::StoreFull { .. } => {}
        error => panic!("{error}"),
    }
    match refused(Some(10), 30_000, 0) {
        Error::JournalFull { .. } | Error::LumpTooLarge { .. } => {}
        error => panic!("{error}"),
    }
    let many = refused(None, 10, 4000);
    assert!(matches!(many, Error::LumpTooLarge { .. }), "{many}");
    assert_eq!((get(&store, 1), get(&store, 2)), (None, None));
    store.sync().unwrap();
    assert_eq!(store.stats().data_used_bytes, used);
    // Room that was set aside is free again.
    for version in 1..200 {
        put_group(&store, version, Vec::new()).unwrap();
    }
}

/// All embedded lumps of a range, by pages.
fn embedded(store: &Store, range: LumpRange) -> BTreeMap<u128, Vec<u8>> {
    let (mut all, mut from) = (BTreeMap::new(), 0);
    loop {
        let page = store.embedded(range, from).unwrap();
        all.extend(page.lumps.into_iter().map(|(id, bytes)| (id.0, bytes)));
        match page.next {
            Some(next) => from = next,
            None => return all,
        }
    }
}

#[test]
fn all_embedded_lumps_are_read_in_bulk() {
    let disk = disk(5000);
    let store = disk.open().unwrap();
    let mut random = Random(1);
    let mut model = BTreeMap::new();
    assert!(embedded(&store, LumpRange::ALL).is_empty());
    // The ring is gone round several times.
    for version in 0..6000 {
        let id = random.below(40) as u128;
        if random.below(5) == 0 {
            support::delete(&store, id);
            model.remove(&id);
            continue;
        }
        let bytes = content(id, version, random.below(4000));
        let placement = embedded_if(!id.is_multiple_of(4));
        try_put(&store, id, &bytes, placement).unwrap();
        model.insert(id, bytes);
        if version.is_multiple_of(500) {
            model_agrees(&store, &model);
        }
    }
    assert!(store.stats().header_writes > 0);
    model_agrees(&store, &model);
    store.close().unwrap();
    model_agrees(&disk.open().unwrap(), &model);
}

fn model_agrees(store: &Store, model: &BTreeMap<u128, Vec<u8>>) {
    let want = |range: std::ops::Range<u128>| -> BTreeMap<u128, Vec<u8>> {
        let found = model.range(range).filter(|(id, _)| !id.is_multiple_of(4));
        found.map(|(&id, bytes)| (id, bytes.clone())).collect()
    };
    assert_eq!(embedded(store, LumpRange::ALL), want(0..u128::MAX));
    let some = LumpRange {
        start: LumpId(5),
        end: Some(LumpId(20)),
    };
    assert_eq!(embedded(store, some), want(5..20));
}
