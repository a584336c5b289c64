//! Many threads at once: every get sees one whole version, and a shared flush serves many puts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::sim::{Random, SimDisk};
use crate::support::{
    Shape, buf, content, ctx, delete, disk_dir, get, options, put, store_file, try_put,
};
use crossbeam_channel::unbounded;
use lumpscope_engine::{Durability, Error, IoBackendChoice, LumpId, Placement, Store};

const THREADS: u64 = 8;

fn hammer(store: &Store, operations: u64) {
    let next_version = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let next_version = &next_version;
            scope.spawn(move || {
                let mut random = Random(thread);
                let mut own: Vec<Option<Vec<u8>>> = vec![None; 6];
                for _ in 0..operations {
                    let slot = random.below(own.len());
                    let id = u128::from(thread) << 64 | slot as u128;
                    match random.below(5) {
                        0 => {
                            assert_eq!(delete(store, id), own[slot].take().is_some());
                        }
                        1 => assert_eq!(get(store, id), own[slot]),
                        _ => {
                            let version = next_version.fetch_add(1, Ordering::Relaxed);
                            let bytes = content(id, version, random.below(20_000));
                            let created = put(store, id, &bytes).created;
                            assert_eq!(created, own[slot].replace(bytes).is_none());
                        }
                    }
                }
                for (slot, bytes) in own.into_iter().enumerate() {
                    assert_eq!(get(store, u128::from(thread) << 64 | slot as u128), bytes);
                }
            });
        }
    });
}

#[test]
fn eight_threads_see_their_own_changes_on_both_backends() {
    for io_backend in [IoBackendChoice::Threads, IoBackendChoice::Uring] {
        let dir = disk_dir();
        let path = store_file(&dir, Shape::new(4096, 3, 2000));
        let mut options = options();
        options.io_backend = io_backend;
        let store = Store::open(&path, options).unwrap();
        hammer(&store, 60);
        let stats = store.stats();
        // Commits are shared.
        assert!(stats.commit_records > stats.commits, "{stats:?}");
        store.close().unwrap();
    }
}

#[test]
fn eight_threads_on_a_disk_that_reorders() {
    let shape = Shape::new(512, 12, 8000);
    let mut disk = SimDisk::new(shape.image());
    disk.shuffle = Some(3);
    hammer(&disk.open().unwrap(), 600);
}

#[test]
fn readers_never_see_mixed_versions() {
    let shape = Shape::new(512, 12, 600);
    let mut disk = SimDisk::new(shape.image());
    disk.shuffle = Some(9);
    let store = disk.open().unwrap();
    let versions = |version: u64| content(1, version % 50, 5000 + (version % 50) as usize);
    put(&store, 1, &versions(0));
    try_put(&store, 2, &versions(0)[..300], Placement::Embedded).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let bytes = get(&store, 1).unwrap();
                    let version = bytes.len() as u64 - 5000;
                    assert_eq!(bytes, versions(version));
                    let bytes = get(&store, 2).unwrap();
                    assert!((0..50).any(|version| bytes == versions(version)[..300]));
                }
            });
        }
        for version in 1..400 {
            put(&store, 1, &versions(version));
            try_put(&store, 2, &versions(version)[..300], Placement::Embedded).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(store.stats().checksum_failures, 0);
}

#[test]
fn the_order_of_the_log_decides_between_changes_of_one_id() {
    let shape = Shape::new(512, 12, 2000);
    let mut disk = SimDisk::new(shape.image());
    for seed in 0..20 {
        disk.shuffle = Some(seed);
        let store = disk.open().unwrap();
        let (sender, done) = unbounded();
        for version in 0..16_u64 {
            let bytes = content(1, version, 600);
            let buf = buf(&store, &bytes);
            let sender = sender.clone();
            let on_done = Box::new(move |result: Result<_, Error>, _| {
                result.unwrap();
                sender.send(version).unwrap();
            });
            let id = LumpId(1);
            store
                .submit_put(ctx(), id, buf, Placement::Data, Durability::Synced, on_done)
                .unwrap();
        }
        // Answers come in the order of the log, so the last one is what stays.
        let last = done.iter().take(16).last().unwrap();
        assert_eq!(get(&store, 1), Some(content(1, last, 600)));
        store.close().unwrap();
        let store = disk.open().unwrap();
        assert_eq!(get(&store, 1), Some(content(1, last, 600)));
    }
}

#[test]
fn times_add_up_and_a_full_queue_says_busy() {
    let dir = disk_dir();
    let path = store_file(&dir, Shape::new(4096, 3, 2000));
    let mut options = options();
    options.queue_limit = 2;
    options.queue_depth = 1;
    let store = Store::open(&path, options).unwrap();
    let (sender, done) = unbounded();
    let mut busy = 0;
    for id in 0..200 {
        let buf = buf(&store, b"four");
        let (sender, begin) = (sender.clone(), lumpscope_engine::clock::monotonic_ns());
        let on_done = Box::new(move |result: Result<_, Error>, times| {
            let passed = lumpscope_engine::clock::monotonic_ns() - begin;
            sender.send((result, times, passed)).unwrap();
        });
        let (id, placement) = (LumpId(id), Placement::Data);
        match store.submit_put(ctx(), id, buf, placement, Durability::Synced, on_done) {
            Ok(()) => {}
            Err(Error::Busy { limit: 2, .. }) => busy += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(busy > 0);
    drop(sender);
    for (result, times, passed) in done {
        result.unwrap();
        assert!(times.total_ns() <= passed && times.data_ns > 0 && times.commit_ns() > 0);
    }
}

#[test]
fn the_last_handle_may_go_in_a_callback() {
    let dir = disk_dir();
    let path = store_file(&dir, Shape::new(4096, 3, 200));
    for round in 0..10 {
        let store = loop {
            match Store::open(&path, options()) {
                Ok(store) => break store,
                // The owner thread of the round before still ends.
                Err(Error::InUse { .. }) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        put(&store, 1, b"one");
        let (sender, done) = unbounded();
        let last = store.clone();
        let on_get = Box::new(move |result: Result<lumpscope_engine::LumpData, _>, _| {
            assert_eq!(&result.unwrap()[..], b"one");
            drop(last);
            sender.send(()).unwrap();
        });
        store.submit_get(ctx(), LumpId(1), on_get).unwrap();
        drop(store);
        let done = done.recv();
        assert!(done.is_ok(), "round {round}: {done:?}");
    }
}

/// A caller may end before what it has submitted does.
#[test]
fn callers_that_end_leave_nothing_undone() {
    for io_backend in [IoBackendChoice::Threads, IoBackendChoice::Uring] {
        let dir = disk_dir();
        let shape = Shape::new(4096, 3, 2000);
        let mut options = options();
        options.io_backend = io_backend;
        let store = Store::open(&store_file(&dir, shape), options).unwrap();
        put(&store, 0, b"none");
        let (sender, done) = unbounded();
        for round in 0..50 {
            std::thread::scope(|scope| {
                for thread in 1..5 {
                    let (sender, store) = (sender.clone(), &store);
                    scope.spawn(move || {
                        let id = LumpId(thread);
                        let buf = buf(store, b"four");
                        let on_done = Box::new(move |result: Result<_, Error>, _| {
                            sender.send(result.map(|_| ())).unwrap();
                        });
                        let (placement, durability) = (Placement::Data, Durability::Synced);
                        store
                            .submit_put(ctx(), id, buf, placement, durability, on_done)
                            .unwrap();
                        let length = [4, 0][usize::from(round % 2 == 0 && thread > 2)];
                        let found = get(store, u128::from(length == 0) * 77);
                        assert_eq!(found.map_or(0, |bytes| bytes.len()), length);
                    });
                }
            });
        }
        drop(sender);
        assert_eq!(done.iter().map(|result| result.unwrap()).count(), 200);
        store.close().unwrap();
    }
}

/// Nobody waits for ever.
#[test]
fn a_callback_that_panics_ends_the_store_for_all() {
    for _ in 0..20 {
        let store = SimDisk::new(Shape::new(512, 24, 64).image());
        let store = store.open().unwrap();
        put(&store, 1, b"one");
        let panics = Box::new(|_: Result<lumpscope_engine::LumpData, _>, _| {
            std::panic::panic_any("a callback");
        });
        store.submit_get(ctx(), LumpId(1), panics).unwrap();
        let ends = std::thread::scope(|scope| {
            let waits = || (0..1000).find_map(|_| store.get(ctx(), LumpId(1)).err());
            [scope.spawn(waits), scope.spawn(waits)].map(|waiting| waiting.join())
        });
        for end in ends.into_iter().flatten() {
            assert!(matches!(end, Some(Error::Closed)), "{end:?}");
        }
        assert!(store.close().is_err());
    }
}
