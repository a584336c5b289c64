//! Devices that fail: what fails is reported, what was acknowledged stays.

use crate::support::sim::{Fault, SimDisk};
use crate::support::{Shape, content, ctx, get, put, try_put};
use lumpscope_engine::{Durability, Error, FindingKind, IoOp, LumpId, Placement};

const SHAPE: Shape = Shape {
    block_size: 512,
    ring_blocks: 16,
    data_blocks: 400,
};
/// First byte of the data region.
const DATA: u64 = 512 * 18;

#[test]
fn a_failed_flush_or_journal_write_is_sticky_and_loses_nothing() {
    for (op, errno) in [
        (IoOp::Flush, 5),
        (IoOp::Write, 5),
        (IoOp::Flush, 28),
        (IoOp::Write, 28),
    ] {
        for after in 0..40 {
            let disk = SimDisk::new(SHAPE.image());
            let store = disk.open().unwrap();
            disk.fail(Some(Fault {
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
fn a_failed_data_write_fails_that_put_only() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    put(&store, 1, b"old");
    let used = store.stats().data_used_bytes;
    disk.fail(Some(Fault {
        op: IoOp::Write,
        after: 0,
        errno: 5,
        below: u64::MAX,
    }));
    let error = try_put(&store, 1, &content(1, 2, 3000), Placement::Data).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Io {
                op: IoOp::Write,
                len: 3072,
                ..
            }
        ),
        "{error}"
    );
    disk.fail(Some(Fault {
        op: IoOp::Write,
        after: 0,
        errno: 28,
        below: u64::MAX,
    }));
    let error = try_put(&store, 1, &content(1, 2, 3000), Placement::Data).unwrap_err();
    assert!(matches!(error, Error::NoSpace { len: 3072, .. }), "{error}");
    disk.fail(None);
    assert_eq!(store.failed(), None);
    store.sync().unwrap();
    assert_eq!(
        (store.stats().data_used_bytes, store.stats().io_errors),
        (used, 4 + 1),
        "four places refuse it, none is to blame; without space there is one try"
    );
    assert_eq!(store.stats().bad_bytes, 0);
    assert_eq!(get(&store, 1).as_deref(), Some(&b"old"[..]));
    put(&store, 1, b"new");
    assert_eq!(get(&store, 1).as_deref(), Some(&b"new"[..]));
}

#[test]
fn puts_leave_a_bad_spot_and_succeed_elsewhere() {
    let disk = SimDisk::new(SHAPE.image());
    // Room for two lumps of 6 blocks that refuses every write.
    let spot = DATA + 48 * 512..DATA + 60 * 512;
    disk.refuse_writes(spot.clone());
    let store = disk.open().unwrap();
    for id in 0..45 {
        put(&store, id, &content(id, 1, 3000));
    }
    assert_eq!(
        (store.stats().bad_bytes, store.stats().io_errors),
        (12 * 512, 2)
    );
    assert_eq!(store.stats().data_used_bytes, (45 + 2) * 6 * 512);
    let found = store.scrub_status().findings;
    let mut places: Vec<_> = found
        .list
        .iter()
        .map(|found| (found.kind, found.offset))
        .collect();
    places.sort_unstable_by_key(|&(_, offset)| offset);
    let first = (FindingKind::Write, spot.start);
    assert_eq!(places, [first, (FindingKind::Write, spot.start + 6 * 512)]);
    assert_eq!(store.failed(), None);
    store.close().unwrap();
    // The blocks that a restart knows nothing of are the first ones that are free.
    let store = disk.open().unwrap();
    for id in 45..55 {
        put(&store, id, &content(id, 1, 3000));
    }
    assert_eq!(store.stats().bad_bytes, 12 * 512);
    for id in 0..55 {
        assert_eq!(get(&store, id), Some(content(id, 1, 3000)));
    }
}

#[test]
fn a_failed_read_is_reported_and_nothing_else_happens() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    put(&store, 1, b"one");
    disk.fail(Some(Fault {
        op: IoOp::Read,
        after: 0,
        errno: 5,
        below: u64::MAX,
    }));
    let error = store.get(ctx(), LumpId(1)).unwrap_err();
    assert!(matches!(error, Error::Io { op: IoOp::Read, .. }), "{error}");
    disk.fail(None);
    assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
}

#[test]
fn a_header_that_cannot_move_is_a_failure() {
    let disk = SimDisk::new(SHAPE.image());
    // With the checked copies of its headers.
    let store = disk.open().unwrap();
    put(&store, 0, b"");
    store.close().unwrap();
    let store = disk.open().unwrap();
    disk.fail(Some(Fault {
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
