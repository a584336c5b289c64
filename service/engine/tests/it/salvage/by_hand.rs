//! Damage made by hand.

use lumpscope_engine::device::sim;
use lumpscope_engine::format::Portion;
use lumpscope_engine::format::record::{EmbeddedData, Record};
use lumpscope_engine::units::{BlockCount, BlockIndex};
use lumpscope_engine::{
    CheckpointUse, Error, FindingKind, LumpId, Placement, SalvageAction, Store,
};

use crate::salvage::harness::{DATA, RING, SHAPE, State, report, ruin, salvage, salvaging, state};
use crate::support::sim::{DiskEvent, Random, SimDisk};
use crate::support::{self, Shape, content, delete, embedded_if, get, put, try_put};

fn portion(start: u64, len: u16) -> Portion {
    Portion::new(BlockIndex(start), BlockCount(len)).unwrap()
}

fn put_record(id: u128, start: u64, len: u16) -> Record<'static> {
    Record::Put {
        id: LumpId(id),
        portion: portion(start, len),
    }
}

fn embed(id: u128, bytes: &[u8]) -> Record<'_> {
    Record::Embed {
        id: LumpId(id),
        data: EmbeddedData::new(bytes).unwrap(),
    }
}

/// An image as CannyLS writes it: records, and lumps without a checksum in their blocks, each of
/// bytes that are all its id.
fn image(records: &[Record<'_>]) -> Vec<u8> {
    let mut image = SHAPE.image();
    let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
    image[RING..RING + bytes.len()].copy_from_slice(&bytes);
    for record in records {
        let Record::Put { id, portion } = record else {
            continue;
        };
        let start = DATA + portion.start().0 as usize * 512;
        let end = start + usize::from(portion.len().0) * 512;
        if let Some(blocks) = image.get_mut(start..end) {
            blocks.fill(id.0 as u8);
            let padding = blocks.len() - 2;
            blocks[padding..].copy_from_slice(&10_u16.to_be_bytes());
        }
    }
    image
}

fn are_flushes(events: &[DiskEvent]) -> bool {
    let is_flush = |event| matches!(event, &DiskEvent::Flush);
    events.iter().all(is_flush)
}

/// The lump that `image` writes.
fn plain(id: u128, blocks: usize) -> Vec<u8> {
    vec![id as u8; blocks * 512 - 12]
}

#[test]
fn a_sound_store_is_the_same_in_salvage_mode() {
    let disk = SimDisk::recording(SHAPE.image());
    let store = disk.open().unwrap();
    for version in 0..60 {
        put(&store, version % 7, &content(version, 1, 900));
    }
    try_put(&store, 8, b"embedded", Placement::Embedded).unwrap();
    delete(&store, 3);
    let lumps = state(&store);
    store.close().unwrap();
    let before = disk.events().len();
    for read_only in [true, false] {
        let store = salvaging(&disk, read_only).unwrap();
        let found = report(&store);
        assert!(found.is_clean() && !found.repaired && found.cut.is_none());
        assert_eq!((found.lumps, found.dropped_lumps), (7, 0));
        assert!(found.superseded_records > 0);
        assert!(store.info().sealed);
        assert_ne!(store.info().replay.checkpoint, CheckpointUse::Used);
        assert_eq!(state(&store), lumps);
        assert!(are_flushes(&disk.events()[before..]));
        drop(store);
    }
    assert!(disk.open().unwrap().info().salvage.is_none());
}

#[test]
fn of_overlapping_lumps_the_newest_is_kept() {
    // 4 overlaps 3, which overlaps 2; 1 and 5 stand alone.
    let records = [
        put_record(1, 0, 2),
        put_record(2, 10, 3),
        put_record(3, 12, 3),
        put_record(5, 40, 1),
        put_record(4, 14, 3),
        Record::EndOfRecords,
    ];
    let (refused, found, lumps) = salvage(&image(&records));
    let lumps_named = ["000002 (blocks 10..13", "000003 (blocks 12..15"];
    let places = ["block 12", "position 28", "position 56"];
    for part in lumps_named.iter().chain(&places) {
        assert!(refused.contains(part), "{refused}");
    }
    // 2 goes too: 3 was written over its last block.
    assert_eq!(lumps.keys().copied().collect::<Vec<_>>(), [1, 4, 5]);
    assert_eq!(lumps[&4], plain(4, 3));
    assert_eq!((found.dropped_lumps, found.superseded_records), (2, 0));
    let said: Vec<_> = found
        .findings
        .iter()
        .map(|f| {
            let winner = f.winner.unwrap();
            assert_eq!(f.action, SalvageAction::LumpDropped);
            assert_eq!(f.finding.kind, FindingKind::Overlap);
            let (lump, place) = (f.finding.lump, f.finding.ring_position);
            (lump.unwrap().0, place.unwrap(), winner.lump.0)
        })
        .collect();
    assert_eq!(said, [(2, 28, 3), (3, 56, 4)]);
}

#[test]
fn a_lump_outside_the_data_region_is_dropped_and_older_records_of_it_stay_void() {
    let records = [
        put_record(1, 0, 2),
        put_record(2, 4, 1),
        put_record(2, 198, 3),
        put_record(3, 1 << 39, 9),
        put_record(3, 20, 2),
        Record::EndOfRecords,
    ];
    let (refused, found, lumps) = salvage(&image(&records));
    assert!(refused.contains("ring position 56"), "{refused}");
    assert!(refused.contains("000002"), "{refused}");
    assert_eq!(lumps.keys().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(lumps[&3], plain(3, 2));
    assert_eq!((found.dropped_lumps, found.superseded_records), (1, 2));
    let said = &found.findings[0].finding;
    assert_eq!((said.lump.unwrap().0, said.ring_position), (2, Some(56)));
}

#[test]
fn what_a_shorter_file_has_lost_is_dropped() {
    let records = [
        put_record(1, 0, 2),
        put_record(2, 100, 2),
        put_record(3, 50, 2),
        put_record(4, 101, 3),
        Record::EndOfRecords,
    ];
    let mut image = image(&records);
    image.truncate(DATA + 102 * 512);
    let dir = support::disk_dir();
    let path = dir.path().join("short.lusf");
    std::fs::write(&path, &image).unwrap();
    let refused = Store::open(&path, support::options());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("000004"), "{refused}");
    assert!(refused.contains("--salvage"), "{refused}");
    let open = |read_only| {
        let mut options = support::options();
        options.salvage = true;
        options.read_only = read_only;
        Store::open(&path, options).unwrap()
    };
    let store = open(true);
    // 2 is whole, but 4 was written over it.
    assert_eq!(state(&store).into_keys().collect::<Vec<_>>(), [1, 3]);
    let found = report(&store).findings;
    let kinds: Vec<_> = found.iter().map(|f| f.finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Overlap, FindingKind::Truncated]);
    store.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), image);
    let store = open(false);
    let lumps = state(&store);
    drop(store);
    let store = Store::open(&path, support::options()).unwrap();
    assert_eq!(state(&store), lumps);
    put(&store, 9, &content(9, 1, 60_000));
    assert_eq!(get(&store, 9), Some(content(9, 1, 60_000)));
}

#[test]
fn a_record_that_rotted_ends_the_log() {
    let bytes = vec![9; 700];
    let records = [
        put_record(1, 0, 2),
        embed(2, &bytes),
        put_record(3, 10, 1),
        put_record(1, 20, 1),
        Record::EndOfRecords,
    ];
    let mut image = image(&records);
    ruin(&mut image, RING + 28 + 300);
    let (refused, found, lumps) = salvage(&image);
    assert!(refused.contains("ring position 28"), "{refused}");
    assert_eq!(lumps, State::from([(1, plain(1, 2))]));
    let cut = found.cut.unwrap();
    assert_eq!(cut.ring_position, 28);
    assert_eq!(cut.records_kept, 1);
    assert_eq!(cut.bytes_kept, 28);
    assert_eq!(cut.bytes_behind, 12 * 512 - 28);
    // The two puts behind it.
    assert_eq!(cut.records_behind, 2);
    assert_eq!(found.findings[0].action, SalvageAction::LogCut);
}

#[test]
fn damage_of_both_kinds_is_repaired_at_once() {
    let records = [
        put_record(1, 0, 4),
        put_record(2, 3, 2),
        put_record(3, 60, 1),
        put_record(4, 100, 9),
        Record::EndOfRecords,
    ];
    let mut image = image(&records);
    ruin(&mut image, RING + 3 * 28 + 7);
    let (_, found, lumps) = salvage(&image);
    assert_eq!(lumps.into_keys().collect::<Vec<_>>(), [2, 3]);
    let actions: Vec<_> = found.findings.iter().map(|f| f.action).collect();
    assert_eq!(actions, [SalvageAction::LumpDropped, SalvageAction::LogCut]);
}

#[test]
fn nothing_intact_is_nothing_to_salvage() {
    let mut image = image(&[put_record(1, 0, 2), Record::EndOfRecords]);
    ruin(&mut image, RING);
    for read_only in [true, false] {
        let disk = SimDisk::recording(image.clone());
        let refused = salvaging(&disk, read_only).unwrap_err();
        let Error::CorruptJournal { ring_position, .. } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(ring_position, 0);
        assert!(disk.events().is_empty());
    }
}

#[test]
fn a_repair_without_room_writes_nothing() {
    // Records up to the end of the ring, and the last one is torn.
    let bytes = vec![5; 12 * 512 - 28 - 2 * 23 - 40];
    let records = [put_record(1, 0, 2), embed(2, &bytes), embed(3, &[7; 17])];
    let mut image = image(&records);
    ruin(&mut image, RING + 12 * 512 - 40);
    let disk = SimDisk::recording(image.clone());
    let refused = salvaging(&disk, false).unwrap_err();
    let is_it = matches!(refused, Error::NoRoomForRepair { .. });
    assert!(is_it, "{refused:?}");
    assert!(refused.to_string().contains("read-only"));
    assert!(are_flushes(&disk.events()));
    let store = salvaging(&disk, true).unwrap();
    assert_eq!(state(&store), State::from([(1, plain(1, 2)), (2, bytes)]));
}

#[test]
fn any_damage_of_the_ring_of_a_used_store() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    for version in 0..150 {
        let id = u128::from(version % 9);
        let placement = embedded_if(version % 4 == 0);
        try_put(&store, id, &content(id, version, 300), placement).unwrap();
    }
    let lumps = state(&store);
    store.close().unwrap();
    let sound = disk.bytes();
    let (mut random, mut salvaged) = (Random(3), 0);
    for _ in 0..150 {
        let mut image = sound.clone();
        ruin(&mut image, RING + random.below(12 * 512 - 3));
        if SimDisk::new(image.clone()).open().is_ok() {
            continue;
        }
        let Ok(store) = salvaging(&SimDisk::new(image.clone()), true) else {
            continue;
        };
        drop(store);
        salvaged += 1;
        let (_, _, served) = salvage(&image);
        // Only whole versions, older ones perhaps.
        for (id, bytes) in served {
            let version = (0..150).find(|&version| bytes == content(id, version, 300));
            assert!(version.is_some(), "lump {id}");
        }
    }
    assert!(salvaged > 5 && !lumps.is_empty(), "{salvaged}");
}

#[test]
fn a_sector_of_the_journal_that_cannot_be_read_ends_the_log() {
    let bytes = vec![9; 1500];
    let records = [
        put_record(1, 0, 2),
        embed(2, &bytes),
        put_record(3, 10, 1),
        Record::EndOfRecords,
    ];
    let disk = sim::SimDisk::new(&image(&records), sim::SimOptions::default());
    let bad = (RING + 1024) as u64;
    disk.make_unreadable(bad..bad + 512);
    let open = |salvage| {
        let mut options = support::options();
        options.salvage = salvage;
        Store::open_on(disk.device(), options)
    };
    assert!(matches!(open(false), Err(Error::Io { .. })));
    let store = open(true).unwrap();
    let found = report(&store);
    assert!(found.repaired);
    assert_eq!(found.cut.unwrap().ring_position, 28);
    assert_eq!(found.findings[0].finding.kind, FindingKind::Read);
    assert_eq!(state(&store), State::from([(1, plain(1, 2))]));
    store.close().unwrap();
    let store = open(false).unwrap();
    assert_eq!(state(&store), State::from([(1, plain(1, 2))]));
}

#[test]
fn coarse_units_are_repaired_too() {
    let shape = Shape::new(4096, 3, 40);
    // The end lies across two units, as only another engine leaves it, and is torn.
    let bytes = vec![9; 4096 - 28 - 23 - 2];
    let mut image = shape.image();
    let records = [put_record(1, 0, 2), embed(2, &bytes), Record::EndOfRecords];
    let ring: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
    image[8192..8192 + ring.len()].copy_from_slice(&ring);
    ruin(&mut image, 8192 + 4094);
    image[8192 + 3 * 4096 + 8190..8192 + 3 * 4096 + 8192].copy_from_slice(&[0, 9]);
    let mut disk = SimDisk::new(image);
    disk.unit = 4096;
    assert!(disk.open().is_err());
    let store = salvaging(&disk, false).unwrap();
    assert_eq!(report(&store).cut.unwrap().ring_position, 4094);
    let lumps = state(&store);
    assert_eq!(lumps.keys().copied().collect::<Vec<_>>(), [1, 2]);
    store.close().unwrap();
    assert_eq!(state(&disk.open().unwrap()), lumps);
}
