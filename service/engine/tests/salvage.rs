//! Damaged images in salvage mode (FORMAT.md section 13): what CannyLS itself leaves behind, and
//! what is made by hand. Normal mode refuses each and says why; read-only salvage writes nothing;
//! a repair makes it open normally, here and in CannyLS, and may be cut anywhere.

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "contents are any bytes; a test may panic"
)]

mod common;

use std::collections::BTreeMap;

use common::peer::{self, Peer};
use common::sim::{Event, Random, SECTOR, SimDisk};
use common::{Shape, content, delete, get, put, try_put};
use lumpscope_engine::format::record::{EmbeddedData, Record};
use lumpscope_engine::format::{Header, Portion};
use lumpscope_engine::units::{BlockCount, BlockIndex};
use lumpscope_engine::{
    CheckpointUse, Error, FindingKind, LumpId, LumpRange, Placement, SalvageAction, SalvageReport,
    Store, StoreOptions,
};

const SHAPE: Shape = Shape {
    block_size: 512,
    ring_blocks: 12,
    data_blocks: 200,
};
const RING: usize = 1024;
const DATA: usize = 1024 + 12 * 512;

type State = BTreeMap<u128, Vec<u8>>;

fn salvaging(disk: &SimDisk, read_only: bool) -> Result<Store, Error> {
    let mut options = StoreOptions::new("salvage");
    options.salvage = true;
    options.read_only = read_only;
    Store::open_on(disk.device(), options)
}

fn state(store: &Store) -> State {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
    let lump = |id: LumpId| (id.0, get(store, id.0).unwrap());
    ids.into_iter().map(lump).collect()
}

fn report(store: &Store) -> SalvageReport {
    store.info().salvage.clone().unwrap()
}

/// Whether the original opens it as it is on the disk.
fn opens(original: &Peer) -> bool {
    Peer::new(original.image())
        .try_open(&peer::builder())
        .is_ok()
}

/// All that holds for every damaged image. Returns what normal mode says, what salvage found, and
/// the lumps it serves.
fn salvage(image: &[u8]) -> (String, SalvageReport, State) {
    let refused = SimDisk::new(image.to_vec()).open().unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Corrupt { .. } | Error::CorruptJournal { .. }
        ),
        "{refused:?}"
    );
    let refused = refused.to_string();
    assert!(refused.contains("--salvage"), "{refused}");

    let disk = SimDisk::recording(image.to_vec());
    let store = salvaging(&disk, true).unwrap();
    let (found, lumps) = (report(&store), state(&store));
    assert!(!found.is_clean() && !found.repaired, "{found:?}");
    assert_eq!(found.lumps, lumps.len() as u64);
    assert_eq!(
        found.total,
        found.dropped_lumps + u64::from(found.cut.is_some())
    );
    store.close().unwrap();
    assert_eq!(disk.bytes(), image, "read-only salvage has written");
    assert!(disk.events().is_empty());

    repair_and_cut(image, &found, &lumps);
    (refused, found, lumps)
}

/// Repairs, cuts the power at every write and flush of that, and repairs what is left then.
fn repair_and_cut(image: &[u8], found: &SalvageReport, lumps: &State) {
    let disk = SimDisk::recording(image.to_vec());
    let store = salvaging(&disk, false).unwrap();
    let repair = disk.events();
    let repaired = SalvageReport {
        repaired: true,
        ..found.clone()
    };
    assert_eq!(report(&store), repaired);
    assert_eq!(state(&store), *lumps);
    drop(store);
    opens_everywhere(disk.bytes(), lumps);

    let mut random = Random(1);
    let (mut all, mut durable) = (image.to_vec(), image.to_vec());
    let mut unflushed: Vec<(usize, Vec<u8>)> = Vec::new();
    for event in &repair {
        match event {
            Event::Write { offset, bytes } => {
                let end = offset + bytes.len();
                all.resize(all.len().max(end), 0);
                all[*offset..end].copy_from_slice(bytes);
                unflushed.push((*offset, bytes.clone()));
            }
            Event::Flush => {
                durable.clone_from(&all);
                unflushed.clear();
            }
        }
        for _ in 0..4 {
            let mut torn = durable.clone();
            torn.resize(all.len(), 0);
            for (offset, bytes) in &unflushed {
                for (at, sector) in (*offset..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                    if random.below(2) == 0 {
                        torn[at..at + SECTOR].copy_from_slice(sector);
                    }
                }
            }
            again(torn, lumps);
        }
        again(all.clone(), lumps);
    }
    let writes = |event: &&Event| matches!(event, Event::Write { .. });
    assert!(repair.iter().filter(writes).count() >= 1);
    assert!(matches!(repair.last(), Some(Event::Flush)));
}

/// A repair that was cut is begun anew.
fn again(image: Vec<u8>, lumps: &State) {
    let disk = SimDisk::new(image);
    let store = salvaging(&disk, false).unwrap();
    assert_eq!(state(&store), *lumps);
    drop(store);
    assert_eq!(state(&disk.open().unwrap()), *lumps);
}

/// Normal mode and CannyLS open it, and it can be used.
fn opens_everywhere(image: Vec<u8>, lumps: &State) {
    let original = Peer::new(image.clone());
    let mut store = original.open();
    let ids: Vec<u128> = store.list().iter().map(|id| id.as_u128()).collect();
    assert_eq!(ids, lumps.keys().copied().collect::<Vec<_>>());
    for (id, bytes) in lumps {
        assert_eq!(peer::get(&mut store, *id).as_ref(), Some(bytes));
    }
    drop(store);

    let disk = SimDisk::new(image);
    let store = disk.open().unwrap();
    assert!(store.info().sealed && store.info().salvage.is_none());
    assert_eq!(state(&store), *lumps);
    let mut lumps = lumps.clone();
    if let Some(id) = lumps.keys().next().copied() {
        assert!(delete(&store, id));
        lumps.remove(&id);
    }
    for version in 0..40 {
        let bytes = content(1_000, version, 700);
        match try_put(&store, 1_000, &bytes, Placement::Data) {
            Ok(_) => drop(lumps.insert(1_000, bytes)),
            // CannyLS fills more of the ring with live records than this engine does.
            Err(Error::JournalFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    store.close().unwrap();
    // Nothing is left to be salvaged.
    let store = salvaging(&disk, false).unwrap();
    assert!(report(&store).is_clean(), "{:?}", report(&store));
    assert_eq!(state(&store), lumps);
}

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
        let written = &disk.events()[before..];
        assert!(written.iter().all(|event| matches!(event, Event::Flush)));
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
    for part in [
        "block 12",
        "000002 (blocks 10..13",
        "000003 (blocks 12..15",
        "position 28",
        "position 56",
    ] {
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
            (
                f.finding.lump.unwrap().0,
                f.finding.ring_position.unwrap(),
                winner.lump.0,
            )
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
    assert!(
        refused.contains("ring position 56") && refused.contains("000002"),
        "{refused}"
    );
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
    let disk = SimDisk::new(image.clone());
    drop(disk);
    let dir = common::disk_dir();
    let path = dir.path().join("short.lusf");
    std::fs::write(&path, &image).unwrap();
    let refused = Store::open(&path, common::options())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("000004") && refused.contains("--salvage"),
        "{refused}"
    );
    let open = |read_only| {
        let mut options = common::options();
        options.salvage = true;
        options.read_only = read_only;
        Store::open(&path, options).unwrap()
    };
    let store = open(true);
    // 2 is whole, but 4 was written over it.
    assert_eq!(state(&store).into_keys().collect::<Vec<_>>(), [1, 3]);
    let kinds: Vec<_> = report(&store)
        .findings
        .iter()
        .map(|f| f.finding.kind)
        .collect();
    assert_eq!(kinds, [FindingKind::Overlap, FindingKind::Truncated]);
    store.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), image);
    let store = open(false);
    let lumps = state(&store);
    drop(store);
    let store = Store::open(&path, common::options()).unwrap();
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
    image[RING + 28 + 300] ^= 1;
    let (refused, found, lumps) = salvage(&image);
    assert!(refused.contains("ring position 28"), "{refused}");
    assert_eq!(lumps, State::from([(1, plain(1, 2))]));
    let cut = found.cut.unwrap();
    assert_eq!(
        (cut.ring_position, cut.records_kept, cut.bytes_kept),
        (28, 1, 28)
    );
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
    image[RING + 3 * 28 + 7] ^= 0x80;
    let (_, found, lumps) = salvage(&image);
    assert_eq!(lumps.into_keys().collect::<Vec<_>>(), [2, 3]);
    let actions: Vec<_> = found.findings.iter().map(|f| f.action).collect();
    assert_eq!(actions, [SalvageAction::LumpDropped, SalvageAction::LogCut]);
}

#[test]
fn nothing_intact_is_nothing_to_salvage() {
    let mut image = image(&[put_record(1, 0, 2), Record::EndOfRecords]);
    image[RING] ^= 1;
    for read_only in [true, false] {
        let disk = SimDisk::recording(image.clone());
        let refused = salvaging(&disk, read_only).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::CorruptJournal {
                    ring_position: 0,
                    ..
                }
            ),
            "{refused:?}"
        );
        assert!(disk.events().is_empty());
    }
}

#[test]
fn a_repair_without_room_writes_nothing() {
    // Records up to the end of the ring, and the last one is torn.
    let bytes = vec![5; 12 * 512 - 28 - 2 * 23 - 40];
    let records = [put_record(1, 0, 2), embed(2, &bytes), embed(3, &[7; 17])];
    let mut image = image(&records);
    image[RING + 12 * 512 - 40] ^= 1;
    let disk = SimDisk::recording(image.clone());
    let refused = salvaging(&disk, false).unwrap_err();
    assert!(
        matches!(refused, Error::NoRoomForRepair { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("read-only"));
    assert!(
        disk.events()
            .iter()
            .all(|event| matches!(event, Event::Flush))
    );
    let store = salvaging(&disk, true).unwrap();
    assert_eq!(state(&store), State::from([(1, plain(1, 2)), (2, bytes)]));
}

#[test]
fn overlaps_that_cannyls_leaves_after_a_range_delete_during_collection() {
    let original = Peer::new(SHAPE.image());
    let mut store = original.open();
    for id in 0..10 {
        store
            .put(&peer::id(id), &peer::plain(&[id as u8; 400]))
            .unwrap();
    }
    store.run_side_job_once().unwrap();
    store.delete_range(peer::id(0)..peer::id(10)).unwrap();
    let mut wanted = State::new();
    for id in 20..30 {
        store
            .put(&peer::id(id), &peer::plain(&[id as u8; 400]))
            .unwrap();
        wanted.insert(id, vec![id as u8; 400]);
    }
    drop(store);
    assert!(!opens(&original), "the original has the defect");
    let (refused, found, lumps) = salvage(&original.image());
    assert!(refused.contains("belongs to lump"), "{refused}");
    for (id, bytes) in &wanted {
        assert_eq!(lumps.get(id), Some(bytes), "lump {id}");
    }
    assert!(found.dropped_lumps > 0);
}

#[test]
fn overlaps_that_cannyls_leaves_after_a_failed_overwrite() {
    let original = Peer::new(SHAPE.image());
    let mut store = original.open();
    store
        .put(&peer::id(1), &peer::plain(&vec![1; 60_000]))
        .unwrap();
    assert!(
        store
            .put(&peer::id(1), &peer::plain(&vec![2; 150_000]))
            .is_err()
    );
    store
        .put(&peer::id(2), &peer::plain(&vec![3; 30_000]))
        .unwrap();
    drop(store);
    assert!(!opens(&original), "the original has the defect");
    let (_, found, lumps) = salvage(&original.image());
    assert_eq!(lumps, State::from([(2, vec![3; 30_000])]));
    assert_eq!(found.findings[0].winner.unwrap().lump, LumpId(2));
}

#[test]
fn a_go_to_front_that_cannyls_leaves_without_an_end() {
    let (mut broken, mut round) = (0, 0);
    for seed in 0..200 {
        let (original, mut random) = (Peer::new(SHAPE.image()), Random(seed));
        let mut store = original.open();
        for _ in 0..200 {
            let (id, value) = (random.below(8) as u128, vec![7; random.below(700)]);
            let refused = store.put(&peer::id(id), &peer::embedded(&value)).is_err();
            store.journal_sync().unwrap();
            if refused && !opens(&original) {
                break;
            }
        }
        drop(store);
        if opens(&original) {
            continue;
        }
        broken += 1;
        let (_, found, served) = salvage(&original.image());
        // The original finds the same when the end stands where the jump does.
        let mut image = original.image();
        let jump = RING + found.cut.unwrap().ring_position as usize;
        assert_eq!(image[jump..jump + 5], Record::GoToFront.to_bytes());
        image[jump..jump + 5].copy_from_slice(&Record::EndOfRecords.to_bytes());
        let mut store = Peer::new(image).open();
        let ids = store.list().into_iter().map(|id| id.as_u128());
        let ids: Vec<u128> = ids.collect();
        assert_eq!(
            served.keys().copied().collect::<Vec<_>>(),
            ids,
            "seed {seed}"
        );
        for id in ids {
            assert_eq!(peer::get(&mut store, id).as_ref(), Some(&served[&id]));
        }
        assert_eq!(found.dropped_lumps, 0);
        round += usize::from(found.findings[0].finding.why.contains("already"));
    }
    assert!(broken > 1 && round > 0, "{broken} {round}");
}

#[test]
fn a_torn_flush_of_cannyls() {
    let original = Peer::new(SHAPE.image());
    let mut builder = peer::builder();
    builder.journal_sync_interval(4096);
    let mut store = original.try_open(&builder).unwrap();
    store.put(&peer::id(7), &peer::embedded(&[7; 40])).unwrap();
    store.journal_sync().unwrap();
    let before = original.image();
    for id in 0..3 {
        store
            .put(&peer::id(id), &peer::embedded(&[9; 300]))
            .unwrap();
    }
    store.journal_sync().unwrap();
    let after = original.image();
    let mut torn = before;
    torn[RING..RING + SECTOR].copy_from_slice(&after[RING..RING + SECTOR]);
    drop(store);
    let (_, found, lumps) = salvage(&torn);
    let kept: Vec<u128> = lumps.into_keys().collect();
    assert_eq!(kept, [0, 7]);
    assert_eq!(found.cut.unwrap().records_kept, 2);
}

#[test]
fn any_damage_of_the_ring_of_a_used_store() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    for version in 0..150 {
        let id = u128::from(version % 9);
        let placement = if version % 4 == 0 {
            Placement::Embedded
        } else {
            Placement::Data
        };
        try_put(&store, id, &content(id, version, 300), placement).unwrap();
    }
    let lumps = state(&store);
    store.close().unwrap();
    let sound = disk.bytes();
    let header = Header::decode(&sound).unwrap();
    assert_eq!(header.block_size.bytes(), 512);
    let (mut random, mut salvaged) = (Random(3), 0);
    for _ in 0..150 {
        let mut image = sound.clone();
        image[RING + random.below(12 * 512)] ^= 1 << random.below(8);
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
