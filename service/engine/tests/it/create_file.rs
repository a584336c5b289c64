//! Making a store in a regular file: what it looks like afterwards, and what is refused.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::format::copies;
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::record::{Decoded, Record};
use lumpscope_engine::guard::{FormatError, User};
use lumpscope_engine::layout::{Detected, LayoutError, detect_path};
use lumpscope_engine::units::{ByteLen, ByteOffset, RingPosition};
use lumpscope_engine::{Layout, format::DecodeErrorKind};
use proptest::prelude::*;

use crate::support::disks::user_of;
use crate::support::{but, disk_dir};

const MIB: u64 = 1024 * 1024;

fn sparse(capacity: u64) -> CreateOptions<'static> {
    CreateOptions {
        capacity: Some(capacity),
        prealloc: Prealloc::Sparse,
        ..CreateOptions::default()
    }
}

/// Asserts that `path` holds an empty store and returns what it is.
fn assert_empty_store(path: &Path) -> Detected {
    let detected = detect_path(path).expect("a store");
    let image = fs::read(path).expect("readable");
    let at = |offset: ByteOffset| &image[usize::try_from(offset.0).expect("small")..];
    let geometry = detected.geometry;
    let head = JournalHeader::decode(at(geometry.journal_header_offset()), geometry.ring_len());
    assert_eq!(head.map(|head| head.ring_head), Ok(RingPosition(0)));
    let (record, len) = (Record::EndOfRecords, 5);
    let first = Record::decode(at(geometry.ring_offset()));
    assert_eq!(first, Ok(Decoded::Record { record, len }));
    detected
}

#[test]
fn each_preallocation_makes_an_empty_store_of_the_size_asked_for() {
    let directory = disk_dir();
    for (name, prealloc) in [
        ("zero", Prealloc::Zero),
        ("fallocate", Prealloc::Fallocate),
        ("sparse", Prealloc::Sparse),
    ] {
        let path = directory.path().join(name);
        let options = but(sparse(8 * MIB), |it| it.prealloc = prealloc);
        let report = format(&path, &options).expect("formatted");
        let detected = assert_empty_store(&path);
        assert_eq!(report.geometry, detected.geometry);
        assert_eq!(report.uuid.into_bytes(), detected.header.uuid);
        assert_eq!(detected.layout, Layout::Lusf);
        assert_eq!(detected.geometry.base(), ByteOffset(0));
        assert_eq!(detected.header.minor, 1);
        // 1 % of 8 MiB - 4096, rounded up to whole blocks, as the original divides.
        assert_eq!(detected.header.journal_len, ByteLen(86_016));
        let metadata = fs::metadata(&path).expect("there");
        assert_eq!(metadata.len(), 8 * MIB);
        let allocated = metadata.blocks() * 512 >= 8 * MIB;
        assert_eq!(allocated, prealloc != Prealloc::Sparse, "{name}");
    }
}

#[test]
fn progress_ends_at_the_whole_size() {
    let directory = disk_dir();
    let last = std::cell::Cell::new((0, 0));
    let progress = |done, total| {
        assert!(done > last.get().0);
        last.set((done, total));
    };
    let options = CreateOptions {
        capacity: Some(9 * MIB),
        progress: Some(&progress),
        ..CreateOptions::default()
    };
    format(&directory.path().join("store"), &options).expect("formatted");
    assert_eq!(last.get(), (9 * MIB, 9 * MIB));
}

/// An interruption at any point of the work leaves nothing that opens, not even the previous store.
#[test]
fn while_a_store_is_made_nothing_opens() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    for round in 0..2 {
        let looks = std::cell::Cell::new(0);
        let progress = |_, _| {
            assert!(detect_path(&path).is_err(), "a half-made store opens");
            looks.set(looks.get() + 1);
        };
        let options = CreateOptions {
            capacity: Some(32 * MIB),
            force: round > 0,
            progress: Some(&progress),
            ..CreateOptions::default()
        };
        format(&path, &options).expect("formatted");
        assert!(looks.get() >= 8);
        assert_empty_store(&path);
    }
}

#[test]
fn a_new_file_needs_a_capacity_and_is_not_left_behind() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    let without = but(CreateOptions::default(), |it| it.capacity = None);
    let refused = format(&path, &without).expect_err("no capacity");
    assert!(matches!(refused, FormatError::CapacityRequired { .. }));
    assert!(!path.exists());
    let small = format(&path, &sparse(16_383)).expect_err("too small");
    assert!(matches!(small, FormatError::Size { .. }), "{small}");
    assert!(!path.exists());
    format(&path, &sparse(16_384)).expect("the least that works: four blocks");
}

#[test]
fn what_has_content_is_kept_unless_forced() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    fs::write(&path, vec![0xAA; 100_000]).expect("written");
    let before = fs::read(&path).expect("readable");
    let error = format(&path, &sparse(MIB)).expect_err("not empty");
    let FormatError::FileNotEmpty { len, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(len, ByteLen(100_000));
    assert_eq!(fs::read(&path).expect("readable"), before);

    // Forced without a capacity: the file's own size, whole blocks.
    let options = CreateOptions {
        capacity: None,
        force: true,
        ..CreateOptions::default()
    };
    let report = format(&path, &options).expect("forced");
    assert_eq!(report.geometry.image_len(), ByteLen(98_304));
    assert_empty_store(&path);
    // The new header's random UUID may well hold one such byte, but not a run of them.
    let after = fs::read(&path).expect("readable");
    assert!(!after.windows(32).any(|run| run == [0xAA; 32]));
}

#[test]
fn an_existing_store_is_named_with_its_place() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    format(&path, &sparse(MIB)).expect("formatted");
    let first = detect_path(&path).expect("a store");
    let before = fs::read(&path).expect("readable");
    let error = format(&path, &sparse(MIB)).expect_err("a store is there");
    let said = error.to_string();
    let words = "lusf lump store (signature at byte 0)";
    assert!(said.contains(words), "{said}");
    assert_eq!(fs::read(&path).expect("readable"), before);
    let by_force = but(sparse(2 * MIB), |it| it.force = true);
    format(&path, &by_force).expect("forced");
    let second = assert_empty_store(&path);
    assert_ne!(first.header.uuid, second.header.uuid);
}

#[test]
fn a_damaged_store_is_still_refused() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    let mut bytes = vec![0; 100_000];
    bytes[61_440..61_444].copy_from_slice(b"lusf");
    fs::write(&path, &bytes).expect("written");
    let error = format(&path, &sparse(MIB)).expect_err("a store is there");
    let said = error.to_string();
    assert!(said.contains("signature at byte 61440"), "{said}");
}

#[test]
fn a_locked_file_is_refused_even_when_forced() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    let file = File::create(&path).expect("created");
    file.lock().expect("locked");
    let options = but(sparse(MIB), |it| it.force = true);
    let error = format(&path, &options).expect_err("locked");
    assert!(matches!(user_of(&error), User::Locked), "{error}");
}

#[test]
fn other_things_than_files_and_disks_are_refused() {
    let directory = disk_dir();
    for (path, what) in [
        (directory.path().to_owned(), "directory"),
        (PathBuf::from("/dev/null"), "character device"),
    ] {
        let error = format(&path, &sparse(MIB)).expect_err("refused");
        assert!(error.to_string().contains(what), "{error}");
    }
    let missing = directory.path().join("no/such/directory");
    let refused = format(&missing, &sparse(MIB));
    assert!(matches!(refused, Err(FormatError::Io { .. })));
}

#[test]
fn blocks_that_are_no_blocks_are_refused() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    for block_size in [0, 100, 513, 65_535] {
        let options = but(sparse(MIB), |it| it.block_size = block_size);
        let refused = matches!(format(&path, &options), Err(FormatError::BlockSize(_)));
        assert!(refused, "{block_size}");
    }
    for journal_ratio in [-0.1, 1.1, f64::NAN] {
        let options = but(sparse(MIB), |it| it.journal_ratio = journal_ratio);
        let refused = matches!(format(&path, &options), Err(FormatError::Size { .. }));
        assert!(refused, "{journal_ratio}");
    }
    assert!(!path.exists());
}

#[test]
fn what_is_no_store_is_named_at_open() {
    let directory = disk_dir();
    let path = directory.path().join("file");
    fs::write(&path, b"").expect("written");
    let error = detect_path(&path).expect_err("empty");
    assert!(
        matches!(&error, LayoutError::NotAStore { found, .. } if found.is_empty()),
        "{error}"
    );

    // An image of a swap area: mkswap's magic at the end of the first page.
    let mut swap = vec![0; 1 << 20];
    swap[1024] = 1;
    swap[1028..1032].copy_from_slice(&255_u32.to_le_bytes());
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs::write(&path, &swap).expect("written");
    let error = detect_path(&path).expect_err("swap");
    assert!(error.to_string().contains("swap"), "{error}");
    let said = format(&path, &sparse(MIB)).expect_err("swap").to_string();
    assert!(said.contains("signature at byte 4086"), "{said}");

    let none = detect_path(&directory.path().join("none"));
    assert!(matches!(none, Err(LayoutError::Io { .. })));
}

#[test]
fn a_header_that_cannot_be_used_is_explained() {
    let directory = disk_dir();
    let path = directory.path().join("store");
    format(&path, &sparse(MIB)).expect("formatted");
    let file = File::options().write(true).open(&path).expect("opened");
    file.write_all_at(&[0, 2], 6).expect("written");
    // Rot, as the checked copy tells. Who writes another header leaves none.
    assert_eq!(detect_path(&path).expect("a copy").header.minor, 1);
    let no_copy = [0; copies::COPY_LEN];
    let at = copies::COPY_OFFSET as u64;
    file.write_all_at(&no_copy, at).expect("written");
    let said = detect_path(&path)
        .expect_err("another engine's")
        .to_string();
    let version = "major version (byte 6): expected 1, found 2";
    assert!(said.contains(version), "{said}");
    file.write_all_at(&[0, 1, 0, 2], 6).expect("written");
    let LayoutError::Header { source, .. } = detect_path(&path).expect_err("minor 2") else {
        panic!("the header is wrong");
    };
    let (expected, found) = ("0 or 1", 2);
    assert_eq!(source.kind, DecodeErrorKind::Version { expected, found });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_a_store_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..70_000), magic in 0..4_usize
    ) {
        let directory = disk_dir();
        let path = directory.path().join("file");
        for (offset, text) in [(0, b"lusf".as_slice()), (61_440, b"lusf"), (0, b"\x0d\xf0\xad\xde\0\0\0\0\x01")]
            .into_iter().take(magic)
        {
            if let Some(place) = bytes.get_mut(offset..offset + text.len()) {
                place.copy_from_slice(text);
            }
        }
        fs::write(&path, &bytes).expect("written");
        prop_assert!(detect_path(&path).is_err());
    }
}
