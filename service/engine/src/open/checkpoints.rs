//! A checkpoint with the records behind it equals the whole journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buffer::BufferPool;
use crate::declaration::IoOp;
use crate::device::sim::{Fault, FaultKind, Random, SimDisk, SimOptions, Survivors, blank_image};
use crate::format::checkpoint::{Area, CHUNK_LEN, CheckpointHeader, HEADER_SPACE, ROW_LEN};
use crate::lump::LumpId;
use crate::options::{CheckpointUse, ReplaySummary, StoreOptions};
use crate::owner::Driver;
use crate::request::{Durability, LumpRange, Placement, RequestCtx};
use crate::stats::StoreStats;
use crate::storage::Storage;
use crate::storage::io::BlockingIo;
use crate::storage::recover::recover;
use crate::store::Store;
use crate::units::BlockSize;

const RING_BLOCKS: u64 = 48;
const DATA_BLOCKS: u64 = 256;
const IMAGE: u64 = (2 + RING_BLOCKS + DATA_BLOCKS) * 512;
const IDS: u64 = 160;

fn disk(seed: u64) -> SimDisk {
    let image = blank_image(BlockSize::MIN, RING_BLOCKS, DATA_BLOCKS, [7; 16]);
    let options = SimOptions {
        seed,
        is_block_device: false,
        ..SimOptions::default()
    };
    SimDisk::new(&image, options)
}

/// A store that is driven by the test, and what it was asked.
struct Session {
    disk: SimDisk,
    store: Store,
    driver: Driver,
    random: Random,
    in_flight: Arc<AtomicUsize>,
}

impl Session {
    fn open(disk: &SimDisk, seed: u64, records: u64) -> Self {
        let mut options = StoreOptions::new("checkpoint");
        options.checkpoint_records = records;
        let (store, driver) = Store::open_stepped(disk.device(), options).unwrap();
        Self {
            disk: disk.clone(),
            store,
            driver,
            random: Random::new(seed),
            in_flight: Arc::default(),
        }
    }

    fn done<T>(&self) -> Box<dyn FnOnce(Result<T, crate::Error>, crate::EngineTimes) + Send> {
        let in_flight = Arc::clone(&self.in_flight);
        in_flight.fetch_add(1, Ordering::Relaxed);
        Box::new(move |_, _| {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Some change of the store.
    fn change(&mut self) {
        let ctx = RequestCtx::default();
        let id = LumpId(u128::from(self.random.below(IDS)) << 100);
        let durability = match self.random.chance(500) {
            true => Durability::Synced,
            false => Durability::Journaled,
        };
        let accepted = match self.random.below(40) {
            0 => {
                let end = LumpId(id.0 + (u128::from(self.random.below(12)) << 100));
                let done = self.done();
                self.store
                    .submit_delete_range(ctx, id, end, durability, done)
            }
            1..10 => {
                let done = self.done();
                self.store.submit_delete(ctx, id, durability, done)
            }
            kind => {
                let placement = match kind {
                    10..20 => Placement::Embedded,
                    _ => Placement::Data,
                };
                let len = usize::try_from(self.random.below(60)).unwrap();
                let mut buf = self.store.lump_buf(len as u64).unwrap();
                buf.extend(&vec![9; len]).unwrap();
                let done = self.done();
                self.store
                    .submit_put(ctx, id, buf, placement, durability, done)
            }
        };
        accepted.unwrap();
    }

    fn step(&mut self) -> bool {
        let goes_on = self.driver.step(self.disk.now_ns());
        if self.random.chance(700) {
            self.disk.advance();
        }
        goes_on
    }

    fn close(mut self) -> StoreStats {
        while self.in_flight.load(Ordering::Relaxed) > 0 {
            self.driver.step(self.disk.now_ns());
            self.disk.advance();
        }
        self.driver.begin_close();
        while self.driver.step(self.disk.now_ns()) {
            self.disk.advance();
        }
        self.store.stats()
    }
}

/// State found by opening.
fn found(disk: &SimDisk) -> (Storage, ReplaySummary) {
    let mut device = disk.device();
    let pool = BufferPool::new(512);
    let mut token = 1;
    let recovered = recover(&mut BlockingIo::new(&mut device, &pool, &mut token), false).unwrap();
    (recovered.storage, recovered.replay)
}

fn without_checkpoint(disk: &SimDisk) -> SimDisk {
    let options = SimOptions {
        is_block_device: false,
        ..SimOptions::default()
    };
    SimDisk::new(&disk.bytes(0..IMAGE), options)
}

/// Asserts that opening finds the same with the checkpoint as without it.
fn check(disk: &SimDisk) -> ReplaySummary {
    let (with, summary) = found(disk);
    let (without, whole) = found(&without_checkpoint(disk));
    assert_eq!(whole.checkpoint, CheckpointUse::Absent);
    // The padding that a checkpoint knows the journal does not.
    let entries = |storage: &Storage| -> Vec<_> {
        let all = storage.index.range(LumpRange::ALL);
        all.map(|(id, entry)| (id, entry.with_padding(None)))
            .collect()
    };
    assert_eq!(entries(&with), entries(&without), "{summary:?}");
    let space = |storage: &Storage| {
        let allocator = storage.data.allocator();
        (
            storage.data.used_blocks(),
            allocator.largest(),
            allocator.extents(),
        )
    };
    assert_eq!(space(&with), space(&without));
    let ends = |storage: &Storage| {
        let journal = &storage.journal;
        (journal.head(), journal.tail(), journal.is_sealed())
    };
    assert_eq!(ends(&with), ends(&without));
    if summary.checkpoint == CheckpointUse::Used {
        assert!(summary.records <= whole.records);
    }
    summary
}

#[test]
fn a_checkpoint_taken_while_everything_changes_is_right_at_every_cut() {
    let mut uses: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut relocated, mut written, mut failed) = (0, 0, 0);
    for seed in 0..24 {
        let disk = disk(seed);
        let mut session = Session::open(&disk, seed, 40);
        let mut cuts = Random::new(seed + 1000);
        for _ in 0..1200 {
            if session.in_flight.load(Ordering::Relaxed) < 6 {
                session.change();
            }
            session.step();
            if cuts.chance(40) {
                let survivors = Survivors::ALL[cuts.index(Survivors::ALL.len())];
                let summary = check(&disk.power_cut(survivors, &mut cuts));
                *uses.entry(summary.checkpoint.name()).or_default() += 1;
            }
        }
        let stats = session.close();
        relocated += stats.gc_relocated;
        written += stats.checkpoints_written;
        failed += stats.checkpoints_failed;
        let summary = check(&disk);
        *uses.entry(summary.checkpoint.name()).or_default() += 1;
        // Another life of the same store.
        let mut session = Session::open(&disk, seed + 1, 40);
        for _ in 0..200 {
            if session.in_flight.load(Ordering::Relaxed) < 6 {
                session.change();
            }
            session.step();
        }
        check(&disk.power_cut(Survivors::Sectors(500), &mut cuts));
    }
    let used = uses.get("used").copied().unwrap_or(0);
    let overtaken = uses.get("overtaken").copied().unwrap_or(0);
    let told = format!("{uses:?}, {written} written, {failed} failed, {relocated} relocated");
    assert!(used > 300 && overtaken > 10, "{told}");
    assert!(written > 200 && relocated > 500, "{told}");
}

/// A disk whose store was closed with a checkpoint, and where its slot is.
fn closed() -> (SimDisk, Area, u64) {
    let disk = disk(1);
    let mut session = Session::open(&disk, 1, 64);
    for _ in 0..100 {
        session.change();
        session.step();
    }
    let stats = session.close();
    assert!(stats.checkpoints_written > 0);
    let (storage, summary) = found(&disk);
    assert_eq!(
        (summary.checkpoint, summary.records),
        (CheckpointUse::Used, 1)
    );
    let area = Area::of_file(&storage.geometry);
    let newest = [0, 1].map(|slot| {
        let start = area.slot(slot);
        let header = CheckpointHeader::decode(&disk.bytes(start..start + 100));
        header.map_or(0, |header| header.sequence)
    });
    let slot = area.slot(newest[0].max(newest[1]));
    (disk, area, slot)
}

/// A copy of the disk without the other of its two checkpoints.
fn only(disk: &SimDisk, area: &Area, slot: u64) -> SimDisk {
    let disk = disk.power_cut(Survivors::All, &mut Random::new(0));
    let other = area.slot(0) + area.slot(1) - slot;
    for (at, byte) in (other..).zip(disk.bytes(other..other + 100)) {
        disk.rot(at, byte);
    }
    disk
}

/// A disk with other bytes in one place.
fn altered(disk: &SimDisk, at: u64, mask: u8) -> SimDisk {
    let disk = disk.power_cut(Survivors::All, &mut Random::new(0));
    disk.rot(at, mask);
    disk
}

#[test]
fn every_flipped_bit_leads_to_a_replay() {
    let (disk, area, slot) = closed();
    let disk = only(&disk, &area, slot);
    let used = |disk: &SimDisk| check(disk).checkpoint;
    assert_eq!(used(&disk), CheckpointUse::Used);
    for at in 0..70 {
        let mask = 1 << (at % 8);
        let found = used(&altered(&disk, slot + at, mask));
        assert_eq!(found, CheckpointUse::Damaged, "byte {at} of the header");
    }
    let mut random = Random::new(5);
    let chunk = slot + HEADER_SPACE;
    for n in 0..60 {
        // In the rows, and anywhere.
        let within = if n < 50 {
            20 + 60 * ROW_LEN as u64
        } else {
            CHUNK_LEN as u64
        };
        let at = chunk + random.below(within);
        let found = used(&altered(&disk, at, 1 << random.below(8)));
        assert_eq!(found, CheckpointUse::Damaged, "byte {at}");
    }
    // A file that ends within the chunk.
    let options = SimOptions {
        is_block_device: false,
        ..SimOptions::default()
    };
    let cut = SimDisk::new(&disk.bytes(0..chunk + 4096), options);
    assert_eq!(used(&cut), CheckpointUse::Damaged);
    disk.make_unreadable(chunk..chunk + 512);
    assert_eq!(found(&disk).1.checkpoint, CheckpointUse::Unreadable);
}

/// Replaces the newest header by another one, with a checksum that fits.
fn with_header(
    disk: &SimDisk,
    slot: u64,
    change: impl FnOnce(&mut CheckpointHeader),
) -> CheckpointUse {
    let bytes = disk.bytes(slot..slot + 4096);
    let mut header = CheckpointHeader::decode(&bytes).unwrap();
    change(&mut header);
    let copy = disk.power_cut(Survivors::All, &mut Random::new(0));
    for (at, (new, old)) in (slot..).zip(header.encode().into_iter().zip(bytes)) {
        if new != old {
            copy.rot(at, new ^ old);
        }
    }
    check(&copy).checkpoint
}

#[test]
fn a_checkpoint_that_does_not_fit_the_journal_is_not_used() {
    let (disk, area, slot) = closed();
    let disk = only(&disk, &area, slot);
    let with = |change: fn(&mut CheckpointHeader)| with_header(&disk, slot, change);
    assert_eq!(with(|_| {}), CheckpointUse::Used);
    assert_eq!(
        with(|header| header.uuid[3] ^= 1),
        CheckpointUse::OtherStore
    );
    assert_eq!(with(|header| header.epoch ^= 1), CheckpointUse::OtherEpoch);
    assert_eq!(
        with(|header| header.log_begin += 1 << 40),
        CheckpointUse::Damaged
    );
    assert_eq!(with(|header| header.sequence += 1), CheckpointUse::Damaged);
    assert_eq!(with(|header| header.sequence += 2), CheckpointUse::Damaged);
    assert_eq!(with(|header| header.lumps += 1), CheckpointUse::Damaged);
    assert_eq!(
        with(|header| header.lumps = u64::MAX),
        CheckpointUse::Damaged
    );
    assert_eq!(
        with(|header| header.chunks_crc ^= 1),
        CheckpointUse::Damaged
    );
    // An older lap of the ring, at the same position.
    let ring = |header: &mut CheckpointHeader| {
        header.log_begin = header.log_begin.wrapping_sub(RING_BLOCKS * 512);
    };
    let found = with(ring);
    assert!(
        matches!(found, CheckpointUse::Overtaken | CheckpointUse::Damaged),
        "{found:?}"
    );
    // In the middle of a record, or on the wrong one.
    assert_eq!(
        with(|header| header.log_begin -= 3),
        CheckpointUse::NoRecords
    );
}

#[test]
fn an_append_by_another_engine_makes_it_stale() {
    let (disk, _, _) = closed();
    let (storage, _) = found(&disk);
    // What CannyLS does: the new record and a new end over the old end and its seal.
    let record = crate::format::Record::Delete { id: LumpId(5) }.to_bytes();
    let end = crate::format::Record::EndOfRecords.to_bytes();
    let bytes: Vec<u8> = record.into_iter().chain(end).collect();
    let at = storage.geometry.ring_byte(storage.journal.tail()).0;
    let old = disk.bytes(at..at + bytes.len() as u64);
    for (at, (new, old)) in (at..).zip(bytes.into_iter().zip(old)) {
        if new != old {
            disk.rot(at, new ^ old);
        }
    }
    assert_eq!(check(&disk).checkpoint, CheckpointUse::OtherEpoch);
}

#[test]
fn what_cannot_be_written_is_done_without() {
    let disk = disk(3);
    let mut session = Session::open(&disk, 3, 32);
    // No space behind the image.
    disk.inject(Fault {
        within: IMAGE..u64::MAX,
        ..Fault::always(IoOp::Write, FaultKind::Errno(libc::ENOSPC))
    });
    for _ in 0..120 {
        session.change();
        session.step();
    }
    let stats = session.close();
    assert_eq!(stats.checkpoints_written, 0);
    assert!(stats.checkpoints_failed > 0);
    assert_ne!(check(&disk).checkpoint, CheckpointUse::Used);
    // None is wanted.
    let mut session = Session::open(&disk, 3, 0);
    disk.heal();
    for _ in 0..120 {
        session.change();
        session.step();
    }
    let stats = session.close();
    assert_eq!(
        (stats.checkpoints_written, stats.checkpoints_failed),
        (0, 0)
    );
}

#[test]
fn nothing_is_written_behind_an_image_on_a_device_that_reserved_nothing() {
    let image = blank_image(BlockSize::MIN, RING_BLOCKS, DATA_BLOCKS, [7; 16]);
    let disk = SimDisk::with_size(IMAGE + (8 << 20), &image, SimOptions::default());
    let mut session = Session::open(&disk, 3, 32);
    for _ in 0..120 {
        session.change();
        session.step();
    }
    session.close();
    assert!(
        disk.bytes(IMAGE..IMAGE + (8 << 20))
            .iter()
            .all(|&byte| byte == 0)
    );
    // Reserved, it is used.
    let area = Area::of_device(&found(&disk).0.geometry, disk.size()).unwrap();
    for (at, byte) in (area.slot(1)..).zip(CheckpointHeader::empty([7; 16]).encode()) {
        disk.rot(at, byte);
    }
    let mut session = Session::open(&disk, 4, 32);
    for _ in 0..120 {
        session.change();
        session.step();
    }
    assert!(session.close().checkpoints_written > 0);
    assert_eq!(found(&disk).1.checkpoint, CheckpointUse::Used);
    assert_eq!(disk.violations(), Vec::<String>::new());
}
