//! The guard on real block devices: whatever belongs to somebody is refused by name and stays as
//! it was, byte for byte; what is forced afterwards no longer looks like the old thing.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::support::disks::{
    self, Image, Loop, Mount, forced, name_of, pipe, plain, refusal, require, run, user_of,
    writable,
};
use lumpscope_engine::Layout;
use lumpscope_engine::create::format;
use lumpscope_engine::guard::{FormatError, Signature, SignatureKind, User};
use lumpscope_engine::layout::{LayoutError, detect_path};
use lumpscope_engine::units::ByteOffset;

const MIB: u64 = 1024 * 1024;

/// An image that carries a signature: refused as file and as device, and erased when forced.
fn assert_signature(image: &Image, kind: &str, class: SignatureKind, offset: u64) {
    let check = |path: &Path| {
        let error = refusal(image, path, &plain());
        let FormatError::Signatures { found, .. } = &error else {
            panic!("{kind}: refused for another reason: {error}")
        };
        let place = Some(ByteOffset(offset));
        let is_it = |s: &Signature| s.kind == kind && s.class == class && s.offset == place;
        assert!(
            found.iter().any(is_it),
            "{kind} at {offset} is not in: {error}"
        );
        assert!(error.to_string().contains(kind), "{error}");
    };
    check(&image.path());
    let device = image.attach(&[]);
    check(device.path());
    let LayoutError::NotAStore { found, .. } = detect_path(device.path()).expect_err("no store")
    else {
        panic!("{kind} was taken for a store")
    };
    assert!(found.iter().any(|s| s.kind == kind), "{found:?}");
    assert_forced(&device);
}

/// Formats by force, and checks that nothing but the store is left to be found.
fn assert_forced(device: &Loop) {
    let report = format(device.path(), &forced()).expect("forced");
    assert!(!report.erased.is_empty());
    let detected = detect_path(device.path()).expect("a store");
    assert_eq!(detected.layout, Layout::Minfs);
    assert_eq!(detected.geometry, report.geometry);
    let FormatError::Signatures { found, .. } =
        format(device.path(), &plain()).expect_err("a store is there")
    else {
        panic!("refused for another reason")
    };
    let left: Vec<&str> = found.iter().map(|s| s.kind.as_str()).collect();
    assert_eq!(left, ["minfs", "lusf"], "something of the old is left");
}

#[test]
fn ext2_and_ext4() {
    require!("mkfs.ext4", "mkfs.ext2");
    for (tool, kind) in [("mkfs.ext2", "ext2"), ("mkfs.ext4", "ext4")] {
        let image = Image::new(32 * MIB);
        run(tool, &[Path::new("-qF"), &image.path()]);
        assert_signature(&image, kind, SignatureKind::FileSystem, 1080);
    }
}

#[test]
fn xfs() {
    require!("mkfs.xfs");
    let image = Image::made(320 * MIB, "mkfs.xfs", "-qf");
    assert_signature(&image, "xfs", SignatureKind::FileSystem, 0);
}

#[test]
fn btrfs() {
    require!("mkfs.btrfs");
    let image = Image::made(128 * MIB, "mkfs.btrfs", "-qf");
    assert_signature(&image, "btrfs", SignatureKind::FileSystem, 65_600);
}

#[test]
fn vfat() {
    require!("mkfs.vfat");
    let image = Image::made(64 * MIB, "mkfs.vfat", "-F32");
    assert_signature(&image, "vfat", SignatureKind::FileSystem, 82);
}

#[test]
fn swap_space() {
    require!("mkswap");
    let image = Image::made(16 * MIB, "mkswap", "-q");
    assert_signature(&image, "swap", SignatureKind::Other, 4086);
}

#[test]
fn a_physical_volume_of_lvm() {
    require!("pvcreate");
    let image = Image::new(16 * MIB);
    {
        let device = image.attach(&[]);
        let all = r#"devices { use_devicesfile=0 filter=["a|.*|"] }"#;
        let all = ["--yes", "--config", all].map(Path::new);
        run("pvcreate", &[&all[..], &[device.path()]].concat());
    }
    assert_signature(&image, "LVM2_member", SignatureKind::Raid, 536);
}

#[test]
fn luks() {
    require!("cryptsetup");
    let image = Image::new(32 * MIB);
    let path = image.path();
    let path = path.to_str().expect("a path of ASCII letters");
    let quick = "luksFormat --batch-mode --pbkdf=pbkdf2 --pbkdf-force-iterations=1000";
    let arguments: Vec<&str> = quick.split(' ').chain([path, "-"]).collect();
    pipe("cryptsetup", &arguments, "a key").expect("encrypted");
    assert_signature(&image, "crypto_LUKS", SignatureKind::Crypto, 0);
}

/// The superblock of a RAID member, written by hand: mdadm needs the kernel's driver to make one.
#[test]
fn a_member_of_a_raid() {
    require!();
    let image = Image::new(16 * MIB);
    let file = writable(&image.path());
    let mut superblock = [0_u8; 256];
    superblock[0..4].copy_from_slice(&0xA92B_4EFC_u32.to_le_bytes());
    superblock[4..8].copy_from_slice(&1_u32.to_le_bytes());
    superblock[16..32].fill(7);
    superblock[72..76].copy_from_slice(&1_u32.to_le_bytes());
    superblock[92..96].copy_from_slice(&2_u32.to_le_bytes());
    // Its own place in sectors: 4096 bytes from the start, version 1.2.
    superblock[144..152].copy_from_slice(&8_u64.to_le_bytes());
    file.write_all_at(&superblock, 4096).expect("written");
    assert_signature(&image, "linux_raid_member", SignatureKind::Raid, 4096);
}

/// Writes a partition table with one partition from sector 2048 on.
fn partition(image: &Image, label: &str) {
    let script = format!("label: {label}\nstart=2048, size=16384\n");
    pipe("sfdisk", &[Path::new("--quiet"), &image.path()], &script).expect("partitioned");
}

/// The labels of a ZFS device, written by hand: two at its start and two at its end.
#[test]
fn a_device_of_zfs() {
    require!();
    let len = 64 * MIB;
    let image = Image::new(len);
    let file = writable(&image.path());
    for label in [0, MIB / 4, len - MIB / 2, len - MIB / 4] {
        for uberblock in 0..16 {
            let (magic, at) = (0x00BA_B10C_u64, label + MIB / 8 + uberblock * 1024);
            file.write_all_at(&magic.to_le_bytes(), at)
                .expect("written");
        }
    }
    assert_signature(&image, "zfs_member", SignatureKind::FileSystem, 0x2_3C00);
}

#[test]
fn partition_tables() {
    require!("sfdisk");
    for (label, offset) in [("dos", 510), ("gpt", 512)] {
        let image = Image::new(16 * MIB);
        partition(&image, label);
        assert_signature(&image, label, SignatureKind::PartitionTable, offset);
    }
}

#[test]
fn a_gpt_of_which_only_the_backup_is_left() {
    require!("sfdisk");
    let image = Image::new(16 * MIB);
    partition(&image, "gpt");
    let file = writable(&image.path());
    file.write_all_at(&[0; 4096], 0).expect("written");
    assert_signature(&image, "gpt", SignatureKind::PartitionTable, 16 * MIB - 512);
}

#[test]
fn partitions_that_only_the_kernel_still_knows() {
    require!("sfdisk", "addpart");
    let image = Image::new(16 * MIB);
    partition(&image, "dos");
    let device = image.attach(&["--partscan"]);
    let partition = device.partition(2048, 16384);
    let file = writable(device.path());
    file.write_all_at(&[0; 512], 0).expect("written");
    file.sync_all().expect("written");
    // While somebody holds the partition, force does not help.
    let exclusive = exclusively(&partition).expect("unused");
    let error = refusal(&image, device.path(), &forced());
    assert!(matches!(user_of(&error), User::Exclusive), "{error}");
    drop(exclusive);
    let error = refusal(&image, device.path(), &plain());
    assert!(
        matches!(&error, FormatError::Partitions { names, .. } if names.len() == 1),
        "{error}"
    );
    format(device.path(), &forced()).expect("forced");
    let node = Path::new("/sys/class/block").join(name_of(&partition));
    assert!(!node.exists(), "the partition is still there");
}

fn exclusively(device: &Path) -> std::io::Result<File> {
    let excl = i32::try_from(rustix::fs::OFlags::EXCL.bits()).expect("a small flag");
    File::options().read(true).custom_flags(excl).open(device)
}

#[test]
fn a_mounted_device_and_a_mounted_partition() {
    require!("mkfs.ext4", "sfdisk", "addpart", "mount");
    let image = Image::made(32 * MIB, "mkfs.ext4", "-qF");
    let device = image.attach(&[]);
    let mount = Mount::new(device.path(), image.mount_point());
    for options in [plain(), forced()] {
        let error = refusal(&image, device.path(), &options);
        let FormatError::Mounted { mount_point, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*mount_point, mount.at);
    }
    drop((mount, device));

    let image = Image::new(32 * MIB);
    partition(&image, "gpt");
    let device = image.attach(&["--partscan"]);
    let partition = device.partition(2048, 16384);
    run("mkfs.ext4", &[Path::new("-qF"), &partition]);
    let _mount = Mount::new(&partition, image.mount_point());
    let error = refusal(&image, device.path(), &forced());
    let FormatError::Mounted { device, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(device, name_of(&partition));
}

#[test]
fn a_mounted_btrfs_which_hides_its_device_number() {
    require!("mkfs.btrfs", "mount");
    let image = Image::made(128 * MIB, "mkfs.btrfs", "-qf");
    let device = image.attach(&[]);
    if let Err(error) = disks::try_run("mount", &[device.path(), &image.mount_point()]) {
        return lumpscope_needs::missing(&format!("no btrfs in this kernel: {error}"));
    }
    let mount = Mount {
        at: image.mount_point(),
    };
    let error = format(device.path(), &forced()).expect_err("mounted");
    assert!(
        matches!(&error, FormatError::Mounted { mount_point, .. } if *mount_point == mount.at),
        "{error}"
    );
}

#[test]
fn a_device_that_somebody_holds() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    let _holder = exclusively(device.path()).expect("unused");
    for options in [plain(), forced()] {
        let error = refusal(&image, device.path(), &options);
        assert!(matches!(user_of(&error), User::Exclusive), "{error}");
    }
}

/// Active swap space; switched off on drop.
struct Swap<'a>(&'a Path);

impl Drop for Swap<'_> {
    fn drop(&mut self) {
        if let Err(error) = disks::try_run("swapoff", &[self.0]) {
            disks::say(&error);
        }
    }
}

#[test]
fn active_swap() {
    require!("mkswap", "swapon");
    let image = Image::made(16 * MIB, "mkswap", "-q");
    let device = image.attach(&[]);
    if let Err(error) = disks::try_run("swapon", &[device.path()]) {
        return lumpscope_needs::missing(&format!("no swap in this kernel: {error}"));
    }
    let swap = Swap(device.path());
    // The kernel may write pages there at any time, but never to the first one.
    let header = || std::fs::read(image.path()).expect("read")[..4096].to_vec();
    let before = header();
    let error = format(device.path(), &forced()).expect_err("must be refused");
    assert!(matches!(user_of(&error), User::Swap), "{error}");
    assert_eq!(header(), before, "the header of the swap space changed");
    drop(swap);
}

#[test]
fn a_file_behind_a_loop_device_and_a_device_behind_another() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    let error = refusal(&image, &image.path(), &forced());
    let User::Loop { name } = user_of(&error) else {
        panic!("{error}")
    };
    assert_eq!(name, name_of(device.path()));
    let find = ["--find", "--show"].map(Path::new);
    let upper = run("losetup", &[&find[..], &[device.path()]].concat());
    let error = format(device.path(), &forced());
    run("losetup", &["--detach", &upper]);
    assert!(matches!(error, Err(FormatError::InUse { .. })), "{error:?}");
}

#[test]
fn a_read_only_device() {
    require!();
    let image = Image::new(16 * MIB);
    let device = image.attach(&["--read-only"]);
    for options in [plain(), forced()] {
        let error = refusal(&image, device.path(), &options);
        assert!(matches!(&error, FormatError::ReadOnly { .. }), "{error}");
    }
}
