//! Stores on real files with direct I/O, on both backends: what was put is there, before and
//! after the store is opened again.

use std::os::unix::fs::FileExt;

use crate::support::{
    Shape, but, content, ctx, delete, disk_dir, get, options, put, store_file, try_put,
};
use lumpscope_engine::{
    CommitMode, Durability, Error, IoBackendChoice, IoBackendKind, LumpId, LumpRange, Placement,
    Store,
};

const SHAPE: Shape = Shape::new(4096, 4, 4096);

fn open(path: &std::path::Path, io_backend: IoBackendChoice) -> Result<Store, Error> {
    let mut options = options();
    options.io_backend = io_backend;
    Store::open(path, options)
}

#[test]
fn lumps_of_every_size_survive_reopening_on_both_backends() {
    let sizes = [
        0, 1, 4075, 4076, 4077, 4094, 4096, 8172, 65_535, 300_000, 3_000_000,
    ];
    for backend in [IoBackendChoice::Threads, IoBackendChoice::Uring] {
        for block_size in [512, 1536, 4096] {
            let dir = disk_dir();
            let data_blocks = 16 * 1024 * 1024 / u64::from(block_size);
            let path = store_file(&dir, Shape::new(block_size, 24, data_blocks));
            let store = open(&path, backend).unwrap();
            let is_uring = store.info().backend == IoBackendKind::Uring;
            assert_eq!(is_uring, backend == IoBackendChoice::Uring);
            for (id, size) in sizes.into_iter().enumerate() {
                assert!(put(&store, id as u128, &content(id as u128, 1, size)).created);
            }
            try_put(&store, 99, &content(99, 1, 700), Placement::Embedded).unwrap();
            assert!(!put(&store, 3, &content(3, 2, 10)).created);
            assert!(delete(&store, 0));
            assert!(!delete(&store, 0));
            let check = |store: &Store| {
                assert_eq!(get(store, 0), None);
                assert_eq!(get(store, 3), Some(content(3, 2, 10)));
                assert_eq!(get(store, 99), Some(content(99, 1, 700)));
                let others = sizes.into_iter().enumerate().skip(1);
                for (id, size) in others.filter(|&(id, _)| id != 3) {
                    let lump = store.get(ctx(), LumpId(id as u128)).unwrap();
                    assert!(lump.verified);
                    assert_eq!(&lump[..], content(id as u128, 1, size));
                    let head = store.head(ctx(), LumpId(id as u128)).unwrap();
                    assert_eq!(head.length, size as u64);
                    assert_eq!(head.placement, Placement::Data);
                }
                let head = store.head(ctx(), LumpId(99)).unwrap();
                assert_eq!((head.length, head.placement), (700, Placement::Embedded));
            };
            check(&store);
            store.close().unwrap();
            let store = open(&path, backend).unwrap();
            check(&store);
            assert_eq!(store.info().replay.lumps, sizes.len() as u64);
            // A handle that is dropped closes the store too: it can be opened again at once.
            drop(store);
            open(&path, backend).unwrap();
        }
    }
}

#[test]
fn ranges_are_listed_counted_and_deleted() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let store = open(&path, IoBackendChoice::Auto).unwrap();
    for id in [0, 5, 6, 7, u128::MAX] {
        put(&store, id, &content(id, 1, 5000));
    }
    let range = |start, end: Option<u128>| LumpRange {
        start: LumpId(start),
        end: end.map(LumpId),
    };
    let page = store.list(LumpRange::ALL, 2).unwrap();
    assert_eq!(page.ids, [LumpId(0), LumpId(5)]);
    assert_eq!(page.next, Some(LumpId(6)));
    let page = store.list(range(6, None), 9).unwrap();
    assert_eq!((page.ids.len(), page.next), (3, None));
    let usage = store.usage(range(5, Some(7))).unwrap();
    assert_eq!((usage.lumps, usage.stored_bytes), (2, 16_384));
    let reversed = store.delete_range(ctx(), LumpId(2), LumpId(1), Durability::Synced);
    assert!(matches!(reversed, Err(Error::ReversedRange { .. })));
    let reversed = store.list(range(2, Some(1)), 9);
    assert!(matches!(reversed, Err(Error::ReversedRange { .. })));
    let remove = |start, end| {
        let (start, end) = (LumpId(start), LumpId(end));
        let gone = store.delete_range(ctx(), start, end, Durability::Synced);
        gone.unwrap().deleted
    };
    assert_eq!(remove(5, 5), 0);
    assert_eq!(remove(5, 7), 2);
    assert_eq!(remove(5, 7), 0);
    assert_eq!(remove(0, u128::MAX), 2);
    assert_eq!(store.usage(LumpRange::ALL).unwrap().lumps, 1);
    store.close().unwrap();
    let store = open(&path, IoBackendChoice::Auto).unwrap();
    let left = store.list(LumpRange::ALL, 9).unwrap().ids;
    assert_eq!(left, [LumpId(u128::MAX)]);
}

#[test]
fn what_is_not_a_store_is_refused() {
    let dir = disk_dir();
    let path = dir.path().join("x");
    std::fs::write(&path, vec![0; 1 << 16]).unwrap();
    for path in [path.as_path(), dir.path()] {
        let refused = open(path, IoBackendChoice::Auto);
        assert!(matches!(refused, Err(Error::NotAStore { .. })));
    }
    let missing = open(&dir.path().join("missing"), IoBackendChoice::Auto);
    assert!(matches!(missing, Err(Error::System { .. })));
    let mut image = SHAPE.image();
    image[9] = 2;
    std::fs::write(&path, &image).unwrap();
    let error = open(&path, IoBackendChoice::Auto).unwrap_err();
    let Error::Corrupt { what, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(what, "the header");
    image[9] = 0;
    std::fs::write(&path, &image).unwrap();
    open(&path, IoBackendChoice::Auto).unwrap();
}

#[test]
fn a_store_in_use_is_refused() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let store = open(&path, IoBackendChoice::Auto).unwrap();
    let refused = open(&path, IoBackendChoice::Auto);
    assert!(matches!(refused, Err(Error::InUse { .. })));
    store.close().unwrap();
    open(&path, IoBackendChoice::Auto).unwrap();
}

#[test]
fn damaged_lumps_and_records_are_noticed() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    // In runs, closing would write the end of the journal anew, and with it what is damaged.
    let ordered = but(options(), |it| it.commit = CommitMode::Ordered);
    let store = Store::open(&path, ordered).unwrap();
    put(&store, 1, &content(1, 1, 5000));
    try_put(&store, 2, &content(2, 1, 500), Placement::Embedded).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let data = 6 * 4096;
    let rotten = !content(1, 1, 5000)[100];
    file.write_all_at(&[rotten], data + 100).unwrap();
    file.write_all_at(b"x", 8192 + 28 + 23 + 100).unwrap();
    file.sync_all().unwrap();
    for id in [1, 2] {
        let got = store.get(ctx(), LumpId(id)).unwrap_err();
        assert!(matches!(got, Error::ChecksumMismatch { .. }), "{got}");
    }
    assert_eq!(store.stats().checksum_failures, 2);
    store.close().unwrap();
    let Err(Error::CorruptJournal { ring_position, .. }) = open(&path, IoBackendChoice::Auto)
    else {
        panic!("it opens")
    };
    assert_eq!(ring_position, 28);
}

#[test]
fn a_read_only_store_changes_nothing() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let store = open(&path, IoBackendChoice::Auto).unwrap();
    put(&store, 1, b"one");
    store.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let read_only = but(options(), |it| it.read_only = true);
    let store = Store::open(&path, read_only).unwrap();
    assert_eq!(get(&store, 1).as_deref(), Some(&b"one"[..]));
    let refused = try_put(&store, 2, b"two", Placement::Data);
    assert!(matches!(refused, Err(Error::ReadOnly { .. })));
    store.close().unwrap();
    assert_eq!(before, std::fs::read(&path).unwrap());
}

#[test]
fn a_closed_store_says_so() {
    let dir = disk_dir();
    let store = open(&store_file(&dir, SHAPE), IoBackendChoice::Auto).unwrap();
    let other = store.clone();
    store.close().unwrap();
    assert!(matches!(other.get(ctx(), LumpId(1)), Err(Error::Closed)));
    assert!(matches!(other.close(), Err(Error::Closed)));
}

#[test]
fn a_wrong_length_is_refused() {
    let dir = disk_dir();
    let store = open(&store_file(&dir, SHAPE), IoBackendChoice::Auto).unwrap();
    let mut buf = store.lump_buf(3).unwrap();
    let lengths = |error: Error| match error {
        Error::LengthMismatch { announced, got } => (announced, got),
        error => panic!("{error}"),
    };
    assert_eq!(lengths(buf.extend(b"four").unwrap_err()), (3, 4));
    buf.extend(b"ab").unwrap();
    let short = store.put(ctx(), LumpId(1), buf, Placement::Data, Durability::Synced);
    assert_eq!(lengths(short.unwrap_err()), (3, 2));
    let largest = |error: Error| match error {
        Error::LumpTooLarge { max, .. } => max,
        error => panic!("{error}"),
    };
    let max = store.info().max_lump_bytes;
    assert!(store.lump_buf(max).is_ok());
    assert_eq!(largest(store.lump_buf(max + 1).unwrap_err()), max);
    for (len, placement) in [
        (17 << 20, Placement::Data),
        (65_536, Placement::Embedded),
        (16_000, Placement::Embedded),
    ] {
        let max = largest(try_put(&store, 1, &vec![0; len], placement).unwrap_err());
        assert!(max < len as u64, "{len}");
        assert!(len != 65_536 || max == 65_535, "{max}");
    }
}
