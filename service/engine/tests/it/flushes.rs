//! How many writes and flushes a put costs, by what the device offers.

use std::fs;
use std::path::Path;

use crate::support::disks::{Image, plain, require};
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

/// Writes, forced ones among them, flushes and those that were not sent, for what is done.
fn cost(store: &Store, work: impl FnOnce()) -> [u64; 4] {
    let numbers = |stats: StoreStats| {
        [
            stats.writes,
            stats.writes_forced,
            stats.flushes,
            stats.flushes_spared,
        ]
    };
    let before = numbers(store.stats());
    work();
    let after = numbers(store.stats());
    std::array::from_fn(|at| after[at] - before[at])
}

/// The only way without writes that come with time.
fn ordered(name: &str) -> StoreOptions {
    StoreOptions {
        commit: CommitMode::Ordered,
        ..StoreOptions::new(name)
    }
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
        (WriteCache::Back, true, [2, 1, 1, 0]),
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
        let forced = store.stats().writes_forced;
        put(&store, 10, Durability::Journaled);
        store.sync().unwrap();
        assert_eq!(store.stats().writes_forced, forced);
        let found = cost(&store, || store.sync().unwrap());
        assert_eq!(found, [0, 0, 0, 1], "nothing was written: {cache:?}");
        store.close().unwrap();
    }
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
