//! Inspection and check of real images: ours and another engine's, intact and broken in every
//! region, on files and in a minfs on a loop device. Nothing is ever written to them.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::disks::{Image, plain, require, writable};
use crate::support::{
    Shape, content, delete, disk_dir, options, put, store_file, testdata, try_put,
};
use lumpscope_engine::create::format;
use lumpscope_engine::format::Portion;
use lumpscope_engine::format::copies::{COPY_LEN, COPY_OFFSET};
use lumpscope_engine::format::record::Record;
use lumpscope_engine::inspect::{CheckReport, InspectReport, Inspector, RecordInfo};
use lumpscope_engine::units::{BlockCount, BlockIndex};
use lumpscope_engine::{Error, Finding, FindingKind, LumpId, Placement, Store};

const BLOCK: u64 = 4096;
const SHAPE: Shape = Shape::new(4096, 4, 1024);
/// First byte of the ring, and of the data region.
const RING: u64 = 2 * BLOCK;
const DATA: u64 = (2 + SHAPE.ring_blocks) * BLOCK;

fn inspect(path: &Path) -> InspectReport {
    Inspector::open(path).unwrap().report().clone()
}

/// A check that must not change a byte.
fn check(path: &Path) -> CheckReport {
    let before = std::fs::read(path).unwrap();
    let report = Inspector::open(path).unwrap().check(|_, _| true);
    assert_eq!(std::fs::read(path).unwrap(), before, "the check wrote");
    assert!(report.complete);
    assert_eq!(report.clean, report.findings.total == 0);
    report
}

/// Lumps 1 to 3 in the data region (1, 3 and 300 blocks), 4 and 5 embedded, 6 deleted.
fn fill(store: &Store) {
    put(store, 1, &content(1, 0, 100));
    put(store, 2, &content(2, 0, 9000));
    let payload = 300 * 4096 - 24 - 19 * 4;
    put(store, 3, &content(3, 0, payload));
    try_put(store, 4, &content(4, 0, 10), Placement::Embedded).unwrap();
    try_put(store, 5, &content(5, 0, 1000), Placement::Embedded).unwrap();
    put(store, 6, &content(6, 0, 5));
    delete(store, 6);
}

fn filled(dir: &tempfile::TempDir) -> PathBuf {
    let path = store_file(dir, SHAPE);
    let store = Store::open(&path, options()).unwrap();
    fill(&store);
    store.close().unwrap();
    path
}

fn flip(path: &Path, offset: u64, mask: u8) {
    let mut byte = [0];
    let file = std::fs::File::open(path).unwrap();
    file.read_exact_at(&mut byte, offset).unwrap();
    let byte = byte[0] ^ mask;
    writable(path).write_all_at(&[byte], offset).unwrap();
}

fn records(inspector: &Inspector) -> Vec<RecordInfo> {
    let mut records = Vec::new();
    inspector.records(|record| {
        records.push(record);
        true
    });
    records
}

/// Where lump `id` begins in the file.
fn offset_of(path: &Path, id: u128) -> u64 {
    let inspector = Inspector::open(path).unwrap();
    let lump = inspector.lumps(LumpId(id)).next().unwrap();
    assert_eq!(lump.id, LumpId(id));
    lump.offset
}

#[test]
fn a_store_of_ours_is_described_and_clean() {
    let dir = disk_dir();
    let path = filled(&dir);
    let report = inspect(&path);
    let image = report.image.unwrap();
    assert_eq!((image.layout, image.base_offset), ("lusf", 0));
    assert_eq!((image.version.as_str(), image.block_size), ("1.1", 4096));
    assert_eq!(image.data_offset, DATA);
    let journal = report.journal.unwrap();
    assert_eq!((journal.records.put, journal.records.embed), (4, 2));
    assert_eq!(journal.records.delete, 1);
    assert_eq!(journal.live_bytes, 3 * 28 + 2 * 23 + 1010);
    assert!(journal.garbage_bytes >= 28 + 21);
    let used = journal.live_bytes + journal.garbage_bytes;
    assert_eq!(used, journal.used_bytes);
    let lumps = report.lumps.unwrap();
    assert_eq!((lumps.count, lumps.in_data, lumps.embedded), (5, 3, 2));
    assert_eq!(lumps.stored_bytes, (1 + 3 + 301) * BLOCK + 1010);
    assert_eq!(lumps.largest[0].id, LumpId(3));
    assert_eq!(lumps.sizes.iter().map(|class| class.count).sum::<u64>(), 5);
    let free = report.free.unwrap();
    assert_eq!(free.bytes, (1024 - 305) * BLOCK);
    assert_eq!(report.findings.total, 0);

    let checked = check(&path);
    assert!(checked.clean, "{:?}", checked.findings);
    assert_eq!((checked.verified_lumps, checked.unverified_lumps), (5, 0));
    assert_eq!(checked.read_bytes, 305 * BLOCK);
}

#[test]
fn lists_go_on_where_they_are_told_and_know_what_is_live() {
    let dir = disk_dir();
    let path = filled(&dir);
    let inspector = Inspector::open(&path).unwrap();
    let ids: Vec<u128> = inspector.lumps(LumpId(2)).map(|lump| lump.id.0).collect();
    assert_eq!(ids, [2, 3, 4, 5]);
    let records = records(&inspector);
    assert_eq!(records.last().unwrap().record, "end_of_records");
    let live = records.iter().filter(|record| record.live);
    let live = live.map(|record| record.lump.unwrap().0);
    assert!(live.eq(1..6));
    let mut seen = 0;
    inspector.records(|_| {
        seen += 1;
        seen < 2
    });
    assert_eq!(seen, 2, "the visitor ends the walk");
}

#[test]
fn a_check_can_be_ended_early_and_says_so() {
    let dir = disk_dir();
    let path = filled(&dir);
    let inspector = Inspector::open(&path).unwrap();
    let mut calls = 0;
    let report = inspector.check(|_, _| {
        calls += 1;
        calls < 3
    });
    assert_eq!((report.complete, report.clean), (false, false));
    assert_eq!(report.findings.total, 0);
}

#[test]
fn a_store_in_use_is_refused() {
    let dir = disk_dir();
    let path = filled(&dir);
    let store = Store::open(&path, options()).unwrap();
    let error = Inspector::open(&path).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    store.close().unwrap();
    let inspector = Inspector::open(&path).unwrap();
    let error = Store::open(&path, options()).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    drop(inspector);
    Store::open(&path, options()).unwrap().close().unwrap();
}

#[test]
fn images_of_another_engine_are_understood() {
    let samples = testdata("");
    for name in ["basic", "wrap", "wrap2", "bs4096", "foreign_align"] {
        let dir = disk_dir();
        let path = dir.path().join("copy.lusf");
        std::fs::copy(samples.join(name).with_extension("lusf"), &path).unwrap();
        let inspector = Inspector::open(&path).unwrap();
        if let Ok(want) = std::fs::read_to_string(samples.join(format!("{name}.want.txt"))) {
            let found: Vec<String> = inspector
                .lumps(LumpId::MIN)
                .map(|lump| format!("{} {}", lump.id, &lump.placement[..1]))
                .collect();
            let words = want.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let want = words.map(|words| format!("{} {}", words[0], words[2]));
            assert_eq!(found, want.collect::<Vec<_>>(), "{name}");
        }
        if let Ok(want) = std::fs::read_to_string(samples.join(format!("{name}.journal.txt"))) {
            // CannyLS lists from a later head than the one on the disk.
            let first_word = |line: &str| line.split(' ').next().unwrap().parse().unwrap();
            let want: Vec<u64> = want.lines().skip(1).map(first_word).collect();
            let mut found = records(&inspector);
            found.retain(|it| !["end_of_records", "go_to_front"].contains(&it.record));
            let found: Vec<u64> = found.iter().map(|it| it.ring_position).collect();
            assert!(found.ends_with(&want), "{name}: {found:?} {want:?}");
        }
        drop(inspector);
        let report = check(&path);
        assert!(report.clean, "{name}: {:?}", report.findings);
        let lumps = report.inspect.lumps.unwrap();
        assert_eq!(report.verified_lumps, lumps.embedded, "{name}");
        assert_eq!(report.unverified_lumps, lumps.in_data, "{name}");
    }
}

/// Findings after one bit of a filled store was flipped.
fn flipped(offset: impl Fn(&Path) -> u64, mask: u8) -> (CheckReport, u64) {
    let dir = disk_dir();
    let path = filled(&dir);
    let offset = offset(&path);
    flip(&path, offset, mask);
    (check(&path), offset)
}

fn only(report: &CheckReport) -> &Finding {
    assert_eq!(report.findings.total, 1, "{:?}", report.findings);
    let finding = &report.findings.list[0];
    assert!(!finding.why.is_empty());
    finding
}

#[test]
fn a_flipped_bit_in_the_header_is_found() {
    // The magic: everything else is still understood.
    let (report, _) = flipped(|_| 1, 0x01);
    assert_eq!(only(&report).kind, FindingKind::Header);
    assert_eq!(report.verified_lumps, 5);
    // Header size, versions, block size, the sizes' high bytes: the checked copy says what they
    // are.
    for offset in [4, 6, 8, 11, 28, 36] {
        let (report, _) = flipped(|_| offset, 0x80);
        assert_eq!(only(&report).kind, FindingKind::Header, "byte {offset}");
        assert_eq!((only(&report).first_sector, only(&report).sectors), (0, 1));
        assert_eq!(report.verified_lumps, 5, "byte {offset}");
        let report = without_copies(offset, 0x80);
        assert_eq!(only(&report).kind, FindingKind::Header, "byte {offset}");
        assert_eq!((only(&report).first_sector, only(&report).sectors), (0, 1));
        assert!(report.inspect.image.is_none(), "byte {offset}");
    }
}

/// The check of a store that has no checked copies of its headers, with a flipped bit.
fn without_copies(offset: u64, bit: u8) -> CheckReport {
    let dir = disk_dir();
    let path = filled(&dir);
    let mut image = std::fs::read(&path).unwrap();
    for block in [0, BLOCK as usize] {
        image[block + COPY_OFFSET..][..COPY_LEN].fill(0);
    }
    image[offset as usize] ^= bit;
    std::fs::write(&path, image).unwrap();
    check(&path)
}

#[test]
fn a_flipped_bit_in_the_journal_is_found_with_its_record() {
    let (report, _) = flipped(|_| BLOCK, 0x80);
    assert_eq!(only(&report).kind, FindingKind::JournalHeader);
    assert_eq!(report.verified_lumps, 5);
    let report = without_copies(BLOCK, 0x80);
    assert_eq!(only(&report).kind, FindingKind::JournalHeader);
    assert!(report.inspect.lumps.is_none());
    // Every byte of the first record, a put of 28 bytes: checksum, tag, id, length, start.
    for at in 0..28 {
        // One bit is known all the same; more are not.
        let (report, _) = flipped(|_| RING + at, 0x10);
        assert_eq!(only(&report).kind, FindingKind::Record, "byte {at}");
        assert_eq!(report.verified_lumps, 5, "byte {at}");
        let (report, offset) = flipped(|_| RING + at, 0x5a);
        let finding = &report.findings.list[0];
        assert_eq!(finding.kind, FindingKind::Record, "byte {at}");
        assert_eq!(finding.ring_position, Some(0));
        assert!(finding.offset <= offset);
        assert_eq!(report.inspect.journal.unwrap().tail, None);
    }
    // The embedded lump 5: the lumps before it are known and in order.
    let (report, _) = flipped(|path| offset_of(path, 5) + 500, 0x01);
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Record);
    assert!(finding.offset < finding.offset + 500 && finding.len == 1023);
    assert_eq!(report.verified_lumps, 4);
}

#[test]
fn a_flipped_bit_in_a_lump_is_found_with_its_sectors() {
    for (id, at) in [(1, 0), (1, 99), (2, 8999), (3, 0), (3, 700_000)] {
        let (report, offset) = flipped(|path| offset_of(path, id) + at, 0x04);
        let finding = only(&report);
        assert_eq!(finding.kind, FindingKind::Checksum, "lump {id} byte {at}");
        assert_eq!(finding.lump, Some(LumpId(id)));
        assert!((finding.offset..finding.offset + finding.len).contains(&offset));
        assert_eq!(finding.first_sector, finding.offset / 512);
        assert_eq!((report.verified_lumps, report.damaged_lumps), (4, 1));
    }
    // The padding length, which says where the lump ends.
    let (report, _) = flipped(|path| offset_of(path, 1) + BLOCK - 2, 0x80);
    assert_eq!(only(&report).kind, FindingKind::LumpEnd);
    assert_eq!(only(&report).lump, Some(LumpId(1)));
}

#[test]
fn a_flipped_bit_in_free_space_is_of_no_meaning() {
    let (report, _) = flipped(|_| DATA + 1000 * BLOCK, 0xff);
    assert!(report.clean);
    let (report, _) = flipped(|_| RING + SHAPE.ring_blocks * BLOCK - 1, 0xff);
    assert!(report.clean);
}

#[test]
fn truncated_files_are_told_apart_from_short_ones() {
    let dir = disk_dir();
    let path = filled(&dir);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Lump 3 has blocks 4..304; nothing behind it was ever used.
    file.set_len(DATA + 310 * BLOCK).unwrap();
    assert!(check(&path).clean);
    file.set_len(DATA + 200 * BLOCK).unwrap();
    let report = check(&path);
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Truncated);
    assert_eq!(finding.lump, Some(LumpId(3)));
    assert_eq!(finding.offset, DATA + 200 * BLOCK);
    assert_eq!((report.verified_lumps, report.damaged_lumps), (4, 1));
    file.set_len(RING + 40).unwrap();
    let report = check(&path);
    let mut kinds = report.findings.list.iter().map(|finding| finding.kind);
    assert!(kinds.any(|kind| kind == FindingKind::Record));
    file.set_len(20).unwrap();
    assert_eq!(only(&check(&path)).kind, FindingKind::Header);
}

#[test]
fn what_is_no_store_is_refused() {
    let dir = disk_dir();
    let path = dir.path().join("other");
    for bytes in [Vec::new(), vec![0; 70_000], content(9, 9, 100_000)] {
        std::fs::write(&path, bytes).unwrap();
        let error = Inspector::open(&path).unwrap_err();
        assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    }
    let error = Inspector::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::NotAStore { .. }), "{error}");
    let error = Inspector::open(&dir.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, Error::System { .. }), "{error}");
}

#[test]
fn lumps_that_share_blocks_are_both_named() {
    let dir = disk_dir();
    let path = store_file(&dir, SHAPE);
    let portion = |start, len| Portion::new(BlockIndex(start), BlockCount(len)).unwrap();
    let mut ring = Vec::new();
    // The last one goes beyond the end of the data region.
    for (id, start, len) in [(1, 10, 5), (2, 14, 1), (3, 20, 1), (4, 1023, 2)] {
        let (id, portion) = (LumpId(id), portion(start, len));
        Record::Put { id, portion }.encode_into(&mut ring);
    }
    Record::EndOfRecords.encode_into(&mut ring);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&ring, RING).unwrap();
    let report = inspect(&path);
    assert_eq!(report.findings.total, 2);
    let outside = &report.findings.list[0];
    assert_eq!(outside.kind, FindingKind::Record);
    assert_eq!(outside.lump, Some(LumpId(4)));
    let overlap = &report.findings.list[1];
    assert_eq!(overlap.kind, FindingKind::Overlap);
    assert_eq!(overlap.lump, Some(LumpId(2)));
    assert!(overlap.why.contains("blocks 14..15"), "{overlap}");
    assert!(overlap.why.contains(&LumpId(1).to_string()), "{overlap}");
    assert_eq!(report.free.unwrap().bytes, (1024 - 6) * BLOCK);
    assert!(Store::open(&path, options()).is_err());
}

#[test]
fn a_minfs_on_a_device_is_described_also_when_it_is_damaged() {
    require!();
    let image = Image::new(16 << 20);
    let device = image.attach(&[]);
    format(device.path(), &plain()).unwrap();
    let store = Store::open(device.path(), options()).unwrap();
    fill(&store);
    let error = Inspector::open(device.path()).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    store.close().unwrap();
    let hash = image.hash();
    let inspector = Inspector::open(device.path()).unwrap();
    let report = inspector.report();
    assert_eq!(report.target.kind, "block device");
    assert_eq!(report.image.as_ref().unwrap().layout, "minfs");
    let minfs = report.minfs.as_ref().unwrap();
    assert_eq!(minfs.file_name.as_deref(), Some("lusf"));
    assert!(inspector.check(|_, _| true).clean);
    drop(inspector);
    assert_eq!(image.hash(), hash, "the check wrote");

    flip(device.path(), 0, 0x01);
    let report = Inspector::open(device.path()).unwrap().check(|_, _| true);
    assert_eq!(only(&report).kind, FindingKind::Minfs);
    assert_eq!(report.verified_lumps, 5);
    flip(device.path(), 0, 0x01);
    flip(device.path(), 61_440, 0x01);
    let report = Inspector::open(device.path()).unwrap().check(|_, _| true);
    assert_eq!(only(&report).kind, FindingKind::Header);
    assert_eq!(report.verified_lumps, 5);
}

#[test]
fn sectors_that_cannot_be_read_are_named() {
    require!();
    let image = Image::new(16 << 20);
    let device = image.attach(&["--direct-io=on"]);
    format(device.path(), &plain()).unwrap();
    let store = Store::open(device.path(), options()).unwrap();
    fill(&store);
    store.close().unwrap();
    let inspector = Inspector::open(device.path()).unwrap();
    let lump = inspector.lumps(LumpId(3)).next().unwrap();
    drop(inspector);
    // A loop device cannot read what its file has lost.
    let lost = lump.offset + 100 * BLOCK;
    let file = writable(&image.path());
    file.set_len(lost).unwrap();
    let report = Inspector::open(device.path()).unwrap().check(|_, _| true);
    let finding = only(&report);
    assert_eq!(finding.kind, FindingKind::Read);
    assert_eq!(finding.lump, Some(LumpId(3)));
    assert_eq!((finding.offset, finding.len), (lost, 201 * BLOCK));
    assert_eq!((report.verified_lumps, report.damaged_lumps), (4, 1));
    file.set_len(16 << 20).unwrap();
}
