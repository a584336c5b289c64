//! Copies of stores, and stores that grow: every lump that can be read arrives, nothing that is not
//! ours is overwritten, and nobody opens what is not finished.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::peer::{self, Peer};
use crate::support::sim::SimDisk;
use crate::support::{Shape, content, delete, disk_dir, get, options, put, testdata, try_put};
use lumpscope_engine::copy::{Copied, CopyError, CopyOptions, Step, copy, copy_lumps};
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::grow::{GrowError, GrowOptions, grow};
use lumpscope_engine::guard::FormatError;
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::{Error, FindingKind, LumpId, Placement, Store};

const MIB: u64 = 1 << 20;

fn made(path: &Path, capacity: u64, block_size: u16) {
    let options = CreateOptions {
        capacity: Some(capacity),
        block_size,
        journal_ratio: 0.1,
        prealloc: Prealloc::Sparse,
        ..CreateOptions::default()
    };
    format(path, &options).unwrap();
}

fn opened(path: &Path) -> Store {
    Store::open(path, options()).unwrap()
}

fn sparse<'a>() -> CopyOptions<'a> {
    CopyOptions {
        prealloc: Prealloc::Sparse,
        ..CopyOptions::default()
    }
}

/// A store with these lumps, every seventh of them in the journal.
fn filled(folder: &Path, lumps: u128) -> PathBuf {
    let path = folder.join("from.lusf");
    made(&path, 4 * MIB, 512);
    let store = opened(&path);
    for id in 0..lumps {
        let (bytes, placement) = lump(id);
        try_put(&store, id, &bytes, placement).unwrap();
    }
    store.close().unwrap();
    path
}

fn lump(id: u128) -> (Vec<u8>, Placement) {
    let len = usize::try_from(id * 97 % 5000).unwrap();
    if id.is_multiple_of(7) {
        (content(id, 1, len.min(900)), Placement::Embedded)
    } else {
        (content(id, 1, len), Placement::Data)
    }
}

#[track_caller]
fn has_all(path: &Path, lumps: u128) {
    let inspector = Inspector::open(path).unwrap();
    assert_eq!(inspector.report().findings.total, 0);
    let places: Vec<(LumpId, &str)> = inspector
        .lumps(LumpId(0))
        .map(|lump| (lump.id, lump.placement))
        .collect();
    let expected: Vec<(LumpId, &str)> = (0..lumps)
        .map(|id| match lump(id).1 {
            Placement::Embedded => (LumpId(id), "embedded"),
            Placement::Data => (LumpId(id), "data"),
        })
        .collect();
    assert_eq!(places, expected);
    let report = inspector.check(|_, _| true);
    assert!(report.clean, "{:?}", report.findings);
    drop(inspector);
    let store = opened(path);
    for id in 0..lumps {
        assert_eq!(get(&store, id), Some(lump(id).0), "{id}");
    }
    store.close().unwrap();
}

#[test]
fn what_a_failing_disk_can_still_read_arrives_and_the_rest_is_named() {
    let shape = Shape {
        block_size: 512,
        ring_blocks: 3000,
        data_blocks: 60_000,
    };
    let bad = SimDisk::new(shape.image());
    let store = bad.open().unwrap();
    for id in 0..10_000 {
        let len = usize::try_from(id % 1500).unwrap();
        try_put(&store, id, &content(id, 1, len), Placement::Data).unwrap();
    }
    store.close().unwrap();
    // Where each lump lies, by another reader.
    let dir = disk_dir();
    let image = dir.path().join("image.lusf");
    std::fs::write(&image, bad.bytes()).unwrap();
    let inspector = Inspector::open(&image).unwrap();
    let lumps: Vec<_> = inspector.lumps(LumpId(0)).collect();
    let mut expected = BTreeSet::new();
    for spot in 0..20 {
        // In the middle of a lump, and over the end of the next one.
        let lump = &lumps[spot * 499 + 77];
        let spot = lump.offset..lump.offset + lump.stored_bytes + 512;
        let hit = lumps.iter().filter(|other| {
            other.offset < spot.end && spot.start < other.offset + other.stored_bytes
        });
        expected.extend(hit.map(|lump| lump.id));
        bad.make_unreadable(spot);
    }
    assert!((20..=60).contains(&expected.len()));
    let target = SimDisk::new(shape.image());
    let (from, to) = (bad.open().unwrap(), target.open().unwrap());
    let told = AtomicU64::new(0);
    let copied = copy_lumps(&from, &to, &|done, total| {
        assert!(done <= total);
        told.fetch_max(done, Ordering::Relaxed);
    });
    let copied = copied.unwrap();
    let unreadable: BTreeSet<LumpId> = copied.unreadable.iter().map(|lump| lump.id).collect();
    assert_eq!(unreadable, expected);
    assert!(copied.unreadable[0].why.contains("cannot be read"));
    assert_eq!(copied.lumps, 10_000 - expected.len() as u64);
    assert_eq!(told.into_inner(), copied.bytes);
    // Again: only the unreadable ones are tried once more.
    let again = copy_lumps(&from, &to, &|_, _| ()).unwrap();
    assert_eq!((again.lumps, again.there), (0, copied.lumps));
    assert_eq!(again.unreadable, copied.unreadable);
    to.close().unwrap();
    let to = target.open().unwrap();
    for id in 0..10_000 {
        let len = usize::try_from(id % 1500).unwrap();
        let wanted = (!expected.contains(&LumpId(id))).then(|| content(id, 1, len));
        assert_eq!(get(&to, id), wanted, "{id}");
    }
}

#[test]
fn a_target_that_fails_or_is_full_ends_the_copy_and_keeps_what_arrived() {
    let shape = Shape {
        block_size: 512,
        ring_blocks: 64,
        data_blocks: 4000,
    };
    let source = SimDisk::new(shape.image());
    let from = source.open().unwrap();
    for id in 0..100 {
        put(&from, id, &content(id, 1, 2000));
    }
    let small = Shape {
        data_blocks: 200,
        ..shape
    };
    let target = SimDisk::new(small.image());
    let to = target.open().unwrap();
    let error = copy_lumps(&from, &to, &|_, _| ()).unwrap_err();
    assert!(
        matches!(error, CopyError::Target(Error::StoreFull { .. })),
        "{error}"
    );
    source.break_down(libc::EIO);
    let target = SimDisk::new(shape.image());
    let to = target.open().unwrap();
    let error = copy_lumps(&from, &to, &|_, _| ()).unwrap_err();
    assert!(matches!(error, CopyError::Source(_)), "{error}");
}

#[test]
fn a_copy_to_a_larger_target_is_larger_and_the_original_engine_opens_it() {
    let dir = disk_dir();
    let from = filled(dir.path(), 600);
    let to = dir.path().join("to.lusf");
    let steps = AtomicU64::new(0);
    let progress = |step: Step, done: u64, total: u64| {
        assert!(done <= total, "{step:?}");
        steps.fetch_or(1 << step as u64, Ordering::Relaxed);
    };
    let options = CopyOptions {
        capacity: Some(16 * MIB),
        progress: Some(&progress),
        ..CopyOptions::default()
    };
    let report = copy(&from, &to, &options).unwrap();
    assert_eq!(steps.load(Ordering::Relaxed), 0b111, "every step is told");
    assert_eq!((report.copied.lumps, report.checked), (600, 600));
    assert!(!report.resumed);
    assert!(report.target.data_capacity > 3 * report.source.data_capacity);
    assert!(report.target.journal_capacity > 3 * report.source.journal_capacity);
    assert_ne!(report.target.uuid, report.source.uuid);
    has_all(&to, 600);
    let mut image = std::fs::read(&to).unwrap();
    image.truncate(16 << 20);
    let mut canny = Peer::new(image).open();
    for id in 0..600 {
        assert_eq!(peer::get(&mut canny, id), Some(lump(id).0), "{id}");
    }
    // The source is as it was; a copy that is whole is a store like any other.
    has_all(&from, 600);
    let error = copy(&from, &to, &options).unwrap_err();
    assert!(matches!(
        error,
        CopyError::Format(FormatError::Signatures { .. })
    ));
    // As large as the source, and in blocks of another size.
    for block_size in [512, 4096] {
        let other = dir.path().join(format!("other-{block_size}.lusf"));
        let options = CopyOptions {
            block_size: Some(block_size),
            capacity: (block_size > 512).then_some(8 * MIB),
            ..sparse()
        };
        let report = copy(&from, &other, &options).unwrap();
        assert_eq!(report.target.block_size, block_size);
        if block_size == 512 {
            assert_eq!(report.target.data_capacity, report.source.data_capacity);
        }
        has_all(&other, 600);
    }
}

#[test]
fn an_unfinished_copy_is_nobodys_and_goes_on() {
    let dir = disk_dir();
    let from = filled(dir.path(), 600);
    let to = dir.path().join("to.lusf");
    // The process dies amid the copy: nothing of what it would have done at its end is done.
    let ends = std::panic::catch_unwind(|| {
        let progress = |step: Step, done: u64, _: u64| {
            assert!(step != Step::Copying || done < 300_000, "the end");
        };
        let options = CopyOptions {
            progress: Some(&progress),
            ..sparse()
        };
        copy(&from, &to, &options)
    });
    ends.unwrap_err();
    let refused = Store::open(&to, options()).unwrap_err();
    assert!(refused.to_string().contains("not finished"), "{refused}");
    let refused = copy(&to, &dir.path().join("third.lusf"), &sparse()).unwrap_err();
    assert!(matches!(refused, CopyError::Source(_)), "{refused}");
    let inspector = Inspector::open(&to).unwrap();
    let kinds: Vec<FindingKind> = inspector
        .report()
        .findings
        .list
        .iter()
        .map(|f| f.kind)
        .collect();
    assert_eq!(kinds, [FindingKind::Unfinished]);
    drop(inspector);
    // It is a copy of that store and no other.
    let stranger = dir.path().join("stranger.lusf");
    made(&stranger, 4 * MIB, 512);
    let refused = copy(&stranger, &to, &sparse()).unwrap_err();
    assert!(
        matches!(refused, CopyError::OtherSource { .. }),
        "{refused}"
    );
    let report = copy(&from, &to, &sparse()).unwrap();
    assert!(report.resumed && report.copied.there > 0, "{report:?}");
    assert_eq!(report.copied.there + report.copied.lumps, 600);
    has_all(&to, 600);
}

#[test]
fn a_copy_does_not_go_on_with_a_source_that_has_changed() {
    let dir = disk_dir();
    let from = filled(dir.path(), 50);
    let to = dir.path().join("to.lusf");
    let begun = std::panic::catch_unwind(|| {
        let progress = |step: Step, _: u64, _: u64| assert!(step == Step::Making, "the end");
        let options = CopyOptions {
            progress: Some(&progress),
            ..sparse()
        };
        copy(&from, &to, &options)
    });
    begun.unwrap_err();
    let store = opened(&from);
    delete(&store, 3);
    put(&store, 3, &lump(3).0);
    store.close().unwrap();
    let refused = copy(&from, &to, &sparse()).unwrap_err();
    assert!(
        matches!(refused, CopyError::SourceChanged { .. }),
        "{refused}"
    );
    let anew = CopyOptions {
        force: true,
        ..sparse()
    };
    assert!(!copy(&from, &to, &anew).unwrap().resumed);
    has_all(&to, 50);
}

#[test]
fn a_target_that_is_not_ours_or_too_small_stays_as_it_was() {
    let dir = disk_dir();
    let from = filled(dir.path(), 600);
    let text = dir.path().join("text");
    std::fs::write(&text, "letters to somebody").unwrap();
    let refused = copy(&from, &text, &sparse()).unwrap_err();
    assert!(refused.to_string().contains("--force"), "{refused}");
    assert_eq!(std::fs::read(&text).unwrap(), b"letters to somebody");
    let to = dir.path().join("to.lusf");
    let small = CopyOptions {
        capacity: Some(MIB),
        ..sparse()
    };
    let refused = copy(&from, &to, &small).unwrap_err();
    assert!(matches!(refused, CopyError::TooSmall { .. }), "{refused}");
    assert!(!to.exists());
    // Not even with force: a store that is too small keeps its lumps.
    made(&to, MIB, 512);
    put(&opened(&to), 7, b"kept");
    let forced = CopyOptions {
        force: true,
        ..small
    };
    let refused = copy(&from, &to, &forced).unwrap_err();
    assert!(matches!(refused, CopyError::TooSmall { .. }), "{refused}");
    assert_eq!(get(&opened(&to), 7), Some(b"kept".to_vec()));
    // A source or target that is served.
    let served = opened(&from);
    let refused = copy(&from, &dir.path().join("third"), &sparse()).unwrap_err();
    assert!(
        matches!(refused, CopyError::Source(Error::InUse { .. })),
        "{refused}"
    );
    drop(served);
    let refused = copy(&from, &from, &sparse()).unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    has_all(&from, 600);
}

#[test]
fn bad_places_are_not_taken_along() {
    let shape = Shape {
        block_size: 512,
        ring_blocks: 64,
        data_blocks: 4000,
    };
    let disk = SimDisk::new(shape.image());
    let store = disk.open().unwrap();
    disk.refuse_writes(shape.data() + 50 * 512..shape.data() + 60 * 512);
    for id in 0..100 {
        put(&store, id, &content(id, 1, 2000));
    }
    assert!(store.stats().bad_places > 0);
    store.close().unwrap();
    let dir = disk_dir();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, disk.bytes()).unwrap();
    assert!(
        opened(&from).stats().bad_places > 0,
        "a copy of the bytes has them"
    );
    copy(&from, &to, &sparse()).unwrap();
    let store = opened(&to);
    assert_eq!(store.stats().bad_places, 0);
    for id in 0..100 {
        assert_eq!(get(&store, id), Some(content(id, 1, 2000)));
    }
}

#[test]
fn stores_of_the_original_engine_are_copied() {
    let dir = disk_dir();
    for name in ["basic", "wrap", "wrap2", "bs4096", "foreign_align"] {
        let (from, to) = (dir.path().join(name), dir.path().join("to"));
        std::fs::copy(testdata(&format!("{name}.lusf")), &from).unwrap();
        let Copied {
            lumps, unreadable, ..
        } = copy(&from, &to, &sparse()).unwrap().copied;
        assert_eq!(unreadable, []);
        let (old, new) = (opened(&from), opened(&to));
        assert_eq!(old.stats().lumps, lumps, "{name}");
        for id in old
            .list(lumpscope_engine::LumpRange::ALL, 10_000)
            .unwrap()
            .ids
        {
            assert_eq!(get(&new, id.0), get(&old, id.0), "{name} {id}");
        }
        drop((old, new));
        std::fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_store_grows_in_place_and_the_original_engine_opens_it() {
    let dir = disk_dir();
    let path = filled(dir.path(), 600);
    let refused = grow(&path, &GrowOptions::default()).unwrap_err();
    assert!(
        matches!(refused, GrowError::CapacityRequired { .. }),
        "{refused}"
    );
    let to = |capacity| GrowOptions {
        capacity: Some(capacity),
        ..GrowOptions::default()
    };
    let refused = grow(&path, &to(2 * MIB)).unwrap_err();
    assert!(matches!(refused, GrowError::NotLarger { .. }), "{refused}");
    has_all(&path, 600);
    let grown = grow(&path, &to(16 * MIB)).unwrap();
    assert_eq!(grown.after - grown.before, 12 * MIB);
    has_all(&path, 600);
    let store = opened(&path);
    for id in 1000..1008 {
        put(&store, id, &content(id, 1, 1 << 20));
    }
    store.close().unwrap();
    let mut image = std::fs::read(&path).unwrap();
    image.resize(16 << 20, 0);
    let mut canny = Peer::new(image).open();
    for id in 0..600 {
        assert_eq!(peer::get(&mut canny, id), Some(lump(id).0), "{id}");
    }
    assert_eq!(peer::get(&mut canny, 1007), Some(content(1007, 1, 1 << 20)));
    let served = opened(&path);
    let refused = grow(&path, &to(32 * MIB)).unwrap_err();
    assert!(
        matches!(refused, GrowError::Store(Error::InUse { .. })),
        "{refused}"
    );
    drop(served);
    assert_eq!(
        File::open(&path).unwrap().metadata().unwrap().len() >> 20,
        16
    );
}

#[test]
fn stores_of_the_version_before_are_opened_copied_and_made_larger() {
    let dir = disk_dir();
    for name in ["ordered", "checked", "runs"] {
        let [old, new] = ["old", "new"].map(|kind| dir.path().join(format!("{name}-{kind}")));
        let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/0.2");
        std::fs::copy(testdata.join(format!("{name}.lusf")), &old).unwrap();
        let has_all = |path: &Path| {
            assert!(Inspector::open(path).unwrap().check(|_, _| true).clean);
            let store = opened(path);
            for id in [1_u8, 2, 4, 6, 7, 8, 9] {
                let bytes = vec![b'0' + id; usize::from(id) * 1000];
                assert_eq!(get(&store, id.into()), Some(bytes), "{name} {id}");
            }
            assert_eq!(get(&store, 5), Some(vec![b'x'; 20_000]));
            assert_eq!(get(&store, 0x100).as_deref(), Some(&b"embedded"[..]));
            assert_eq!(store.stats().lumps, 9);
            store.close().unwrap();
        };
        // As it was left, and by the copy: nobody has opened it before.
        assert_eq!(copy(&old, &new, &sparse()).unwrap().copied.lumps, 9);
        has_all(&new);
        has_all(&old);
        let larger = GrowOptions {
            capacity: Some(MIB),
            ..GrowOptions::default()
        };
        grow(&old, &larger).unwrap();
        has_all(&old);
    }
}
