//! The seal behind the journal's end: there after every append of this engine, gone after anybody
//! else's, and never written by an opening alone.

use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, but, content, delete, disk_dir, get, options, put, try_put};
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::format::record::{END_OF_RECORDS_LEN, Record};
use lumpscope_engine::format::seal::{SEAL_LEN, SEALED_END_LEN};
use lumpscope_engine::{LumpId, Placement, Store};

fn sealed(disk: &SimDisk) -> bool {
    disk.open().unwrap().info().sealed
}

fn bytes(disk: &SimDisk) -> Vec<u8> {
    disk.bytes()
}

/// Every position of the tail in its sector, through several rounds of the ring.
#[test]
fn every_append_leaves_a_seal() {
    for (block_size, ring_blocks, unit) in [
        (512, 9, 512),
        (1536, 4, 512),
        (4096, 2, 512),
        (4096, 3, 4096),
    ] {
        let shape = Shape {
            block_size,
            ring_blocks,
            data_blocks: 300,
        };
        let mut disk = SimDisk::new(shape.image());
        disk.unit = unit;
        assert!(!sealed(&disk), "nobody has sealed this image");
        let mut random = Random(u64::from(block_size) + ring_blocks);
        for step in 0..400_u64 {
            let store = disk.open().unwrap();
            assert_eq!(store.info().sealed, step > 0, "step {step}");
            let id = random.below(9) as u128;
            let value = content(id, step, random.below(130));
            match random.below(4) {
                0 => {
                    delete(&store, id);
                }
                1 => {
                    put(&store, id, &value);
                }
                _ => {
                    try_put(&store, id, &value, Placement::Embedded).unwrap();
                }
            }
            if step == 0 {
                put(&store, id, &value);
            }
            store.close().unwrap();
        }
        // The same image on a device with other logical blocks.
        if block_size == 4096 {
            disk.unit = if unit == 512 { 4096 } else { 512 };
            assert!(sealed(&disk));
        }
    }
}

#[test]
fn a_new_store_is_sealed_and_opening_writes_nothing() {
    let dir = disk_dir();
    for (number, block_size) in [512, 1536, 4096].into_iter().enumerate() {
        let path = dir.path().join(format!("{number}.lusf"));
        let options_of = CreateOptions {
            capacity: Some(4 << 20),
            block_size,
            ..CreateOptions::default()
        };
        format(&path, &options_of).unwrap();
        let before = std::fs::read(&path).unwrap();
        for read_only in [true, false] {
            let options = but(options(), |it| it.read_only = read_only);
            let store = Store::open(&path, options).unwrap();
            assert!(store.info().sealed);
            store.close().unwrap();
        }
        let store = Store::open(&path, options()).unwrap();
        assert!(get(&store, 1).is_none());
        store.close().unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[..before.len()], before);
    }
}

/// An engine that knows no seal appends a record; behind its end it leaves whatever was there, also
/// our old seal, moved or in place.
#[test]
fn an_append_without_a_seal_is_noticed() {
    let shape = Shape::new(512, 12, 100);
    let mut random = Random(3);
    for round in 0..200_u64 {
        let disk = SimDisk::new(shape.image());
        let store = disk.open().unwrap();
        for _ in 0..=random.below(20) {
            let value = content(1, round, random.below(100));
            try_put(&store, 1, &value, Placement::Embedded).unwrap();
        }
        store.close().unwrap();
        assert!(sealed(&disk));
        let image = bytes(&disk);
        let ring = &image[1024..1024 + 12 * 512];
        let tail = ring
            .windows(SEALED_END_LEN)
            .rposition(|window| {
                window.starts_with(&Record::EndOfRecords.to_bytes())
                    && window[END_OF_RECORDS_LEN..].starts_with(b"LsSe")
            })
            .unwrap();
        let old_seal = &ring[tail + END_OF_RECORDS_LEN..tail + SEALED_END_LEN];
        let mut appended = Record::Delete { id: LumpId(77) }.to_bytes();
        Record::EndOfRecords.encode_into(&mut appended);
        let mut foreign = image.clone();
        foreign[1024 + tail..1024 + tail + appended.len()].copy_from_slice(&appended);
        // Stale memory: our seal once more, directly behind the foreign end.
        let behind = 1024 + tail + appended.len();
        if random.below(2) == 0 {
            foreign[behind..behind + SEAL_LEN].copy_from_slice(old_seal);
        }
        let disk = SimDisk::new(foreign.clone());
        let store = disk.open().unwrap();
        assert!(!store.info().sealed, "round {round}");
        store.close().unwrap();
        assert_eq!(bytes(&disk), foreign, "opening alone writes nothing");
        let store = disk.open().unwrap();
        put(&store, 2, b"ours");
        store.close().unwrap();
        assert!(sealed(&disk));
    }
}
