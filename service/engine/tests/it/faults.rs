//! Devices that fail: what fails is reported, what was acknowledged stays.

use crate::support::sim::SimDisk;
use crate::support::{Shape, but, content, ctx, get, options, put, try_put, until};
use lumpscope_engine::{
    CommitMode, Durability, Error, FindingKind, IoOp, LumpId, Placement, Store, StoreState,
};

const SHAPE: Shape = Shape::new(512, 16, 400);
/// First byte of its data region.
const DATA: u64 = 512 * 18;
/// One whose journal takes hundreds of records.
const ROOMY: Shape = Shape::new(512, 64, 4000);

/// Puts lumps 0, 1, 2 ... until one fails: its id, and why.
fn put_until_error(store: &Store, len: usize, placement: Placement) -> (u128, Error) {
    let mut puts = (0..).map(|id| (id, try_put(store, id, &content(id, 1, len), placement)));
    let (id, failed) = puts.find(|(_, put)| put.is_err()).unwrap();
    (id, failed.unwrap_err())
}

#[test]
fn a_failed_flush_is_sticky_and_loses_nothing() {
    for (op, errno) in [(IoOp::Flush, 5), (IoOp::Flush, 28)] {
        for after in 0..40 {
            let disk = SimDisk::new(SHAPE.image());
            let store = disk.open_as(CommitMode::Ordered).unwrap();
            disk.fail(op, after, errno, DATA);
            let (acknowledged, error) = put_until_error(&store, 700, Placement::Data);
            assert!(matches!(error, Error::Failed { .. }), "{error}");
            let why = store.failed().expect("the failure sticks");
            assert!(error.to_string().contains(&why));
            disk.heal();
            let refused = try_put(&store, 1000, b"x", Placement::Embedded).unwrap_err();
            assert!(matches!(refused, Error::Failed { .. }), "{refused}");
            let refused = store.delete(ctx(), LumpId(0), Durability::Synced);
            assert!(matches!(refused, Err(Error::Failed { .. })), "{refused:?}");
            assert!(matches!(store.sync(), Err(Error::Failed { .. })));
            for id in 0..acknowledged {
                assert_eq!(get(&store, id), Some(content(id, 1, 700)), "reads go on");
            }
            assert!(matches!(store.close(), Err(Error::Failed { .. })));
            let store = disk.open().unwrap();
            for id in 0..acknowledged {
                let found = get(&store, id);
                assert_eq!(found, Some(content(id, 1, 700)), "after reopening");
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
    let (stored, error) = put_until_error(&store, 100, Placement::Embedded);
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(stored > 3, "{stored}");
    assert_eq!(store.failed(), None);
    assert_eq!(store.health().state, StoreState::Serving);
    let again = try_put(&store, 100, &content(100, 1, 900), Placement::Embedded).unwrap_err();
    assert!(matches!(again, Error::NoSpace { .. }), "{again}");
    disk.heal();
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
    disk.fail(IoOp::Write, 0, 5, u64::MAX);
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
        disk.fail(IoOp::Write, 0, 28, u64::MAX);
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
    disk.heal();
    until(&store, StoreState::Serving);
    assert_eq!(store.failed(), None);
    store.sync().unwrap();
    let stats = store.stats();
    // All places refuse it, and none is to blame.
    assert_eq!((stats.data_used_bytes, stats.bad_bytes), (used, 0));
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
        let options = || but(options(), |it| it.commit = commit);
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
    disk.fail(IoOp::Write, 0, 5, 1024);
    let ids = (0..10_000).map(|number| number % 5);
    let mut puts = ids.map(|id| try_put(&store, id, &content(id, 1, 100), Placement::Data));
    assert!(puts.any(|put| put.is_err()), "the ring must go round");
    assert!(store.failed().is_some());
    disk.heal();
    drop(store);
    let store = disk.open().unwrap();
    for id in 0..5 {
        assert_eq!(get(&store, id), Some(content(id, 1, 100)));
    }
}
