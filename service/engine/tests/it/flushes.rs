//! How many writes and flushes a put costs, by what the device offers.

use crate::support::but;
use std::fs;
use std::path::Path;

use crate::support::disks::{Image, plain, require};
use crate::support::stepped::{Stepped, bytes, disk_of, options, steady};
use lumpscope_engine::create::format;
use lumpscope_engine::device::WriteCache;
use lumpscope_engine::device::sim::{SimDisk, SimOptions, blank_image};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{
    CommitMode, Durability, LumpId, Placement, RequestCtx, Store, StoreOptions, StoreStats,
};

fn put(store: &Store, id: u128, durability: Durability) {
    let mut lump = store.lump_buf(1000).unwrap();
    lump.extend(&[7; 1000]).unwrap();
    let ctx = RequestCtx::default();
    store
        .put(ctx, LumpId(id), lump, Placement::Data, durability)
        .unwrap();
}

/// Writes, forced ones among them, flushes and those that were not sent.
fn numbers(stats: &StoreStats) -> [u64; 4] {
    [
        stats.writes,
        stats.writes_forced,
        stats.flushes,
        stats.flushes_spared,
    ]
}

/// These since `before`.
fn since(before: &StoreStats, store: &Store) -> [u64; 4] {
    let (before, after) = (numbers(before), numbers(&store.stats()));
    std::array::from_fn(|at| after[at] - before[at])
}

/// These for what is done.
fn cost(store: &Store, work: impl FnOnce()) -> [u64; 4] {
    let before = store.stats();
    work();
    since(&before, store)
}

/// The only way without writes that come with time.
fn ordered(name: &str) -> StoreOptions {
    but(StoreOptions::new(name), |it| {
        it.commit = CommitMode::Ordered
    })
}

fn store_on(cache: WriteCache, fua: bool) -> Store {
    let options = SimOptions {
        unit: 4096,
        cache,
        fua,
        ..SimOptions::default()
    };
    let block_size = BlockSize::new(4096).unwrap();
    let disk = SimDisk::new(&blank_image(block_size, 16, 64, [7; 16]), options);
    let open = || Store::open_on(disk.device(), ordered("sim")).unwrap();
    let store = open();
    // The first append is after another engine's, and header and ring head get their copies.
    put(&store, 0, Durability::Synced);
    store.close().unwrap();
    open()
}

#[test]
fn a_put_costs_what_the_device_makes_necessary() {
    for (cache, fua, expected) in [
        (WriteCache::Back, false, [2, 0, 2, 0]),
        (WriteCache::Back, true, [2, 0, 2, 0]),
        (WriteCache::Through, false, [2, 0, 0, 2]),
        (WriteCache::Through, true, [2, 0, 0, 2]),
    ] {
        let store = store_on(cache, fua);
        for id in 1..5 {
            let found = cost(&store, || put(&store, id, Durability::Synced));
            assert_eq!(found, expected, "{cache:?}, FUA {fua}");
        }
        // Who asks for less does not wait for more.
        put(&store, 9, Durability::Journaled);
        store.sync().unwrap();
        put(&store, 10, Durability::Journaled);
        store.sync().unwrap();
        assert_eq!(store.stats().writes_forced, 0);
        let found = cost(&store, || store.sync().unwrap());
        assert_eq!(found, [0, 0, 0, 1], "nothing was written: {cache:?}");
        store.close().unwrap();
    }
}

/// Where the device takes writes past its cache, a put of a run has no flush, and none is answered
/// before those that were placed before it are durable.
#[test]
fn a_put_of_a_run_that_is_forced_needs_no_flush() {
    let sim = SimOptions {
        fua: true,
        latency: steady(1000, 1000),
        ..SimOptions::default()
    };
    let image = blank_image(BlockSize::MIN, 24, 400, [7; 16]);
    let mut store = Stepped::open(SimDisk::new(&image, sim), options(CommitMode::Runs));
    store.put(0, 1200, Placement::Data);
    store.settle();
    for len in [1200, 300] {
        for id in 1..9 {
            let before = store.store.stats();
            store.put(id, len, Placement::Data);
            assert_eq!(since(&before, &store.store), [1, 1, 0, 0], "{id}, {len}");
        }
    }
    let lens = [1200, 300, 1200];
    let told: Vec<_> = (20..)
        .zip(lens)
        .map(|(id, len)| store.submit_put(id, len, Placement::Data))
        .collect();
    let before = store.store.stats();
    store.wait(&told[2]).unwrap();
    assert!(
        told[..2]
            .iter()
            .all(|told| told.try_recv().unwrap().is_ok())
    );
    assert_eq!(since(&before, &store.store), [3, 3, 0, 0]);
    let model = store.model.clone();
    let mut store = Stepped::open(disk_of(&bytes(&store)), options(CommitMode::Ordered));
    store.model = model;
    store.check_all();
}

/// The administrator turns the cache on and off under an open store.
#[test]
fn a_real_device_gets_flushes_while_it_has_a_cache() {
    require!();
    let image = Image::new(16 << 20);
    let device = image.attach(&[]);
    format(device.path(), &plain()).unwrap();
    let name = device.path().file_name().unwrap().to_owned();
    let knob = Path::new("/sys/block").join(name).join("queue/write_cache");
    let before = fs::read_to_string(&knob).unwrap();
    fs::write(&knob, "write through").unwrap();
    let open = || Store::open(device.path(), ordered("loop")).unwrap();
    let store = open();
    put(&store, 1, Durability::Synced);
    store.close().unwrap();
    let store = open();
    let facts = store.info().disk.unwrap();
    assert_eq!(facts.write_cache, WriteCache::Through);
    assert_eq!(store.info().durable_by, "the end of each write");
    let [writes, _, flushes, spared] = cost(&store, || put(&store, 2, Durability::Synced));
    assert_eq!((writes, flushes, spared), (2, 0, 2));
    // A kernel lets the cache be turned on only where the device has one.
    if before.trim() == "write back" {
        fs::write(&knob, "write back").unwrap();
        let [writes, _, flushes, spared] = cost(&store, || put(&store, 3, Durability::Synced));
        assert_eq!((writes, flushes, spared), (2, 2, 0));
    }
    store.close().unwrap();
}
