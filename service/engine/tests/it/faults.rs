//! Devices that fail: what fails is reported, what was acknowledged stays.

use crate::support::sim::{IoFault, SimDisk};
use crate::support::{Shape, content, ctx, get, put, try_put, until};
use lumpscope_engine::{
    CommitMode, Durability, Error, FindingKind, IoOp, LumpId, Placement, Store, StoreOptions,
    StoreState,
};

const SHAPE: Shape = Shape {
    block_size: 512,
    ring_blocks: 16,
    data_blocks: 400,
};
/// First byte of its data region.
const DATA: u64 = 512 * 18;
/// One whose journal takes hundreds of records.
const ROOMY: Shape = Shape {
    block_size: 512,
    ring_blocks: 64,
    data_blocks: 4000,
};

#[test]
fn a_failed_flush_is_sticky_and_loses_nothing() {
    for (op, errno) in [(IoOp::Flush, 5), (IoOp::Flush, 28)] {
        for after in 0..40 {
            let disk = SimDisk::new(SHAPE.image());
            let store = disk.open_as(CommitMode::Ordered).unwrap();
            disk.fail(Some(IoFault {
                op,
                after,
                errno,
                below: DATA,
            }));
            let mut acknowledged = 0;
            let error = loop {
                let id = acknowledged;
                match try_put(&store, id, &content(id, 1, 700), Placement::Data) {
                    Ok(_) => acknowledged += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Failed { .. }), "{error}");
            let why = store.failed().expect("the failure sticks");
            assert!(error.to_string().contains(&why));
            disk.fail(None);
            let refused = try_put(&store, 1000, b"x", Placement::Embedded).unwrap_err();
            assert!(matches!(refused, Error::Failed { .. }), "{refused}");
            let refused = store
                .delete(ctx(), LumpId(0), Durability::Synced)
                .unwrap_err();
            assert!(matches!(refused, Error::Failed { .. }), "{refused}");
            assert!(matches!(store.sync(), Err(Error::Failed { .. })));
            for id in 0..acknowledged {
                assert_eq!(get(&store, id), Some(content(id, 1, 700)), "reads go on");
            }
            assert!(matches!(store.close(), Err(Error::Failed { .. })));
            let store = disk.open().unwrap();
            for id in 0..acknowledged {
                assert_eq!(
                    get(&store, id),
                    Some(content(id, 1, 700)),
                    "after reopening"
                );
            }
            put(&store, 2000, b"works again");
        }
    }
}

#[test]
fn a_journal_without_space_refuses_changes_until_there_is_some() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    // Blocks of the ring that have never been written, as in a sparse file.
    disk.have_no_space(512 * 4..512 * 18);
    let mut stored = 0;
    let error = loop {
        match try_put(
            &store,
            stored,
            &content(stored, 1, 100),
            Placement::Embedded,
        ) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(stored > 3, "{stored}");
    assert_eq!(store.failed(), None);
    assert_eq!(store.health().state, StoreState::Serving);
    let again = try_put(&store, 100, &content(100, 1, 900), Placement::Embedded).unwrap_err();
    assert!(matches!(again, Error::NoSpace { .. }), "{again}");
    disk.fail(None);
    for id in stored..stored + 5 {
        put(&store, id, &content(id, 1, 100));
    }
    store.close().unwrap();
    let store = disk.open().unwrap();
    for id in 0..stored + 5 {
        assert_eq!(get(&store, id), Some(content(id, 1, 100)));
    }
    assert_eq!(get(&store, 100), None);
}

#[test]
fn a_failed_data_write_fails_that_put_only() {
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        failed_data_write(commit);
    }
}

fn failed_data_write(commit: CommitMode) {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open_as(commit).unwrap();
    put(&store, 1, b"old");
    // The header's copies are written after the first batch, which the faults must not meet.
    store.close().unwrap();
    let store = disk.open_as(commit).unwrap();
    let used = store.stats().data_used_bytes;
    disk.fail(Some(IoFault {
        op: IoOp::Write,
        after: 0,
        errno: 5,
        below: u64::MAX,
    }));
    let error = try_put(&store, 1, &content(1, 2, 3000), Placement::Data).unwrap_err();
    let Error::Io {
        op: IoOp::Write,
        len,
        ..
    } = error
    else {
        panic!("{error}");
    };
    // A trial write that began before the next line could tell of its failure after the put.
    until(&store, StoreState::ReadOnly);
    // Checked, it is the end of the journal that was refused last.
    if commit == CommitMode::Ordered {
        assert_eq!(len, 3072);
        disk.fail(Some(IoFault {
            op: IoOp::Write,
            after: 0,
            errno: 28,
            below: u64::MAX,
        }));
        // Until a trial write has found that the disk refuses for another reason now.
        let error = loop {
            match try_put(&store, 1, &content(1, 2, 3000), Placement::Data).unwrap_err() {
                Error::OutOfService { .. } => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                error => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace { len: 3072, .. }), "{error}");
    }
    disk.fail(None);
    until(&store, StoreState::Serving);
    assert_eq!(store.failed(), None);
    store.sync().unwrap();
    let stats = store.stats();
    assert_eq!(
        (stats.data_used_bytes, stats.bad_bytes),
        (used, 0),
        "all places refuse it, and none is to blame"
    );
    // And trial writes, or the end of the journal.
    let places = if commit == CommitMode::Ordered { 4 } else { 1 };
    assert!(stats.io_errors > places, "{}", stats.io_errors);
    assert_eq!(get(&store, 1).as_deref(), Some(&b"old"[..]));
    put(&store, 1, b"new");
    assert_eq!(get(&store, 1).as_deref(), Some(&b"new"[..]));
}

#[test]
fn puts_leave_a_bad_spot_and_succeed_elsewhere_also_after_a_restart() {
    let data = ROOMY.data();
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        let options = || StoreOptions {
            commit,
            ..StoreOptions::new("sim")
        };
        let disk = SimDisk::new(ROOMY.image());
        // 64 KiB that refuse every write, where the puts come through.
        disk.refuse_writes(data + 48 * 512..data + (48 + 128) * 512);
        let store = disk.open_with(options()).unwrap();
        for id in 0..45 {
            put(&store, id, &content(id, 1, 3000));
        }
        let stats = store.stats();
        assert_eq!((stats.bad_places, stats.bad_bytes), (1, 6 * 512));
        assert_eq!((stats.io_errors, store.failed()), (1, None));
        assert_eq!(stats.data_used_bytes, (45 + 1) * 6 * 512);
        let shown = |store: &Store| {
            let found = store.scrub_status().findings;
            let places = found.list.iter().map(|found| (found.kind, found.offset));
            places.collect::<Vec<_>>()
        };
        assert_eq!(shown(&store), [(FindingKind::Write, data + 48 * 512)]);
        store.close().unwrap();
        let store = disk.open_with(options()).unwrap();
        assert_eq!(shown(&store), [(FindingKind::Write, data + 48 * 512)]);
        assert_eq!(store.stats().bad_bytes, 6 * 512);
        assert_eq!(store.health().state, StoreState::Serving);
        for id in 45..600 {
            put(&store, id, &content(id, 1, 3000));
        }
        for id in 0..600 {
            assert_eq!(get(&store, id), Some(content(id, 1, 3000)));
        }
        // Most of the spot was tried, place by place: it is one.
        assert_eq!(store.stats().bad_places, 1, "{commit:?}");
        assert_eq!(store.failed(), None);
    }
}

#[test]
fn many_bad_spots_make_a_store_degraded_and_are_remembered() {
    let shape = Shape {
        data_blocks: 400,
        ..ROOMY
    };
    let disk = SimDisk::new(shape.image());
    for spot in 0..20 {
        let start = shape.data() + spot * 20 * 512;
        disk.refuse_writes(start..start + 512);
    }
    let store = disk.open_as(CommitMode::Ordered).unwrap();
    let mut stored = Vec::new();
    for id in 0..360 {
        // The last ones find no place that takes them: they fail alone.
        if try_put(&store, id, &content(id, 1, 100), Placement::Data).is_ok() {
            stored.push(id);
        }
    }
    assert!(stored.len() > 250, "{}", stored.len());
    let stats = store.stats();
    assert!(stats.bad_places >= 16, "{stats:?}");
    let health = store.health();
    assert_eq!(health.state, StoreState::Degraded, "{health:?}");
    assert!(health.reason.contains("refused to write"), "{health:?}");
    store.close().unwrap();
    let store = disk.open().unwrap();
    assert_eq!(store.stats().bad_places, 16);
    assert_eq!(store.health().state, StoreState::Degraded);
    for id in stored {
        assert_eq!(get(&store, id), Some(content(id, 1, 100)));
    }
}

#[test]
fn a_header_that_cannot_move_is_a_failure() {
    let disk = SimDisk::new(SHAPE.image());
    // With the checked copies of its headers.
    let store = disk.open().unwrap();
    put(&store, 0, b"");
    store.close().unwrap();
    let store = disk.open().unwrap();
    disk.fail(Some(IoFault {
        op: IoOp::Write,
        after: 0,
        errno: 5,
        below: 1024,
    }));
    let mut put_before = 0;
    while try_put(
        &store,
        put_before % 5,
        &content(put_before % 5, 1, 100),
        Placement::Data,
    )
    .is_ok()
    {
        put_before += 1;
        assert!(put_before < 10_000, "the ring must go round");
    }
    assert!(store.failed().is_some());
    disk.fail(None);
    drop(store);
    let store = disk.open().unwrap();
    for id in 0..5 {
        assert_eq!(get(&store, id), Some(content(id, 1, 100)));
    }
}
