//! Parts of lumps: the right bytes, verified, with no more I/O than they need.

use std::sync::{Arc, Mutex};

use crate::support;
use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, but, content, ctx, put, try_put};
use lumpscope_engine::crc32c;
use lumpscope_engine::format::verify::Damage;
use lumpscope_engine::{Error, IoDeclaration, IoOp, IoSink, LumpId, Placement, Store};

const SHAPE: Shape = Shape::new(4096, 40, 4000);

fn check(store: &Store, id: u128, bytes: &[u8], offset: u64, len: u64, verified: bool) {
    let got = store.get_range(ctx(), LumpId(id), offset, len).unwrap();
    let from = usize::try_from(offset).unwrap();
    let to = usize::try_from(offset.saturating_add(len)).unwrap();
    let to = to.min(bytes.len());
    let is_right = got.data[..] == bytes[from..to];
    assert!(is_right, "{offset}+{len} of {}", bytes.len());
    assert_eq!((got.offset, got.total_length), (offset, bytes.len() as u64));
    assert_eq!(got.data.verified, verified);
    assert_eq!(got.data.crc32c(), crc32c::of(&bytes[from..to]));
}

#[test]
fn any_part_of_any_lump_is_what_was_put() {
    let mut random = Random(11);
    for unit in [512, 4096] {
        let mut disk = SimDisk::new(SHAPE.image());
        disk.unit = unit;
        let mut store = disk.open().unwrap();
        let lens = [0, 1, 4072, 4073, 65_536, 65_537, 200_000, 900_001, 8 << 20];
        for (id, len) in (0..).zip(lens) {
            put(&store, id, &content(id, 1, len));
        }
        try_put(&store, 99, &content(99, 1, 3000), Placement::Embedded).unwrap();
        // With lengths that are known from the put, then from the last block.
        for _ in 0..2 {
            for (id, len) in (0..).zip(lens).chain([(99, 3000)]) {
                let bytes = content(id, 1, len);
                let len = len as u64;
                for (offset, part) in [(0, 1), (0, len), (len, 5), (len / 2, u64::MAX), (0, 0)] {
                    check(&store, id, &bytes, offset, part, true);
                }
                for _ in 0..12 {
                    let offset = random.next() % (len + 1);
                    check(&store, id, &bytes, offset, random.next() % (len + 2), true);
                }
                match store.get_range(ctx(), LumpId(id), len + 1, 1) {
                    Err(Error::RangeOutside { offset, length, .. }) => {
                        assert_eq!((offset, length), (len + 1, len));
                    }
                    other => panic!("{other:?}"),
                }
            }
            store.close().unwrap();
            store = disk.open().unwrap();
        }
        let missing = store.get_range(ctx(), LumpId(1000), 0, 1);
        assert!(matches!(missing, Err(Error::NotFound { .. })));
        assert_eq!(store.stats().checksum_failures, 0);
    }
}

#[test]
fn damage_is_noticed_where_it_is_read_and_nowhere_else() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    let bytes = content(1, 1, 1_000_000);
    put(&store, 1, &bytes);
    store.close().unwrap();
    let mut damaged = disk.bytes();
    let start = damaged.windows(64).position(|w| w == &bytes[..64]).unwrap();
    damaged[start + 5 * 65_536 + 77] ^= 1;
    let store = SimDisk::new(damaged).open().unwrap();
    check(&store, 1, &bytes, 0, 5 * 65_536, true);
    check(&store, 1, &bytes, 6 * 65_536, 1 << 20, true);
    for (offset, len) in [(5 * 65_536, 1), (6 * 65_536 - 1, 1), (0, 1_000_000)] {
        let read = store.get_range(ctx(), LumpId(1), offset, len);
        let Err(Error::ChecksumMismatch(found)) = read else {
            panic!("{read:?}")
        };
        let is_fifth = matches!(found.damage, Damage::Chunk { number: 5, .. });
        assert!(is_fifth, "{found}");
        let at = start as u64 + 5 * 65_536;
        assert_eq!((found.offset, found.len), (at, 65_536));
    }
    assert_eq!(store.stats().checksum_failures, 3);
}

#[test]
fn foreign_lumps_are_served_in_parts_unverified() {
    let peer = CannylsImage::new(SHAPE.image());
    let mut canny = peer.open();
    let lens = [0, 300, 4094, 65_000, 700_000];
    for (id, len) in (0..).zip(lens) {
        let data = peer::plain(&content(id, 1, len));
        canny.put(&peer::id(id), &data).unwrap();
    }
    drop(canny);
    let store = SimDisk::new(peer.image()).open().unwrap();
    for (id, len) in (0..).zip(lens) {
        let bytes = content(id, 1, len);
        for offset in [0, len as u64 / 3, len as u64] {
            check(&store, id, &bytes, offset, 70_000, false);
        }
    }
}

/// Reads that were declared.
#[derive(Default)]
struct Reads(Mutex<Vec<(u64, u64)>>);

impl IoSink for Reads {
    fn submitted(&self, io: &IoDeclaration<'_>) {
        if io.op == IoOp::Read {
            self.0.lock().unwrap().push((io.offset, io.len));
        }
    }

    fn completed(&self, _token: u64, _end_ns: u64, _error: Option<i32>) {}
}

#[test]
fn the_reads_are_as_large_as_the_part() {
    let dir = support::disk_dir();
    let path = support::store_file(&dir, SHAPE);
    let reads = Arc::new(Reads::default());
    let sink: Arc<dyn IoSink> = Arc::clone(&reads) as _;
    let options = but(support::options(), |it| it.io_sink = Some(sink));
    let store = Store::open(&path, options.clone()).unwrap();
    let bytes = content(1, 1, 6 << 20);
    put(&store, 1, &bytes);
    let taken = || -> Vec<u64> {
        let reads = std::mem::take(&mut *reads.0.lock().unwrap());
        let mut lens: Vec<u64> = reads.into_iter().map(|read| read.1).collect();
        lens.sort_unstable();
        lens
    };
    taken();
    // Far from the end: chunk and last block, in parallel.
    check(&store, 1, &bytes, 1_000_000, 100, true);
    assert_eq!(taken(), [4096, 65_536]);
    check(&store, 1, &bytes, 65_000, 1000, true);
    assert_eq!(taken(), [4096, 131_072]);
    // Close to it: one read.
    check(&store, 1, &bytes, (6 << 20) - 70_000, 10, true);
    assert_eq!(taken().len(), 1);
    store.close().unwrap();
    // When the length is not known, the last block comes first, once.
    let store = Store::open(&path, options).unwrap();
    taken();
    check(&store, 1, &bytes, 0, 100, true);
    assert_eq!(taken(), [4096, 65_536]);
}
