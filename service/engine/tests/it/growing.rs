//! Stores that grow, and stores that earlier versions have left.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::media::mount;
use crate::support::disks::{Image, require};
use crate::support::peer::{self, CannylsImage};
use crate::support::{but, content, disk_dir, get, options, put, try_put};
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::grow::{GrowError, GrowOptions, grow};
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

/// Makes a store so large.
fn to(capacity: u64) -> GrowOptions<'static> {
    but(GrowOptions::default(), |it| it.capacity = Some(capacity))
}

fn opened(path: &Path) -> Store {
    Store::open(path, options()).unwrap()
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
    let places = inspector.lumps(LumpId(0));
    let places = places.map(|lump| (lump.id, lump.placement));
    let expected = (0..lumps).map(|id| match lump(id).1 {
        Placement::Embedded => (LumpId(id), "embedded"),
        Placement::Data => (LumpId(id), "data"),
    });
    let (places, expected): (Vec<_>, Vec<_>) = (places.collect(), expected.collect());
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
fn an_unfinished_copy_of_an_earlier_version_is_refused() {
    let dir = disk_dir();
    let path = filled(dir.path(), 5);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"LsCy", 400).unwrap();
    let before = std::fs::read(&path).unwrap();
    for salvage in [false, true] {
        let options = but(options(), |it| it.salvage = salvage);
        let refused = Store::open(&path, options).unwrap_err();
        assert!(refused.to_string().contains("unfinished copy"), "{refused}");
    }
    let inspector = Inspector::open(&path).unwrap();
    let findings = &inspector.report().findings.list;
    let kinds: Vec<FindingKind> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Unfinished]);
    assert!(before == std::fs::read(&path).unwrap());
}

#[test]
fn a_store_grows_in_place_and_the_original_engine_opens_it() {
    let dir = disk_dir();
    let path = filled(dir.path(), 600);
    let refused = grow(&path, &GrowOptions::default()).unwrap_err();
    let is_it = matches!(refused, GrowError::CapacityRequired { .. });
    assert!(is_it, "{refused}");
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
    let mut canny = CannylsImage::new(image).open();
    for id in 0..600 {
        assert_eq!(peer::get(&mut canny, id), Some(lump(id).0), "{id}");
    }
    assert_eq!(peer::get(&mut canny, 1007), Some(content(1007, 1, 1 << 20)));
    let served = opened(&path);
    let refused = grow(&path, &to(32 * MIB)).unwrap_err();
    let is_it = matches!(refused, GrowError::Store(Error::InUse { .. }));
    assert!(is_it, "{refused}");
    drop(served);
    assert_eq!(std::fs::metadata(&path).unwrap().len() >> 20, 16);
}

#[test]
fn a_file_that_cannot_grow_is_as_long_as_before() {
    require!("mount");
    let image = Image::new(MIB);
    let full = mount("tmpfs", "size=8m", &image);
    let path = full.at.join("store.lusf");
    let small = CreateOptions {
        capacity: Some(4 * MIB),
        volatile: true,
        ..CreateOptions::default()
    };
    format(&path, &small).unwrap();
    let store = opened(&path);
    put(&store, 1, &content(1, 1, 100_000));
    store.close().unwrap();
    let len = || std::fs::metadata(&path).unwrap().len();
    let before = len();
    for prealloc in [Prealloc::Zero, Prealloc::Fallocate] {
        let larger = but(to(64 * MIB), |it| it.prealloc = prealloc);
        let refused = grow(&path, &larger).unwrap_err().to_string();
        assert!(refused.contains("No space left"), "{refused}");
        assert_eq!(len(), before, "{prealloc:?}");
        // What it had taken can be used again.
        let all = vec![1_u8; usize::try_from(3 * MIB).unwrap()];
        let other = full.at.join("other");
        std::fs::write(&other, all).unwrap();
        std::fs::remove_file(other).unwrap();
    }
    let store = opened(&path);
    assert_eq!(get(&store, 1), Some(content(1, 1, 100_000)));
    store.close().unwrap();
}

#[test]
fn stores_of_the_version_before_are_opened_and_made_larger() {
    let dir = disk_dir();
    for name in ["ordered", "checked", "runs"] {
        let old = dir.path().join(name);
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
        // As it was left: nobody has opened it before.
        has_all(&old);
        grow(&old, &to(MIB)).unwrap();
        has_all(&old);
    }
}
