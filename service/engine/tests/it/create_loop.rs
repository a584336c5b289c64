//! Making a store on real block devices, and in files of real file systems: what is there
//! afterwards, and what cannot be made.

use crate::support::but;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support;
use crate::support::disks::{Image, Mount, forced, plain, refusal, require, run, say, writable};
use lumpscope_engine::Store;
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::format::minfs;
use lumpscope_engine::guard::FormatError;
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::layout::{LayoutError, detect_path};
use lumpscope_engine::units::{ByteLen, ByteOffset};

const MIB: u64 = 1024 * 1024;

#[test]
fn devices_that_are_too_small() {
    require!();
    for len in [4096, 61_440, 61_440 + 3 * 4096] {
        let image = Image::new(len);
        let device = image.attach(&[]);
        let error = refusal(&image, device.path(), &forced());
        assert!(matches!(&error, FormatError::Size { .. }), "{len}: {error}");
    }
    let image = Image::new(61_440 + 4 * 4096);
    let device = image.attach(&[]);
    format(device.path(), &plain()).expect("header, journal header, ring, one block of data");
    let options = but(forced(), |it| it.capacity = Some(MIB));
    let error = refusal(&image, device.path(), &options);
    assert!(
        matches!(
            &error,
            FormatError::CapacityExceedsDevice {
                available: ByteLen(16_384),
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_existing_store_and_what_is_on_the_disk_afterwards() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    let first = format(device.path(), &plain()).expect("an empty disk");
    assert!(first.erased.is_empty());
    assert_eq!(first.geometry.base(), ByteOffset(61_440));
    let error = refusal(&image, device.path(), &plain());
    let said = error.to_string();
    let place = "lusf lump store (signature at byte 61440)";
    assert!(said.contains(place), "{said}");

    let bytes = std::fs::read(image.path()).expect("readable");
    let superblock = minfs::Superblock::decode(&bytes).expect("a minfs");
    assert_eq!(superblock, minfs::Superblock::WITH_FILE);
    assert_eq!(minfs::Inode::decode(&bytes[4096..]), Ok(minfs::Inode::ROOT));
    let file = minfs::Inode::decode(&bytes[4096 + 20..]).expect("an inode");
    assert_eq!(u64::from(file.size), first.geometry.image_len().0);
    let entry = minfs::DirEntry::decode(&bytes[8192..]).expect("an entry");
    assert_eq!((entry.ino, entry.name()), (1, b"lusf".as_slice()));

    let second = format(device.path(), &forced()).expect("forced");
    assert_ne!(first.uuid, second.uuid);
    let half = but(forced(), |it| it.capacity = Some(4 * MIB));
    let third = format(device.path(), &half).expect("forced");
    assert_eq!(third.geometry.image_len(), ByteLen(4 * MIB));
}

#[test]
fn a_copy_of_a_disk_in_a_file_is_as_sound_as_the_disk() {
    // Large enough that room for checkpoints is left behind the store.
    const LEN: u64 = 256 * MIB;
    require!();
    let image = Image::new(LEN);
    // The image of the loop device is a copy of the disk, byte for byte.
    let copy = image.path();
    let options = || but(support::options(), |it| it.checkpoint_records = 8);
    let serve = |path: &Path, ids: Range<u128>| {
        let store = Store::open(path, options()).expect("it opens");
        for id in 1..ids.start {
            let lump = support::content(id, 0, 5000);
            assert_eq!(support::get(&store, id), Some(lump));
        }
        for id in ids {
            support::put(&store, id, &support::content(id, 0, 5000));
        }
        store.close().expect("it closes");
    };
    let device = image.attach(&[]);
    format(device.path(), &plain()).expect("an empty disk");
    serve(device.path(), 1..40);
    serve(device.path(), 40..80);
    drop(device);
    for _ in 0..2 {
        let inspector = Inspector::open(&copy).expect("a store");
        assert_eq!(inspector.report().checkpoints.len(), 2);
        let report = inspector.check(|_, _| true);
        assert!(report.clean, "{:?}", report.findings);
        assert_eq!(std::fs::metadata(&copy).expect("it is there").len(), LEN);
        drop(inspector);
        serve(&copy, 80..100);
    }
    let device = image.attach(&[]);
    serve(device.path(), 100..101);
}

#[test]
fn blocks_smaller_than_the_sectors_of_the_device() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&["--sector-size", "4096"]);
    for block_size in [512, 6144] {
        let error = refusal(
            &image,
            device.path(),
            &but(plain(), |it| it.block_size = block_size),
        );
        assert!(
            matches!(
                &error,
                FormatError::Alignment {
                    alignment: 4096,
                    ..
                }
            ),
            "{error}"
        );
    }
    let report = format(device.path(), &plain()).expect("4096-byte blocks fit");
    let elapsed = report.elapsed;
    say(&format!("format of a 16 MiB loop device took {elapsed:?}"));
}

#[test]
fn a_device_that_was_cut_off_is_not_opened() {
    require!();
    let image = Image::new(16 * MIB);
    format(image.attach(&[]).path(), &plain()).expect("formatted");
    let file = writable(&image.path());
    file.set_len(8 * MIB).expect("cut");
    let error = detect_path(image.attach(&[]).path()).expect_err("half a store");
    assert!(matches!(error, LayoutError::Truncated { .. }), "{error}");
}

#[test]
fn an_interrupted_format_is_recognised() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    format(device.path(), &plain()).expect("formatted");
    // All but the header, which is written last.
    let file = writable(device.path());
    file.write_all_at(&[0; 4096], 61_440).expect("written");
    file.sync_all().expect("written");
    let found = detect_path(device.path());
    assert!(matches!(found, Err(LayoutError::NoImage { .. })));
}

#[test]
fn a_partition_is_a_device_like_any_other() {
    require!("addpart");
    let image = Image::new(16 * MIB);
    let device = image.attach(&["--partscan"]);
    let partition = device.partition(2048, 16_384);
    let report = format(&partition, &plain()).expect("formatted");
    assert_eq!(report.geometry.image_len(), ByteLen(8 * MIB - 61_440));
    assert!(detect_path(&partition).is_ok());
    let error = refusal(&image, device.path(), &plain());
    assert!(matches!(&error, FormatError::Partitions { .. }), "{error}");
}

#[test]
fn a_file_system_without_room_is_left_as_it_was() {
    require!("mkfs.ext4", "mount");
    let image = Image::made(32 * MIB, "mkfs.ext4", "-qF");
    let device = image.attach(&[]);
    let mount = Mount::new(device.path(), image.mount_point());
    let path = mount.at.join("store.lusf");
    for prealloc in [Prealloc::Zero, Prealloc::Fallocate] {
        let options = CreateOptions {
            capacity: Some(64 * MIB),
            prealloc,
            ..plain()
        };
        let error = format(&path, &options).expect_err("no room");
        assert!(
            matches!(
                &error,
                FormatError::Io {
                    what: "allocating it",
                    ..
                }
            ),
            "{error}"
        );
        assert!(!path.exists(), "half a file is left behind");
    }
    let options = but(plain(), |it| it.capacity = Some(16 * MIB));
    let report = format(&path, &options).expect("room enough");
    assert_eq!(report.geometry.image_len(), ByteLen(16 * MIB));
    assert!(detect_path(&path).is_ok());

    let read_only = ["-o", "remount,ro"].map(Path::new);
    run("mount", &[&read_only[..], &[&mount.at]].concat());
    for path in [&path, &mount.at.join("new.lusf")] {
        let options = but(forced(), |it| it.capacity = Some(MIB));
        let error = format(path, &options).expect_err("read-only");
        assert!(matches!(&error, FormatError::ReadOnly { .. }), "{error}");
    }
}

#[test]
fn files_on_ext4_and_xfs_take_small_blocks_where_the_disk_has_small_sectors() {
    require!("mkfs.ext4", "mkfs.xfs", "mount");
    let tools: [(&str, &str, u64); 2] = [("mkfs.ext4", "-qF", 64), ("mkfs.xfs", "-qf", 320)];
    for (tool, flags, size) in tools {
        for (sector, fits) in [("512", true), ("4096", false)] {
            let image = Image::new(size * MIB);
            let device = image.attach(&["--sector-size", sector]);
            run(tool, &[Path::new(flags), device.path()]);
            let mount = Mount::new(device.path(), image.mount_point());
            let path = mount.at.join("store.lusf");
            let options = CreateOptions {
                capacity: Some(MIB),
                block_size: 512,
                ..plain()
            };
            let made = format(&path, &options);
            assert_eq!(made.is_ok(), fits, "{tool}, {sector}: {made:?}");
            assert_eq!(path.exists(), fits);
        }
    }
}
