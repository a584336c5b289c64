//! Tiny journals: the ring goes round hundreds of times, runs full, and never refuses a delete.

use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, content, delete, embedded_if, get, put, try_put};
use lumpscope_engine::format::Portion;
use lumpscope_engine::format::record::{EmbeddedData, Record};
use lumpscope_engine::units::{BlockCount, BlockIndex};
use lumpscope_engine::{Error, LumpId, Placement};

#[test]
fn the_ring_goes_round_hundreds_of_times() {
    for (block_size, ring_blocks, embedded_len) in [(512, 8, 200), (1536, 4, 700), (4096, 2, 900)] {
        let shape = Shape::new(block_size, ring_blocks, 400);
        let disk = SimDisk::new(shape.image());
        let mut store = disk.open().unwrap();
        let mut random = Random(7);
        let mut versions = [None; 24];
        let value = |id: u128, version: u64| {
            let len = 10 + (version as usize % 900);
            content(id, version, if id == 0 { embedded_len } else { len })
        };
        let rounds = 300 * shape.ring_blocks as usize * usize::from(block_size) / 28;
        let (mut bytes, mut at) = (0, 0);
        while bytes < rounds * 28 {
            at += 1;
            let id = random.below(versions.len());
            let placement = embedded_if(id == 0);
            try_put(&store, id as u128, &value(id as u128, at), placement).unwrap();
            bytes += if id == 0 { 23 + embedded_len } else { 28 };
            versions[id] = Some(at);
            if random.below(40) == 0 {
                let gone = random.below(versions.len());
                let existed = versions[gone].take().is_some();
                assert_eq!(delete(&store, gone as u128), existed);
            }
            if random.below(2000) == 0 {
                store.close().unwrap();
                store = disk.open().unwrap();
            }
        }
        for (id, version) in versions.iter().enumerate() {
            let id = id as u128;
            assert_eq!(get(&store, id), version.map(|version| value(id, version)));
        }
        let stats = store.stats();
        assert!(stats.journal_used_bytes <= stats.journal_capacity_bytes);
    }
}

#[test]
fn a_full_journal_takes_deletes_and_then_puts() {
    for shuffle in [None, Some(5)] {
        let shape = Shape::new(512, 24, 4000);
        let mut disk = SimDisk::new(shape.image());
        disk.shuffle = shuffle;
        let store = disk.open().unwrap();
        for round in 0..4 {
            let mut ids = 0;
            let full = loop {
                match try_put(&store, ids, &content(ids, round, 40), Placement::Data) {
                    Ok(_) => ids += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, Error::JournalFull { .. }), "{full}");
            assert!(ids > 200, "{ids} lumps fit");
            for id in 0..ids {
                assert_eq!(get(&store, id), Some(content(id, round, 40)));
            }
            // Both one by one from a full journal, and with refused puts in between.
            for id in 0..ids {
                assert!(delete(&store, id));
                assert!(!delete(&store, id));
            }
        }
        assert_eq!(store.stats().lumps, 0);
        put(&store, 1, b"again");
    }
}

#[test]
fn overwrites_of_a_nearly_full_journal_go_on_for_ever() {
    let shape = Shape::new(512, 24, 4000);
    let disk = SimDisk::new(shape.image());
    let store = disk.open().unwrap();
    let mut ids = 0;
    while try_put(&store, ids, b"first", Placement::Data).is_ok() {
        ids += 1;
    }
    // One delete leaves room for one record: every further overwrite needs the collection.
    assert!(delete(&store, 0));
    for version in 0..2000_u64 {
        let id = 1 + u128::from(version * 7) % (ids - 1);
        put(&store, id, &content(id, version, 30));
    }
    let stats = store.stats();
    assert!(stats.gc_relocated > 1000, "{stats:?}");
    assert!(stats.header_writes > 50, "{stats:?}");
    // Nothing is gained by going on, so it rests.
    let (before, _) = (store.stats().header_writes, store.sync().unwrap());
    store.sync().unwrap();
    assert_eq!(store.stats().header_writes, before);
}

#[test]
fn a_full_data_region_takes_deletes_and_then_puts() {
    let disk = SimDisk::new(Shape::new(512, 24, 100).image());
    let store = disk.open().unwrap();
    for id in 0..50 {
        put(&store, id, &content(id, 1, 900));
    }
    // An overwrite needs new blocks too; refused, it leaves the old lump alone.
    for id in [99, 7] {
        let refused = try_put(&store, id, b"x", Placement::Data);
        let Err(Error::StoreFull {
            needed,
            free,
            largest,
        }) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!((needed, free, largest), (512, 0, 0));
    }
    assert_eq!(get(&store, 7), Some(content(7, 1, 900)));
    for version in 2..200 {
        let id = u128::from(version) * 3 % 50;
        assert!(delete(&store, id));
        assert!(put(&store, id, &content(id, version, 1000)).created);
    }
    let stats = store.stats();
    assert_eq!(stats.data_used_bytes, stats.data_capacity_bytes);
    assert_eq!(stats.free_extents, 0);
}

/// Another engine may leave its `EndOfRecords` across a boundary of two sectors.
#[test]
fn a_journal_that_ends_across_a_sector_boundary_is_continued() {
    for tail in 500..=520 {
        let shape = Shape::new(512, 12, 100);
        let mut image = shape.image();
        let bytes = content(9, 9, tail - 23);
        let (id, data) = (LumpId(9), EmbeddedData::new(&bytes).unwrap());
        let mut ring = Record::Embed { id, data }.to_bytes();
        assert_eq!(ring.len(), tail);
        Record::EndOfRecords.encode_into(&mut ring);
        image[1024..1024 + ring.len()].copy_from_slice(&ring);
        let disk = SimDisk::new(image);
        for version in 0..3 {
            let store = disk.open().unwrap();
            assert_eq!(get(&store, 9), Some(bytes.clone()));
            put(&store, 1, &content(1, version, 100));
            assert_eq!(get(&store, 1), Some(content(1, version, 100)));
        }
    }
}

#[test]
fn a_journal_that_cannot_be_replayed_is_refused_with_its_position() {
    let shape = Shape::new(512, 4, 100);
    let portion = |start, len| Portion::new(BlockIndex(start), BlockCount(len)).unwrap();
    let put = |id, start, len| Record::Put {
        id: LumpId(id),
        portion: portion(start, len),
    };
    let end = Record::EndOfRecords;
    let cases: [(&str, &[Record<'_>], u64); 4] = [
        ("outside", &[put(1, 0, 5), put(2, 99, 2), end], 28),
        ("no end", &[put(1, 0, 5)], 28),
        ("a second round", &[Record::GoToFront, end], 0),
        ("overlap", &[put(1, 0, 5), put(2, 4, 1), end], u64::MAX),
    ];
    for (what, records, position) in cases {
        let mut image = shape.image();
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        image[1024..3072].fill(0);
        image[1024..1024 + bytes.len()].copy_from_slice(&bytes);
        match SimDisk::new(image).open() {
            Err(Error::CorruptJournal { ring_position, .. }) if ring_position == position => {}
            Err(Error::Corrupt { what: region, .. })
                if position == u64::MAX && region == "the data region" => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    // A lump that was replaced may have left its blocks to another one.
    let mut image = shape.image();
    let records = [put(1, 0, 5), put(1, 5, 1), put(2, 4, 1), end];
    let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
    image[1024..1024 + bytes.len()].copy_from_slice(&bytes);
    assert_eq!(SimDisk::new(image).open().unwrap().info().replay.lumps, 2);
    // A device that is smaller than its store.
    let mut image = shape.image();
    image.truncate(512 * 80);
    let refused = SimDisk::new(image).open();
    let Err(Error::Corrupt { what, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(what, "the header");
}
